"""Which words of a heading are a quantity or a unit, and what each unit is in SI."""

from __future__ import annotations

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.wings.energy.meter_columns import (
    column,
    columns,
    heading,
    is_unit,
    only,
    place,
    rank,
    unit,
    units_in,
)
from edgescope.wings.energy.meter_table import Dialect, Table


def table(head: list[str], *rows: list[str], below: tuple[str, ...] = (), delimiter: str = ",") -> Table:
    lines = [*range(2, 2 + len(rows))]
    return Table("m.csv", tuple(head), below or ("",) * len(head), [*rows], lines, [], [], delimiter)


def values(name: str, *cells: str, kind: str = "power", below: str = "", flag: str = "") -> list[float]:
    dialect = Dialect(units={kind: flag} if flag else {})
    made = table([name], *([cell] for cell in cells), below=(below,))
    return column(made, 0, kind, dialect).values.tolist()


@pytest.mark.parametrize(
    ("kind", "bases", "size"),
    [
        ("power", ("w", "watt", "watts"), 1.0),
        ("voltage", ("v", "volt", "volts"), 1.0),
        ("current", ("a", "amp", "amps", "ampere", "amperes"), 1.0),
        ("energy", ("j", "joule", "joules", "ws"), 1.0),
        ("energy", ("wh", "watthours"), 3600.0),
        ("time", ("s", "sec", "secs", "second", "seconds"), 1.0),
    ],
)
def test_every_unit_has_its_size_with_each_prefix(kind, bases, size):
    small = {"": 1.0, "m": 1e-3, "milli": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "micro": 1e-6}
    small |= {"n": 1e-9, "nano": 1e-9}
    large = {"k": 1e3, "kilo": 1e3}
    for base in bases:
        for prefix, scale in small.items():
            assert unit(prefix + base, kind) == pytest.approx(scale * size, rel=1e-12)
        for prefix, scale in large.items():
            if kind == "time":
                assert not is_unit(prefix + base)
            else:
                assert unit(prefix + base, kind) == scale * size


def test_minutes_and_hours_are_units_of_time():
    assert {unit(w, "time") for w in ("min", "mins", "minutes")} == {60.0}
    assert {unit(w, "time") for w in ("h", "hr", "hours")} == {3600.0}


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("power_w", {"power": 0}),
        ("power", {"power": 1}),
        ("w", {"power": 1}),
        ("vdd_in_power_mw", {"power": 0}),
        ("CH1 mW", {"power": 1}),
        ("p", {"power": 1}),
        ("P L1", {}),
        ("line w", {}),
        ("channel p (W)", {}),
        ("max power", {}),
        ("power factor", {}),
        ("power time", {"time": 1}),
        ("voltage W", {"power": 1}),
        ("power V", {"voltage": 1}),
        ("power_h", {"power": 1}),
        ("a", {"current": 1}),
        ("phase a", {}),
        ("V in", {}),
        ("input V", {}),
        ("Current A", {"current": 0}),
        ("energy_j", {"energy": 0}),
        ("time_s", {"time": 1}),
        ("s", {"time": 1}),
        ("load s", {}),
        ("t", {"time": 1}),
        ("core t", {}),
        ("", {}),
        ("12", {}),
    ],
)
def test_a_name_is_of_one_quantity_at_most(name, ranks):
    kinds = ("power", "voltage", "current", "energy", "time")
    assert {kind: found for kind in kinds if (found := rank(name, kind)) is not None} == ranks


@pytest.mark.parametrize(
    ("name", "kind", "units"),
    [
        ("power_mw", "power", {"mw"}),
        ("pwrmw", "power", {"mw"}),
        ("powerMilliwatts", "power", {"milliwatts"}),
        ("Power [W/mW]", "power", {"w", "mw"}),
        ("watts", "power", {"watts"}),
        ("power_mw", "voltage", set()),
        ("tsms", "time", set()),
        ("timems", "time", {"ms"}),
    ],
)
def test_the_units_in_a_name(name, kind, units):
    assert units_in(name, kind) == units


def test_the_clearest_columns_of_a_quantity_are_taken():
    assert columns(["pwr", "cpu_power_w", "gpu_power_w", "x"], "power") == ["cpu_power_w", "gpu_power_w"]
    assert columns(["pwr", "x", "power"], "power") == ["pwr", "power"]
    assert columns(["x"], "power") == []


@pytest.mark.parametrize("cell", ["W", "[mW]", "(s)", "min"])
def test_what_is_a_unit(cell):
    assert is_unit(cell) and not is_unit(f"{cell}x")


@pytest.mark.parametrize(
    ("head", "dialect", "found"),
    [
        (["time", "power"], {}, True),
        (["time", "volts", "amps"], {}, True),
        (["time", "volts"], {}, False),
        (["time", "amps"], {}, False),
        (["time", "energy"], {}, True),
        (["power", "x"], {}, False),
        (["time", "x"], {}, False),
        (["time", "x"], {"power": "x"}, True),
        (["when", "power"], {"time": "WHEN"}, True),
        (["When", "power"], {"time": "when"}, True),
        (["when", "power"], {"time": "then"}, False),
    ],
)
def test_a_heading_names_a_time_and_what_power_follows_from(head, dialect, found):
    assert heading(head, Dialect(dialect)) is found


