from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.devices.base import Unsupported
from edgescope.wings.jetson.guards import HeldClocks, JetsonThrottleWatch, pair
from fake_board import write

ZONE = "sys/class/thermal/thermal_zone0"
POLICY = "sys/devices/system/cpu/cpufreq/policy0"
GPU = "sys/class/devfreq/17000000.gpu"
OC3 = "sys/class/hwmon/hwmon3/oc3_event_cnt"
RAIL = "sys/class/hwmon/hwmon1"
ALERT = "sys/class/thermal/cooling_device0/cur_state"


def orin(root, **changes):
    """A constructed Orin at rest: one counter, an alert, a zone 20 C below its passive trip, one CPU policy."""
    files = {
        "proc/device-tree/compatible": "nvidia,tegra234\0",
        OC3: "0\n",
        "sys/class/thermal/cooling_device0/type": "gpu-throttle-alert\n",
        ALERT: "0\n",
        f"{ZONE}/type": "tj-thermal\n",
        f"{ZONE}/temp": "79000\n",
        f"{ZONE}/trip_point_0_type": "passive\n",
        f"{ZONE}/trip_point_0_temp": "99000\n",
        f"{POLICY}/scaling_cur_freq": "1510400\n",
        f"{POLICY}/cpuinfo_cur_freq": "1510000\n",
        f"{RAIL}/in1_label": "VDD_IN\n",
        f"{RAIL}/curr1_crit_alarm": "0\n",
        f"{GPU}/cur_freq": "918000000\n",
        f"{GPU}/max_freq": "918000000\n",
        f"{GPU}/device/load": "1000\n",
    }
    return write(root, files | changes)


def evidence(root, changes):
    with JetsonThrottleWatch(root) as watch:
        write(root, changes)
    return watch.evidence()


def test_a_board_at_rest_shows_what_was_looked_at(tmp_path):
    got = evidence(orin(tmp_path), {})
    assert got.events == () and got.unknown == () and got.absent == ()
    assert len(got.looked_at) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({OC3: "4\n"}, "over-current: oc3_event_cnt rose by 4 to 4"),
        ({ALERT: "1\n"}, "thermal: cooling device gpu_throttle_alert slows the GPU (state 1)"),
        ({f"{ZONE}/temp": "99500\n"}, "thermal: tj-thermal at 99.5 C is past its passive trip of 99.0 C"),
        ({f"{RAIL}/curr1_crit_alarm": "1\n"}, "over-current: the power monitor of VDD_IN"),
    ],
)
def test_each_cause_is_named_with_its_figures(tmp_path, changes, says):
    got = evidence(orin(tmp_path), changes)
    assert len(got.events) == 1
    assert got.events[0].startswith(says)


def test_the_first_event_of_an_orin_is_called_under_voltage(tmp_path):
    counter = "sys/class/hwmon/hwmon3/oc1_event_cnt"
    got = evidence(orin(tmp_path, **{counter: "0\n"}), {counter: "1\n"})
    assert got.events == ("under-voltage: oc1_event_cnt rose by 1 to 1 during the run",)


def test_an_event_latched_before_user_space_is_told_and_is_no_event_of_this_run(tmp_path):
    got = evidence(orin(tmp_path, **{OC3: "1\n"}), {})
    assert got.events == ()
    assert "oc3_event_cnt (1 over-current since boot, none during the run)" in got.looked_at


def test_a_clock_that_does_not_follow_is_w_clk_1_with_the_latched_counter(tmp_path):
    """The figures of forum t/361188."""
    files = {f"{POLICY}/scaling_cur_freq": "2601000\n", f"{POLICY}/cpuinfo_cur_freq": "649000\n"}
    got = evidence(orin(tmp_path, **files, **{OC3: "1\n"}), {})
    assert len(got.events) == 1
    text = got.events[0]
    assert re.match(r"W-CLK-1: policy0 .* 649 MHz, .* 2601 MHz", text)
    assert "oc3_event_cnt=1 since boot" in text and "4.0 times as long" in text


def test_idle_down_clocking_is_not_throttling(tmp_path):
    low = {f"{POLICY}/scaling_cur_freq": "115200\n", f"{POLICY}/cpuinfo_cur_freq": "115200\n"}
    low |= {f"{GPU}/cur_freq": "306000000\n", f"{GPU}/device/load": "30\n"}
    assert evidence(orin(tmp_path), low).events == ()
    assert held(tmp_path) == {"throttled_gpu_clock": 0.0, "throttled_cpu_policy0_clock": 0.0}


