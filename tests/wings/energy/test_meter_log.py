"""Logs of external meters: every dialect, every way they lie about time, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.records import QUERY_DTYPES, Absent, Idle, Measured, Queries, Trial, Window
from edgescope.wings.energy import meter_log
from edgescope.wings.energy.align import _widened, wall
from edgescope.wings.energy.meter_table import Dialect
from making import result

S = 1_000_000_000
ORIGIN = 5_000 * S  # the run's clock is that of the boot, the meter's whatever it likes
BEFORE, RUN, AFTER = 8.0, 20.0, 8.0
IDLE_W, BUSY_W = 6.0, 14.0


def metered_run(idle=True):
    """A run of 20 s of queries between two idle stretches of 8 s."""
    n = 1000
    columns = {name: np.full(n, -1, dtype) for name, dtype in QUERY_DTYPES.items()}
    step = int(RUN * S) // n
    columns["issued_ns"] = ORIGIN + np.arange(n) * step
    columns["done_ns"] = columns["issued_ns"] + step - 100_000
    columns["samples"], columns["status"] = np.ones(n, np.int32), np.zeros(n, np.int8)
    end = int(columns["done_ns"][-1])
    stretches = (
        Idle("before", ORIGIN - int(BEFORE * S), ORIGIN),
        Idle("after", end, end + int(AFTER * S)),
    )
    return replace(
        result(Trial(model="null", idle_s=8)),
        queries=Queries(columns),
        window=Window(0, n, ORIGIN, end),
        idle=stretches if idle else (),
    )


def watts(t, idle=IDLE_W, busy=BUSY_W):
    """Power at moments of the run's time."""
    return np.where((t >= 0) & (t < RUN), busy, idle)


def log(
    offset=1234.5, drift=0.0, hz=10.0, seed=0, noise=0.05, missing=0.0, before=15.0, after=14.0, shape=watts
):
    """Rows of a meter that began `before` the run: (its clock, watts)."""
    rng = np.random.default_rng(seed)
    t = np.arange(-BEFORE - before, RUN + AFTER + after, 1 / hz)
    t = t[rng.uniform(size=len(t)) >= missing]
    return offset + t * (1 + drift), shape(t) + rng.normal(0, noise, len(t))


def csv_file(tmp_path, t, w, head="time,power_w", row="{:.4f},{:.4f}"):
    path = tmp_path / "meter.csv"
    path.write_text("\n".join([head, *(row.format(a, b) for a, b in zip(t, w, strict=True))]))
    return path


def energy_of(tmp_path, **kw):
    return wall(metered_run(), meter_log.read(csv_file(tmp_path, *log(**kw))))


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("time,power_w", "{t:.3f},{w:.3f}"),
        ("Time (s);Power [mW]", "{t:.3f};{mw:.1f}"),
        ("timestamp_ms\tpower_w", "{ms:.0f}\t{w:.3f}"),
        ("elapsed,voltage_mV,current_A", "{t:.3f},12000,{amps:.5f}"),
        ("# made by a meter\nDevice: plug 7\n\nTime,V,A,Power Factor", "{t:.3f},12.0,{amps:.5f},0.9"),
        ("Date,Time,Power", "2026-01-02,{clock},{w:.3f} W"),
        ("timestamp,watts", "{iso},{w:.3f}"),
        ('"Zeit";"Leistung (W)"', "{comma_t};{comma_w}"),
        ("time_s,power_mw", "{t:.3f},{mw:.1f}"),
        ("time,Power[mw]", "{t:.3f},{mw:.1f}"),
        ("time,power_uw", "{t:.3f},{mw:.1f}e3"),
        ("time,Power (mW) CH1", "{t:.3f},{mw:.1f}"),
        ("time,Power mW (avg)", "{t:.3f},{mw:.1f}"),
        ("time,powerMilliwatts", "{t:.3f},{mw:.1f}"),
        ("Time (milliseconds),power", "{ms:.0f},{w:.3f} W"),
        ("time,mw", "{t:.3f},{mw:.1f}"),
        ("time,pom_5v_in_power_mw", "{t:.3f},{mw:.1f}"),
        ("time,CH1 power (in)", "{t:.3f},{mw:.3f} mW"),
        ("time,voltage_mv,current_ma", "{t:.3f},12000,{ma:.2f}"),
        ("epoch time,P/W", "{epoch:.3f},{w:.4f}"),
        ("time,power (watts)", "{epoch_ns:.0f},{w:.4f}"),
    ],
)
def test_every_dialect_says_the_same(tmp_path, head, row):
    lines = [head]
    for i in range(40):
        t, w = i * 0.5, 5.0 + i % 3
        lines.append(
            row.format(
                t=t,
                w=w,
                ms=t * 1e3,
                mw=w * 1e3,
                amps=w / 12,
                ma=w / 12e-3,
                clock=f"23:59:{50 + t:06.3f}" if t < 10 else f"00:00:{t - 10:06.3f}",
                iso=f"2026-01-02T03:04:{t:06.3f}Z",
                comma_t=f"{t:.3f}".replace(".", ","),
                comma_w=f"{w:.3f}".replace(".", ","),
                epoch=1.7e9 + t,
                epoch_ns=1.7e18 + t * 1e9,
            )
        )
    path = tmp_path / "m.csv"
    path.write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    got = meter_log.read(path)
    assert got.skipped == 0
    assert got.t_s == pytest.approx(np.arange(40) * 0.5, abs=2e-3)
    assert got.watts == pytest.approx(5.0 + np.arange(40) % 3, abs=2e-3)


