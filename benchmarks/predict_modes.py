"""How well `edgescope predict` predicts all other modes from 15 or fewer profiled ones, beside other models on
the same splits.

Real grids: published/training_modes.json (training on resource modes), and the concurrency grids of
published/ (inference: batch x processes x sharing x precision, with watts on the GPU). For each workload, 20
random draws of modes are profiled, and all the others are the test. Beside the chosen model stand the linear
regression of the knobs (the study's), PowerTrain's network built to its description, from these modes alone
and transferred from another workload of the same grid, and our own transfer from that workload.

    figures  mean absolute percentage error over the test modes of a draw, mean over the draws; share of test
    modes within the 90 % interval

The simulated board (simulated_board.py; its figures are SIMULATED) has 4,368 modes: there the predictor
chooses its 15 modes, and answers "fastest under a power cap" with the modes that confirm its pick.

    python benchmarks/predict_modes.py                            real grids, publishes predict_modes.json
    python benchmarks/predict_modes.py --simulated                publishes predict_modes_simulated.json
    python benchmarks/predict_modes.py --smoke --draws 2 --grids concurrent_gpu

Targets: time within 8 %, power or energy within 5 %, 85 to 95 % of the intervals hold, better than linear and
than PowerTrain's network; on the simulated board time within 5 %, the pick within 3 % of the best and at most
2 % above the cap.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import facts
import numpy as np
import search_regret
import simulated_board
from facts import commit, publish

from edgescope.analysis.cells.objective import wanted
from edgescope.records import Absent, Scalar
from edgescope.wings.predict import modes
from edgescope.wings.predict.modes import Floats, ModeGrid, Profile
from edgescope.wings.predict.prediction import joined, predict
from edgescope.wings.predict.profiling import PICKED_AT_MOST, Profiling
from edgescope.wings.predict.roofline_modes import Parts
from edgescope.wings.predict.surfaces import Guess, Linear

PROFILED = 15
#: Workloads with fewer modes are left out: too few would be left to test on.
LEAST = 20
TIME, POWER, COVERED = 0.08, 0.05, (0.85, 0.95)
SIMULATED_TIME, WITHIN, OVER = 0.05, 0.03, 0.02


@dataclass(frozen=True)
class World:
    """One workload whose modes were all measured."""

    name: str
    rows: tuple[Mapping[str, Scalar | None], ...]
    seconds: Floats
    """Of one sample, by mode."""
    watts: Floats | None
    parts: Mapping[int, Parts] = field(default_factory=dict)
    """What the time of a mode of training consists of, where it was measured."""
    noise: Mapping[str, Any] = field(default_factory=dict)
    """How far two rounds of a mode lie apart, where there were rounds."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--grids", nargs="*", default=None, help="NAME/RUN in published/, or files")
    parser.add_argument("--jobs", type=int, default=1, help="workloads at once, a process each")
    parser.add_argument("--simulated", action="store_true", help="the simulated board alone")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="start no further workload after this long"
    )
    parser.add_argument(
        "--json", type=Path, default=None, help="file to write as it goes, instead of publishing"
    )
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    start = time.monotonic()
    figures: dict[str, Any] = {"simulated": args.simulated, "draws": args.draws, "profiled": PROFILED}
    jobs = simulated_jobs(args.draws) if args.simulated else real_jobs(args.grids, args.draws)
    found: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        running = [(name, pool.submit(tried, job, start + args.seconds)) for name, job in jobs]
        for name, job in running:
            found.append({"name": name} | job.result())
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
            if args.json:
                args.json.write_text(
                    json.dumps(figures | {"workloads": found, "commit": commit()}, indent=1) + "\n"
                )
    figures["workloads"] = found
    met = bool(found) and all(f.get("met", False) for f in found)
    if args.smoke or args.json:
        print(json.dumps({"met": met} | figures, indent=1))
    else:
        publish(f"predict_modes/{named(args)}", figures, met=met)


