"""Simulated devices with a known truth: time constants, throttled speeds and the moments of both are put in."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.analysis.run import slowdowns as parts
from edgescope.analysis.run.slowdowns import BLOCKS, SUSTAINED, sustained
from edgescope.records import QUERY_DTYPES, Absent, Channel, Measured, Queries, Readings, Window

S = 1_000_000_000


def queries(latency_s, length_s, *, cv=0.02, seed=1, start=100 * S):
    """Back-to-back queries whose expected latency at second t is latency_s(t), gamma-distributed."""
    rng = np.random.default_rng(seed)
    shape = 1 / cv**2
    grid = np.arange(0, length_s, 0.05)
    mean = np.array([latency_s(t) for t in grid])
    count = np.concatenate(([0.0], np.cumsum(0.05 / mean)))  # expected queries done by the end of each step
    done = np.interp(np.arange(1, int(count[-1])), count, np.append(grid, length_s))
    each = np.diff(done, prepend=0.0) * rng.gamma(shape, 1 / shape, len(done))
    done_ns = start + (np.cumsum(each) * S).astype(np.int64)
    issued = np.concatenate(([start], done_ns[:-1]))
    n = len(done_ns)
    columns = {name: np.zeros(n, kind) for name, kind in QUERY_DTYPES.items()}
    columns |= {"query_id": np.arange(n), "issued_ns": issued, "done_ns": done_ns}
    columns |= {"scheduled_ns": np.full(n, -1), "samples": np.full(n, 2)}
    return Queries(columns), Window(0, n, start, int(done_ns[-1]))


def readings(length_s, *, hz=2.0, start=100 * S, **series):
    """One row a channel at `hz`, of functions of the second."""
    at = np.arange(0, length_s + 5, 1 / hz)
    channels, parts = [], []
    for i, (name, value) in enumerate(series.items()):
        unit = "degC" if name.endswith("_c") else "flag"
        channels.append(Channel(name, unit, "thermal_zone", "gauge", "simulated"))
        values = np.array([value(t) for t in at])
        parts.append((start + (at * S).astype(np.int64), np.full(len(at), i, np.int16), values))
    empty = (np.empty(0, np.int64), np.empty(0, np.int16), np.empty(0))
    columns = [np.concatenate(c) for c in zip(*(parts or [empty]), strict=True)]
    return Readings(tuple(channels), *columns)


def warming(tau, rise=30.0, base=45.0):
    return lambda t: base + rise * (1 - np.exp(-t / tau))


def step(at, before, after):
    return lambda t: before if t < at else after


def value(got, name):
    field = got.fields[name]
    assert isinstance(field, Measured), field
    return field.value


def test_a_device_that_throttles_has_two_throughputs():
    asked, window = queries(step(200, 0.010, 0.016), 600)
    guard = step(200, 0.0, 1.0)
    heat = readings(600, temperature_tj_thermal_c=warming(60), throttled_gpu_throttle_alert_thermal=guard)
    got = sustained(asked, heat, window)
    assert value(got, "burst_throughput_sps") == pytest.approx(200, rel=0.01)
    assert value(got, "sustained_throughput_sps") == pytest.approx(125, rel=0.01)
    assert value(got, "burst_latency_p50_s") == pytest.approx(0.010, rel=0.01)
    assert value(got, "sustained_latency_p50_s") == pytest.approx(0.016, rel=0.01)
    assert 199 <= value(got, "settled_s") <= 200 + 2 * 600 / BLOCKS
    assert value(got, "time_to_throttle_s") == pytest.approx(200, abs=0.6)
    rate = got.fields["sustained_throughput_sps"]
    assert rate.lo < 125 * 1.005 and rate.hi > 125 * 0.995
    assert len(got.warnings) == 1
    assert str(got.warnings[0]).startswith("W-THR-1: THROTTLED: thermal from second 200")
    assert "burst 200." in str(got.warnings[0]) or "burst 199." in str(got.warnings[0])


def test_a_cool_device_has_one_and_says_that_none_throttled():
    asked, window = queries(lambda t: 0.01, 120)
    heat = readings(120, temperature_c=lambda t: 50.0, throttled_cpu_thermal=lambda t: 0.0)
    got = sustained(asked, heat, window)
    assert value(got, "settled_s") == 0.0
    assert value(got, "sustained_throughput_sps") == pytest.approx(
        value(got, "burst_throughput_sps"), rel=0.01
    )
    assert got.fields["time_to_throttle_s"] == Absent("no throttling in 120 s (1 guards watched)")
    assert got.warnings == ()


def test_a_device_that_is_still_warming_up_has_no_sustained_number():
    asked, window = queries(lambda t: 0.01, 120)
    got = sustained(asked, readings(120, temperature_c=warming(300, rise=60)), window)
    for name in ("sustained_throughput_sps", "sustained_latency_p50_s", "settled_s"):
        field = got.fields[name]
        assert isinstance(field, Absent) and "temperature_c still moves" in field.reason
    assert value(got, "burst_throughput_sps") == pytest.approx(200, rel=0.01)


def test_a_device_that_slows_down_near_the_end_has_not_settled():
    asked, window = queries(step(500, 0.010, 0.013), 600)
    got = sustained(asked, readings(600, temperature_c=lambda t: 80.0), window)
    field = got.fields["sustained_throughput_sps"]
    assert isinstance(field, Absent) and "the latency still" in field.reason


def test_a_slow_slide_without_any_step_has_not_settled():
    asked, window = queries(lambda t: 0.02 * (1 + 0.1 * t / 300), 300)
    got = sustained(asked, readings(300, temperature_c=lambda t: 70.0), window)
    assert "the latency still drifts by +" in got.fields["settled_s"].reason


def test_a_swing_as_long_as_the_parts_leaves_nothing_steady():
    asked, window = queries(lambda t: 0.03 if int(t / 15) % 2 else 0.01, 120)
    got = sustained(asked, readings(120, temperature_c=lambda t: 50.0), window)
    assert "parts of the run differ so much" in got.fields["settled_s"].reason


def test_a_sawtooth_of_throttling_settles_and_its_mean_is_the_answer():
    """Ten seconds at full speed, ten at half, for ever: the user gets 2 / (0.01 + 0.02) queries/s."""
    asked, window = queries(lambda t: 0.010 if t % 20 < 10 else 0.020, 600)
    heat = readings(600, temperature_c=lambda t: 90 + 2 * np.sin(t * np.pi / 10))
    got = sustained(asked, heat, window)
    assert value(got, "sustained_throughput_sps") == pytest.approx(2 * (100 + 50) / 2, rel=0.02)


def test_a_short_window_says_how_long_it_must_be():
    asked, window = queries(lambda t: 0.01, 59)
    got = sustained(asked, readings(59, temperature_c=lambda t: 50.0), window)
    assert set(got.fields) == set(SUSTAINED)
    assert all(isinstance(f, Absent) and "need 60 s" in f.reason for f in got.fields.values())
    assert got.warnings == ()


def test_without_a_thermometer_it_says_what_settled_means():
    asked, window = queries(lambda t: 0.01, 100)
    got = sustained(asked, readings(100), window)
    assert value(got, "settled_s") == 0.0
    assert len(got.warnings) == 1 and got.warnings[0].code == "W-SUS-1"
    assert "no sign of throttling" in got.fields["time_to_throttle_s"].reason


def test_a_powered_off_sensor_does_not_unsettle():
    asked, window = queries(lambda t: 0.01, 100)
    heat = readings(
        100,
        temperature_cv0_c=lambda t: -256.0 if t < 50 else 40.0,
        temperature_tj_c=lambda t: 50.0,
        temperature_off_c=lambda t: -256.0,
    )
    assert value(sustained(asked, heat, window), "settled_s") == 0.0


def part_of(got, name, until_s, start=100 * S):
    """The readings without what `name` said after second `until_s`."""
    index = [c.name for c in got.channels].index(name)
    keep = (got.channel != index) | (got.t_ns <= start + until_s * S)
    return Readings(got.channels, got.t_ns[keep], got.channel[keep], got.value[keep])


@pytest.mark.parametrize("rise", [3.0, 0.0])
def test_a_thermometer_that_dies_on_the_way_leaves_settling_unknown(rise):
    asked, window = queries(lambda t: 0.02, 600)
    heat = readings(600, temperature_a_c=lambda t: 40 + rise * t / 60, temperature_b_c=lambda t: 50.0)
    got = sustained(asked, part_of(heat, "temperature_a_c", 220), window)
    for name in ("settled_s", "sustained_throughput_sps"):
        field = got.fields[name]
        assert isinstance(field, Absent) and "temperature_a_c fell silent after second 220" in field.reason


def test_a_thermometer_read_too_rarely_at_the_end_is_not_passed_over():
    """Still warming for 350 of 600 s; the readings after that are too few to show anything."""
    asked, window = queries(lambda t: 0.02, 600)
    heat = readings(600, hz=0.05, temperature_c=lambda t: 40 + 3 * min(t, 350) / 60)
    reason = sustained(asked, heat, window).fields["settled_s"].reason
    assert "temperature_c has 10 readings from second 400 on: too few to tell" in reason


def test_a_zone_that_is_switched_off_on_the_way_does_not_unsettle():
    asked, window = queries(lambda t: 0.01, 100)
    off = readings(100, temperature_cv0_c=step(50, 40.0, -256.0), temperature_tj_c=lambda t: 50.0)
    assert value(sustained(asked, off, window), "settled_s") == 0.0


@pytest.mark.parametrize("channel", ["throttled_cpu_policy0_clock", "throttled_gpu0_power"])
@pytest.mark.parametrize("hz", [2.0, 10.0])
def test_a_governor_that_lags_at_the_start_is_not_where_throttling_began(channel, hz):
    """0.2 s at the start, as clocks rise, and the real thing from second 40 on, in 6 of 10 readings."""
    asked, window = queries(step(40, 0.010, 0.016), 120)

    def guard(t):
        return float(t < 0.25) if t < 40 else float(round(t * hz) % 10 < 6)

    got = sustained(asked, readings(120, hz=hz, **{channel: guard}), window)
    assert value(got, "time_to_throttle_s") == pytest.approx(40, abs=0.5)
    assert any(w.code == "W-THR-1" and "from second 40." in str(w) for w in got.warnings)


def test_heat_counts_from_its_first_reading():
    asked, window = queries(lambda t: 0.01, 120)
    got = sustained(asked, readings(120, throttled_x_thermal=lambda t: float(t < 1 or t > 90)), window)
    assert value(got, "time_to_throttle_s") == 0.0


def test_offline_has_throughputs_and_no_latencies():
    asked, window = queries(lambda t: 0.01, 100)
    columns = dict(asked.columns) | {"scheduled_ns": np.full(len(asked), window.start_ns)}
    got = sustained(Queries(columns), readings(100, temperature_c=lambda t: 50.0), window, "offline")
    assert value(got, "sustained_throughput_sps") == pytest.approx(200, rel=0.02)
    assert isinstance(got.fields["sustained_latency_p50_s"], Absent)


def test_queries_that_fail_count_in_neither():
    asked, window = queries(lambda t: 0.01, 100)
    status = np.zeros(len(asked), np.int8)
    status[::2] = 1
    got = sustained(Queries(dict(asked.columns) | {"status": status}), readings(100), window)
    assert value(got, "sustained_throughput_sps") == pytest.approx(100, rel=0.02)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    tau=st.floats(10, 90),
    at=st.floats(20, 300),
    slower=st.floats(1.05, 3.0),
    seed=st.integers(0, 1000),
)
def test_the_two_numbers_are_those_put_in(tau, at, slower, seed):
    """Whatever the time constant, the moment and the depth of the throttling."""
    asked, window = queries(step(at, 0.040, 0.040 * slower), 600, seed=seed)
    got = sustained(asked, readings(600, temperature_c=warming(tau)), window)
    burst = got.fields["burst_throughput_sps"]
    assert isinstance(burst, Measured) and burst.value == pytest.approx(50, rel=0.02)
    rest = got.fields["sustained_throughput_sps"]
    assert isinstance(rest, Measured), rest
    assert rest.value == pytest.approx(50 / slower, rel=0.02)
    assert value(got, "settled_s") >= at - 60  # a step of 5 % shows once it fills a third of an eighth


def test_a_steady_device_settles_at_once_nearly_always():
    early = 0
    for seed in range(40):
        asked, window = queries(lambda t: 0.05, 120, cv=0.1, seed=seed)
        got = sustained(asked, readings(120, temperature_c=lambda t: 60.0), window)
        early += isinstance(got.fields["settled_s"], Measured) and got.fields["settled_s"].value == 0.0
    assert early >= 36


# -- its parts by hand -------------------------------------------------------------------------------------------------


def even(n, each_s=1.0):
    """Queries of two samples that are done at 1, 2, 3 .. times `each_s`, and their window."""
    done = np.round(np.arange(1, n + 1) * each_s * S).astype(np.int64)
    columns = {name: np.zeros(n, kind) for name, kind in QUERY_DTYPES.items()}
    columns |= {"done_ns": done, "issued_ns": done - round(each_s * S), "samples": np.full(n, 2)}
    return Queries(columns | {"scheduled_ns": np.full(n, -1)}), Window(0, n, 0, int(done[-1]))


def test_a_part_holds_what_was_done_after_its_begin_up_to_its_end():
    rows, window = even(100)
    rate, latency = parts._part(rows, window, 10.0, 20.0)
    assert (rate.value, rate.n, latency.value, latency.n) == (2.0, 10, 1.0, 10)


@pytest.mark.parametrize(("length", "burst"), [(60, 6), (100, 10), (500, 10)])
def test_burst_is_a_tenth_of_the_window_and_ten_seconds_at_most(length, burst):
    rows, window = even(length)
    found = sustained(rows, readings(length), window).fields
    assert found["burst_throughput_sps"].n == burst and found["burst_throughput_sps"].value == 2.0
    assert (found["settled_s"].value, found["settled_s"].lo, found["settled_s"].hi) == (0.0, 0.0, 0.0)
    assert (found["settled_s"].n, found["sustained_throughput_sps"].n) == (24, length)
    short = sustained(*even(59)[:1], readings(59), even(59)[1]).fields
    assert all(isinstance(f, Absent) for f in short.values())


def test_what_follows_a_block_is_the_sustained_part():
    rows, window = even(240)
    found = parts._rest(rows, window, 3)
    assert (found["settled_s"].value, found["settled_s"].lo, found["settled_s"].hi) == pytest.approx(
        (30, 20, 30)
    )
    assert found["sustained_throughput_sps"].n == 210 and found["sustained_latency_p50_s"].value == 1.0
    assert set(parts._rest(rows, window, Absent("x")).values()) == {Absent("x")}


def test_a_thermometer_counts_with_a_reading_a_block_that_was_on_at_the_end():
    window = Window(0, 1, 100 * S, 124 * S)

    def heat(hz, value):
        return parts.temperatures(readings(24, hz=hz, a_c=value, b=lambda t: 1.0), window)

    (at, celsius) = heat(1.0, lambda t: 40.0 + t)["a_c"]
    assert (at[0], at[-1], len(at), celsius[-1]) == (0.0, 24.0, 25, 64.0)
    assert len(heat(23 / 24, lambda t: 40.0)["a_c"][0]) == 24 and heat(22 / 24, lambda t: 40.0) == {}
    assert len(heat(2.0, lambda t: -256.0 if t < 10 else 40.0)["a_c"][0]) == 29
    assert heat(2.0, lambda t: 40.0 if t < 20 else -256.0) == {} == heat(2.0, lambda t: -200.0)


def test_the_pace_is_the_latency_or_the_time_between_completions():
    rows, window = even(4, 0.5)
    rows.columns["status"][1] = 1
    at, pace = parts._pace(rows, window, "single_stream")
    assert (at.tolist(), pace.tolist()) == ([0.5, 1.5, 2.0], [0.5, 0.5, 0.5])
    turned = Queries({k: v[::-1].copy() for k, v in rows.columns.items()})
    at, pace = parts._pace(turned, window, "offline")
    assert (at.tolist(), pace.tolist()) == ([1.5, 2.0], [1.0, 0.5])


def test_throttling_begins_with_the_first_of_the_guards():
    window = Window(0, 1, 100 * S, 200 * S)
    guards = {
        "throttled_a_thermal": lambda t: float(t >= 40),
        "throttled_b_thermal": lambda t: float(t >= 20),
        "throttled_c_thermal": lambda t: 0.0,
    }
    found = parts.time_to_throttle(readings(100, **guards), window)
    assert (found.value, found.n) == (20.0, 2)
    fields = {"settled_s": Absent("x"), "sustained_throughput_sps": Measured(3.0, "samples/s")}
    fields |= {"burst_throughput_sps": Measured(7.0, "samples/s")}
    (told,) = parts._warnings(fields, readings(100, **guards), window, warm=False)
    assert told.code == "W-THR-1" and "from second 20.0:" in str(told)
    assert re.search(r"burst 7\.0 .*sustained 3\.0 ", str(told))
    assert not parts._warnings(fields, readings(100, c=lambda t: 0.0), window, warm=False)
    for name in ("sustained_throughput_sps", "burst_throughput_sps"):
        assert not parts._warnings(fields | {name: Absent("x")}, readings(100, **guards), window, warm=True)
    settled = fields | {"settled_s": Measured(0.0, "s")}
    for warm, codes in ((False, ["W-SUS-1"]), (True, [])):
        assert [w.code for w in parts._warnings(settled, readings(100), window, warm=warm)] == codes


@pytest.mark.parametrize(
    ("slide", "steady"), [(0.0195, True), (0.0205, False), (-0.0195, True), (-0.0205, False)]
)
def test_latencies_slide_by_two_per_cent(slide, steady):
    times = np.arange(800.0) / 10
    pace = 1 + slide * (times / 80 - 0.5) + 1e-5 * np.cos(np.arange(800) * 2.0)
    assert (parts._unsteady_pace(times, pace, 0.0, 80.0) == "") is steady
    assert parts._unsteady_pace(times, pace, 40.0, 80.0) == "", "half of it"


@pytest.mark.parametrize(("swing", "steady"), [(0.13, True), (0.134, False)])
def test_the_mean_of_eight_parts_is_known_to_five_per_cent(swing, steady):
    """Parts that swing to either side: their deviation is swing x sqrt(8 / 7), the mean's error that / sqrt(8)."""
    times = np.arange(800.0) / 10
    pace = 1 + swing * np.where((times // 10) % 2 < 1, -1, 1)
    assert (parts._unsteady_pace(times, pace, 0.0, 80.0) == "") is steady