def test_columns_can_be_named_and_broken_rows_are_counted(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text(
        "when,ch1,ch2\n0,1,2\n1,1,3\n2,1,OVERLOAD\n3,1,4\n3,1,6\n4,1,5\n5,1,1e999\n6,1,2\n\n7,1,2\n8,1,2\n"
    )
    dialect = Dialect({"time": "when", "power": "CH2"}, {"power": "W"})
    got = meter_log.read(path, dialect)
    assert (got.skipped, got.watts.tolist()) == (2, [2, 3, 5, 5, 2, 2, 2])
    with pytest.raises(UsageError, match=r"E-METER-1: .*power column.*when \| ch1"):
        meter_log.read(path)
    with pytest.raises(UsageError, match="no column called 'ch9'"):
        meter_log.read(path, Dialect({"time": "when", "power": "ch9"}))


UNTOLD = (
    "Power (dBm)",
    "POWER_MW",
    "power (mVA)",
    "Power [%]",
    "Power (0.1W)",
    "Power [W/mW]",
    "power W (x10 mW)",
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "E-METER-1: .* names .* power"),
        ("time,power_w\n", "0 of 0 rows"),
        ("time,power_w\n1,2\n", "0 of 1 rows"),
        ("time,power_w\n" + "x,y\n" * 9, "9 of 9 rows"),
        (
            "time,power_w\n" + "".join(f"{i % 20},4\n" for i in range(40)),
            r"goes back by 19.000 s.*at line 22",
        ),
        ("time,power_w\n1,2\n1,3\n1,4\n2,4\n2,5\n", "E-METER-5"),
        ("time,power_w\n1,2\n1,3\n", "the same time"),
        ("time,Power (VA)\n1,2\n2,3\n", "E-METER-4"),
        ("time,power mV\n1,2\n2,3\n", "E-METER-1: .* names .* power"),
        *((f"time,{name}\n1,2\n2,3\n", "the unit of") for name in UNTOLD),
        (
            "time,vdd_in_power_w,vdd_soc_power_w\n1,2,3\n2,3,4\n",
            "several columns of power.*vdd_soc.*--power-column",
        ),
        ("time,V in,V out,bus voltage,voltage 2,A\n1,2,3,4,5,6\n", "several columns of voltage"),
        ("time,power_w\n" + '"' + "a" * 200_000, "E-METER-1"),
        ("\0\0\0\0", "E-METER-1: .* names .* power"),
        ("time,power,power\n1,2,3\n", "several columns"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, text, why):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        meter_log.read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="E-METER-1"):
        meter_log.read(tmp_path / "none.csv")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=300)
    | st.text(alphabet='time,power;"\n0123456789.:-+eE \t#WVAm', max_size=300).map(str.encode)
)
def test_hostile_files_raise_nothing_but_our_own_errors(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("hostile") / "m.csv"
    path.write_bytes(b"time,power_w\n" + data)
    try:
        got = meter_log.read(path)
    except UsageError:
        return
    assert len(got.t_s) >= 2 and np.all(np.diff(got.t_s) > 0) and np.all(np.isfinite(got.watts))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    offset=st.floats(-1e6, 1e9),
    hz=st.sampled_from([2.0, 5.0, 10.0, 50.0]),
    before=st.floats(0.5, 40),
    after=st.floats(0.5, 40),
    missing=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 1000),
)
def test_the_wall_energy_is_found_whatever_the_meters_clock(
    tmp_path_factory, offset, hz, before, after, missing, seed
):
    path = tmp_path_factory.mktemp("m")
    got = energy_of(path, offset=offset, hz=hz, before=before, after=after, missing=missing, seed=seed)
    a, m = got.alignment, got.consumption.metrics
    first = -BEFORE - before  # the log's clock begins at its first row
    assert abs(a.offset_s + first) <= a.uncertainty_s + 1.5 / hz
    assert got.consumption.meter.scope == "wall"
    real = BUSY_W * RUN
    assert m["energy_j"].lo <= real <= m["energy_j"].hi
    dynamic, above = m["energy_dynamic_j"], (BUSY_W - IDLE_W) * RUN
    if missing:  # a row that is missing at an edge costs certainty: the bounds hold, or there is no figure
        assert isinstance(dynamic, Absent) or dynamic.lo <= above <= dynamic.hi
    else:
        assert m["energy_j"].value == pytest.approx(real, rel=0.03)
        assert dynamic.value == pytest.approx(above, rel=0.06)
    assert a.step_w == pytest.approx(BUSY_W - IDLE_W, rel=0.05)


