"""Which cell comes next where the guesses are given: gains, constraints, categories and axes, what was learned."""

import math
from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.cells.objective import wanted
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.search.gp import Surrogate
from edgescope.wings.recommend import bayes
from edgescope.wings.recommend.bayes import Search

BASE = Trial(model="m", backend="onnxruntime")
CELLS = [replace(BASE, batch=b, processes=p) for b in (1, 2, 4) for p in (1, 2)]
CUBE = [
    replace(BASE, batch=b, processes=p, precision=q) for b in (1, 2) for p in (1, 2) for q in ("fp32", "int8")
]


class Given:
    """A guess by hand: its mean in every cell, and how far each draw lies above it."""

    def __init__(self, values, draws=(0.0,)):
        self.at, self.draws = np.log(np.array(values, dtype=np.float64)), draws

    def mean(self, seen):
        return self.at

    def sample(self, seen, rng, count):
        return np.stack([self.at + d for d in self.draws])


def figures(**values):
    """Figures by name; an interval where three numbers are given."""
    return {
        name: Measured(v, "") if not isinstance(v, tuple) else Measured(v[0], "", v[1], v[2])
        for name, v in values.items()
    }


def guess_by(search, name, values, draws=(0.0,)):
    search.known[name] = replace(search.known[name], guess=Given(values, draws))


def searching(guesses, seen=(), cells=CELLS, objective="throughput", constraints=(), draws=(0.0,), **keys):
    """A search with these guesses; `seen`: cell -> its figures."""
    search = Search(cells, wanted(objective, constraints), **keys)
    assert set(search.known) == set(guesses)
    for name, values in guesses.items():
        guess_by(search, name, values, draws)
    for cell, row in dict(seen).items():
        search.tell(cell, row)
    return search


SPS = [10.0, 20.0, 30.0, 5.0, 5.0, 5.0]


# -- gains --------------------------------------------------------------------------------------------------


def test_a_gain_is_what_the_draws_exceed_the_best_by_times_how_likely_it_runs():
    search = searching({"throughput_sps": SPS}, {0: figures(throughput_sps=10.0)}, draws=(0.0, math.log(4)))
    likely = search.likely[2] = 0.5
    found = search.gains()
    assert search.pick() == 0
    expected = [
        (0 + math.log(4)) / 2,
        (math.log(2) + math.log(8)) / 2,
        likely * (math.log(3) + math.log(12)) / 2,
    ]
    assert found[:3] == pytest.approx(expected) and found[3] == pytest.approx(math.log(2) / 2)
    assert search.suggest(99, 60) == 1


def test_only_draws_that_keep_the_constraints_gain():
    """A power of 9 W or 4.5 W: half of the draws keep 8 W; that of the others never or always."""
    search = searching(
        {"throughput_sps": SPS, "power_w": [1.0, 9.0, 18.0, 8.0, 4.0, 99.0]},
        {0: figures(throughput_sps=10.0, power_w=5.0)},
        constraints=["power<=8W"],
        draws=(0.0, -math.log(2)),
    )
    found = search.gains()
    assert found[:3] == pytest.approx([0.0, 0.0, 0.0]), "the draws that keep it are half as fast"
    guess_by(search, "throughput_sps", [10.0, 50.0, 60.0, 40.0, 20.0, 90.0], (0.0, 0.0))
    gains = [math.log(5) / 2, 0.0, math.log(4), math.log(2), 0.0]
    assert search.gains()[1:] == pytest.approx(gains)
    least = searching(
        {"throughput_sps": SPS},
        {0: figures(throughput_sps=10.0)},
        constraints=["throughput>=5"],
        objective="throughput",
    )
    assert least.gains()[1:3] == pytest.approx([math.log(2), math.log(3)])


@pytest.mark.parametrize(("limit", "gains"), [("0.5", [1, 0]), ("0.3", [0, 0]), ("2", [1, 1]), ("0", [0, 0])])
def test_a_limit_may_be_less_than_one_and_nothing(limit, gains):
    rows = {0: figures(throughput_sps=10.0, power_w=0.01)}
    guesses = {
        "throughput_sps": [10.0, 20.0, 20.0, 5.0, 5.0, 5.0],
        "power_w": [0.01, 0.4, 0.9, 9.0, 9.0, 9.0],
    }
    search = searching(guesses, rows, constraints=[f"power<={limit}W"])
    assert (search.pick() is None) is (limit == "0")
    found = search.gains()[1:3] / math.log(2)
    assert found == pytest.approx(gains, abs=2e-3)


