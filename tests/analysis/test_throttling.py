"""What held the clocks down: golden traces of two states and of bursts, also moved and reversed in time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.run.slowdowns import holds, lost, low_input
from edgescope.records import Channel, Readings

SECOND = 1_000_000_000
START = 5 * SECOND


def trace(name, values, *, period_s=0.1, start_ns=START, reason=""):
    """One channel read every `period_s` from the window's start on."""
    n = len(values)
    t_ns = start_ns + np.round(np.arange(n) * period_s * SECOND).astype(np.int64)
    channel = Channel(name, "1", "gpu", "gauge", "test", reason=reason)
    return Readings((channel,), t_ns, np.zeros(n, np.int16), np.asarray(values, dtype=np.float64))


def hold(name, values, stop_s=None):
    readings = trace(name, values)
    stop = START + round((stop_s if stop_s is not None else len(values) * 0.1) * SECOND)
    (found,) = holds(readings, START, stop)
    return found


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("throttled_gpu0_hw_thermal", "thermal"),
        ("throttled_gpu0_sw_power", "power cap"),
        ("throttled_soc_over_current", "over-current"),
        ("throttled_soc_under_voltage", "under-voltage"),
        ("throttled_cpu_clock", "clock below its request"),
        ("throttled_of_a_kind_unheard_of", "some guard"),
    ],
)
def test_the_cause_is_the_end_of_the_name(name, cause):
    found = hold(name, [1] * 50)
    assert (found.channel, found.cause, found.share, found.n, found.throttled) == (name, cause, 1.0, 50, True)
    assert str(found) == f"{cause} from second 0.0: {name} in 100% of 50 readings"


def test_two_states_give_the_second_of_the_change_and_the_share():
    found = hold("throttled_gpu0_hw_thermal", [0] * 70 + [1] * 30)
    assert (found.share, found.n, found.first_s) == (0.3, 100, pytest.approx(7.0))
    assert str(found).startswith("thermal from second 7.0:")


@pytest.mark.parametrize(
    ("name", "active", "throttled"),
    [
        ("throttled_x_thermal", 0, False),
        ("throttled_x_thermal", 1, True),  # heat counts from the first reading
        ("throttled_x_over_current", 1, True),
        ("throttled_x_under_voltage", 1, True),
        ("throttled_x_power", 5, False),  # 5 % of 100 readings is what a power cap may
        ("throttled_x_power", 6, True),
        ("throttled_x_clock", 20, False),
        ("throttled_x_clock", 21, True),
    ],
)
def test_what_may_come_and_go_counts_from_its_share_on(name, active, throttled):
    values = np.zeros(100)
    values[np.linspace(0, 99, active).astype(int)] = 1
    assert hold(name, values).throttled is throttled


def test_one_reading_of_what_may_come_and_go_is_no_throttling_however_few_there_are():
    assert not hold("throttled_x_power", [0, 0, 1]).throttled
    assert hold("throttled_x_power", [0, 1, 1]).throttled


def test_what_comes_and_goes_began_with_its_first_lasting_stretch():
    """At 10 Hz a stretch has 100 readings: a lone second 2.0 is not it, the burst from 30.0 on is."""
    values = np.zeros(600)
    values[20] = 1
    values[300:360] = 1
    found = hold("throttled_x_power", values)
    assert found.first_s == pytest.approx(30.0) and found.share == pytest.approx(61 / 600)
    assert hold("throttled_x_thermal", values).first_s == pytest.approx(2.0)


def test_a_stretch_is_ten_seconds_long():
    """Six readings within one are more than a twentieth of it; as many spread wider are not."""
    near, far = np.zeros(400), np.zeros(400)
    near[[10, *range(200, 206)]] = 1
    far[[10, *range(200, 400, 40)]] = 1
    assert hold("throttled_x_power", near).first_s == pytest.approx(20.0)
    assert hold("throttled_x_power", far).first_s == pytest.approx(1.0)  # nothing lasts: the first of all


def test_a_guard_at_rest_says_only_its_readings():
    found = hold("throttled_x_thermal", [0] * 10)
    assert found.first_s is None and str(found) == "throttled_x_thermal in 0% of 10 readings"


