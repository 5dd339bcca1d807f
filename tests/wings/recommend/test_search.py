"""The search: grids as coordinates, guesses that learn, what failures rule out, regret on grids made by formula."""

import numpy as np
import pytest

import grids
from edgescope.analysis.cells.objective import wanted
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.search import gp
from edgescope.search.gp import Surrogate, axes, product
from edgescope.wings.recommend.bayes import Search, throughput


def searched(cells, rows, asked, budget, seed=0, **keys):
    search = Search(cells, asked, seed=seed, **keys)
    while len(search.rows) < budget:
        cell = search.suggest(budget)
        if cell is None:
            break
        assert cell not in search.rows
        search.tell(cell, rows[cell])
    return search


def regret(rows, asked, pick):
    sign = -1 if asked.goal.higher else 1
    cost = [sign * np.log(r[asked.goal.name].value) for r in rows]
    able = [i for i, r in enumerate(rows) if not asked.broken(r)]
    assert pick in able
    return 1 - np.exp(min(cost[i] for i in able) - cost[pick])


def test_axes_are_what_differs_numbers_on_a_log_scale():
    found = {a.name: a for a in axes(grids.cpu_cells())}
    assert set(found) == {"backend", "precision", "batch", "processes", "options.threads", "sharing"}
    assert found["batch"].ordinal and found["batch"].levels == (1, 2, 4, 8, 16)
    assert not found["sharing"].ordinal and sorted(set(found["batch"].at)) == [0, 1, 2, 3, 4]
    assert product("both", [2.0, 4.0, 2.0]).levels == (2.0, 4.0)


def test_a_guess_passes_near_what_was_seen_and_is_unsure_elsewhere():
    cells, speeds = grids.cpu(1)
    guess = Surrogate(axes(cells), throughput(cells, {}, 2), len(cells))
    seen = {i: float(np.log(speeds[i])) for i in range(0, len(cells), 16)}
    weights, means, sds, _ = guess.posterior(seen)
    mean, sd = weights @ means, np.sqrt(weights @ sds**2)
    assert weights.sum() == pytest.approx(1)
    assert max(abs(mean[i] - seen[i]) for i in seen) < 0.05
    unseen = [i for i in range(len(cells)) if i not in seen]
    assert sd[list(seen)].max() < np.median(sd[unseen])
    error = (mean - np.log(speeds))[unseen]
    assert np.mean(np.abs(error) < 2.5 * sd[unseen]) > 0.9


