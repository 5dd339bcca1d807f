"""What a profiler cost a cell, and when its figures may still be used."""

from __future__ import annotations

import pytest

from edgescope.analysis.cells import traced
from edgescope.records import Absent, Field, Measured, Trial


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
