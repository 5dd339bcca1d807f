"""edgescope energy: a stored result's meters, and its energy at the wall."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.run import energy_window as energy
from edgescope.analysis.run.energy import consumption
from edgescope.cli.main import main
from edgescope.errors import ExitCode, Message
from edgescope.records import (
    QUERY_DTYPES,
    Absent,
    Channel,
    Idle,
    Measured,
    Meter,
    Queries,
    Readings,
    Status,
    Trial,
    Trust,
    Verdict,
    Window,
)
from edgescope.store.results import Store
from edgescope.wings.energy.cli import SCOPES
from making import result, show_card

S = 1_000_000_000


@pytest.fixture
def stored(tmp_path):
    """A run of 10 s between two idle stretches of 5 s, watched by one rail, in a store."""
    n = 100
    columns = {name: np.full(n, -1, dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["issued_ns"] = np.arange(n) * S // 10
    columns["done_ns"] = columns["issued_ns"] + S // 10
    columns["samples"], columns["status"] = np.ones(n, np.int32), np.zeros(n, np.int8)
    t = np.arange(-6, 16, 0.1)
    rail = Channel("vdd_in_power_w", "W", "module", "gauge", "test")
    watts = np.where((t >= 0) & (t < 10), 8.0, 3.0) + 0.01 * np.sin(t)
    made = replace(
        result(Trial(model="null", backend="null", idle_s=5)),
        queries=Queries(columns),
        window=Window(0, n, 0, 10 * S),
        idle=(Idle("before", -5 * S, 0), Idle("after", 10 * S, 15 * S)),
        readings=Readings((rail,), (t * S).astype(np.int64), np.zeros(len(t), np.int16), watts),
        metrics={"queries": Measured(100.0, "queries", n=100)},
    )
    Store(tmp_path / "store").save(made)
    clock = np.arange(-12, 22, 0.2)
    level = np.where((clock >= 0) & (clock < 10), 12.0, 6.0)
    rows = [f"{700 + a:.2f},{b:.3f}" for a, b in zip(clock, level, strict=True)]
    (tmp_path / "plug.csv").write_text("\n".join(["time,power_w", *rows]))
    return made, ["--store", str(tmp_path / "store")], str(tmp_path / "plug.csv")


@pytest.mark.process
def test_every_meter_of_a_result_is_told_with_its_scope(stored, capsys):
    made, where, _ = stored
    assert main(["energy", made.id, *where]) == 0
    out = capsys.readouterr().out
    assert "vdd_in" in out and "module" in out and "trapezoid" in out


@pytest.mark.process
def test_the_wall_is_told_with_the_offset(stored, capsys):
    made, where, plug = stored
    assert main(["energy", made.id, "--meter", plug, *where]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "plug.csv wall trapezoid" in out
    assert "the window begins 12" in out and "+-" in out
    assert "wall: idle 6" in out and "beyond it" in out
    assert "vdd_in: idle 3" in out and "module" in out


@pytest.mark.slow
def test_status_verdict_warnings_and_what_the_ends_are_stand_beside_the_figures(stored, tmp_path, capsys):
    made, where, _ = stored
    verdict = Verdict(Trust.THROTTLED, ("the power cap held the clocks down",))
    recorded = Message("W-REC-1", "a recording")
    hot = replace(made, id="a" * 16, status=Status.UNSTABLE, verdict=verdict, warnings=(recorded,))
    Store(tmp_path / "store").save(hot)
    assert main(["energy", hot.id, *where]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "unstable THROTTLED: the power cap held the clocks down" in out.replace("UNSTABLE", "unstable")
    assert "W-REC-1: a recording." in out and "W-PWR-2" in out
    assert "] bounds" in out and "] 95 % over" in out
    assert main(["energy", hot.id, "--json", *where]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"]["trust"] == "THROTTLED" and asdict(recorded) in data["warnings"]
    meter = data["meters"][0]
    queries, window = hot.queries, hot.window
    card_s = consumption(hot.readings, queries, window).metrics["energy_per_sample_j"]
    assert meter["energy_per_sample_j"]["lo"] == card_s.lo, "one name, one interval"
    assert meter["ends"]["energy_j"] == "bounds" and meter["ends"]["energy_per_sample_j"].startswith("95 %")


@pytest.mark.process
def test_failed_queries_are_no_samples(stored, tmp_path, capsys):
    made, where, _ = stored
    made.queries.columns["status"][:50] = 1
    half = replace(made, id="b" * 16)
    Store(tmp_path / "store").save(half)
    assert main(["energy", half.id, "--json", *where]) == 0
    meter = json.loads(capsys.readouterr().out)["meters"][0]
    assert meter["energy_per_sample_j"]["value"] == pytest.approx(80 / 50, rel=0.02)


@pytest.mark.slow
def test_a_log_of_a_rail_is_not_called_the_wall(stored, tmp_path, capsys):
    made, where, plug = stored
    rails = tmp_path / "tegra.csv"
    rows = [line.split(",") for line in Path(plug).read_text().splitlines()[1:]]
    rails.write_text("\n".join(["time_s,vdd_in_power_w,vdd_soc_power_w", *(f"{t},{w},1.5" for t, w in rows)]))
    call = ["energy", made.id, "--meter", str(rails), *where]
    assert main(call) == 2
    assert "several columns of power" in " ".join(capsys.readouterr().err.split())
    call += ["--power-column", "vdd_in_power_w"]
    assert main(call) == 2
    assert "a rail, not" in " ".join(capsys.readouterr().err.split())
    assert main([*call, "--scope", "module", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    scope = next(Message(**w) for w in data["wall"]["warnings"] if w["code"] == "W-PWR-2")
    assert scope.what.endswith(" MODULE (meter)")
    assert SCOPES == energy.SCOPES


@pytest.mark.process
def test_as_json(stored, capsys):
    made, where, plug = stored
    assert main(["energy", made.id, "--meter", plug, "--json", *where]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["meters"][0]["energy_j"]["value"] == pytest.approx(80, rel=0.01)
    assert data["wall"]["metrics"]["energy_j"]["value"] == pytest.approx(120, rel=0.03)
    assert data["wall"]["metrics"]["energy_dynamic_per_sample_j"]["value"] == pytest.approx(0.6, rel=0.06)
    assert data["wall"]["alignment"]["uncertainty_s"] > 0


@pytest.mark.process
def test_a_result_without_a_meter_says_why(stored, tmp_path, capsys):
    made, where, _ = stored
    metrics = made.metrics | {"power_w": Absent("no power sensor: RAPL: no package zone")}
    bare = replace(made, id="e" * 16, readings=result().readings, metrics=metrics)
    Store(tmp_path / "store").save(bare)
    assert main(["energy", bare.id, *where]) == 3
    assert "no meter recorded this result: no power sensor: RAPL" in capsys.readouterr().out


@pytest.mark.slow
def test_what_cannot_be_told_is_an_error_with_a_code(stored, tmp_path, capsys):
    made, where, _ = stored
    assert main(["energy", "nosuch", *where]) == 2
    (tmp_path / "bad.csv").write_text("hello")
    assert main(["energy", made.id, "--meter", str(tmp_path / "bad.csv"), *where]) == 2
    assert "E-METER-1" in capsys.readouterr().err
    store = Store(tmp_path / "store")
    store.save(replace(made, id=f"{made.id}0"))
    assert main(["energy", made.trial.id, *where]) == 2
    assert "E-STORE-9" in capsys.readouterr().err
    failed = replace(made, id="f" * 16, status=Status.FAILED, queries=None, readings=None, window=None)
    store.save(failed)
    assert main(["energy", failed.id, *where]) == 2
    assert "E-METER-3" in capsys.readouterr().err


def test_the_card_says_the_scope_beside_every_watt(stored, capsys):
    made, *_ = stored
    fields = {
        "power_w": Measured(8.0, "W"),
        "energy_per_sample_j": Measured(0.8, "J"),
        "idle_power_w": Measured(3.0, "W"),
        "idle_power_drift_w": Measured(-0.2, "W"),
        "energy_dynamic_per_sample_j": Measured(0.5, "J"),
    }
    show_card(replace(made, metrics=made.metrics | fields, meter=Meter("vdd_in", "module", "trapezoid")))
    said = " ".join(capsys.readouterr().out.split())
    assert " power 8 W (module: vdd_in, trapezoid) energy 800 mJ (module: vdd_in, trapezoid) " in said
    assert " idle 3 W (module), -200 mW from before to after; 500 mJ a sample beyond it " in said
    show_card(replace(made, metrics={"power_w": Absent("no power sensor")}))
    assert "power no power sensor" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_compare_refuses_two_scopes_with_its_code(stored, capsys, tmp_path):
    made, where, _ = stored
    store = Store(tmp_path / "store")
    ids = []
    for batch, scope in ((2, "module"), (3, "carrier")):
        trial = replace(made.trial, batch=batch)
        fields = made.metrics | {"power_w": Measured(8.0, "W")}
        other = replace(made, id=f"{trial.id}-1", trial=trial, metrics=fields, readings=None)
        store.save(replace(other, meter=Meter("vdd", scope, "trapezoid")))
        ids.append(trial.cell)
    assert main(["compare", *ids, *where]) == ExitCode.UNDECIDED
    out = " ".join(capsys.readouterr().out.split())
    assert "W-CMP-1: NOT-COMPARABLE: scope of power differs: module against carrier" in out
    assert "power_w" not in out
    assert main(["compare", *ids, "--force", *where]) == ExitCode.UNDECIDED
    assert "power_w" in capsys.readouterr().out
