"""What a card says beside p99: its bound with what it rests on, or that there is none."""

import dataclasses

import pytest

from edgescope.records import Absent, Measured
from making import result, show_card


def shown(capsys, bound):
    latency = {
        name: Measured(0.005, "s", n=2000) for name in ("latency_p50_s", "latency_p90_s", "latency_p99_s")
    }
    show_card(dataclasses.replace(result(), metrics=latency | {"latency_p99_bound_s": bound}))
    return " ".join(capsys.readouterr().out.split())


def test_a_bound_says_the_longest_stall_that_it_covers(capsys):
    said = shown(capsys, Measured(0.007, "s", n=20_000))
    assert "p99 below 7 ms with 99 % confidence, if no stall is longer than 43 queries" in said


@pytest.mark.parametrize(("age_s", "said"), [(2.0, ""), (3 * 3600.0, " (3 h 0 min earlier)"), (None, "")])
def test_a_build_of_an_earlier_run_is_said_to_be_one(capsys, age_s, said):
    facts = {name: Measured(62.9, "s") for name in ("build_s", "load_s", "first_s")}
    show_card(dataclasses.replace(result(), metrics=facts, artifact={"age_s": age_s}))
    assert f"build 62.9 s{said} load" in " ".join(capsys.readouterr().out.split())


def test_a_p99_without_a_bound_says_so(capsys):
    assert "no bound of p99 (have 208, need 459)" in shown(capsys, Absent("n/a: have 208, need 459"))