def test_while_nothing_keeps_the_constraints_the_likeliest_to_comes_first_then_the_best():
    guesses = {"throughput_sps": SPS, "power_w": [9.0, 9.0, 9.0, 4.0, 4.0, 9.0]}
    search = searching(guesses, {0: figures(throughput_sps=10.0, power_w=9.0)}, constraints=["power<=8W"])
    search.likely[4] = 0.5
    assert search.pick() is None
    ranks = [0.6, 0.8, 1.0, 0.0, 0.2, 0.4]
    keeps = [0, 0, 0, 1, 1, 0]
    expected = [(k + 1e-3 * r) * w for k, r, w in zip(keeps, ranks, search.likely, strict=True)]
    assert search.gains() == pytest.approx(expected)
    assert search.suggest(99, 60) == 3


def test_of_an_artifact_that_was_not_measured_four_of_five_keep_what_it_is_judged_by():
    cells = [replace(BASE, precision=p, batch=b) for p in ("fp32", "int8", "fp16") for b in (1, 2)]
    search = searching(
        {"throughput_sps": [10.0, 20.0] * 3},
        {0: figures(throughput_sps=10.0, top1=0.9)},
        cells=cells,
        constraints=["top1>=0.8"],
    )
    assert search.gains()[[1, 3, 5]] == pytest.approx(math.log(2) * np.array([1.0, 0.8, 0.8]))
    search.tell(2, figures(throughput_sps=10.0, top1=0.7))
    search.fail(4, Status.CRASHED, alone=True)
    assert search.gains()[[1, 3, 5]] == pytest.approx(math.log(2) * np.array([1.0, 0.0, 0.8]))
    assert search.pick() == 0


@pytest.mark.parametrize(
    ("objective", "guesses", "costs"),
    [
        ("throughput", {"throughput_sps": 10.0}, -math.log(10)),
        ("watts", {"throughput_sps": 10.0, "power_w": 5.0}, math.log(5)),
        ("energy", {"throughput_sps": 10.0, "power_w": 5.0}, math.log(0.5)),
        ("latency", {"throughput_sps": 10.0, "latency_p50_s": 1.2}, math.log(1.2 * 8 / 10)),
    ],
)
def test_the_cost_of_a_cell_comes_from_the_guesses_of_its_parts(objective, guesses, costs):
    """A latency by Little's law: eight samples are under way in the last cell."""
    names = {n.replace("latency_p50_s", "p50_s"): [v] * 6 for n, v in guesses.items()}
    search = searching(names, objective=objective)
    assert search._expected()[-1] == pytest.approx(-costs)


def test_in_an_open_loop_a_latency_is_guessed_itself():
    cells = [replace(t, scenario="server", rate=5.0) for t in CELLS]
    names = {"throughput_sps": [10.0] * 6, "p50_s": [1.2] * 6}
    assert searching(names, cells=cells, objective="latency")._expected()[-1] == pytest.approx(-math.log(1.2))
    mixed = [*cells[:-1], CELLS[-1]]
    assert searching(names, cells=mixed, objective="latency")._expected()[-1] == pytest.approx(-math.log(1.2))


# -- what was measured --------------------------------------------------------------------------------------


def learned(objective, row, constraints=(), cells=CELLS, cell=5):
    search = Search(cells, wanted(objective, constraints))
    search.tell(cell, row)
    return {name: math.exp(known.seen[cell]) for name, known in search.known.items() if known.seen}


def test_of_a_figure_that_is_bounded_the_worse_end_is_learned_and_of_the_objective_the_value():
    row = figures(throughput_sps=(10.0, 8.0, 12.0), power_w=(5.0, 4.0, 6.0), p50_s=(1.2, 1.0, 1.6))
    assert learned("throughput", row) == pytest.approx({"throughput_sps": 10.0})
    assert learned("watts", row) == pytest.approx({"throughput_sps": 8.0, "power_w": 5.0})
    both = learned("throughput", row, ["power<=9W", "p50<=2s"])
    assert both == pytest.approx({"throughput_sps": 10.0, "power_w": 6.0, "p50_s": 1.6 * 10 / 8})
    assert learned("latency", row)["p50_s"] == pytest.approx(1.2 * 10 / 8), (
        "eight under way: 0.8 s on average"
    )
    opened = [replace(t, scenario="server", rate=5.0) for t in CELLS]
    assert learned("throughput", row, ["p50<=2s"], opened)["p50_s"] == pytest.approx(1.6)
    assert learned("latency", row, cells=opened)["p50_s"] == pytest.approx(1.2)


