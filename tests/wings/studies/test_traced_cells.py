"""What a profiler cost a cell, and when its figures may still be used."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgescope.analysis.cells.concurrency import cells
from edgescope.analysis.kernels.inferences import PARTS, Budget
from edgescope.records import Absent, Field, Measured, Trial
from edgescope.wings.studies import traced
from making import result


def rate(value: float) -> Measured:
    return Measured(value, "samples/s")


@pytest.mark.parametrize(
    ("clean", "profiled", "share"),
    [
        (rate(100), rate(80), 0.8),
        (rate(80), rate(100), 1.25),
        (rate(0), rate(80), None),
        (rate(100), rate(0), None),
        (rate(100), Absent("x"), None),
        (None, rate(80), None),
        (rate(0.5), rate(0.25), 0.5),
    ],
)
def test_a_phase_is_as_fast_as_the_other_where_both_have_a_throughput(
    clean: Field | None, profiled: Field | None, share: float | None
) -> None:
    found = traced.perturbation(clean, profiled)
    assert (found.value if isinstance(found, Measured) else None) == share


@pytest.mark.parametrize(
    ("share", "usable"), [(0.8, True), (0.79, False), (1.25, True), (1.26, False), (1.0, True)]
)
def test_a_profiler_may_cost_a_fifth(share: float, usable: bool) -> None:
    assert traced.conclusive(Measured(share, "ratio")) is usable
    assert traced.conclusive(Absent("a file has no clean run beside it"))


@pytest.mark.parametrize("share", [Absent("no clean run"), Measured(0.8, "ratio"), Measured(0.5, "ratio")])
def test_what_a_profiler_slowed_too_much_has_no_figure(share: Field) -> None:
    busy = Measured(0.3, "share")
    cell = traced.TracedCell(
        Trial(model="m"), "nsys", share, None, Measured(1e-6, "s"), busy, {"sm_active": busy}
    )
    slow = isinstance(share, Measured) and share.value < 0.8
    assert set(cell.judged) == (set(traced.FIGURES) if slow else {*traced.TIMES, "launch_s", "sm_active"})
    assert (
        cell.judged["sm_active"] == busy
        if not slow
        else all(isinstance(f, Absent) and "50%" in f.reason for f in cell.judged.values())
    )


def budget(**parts: list[int]) -> Budget:
    nothing = [0] * len(next(iter(parts.values())))
    every = {name: np.array(parts.get(name, nothing), "int64") for name in PARTS}
    none = np.array(nothing, "int64")
    return Budget(None, every, True, none, none)  # type: ignore[arg-type]


def cell_of(found: Budget | None) -> traced.TracedCell:
    launch = Measured(1e-6, "s")
    return traced.TracedCell(Trial(model="m"), "nsys", Absent("no clean run"), found, launch, launch, {})


def test_times_of_an_inference_are_sums_of_its_parts_and_their_median() -> None:
    few = cell_of(budget(launch=[1000, 3000, 2000], rescheduled=[100, 100, 400], blocked=[7, 8, 9]))
    figures = few.figures
    assert figures["launching_s"] == Measured(pytest.approx(2400e-9), "s", n=3)
    assert figures["blocked_s"] == Measured(pytest.approx(8e-9), "s", n=3)
    many = cell_of(budget(launch=[i * 37 % 100 + 1 for i in range(100)])).figures["launching_s"]
    assert isinstance(many, Measured) and many.value == pytest.approx(50.5e-9) and many.n == 100
    assert many.lo is not None and many.hi is not None and many.lo < many.value < many.hi
    for name in traced.TIMES:
        assert cell_of(None).figures[name] == traced.NO_CALLS


def account(**parts: Any) -> Any:
    nothing = {"gpus": (), "samples": {}, "budget": None, "launches": None}
    return SimpleNamespace(**nothing | parts)


def test_a_file_has_the_samples_of_its_own_gpu() -> None:
    sampled = {"gpu3_sm_active": Measured(0.5, "share"), "gpu0_sm_active": Measured(0.1, "share")}
    gpus = (SimpleNamespace(device=3, busy=0.25), SimpleNamespace(device=4, busy=0.75))
    launches = SimpleNamespace(api=SimpleNamespace(median_s=Measured(2e-6, "s")))
    trial = Trial(model="m", tracer="cupti", replicate=4)
    found = traced.of_file(trial, account(gpus=gpus, samples=sampled, launches=launches), "a.qdrep")
    assert (found.source, found.busy, found.launch) == (
        "a.qdrep",
        Measured(0.5, "share"),
        Measured(2e-6, "s"),
    )
    assert found.use["sm_active"] == Measured(0.5, "share")
    assert found.use["tensor_active"] == Absent("a.qdrep has no samples of it")
    assert found.trial == Trial(model="m") and isinstance(found.perturbation, Absent)
    alone = traced.of_file(trial, account(samples=sampled), "a")
    assert alone.use["sm_active"] == Measured(0.1, "share") and alone.launch == traced.NO_CALLS
    assert isinstance(alone.busy, Absent)


def run(day: int, tracer: str = "cupti", sps: float = 90.0, model: str = "m") -> Any:
    asked = Trial(model=model, tracer=tracer)
    return result(
        asked, id_=f"{model}{day}", started_at=f"2026-01-0{day}", metrics={"throughput_sps": rate(sps)}
    )


def test_the_newest_traced_run_of_a_cell_counts_beside_its_clean_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "trace_of", lambda found: found if found.trial.tracer == "cupti" else None)
    monkeypatch.setattr(traced, "account", lambda found: account())
    (clean,) = cells([run(1, "none", 100.0)])
    got = traced.of_results([run(3, sps=80.0), run(2), run(4, "none", model="n"), run(5, model="o")], [clean])
    assert [(t.trial.model, t.source) for t in got] == [("m", "cupti"), ("o", "cupti")]
    assert got[0].perturbation == Measured(0.8, "ratio") and isinstance(got[1].perturbation, Absent)
    assert set(got[0].use) == set(traced.USE)


def test_figures_of_a_trace_join_those_of_the_clean_run_and_do_not_replace_its_sensors() -> None:
    (clean, other) = cells([run(1, "none"), run(2, "none", model="n")])
    sensed = replace(
        clean, metrics={**clean.metrics, "sm_active": Measured(0.4, "share"), "sm_issue": Absent("off")}
    )
    use = {
        "sm_active": Measured(0.9, "share"),
        "sm_issue": Absent("none"),
        "tensor_active": Measured(0.2, "share"),
    }
    mine = replace(cell_of(budget(launch=[1000])), use=use)
    first, second = traced.with_traces([sensed, other], [mine])
    assert first["sm_active"] == Measured(0.4, "share") and first["sm_issue"] == Absent("off")
    assert first["tensor_active"] == Measured(0.2, "share") and first["throughput_sps"] == rate(90)
    assert first["launching_s"] == Measured(pytest.approx(1e-6), "s", n=1)
    assert all(second[name] == traced.NOT_TRACED for name in (*traced.TIMES, "launch_s"))