def test_readings_count_from_the_first_to_the_last_moment_of_the_window():
    values = [1] * 5 + [0] * 10 + [1] * 5
    readings = trace("throttled_x_thermal", values)
    (found,) = holds(readings, START + SECOND // 2, START + 14 * SECOND // 10)
    assert (found.n, found.share, found.first_s) == (10, 0.0, None)
    (found,) = holds(readings, START + 4 * SECOND // 10, START + 15 * SECOND // 10)
    assert (found.n, found.share, found.first_s) == (12, pytest.approx(2 / 12), 0.0)
    assert holds(readings, START + 100 * SECOND, START + 101 * SECOND) == []
    assert holds(trace("gpu0_clock_hz", values), START, START + SECOND) == []


@given(st.lists(st.booleans(), min_size=2, max_size=60), st.integers(1, 10**12))
@pytest.mark.slow
def test_the_window_may_lie_anywhere_and_time_may_run_backwards(active, moved_ns):
    values = np.array(active, dtype=float)
    n, name = len(values), "throttled_x_thermal"
    stop = START + round((n - 1) * 0.1 * SECOND)
    (here,) = holds(trace(name, values), START, stop)
    (there,) = holds(trace(name, values, start_ns=START + moved_ns), START + moved_ns, stop + moved_ns)
    (back,) = holds(trace(name, values[::-1]), START, stop)
    assert here == there and (back.share, back.n, back.throttled) == (here.share, here.n, here.throttled)
    if here.first_s is not None:
        assert back.first_s == pytest.approx((n - 1) * 0.1 - np.flatnonzero(values)[-1] * 0.1)


def test_a_dip_of_a_5_volt_input_says_its_depth_second_and_share():
    volts = np.full(50, 5.02)
    volts[20:25] = [4.4, 4.31, 4.45, 4.5, 4.49]
    ((low, text),) = low_input(trace("vdd_in_voltage_v", volts), START, START + 5 * SECOND)
    says = "vdd_in fell to 4.31 V, below 4.50 V in 8% of 50 readings"
    assert low and text == f"under-voltage from second 2.0: {says}"


def test_an_input_that_holds_says_its_least():
    ((low, text),) = low_input(trace("pom_5v_in_voltage_v", [5.0, 4.62, 4.5, 4.9]), START, START + SECOND)
    assert not low and text == "pom_5v_in was at least 4.50 V (a 5-V input is low below 4.50 V)"


@pytest.mark.parametrize("volts", [[12.1, 4.2], [6.01, 4.2]])
def test_an_input_that_ever_reads_more_than_6_volts_is_not_fed_with_5(volts):
    assert low_input(trace("vdd_in_voltage_v", volts), START, START + SECOND) == []
    ((low, _),) = low_input(trace("vdd_in_voltage_v", [6.0, 4.2]), START, START + SECOND)
    assert low


def test_a_dip_outside_the_window_is_none_of_its():
    volts = [4.2, 5.0, 5.0, 4.2]
    ((low, _),) = low_input(trace("vdd_in_voltage_v", volts), START + SECOND // 10, START + 2 * SECOND // 10)
    assert not low
    for start, stop in ((START, START + SECOND // 10), (START + 3 * SECOND // 10, START + SECOND)):
        ((low, _),) = low_input(trace("vdd_in_voltage_v", volts), start, stop)
        assert low
    assert low_input(trace("vdd_in_voltage_v", volts), START + 9 * SECOND, START + 10 * SECOND) == []


def test_a_guard_is_lost_when_the_last_fifth_of_the_window_has_none_of_its_readings():
    stop = START + 10 * SECOND
    last_at = lambda s: trace("throttled_x_thermal", [0] * round(s * 10 + 1), reason="unplugged")  # noqa: E731
    (text,) = lost(last_at(7.9), START, stop)
    assert text == "throttled_x_thermal fell silent after second 7.9 (unplugged)"
    assert lost(last_at(8.0), START, stop) == []
    assert lost(last_at(10.0), START, stop) == []


def test_a_guard_that_was_lost_before_the_window_says_how_long_before():
    (text,) = lost(trace("throttled_x_thermal", [0] * 11), START + 3 * SECOND, START + 9 * SECOND)
    assert text == "throttled_x_thermal fell silent 2.0 s before the window (no reason)"


def test_the_voltage_of_a_5_volt_input_is_a_guard_and_that_of_others_is_not():
    stop = START + 10 * SECOND
    assert len(lost(trace("vdd_in_voltage_v", [5.0, 6.0]), START, stop)) == 1
    assert lost(trace("vdd_in_voltage_v", [5.0, 12.0]), START, stop) == []
    assert lost(trace("vdd_cpu_voltage_v", [5.0, 5.0]), START, stop) == []
    assert lost(trace("vdd_in_voltage_v", []), START, stop) == []
