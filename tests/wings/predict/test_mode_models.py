"""Models over modes: properties that hold for every input, and planted truths that they must find."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.analysis.cells.objective import wanted
from edgescope.errors import UsageError
from edgescope.records import Absent, Measured
from edgescope.wings.predict import modes, roofline_modes, surfaces
from edgescope.wings.predict.modes import Profile
from edgescope.wings.predict.prediction import predict
from edgescope.wings.predict.surfaces import Guess, Linear, Roofline, Transfer, calibrated, choose

CORES, CPU, GPU, MEMORY = (2, 4, 8), (0.5e9, 1e9, 2e9), (0.3e9, 0.6e9, 1.2e9), (1e9, 2e9)
BOARD = [
    {"cpu_cores": c, "cpu_hz": f, "gpu_hz": g, "memory_hz": m}
    for c, f, g, m in itertools.product(CORES, CPU, GPU, MEMORY)
]
GRID = modes.grid(BOARD)
THROUGHPUT = wanted("throughput")


def planted(gpu=2.0, cpu=0.6, memory=0.4, power=6.0):
    """Seconds of each mode of BOARD: one GPU-bound and one CPU-bound part that overlap."""
    terms = [
        (
            gpu * 1e9 / m["gpu_hz"],
            cpu * 1e9 * (0.3 + 0.7 / m["cpu_cores"]) / m["cpu_hz"],
            memory * 1e9 / m["memory_hz"],
        )
        for m in BOARD
    ]
    return np.array([sum(t**power for t in row) ** (1 / power) for row in terms])


def watts(seconds):
    gpu = np.array([m["gpu_hz"] for m in BOARD]) / 1.2e9
    volts = 0.6 + 0.4 * gpu
    return 5 + 3 * gpu * volts**2 + 8 * seconds.min() / seconds * volts**2


def drawn(count, seed=0):
    return [int(i) for i in np.random.default_rng(seed).choice(len(BOARD), count, replace=False)]


def of(seconds, rows):
    return {i: float(np.log(seconds[i])) for i in rows}


def surface(grid=GRID):
    return Roofline(grid.axes(), fitter(grid))


def fitter(grid):
    return surfaces.Fitter(lambda seen: roofline_modes.seconds(grid, min(seen.values())))


@pytest.mark.parametrize("seed", range(3))
def test_the_roofline_finds_a_planted_roofline(seed):
    truth = planted()
    guess = surface().fit(of(truth, drawn(12, seed)))
    assert np.mean(np.abs(guess.value / truth - 1)) < 0.04


def test_it_is_better_than_a_plane():
    truth, rows = planted(), drawn(12)
    ours, plane = surface().fit(of(truth, rows)), Linear.over(GRID).fit(of(truth, rows))
    error = [np.mean(np.abs(g.value / truth - 1)) for g in (ours, plane)]
    assert error[0] < error[1] / 3


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.floats(1e-4, 1e3), min_size=2, max_size=8),
    st.integers(0, 10_000),
)
@pytest.mark.slow
def test_whatever_was_measured_the_roofline_never_slows_down_with_a_clock(values, seed):
    rows = drawn(len(values), seed)
    curve = roofline_modes.seconds(GRID, float(np.log(min(values))))
    found, _ = surfaces.fit(curve, {i: float(np.log(v)) for i, v in zip(rows, values, strict=True)})
    assert np.isfinite(found.value).all()
    for knob in ("cpu_cores", "cpu_hz", "gpu_hz", "memory_hz"):
        order = sorted(range(len(BOARD)), key=lambda i: BOARD[i][knob])
        others = [tuple(v for k, v in BOARD[i].items() if k != knob) for i in range(len(BOARD))]
        for rest in set(others):
            line = [found.value[i] for i in order if others[i] == rest]
            assert all(b <= a + 1e-9 for a, b in itertools.pairwise(line)), knob


MANY_CORES = [{"cpu_cores": c, "cpu_hz": f} for c in (2, 4, 6, 8, 10, 12) for f in (0.5e9, 1e9, 1.5e9, 2e9)]


def test_cores_beyond_the_threads_of_an_engine_are_found_not_to_help():
    """By the curve alone: the process beside it would take up what the curve gets wrong."""
    grid = modes.grid(MANY_CORES)
    truth = np.array([1e9 / m["cpu_hz"] * (0.05 + 0.95 / min(m["cpu_cores"], 6)) for m in MANY_CORES])
    seen = of(truth, [0, 3, 5, 7, 10, 13, 17, 20, 23])
    found, _ = surfaces.fit(roofline_modes.seconds(grid, min(seen.values())), seen)
    assert np.abs(np.exp(found.value) / truth - 1).mean() < 0.02  # 0.023 if all cores were taken to help


CLOCKS = [{"gpu_hz": g * 1e8} for g in range(1, 14)]


def test_the_clock_below_which_the_voltage_stays_is_found():
    grid, share = modes.grid(CLOCKS), np.arange(1, 14) / 13
    volts = 0.6 + 0.4 * np.maximum(0, (share - 0.5) / 0.5)
    truth, seconds = 3 + 20 * share * volts**2, -np.log(share)
    seen = {i: float(np.log(truth[i])) for i in (0, 3, 5, 7, 9, 12)}
    found, _ = surfaces.fit(roofline_modes.watts(grid, seconds, float(np.log(10))), seen)
    assert np.abs(np.exp(found.value) / truth - 1).max() < 0.03


BATCHES = [{"gpu_hz": g, "batch": b} for g in GPU for b in (1, 2, 4, 8, 16, 32, 64, 128)]


@pytest.mark.parametrize(("weights", "spilled"), [(8.0, 0.0), (0.0, 0.004), (8.0, 0.004)])
def test_what_a_query_costs_whatever_its_batch_and_a_large_one_beyond_the_caches_is_found(weights, spilled):
    grid = modes.grid(BATCHES)
    work = np.array([1 + weights / m["batch"] + spilled * m["batch"] for m in BATCHES])
    truth = work * np.array([1e6 / m["gpu_hz"] for m in BATCHES])
    seen = [i for i, m in enumerate(BATCHES) if m["batch"] in (2, 16, 128) or m == BATCHES[0]]
    guess = surface(grid).fit(of(truth, seen))
    rest = [i for i in range(len(BATCHES)) if i not in seen]
    assert np.abs(guess.value / truth - 1)[rest].max() < 0.12


TRAINING = [
    {"cpu_cores": c, "workers": w, "batch": b} for c in (1, 2, 4, 8) for w in (0, 1, 2, 4) for b in (16, 64)
]


def trained(mode):
    """Return (seconds, loading, device) of a sample: one core is shared by all, workers load ahead of the device."""
    loading, device = 60e-6 + 300e-6 / mode["batch"], 5e-6 + 2.6e-3 / mode["batch"]
    if mode["workers"] == 0:
        return loading + device, loading, device
    side_by_side = min(mode["workers"], mode["cpu_cores"])
    ahead = (device + 1e-3 / mode["batch"], loading / side_by_side, (loading + device) / mode["cpu_cores"])
    return max(ahead), loading, device


@pytest.mark.slow
def test_the_parts_of_profiled_steps_tell_of_the_others():
    grid, truth = modes.grid(TRAINING), np.array([trained(m)[0] for m in TRAINING])
    parts = {i: roofline_modes.Parts(*trained(m)[1:]) for i, m in enumerate(TRAINING)}
    errors = []
    for known in ({}, parts):
        draws = []
        for seed in range(4):
            rows = [int(i) for i in np.random.default_rng(seed).choice(len(TRAINING), 8, replace=False)]
            profile = Profile(
                {i: [truth[i]] for i in rows}, parts={i: p for i, p in known.items() if i in rows}
            )
            guess = predict(grid, profile, THROUGHPUT, check=False).time.guess
            draws.append(np.mean(np.abs(guess.value / truth - 1)))
        errors.append(np.mean(draws))
    assert errors[1] < min(0.06, 0.7 * errors[0])


def test_an_interval_is_as_wide_as_left_out_modes_lay_apart():
    guess = Guess(np.zeros(3), np.full(3, 0.1))
    for count, rank in ((19, 18), (15, 14.4), (9, 9)):
        gaps = np.random.default_rng(count).permutation(np.arange(1, count + 1)) * 0.01
        found = calibrated(guess, gaps, np.full(count, 0.1))
        assert found.factor == pytest.approx(rank * 0.1)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(10)))
@pytest.mark.slow
def test_the_order_of_the_rows_does_not_matter(order):
    truth, rows = planted(), drawn(10)
    straight, turned = of(truth, rows), of(truth, [rows[i] for i in order])
    for model in (surface(), Linear.over(GRID)):
        assert np.allclose(model.fit(straight).mean, model.fit(turned).mean, atol=1e-4)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12), st.integers(0, 1000))
@pytest.mark.slow
def test_nothing_is_ever_negative_or_infinite(values, seed):
    rows = drawn(len(values), seed)
    seen = {i: float(np.log(v)) for i, v in zip(rows, values, strict=True)}
    for model in (surface(), Linear.over(GRID), Transfer(GRID.axes(), np.log(planted()))):
        guess = model.fit(seen)
        lo, hi = guess.ends()
        assert np.isfinite(guess.value).all() and (guess.value > 0).all()
        assert (lo > 0).all() and (lo <= guess.value).all() and (guess.value <= hi).all()


def test_intervals_widen_away_from_what_was_profiled():
    """The Gaussian process beside the roofline: along one knob from a crowd of profiled modes."""
    line = modes.grid([{"batch": 2**n} for n in range(12)])
    seen = {0: 0.0, 1: -0.3, 2: -0.5}
    sd = surface(line).fit(seen).sd
    assert sd[2] < sd[4] < sd[7] < sd[11]


def test_another_workload_s_surface_helps_where_it_is_alike():
    truth, rows = planted(gpu=3.0), drawn(5)
    other = np.log(planted(gpu=2.6))
    ours, helped = (m.fit(of(truth, rows)) for m in (surface(), Transfer(GRID.axes(), other)))
    error = [np.mean(np.abs(g.value / truth - 1)) for g in (ours, helped)]
    assert error[1] < min(error[0], 0.06)


def test_the_model_that_predicts_left_out_modes_best_counts_most():
    truth, rows = planted(), drawn(12)
    odd = np.random.default_rng(3).normal(0, 1, len(BOARD))
    every = [surface(), Linear.over(GRID), Transfer(GRID.axes(), odd)]
    found = choose(every, of(truth, rows))
    assert found.errors[found.model] < 0.5 * found.errors["linear"]
    alone = next(s for s in every if s.name == found.model).fit(of(truth, rows))
    assert np.mean(np.abs(found.guess.mean - alone.mean)) < 0.05
    assert set(found.left_out) == set(rows)


def test_too_few_modes_say_nothing_of_models():
    found = choose([surface()], of(planted(), drawn(3)))
    assert found.model == "roofline" and found.errors == {}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_ninety_of_a_hundred_intervals_hold(noise):
    inside = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        seen_truth = planted() * np.exp(rng.normal(0, noise, len(BOARD)))
        rows = drawn(14, seed)
        found = choose([surface()], of(seen_truth, rows))
        lo, hi = found.guess.ends()
        rest = np.setdiff1d(np.arange(len(BOARD)), rows)
        inside.append(np.mean((lo[rest] <= seen_truth[rest]) & (seen_truth[rest] <= hi[rest])))
    assert 0.8 <= np.mean(inside) <= 0.995


@pytest.mark.slow
def test_power_follows_the_rate_and_energy_is_their_product():
    seconds = planted()
    power, rows = watts(seconds), drawn(14, 1)
    profile = Profile({i: [seconds[i]] for i in rows}, {i: [power[i]] for i in rows}, "module")
    found = predict(GRID, profile, THROUGHPUT, epoch_samples=100)
    assert not isinstance(found.power, Absent)
    assert np.mean(np.abs(found.power.guess.value / power - 1)) < 0.04
    row = found.rows[7]
    joules, time = row["energy_per_sample_j"], row["throughput_sps"]
    assert (
        isinstance(joules, Measured) and isinstance(time, Measured) and isinstance(row["power_w"], Measured)
    )
    assert joules.value == pytest.approx(row["power_w"].value / time.value)
    assert row["epoch_j"].value == pytest.approx(100 * joules.value)
    assert row["epoch_s"].value == pytest.approx(100 / time.value)


@pytest.mark.slow
def test_the_pick_keeps_its_constraint_with_its_whole_interval():
    seconds = planted()
    power, rows = watts(seconds), drawn(14, 1)
    profile = Profile({i: [seconds[i]] for i in rows}, {i: [power[i]] for i in rows})
    found = predict(GRID, profile, wanted("throughput", ["power<=12W"]))
    assert found.pick is not None and found.pick["power_w"].hi <= 12
    assert predict(GRID, profile, wanted("throughput", ["power<=1W"])).pick is None
    front = [(r["throughput_sps"].value, r["power_w"].value) for r in found.front]
    assert all(a[0] > b[0] and a[1] > b[1] for a, b in itertools.pairwise(front))


def test_the_number_of_loaders_matters_until_the_device_is_the_slower():
    """workers = 0 adds loading to the step; from one on it hides behind it."""
    rows = [
        {"workers": w, "batch": b, "cpu_cores": c} for w in (0, 1, 2, 4) for b in (16, 64) for c in (1, 2, 4)
    ]
    load, step = 3e-3, 2e-3
    truth = np.array(
        [
            load + step + 1e-3 / r["batch"]
            if r["workers"] == 0
            else max(load / min(r["workers"], r["cpu_cores"]), step)
            for r in rows
        ]
    )
    grid = modes.grid(rows)
    picked = list(range(0, 24, 2))
    guess = surface(grid).fit({i: float(np.log(truth[i])) for i in picked})
    assert np.mean(np.abs(guess.value / truth - 1)) < 0.12


# -- hostile input ------------------------------------------------------------------------------------------


def test_one_mode_alone_can_be_profiled_and_predicted():
    grid = modes.grid([{"batch": 4}])
    found = predict(grid, Profile({0: [0.01]}), THROUGHPUT)
    assert found.rows[0]["throughput_sps"].value == pytest.approx(100, rel=0.05)
    assert found.rows[0].name == "the only mode" and len(found.front) == 1


def test_without_a_meter_power_is_unsupported_with_a_reason():
    found = predict(GRID, Profile({3: [0.1], 5: [0.2]}), wanted("energy"))
    assert isinstance(found.power, Absent) and found.power.reason.startswith("unsupported: ")
    assert found.rows[0]["energy_per_sample_j"] is found.power and found.pick is None
    assert isinstance(found.rows[0]["epoch_s"], Absent)


@pytest.mark.slow
def test_a_meter_for_some_modes_is_used_for_those():
    seconds = planted()
    power, rows = watts(seconds), drawn(14, 1)
    profile = Profile({i: [seconds[i]] for i in rows}, {i: [power[i]] for i in rows[:9]})
    found = predict(GRID, profile, THROUGHPUT)
    assert not isinstance(found.power, Absent) and np.isfinite(found.power.guess.mean).all()


@pytest.mark.parametrize("figure", [0.0, -1.0, float("nan"), float("inf")])
def test_a_figure_that_cannot_be_one_is_refused(figure):
    with pytest.raises(UsageError, match="E-PRED-4"):
        Profile({0: [figure]})
    with pytest.raises(UsageError, match="E-PRED-4"):
        Profile({0: [1.0]}, {0: [figure]})


def test_equal_modes_no_modes_and_numbers_that_are_none_are_refused():
    with pytest.raises(UsageError, match="E-PRED-3"):
        modes.grid([{"batch": 1}, {"batch": 1}])
    with pytest.raises(UsageError, match="E-PRED-1"):
        modes.grid([])
    with pytest.raises(UsageError, match="E-PRED-2"):
        modes.grid([{"batch": 1.0}, {"batch": float("nan")}])
    with pytest.raises(UsageError, match="E-PRED-5"):
        predict(GRID, Profile({}), THROUGHPUT)


def test_a_constant_knob_is_no_axis_and_stays_in_the_row():
    grid = modes.grid([{"batch": b, "cpu_hz": 1e9} for b in (1, 2, 4)])
    assert list(grid.knobs) == ["batch"] and grid.row(1) == {"batch": 2, "cpu_hz": 1e9}
    found = predict(grid, Profile({0: [0.1], 2: [0.05]}), THROUGHPUT)
    assert np.isfinite(found.time.guess.mean).all()


def test_several_runs_of_one_mode_count_together():
    one = predict(GRID, Profile({0: [0.1, 0.4], 9: [0.1]}), THROUGHPUT)
    same = predict(GRID, Profile({0: [0.2], 9: [0.1]}), THROUGHPUT)
    assert np.allclose(one.time.guess.mean, same.time.guess.mean)


def test_the_plane_is_that_of_least_squares_and_never_less_than_a_tenth_of_what_was_seen():
    grid = modes.grid([{"n": n, "w": w} for n, w in ((1, "a"), (2, "a"), (4, "a"), (4, "b"))])
    plane = Linear.over(grid)
    assert plane.columns.tolist() == [[1, 0.25, 0], [1, 0.5, 0], [1, 1, 0], [1, 1, 1]]
    guess = plane.fit({0: math.log(5.0), 1: math.log(1.0)})  # 16 a step of n / 4
    assert guess.value == pytest.approx([5.0, 1.0, 0.1, 0.1]) and guess.sd == pytest.approx([0.01] * 4)
    three = plane.only(np.array([0, 1, 2])).fit({0: 0.0, 1: math.log(2.0), 2: math.log(2.0)})
    fitted = np.polyval(np.polyfit([0.25, 0.5, 1.0], [1.0, 2.0, 2.0], 1), [0.25, 0.5, 1.0])
    left = math.sqrt(((fitted - [1, 2, 2]) ** 2).sum() / (3 - 2))
    assert three.value == pytest.approx(fitted) and three.sd == pytest.approx(0.01 + np.log1p(left / fitted))


def test_a_guess_is_of_values_with_the_interval_that_holds_nine_of_ten():
    guess = Guess(np.log([2.0, 8.0]), np.array([0.0, math.log(2)]), 2.0)
    assert guess.value.tolist() == pytest.approx([2.0, 8.0])
    low, high = guess.ends()
    assert low.tolist() == pytest.approx([2.0, 2.0]) and high.tolist() == pytest.approx([2.0, 32.0])
    usual = Guess(np.zeros(1), np.ones(1)).ends()
    assert math.log(usual[1][0]) == pytest.approx(NormalDist().inv_cdf(0.95), abs=0.01)


def test_left_out_errors_widen_an_interval_by_their_rank_or_by_students_factor():
    guess = Guess(np.zeros(3), np.ones(3))
    many = np.arange(1.0, 20.0)  # nineteen ratios: the rank of 90 % is the eighteenth
    assert calibrated(guess, many, np.ones(19)).factor == pytest.approx(18.0)
    assert calibrated(guess, -2 * many, 2 * np.ones(19)).factor == pytest.approx(18.0)
    nine = calibrated(guess, np.arange(1.0, 10.0), np.ones(9))
    assert nine.factor == pytest.approx(9.0)  # 0.9 x 10 is the last there is
    few = calibrated(guess, np.array([0.5, 1.0]), np.ones(2))
    scale = math.sqrt((0.25 + 1.0 + 4) / 6)
    assert few.factor == pytest.approx(scale * scipy.stats.t.ppf(0.95, 6))
    assert calibrated(guess, np.array([0.1, 9.0]), np.ones(2)).factor == pytest.approx(
        max(9.0, math.sqrt((81.01 + 4) / 6) * scipy.stats.t.ppf(0.95, 6))
    )