def test_a_clock_that_lagged_at_one_look_only_is_a_change_under_way(tmp_path):
    assert evidence(orin(tmp_path), {f"{POLICY}/cpuinfo_cur_freq": "700000\n"}).events == ()


def test_a_counter_that_goes_backwards_says_nothing(tmp_path):
    got = evidence(orin(tmp_path, **{OC3: "5\n"}), {OC3: "2\n"})
    assert got.events == ()
    assert any("backwards from 5 to 2" in text for text in got.looked_at)


@pytest.mark.parametrize(
    ("file", "what"), [(OC3, "oc3_event_cnt"), (ALERT, "the state of gpu_throttle_alert")]
)
def test_a_guard_that_is_gone_after_the_run_certifies_nothing(tmp_path, file, what):
    with JetsonThrottleWatch(orin(tmp_path)) as watch:
        (tmp_path / file).unlink()
    got = watch.evidence()
    assert got.events == () and len(got.unknown) == 1
    assert got.unknown[0].startswith(f"{what} could be read before the run and not after it")


def test_a_powered_off_zone_and_a_disabled_trip_are_not_looked_at(tmp_path):
    zone = "sys/class/thermal/thermal_zone1"
    files = {f"{zone}/type": "cv0-thermal\n", f"{zone}/temp": "-256000\n"}
    files |= {f"{zone}/trip_point_0_type": "passive\n", f"{zone}/trip_point_0_temp": "50000\n"}
    files |= {f"{ZONE}/trip_point_1_type": "passive\n", f"{ZONE}/trip_point_1_temp": "-1000\n"}
    got = evidence(orin(tmp_path, **files), {})
    assert got.events == ()
    assert "1 zones with a passive trip" in got.looked_at


def test_where_nothing_is_readable_the_state_is_unknown(tmp_path):
    got = evidence(tmp_path, {})
    assert got.looked_at == () and len(got.absent) == 4
    assert len(got.unknown) == 1 and got.unknown[0].startswith("W-THR-2")


def test_an_unfinished_watch_is_no_evidence(tmp_path):
    watch = JetsonThrottleWatch(orin(tmp_path))
    watch.__enter__()
    assert watch.evidence().looked_at == () and watch.evidence().absent


def held(root):
    source = HeldClocks(str(root))
    got = {name: value for name, _, value in source.read()}
    assert set(got) == {c.name for c in source.channels()}
    return got


@pytest.mark.parametrize(
    ("load", "clock", "flag"),
    [(1000, 918, 0.0), (1000, 827, 0.0), (1000, 825, 1.0), (950, 306, 1.0), (949, 306, 0.0)],
)
def test_a_busy_gpu_below_its_policy_is_held(tmp_path, load, clock, flag):
    files = {f"{GPU}/device/load": f"{load}\n", f"{GPU}/cur_freq": f"{clock}000000\n"}
    assert held(orin(tmp_path, **files))["throttled_gpu_clock"] == flag


def test_a_cpu_whose_effective_clock_is_for_root_has_no_flag(tmp_path):
    (orin(tmp_path) / POLICY / "cpuinfo_cur_freq").unlink()
    assert isinstance(held(tmp_path)["throttled_cpu_policy0_clock"], Unsupported)


@given(asked=st.integers(1, 3_000_000), effective=st.integers(0, 3_000_000))
@pytest.mark.slow
def test_a_cpu_is_held_exactly_where_it_runs_a_tenth_below_its_request(tmp_path_factory, asked, effective):
    root = tmp_path_factory.mktemp("board")
    write(root, {f"{POLICY}/scaling_cur_freq": asked, f"{POLICY}/cpuinfo_cur_freq": effective})
    assert held(root)["throttled_cpu_policy0_clock"] == float(effective * 1e3 < 0.9 * (asked * 1e3))


@pytest.mark.parametrize(
    ("before", "after", "highest"),
    [("99000", "79000", 99.0), ("79000", "99000", 99.0), ("98999", "98999", None), ("99500", "99100", 99.5)],
)
def test_a_zone_at_its_trip_is_past_it_before_or_after(tmp_path, before, after, highest):
    got = evidence(orin(tmp_path, **{f"{ZONE}/temp": before}), {f"{ZONE}/temp": after})
    says = f"thermal: tj-thermal at {highest} C is past its passive trip of 99.0 C"
    assert got.events == ((says,) if highest else ())