def test_watts_are_those_of_the_meter_or_the_energy_times_the_speed():
    told = figures(throughput_sps=10.0, energy_per_sample_j=0.4, power_w=(5.0, 4.0, 6.0))
    assert learned("energy", told)["power_w"] == pytest.approx(4.0)
    assert learned("watts", told)["power_w"] == pytest.approx(5.0)
    assert learned("throughput", told, ["power<=9W"])["power_w"] == pytest.approx(6.0)
    assert learned("watts", figures(throughput_sps=10.0, energy_per_sample_j=0.4))[
        "power_w"
    ] == pytest.approx(4.0)
    assert "power_w" not in learned("energy", figures(throughput_sps=10.0, power_w=5.0))
    lacking = {
        "throughput_sps": Absent("x"),
        "energy_per_sample_j": Measured(0.4, "J"),
        "p50_s": Measured(1, "s"),
    }
    assert learned("energy", lacking) == {} == learned("latency", lacking)
    assert learned("throughput", figures(throughput_sps=0.0)) == {}


@pytest.mark.parametrize(
    ("failed", "other", "status", "factor"),
    [
        (0, 0, Status.CRASHED, 0.0),
        (0, 1, Status.CRASHED, 0.55),
        (0, 3, Status.CRASHED, 0.775),
        (0, 7, Status.CRASHED, 0.8875),
        (0, 7, Status.OOM, 0.8875),
        (0, 6, Status.OOM, 0.0),
        (2, 6, Status.OOM, 0.0),
        (6, 2, Status.OOM, 1.0),
        (2, 4, Status.OOM, 1.0),
        (0, 2, Status.WRONG_OUTPUT, 0.0),
        (0, 1, Status.WRONG_OUTPUT, 1.0),
    ],
)
def test_a_failure_lowers_the_chance_of_its_neighbours(failed, other, status, factor):
    search = Search(CUBE, wanted("throughput"))
    search.fail(failed, status)
    assert search.likely[other] == pytest.approx(factor) and search.rows == {failed: None}
    twice = 1.0 if factor in (0.0, 1.0) else factor
    search.fail(failed, status)
    assert search.likely[other] == pytest.approx(factor * twice)