def named(args: argparse.Namespace) -> str:
    """Return the name of the run: that of its only grid, if it has one."""
    grids = args.grids or ()
    return "simulated" if args.simulated else Path(grids[0]).name if len(grids) == 1 else "all"


def tried(job: Callable[[], dict[str, Any]], until: float) -> dict[str, Any]:
    """Return what a job found, or why it did not; one grid's failure does not lose the others."""
    if time.monotonic() > until:
        return {"absent": "not reached in time"}
    try:
        return job()
    except Exception as error:
        return {"absent": f"{type(error).__name__}: {error}"}


# -- real grids ---------------------------------------------------------------------------------------------


def real_jobs(names: Sequence[str] | None, draws: int) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    """Return a job for each workload of each grid."""
    usual = [f"training_modes/{run}" for run in facts.published("training_modes")["runs"]]
    files = names or [*usual, "concurrent/gpu", "concurrent/cpu_first"]
    out: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    for stem in files:
        found = worlds(stem)
        for i, world in enumerate(found):
            others = [w for w in found if w is not world and w.rows == world.rows]
            reference = others[i % len(others)] if others else None
            out.append((f"{stem} {world.name}", partial(validated, world, reference, draws)))
    return out


def worlds(path: Path | str) -> list[World]:
    """Return the workloads of a published grid that have enough modes."""
    page = facts.loaded(path)
    page = page.get("figures", page)
    found = _of_cells(path) if "cells" in page else _of_rows(page)
    return [w for w in found if len(w.rows) >= LEAST]


def _of_cells(path: Path | str) -> list[World]:
    cells = [c for c in search_regret.read(path) if c.metrics.get("throughput_sps")]
    groups: dict[str, list[search_regret.Cell]] = {}
    for c in cells:
        groups.setdefault(c.trial.model.partition("#")[0], []).append(c)
    out = []
    for name, group in groups.items():
        group.sort(key=lambda c: c.trial.label)
        rows = modes.of_trials([c.trial for c in group], {}, 1)
        seconds = np.array([1 / float(np.mean(c.metrics["throughput_sps"])) for c in group])
        metered = all("power_w" in c.metrics for c in group)
        watts = np.array([float(np.mean(c.metrics["power_w"])) for c in group]) if metered else None
        own = [{k: v for k, v in row.items() if k != "model"} for row in rows]
        out.append(World(name, tuple(own), seconds, watts))
    return out


def _of_rows(page: Mapping[str, Any]) -> list[World]:
    """Return the workloads of the rows of training_modes.py; modes that failed are left out."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in page["rows"]:
        if row.get("step_s"):
            groups.setdefault(str(row["workload"]), []).append(row)
    out = []
    for name, rows in groups.items():
        rows.sort(key=lambda row: [row.get(k) or 0 for k in ("cpus", "workers", "batch", "sm_share")])
        knobs = [_knobs(row) for row in rows]
        watts = [row.get("power_w") for row in rows]
        seconds = np.array([row["step_s"] / row["batch"] for row in rows])
        metered = None if None in watts else np.array(watts, dtype=float)
        parts = {i: found for i, row in enumerate(rows) if (found := _parts(row)) is not None}
        noise = page.get("noise", {}).get(name, {})
        out.append(World(name, tuple(knobs), seconds, metered, parts, noise))
    return out


def _parts(row: Mapping[str, Any]) -> Parts | None:
    """Return what a sample of a mode took by its parts; None if the loader's time was not measured."""
    fetch = row.get("parts_s", row).get("fetch_s" if "fetch_s" in row else "fetch")
    load = row.get("load_s") or (fetch if row["workers"] == 0 else None)
    if not load or not 0 < fetch < row["step_s"]:
        return None
    device = row["step_s"] - fetch
    return Parts(load / row["batch"], device / row["batch"])


