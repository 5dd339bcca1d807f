"""What the models of modes compute, figure by figure: slopes, knobs, curves and the process beside them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from edgescope.analysis.cells import objective
from edgescope.errors import UsageError
from edgescope.records import Trial
from edgescope.search import gp
from edgescope.wings.predict import modes, prediction, roofline_modes, surfaces
from edgescope.wings.recommend import bayes
from edgescope.wings.training import interleave
from edgescope.wings.training.interleave import Side


def trial(**keys: Any) -> Trial:
    return Trial(**({"model": "m"} | keys))


# -- taking turns ------------------------------------------------------------------------------------------------------


def test_training_gets_the_time_that_inference_leaves():
    served, trained = Side(4, 0.02, 30.0, 0.05), Side(16, 0.1, 50.0)
    found = interleave.expected(served, trained, 10.0)
    assert found.latency_s == pytest.approx(0.05 + 0.1) and found.trained_sps == pytest.approx(0.8 * 160)
    assert found.watts == pytest.approx(0.2 * 30 + 0.8 * 50)
    assert interleave.expected(Side(4, 0.02), trained, 10.0).watts is None
    assert interleave.expected(served, Side(16, 0.1), 10.0).watts is None
    full = interleave.expected(served, trained, 99.0)
    assert (full.trained_sps, full.watts) == (0.0, 30.0) and Side(1, 0.3).longest == 0.3


SERVED = [Side(1, 0.01, 10.0), Side(4, 0.02, 10.0)]
TRAINED = [Side(8, 0.05, 20.0), Side(32, 0.1, 40.0), Side(32, 0.1, 40.0)]


@pytest.mark.parametrize(
    ("rate", "latency", "watts", "best"),
    [
        (20, 1.0, None, (4, 32)),
        (20, 0.27, None, (4, 32)),  # 20 ms and 100 ms, and three samples to wait for
        (20, 0.26, None, (1, 32)),
        (20, 0.109, None, (1, 8)),
        (20, 0.0599, None, None),
        (100, 1.0, None, (4, 32)),  # one at a time would take all of the time
        (200, 1.0, None, None),
        (20, 1.0, 30.0, (4, 8)),
        (20, 1.0, 19.0, (4, 8)),
        (20, 1.0, 18.9, (1, 8)),
        (20, 1.0, 17.0, None),
    ],
)
def test_the_pair_that_trains_fastest_within_its_budgets(rate, latency, watts, best):
    found = interleave.plan(SERVED, iter(TRAINED), rate, latency_s=latency, watts=watts)
    assert (found and (found.served.batch, found.trained.batch)) == best


def test_a_pair_without_a_meter_keeps_no_power_budget():
    bare = [Side(1, 0.01)]
    assert interleave.plan(bare, TRAINED, 20, latency_s=1.0, watts=99.0) is None
    found = interleave.plan(bare, TRAINED, 20, latency_s=1.0)
    assert found is not None and found.trained is TRAINED[1], "of equals the first"


# -- slopes from physics -----------------------------------------------------------------------------------------------


def of(slope: gp.Slope) -> tuple[list[float], float, float]:
    return slope.feature.round(6).tolist(), slope.mean, slope.sd


def test_slopes_of_throughput():
    trials = [
        trial(device="cpu", batch=1, processes=2, options={"threads": 4}),
        trial(device="cpu", batch=4, in_flight=2, precision="int8", options={"threads": 1}),
        trial(device="cpu", batch=4, options={"threads": 0}),
    ]
    found = [of(s) for s in bayes.throughput(trials, {"m": 7.0}, 4)]
    log = [math.log2(x) for x in (2, 2, 1)]
    mean = sum(log) / 3
    assert found == [
        (pytest.approx([-4 / 3, 2 / 3, 2 / 3], abs=1e-5), 0.05, 0.12),
        (pytest.approx([x - mean for x in log], abs=1e-5), 0.05, 0.18),
        (pytest.approx([-0.2, 0.4, -0.2]), 1.0, 0.8),
        ([0.0] * 3, 0.3, 0.3),
        ([0.0] * 3, -0.7, 0.4),
        (pytest.approx([1 / 3, -2 / 3, 1 / 3], abs=1e-5), 0.65, 0.3),  # 8, 2 and 4 threads on 4 cores
        (pytest.approx([2 / 3, -1 / 3, -1 / 3], abs=1e-5), -0.08, 0.12),
    ]
    there = [
        trial(device="cuda", model=m, sharing=s, processes=p)
        for m, s, p in (("a", "mps=50", 2), ("b", "mps", 1))
    ]
    apart = [of(s) for s in bayes.throughput(there, {"a": math.e, "b": 1.0}, 4)]
    assert [(mean, sd) for _, mean, sd in apart] == [
        (0.12, 0.12),
        (0.12, 0.18),
        (1.0, 0.8),
        (0.3, 0.3),
        (-0.7, 0.4),
    ]
    assert (apart[3][0], apart[4][0]) == ([0.5, -0.5], [0.5, -0.5])
    assert bayes.throughput(there, {"a": math.e}, 4)[4].feature.tolist() == [0, 0]
    mixed = bayes.throughput([trials[0], there[0]], {}, 4)
    assert mixed[0].mean == 0.12 and mixed[-1].feature.tolist() == [0.5, -0.5]


def test_slopes_of_the_tail_of_power_and_of_memory():
    trials = [trial(batch=2, processes=4, in_flight=2), trial(batch=8, precision="bf16")]
    assert [of(s) for s in bayes.tail(trials)] == [([1.5, -1.5], 0.05, 0.08)]
    assert [of(s) for s in bayes.power(trials)] == [([-1.0, 1.0], 0.03, 0.06), ([1.5, -1.5], 0.04, 0.08)]
    half = round(math.log(2) / 2, 6)
    assert [of(s) for s in bayes.memory(trials)] == [
        ([1.0, -1.0], 0.5, 0.25),
        ([-1.0, 1.0], 0.12, 0.12),
        ([half, -half], 0.2, 0.3),
    ]
    assert bayes.in_flight(trials[0]) == 16.0
    assert bayes.SPEED == {"fp32": 0.0, "tf32": 0.2, "fp16": 0.4, "bf16": 0.3, "int8": 0.6}
    assert bayes.BYTES == {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}
    assert [bayes.threads_in_use(trial(options={"threads": n}), 6) for n in (1, 0, "x", 2.5)] == [
        1,
        6,
        6,
        2.5,
    ]


# -- knobs -------------------------------------------------------------------------------------------------------------


def test_the_knobs_of_trials_are_what_their_modes_set():
    features = {"slow": {"gpu_hz": 1e9, "cpu_quota": 2.0}, "fast": {"gpu_hz": 2e9, "cpu_cores": 2.0}}
    trials = [
        trial(mode=m, options={"threads": 3}, sharing=s)
        for m, s in (("slow", "mps=25"), ("fast", "mps"), ("as_is", "time_slicing"))
    ]
    slow, fast, plain = modes.of_trials(trials, features, 6)
    assert (slow["gpu_hz"], slow["cpu_quota"], slow["cpu_cores"], slow["gpu_sm_share"]) == (
        1e9,
        2.0,
        6.0,
        0.25,
    )
    assert (fast["gpu_hz"], fast["cpu_quota"], fast["cpu_cores"], fast["gpu_sm_share"]) == (2e9, 6, 2.0, 1.0)
    assert (plain["gpu_hz"], plain["cpu_quota"], plain["cpu_cores"]) == (2e9, 6, 6.0)
    assert "mode" not in slow and "mode" not in plain and slow["threads"] == 3 and slow["sharing"] == "mps"
    (quota,) = modes.of_trials([trial(mode="q")], {"q": {"cpu_quota": 9.0}}, 6)
    assert quota["cpu_quota"] == 9.0
    words = modes.of_trials([trial(mode="a"), trial(mode="as_is")], {}, 6)
    assert [w["mode"] for w in words] == ["a", "as_is"]


def test_a_grid_has_an_axis_for_each_knob_and_a_name_for_each_mode():
    grid = modes.grid(
        [{"batch": 1, "w": 0, "p": "x", "f": 1.5e9}, {"batch": 4, "w": 3, "p": "y", "f": 1.5e9}]
    )
    batch, w, p = grid.axes()
    assert (batch.levels, batch.at.tolist(), batch.ordinal) == ((1, 4), [0.0, 2.0], True)
    assert (w.levels, w.at.tolist(), p.levels, p.at.tolist(), p.ordinal) == (
        (0, 3),
        [0.0, 2.0],
        ("x", "y"),
        [0.0, 1.0],
        False,
    )
    root = 1 / math.sqrt(2)
    assert grid.unit().tolist() == [pytest.approx([0, 0, root, 0]), pytest.approx([1, 1, 0, root])]
    assert grid.names == ("batch=1 w=0 p=x", "batch=4 w=3 p=y") and grid.fixed == {"f": 1.5e9}
    assert modes.label({"f": 1.5e9}, {"f": 1}) == "f=1.5e+09" and modes.label({}, {}) == "the only mode"
    lanes = modes.grid([{"batch": b, "processes": p} for b in (1, 4) for p in (1, 2)])
    assert (
        lanes.axes()[2].at.tolist() == [0.0, 1.0, 2.0, 3.0]
        and len(modes.grid([{"batch": b} for b in (1, 2)]).axes()) == 1
    )
    assert grid.numbers("p") is None and grid.numbers("f") is None and grid.numbers("w").tolist() == [0, 3]
    for values in ((True, False), (-1, 2), (None, 1)):
        assert modes.grid([{"x": v} for v in values]).numbers("x") is None
    assert grid.row(1) == {"batch": 4, "w": 3, "p": "y", "f": 1.5e9}


def test_a_table_of_modes_holds_runs_of_modes():
    grid, profile = modes.of_rows(
        [
            {"batch": 2, "processes": 3, "clock": 1, "seconds": 0.6, "power_w": 5.0},
            {"clock": 1, "batch": 2, "processes": 3, "seconds": 1.2},
            {"batch": 4, "processes": 3, "clock": 1, "throughput_sps": 8.0, "power_w": 7.0},
            {"batch": 8, "processes": 3, "clock": 1, "power_w": 9.0},
        ]
    )
    assert {k: list(v) for k, v in profile.seconds.items()} == {0: pytest.approx([0.1, 0.2]), 1: [0.125]}
    assert {k: list(v) for k, v in profile.watts.items()} == {0: [5.0], 1: [7.0]} and len(grid) == 3
    with pytest.raises(UsageError) as refused:
        modes.of_rows([{"batch": 2, "throughput_sps": 0.0}])
    assert refused.value.code == "E-PRED-4"
    for odd in (True, "x"):
        with pytest.raises(ValueError, match="no number"):
            modes.of_rows([{"batch": 2, "seconds": odd}])


# -- the process -------------------------------------------------------------------------------------------------------


def test_axes_are_alike_as_far_as_they_reach():
    number, word = gp.product("n", [1.0, 2.0, 8.0]), gp._axis("w", ["a", "b", "a"])
    rows = np.array([0, 2])
    reach = np.array([1.0, 2.0])
    wanted = [[[math.exp(-0.5 * (abs(a - b) / r) ** 2) for b in (0, 3)] for a in (0, 1, 3)] for r in reach]
    assert number.alike(gp.EVERY, rows, reach) == pytest.approx(np.array(wanted))
    assert word.alike(gp.EVERY, rows, reach).tolist() == [[[1, 1], [0, 0], [1, 1]]]
    assert gp._axis("z", [0, 1]).ordinal is False and gp._axis("b", [True, False]).ordinal is False
    assert [a.name for a in gp.axes([trial(batch=1), trial(batch=2)])] == ["batch"]


@pytest.mark.parametrize("around", [None, np.array([1.0, 2.0, 3.0, 4.0])])
def test_the_process_is_the_average_of_gaussian_ones(around):
    """Each setting by itself: a plain conditional normal, weighted by how likely the seen cells are."""
    grid = [gp.product("n", [1.0, 2.0, 4.0, 4.0]), gp._axis("w", ["a", "a", "a", "b"])]
    slopes = [gp.Slope(np.array([0.0, 1.0, 2.0, 2.0]), 0.5, 0.2)]
    made = gp.Surrogate(grid, slopes, 4, gp.Spread(settings=5), around=around, level_sd=3.0)
    seen, rows = {0: 0.3, 3: 1.9}, np.array([0, 3])
    expected = np.array([0.0, 0.5, 1.0, 1.0]) + (0.0 if around is None else around)
    s, means, variances, likely = made.settings, [], [], []
    for k in range(5):
        alike = [axis.alike(gp.EVERY, np.arange(4), s.reach[k : k + 1])[0] for axis in grid]
        cov = 9.0 + 0.04 * np.outer([0, 1, 2, 2], [0, 1, 2, 2])
        cov = (
            cov
            + sum(v * a for v, a in zip(s.single[k], alike, strict=True))
            + s.pairs[k] * alike[0] * alike[1]
        )
        own = cov[np.ix_(rows, rows)] + np.eye(2) * (s.noise[k] ** 2 + 1e-9)
        gap = np.array([0.3, 1.9]) - expected[rows]
        means.append(expected + cov[:, rows] @ np.linalg.solve(own, gap))
        variances.append(np.maximum(np.diag(cov - cov[:, rows] @ np.linalg.solve(own, cov[rows])), 1e-8))
        likely.append(-0.5 * gap @ np.linalg.solve(own, gap) - 0.5 * np.linalg.slogdet(own)[1])
    weights = np.exp(np.array(likely) - max(likely))
    kept = weights >= 1e-3
    weights = weights[kept] / weights[kept].sum()
    mean = weights @ np.array(means)[kept]
    assert made.mean(seen) == pytest.approx(mean)
    value, sd = made.fresh(seen)
    spread = np.array(variances)[kept] + s.noise[kept][:, None] ** 2 + (np.array(means)[kept] - mean) ** 2
    assert value == pytest.approx(mean) and sd == pytest.approx(np.sqrt(weights @ spread))
    drawn = made.sample(seen, np.random.default_rng(0), 4000)
    assert drawn.shape == (4000, 4) and drawn.mean(axis=0) == pytest.approx(mean, abs=0.15)


def test_the_settings_are_drawn_around_what_is_usual():
    many = gp._drawn(2, gp.Spread(scale=(0.5, 0.0), noise=(0.03, 0.7), settings=4000))
    assert np.median(np.sqrt(many.single), axis=0) == pytest.approx([0.15, 0.15], rel=0.06)
    assert np.std(np.log(np.sqrt(many.single)), axis=0) == pytest.approx([0.8, 0.8], rel=0.05)
    assert np.median(np.sqrt(many.pairs)) == pytest.approx(0.025, rel=0.06)
    assert np.std(np.log(np.sqrt(many.pairs))) == pytest.approx(0.7, rel=0.05)
    assert (np.median(many.reach), np.std(np.log(many.reach))) == (
        pytest.approx(2.5, rel=0.06),
        pytest.approx(0.4, rel=0.05),
    )
    assert (np.median(many.noise), np.std(np.log(many.noise))) == (
        pytest.approx(0.03, rel=0.06),
        pytest.approx(0.7, rel=0.05),
    )
    wide = gp._drawn(1, gp.Spread(scale=(1.0, 1.0), settings=4000))
    assert np.std(np.log(np.sqrt(wide.single))) == pytest.approx(math.hypot(0.8, 1.0), rel=0.05)
    assert (gp.USUAL.scale, gp.USUAL.noise, gp.USUAL.settings) == ((1.0, 0.0), (0.02, 0.5), 32)


# -- fits --------------------------------------------------------------------------------------------------------------


def line(*measured: float) -> surfaces.Curve:
    """a + b x over five modes; parts tell b alone."""
    x = np.arange(5.0)

    def of(at: Any, rows: Any) -> Any:
        return at[0][:, None] + at[1][:, None] * x[rows]

    sds = (surfaces.Prior("a", 1.0, 2.0), surfaces.Prior("b", 0.5, 0.25))
    if not measured:
        return surfaces.Curve(sds, of)
    return surfaces.Curve(sds, of, lambda at: at[1][:, None] * np.ones(len(measured)), measured)


@pytest.mark.parametrize("measured", [(), (0.6,), (0.6, 0.55)])
def test_a_straight_curve_is_fitted_as_ridge_regression_would(measured):
    seen = {0: 1.2, 2: 2.3, 4: 3.1}
    fit, start = surfaces.fit(line(*measured), seen)
    parts = np.array([[0.0, 0.25]] * len(measured)).reshape(-1, 2)
    design = np.concatenate([np.array([[2.0, 0.25 * x] for x in seen]), parts]) / 0.06
    target = np.concatenate([[y - 1 - 0.5 * x for x, y in seen.items()], np.array(measured) - 0.5]) / 0.06
    best = np.linalg.solve(design.T @ design + np.eye(2), design.T @ target)
    assert start == pytest.approx(best, abs=0.01)
    assert fit.at == pytest.approx([1 + 2 * best[0], 0.5 + 0.25 * best[1]], abs=0.01)
    assert fit.value == pytest.approx(fit.at[0] + fit.at[1] * np.arange(5), abs=1e-6)
    inside = parts / 0.06
    precision = inside.T @ inside + np.eye(2)
    mean = np.linalg.solve(precision, inside.T @ ((np.array(measured) - 0.5) / 0.06))
    assert fit.expected == pytest.approx(1 + 2 * mean[0] + (0.5 + 0.25 * mean[1]) * np.arange(5), abs=1e-3)
    slopes = np.array([[2.0, 0.25 * x] for x in range(5)])
    assert fit.slopes @ fit.slopes.T == pytest.approx(
        slopes @ np.linalg.inv(precision) @ slopes.T, rel=1e-3, abs=1e-6
    )


def test_a_residual_beyond_three_deviations_counts_less():
    gap = np.array([0.0, 0.06, 0.17999, 0.18001, 0.6, -0.6])
    z = np.array([2.0, -1.0])
    assert surfaces._cost(gap[:3], z) == pytest.approx(0 + 1 + 9 + 5, rel=1e-3)
    assert surfaces._cost(gap[3:4], z) == pytest.approx(9 + 5, rel=1e-3)
    assert surfaces._cost(gap[4:], z) == pytest.approx(2 * (2 * 3 * 10 - 9) + 5)
    seen = {0: 1.0, 1: 1.5, 2: 2.0, 3: 2.5, 4: 9.0}
    robust = surfaces.fit(line(), seen)[0].value
    assert robust[:4] == pytest.approx([1.0, 1.5, 2.0, 2.5], abs=0.2), "one odd mode does not turn the line"
    assert (surfaces.ROUNDS, surfaces.STARTS, surfaces.NOISE, surfaces.HUBER) == (40, 3, 0.06, 3.0)


def test_slopes_are_those_at_the_point():
    value, slopes = surfaces._linear(
        lambda z: np.stack([z[0] ** 2 + 3 * z[1], z[1]], axis=-1), np.array([2.0, 5.0])
    )
    assert value == pytest.approx([19.0, 5.0]) and slopes == pytest.approx(
        np.array([[4.0, 3.0], [0.0, 1.0]]), abs=1e-4
    )


def test_a_fitter_keeps_its_fits_and_numbers_modes_of_a_part_from_zero():
    made = surfaces.Fitter(lambda seen: line())
    one = made.fit({0: 1.2, 2: 2.3})
    assert made.fit({2: 2.3, 0: 1.2}) is one
    part = made.only(np.array([2, 4]))
    assert made.only(np.array([2, 4])) is part
    assert part.fit({0: 2.3, 1: 3.1}).value == pytest.approx(
        made.fit({2: 2.3, 4: 3.1}).value[[2, 4]], abs=0.02
    )


# -- physical curves ---------------------------------------------------------------------------------------------------

BOARD = itertools.product((2, 4), (1e9, 2e9), (3e8, 9e8), (1e9, 2e9))
SERVING = itertools.product((1, 8), (1, 2), (1, 4), ("fp32", "int8"))
GRIDS: dict[str, list[dict[str, Any]]] = {
    "board": [{"cpu_cores": c, "cpu_hz": f, "gpu_hz": g, "memory_hz": m} for c, f, g, m in BOARD],
    "training": [
        {"cpu_cores": c, "workers": w, "batch": b} for c in (1, 4) for w in (0, 1, 8) for b in (16, 64)
    ],
    "serving": [{"batch": b, "processes": p, "in_flight": i, "precision": q} for b, p, i, q in SERVING],
    "threads": [
        {"threads": t, "cpu_cores": c, "cpu_quota": q} for t in (1, 2, 8) for c in (2, 4) for q in (1.0, 3.0)
    ],
    "shares": [{"gpu_sm_share": s, "gpu_power_w": w} for s in (0.25, 1.0) for w in (100.0, 300.0)],
}


@pytest.mark.parametrize(
    ("name", "seconds", "watts"),
    [
        (
            "board",
            (9, -20.113706, 12.2, -1.1682931, -2.118577, -223.8941084),
            (10, 0.8, 13.3, 2.4873378, 2.4240642, 329.9849877),
        ),
        (
            "training",
            (13, -38.085999, 17.4, -1.2731035, -2.4362803, -141.2664559),
            (7, 1.3, 9.3, 2.3523398, 2.1328093, 170.8088049),
        ),
        (
            "serving",
            (9, -10.906558, 11.4, 0.1120069, -2.9137545, -270.0545931),
            (7, 1.3, 7.3, 2.091892, 2.0342167, 278.070286),
        ),
        (
            "threads",
            (6, -13.1, 8.2, -1.7858912, -2.5613656, -171.8217221),
            (6, 1.3, 7.8, 2.0448574, 2.1031756, 159.8955729),
        ),
        (
            "shares",
            (4, -7.4, 5.5, -0.4501383, -2.5619855, -19.1073984),
            (4, 1.3, 4.8, 1.9367399, 2.0359833, 20.0539238),
        ),
    ],
)
def test_physical_curves_have_their_priors_and_are_what_they_were(name, seconds, watts):
    """Of each: parameters, sums of their means and deviations, the first, the last and the sum of 1, 2, 3 .. modes."""
    grid = modes.grid(GRIDS[name])
    curves = (
        (roofline_modes.seconds(grid, -3.0), seconds),
        (roofline_modes.watts(grid, np.linspace(-2, -1, len(grid)), 2.0), watts),
    )
    for curve, wanted in curves:
        at = np.array([[p.mean + p.sd * math.sin(i + 1)] for i, p in enumerate(curve.priors)])
        found = curve.of(at, gp.EVERY)[0]
        sums = (len(at), sum(p.mean for p in curve.priors), sum(p.sd for p in curve.priors))
        ends = (found[0], found[-1], found @ np.arange(1, len(found) + 1))
        assert (*sums, *ends) == pytest.approx(wanted, rel=1e-5)


# -- fits and predictions by their parts -------------------------------------------------------------------------------


def test_a_fit_begins_at_the_priors_means_and_two_other_places_or_where_the_last_ended(monkeypatch):
    begun: list[list[float]] = []

    def descend(of: Any, y: Any, z: Any) -> tuple[float, Any]:
        begun.append(z.tolist())
        return float(len(begun) != 2), z

    monkeypatch.setattr(surfaces, "_descend", descend)
    fit, start = surfaces.fit(line(), {0: 1.2, 2: 2.3})
    assert len(begun) == 3 and begun[0] == [0.0, 0.0] and start.tolist() == begun[1] != begun[2]
    assert fit.at == pytest.approx([1 + 2 * begun[1][0], 0.5 + 0.25 * begun[1][1]])
    assert surfaces.fit(line(), {0: 1.2}, start)[1] is start and len(begun) == 4


def test_a_descent_ends_where_a_round_gains_less_than_a_ten_thousandth():
    looks = []

    def of(z: Any) -> Any:
        looks.append(z.shape[1])
        return np.stack([z[0] + 2 * z[1], z[0] - z[1], np.exp(z[0])], axis=-1)

    y = np.array([1.0, 0.4, 1.9])
    cost, z = surfaces._descend(of, y, np.zeros(2))
    assert cost == pytest.approx(surfaces._cost(y - of(z[:, None])[0], z), rel=1e-12)
    rounds = looks[:-1].count(1)
    assert 3 <= rounds <= 8, "one look at three points for the slopes, and one for each step"


@pytest.mark.parametrize("gap", [0.05, 0.18, 0.9, -0.9])
def test_a_measured_part_far_from_the_fit_counts_less(gap):
    mean, root = surfaces._known(lambda z: z[1][:, None], np.array([gap + 0.3]), np.array([2.0, 0.3]))
    weight = min(1.0, 0.18 / abs(gap)) / 0.0036
    assert mean == pytest.approx([0.0, weight * (gap + 0.3) / (1 + weight)], abs=1e-4)
    assert root @ root.T == pytest.approx(np.diag([1.0, 1 / (1 + weight)]), abs=1e-4)


def test_what_takes_no_power_is_known_to_take_none():
    served, trained = Side(4, 0.02, 30.0), Side(16, 0.1, 50.0)
    nothing = interleave.expected(served, Side(16, 0.1, 0.0), 10.0).watts
    assert nothing == pytest.approx(6.0)
    assert interleave.expected(Side(4, 0.02, 0.0), trained, 10.0).watts == pytest.approx(40.0)


def chosen(mean: list[float], sd: float = 0.1, factor: float = 2.0, gaps: Any = ()) -> surfaces.Chosen:
    guess = surfaces.Guess(np.array(mean), np.full(len(mean), sd), factor)
    return surfaces.Chosen("roofline", guess, {}, {}, dict(gaps))


def test_errors_of_left_out_modes_go_together_as_far_as_they_are_known():
    """(2 + 8) / sqrt(5 x 20) is 1, of two modes: 2 / (2 + 4)."""
    time, power = chosen([0.0], gaps={0: 1, 1: 2, 5: 9}), chosen([1.0], 0.3, 1.5, {0: 2, 1: 4, 7: 1})
    assert prediction._together(time, power) == pytest.approx(1 / 3)
    against = chosen([1.0], gaps={0: -2, 1: -4})
    assert prediction._together(time, against) == pytest.approx(-1 / 3)
    assert prediction._together(time, chosen([1.0], gaps={0: 2, 1: -1})) == pytest.approx(0.0)
    assert prediction._together(time, chosen([1.0], gaps={0: 1, 1: 7})) == pytest.approx(
        15 / math.sqrt(250) / 3
    )
    assert prediction._together(time, chosen([1.0])) == 0.0
    both = prediction.joined(time, power)
    assert (both.mean[0], both.factor) == (1.0, 1.0)
    assert both.sd[0] == pytest.approx(math.sqrt(0.2**2 + 0.45**2 + 2 / 3 * 0.2 * 0.45))
    assert prediction.joined(chosen([0.0], 0.0), chosen([0.0], 0.0)).sd[0] == 1e-6


def test_every_figure_of_a_mode_comes_from_the_seconds_and_watts_of_a_sample():
    grid = modes.grid([{"batch": b, "processes": 2} for b in (1, 4, 8)])
    profile = prediction.Profile({0: [0.5], 2: [0.25]})
    time, power = (
        chosen([math.log(s) for s in (0.5, 0.2, 0.25)]),
        chosen([math.log(w) for w in (3.0, 6.0, 4.0)]),
    )
    made = prediction.Prediction(grid, profile, time, power, objective.wanted("throughput"), 100)
    figures = {name: [round(row[name].value, 6) for row in made.rows] for name in made.guesses}
    assert figures == {
        "throughput_sps": [2.0, 5.0, 4.0],
        "latency_mean_s": [1.0, 1.6, 4.0],
        "power_w": [3.0, 6.0, 4.0],
        "energy_per_sample_j": [1.5, 1.2, 1.0],
        "epoch_s": [50.0, 20.0, 25.0],
        "epoch_j": [150.0, 120.0, 100.0],
    }
    first = made.rows[0]["throughput_sps"]
    assert (first.lo, first.hi, first.n) == pytest.approx((2 * math.exp(-0.2), 2 * math.exp(0.2), 1))
    assert [row.profiled for row in made.rows] == [True, False, True]
    assert [row.mode for row in made.ranked] == [1, 2, 0] and made.pick is made.rows[1]
    assert [made.cost(row) for row in made.rows] == pytest.approx([-2.0, -5.0, -4.0])
    assert [row.mode for row in made.front] == [1, 2, 0]
    least = prediction.Prediction(grid, profile, time, power, objective.wanted("watts", ["throughput>=2.5"]))
    assert [row.mode for row in least.ranked] == [2, 1, 0] and bool(least.rows[0].broken)
    assert least.cost(least.rows[2]) == pytest.approx(4.0)
    assert {least.rows[0][name] for name in ("epoch_s", "epoch_j")} == {prediction.NO_EPOCH}
    dark = prediction.Prediction(grid, profile, time, prediction.NO_METER, objective.wanted("watts"), 100)
    assert dark.ranked == () and dark.pick is None and dark.cost(dark.rows[0]) == math.inf
    assert [row.mode for row in dark.front] == [1] and dark.rows[0]["epoch_j"] == prediction.NO_METER


@pytest.mark.parametrize("knee", [0.2, 0.5, 0.9])
def test_the_voltage_bends_at_its_knee_and_is_whole_at_the_highest_clock(knee):
    below, at, top = roofline_modes._above(np.array([knee - 0.06, knee, 1.0]), np.array(knee))
    whole = math.log1p(math.exp((1 - knee) / 0.06))
    assert (below, at, top) == pytest.approx((math.log1p(math.exp(-1)) / whole, math.log(2) / whole, 1.0))