def test_the_offset_is_told_with_its_uncertainty(tmp_path):
    a = energy_of(tmp_path, hz=10, before=15.0).alignment
    assert a.offset_s == pytest.approx(BEFORE + 15.0, abs=0.11)
    assert 0.05 <= a.uncertainty_s <= 0.3
    assert a.explained > 0.95 and not a.drifts


@pytest.mark.parametrize("hz", [1.0, 2.0, 10.0, pytest.param(50.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ramp_s", [0.0, 1.0, 2.0, 3.0])
def test_a_load_that_ramps_is_within_the_uncertainty_and_a_step_has_a_small_one(tmp_path, hz, ramp_s):
    def shape(t):
        up, down = (np.clip((t - edge) / max(ramp_s, 1e-9), 0, 1) for edge in (0.0, RUN))
        return IDLE_W + (BUSY_W - IDLE_W) * (up - down)

    for seed in range(3):
        a = energy_of(tmp_path, hz=hz, noise=0.3, seed=seed, shape=shape).alignment
        assert abs(a.offset_s - (BEFORE + 15.0)) <= a.uncertainty_s
        assert a.uncertainty_s <= ramp_s / 2 + 1.3 / hz + 0.2 * ramp_s


def test_a_clock_that_drifts_is_told_and_put_right(tmp_path):
    got = energy_of(tmp_path, hz=50, drift=0.01, noise=0.02)
    a = got.alignment
    assert a.drifts and a.drift == pytest.approx(0.01, abs=a.drift_uncertainty)
    assert got.consumption.metrics["energy_j"].value == pytest.approx(BUSY_W * RUN, rel=0.01)
    with pytest.raises(UsageError, match=r"E-METER-2: .* clock .* \+10.0% "):
        energy_of(tmp_path, hz=50, drift=0.1, noise=0.02)


def test_noise_moves_the_edges_apart_within_the_uncertainty(tmp_path):
    got = energy_of(tmp_path, hz=10, noise=1.5, seed=3)
    m = got.consumption.metrics["energy_j"]
    assert m.lo <= BUSY_W * RUN <= m.hi


@pytest.mark.parametrize(
    ("kw", "why"),
    [
        ({"shape": lambda t: np.full(len(t), 7.0)}, "no load edge stands out"),
        ({"shape": lambda t: np.full(len(t), 7.0), "noise": 0.0}, "no load edge stands out"),
        ({"shape": lambda t: watts(t, idle=14, busy=6)}, "no load edge stands out"),
        ({"hz": 0.25}, "too slowly"),
        ({"before": -6, "after": -5}, "the log covers"),
        ({"after": 60, "shape": lambda t: np.maximum(watts(t), watts(t - 40))}, "two places 40"),
    ],
)
def test_where_no_edge_stands_out_it_is_refused(tmp_path, kw, why):
    with pytest.raises(UsageError, match=f"E-METER-2: .*{why}"):
        energy_of(tmp_path, **kw)


def test_a_run_without_idling_has_no_edge_to_place_by(tmp_path):
    with pytest.raises(UsageError, match=r"E-METER-2: .* idle stretch"):
        wall(metered_run(idle=False), meter_log.read(csv_file(tmp_path, *log())))
    with pytest.raises(UsageError, match="E-METER-3"):
        wall(replace(metered_run(), queries=None), meter_log.read(csv_file(tmp_path, *log())))


def test_a_gap_in_the_log_inside_the_window_is_no_energy(tmp_path):
    t, w = log(offset=0.0)
    keep = (t < 5) | (t > 12)
    got = wall(metered_run(), meter_log.read(csv_file(tmp_path, t[keep], w[keep])))
    assert "silent" in got.consumption.metrics["energy_j"].reason


def test_bounds_grow_with_the_uncertainty_of_the_offset(tmp_path):
    sharp, blunt = (energy_of(tmp_path, hz=hz).consumption.metrics["energy_j"] for hz in (50.0, 2.0))
    assert isinstance(sharp, Measured)
    assert blunt.hi - blunt.lo > sharp.hi - sharp.lo


def test_power_is_widened_by_the_error_over_the_seconds_and_energy_by_the_error():
    window = Window(0, 1, 0, 4_000_000_000)
    fields = {
        "power_w": Measured(10.0, "W", 9.0, 11.0, 5),
        "energy_j": Measured(40.0, "J", 36.0, 44.0, 5),
        "energy_per_sample_j": Measured(0.4, "J", 0.36, 0.44, 5),
    }
    found = _widened(fields, 2.0, window)
    assert (found["power_w"].lo, found["power_w"].hi) == pytest.approx((8.5, 11.5))
    assert (found["energy_j"].lo, found["energy_j"].hi) == pytest.approx((34.0, 46.0))
    assert (found["energy_per_sample_j"].lo, found["energy_per_sample_j"].hi) == pytest.approx((0.34, 0.46))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_log_is_read_in_any_usual_encoding(encoding, tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes("time (s),power (W),Gerät\n0,5,a\n1,6,b\n2,7,c\n".encode(encoding))
    assert list(meter_log.read(path).watts) == [5, 6, 7]


def test_rows_that_are_missing_at_an_edge_widen_it_and_are_no_drift(tmp_path):
    """Seed 35 of a 2 Hz log: 1.5 s without a row where the load ends, which had been taken for a clock 7 % off."""
    lost = energy_of(tmp_path, offset=0.0, hz=2.0, before=0.5, after=1.0, missing=0.05, seed=35).alignment
    whole = energy_of(tmp_path, offset=0.0, hz=2.0, before=0.5, after=1.0).alignment
    assert not lost.drifts and lost.uncertainty_s > whole.uncertainty_s + 0.4


def rows_read(tmp_path, head, rows, **dialect):
    path = tmp_path / "m.csv"
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]))
    return meter_log.read(path, Dialect(**dialect))


def test_what_cannot_be_read_is_counted_by_what_stands_there(tmp_path):
    rows = [(t, 5 + t % 3) for t in range(20)]
    odd = [(20, "OVER"), ("x", 3), (21,), (22, "")]
    log = rows_read(
        tmp_path, "time_s,power_w", [*rows, odd[0], odd[1], odd[2], (23, -1), (24, 20_001), odd[3], (25, 5)]
    )
    assert log.skipped == 6 and log.t_s.tolist() == [*range(20), 25] and log.period_s == 1.0
    first, second = log.notes
    wanted = [
        "1 of 'OVER', first at line 22",
        "1 of 'x', first at line 23",
        "1 of no number, first at line 27",
    ]
    assert first.evidence == ", ".join([*wanted, "1 of another number of cells, first at line 24"])
    assert first.what.startswith("4 of 27 rows") and second.evidence == "first -1 W at line 25"
    assert second.what.startswith("2 rows")


@pytest.mark.parametrize(("bad", "fine"), [(4, True), (5, False)])
def test_a_fifth_of_the_rows_may_be_unreadable(tmp_path, bad, fine):
    rows = [(t, 5.0) for t in range(16)] + [(16 + t, "x") for t in range(bad)]
    if fine:
        assert rows_read(tmp_path, "time_s,power_w", rows).skipped == bad
        return
    with pytest.raises(UsageError) as refused:
        rows_read(tmp_path, "time_s,power_w", rows)
    assert refused.value.code == "E-METER-1" and refused.value.evidence.startswith(
        "5 of 'x', first at line 18"
    )


@pytest.mark.parametrize(
    ("watts", "fix"),
    [
        ([20_000.0] * 5, ""),
        ([20_001.0] * 5, "--power-unit mW"),
        ([-0.001] * 3 + [5.0] * 2, "turn the sensor"),
        ([0.0] * 3 + [5.0] * 2, ""),
        ([0.001] * 5, ""),
        ([0.0009] * 5, "--power-unit W"),
        ([0.0] * 8 + [5.0] * 2, ""),
        ([0.0] * 10 + [5.0], "--power-unit W"),
    ],
)
def test_power_is_possible_from_a_milliwatt_to_twenty_kilowatts(tmp_path, watts, fix):
    rows = list(enumerate(watts))
    if not fix:
        assert rows_read(tmp_path, "time_s,power_w", rows).watts.tolist() == watts
        return
    with pytest.raises(UsageError) as refused:
        rows_read(tmp_path, "time_s,power_w", rows)
    assert refused.value.code == "E-METER-6" and refused.value.fix.startswith(fix)


@pytest.mark.parametrize(
    ("volts", "named", "fine"), [(60, False, True), (60.5, False, False), (230, True, True)]
)
def test_volts_times_amperes_are_watts_up_to_sixty_volts_or_where_they_are_named(
    tmp_path, volts, named, fine
):
    columns = {"voltage": "voltage_v", "current": "current_a"} if named else {}
    rows = [(t, volts, 0.5) for t in range(5)]
    if fine:
        assert (
            rows_read(tmp_path, "time_s,voltage_v,current_a", rows, columns=columns).watts.tolist()
            == [volts / 2] * 5
        )
        return
    with pytest.raises(UsageError, match="apparent power"):
        rows_read(tmp_path, "time_s,voltage_v,current_a", rows, columns=columns)


def test_joules_that_add_up_are_watts_and_a_count_without_a_unit_is_said(tmp_path):
    log = rows_read(tmp_path, "time,energy_j", [(0, 5), (2, 15), (4, 19), (5, 22)])
    assert log.watts.tolist() == [5, 2, 3] and log.t_s.tolist() == [0, 2, 3.5]
    assert [n.fix for n in log.notes if n.fix] == ["--time-unit s"]
    both = rows_read(tmp_path, "time_s,power_w,energy_j", [(0, 5, 1), (1, 6, 7), (2, 7, 9)])
    assert both.watts.tolist() == [5, 6, 7] and not both.notes
    chosen = rows_read(
        tmp_path, "time_s,power_w,energy_j", [(0, 5, 1), (1, 6, 7), (2, 7, 9)], columns={"energy": "energy_j"}
    )
    assert chosen.watts.tolist() == [6, 2]


def test_devices_add_up_with_all_that_each_has_lost(tmp_path):
    rows = [
        (t, k, 10 * k + 5 if (t, k) not in ((3, 0), (6, 1), (7, 1)) else -5)
        for t in range(20)
        for k in (0, 1)
    ]
    log = rows_read(tmp_path, "time_s,index,power_w", rows)
    assert log.skipped == 3 and set(log.watts) == {20.0}
    only = rows_read(tmp_path, "time_s,index,power_w", rows, only="index=1")
    assert only.skipped == 2 and set(only.watts) == {15.0}
    bare = rows_read(
        tmp_path, "1,5\n2,6", [(3, 7)], columns={"time": "1", "power": "2"}, units={"power": "W"}
    )
    assert bare.watts.tolist() == [5, 6, 7]