@pytest.mark.parametrize(("celsius", "looked"), [("-200000", 0), ("-199999", 1), ("-256000", 0)])
def test_a_zone_that_is_powered_off_is_not_looked_at(tmp_path, celsius, looked):
    got = evidence(orin(tmp_path, **{f"{ZONE}/temp": celsius}), {})
    assert sum("zones" in each for each in got.looked_at) == looked


@pytest.mark.parametrize(
    ("before", "after", "state"), [("2", "1", 2), ("1", "3", 3), ("2", "0", 2), ("0", "0", None)]
)
def test_a_cooling_device_is_told_at_its_highest(tmp_path, before, after, state):
    got = evidence(orin(tmp_path, **{ALERT: before}), {ALERT: after})
    assert [event.rpartition(" ")[2] for event in got.events] == ([f"{state})"] if state else [])


@pytest.mark.parametrize(
    ("before", "after", "rose", "noted"),
    [
        ("4", "5", "rose by 1 to 5", None),
        ("4", "4", None, "(4 over-current since boot, none during the run)"),
        ("4", "3", None, "went backwards from 4 to 3"),
        ("0", "0", None, None),
        ("1", "0", None, "went backwards from 1 to 0"),
    ],
)
def test_a_counter_tells_what_rose_and_what_it_had_before(tmp_path, before, after, rose, noted):
    got = evidence(orin(tmp_path, **{OC3: before}), {OC3: after})
    assert [rose in event for event in got.events] == ([True] if rose else [])
    assert sum(noted in each for each in got.looked_at) == 1 if noted else len(got.looked_at) == 4


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        (("1000000", "899999"), ("2000000", "1799999"), True),
        (("1000000", "900000"), ("2000000", "1799999"), False),
        (("1000000", "899999"), ("2000000", "1800000"), False),
        (("1000000", "500000"), ("2000000", "1000000"), True),
    ],
)
def test_a_clock_below_nine_tenths_of_its_request_before_and_after_is_held(tmp_path, before, after, held):
    def files(pair):
        return dict(zip((f"{POLICY}/scaling_cur_freq", f"{POLICY}/cpuinfo_cur_freq"), pair, strict=True))

    got = evidence(orin(tmp_path, **files(before)), files(after))
    assert len(got.events) == held
    if after == ("2000000", "1000000"):
        assert re.search(r" 1000 MHz, .* 2000 MHz.* 2\.0 times", got.events[0])


@pytest.mark.parametrize(
    ("load", "clock", "held"),
    [
        ("950", "899999", 1.0),
        ("949", "899999", 0.0),
        ("950", "900000", 0.0),
        ("1000", "100", 1.0),
        ("0", "100", 0.0),
    ],
)
def test_a_busy_gpu_below_nine_tenths_of_its_policy_is_held(tmp_path, load, clock, held):
    root = orin(
        tmp_path, **{f"{GPU}/device/load": load, f"{GPU}/cur_freq": clock, f"{GPU}/max_freq": "1000000"}
    )
    found = {name: value for name, _, value in HeldClocks(str(root)).read()}
    assert found["throttled_gpu_clock"] == held


@pytest.mark.parametrize(("effective", "held"), [("900000", 0.0), ("899999", 1.0)])
def test_a_cpu_below_nine_tenths_of_its_request_is_held(tmp_path, effective, held):
    files = {f"{POLICY}/scaling_cur_freq": "1000000", f"{POLICY}/cpuinfo_cur_freq": effective}
    found = {name: value for name, _, value in HeldClocks(str(orin(tmp_path, **files))).read()}
    assert found["throttled_cpu_policy0_clock"] == held


def test_a_request_that_changes_between_two_reads_holds_nothing():
    class Reads:
        def __init__(self, *values):
            self.values = list(values)

        def number(self, scale):
            return self.values.pop(0) * scale

    assert pair(Reads(5.0, 5.0), Reads(3.0)) == (5e3, 3e3)
    assert pair(Reads(5.0, 6.0), Reads(3.0)) == (0.0, 3e3)