def test_a_column_is_found_by_its_name_or_its_number():
    made = table(["a", "B", "b", "2"])
    assert [place(made, name, "power") for name in ("A", "1", "3", "4", "2")] == [0, 0, 2, 3, 3]
    for name in ("b", "0", "5", "c"):
        with pytest.raises(UsageError) as refused:
            place(made, name, "power")
        assert (refused.value.code, refused.value.fix) == ("E-METER-1", "--power-column NUMBER")


def test_the_one_column_of_a_quantity():
    assert only(table(["time", "power"]), "power", Dialect()) == 1
    assert only(table(["time", "x"]), "power", Dialect()) is None
    two = table(["time", "cpu power", "gpu power"])
    assert only(two, "power", Dialect({"power": "gpu power"})) == 2
    with pytest.raises(UsageError) as refused:
        only(two, "power", Dialect())
    assert refused.value.fix == "--power-column NAME"


def test_a_cell_with_a_unit_of_its_own_is_read_by_it():
    nan = np.nan
    read = values("power_w", "5", "5 mW", "5kW", "5 V", "5 MW", "x", "", ".5", "-2", "1.5e1")
    assert read == pytest.approx([5, 0.005, 5000, nan, nan, nan, nan, 0.5, -2, 15], nan_ok=True)
    assert values("power", "5", "5 mW") == pytest.approx([nan, 0.005], nan_ok=True)
    assert values("power", "5", "6", below="(mW)") == pytest.approx([0.005, 0.006])
    assert values("POWER_MW", "5", flag="mw") == [0.005]
    assert values("energy", "2", kind="energy", flag="Wh") == [7200.0]


@pytest.mark.parametrize(
    ("kind", "cells", "wanted"),
    [
        ("power", ("1000", "999", "1001"), "--power-unit W,"),
        ("power", ("1001", "-1002", "3000"), "--power-unit mW,"),
        ("voltage", ("400",), "--voltage-unit V,"),
        ("voltage", ("401",), "--voltage-unit mV,"),
        ("current", ("50",), "--current-unit A,"),
        ("current", ("51",), "--current-unit mA,"),
        ("energy", ("1e9",), "--energy-unit J,"),
    ],
)
def test_a_unit_that_is_not_written_is_asked_about_with_the_likelier_one(kind, cells, wanted):
    with pytest.raises(UsageError) as refused:
        values(kind, *cells, kind=kind)
    assert refused.value.code == "E-METER-4" and refused.value.fix.startswith(wanted)
    ends = sorted(map(float, cells))
    assert refused.value.evidence == f"its values are {ends[0]:g} to {ends[-1]:g}"


@pytest.mark.parametrize(
    ("name", "below", "evidence"),
    [
        ("Power (dBm)", "", "dBm"),
        ("POWER_MW", "", "MW"),
        ("power", "MW", "MW"),
        ("power (mVA)", "", "mVA"),
        ("power 0.1W", "", "0.1W"),
        ("power W (x10 mW)", "", "(x10 mW"),
        ("power (xy)", "", "xy"),
        ("power [W/mW]", "", "mw, w"),
        ("power_w", "s", "s, w"),
        ("power_w", "mW", "mw, w"),
    ],
)
def test_a_unit_that_is_not_understood_is_asked_about(name, below, evidence):
    with pytest.raises(UsageError) as refused:
        values(name, "5", below=below)
    assert (refused.value.code, refused.value.evidence) == ("E-METER-4", evidence)


@pytest.mark.parametrize("name", ["power (avg) W", "power W (CH1)", "power mW (xy)", "power_5v w"])
def test_what_else_stands_in_a_name_is_no_unit(name):
    assert np.isfinite(values(name, "5")).all()


def test_the_unit_that_a_flag_names():
    assert (unit("mW", "power"), unit("Wh", "energy")) == (1e-3, 3600.0)
    for text, kind in (("MW", "power"), ("mV", "power"), ("x", "time")):
        with pytest.raises(UsageError) as refused:
            unit(text, kind)
        assert refused.value.code == "E-METER-4" and refused.value.fix.startswith(f"--{kind}-unit ")


@pytest.mark.parametrize(("row", "told"), [(199, True), (200, False)])
def test_the_first_two_hundred_rows_beside_a_column_tell_its_decimal_mark(row, told):
    rows = [["1,500", "2,5" if i == row else "2"] for i in range(210)]
    made = table(["power_w", "x"], *rows)
    if told:
        assert set(column(made, 0, "power", Dialect()).values) == {1.5}
        return
    with pytest.raises(UsageError) as refused:
        column(made, 0, "power", Dialect())
    assert (refused.value.code, refused.value.fix) == ("E-METER-1", "--decimal ,")


def test_points_that_part_thousands_beside_one_that_parts_decimals_are_refused_with_a_cell():
    with pytest.raises(UsageError, match=r"E-METER-1.*such as '1\.234\.567'"):
        values("power_mW", "1.234.567", "1.5")
