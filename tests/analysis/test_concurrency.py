"""Cells of concurrent processes: which belong together, the line of their memory, and the series they make."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgescope.analysis.cells import concurrency
from edgescope.analysis.cells.concurrency import (
    cells,
    memory_line,
    over_batches,
    over_precisions,
    over_processes,
)
from edgescope.records import Absent, Measured, Result, Status, Trial, Trust, Verdict
from edgescope.stats.intervals import t_quantile
from making import result


def run(
    rate: float = 100.0, of: dict[str, float] | None = None, trust: Trust = Trust.CLEAN, **keys: Any
) -> Result:
    trial = Trial(**({"model": "m"} | keys))
    figures = {"throughput_sps": Measured(rate, "samples/s", n=9)}
    figures |= {name: Measured(value, "1") for name, value in (of or {}).items()}
    made = replace(
        result(trial), metrics=figures, verdict=Verdict(trust, ("x",) if trust is not Trust.CLEAN else ())
    )
    return replace(
        made, id=f"{trial.id}-{rate:g}", started_at=f"2026-01-01T00:00:{int(rate) % 60:02}.000+00:00"
    )


def test_the_place_of_a_cell_tells_how_the_device_is_shared_where_it_is():
    def place(**keys: Any) -> str:
        return concurrency.place(Trial(**({"model": "m"} | keys)))

    assert place() == "m fp32 batch 1, P = 1" and place(processes=2) == "m fp32 batch 1, P = 2, shared cores"
    assert place(processes=2, device="cuda").endswith("time slicing")
    assert place(device="cuda", processes=2, sharing="mps=50").endswith("MPS at 50 %")
    assert place(device="cuda", processes=2, sharing="mps").endswith("P = 2, MPS")
    assert place(processes=2, sharing="pinned").endswith("pinned cores")


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, True),
        ({"processes": 3}, True),
        ({"in_flight": 2}, False),
        ({"scenario": "fixed_rate", "rate": 5.0}, False),
        ({"colocated": "n"}, False),
        ({"tracer": "kineto"}, False),
    ],
)
def test_a_closed_loop_of_one_query_at_a_time_belongs_here(keys, wanted):
    trial = Trial(**({"model": "m"} | keys))
    assert concurrency.wanted(trial) is wanted and len(cells([result(trial)])) == wanted
    assert concurrency.is_traced(trial) is (keys == {"tracer": "kineto"})


def test_a_cell_has_the_fresh_runs_where_they_are_enough_and_the_least_trust():
    warm = [replace(run(110.0 + k, replicate=k), process="reused") for k in range(2)]
    fresh = [
        run(100.0 + k, replicate=k, trust=t)
        for k, t in enumerate((Trust.CLEAN, Trust.DISTURBED, Trust.UNKNOWN))
    ]
    (cell,) = cells([*fresh, *warm])
    assert cell.total.value == pytest.approx(101) and len(cell.reused) == 2 and cell.fresh == cell.runs
    assert (cell.interval, cell.verdict.trust, cell.ok) == ("3 fresh processes", Trust.DISTURBED, True)
    (few,) = cells([*fresh[:2], *warm])
    assert few.interval == "4 runs, 2 of fresh processes and 2 of warm workers" and len(few.runs) == 4
    (two,) = cells(fresh[:2])
    assert (
        two.interval == "2 fresh processes: no interval" and two["throughput_per_process_sps"].value == 100.5
    )
    (one,) = cells(fresh[:1])
    assert one.interval == "within one run" and one.verdict.trust is Trust.CLEAN
    (hot,) = cells([warm[0]])
    assert hot.interval == "within one run of warm workers"
    (none,) = cells([replace(fresh[0], status=Status.FAILED)])
    assert (none.ok, none.interval, none.lost, none.metrics) == (False, "none", (), {})
    (lost,) = cells([fresh[0], replace(fresh[1], status=Status.FAILED)])
    assert len(lost.lost) == 1 and len(lost.runs) == 1


def test_figures_a_process_and_what_only_several_have():
    (pair,) = cells([run(90.0, {"processes_rss_bytes": 7.0}, processes=3)])
    assert (
        pair["throughput_per_process_sps"].value == pytest.approx(30)
        and pair.value("processes_rss_bytes") == 7.0
    )
    (alone,) = cells([run(90.0, {"peak_rss_bytes": 5.0})])
    assert alone.value("processes_rss_bytes") == 5.0 and "single process" in alone["fairness"].reason
    assert pair.value("fairness") is None
    scaled = concurrency.scaled(Measured(6.0, "x", 3.0, 9.0, 4), 0.5)
    assert scaled == Measured(3.0, "x", 1.5, 4.5, 4)


def line(*points: tuple[int, float], rule: float = 0.0) -> concurrency.MemoryLine:
    of = [{"processes_rss_bytes": b} | ({"memory_rule_bytes": rule * p} if rule else {}) for p, b in points]
    found = cells([run(100.0 + p, f, processes=p) for (p, _), f in zip(points, of, strict=True)])
    return memory_line(concurrency.Series(tuple(found), "processes"), "processes_rss_bytes")


def test_memory_is_a_line_over_the_processes():
    x, y = np.array([2, 3, 4, 6.0]), np.array([70, 95, 130, 190.0])
    found = line(*zip((2, 3, 4, 6), y.tolist(), strict=True), rule=20.0)
    slope, start = np.polyfit(x, y, 1)
    off = y - slope * x - start
    half = t_quantile(0.975, 2) * math.sqrt(off @ off / 2 / ((x - x.mean()) ** 2).sum())
    assert (found.slope.value, found.slope.lo, found.slope.hi) == pytest.approx(
        (slope, slope - half, slope + half)
    )
    assert (found.start.value, found.points, found.slope.n) == (pytest.approx(start), 4, 4)
    assert found.residual.value == pytest.approx(np.max(np.abs(off) / y)) and found.linear is True
    assert found.rule.value == 20.0 and found.against.value == pytest.approx(slope / 20)
    two = line((2, 70.0), (4, 110.0))
    assert (two.slope.value, two.slope.lo, two.start.value) == (pytest.approx(20), None, pytest.approx(30))
    assert two.linear is None and isinstance(two.rule, Absent) and isinstance(two.against, Absent)
    assert isinstance(line((2, 70.0)).slope, Absent)
    bent = line((2, 70.0), (3, 70.0), (4, 110.0))
    assert bent.linear is False
    three = line((2, 70.0), (3, 90.0), (4, 110.0))
    assert three.linear is True and three.slope.lo == pytest.approx(20, abs=1e-6)


def test_series_over_each_axis_have_several_cells():
    made = cells(
        [
            *(run(100.0 + p, processes=p, device="cuda") for p in (4, 1, 2)),
            *(run(200.0 + p, processes=p, sharing="mps", device="cuda") for p in (2, 4)),
            run(401.0, batch=8, device="cuda"),
            run(402.0, precision="int8", device="cuda"),
            run(403.0, precision="bf16", device="cuda"),
        ]
    )
    rows = [[(c.trial.processes, c.trial.sharing) for c in s.cells] for s in over_processes(made)]
    assert [(1, "time_slicing"), (2, "time_slicing"), (4, "time_slicing")] in rows
    assert [(1, "time_slicing"), (2, "mps"), (4, "mps")] in rows and len(rows) == 2
    (batches,) = over_batches(made)
    assert [c.trial.batch for c in batches.cells] == [1, 8]
    (bits,) = over_precisions(made)
    assert [c.trial.precision for c in bits.cells] == ["int8", "bf16", "fp32"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, ""),
        ({"io": "device"}, " io=device"),
        ({"options": {"threads": 2}}, " threads=2"),
        ({"workload": "null"}, " null"),
        ({"precision": "int8", "batch": 4, "processes": 3, "sharing": "pinned", "in_flight": 2}, ""),
    ],
)
def test_the_settings_of_a_table_leave_out_its_axes(keys, words):
    plain = concurrency.setup(Trial(model="m"))
    assert concurrency.setup(Trial(**({"model": "m"} | keys))) == plain + words
    assert "fp32" not in plain and "b1" not in plain


def series(axis: str, **keys: Any) -> concurrency.Series:
    return concurrency.Series(tuple(cells([run(**keys)])), axis)


@pytest.mark.parametrize(
    ("axis", "keys", "words"),
    [
        ("processes", {}, "m fp32 batch 1, shared cores"),
        ("processes", {"processes": 4, "sharing": "pinned"}, "m fp32 batch 1, pinned cores"),
        ("batch", {"batch": 8}, "m fp32, P = 1"),
        ("batch", {"processes": 2}, "m fp32, P = 2, shared cores"),
        ("precision", {"precision": "int8", "batch": 2}, "m batch 2, P = 1"),
        ("precision", {"processes": 3, "sharing": "mps", "device": "cuda"}, "m batch 1, P = 3, MPS"),
    ],
)
def test_what_the_cells_of_a_series_share_is_said(axis, keys, words):
    assert series(axis, **keys).words == words


def test_a_line_asks_for_two_points_and_its_bounds_for_three():
    none, two, three = line((2, 70.0)), line((1, 70.0), (4, 130.0)), line((1, 70.0), (2, 96.0), (3, 110.0))
    assert (none.points, none.linear) == (1, None) and "at 1 number" in none.residual.reason
    assert (two.points, two.slope.value, two.residual) == (2, pytest.approx(20), concurrency.TWO)
    # slope 20, start 52: off by -2, 4, -2, and 4 / 96 is the largest share
    assert (three.slope.value, three.start.value) == (pytest.approx(20), pytest.approx(52))
    assert three.residual.value == pytest.approx(4 / 96) and three.residual.n == 3 and three.linear
    half = t_quantile(0.975, 1) * math.sqrt(24 / 1 / 2)
    assert (three.slope.lo, three.slope.hi) == pytest.approx((20 - half, 20 + half))


def test_the_rule_is_a_process_of_the_first_cell_that_knows_it():
    found = cells(
        [run(100.0 + p, {"memory_rule_bytes": b}, processes=p) for p, b in ((2, 0.0), (4, 80.0), (8, 320.0))]
    )
    assert concurrency._rule(found).value == 20.0
    assert concurrency._rule([]).reason == "no cell has it"
    assert concurrency._rule(cells([run()])) == cells([run()])[0]["memory_rule_bytes"]


def test_one_cell_on_an_axis_is_no_series():
    one = cells([run(processes=2), run(101.0, processes=2, batch=2, precision="int8")])
    assert over_processes(one) == over_batches(one) == over_precisions(one) == []
    mixed = cells(
        [
            run(),
            run(102.0, processes=2),
            run(103.0, batch=2),
            replace(run(104.0, batch=4), status=Status.FAILED),
        ]
    )
    (s,) = over_batches(mixed)
    assert [c.trial.batch for c in s.cells] == [1, 2]
    (p,) = over_processes(mixed)
    assert [c.trial.processes for c in p.cells] == [1, 2] and p.axis == "processes"


def test_precisions_go_from_the_fewest_bits_to_the_most_and_some_are_equal():
    widths = [concurrency.WIDTH[name] for name in concurrency.PRECISIONS]
    assert widths == sorted(widths) and len(set(widths)) == 4
    assert concurrency.WIDTH["fp16"] == concurrency.WIDTH["bf16"] and concurrency.WIDTH["as_is"] == widths[1]