def _knobs(row: Mapping[str, Any]) -> dict[str, Scalar | None]:
    share = row.get("sm_share")
    own = {"cpu_cores": row["cpus"], "workers": row["workers"], "batch": row["batch"]}
    return own | ({} if share is None else {"gpu_sm_share": share / 100})


def validated(world: World, reference: World | None, draws: int) -> dict[str, Any]:
    """Return the errors and coverages of every model over random draws of profiled modes."""
    grid = modes.grid(world.rows)
    count = PROFILED
    errors: dict[str, dict[str, list[float]]] = {}
    covered: dict[str, list[float]] = {}
    for draw in range(draws):
        rows = [int(i) for i in np.random.default_rng(draw).choice(len(grid), count, replace=False)]
        test = np.setdiff1d(np.arange(len(grid)), rows)
        for quantity, guess, truth in chosen(grid, world, rows, None):
            _score(errors, "predict", quantity, guess, truth, test)
            lo, hi = guess.ends()
            inside = float(np.mean((lo[test] <= truth[test]) & (truth[test] <= hi[test])))
            covered.setdefault(quantity, []).append(inside)
        if reference is not None:
            for quantity, guess, truth in chosen(grid, world, rows, reference):
                _score(errors, "predict_like", quantity, guess, truth, test)
        for name, model in rivals(grid, world, reference).items():
            for quantity, values in (("time", world.seconds), ("power", world.watts)):
                if values is not None:
                    guess = model(quantity, {i: float(np.log(values[i])) for i in rows}, draw)
                    _score(errors, name, quantity, guess, values, test)
    return summary(errors, covered, len(grid), count)


def chosen(
    grid: ModeGrid, world: World, rows: Sequence[int], reference: World | None
) -> list[tuple[str, Guess, Floats]]:
    """Return (quantity, guess, truth) of the predictor from the profiled modes `rows`."""
    watts = world.watts
    profile = Profile(
        {i: [float(world.seconds[i])] for i in rows},
        {} if watts is None else {i: [float(watts[i])] for i in rows},
        parts={i: world.parts[i] for i in rows if i in world.parts},
    )
    like = None
    if reference is not None:
        like = np.log(reference.seconds), None if reference.watts is None else np.log(reference.watts)
    found = predict(grid, profile, wanted("throughput"), like=like)
    out = [("time", found.time.guess, world.seconds)]
    if watts is not None and not isinstance(found.power, Absent):
        energy = joined(found.time, found.power)
        out += [("power", found.power.guess, watts), ("energy", energy, watts * world.seconds)]
    return out


def _score(
    errors: dict[str, dict[str, list[float]]],
    name: str,
    quantity: str,
    guess: Guess,
    truth: Floats,
    test: Any,
) -> None:
    error = float(np.mean(np.abs(guess.value[test] / truth[test] - 1)))
    errors.setdefault(name, {}).setdefault(quantity, []).append(error)


def summary(
    errors: Mapping[str, Mapping[str, Sequence[float]]],
    covered: Mapping[str, Sequence[float]],
    count: int,
    known: int,
) -> dict[str, Any]:
    """Return the means over the draws, and whether the targets are met."""
    mean = {name: {q: round(float(np.mean(x)), 4) for q, x in by.items()} for name, by in errors.items()}
    cover = {q: round(float(np.mean(x)), 3) for q, x in covered.items()}
    own = mean["predict"]
    beaten = all(
        own[q] <= by[q] for name, by in mean.items() if not name.startswith("predict") for q in by if q in own
    )
    metered = [own[q] for q in ("power", "energy") if q in own]
    held = all(COVERED[0] <= c <= COVERED[1] for c in cover.values())
    power = min(metered) < POWER if metered else None  # nothing was metered, so nothing is judged
    met = {"time": own["time"] < TIME, "power_or_energy": power, "covered": held, "best": beaten}
    return {
        "modes": count,
        "profiled": known,
        "mape": mean,
        "covered": cover,
        "targets": met,
        "met": False not in met.values(),
    }


