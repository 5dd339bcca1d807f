"""Logs of meters as other programs write them: the right watts, or a refusal that names the flag.

The kinds are those of public reports: jtop's logger, which writes mW without a unit (jetson_stats issues 81 and 150),
nvidia-smi's own CSV with its dates and a row a GPU, loggers of FNIRSI's USB meters, plugs with German or American
dates.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from edgescope.cli.main import main
from edgescope.records import QUERY_DTYPES, Idle, Measured, Queries, Trial, Window
from edgescope.store.results import Store
from making import result

pytestmark = pytest.mark.process

S = 1_000_000_000
IDLE_W, BUSY_W, RUN_S, STEP_S = 5.0, 10.0, 10.0, 0.1
T = np.round(np.arange(-12, 22, STEP_S), 3)
"""Moments of the log; the run begins at 0."""
W = np.where((T >= 0) & (T < RUN_S), BUSY_W, IDLE_W)
START = datetime(2026, 5, 4, 10)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A store with a run of 10 s between two idle stretches of 5 s."""
    folder, n = tmp_path_factory.mktemp("store"), 100
    columns = {name: np.full(n, -1, dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["issued_ns"] = np.arange(n) * S // 10
    columns["done_ns"] = columns["issued_ns"] + S // 10
    columns["samples"], columns["status"] = np.ones(n, np.int32), np.zeros(n, np.int8)
    made = replace(
        result(Trial(model="null", backend="null", idle_s=5)),
        queries=Queries(columns),
        window=Window(0, n, 0, 10 * S),
        idle=(Idle("before", -5 * S, 0), Idle("after", 10 * S, 15 * S)),
        metrics={"queries": Measured(100.0, "queries", n=100)},
    )
    Store(folder).save(made)
    return folder, made.id


@pytest.fixture
def wall(measured, tmp_path, capsys):
    """Text of a log, flags -> (exit code, the figures at the wall as JSON or None, what stderr says)."""
    folder, name = measured

    def read(text, *flags, encoding="utf-8"):
        path = tmp_path / "log.csv"
        path.write_bytes(text.encode(encoding))
        code = main(["energy", name, "--meter", str(path), "--json", "--store", str(folder), *flags])
        said = capsys.readouterr()
        return code, json.loads(said.out)["wall"] if code == 0 else None, said.err

    return read


def right(found, factor=1.0):
    """Assert that the run took 100 J."""
    code, at_wall, said = found
    assert code == 0, said
    assert at_wall["metrics"]["energy_j"]["value"] == pytest.approx(100 * factor, rel=0.02)
    return [w["what"] for w in at_wall["warnings"] if w["code"] == "W-METER-1"]


def refusal(found, code, *flags):
    """Assert that a log was refused with a code and a hint that names the flags."""
    assert found[0] == 2 and found[2].startswith(f"{code}: "), found
    hint = found[2].partition("Try: ")[2]
    assert all(flag in hint for flag in flags), found[2]


def table(head, row, sep=",", **extra):
    """One line a moment; `row` is called with the moment's date, seconds and watts."""
    lines = [row(START + timedelta(seconds=float(t)), t, w) for t, w in zip(T, W, strict=True)]
    return "\n".join([head, *lines]) + "\n"


def iso(d):
    return d.isoformat(sep=" ", timespec="milliseconds")


JTOP = table("time,GPU,Power TOT", lambda d, t, w: f"{iso(d)},40,{w * 1000:.0f}")


def test_watts_without_a_unit_are_refused_and_the_flag_settles_it(wall):
    refusal(wall(JTOP), "E-METER-4", "--power-unit mW")
    assert right(wall(JTOP, "--power-unit", "mW")) == []
    refusal(wall(JTOP, "--power-unit", "mV"), "E-METER-4", "--power-unit W")


@pytest.mark.parametrize(
    ("unit", "size"),
    [("mW", 1e3), ("W", 1.0), ("µW", 1e6), ("uW", 1e6), ("kW", 1e-3), ("milliwatts", 1e3), ("Watts", 1.0)],
)
@pytest.mark.parametrize("where", ["name", "row", "cell", "flag"])
def test_a_unit_stands_in_the_name_in_a_row_in_the_cells_or_in_the_flag(wall, unit, size, where):
    head = f"time_s,power [{unit}]" if where == "name" else "time_s,power"
    head += f"\ns,{unit}" if where == "row" else ""
    tail = f" {unit}" if where == "cell" else ""
    text = table(head, lambda d, t, w: f"{t + 12:.1f},{w * size:.6g}{tail}")
    assert right(wall(text, *(["--power-unit", unit] if where == "flag" else []))) == []


def test_a_meter_that_changes_its_range_writes_the_unit_in_each_cell(wall):
    cell = lambda w: f"{w * 1000:.0f} mW" if w < 7 else f"{w:.3f} W"  # noqa: E731
    assert right(wall(table("time_s,power", lambda d, t, w: f"{t + 12:.1f},{cell(w)}"))) == []


@pytest.mark.parametrize(
    "name", ["POWER_MW", "Power (VA)", "Power [%]", "Power (0.1W)", "power var", "Power [W/mW]"]
)
def test_a_unit_that_is_not_understood_is_refused(wall, name):
    text = table(f"time_s,{name}", lambda d, t, w: f"{t + 12:.1f},{w}")
    refusal(wall(text), "E-METER-4", "--power-unit")


def test_a_power_that_no_device_has_is_refused(wall):
    text = table("time_s,power_w", lambda d, t, w: f"{t + 12:.1f},{w * 1e6:.0f}")
    refusal(wall(text), "E-METER-6", "--power-unit mW")
    text = table("time_s,power_w", lambda d, t, w: f"{t + 12:.1f},{-w}")
    refusal(wall(text), "E-METER-6")


# -- dates -------------------------------------------------------------------------------------------------------------


def ms(d):
    return f"{d.microsecond // 1000:03d}"


DATED = {
    "nvidia-smi": ("timestamp, power.draw [W]", lambda d, w: f"{d:%Y/%m/%d %H:%M:%S}.{ms(d)}, {w:.2f} W"),
    "German": (
        "Zeit;Leistung [W]",
        lambda d, w: f"{d:%d.%m.%Y %H:%M:%S},{ms(d)};{w:.2f}".replace(
            f";{w:.2f}", f";{w:.2f}".replace(".", ",")
        ),
    ),
    "American": ("Date Time,Power (W)", lambda d, w: f"{d:%m/%d/%Y %I:%M:%S}.{ms(d)} {d:%p},{w:.2f}"),
    "two columns": ("Datum;Uhrzeit;Leistung (W)", lambda d, w: f"{d:%d.%m.%Y};{d:%H:%M:%S},{ms(d)};{w:.0f}"),
    "short year": ("Date,Power (W)", lambda d, w: f"{d:%d/%m/%y %H:%M:%S}.{ms(d)},{w}"),
    "zoned": ("time,power_w", lambda d, w: f"{d:%Y-%m-%dT%H:%M:%S}.{ms(d)}+02:00,{w}"),
    "Z": ("time,power_w", lambda d, w: f"{d:%Y-%m-%dT%H:%M:%S}.{ms(d)}Z,{w}"),
    "named month": ("time,power_w", lambda d, w: f"{d:%d-%b-%Y %H:%M:%S}.{ms(d)},{w}"),
    "compact": ("time,power_w", lambda d, w: f"{d:%Y%m%d %H:%M:%S}.{ms(d)},{w}"),
    "time of day": ("time,power_w", lambda d, w: f"{d:%H:%M:%S}.{ms(d)},{w}"),
    "comma": ("time;power_w", lambda d, w: f"{d:%H:%M:%S},{ms(d)};{w:.0f}"),
    "half a day": ("time,power_w", lambda d, w: f"{d:%I:%M:%S}.{ms(d)} {d:%p},{w}"),
    "epoch s": ("timestamp,power_w", lambda d, w: f"{d.timestamp():.3f},{w}"),
    "epoch ms": ("timestamp,power_w", lambda d, w: f"{d.timestamp() * 1e3:.0f},{w}"),
    "epoch us": ("timestamp,power_w", lambda d, w: f"{d.timestamp() * 1e6:.0f},{w}"),
    "epoch ns": ("timestamp,power_w", lambda d, w: f"{round(d.timestamp() * 1e3)}000000,{w}"),
}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "at", ["morning", pytest.param("midnight", marks=SLOW), pytest.param("noon", marks=SLOW)]
)
@pytest.mark.parametrize("kind", DATED)
def test_every_date_says_the_same(wall, kind, at):
    start = {"morning": datetime(2026, 5, 4, 10), "midnight": datetime(2026, 5, 4, 23, 59, 55)}.get(
        at, datetime(2026, 5, 4, 11, 59, 55)
    )
    head, row = DATED[kind]
    lines = [row(start + timedelta(seconds=float(t)), w) for t, w in zip(T, W, strict=True)]
    assert right(wall("\n".join([head, *lines]))) == []


def test_day_and_month_are_settled_by_the_file_or_asked_for(wall):
    def log(days):
        moments = [START + timedelta(seconds=float(t)) for t in T]
        rows = [
            f"{days[i % len(days)] if days else ''} {d:%H:%M:%S}.{ms(d)},{w}"
            for i, (d, w) in enumerate(zip(moments, W, strict=True))
        ]
        return "\n".join(["time,power_w", *rows])

    right(wall(log(["05/04/2026"])))
    odd = "time,power_w\n05/04/2026 10:00:00,5\n08/07/2026 10:00:01,5\n08/07/2026 10:00:02,5\n"
    refusal(wall(odd), "E-METER-1", "--dates")


def test_the_hour_at_which_summer_time_ends_is_undone_and_said(wall):
    def local(d, t, w):
        return f"{d - timedelta(hours=1) if t >= 4 else d:%Y-%m-%d %H:%M:%S.%f},{w}"

    notes = right(wall(table("time,power_w", local)))
    assert len(notes) == 1 and "summer time" in notes[0]


def test_times_in_milliseconds_need_their_unit(wall):
    text = table("time,power_w", lambda d, t, w: f"{(t + 12) * 1e3:.0f},{w}")
    found = wall(text)
    assert found[0] == 2 and found[2].startswith("E-METER-2") and "--time-unit" in found[2]
    assert right(wall(text, "--time-unit", "ms")) == []
    assert "taken for seconds" in right(wall(table("time,power_w", lambda d, t, w: f"{t + 12:.1f},{w}")))[0]
    huge = table("time,power_w", lambda d, t, w: f"{5e10 + (t + 12) * 1e9:.0f},{w}")
    refusal(wall(huge), "E-METER-4", "--time-unit")
    assert right(wall(huge, "--time-unit", "ns")) == []


# -- rows of several devices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart_s", [0.0, 0.002])
@pytest.mark.parametrize(
    "column", ["index", pytest.param("gpu", marks=SLOW), pytest.param("uuid", marks=SLOW)]
)
def test_rows_of_two_gpus_are_added_up_and_one_can_be_named(wall, apart_s, column):
    def rows(d, t, w):
        each = [(g, d + timedelta(seconds=g * apart_s), w * (1 + g) / 3) for g in (0, 1)]
        return "\n".join(f"{x:%Y/%m/%d %H:%M:%S.%f}, GPU-{g}, {p:.3f} W" for g, x, p in each)

    text = table(f"timestamp, {column}, power.draw [W]", rows)
    assert any("added up" in note for note in right(wall(text)))
    assert right(wall(text, "--only", f"{column}=GPU-1"), 2 / 3) == []


def test_rows_of_parts_are_asked_about(wall):
    def rows(d, t, w):
        return "\n".join(f"{iso(d)},{rail},{p:.3f}" for rail, p in (("VDD_IN", w), ("VDD_CPU", w / 2)))

    text = table("time,rail,power_w", rows)
    refusal(wall(text), "E-METER-5", "--only rail=", "--sum rail")
    assert right(wall(text, "--only", "rail=VDD_IN")) == []
    right(wall(text, "--sum", "rail"), 1.5)


@pytest.mark.parametrize("apart_s", [0.0, 0.001])
def test_rows_of_one_time_without_a_name_are_asked_about(wall, apart_s):
    def rows(d, t, w):
        later = d + timedelta(seconds=apart_s)
        return f"{d:%H:%M:%S.%f},{w / 3:.4f}\n{later:%H:%M:%S.%f},{w * 2 / 3:.4f}"

    text = table("time,power_w", rows)
    refusal(wall(text), "E-METER-5", "--repeated sum", "--repeated mean")
    right(wall(text, "--repeated", "sum"))
    right(wall(text, "--repeated", "mean"), 0.5)


def test_one_file_after_the_other_is_two_devices_too(wall):
    gpus = [table("", lambda d, t, w, g=g: f"{iso(d)},{g},{w / 2}").strip() for g in (0, 1)]
    assert any("added up" in n for n in right(wall("\n".join(["timestamp,index,power_w", *gpus]))))


def test_a_load_in_percent_is_no_device(wall):
    rng = np.random.default_rng(1)
    text = table("time,GPU,power_w", lambda d, t, w: f"{iso(d)},{rng.integers(40, 43) if w > 7 else 0},{w}")
    assert right(wall(text)) == []


def test_a_coarse_clock_has_many_rows_a_second(wall):
    text = table("time,power_w", lambda d, t, w: f"{d:%H:%M:%S},{w}")
    refusal(wall(text), "E-METER-5", "--repeated mean")


# -- columns -----------------------------------------------------------------------------------------------------------

USB = "timestamp sample_in_packet voltage_V current_A dp_V dn_V temp_C_ema energy_Ws capacity_As"


def usb(t, w):
    cells = (
        f"{1e9 + t:.3f}",
        f"{round(t * 10) % 4}",
        "5.00000",
        f"{w / 5:.5f}",
        "3.0",
        "0.1",
        "28.2",
        "0.1",
        "0.1",
    )
    return cells


@pytest.mark.parametrize("sep", [" ", ",", ";", "\t", "|", ", ", "   "])
def test_volts_times_amperes_of_a_usb_meter(wall, sep):
    text = table("\n" + sep.join(USB.split()), lambda d, t, w: sep.join(usb(t, w)))
    assert right(wall(text)) == []


def test_columns_are_named_with_their_units(wall):
    text = table("when,a1,a2", lambda d, t, w: f"{(t + 12) * 1e3:.0f},5000,{w / 5 * 1e3:.1f}")
    flags = ["--time-column", "when", "--voltage-column", "a1", "--current-column", "a2"]
    refusal(wall(text, *flags), "E-METER-4", "--voltage-unit")
    units = ["--time-unit", "ms", "--voltage-unit", "mV", "--current-unit", "mA"]
    assert right(wall(text, *flags, *units)) == []
    numbers = ["--time-column", "1", "--voltage-column", "2", "--current-column", "3"]
    assert right(wall(text.partition("\n")[2], *numbers, *units)) == []


def test_volts_and_amperes_of_the_mains_are_no_watts(wall):
    text = table("time,Voltage (V),Current (A)", lambda d, t, w: f"{iso(d)},230,{w / 230 / 0.6:.5f}")
    refusal(wall(text), "E-METER-1", "--power-column")


def test_joules_that_add_up(wall):
    joules = np.cumsum(W) * STEP_S
    for unit, size in (("J", 1.0), ("mJ", 1e3), ("Wh", 1 / 3600), ("mWh", 1 / 3.6)):
        text = "time_s,energy_" + unit + "\n"
        text += "".join(f"{t + 12:.1f},{e * size:.6f}\n" for t, e in zip(T, joules, strict=True))
        assert ["counter of energy" in note for note in right(wall(text))] == [True]
    fall = "time_s,energy_J\n" + "".join(f"{t + 12:.1f},{w * STEP_S}\n" for t, w in zip(T, W, strict=True))
    assert wall(fall)[0] == 2


def test_several_columns_of_power_are_asked_about(wall):
    text = table("time,Power cpu_mW,Power tot_mW", lambda d, t, w: f"{iso(d)},{w * 500},{w * 1000}")
    refusal(wall(text), "E-METER-1", "--power-column")
    assert right(wall(text, "--power-column", "Power tot_mW")) == []


# -- rows --------------------------------------------------------------------------------------------------------------


def test_what_is_no_number_is_named_and_counted(wall):
    odd = {
        -11.0: "[N/A]",
        -10.5: "ERR!",
        -10.0: "[Not Supported]",
        -9.5: "-3.0",
        20.0: "[N/A]",
        20.5: "1e9",
        21: "nan",
    }
    text = table("timestamp, power.draw [W]", lambda d, t, w: f"{iso(d)}, {odd.get(float(t), w)}")
    code, at_wall, _ = wall(text)
    right((code, at_wall, ""))
    notes = [w for w in at_wall["warnings"] if w["code"] == "W-METER-1"]
    unread, impossible = notes
    assert unread["what"].startswith("5 of 340 rows") and impossible["what"].startswith("2 rows")
    for said in ("2 of '[N/A]', first at line 12", "1 of 'ERR!', first at line 17"):
        assert said in unread["evidence"]
    assert "line 27" in impossible["evidence"]


def test_headings_comments_and_a_preamble_are_no_rows(wall):
    lines = table("time,power_mw", lambda d, t, w: f"{iso(d)},{w * 1000:.0f}").splitlines()
    lines[100:100] = [lines[0], "# paused", ""]
    notes = right(wall("\n".join(["Device: plug 7", "Serial, 12", "", *lines])))
    assert len(notes) == 1 and "repeats its heading 1" in notes[0]
    numpy = table("# time_s power_w", lambda d, t, w: f"{t + 12:.3e} {w:.3e}")
    assert right(wall(numpy)) == []


def test_rows_out_of_order(wall):
    lines = table("time,power_w", lambda d, t, w: f"{iso(d)},{w}").splitlines()
    newest = [lines[0], *lines[:0:-1]]
    assert any("newest" in note for note in right(wall("\n".join(newest))))
    late = [*lines[:50], lines[52], lines[50], lines[51], *lines[53:]]
    assert any("order" in note for note in right(wall("\n".join(late))))
    rng = np.random.default_rng(0)
    shuffled = [lines[0], *rng.permutation(lines[1:])]
    right(wall("\n".join(shuffled)))
    back = [*lines[:200], *lines[100:]]
    assert wall("\n".join(back))[0] == 2


@pytest.mark.parametrize(("mark", "sep"), [(",", ";"), (",", "\t"), (".", ","), (".", ";"), (",", " ")])
def test_decimal_marks(wall, mark, sep):
    text = table(
        f"time{sep}power_w",
        lambda d, t, w: f"{d:%H:%M:%S}.{ms(d)}{sep}{w:.2f}".replace(
            f"{sep}{w:.2f}", sep + f"{w:.2f}".replace(".", mark)
        ),
    )
    assert right(wall(text)) == []


def test_a_comma_that_may_part_thousands_is_settled_or_asked_for(wall):
    text = table("time\tpower_mw", lambda d, t, w: f"{iso(d)}\t{w * 1000:,.0f}".replace("10,000", "9,999"))
    refusal(wall(text), "E-METER-1", "--decimal")
    right(wall(text, "--decimal", "."))
    both = table("time,power_mw", lambda d, t, w: f'{iso(d)},"{w * 1000:,.1f}"')
    assert right(wall(both)) == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_encodings(wall, encoding):
    text = table("time;Leistung (µW);Gerät", lambda d, t, w: f"{iso(d)};{w * 1e6:.0f};ä")
    assert right(wall(text, encoding=encoding)) == []
