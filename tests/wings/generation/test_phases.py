"""Joules by phase from a board whose two powers are known, and a sensor that is late, as an Orin's INA3221 is."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.records import Absent, Channel, Measured, Readings, Trial, Window
from edgescope.wings.generation import phases
from edgescope.wings.generation.phases import Stretch
from making import result

S = 1_000_000_000
PREFILL_W, DECODE_W, IDLE_W = 21.0, 12.0, 5.0
PROMPT_S, ANSWER_S, TOKENS = 0.5, 1.5, 31
"""Each request: its prompt, then 30 tokens after the first."""
LATE_S, REFRESH_S = 0.3, 0.1


def watts(t, window, prompts):
    """Return the power at these seconds: requests in the window, then prompts alone, idle elsewhere."""
    place = (t - window[0]) % (PROMPT_S + ANSWER_S)
    busy = np.where(place < PROMPT_S, PREFILL_W, DECODE_W)
    inside = (t >= window[0]) & (t < window[1])
    alone = (t >= prompts[0]) & (t < prompts[1])
    return np.where(inside, busy, np.where(alone, PREFILL_W, IDLE_W))


def measured(window=(2.0, 22.0), prompts=(23.0, 35.0), scope="module", **trial):
    """Return the result of a run and the stretch of its prompts, as a late sensor of 10 Hz saw it."""
    fine = np.arange(0, 40, 0.005)
    power = watts(fine, window, prompts)
    late = np.convolve(power, np.full(round(LATE_S / 0.005), 0.005 / LATE_S))[: len(fine)]
    read = slice(0, None, round(REFRESH_S / 0.005))
    t = fine[read]
    source = "ina3221 refresh 100 ms"
    channel = Channel("vdd_in_power_w", "W", scope, "gauge", source)
    readings = Readings(
        (channel,), (t * S).round().astype(np.int64), np.zeros(len(t), np.int16), late[read].astype(float)
    )
    answers = round((window[1] - window[0]) / (PROMPT_S + ANSWER_S))
    whole = phases.energy(
        readings, int(window[0] * S), int(window[1] * S), answers * TOKENS, device="cpu"
    ).energy_j
    made = result(trial=Trial(workload="generate", model="llm:smollm2", **trial))
    made = replace(
        made,
        readings=readings,
        window=Window(0, answers, int(window[0] * S), int(window[1] * S)),
        metrics={"energy_j": whole, "output_tokens": Measured(float(TOKENS), "tokens", n=answers)},
    )
    number = round((prompts[1] - prompts[0]) / PROMPT_S)
    return made, Stretch(int(prompts[0] * S), int(prompts[1] * S), number)


def test_prefill_and_decode_are_told_apart_although_the_sensor_is_late():
    found = phases.figures(*measured())
    prompt, token, rate = (found[name] for name in phases.NAMES)
    assert prompt.value == pytest.approx(PREFILL_W * PROMPT_S, rel=0.03)
    assert token.value == pytest.approx(DECODE_W * ANSWER_S / (TOKENS - 1), rel=0.05)
    assert token.lo < token.value < token.hi
    each = PREFILL_W * PROMPT_S + DECODE_W * ANSWER_S
    assert rate.value == pytest.approx(TOKENS / each, rel=0.03) and rate.unit == "tokens/J"


@pytest.mark.parametrize(
    ("run", "absent", "word"),
    [
        (measured(prompts=(23.0, 29.0)), {"prefill_energy_j", "decode_energy_token_j"}, "6.0 s of prompts"),
        (measured(window=(2.0, 8.0)), {"decode_energy_token_j"}, "a window of 6.0 s"),
        (measured(in_flight=4), {"prefill_energy_j", "decode_energy_token_j"}, "in flight"),
        ((measured()[0], None), {"prefill_energy_j", "decode_energy_token_j"}, "phase_s=10"),
    ],
)
def test_what_a_sensor_cannot_resolve_is_absent_with_the_reason(run, absent, word):
    found = phases.figures(*run)
    assert {name for name, field in found.items() if isinstance(field, Absent)} == absent
    assert all(word in found[name].reason for name in absent)


def test_without_a_meter_nothing_is_known_and_nothing_is_zero():
    made, stretch = measured()
    none = Absent("no meter here")
    blind = replace(made, readings=None, metrics=made.metrics | {"energy_j": none})
    assert phases.figures(blind, stretch)["tokens_per_j"] == none
    assert all(isinstance(field, Absent) for field in phases.figures(blind, stretch).values())


def test_prompts_that_took_more_than_the_window_are_no_decode():
    made, stretch = measured()
    few = replace(made, metrics=made.metrics | {"output_tokens": Measured(31.0, "tokens", n=40)})
    assert "whole window" in phases.figures(few, stretch)["decode_energy_token_j"].reason
    one = replace(made, metrics=made.metrics | {"output_tokens": Measured(1.0, "tokens", n=10)})
    assert "one token" in phases.figures(one, stretch)["decode_energy_token_j"].reason


def test_prompts_are_read_back_to_back_for_as_long_as_asked():
    numbers = []
    found = phases.back_to_back(numbers.append, 0.01)
    assert found.seconds >= 0.01 and found.prompts == len(numbers)
    assert numbers[:3] == [0, 1, 2]