@pytest.mark.parametrize("at_once", [1, 300, 10**9])
def test_what_fits_into_memory_at_once_does_not_change_the_guess(at_once, monkeypatch):
    """One setting after the other, a few at a time, or all."""
    cells, speeds = grids.cpu(1)
    seen = {i: float(np.log(speeds[i])) for i in (0, 7, 22)}
    told = Surrogate(axes(cells), throughput(cells, {}, 2), len(cells)).posterior(seen)
    assert len(told.weights) > 4 and told.means.shape == told.sds.shape == (len(told.weights), len(cells))
    monkeypatch.setattr(gp, "AT_ONCE", at_once)
    again = Surrogate(axes(cells), throughput(cells, {}, 2), len(cells)).posterior(seen)
    for one, other in zip(told, again, strict=True):
        assert np.allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "question", "cores"),
    [
        (grids.gpu, ("throughput", []), 16),
        (grids.cpu, ("throughput", ["p99<=400ms"]), 2),
        (grids.cpu, ("energy", []), 2),
    ],
    ids=["gpu throughput", "cpu throughput p99", "cpu energy"],
)
def test_a_tenth_of_the_cells_finds_a_good_one(make, question, cores):
    cells, speeds = make(1)
    rows, asked = grids.rows(cells, speeds, 0), wanted(*question)
    search = searched(cells, rows, asked, len(cells) // 10, cores=cores, macs=grids.GPU_MODELS)
    assert len(search.rows) == len(cells) // 10
    assert regret(rows, asked, search.pick()) <= 0.05


def test_every_word_is_seen_before_the_guesses_steer():
    cells, speeds = grids.gpu(2)
    rows = grids.rows(cells, speeds, 0)
    search = searched(cells, rows, wanted("throughput"), 6, cores=16)
    seen = [cells[i] for i in search.rows]
    assert {t.model for t in seen} == set(grids.GPU_MODELS)
    assert {t.precision for t in seen} == {"fp32", "fp16"} and {t.sharing for t in seen} == {
        "time_slicing",
        "mps",
    }


def test_every_axis_is_varied_before_the_budget_ends():
    """The store holds b1 P1 alone, and nothing else is expected to answer sooner: both others are looked at."""
    cells = cells_of()
    rows = grids.rows(cells, [100.0 * t.batch for t in cells], 0, 0.0)
    search = Search(cells, wanted("latency"))
    for i, t in enumerate(cells):
        if (t.batch, t.processes, t.precision) == (1, 1, "fp32"):
            search.tell(i, rows[i])
    for spent in range(3):
        cell = search.suggest(3, spent)
        search.tell(cell, rows[cell])
    new = [cells[i] for i in search.rows][-3:]
    assert {t.batch for t in new} == {1, 4} and {t.processes for t in new} == {1, 2}


def test_an_axis_whose_cells_fail_twice_is_left():
    cells = [Trial(model="m", processes=p, batch=b) for p in (1, 2) for b in (1, 2, 4, 8)]
    search = Search(cells, wanted("throughput"))
    rows = grids.rows(cells, [10.0 * t.batch for t in cells], 0, 0.0)
    search.tell(0, rows[0])
    search.tell(1, rows[1])
    failed = 0
    while len([r for r in search.rows.values() if r]) < 4:
        cell = search.suggest(4, len([r for r in search.rows.values() if r]))
        if cells[cell].processes == 2:
            failed += 1
            search.fail(cell, Status.CRASHED)
        else:
            search.tell(cell, rows[cell])
    assert 2 <= failed < 4


def test_a_search_ends_when_the_grid_does():
    cells = [Trial(model="m", batch=b) for b in (1, 2)]
    search = searched(cells, grids.rows(cells, [10.0, 20.0], 0, 0.0), wanted("throughput"), 9)
    assert sorted(search.rows) == [0, 1] and search.pick() == 1 and search.suggest(9) is None


def cells_of(**axes_):
    return [
        Trial(model="m", backend=backend, precision=precision, batch=batch, processes=p)
        for backend in ("onnxruntime", "openvino")
        for precision in ("fp32", "int8")
        for batch in (1, 4)
        for p in (1, 2)
    ]


def test_wrong_outputs_rule_out_every_cell_of_the_artifact():
    cells = cells_of()
    search = Search(cells, wanted("throughput"))
    search.fail(next(i for i, t in enumerate(cells) if t.precision == "int8"), Status.WRONG_OUTPUT)
    out = {i for i in range(len(cells)) if search.likely[i] == 0}
    assert {(cells[i].backend, cells[i].precision) for i in out} == {("onnxruntime", "int8")} and len(
        out
    ) == 4


def test_out_of_memory_rules_out_what_needs_more_of_everything():
    cells = cells_of()
    search = Search(cells, wanted("throughput"))
    at = next(i for i, t in enumerate(cells) if (t.batch, t.processes) == (4, 1))
    search.fail(at, Status.OOM)
    out = {
        (t.backend, t.precision, t.batch, t.processes) for i, t in enumerate(cells) if search.likely[i] == 0
    }
    assert out == {("onnxruntime", "fp32", 4, 1), ("onnxruntime", "fp32", 4, 2)}


def test_a_crash_makes_its_neighbours_unlikely_and_a_busy_machine_does_not():
    cells = cells_of()
    search = Search(cells, wanted("throughput"))
    search.fail(0, Status.CRASHED)
    assert search.likely[0] == 0 and search.likely[1] < search.likely[-1] < 1
    search = Search(cells, wanted("throughput"))
    search.fail(0, Status.UNSTABLE, alone=True)
    assert search.likely[0] == 0 and set(search.likely[1:]) == {1.0}


def test_where_nothing_keeps_the_constraints_there_is_no_pick():
    cells, speeds = grids.cpu(0)
    rows = grids.rows(cells, speeds, 0)
    search = searched(cells, rows, wanted("throughput", ["memory<=1MB"]), 8, cores=2)
    assert search.pick() is None and len(search.rows) == 8


def test_an_unmeasured_objective_is_no_pick():
    cells = [Trial(model="m", batch=b) for b in (1, 2)]
    search = Search(cells, wanted("watts"))
    search.tell(0, grids.Row(throughput_sps=Measured(10, "samples/s"), power_w=Absent("no sensor")))
    assert search.pick() is None and search.suggest() == 1