def test_a_failure_that_says_nothing_of_others_leaves_them():
    search = Search(CUBE, wanted("throughput"))
    search.fail(3, Status.CANCELLED, alone=True)
    assert search.likely.tolist() == [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert search.suggest() != 3


def test_an_artifact_is_the_model_and_how_it_was_made_and_not_how_it_runs():
    made, runs = replace(BASE, options={"qdq": "s8s8", "threads": 2}), replace(BASE, options={"threads": 1})
    assert bayes.artifact(made)[:4] == ("m", "onnxruntime", "cpu", "fp32")
    assert bayes.artifact(runs) == bayes.artifact(BASE) != bayes.artifact(made)
    assert bayes.artifact(replace(BASE, batch=4)) == bayes.artifact(BASE)


# -- what to measure next -----------------------------------------------------------------------------------


def one(mode=0, sps=10.0):
    return {mode: figures(throughput_sps=sps)}


def test_before_anything_is_measured_the_most_promising_comes_first_and_chance_decides_among_equals():
    near = {"throughput_sps": [10.0, 10.4, 5.0, 5.0, 5.0, 5.0]}
    assert {searching(near, seed=seed).suggest(9) for seed in range(30)} == {0, 1}
    far = {"throughput_sps": [10.0, 11.1, 5.0, 5.0, 5.0, 5.0]}
    assert {searching(far, seed=seed).suggest(9) for seed in range(30)} == {1}
    alike = {"throughput_sps": [10.0] * 6}
    zero, one_, usual = (searching(alike, **keys) for keys in ({"seed": 0}, {"seed": 1}, {}))
    drawn = [[search.suggest(9) for _ in range(6)] for search in (zero, one_, usual)]
    assert drawn[0] == drawn[2] != drawn[1]


def test_categories_are_seen_in_the_first_half_of_the_budget():
    guesses = {"throughput_sps": [10.0, 1.0] * 4}
    search = searching(guesses, one(), cells=CUBE)
    assert [search.suggest(8, spent) for spent in (0, 3)] == [1, 1], "int8, and nothing else differs"
    guess_by(search, "throughput_sps", [10.0, 1.0, 11.0, 1.0, 12.0, 1.0, 13.0, 1.0])
    assert search.suggest(8, 4) == 6 and search.suggest(9, 4) == 6 and search.suggest(10, 4) == 1
    assert search.suggest() == 1, "without a budget always"
    search.fail(1, Status.CRASHED, alone=True)
    assert search.suggest() != 3, "a category that failed was seen"


@pytest.mark.parametrize(
    ("spent", "cell"),
    [(4, 6), (5, 4), (6, 7), (7, 7)],
)
def test_axes_are_varied_once_what_is_unseen_needs_the_rest_of_the_budget(spent, cell):
    """Three axes were never varied: one cell for each, or one that shows them all where fewer are left."""
    guesses = {"throughput_sps": [10.0, 1.0, 11.0, 1.0, 12.0, 1.0, 13.0, 1.0]}
    assert searching(guesses, one(), cells=CUBE).suggest(8, spent) == cell


def test_an_axis_counts_as_varied_at_two_levels_or_where_two_cells_failed():
    cells = [replace(BASE, batch=b, processes=p) for b in (1, 2) for p in (1, 2, 4)]
    guesses = {"throughput_sps": [10.0, 9.0, 26.0, 30.0, 25.0, 20.0]}

    def suggested(failed, seen):
        search = searching(guesses, {n: figures(throughput_sps=10.0) for n in seen}, cells=cells)
        for n in failed:
            search.fail(n, Status.CRASHED, alone=True)
        return search.suggest(8, 7)

    assert suggested([], [0]) == 4, "one cell left for two axes shows both"
    assert suggested([], [0, 3]) == 4, "the batch was varied, the processes were not"
    assert suggested([], [0, 1]) == 3, "the other way round"
    assert suggested([1], [0, 3]) == 4
    assert suggested([1, 4], [0, 3]) == 2, "two failed: it is left, and the most promising comes"
    assert suggested([1], [0]) == 4


def test_a_level_that_was_not_seen_of_an_axis_that_was_varied_is_no_reason():
    cells = [
        replace(BASE, batch=b, processes=p, precision=q)
        for b in (1, 2, 4)
        for p in (1, 2)
        for q in ("fp32", "int8")
    ]
    rows = {n: figures(throughput_sps=10.0 + n) for n in (0, 4)}
    search = searching({"throughput_sps": [10.0 + n for n in range(12)]}, rows, cells=cells)
    assert search.pick() == 4 and search.suggest(8, 7) == 7, (
        "another precision and number of processes, beside the best"
    )


def test_the_next_to_the_best_is_the_one_that_differs_in_least_then_the_most_promising():
    guesses = {"throughput_sps": [10.0, 1.0, 11.0, 1.0, 12.0, 2.0, 13.0, 9.0]}
    search = searching(guesses, one(6, 13.0), cells=CUBE)
    assert search._beside_best([1, 3, 5, 7]) == 7 and search._beside_best([1, 3, 5]) == 5
    assert search._beside_best([0, 3, 4]) == 4
    none = searching(
        guesses | {"power_w": [9.0] * 8},
        {0: figures(throughput_sps=10.0, power_w=9.0), 6: figures(throughput_sps=13.0, power_w=9.0)},
        cells=CUBE,
        constraints=["power<=1W"],
    )
    assert none.pick() is None and none._beside_best([1, 7]) == 7, "beside the most promising of those seen"
    none.fail(6, Status.CRASHED, alone=True)
    assert none._beside_best([1, 7]) == 1, "one that failed is not the best"
    lost = searching({"throughput_sps": SPS})
    lost.fail(2, Status.CRASHED, alone=True)
    assert lost._beside_best([1, 3]) == 3 == lost._beside_best([3, 5])


def test_where_nothing_gains_the_most_promising_of_the_rest_comes_next():
    guesses = {"throughput_sps": [10.0, 9.0, 7.0, 5.0, 5.0, 5.0]}
    seen = {n: figures(throughput_sps=v) for n, v in ((0, 10.0), (3, 5.0))}
    search = searching(guesses, seen)
    assert search.gains().max() == 0 and search.suggest(99, 60) == 1
    assert search.suggest(None) == 1
    search.likely[[1, 2, 4]] = 0.0
    assert search.suggest(99, 60) == 5
    search.likely[5] = 0.0
    assert search.suggest(99, 60) is None


def test_the_number_of_cells_learned_is_what_was_spent_where_nobody_says():
    guesses = {"throughput_sps": [10.0, 1.0, 11.0, 1.0, 12.0, 1.0, 13.0, 1.0]}
    search = searching(
        guesses, {0: figures(throughput_sps=10.0), 2: figures(throughput_sps=11.0)}, cells=CUBE
    )
    assert search.suggest(6) == search.suggest(6, 2) == 3 and search.suggest(4) == search.suggest(4, 2)


def test_the_pick_is_the_measured_cell_with_the_best_guess_that_keeps_all():
    rows = {
        n: figures(throughput_sps=v, power_w=w) for n, v, w in ((0, 10.0, 5.0), (1, 99.0, 9.0), (3, 1.0, 5.0))
    }
    guesses = {"throughput_sps": SPS, "power_w": [5.0] * 6}
    search = searching(guesses, rows, constraints=["power<=8W"])
    assert search.pick() == 0
    search.tell(2, {"power_w": Measured(5.0, "W"), "throughput_sps": Absent("none")})
    search.fail(5, Status.CRASHED)
    assert search.pick() == 0
    assert Search(CELLS, wanted("throughput")).pick() is None


# -- before anything is measured ----------------------------------------------------------------------------


def test_power_memory_and_tails_vary_less_than_throughput():
    asked = wanted("throughput", ["power<=8W", "memory<=1GB", "gpu_memory<=1GB", "p99<=1s"])

    def spreads(cells):
        search = Search(cells, asked)
        usual = search.known["throughput_sps"].guess.settings.single
        every = {name: known.guess.settings.single / usual for name, known in search.known.items()}
        assert all(np.ptp(of) == pytest.approx(0.0) for of in every.values())
        return {name: float(of.flat[0]) ** 0.5 for name, of in every.items()}

    closed = {
        "throughput_sps": 1,
        "power_w": 0.3,
        "peak_rss_bytes": 0.7,
        "gpu_memory_bytes": 0.7,
        "p99_s": 0.4,
    }
    assert spreads(CELLS) == pytest.approx(closed)
    assert spreads([replace(t, scenario="server", rate=5.0) for t in CELLS])["p99_s"] == pytest.approx(1.0)
    usual = Surrogate(Search(CELLS, asked).known["power_w"].guess.grid, [], 6).settings.single
    assert np.allclose(Search(CELLS, asked).known["throughput_sps"].guess.settings.single, usual)


def test_products_of_axes_count_where_they_differ():
    def names(cells, cores=4):
        return [
            a.name
            for a in Search(cells, wanted("throughput"), cores=cores).known["throughput_sps"].guess.grid
        ]

    assert names(CELLS) == ["batch", "processes", "samples under way"]
    some = [replace(BASE, options={"threads": n}, processes=p) for n, p in ((1, 2), (2, 1), (4, 1))]
    assert names(some) == ["processes", "options.threads", "samples under way", "threads in use"]
    alike = [replace(BASE, options={"threads": n}, processes=p) for n, p in ((1, 2), (2, 1))]
    assert names(alike) == ["processes", "options.threads", "samples under way"], "two threads in both"
    assert names([replace(BASE, precision=p) for p in ("fp32", "int8")]) == ["precision"]


def test_only_what_the_question_asks_for_is_guessed():
    def guessed(*asked):
        return set(Search(CELLS, wanted(*asked)).known)

    assert guessed("throughput") == {"throughput_sps"}
    assert guessed("energy", ["top1>=0.9", "p99<=1s"]) == {"throughput_sps", "power_w", "p99_s"}


def test_ranks_reach_from_nothing_to_one():
    assert bayes._rank(np.array([3.0, 1.0, 2.0])).tolist() == [1.0, 0.0, 0.5]
    assert bayes._rank(np.array([3.0])).tolist() == [0.0]
