"""The scripts behind the search's and the recommendation's published figures, on grids made by formula."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import grids
from edgescope.analysis.cells.objective import wanted
from edgescope.models import zoo
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.study import grid
from edgescope.wings.recommend.recommendation import recommend
from making import result

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import search_regret
import searches
from search_regret import Cell


def cells(count=None, processes=2):
    trials, speeds = grids.cpu(0)
    out = [{} for _ in trials]
    for seed in range(processes):
        for metrics, row in zip(out, grids.rows(trials, speeds, seed), strict=True):
            metrics.setdefault("throughput_sps", []).append(row["throughput_sps"].value)
            metrics.setdefault("latency_p99_s", []).append(row["p99_s"].value)
    made = [Cell(t, Status.OK, "", m) for t, m in zip(trials, out, strict=True)]
    made[0] = Cell(trials[0], Status.OOM, "no memory left", {})
    return made[:count]


def test_a_packed_grid_is_read_back(tmp_path):
    made = cells()
    page = json.loads(json.dumps(search_regret.packed(made)))
    assert search_regret.unpacked(page) == made and search_regret.unpacked({"figures": page}) == made
    path = tmp_path / "grid.json"
    path.write_text(json.dumps(page))
    assert search_regret.read(path) == made
    assert "model" in page["common"] and "batch" in page["cells"][0]["trial"]


def test_results_become_cells_a_value_a_process():
    trials = [Trial(model="null", backend="null", replicate=n) for n in (1, 0)]
    fields = {"throughput_sps": Measured(100.0, "samples/s"), "power_w": Absent("no sensor")}
    group = [
        result(t, metrics=fields | {"peak_rss_bytes": Measured(1e8 + t.replicate, "bytes")}) for t in trials
    ]
    (cell,) = search_regret.of_results(group)
    assert cell.metrics == {"throughput_sps": [100.0, 100.0], "memory_bytes": [1e8, 1e8]}
    assert cell.trial.replicate == 0 and cell.status is Status.OK


STUDY = """
[trial]
model = "resnet50"
backend = "torch_eager"
device = "cuda"
precision = "fp16"
processes = 8
sharing = ["time_slicing", "mps"]
[[replicate]]
sharing = "mps"
replicates = 2
"""


def test_a_target_is_met_by_a_whole_grid_alone(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    shared, mps, _ = grid.read(path, zoo.pin).trials
    sliced = Cell(shared, Status.OK, "", {"throughput_sps": [900.0]})
    client = Cell(mps, Status.OK, "", {"throughput_sps": [2800.0, 2700.0]})
    whole = search_regret.target([sliced, client], path)
    assert whole["not_met"] == [] and whole["mps_over_time_slicing"] == 3.056
    once = replace(client, metrics={"throughput_sps": [2600.0]})
    assert search_regret.target([sliced, once], path)["not_met"] == [
        "1 cells to be replicated have no fresh process",
        "MPS over time slicing is 2.889, not 3",
    ]
    assert search_regret.target([client], path)["not_met"][0] == "1 of 2 cells did not finish"
    other = replace(client, trial=replace(mps, options={"graph": True}))
    assert "which is not the study's setup" in search_regret.target([sliced, other], path)["not_met"][0]
    assert "no study" in search_regret.target([sliced, client], None)["not_met"][0]


def test_halves_are_different_processes():
    a, b = search_regret.halves(cells(processes=3))
    assert [len(x.metrics.get("throughput_sps", [])) for x in (a[1], b[1])] == [1, 2]
    assert not set(a[1].metrics["throughput_sps"]) & set(b[1].metrics["throughput_sps"])


def test_regret_counts_what_is_lost_and_what_is_broken():
    row = search_regret.Row
    fresh = tuple(
        row(throughput_sps=Measured(s, "samples/s"), p99_s=Measured(p, "s"))
        for s, p in ((100, 0.01), (80, 0.01), (200, 0.02))
    )
    trials = tuple(Trial(model="m", batch=b) for b in (1, 2, 4))
    seen = tuple(Cell(t, Status.OK, "", {}) for t in trials)
    replay = search_regret.Replay(trials, seen, fresh, wanted("throughput", ["p99<=15ms"]), {}, 2)
    assert replay.regret(0) == 0 and replay.regret(1) == pytest.approx(0.2)
    assert replay.regret(2) == pytest.approx(1 / 3) and replay.regret(None) == 1


@pytest.mark.slow
def test_every_rival_keeps_to_the_budget_and_the_search_is_good():
    a, b = search_regret.halves(cells())
    throughput, tail = search_regret.questions(a, b, 2)
    assert tail.asked.constraints[0].name == "p99"
    assert throughput.budget == 16
    for rival in (search_regret.by_search, search_regret.by_chance, search_regret.by_coordinates):
        pick, measured = rival(throughput, 0)
        assert measured == 16 and pick != 0
    assert throughput.regret(search_regret.by_search(throughput, 1)[0]) <= 0.05


def test_the_targets_are_asked_of_every_question():
    regret = {"median": 0.01, "worst": 0.05, "picks_measured_once": 0}
    good = {"search": regret, "all_of_a": regret, "best_measured_once": None}
    met = lambda q: search_regret.judged(q)["met"]  # noqa: E731
    assert met(good) and met(good | {"best_measured_once": 0.8})
    assert not met(good | {"search": regret | {"worst": 0.06}})
    assert not met(good | {"search": regret | {"picks_measured_once": 1}})
    assert not met(good | {"best_measured_once": 0.97})
    noisy = search_regret.judged(good | {"all_of_a": regret | {"median": 0.1}})
    assert noisy == {"met": True, "all_of_a_meets_it": False}
    assert search_regret.met({"questions": [{"met": True}]})
    assert not search_regret.met({"questions": [{"met": True}, {"met": False}]})
    assert not search_regret.met({"questions": []})


def test_cells_measured_once_are_counted_and_scored_on_what_was_seen():
    made = cells(processes=1)
    again = cells(processes=2)[10:30]  # a part of the grid, measured twice more
    a, b = search_regret.halves(made, again)
    throughput, _ = search_regret.questions(a, b, 2)
    assert len(throughput.once) == len(made) - 1 - 20  # the first ran out of memory
    assert len(b[10].metrics["throughput_sps"]) == 2
    assert throughput.fresh[40]["throughput_sps"].value == made[40].metrics["throughput_sps"][0]
    assert 0 < throughput.nearest_once() < 2


def test_constraints_bind_above_the_bounds_and_a_run_beyond_them_does_not_hold():
    fields = {
        "throughput_sps": Measured(100, "samples/s"),
        "latency_p50_s": Measured(0.008, "s"),
        "latency_p99_s": Measured(0.010, "s"),
        "latency_p99_bound_s": Measured(0.011, "s"),
        "peak_rss_bytes": Measured(1e8, "bytes"),
    }
    runs = [result(Trial(model="m", replicate=n), metrics=fields) for n in range(3)]
    pick = recommend(runs, wanted("throughput")).pick
    limits = {c.name: c.limit for c in searches.binding(pick)}
    assert limits == {"p99": pytest.approx(0.011 * 1.05), "memory": pytest.approx(1.05e8)}
    asked = replace(wanted("throughput"), constraints=tuple(searches.binding(pick)))
    assert recommend(runs, asked).pick.cell == pick.cell
    assert searches.held(runs[0], pick, asked)["held"]
    slow = result(runs[0].trial, metrics=fields | {"latency_p99_s": Measured(0.02, "s")})
    assert not searches.held(slow, pick, asked)["held"]
    gone = result(runs[0].trial, metrics={}, status=Status.CRASHED, reason="E-X-1: signal 9.")
    assert searches.held(gone, pick, asked)["reason"] == "E-X-1: signal 9."