# -- the models beside it -----------------------------------------------------------------------------------

Rival = Callable[[str, Mapping[int, float], int], Guess]


def rivals(grid: ModeGrid, world: World, reference: World | None) -> dict[str, Rival]:
    """Return the models that the predictor is compared with."""
    plane = Linear.over(grid)
    out: dict[str, Rival] = {"linear": lambda quantity, seen, seed: plane.fit(seen)}
    columns = plane.columns[:, 1:]
    out["powertrain_network"] = lambda quantity, seen, seed: network(columns, seen, None, seed)
    if reference is not None:
        known = {"time": reference.seconds, "power": reference.watts}
        out["powertrain_transfer"] = lambda quantity, seen, seed: network(
            columns, seen, known[quantity], seed
        )
    return out


def network(columns: Floats, seen: Mapping[int, float], reference: Floats | None, seed: int) -> Guess:
    """Return what a network as PowerTrain describes it predicts (arXiv 2407.13944).

    Inputs standardised, 256-128-64-1 with ReLU and dropout, Adam at 1e-3, 100 epochs, a tenth of the modes
    held out to choose the epoch. With a `reference`, it is trained on all of that workload's modes first; then
    the last layer is new and all is tuned on the profiled ones with a loss of relative errors.
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    x = torch.tensor((columns - columns.mean(0)) / np.maximum(columns.std(0), 1e-9), dtype=torch.float32)
    layers = [
        nn.Linear(x.shape[1], 256),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Dropout(0.1),
    ]
    net = nn.Sequential(*layers, nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def train(rows: Sequence[int], values: Floats, *, relative: bool, batch: int) -> tuple[float, float]:
        scale, shift = float(np.std(values)) or 1.0, float(np.mean(values))
        y = torch.tensor((values - shift) / scale, dtype=torch.float32)[:, None]
        weight = torch.tensor(scale / values if relative else np.ones(len(values)), dtype=torch.float32)[
            :, None
        ]
        held = max(1, len(rows) // 10)
        order = torch.randperm(len(rows))
        own, check = order[held:], order[:held]
        adam = torch.optim.Adam(net.parameters(), lr=1e-3)
        best, kept = float("inf"), {k: v.clone() for k, v in net.state_dict().items()}
        inputs = x[list(rows)]
        for _ in range(100):
            net.train()
            for part in torch.split(own[torch.randperm(len(own))], batch):
                adam.zero_grad()
                loss = (((net(inputs[part]) - y[part]) * weight[part]) ** 2).mean()
                loss.backward()
                adam.step()
            net.eval()
            with torch.no_grad():
                error = float((((net(inputs[check]) - y[check]) * weight[check]) ** 2).mean())
            if error < best:
                best, kept = error, {k: v.clone() for k, v in net.state_dict().items()}
        net.load_state_dict(kept)
        return scale, shift

    if reference is not None:
        train(range(len(columns)), reference, relative=False, batch=16)
        net[-1] = nn.Linear(64, 1)
    rows = list(seen)
    scale, shift = train(rows, np.exp([seen[i] for i in rows]), relative=reference is not None, batch=4)
    net.eval()
    with torch.no_grad():
        found = net(x)[:, 0].numpy().astype(np.float64) * scale + shift
    least = float(np.exp(min(seen.values()))) / 10
    return Guess(np.log(np.maximum(found, least)), np.full(len(found), 0.1))


# -- the simulated board ------------------------------------------------------------------------------------


def simulated_jobs(draws: int) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    """Return a job for each load of the simulated board."""
    return [(f"SIMULATED {name}", partial(simulated, name, draws)) for name in simulated_board.LOADS]


CONFIRMED = 3
CAPS = (12, 16, 20, 25, 30)


def simulated(name: str, draws: int) -> dict[str, Any]:
    """Return the errors after 15 chosen modes, and the pick under each cap: how far from the best, how far
    above the cap.
    """
    every = simulated_board.modes()
    grid = modes.grid(every)
    truth = np.array([simulated_board.truth(simulated_board.LOADS[name], mode) for mode in every])
    errors = [_chosen_modes(grid, name, every, truth, seed) for seed in range(draws)]
    picks = [
        {"cap_w": cap} | _pick(grid, name, every, truth, cap, seed)
        for cap in CAPS
        if 0 < int(np.sum(truth[:, 1] <= cap)) < len(every)
        for seed in range(max(1, draws // 4))
    ]
    mean = {k: round(float(np.mean([e[k] for e in errors])), 4) for k in errors[0]}
    worst = {k: round(max(p[k] for p in picks), 4) for k in ("slower", "over_cap", "modes_measured")}
    met = mean["time"] < SIMULATED_TIME and worst["slower"] <= WITHIN and worst["over_cap"] <= OVER
    worst_time = round(max(e["time"] for e in errors), 4)
    return {
        "modes": len(every),
        "mape": mean,
        "worst_time": worst_time,
        "picks": picks,
        "worst_pick": worst,
        "met": met,
    }


def _chosen_modes(
    grid: ModeGrid, name: str, every: Sequence[Mapping[str, float]], truth: Floats, seed: int
) -> dict[str, float]:
    state = Profiling(grid, wanted("throughput"), seed=seed)
    _profile(state, name, every, seed)
    found = state.prediction()
    test = np.setdiff1d(np.arange(len(grid)), list(state.seconds))
    out = {"time": float(np.mean(np.abs(found.time.guess.value[test] / truth[test, 0] - 1)))}
    runs = np.array([simulated_board.run(name, every[i], 9000 + seed) for i in test[::20]])
    lo, hi = found.time.guess.ends()
    out["time_covered"] = float(np.mean((lo[test[::20]] <= runs[:, 0]) & (runs[:, 0] <= hi[test[::20]])))
    if not isinstance(found.power, Absent):
        out["power"] = float(np.mean(np.abs(found.power.guess.value[test] / truth[test, 1] - 1)))
        lo, hi = found.power.guess.ends()
        out["power_covered"] = float(np.mean((lo[test[::20]] <= runs[:, 1]) & (runs[:, 1] <= hi[test[::20]])))
    return out


def _profile(state: Profiling, name: str, every: Sequence[Mapping[str, float]], seed: int) -> None:
    while len(state.seconds) < PROFILED:
        mode = state.suggest(PROFILED - len(state.seconds))
        assert mode is not None
        state.tell(mode, *simulated_board.run(name, every[mode], seed))


def _pick(
    grid: ModeGrid, name: str, every: Sequence[Mapping[str, float]], truth: Floats, cap: float, seed: int
) -> dict[str, float]:
    """Return how much slower than the best mode under the cap the confirmed pick truly is, and how far above
    the cap.
    """
    state = Profiling(grid, wanted("throughput", [f"power<={cap}W"]), seed=seed)
    _profile(state, name, every, seed)
    for run in range(PICKED_AT_MOST + CONFIRMED):
        mode = state.candidate(state.prediction(check=False), CONFIRMED, PICKED_AT_MOST + CONFIRMED - run)
        if mode is None:
            break
        state.tell(mode, *simulated_board.run(name, every[mode], 1000 * (seed + 1) + run))
    kept = state.confirmed(CONFIRMED)
    kept = state.confirmed(1) if isinstance(kept, Absent) else kept
    assert not isinstance(kept, Absent)
    best = truth[truth[:, 1] <= cap, 0].min()
    seconds, watts = truth[kept.mode]
    out = {"slower": seconds / best - 1, "over_cap": watts / cap - 1}
    return {k: round(float(v), 4) for k, v in out.items()} | {"modes_measured": len(state.seconds)}


if __name__ == "__main__":
    main()
