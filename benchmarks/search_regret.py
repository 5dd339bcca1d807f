"""How far from the best a search ends, replayed on grids that were measured whole.

python benchmarks/search_regret.py replay cpu A [B] [--seeds 20]       A, B: stores, or files of `write_grid`
python benchmarks/search_regret.py write_grid STORE NAME [--study FILE] [--machine ID]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import facts
import numpy as np
from facts import publish

from edgescope.analysis.cells.concurrency import axes as grid_axes
from edgescope.analysis.cells.concurrency import setup
from edgescope.analysis.cells.objective import Wanted, wanted
from edgescope.analysis.run.usage import GPU, HOST
from edgescope.models import zoo
from edgescope.records import Field, Measured, Result, Status, Trial
from edgescope.search.gp import axes as regret_axes
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.recommend.bayes import Search

METRICS = (
    "throughput_sps",
    "latency_p50_s",
    "latency_p95_s",
    "latency_p99_s",
    "latency_p99_bound_s",
    "power_w",
    "energy_per_sample_j",
    "counter_gap_queries",
    "start_skew_s",
)
AIMED_AT = {"model": "resnet50", "precision": "fp16", "batch": 1, "processes": 8}
TIMES = 3.0
"""Throughput through MPS over that of time slicing which is aimed at, at the cell above."""


@dataclass(frozen=True)
class Cell:
    """One cell of a measured grid; `metrics`: a value a process, in the order of their replicate numbers."""

    trial: Trial
    status: Status
    reason: str
    metrics: dict[str, list[float]]


def write_grid() -> None:
    """A measured grid as one small file: each cell's keys, status, and its figures, a value a process.

        python benchmarks/search_regret.py write_grid STORE NAME [--study FILE] [--machine ID]
        python benchmarks/search_regret.py write_grid STORE --out FILE

    {"cells": [{"trial": {what differs within the grid}, "status": "ok", "reason": "",
                "metrics": {"throughput_sps": [value of each process], "latency_p99_s": [...], "memory_bytes": [...]}}],
     "common": {the keys that all cells share},
     "target": {how much of the study's grid finished, the ratio that is aimed at, and why the target is not met}}

    The target is that of the GPU grid: every cell of the study finished, each that it replicates in a fresh process,
    too, and ResNet50 fp16 batch 1 in 8 processes does 3 times as much through MPS as sliced in time. Without --study
    nothing is claimed.

    search_regret.py replays searches on such files, or on a store itself.
    """
    parser = argparse.ArgumentParser(
        description=facts.text(write_grid), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("name", nargs="?", default=None)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--machine", default="")
    parser.add_argument("--study", type=Path, default=None)
    args = parser.parse_args()
    results = [r for r in Store(args.store).results() if r.machine.id.startswith(args.machine)]
    cells = of_results(results)
    page = packed(cells)
    if args.out:
        args.out.write_text(json.dumps(page) + "\n")
    elif args.name:
        page["target"] = target(cells, args.study)
        met = not page["target"]["not_met"]
        publish(f"concurrent/{args.name}", page, met=met, source=max(results, key=lambda r: r.started_at))
    else:
        parser.error("NAME or --out FILE")


def of_results(results: Sequence[Result]) -> list[Cell]:
    """Return the cells of results of one machine, each metric by rising replicate."""
    if len({r.machine.id for r in results}) > 1:
        raise SystemExit("results of several machines: --machine ID")
    groups: dict[str, list[Result]] = {}
    for r in sorted(results, key=lambda r: (r.trial.replicate, r.started_at)):
        groups.setdefault(r.trial.variant, []).append(r)
    return [_cell(group) for group in groups.values()]


def _cell(group: Sequence[Result]) -> Cell:
    done = [r for r in group if r.status is Status.OK]
    end = done[0] if done else group[-1]
    found = {name: [_value(r, (name,)) for r in done] for name in METRICS}
    found["memory_bytes"] = [_value(r, GPU if r.trial.device == "cuda" else HOST) for r in done]
    metrics = {name: [v for v in values if v is not None] for name, values in found.items()}
    kept = {name: values for name, values in metrics.items() if values}
    return Cell(replace(end.trial, replicate=0), end.status, str(end.reason or "") if not done else "", kept)


def _value(result: Result, names: Sequence[str]) -> float | None:
    found = (result.metrics.get(n) for n in names)
    return next((float(f"{f.value:.6g}") for f in found if isinstance(f, Measured)), None)


def target(cells: Sequence[Cell], path: Path | None) -> dict[str, Any]:
    """Return what of the target is there, and under `not_met` each thing that is not."""
    if path is None:
        return {
            "not_met": ["no study is named (--study FILE), so it is not known how many cells there should be"]
        }
    trials = grid.read(path, zoo.pin).trials
    runs = Counter(grid_axes(t) for t in trials)
    done = {grid_axes(c.trial): c for c in cells if c.status is Status.OK}
    counted = {a: len(c.metrics.get("throughput_sps", ())) for a, c in done.items()}
    lost = sum(max(0, n - counted[a]) for a, n in runs.items() if a in done)
    stale = sum(n > 1 and counted[a] < 2 for a, n in runs.items() if a in done)
    other = sorted({setup(c.trial) for c in cells} - {setup(t) for t in trials})
    ratio = mps_over_slicing(list(done.values()))
    finished = sum(a in done for a in runs)
    problems = {
        f"{len(runs) - finished} of {len(runs)} cells did not finish": finished < len(runs),
        f"{stale} cells to be replicated have no fresh process": stale > 0,
        f"measured as {'; '.join(other)}, which is not the study's setup": bool(other),
        f"MPS over time slicing is {ratio}, not {TIMES:g}": ratio is None or ratio < TIMES,
    }
    return {
        "study": path.name,
        "cells_asked": len(runs),
        "cells_finished": finished,
        "replicates_missing": lost,
        "mps_over_time_slicing": ratio,
        "not_met": [words for words, so in problems.items() if so],
    }


def mps_over_slicing(cells: Sequence[Cell]) -> float | None:
    """Return the ratio of total throughputs at the cell AIMED_AT, means over processes; None without both cells."""
    there = [c for c in cells if all(getattr(c.trial, k) == v for k, v in AIMED_AT.items())]
    found = {c.trial.sharing: c.metrics["throughput_sps"] for c in there if c.metrics.get("throughput_sps")}
    if not {"mps", "time_slicing"} <= found.keys():
        return None
    return float(f"{mean(found['mps']) / mean(found['time_slicing']):.4g}")


def packed(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the cells as plain values, what all share apart."""
    trials = [c.trial.to_json() for c in cells]
    common = {k: v for k, v in trials[0].items() if all(t[k] == v for t in trials)} if trials else {}
    rows = [
        {
            "trial": {k: v for k, v in t.items() if k not in common},
            "status": c.status.value,
            "reason": c.reason,
            "metrics": c.metrics,
        }
        for c, t in zip(cells, trials, strict=True)
    ]
    return {"cells": rows, "common": common}


def unpacked(page: dict[str, Any]) -> list[Cell]:
    """Return the cells of a packed grid; of a published one its figures are read."""
    page = page.get("figures", page)
    return [
        Cell(
            Trial.from_json(page["common"] | row["trial"]),
            Status(row["status"]),
            row["reason"],
            {name: list(values) for name, values in row["metrics"].items()},
        )
        for row in page["cells"]
    ]


def read(path: Path | str) -> list[Cell]:
    """Return the cells of a packed grid, a published one (concurrent/gpu) or a file, or of a store."""
    if Path(path).is_dir():
        return of_results(list(Store(path).results()))
    return unpacked(facts.loaded(path))


SHARE = 0.10
#: Cells that the verb measures at least: what a model's own small grid gets here.
LEAST = 6
MEDIAN, WORST = 0.02, 0.05
COLUMNS = {
    "throughput_sps": ("throughput_sps", "samples/s"),
    "p50_s": ("latency_p50_s", "s"),
    "p95_s": ("latency_p95_s", "s"),
    "p99_s": ("latency_p99_s", "s"),
    "power_w": ("power_w", "W"),
    "energy_per_sample_j": ("energy_per_sample_j", "J"),
    "peak_rss_bytes": ("memory_bytes", "bytes"),
}
#: The figures of one cell, from one process or the mean of several.
Row = dict[str, Field]


@dataclass(frozen=True)
class Replay:
    """One question on one grid: cells, what a search sees of each, and what scores it."""

    trials: tuple[Trial, ...]
    seen: tuple[Cell, ...]
    fresh: tuple[Row, ...]
    asked: Wanted
    macs: Mapping[str, float]
    cores: int
    least: int = 1
    once: frozenset[int] = frozenset()
    """Cells that were measured once: scored on what was seen of them."""

    @property
    def budget(self) -> int:
        """A tenth of the cells, rounded down, and at least `least`."""
        return max(self.least, math.floor(SHARE * len(self.trials)))

    def row(self, cell: int, seed: int) -> Row | None:
        """Return what measuring a cell shows: one process of A, which one the seed says; None where it failed."""
        found = self.seen[cell]
        if found.status is not Status.OK:
            return None
        count = len(found.metrics["throughput_sps"])
        return _row(found, seed % count)

    def cost(self, row: Row) -> float:
        """Return the log of the objective as something to be made small."""
        goal = self.asked.goal
        value = row.get(goal.name)
        if not isinstance(value, Measured):
            return math.inf
        return math.log(value.value) * (-1 if goal.higher else 1)

    def regret(self, pick: int | None) -> float:
        """Return by which share the pick is worse than the best, by the fresh means; 1 at most, and without a pick."""
        if pick is None:
            return 1.0
        able = [self.cost(r) for r in self.fresh if not self.asked.broken(r)]
        lost = -math.expm1(min(able) - self.cost(self.fresh[pick]))
        excess = max((c.excess(self.fresh[pick]) - 1 for c in self.asked.constraints), default=0.0)
        return min(1.0, max(lost, excess, 0.0)) + 0.0  # no -0.0

    def nearest_once(self) -> float | None:
        """Return the objective of the best cell measured once as a share of the best; None where there is none."""
        able = {i: self.cost(r) for i, r in enumerate(self.fresh) if not self.asked.broken(r)}
        there = [cost for i, cost in able.items() if i in self.once]
        return math.exp(min(able.values()) - min(there)) if there else None

    def best_of(self, cells: Sequence[int], seed: int) -> int | None:
        """Return the best of these cells by A that keeps the constraints in it."""
        rows = {i: self.row(i, seed) for i in cells}
        able = {i: r for i, r in rows.items() if r is not None and not self.asked.broken(r)}
        return min(able, key=lambda i: self.cost(able[i])) if able else None


def _row(cell: Cell, number: int | None = None) -> Row:
    """Return one process's figures, or the means of all."""
    fields: dict[str, Field] = {}
    for column, (name, unit) in COLUMNS.items():
        values = cell.metrics.get(name, [])
        if values:
            value = float(np.mean(values)) if number is None else values[min(number, len(values) - 1)]
            fields[column] = Measured(value, unit)
    return fields


def replay() -> None:
    """How good the search's pick is after a tenth of a grid, replayed on cells that were all measured, twice.

    The search is shown the first measurement in grid A of each cell it asks for; its pick is scored on the means of
    the other processes in A and of those in B, which no search has seen. Regret is how much worse the pick's mean
    there is than that of the best cell that keeps the constraints; a pick that breaks one has at least the share by
    which it breaks it. Beside it, with as many cells: cells drawn at random, greedy coordinate search (all levels of
    one axis, then of the next), and all of A (what measuring everything once would have picked: the noise that no
    search can beat), and Optuna's TPE sampler where it is installed. Constraints are judged on values here, not on
    bounds: this measures the search; searches.py promises measures the bounds. A limit on p99 or memory lies in the
    widest gap of the middle of the grid's values, so that noise does not decide which cells it allows.

    Target: over 20 seeds regret of at most 2 % in the median and 5 % at worst in every question, after at most 10 %
    of the cells. Each question says whether all of A reaches that: where it does not, noise decides, and no search
    can. Questions about one model alone are shown beside it, with a tenth of that model's cells, at least the 6 that
    the verb takes.

        python benchmarks/search_regret.py replay cpu A [B] [--seeds 20]       A, B: stores, or files of `write_grid`

    B may hold a part of the grid. A cell measured once is then scored on what was seen of it, which is no evidence:
    the figures count the picks that are such cells, and say how near to the best the best of them comes. Neither may
    decide.
    """
    parser = argparse.ArgumentParser(
        description=facts.text(replay), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="cpu or gpu: of the run in published/search_regret.json")
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path, nargs="?", default=None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of the grid's machine")
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    a, b = halves(read(args.a), read(args.b) if args.b else ())
    found = figures(a, b, args.seeds, args.cores)
    if args.smoke:
        print(found)
    else:
        publish(f"search_regret/{args.name}", found, met=met(found), source=newest(args.a))


def newest(path: Path) -> Result | None:
    """Return the newest result of a store, whose machine the grid is of; None of a file."""
    return max(Store(path).results(), key=lambda r: r.started_at, default=None) if path.is_dir() else None


def halves(cells: Sequence[Cell], more: Sequence[Cell] = ()) -> tuple[list[Cell], list[Cell]]:
    """Return the cells with the first process of each alone, and with all others, those of `more` too."""
    others = {c.trial.variant: c for c in more}
    first = [replace(c, metrics={n: values[:1] for n, values in c.metrics.items()}) for c in cells]
    return first, [_rest(c, others.get(c.trial.variant)) for c in cells]


def _rest(cell: Cell, other: Cell | None) -> Cell:
    """Return the cell with its processes but the first, and those of the other; without any where either failed."""
    failed = next((c for c in (cell, other) if c and c.status is not Status.OK), None)
    if failed:
        return replace(failed, metrics={})
    more = other.metrics if other else {}
    return replace(cell, metrics={n: [*v[1:], *more.get(n, ())] for n, v in cell.metrics.items()})


def met(found: dict[str, Any]) -> bool:
    """Return whether every question over the whole grid reaches the target."""
    return bool(found["questions"]) and all(q["met"] for q in found["questions"])


def judged(question: dict[str, Any]) -> dict[str, bool]:
    """Return whether a question reaches the target on fresh measurements, and whether all of A would.

    Where measuring every cell once does not, the noise between two measurements is larger than the target, and no
    search of A can be expected to reach it.
    """
    search, every = question["search"], question["all_of_a"]
    fresh = not search["picks_measured_once"] and (question["best_measured_once"] or 0.0) < 1 - WORST
    return {
        "met": fresh and search["median"] <= MEDIAN and search["worst"] <= WORST,
        "all_of_a_meets_it": every["median"] <= MEDIAN and every["worst"] <= WORST,
    }


def figures(a: Sequence[Cell], b: Sequence[Cell], seeds: int, cores: int) -> dict[str, Any]:
    """Return the regrets of every question on the whole grid, and on each model alone where there are several."""
    whole = [scored(r, seeds) for r in questions(a, b, cores)]
    names = list(dict.fromkeys(c.trial.model for c in a))
    alone = [
        {"model": name.partition("#")[0]} | scored(replace(replay, least=LEAST), seeds)
        for name in names
        if len(names) > 1
        for replay in questions(*([c for c in side if c.trial.model == name] for side in (a, b)), cores)
    ]
    return {
        "seeds": seeds,
        "between_a_and_b": spread(a, b),
        "questions": whole,
        "each_model_alone": alone,
    }


def spread(a: Sequence[Cell], b: Sequence[Cell]) -> dict[str, float]:
    """Return how far A and B are apart: the quantiles of |ratio of throughputs - 1| over the cells."""
    other = {c.trial.variant: c for c in b}
    pairs = [(c, other[c.trial.variant]) for c in a if c.trial.variant in other]
    ratios = [
        abs(x.metrics["throughput_sps"][0] / float(np.mean(y.metrics["throughput_sps"])) - 1)
        for x, y in pairs
        if x.status is y.status is Status.OK and y.metrics["throughput_sps"]
    ]
    return {f"p{round(100 * q)}": round(float(np.quantile(ratios, q)), 4) for q in (0.5, 0.9, 1.0)}


def questions(a: Sequence[Cell], b: Sequence[Cell], cores: int) -> list[Replay]:
    """Return what is asked of a grid: cells that both sides hold, objectives and constraints that both measured."""
    other = {c.trial.variant: c for c in b}
    cells = [c for c in a if c.trial.variant in other]
    mates = [other[c.trial.variant] for c in cells]
    once = frozenset(
        i for i, c in enumerate(mates) if c.status is Status.OK and not c.metrics["throughput_sps"]
    )
    fresh = [
        _row(cells[i] if i in once else c) if c.status is Status.OK else Row() for i, c in enumerate(mates)
    ]
    known = [r for r in fresh if isinstance(r.get("throughput_sps"), Measured)]
    asked = [wanted("throughput")]
    asked += [wanted("throughput", [text]) for text in (_limit(known, "p99_s", "p99", "ms", 1e3),) if text]
    asked += [
        wanted("throughput", [text])
        for text in (_limit(known, "peak_rss_bytes", "memory", "MB", 1e-6),)
        if text
    ]
    if sum(isinstance(r.get("energy_per_sample_j"), Measured) for r in fresh) == len(known):
        asked.append(wanted("energy"))
    trials = tuple(c.trial for c in cells)
    macs = {t.model: zoo.table().get(t.model.partition("#")[0], {}).get("macs") for t in trials}
    sizes = {name: float(n) for name, n in macs.items() if n}
    return [Replay(trials, tuple(cells), tuple(fresh), q, sizes, cores, once=once) for q in asked]


def _limit(rows: Sequence[Row], column: str, word: str, unit: str, factor: float) -> str:
    """Return a bound in the widest gap of the middle of a column's values; '' where it is not measured."""
    found = [r.get(column) for r in rows]
    logs = np.log(sorted(f.value for f in found if isinstance(f, Measured) and f.value > 0))
    if len(logs) < 0.9 * len(rows) or len(logs) < 10:
        return ""
    middle = logs[int(0.3 * len(logs)) : int(0.7 * len(logs))]
    at = int(np.argmax(np.diff(middle)))
    return f"{word}<={math.exp((middle[at] + middle[at + 1]) / 2) * factor:.4g}{unit}"


def scored(replay: Replay, seeds: int) -> dict[str, Any]:
    """Return the regrets of the search, and of the others with as many cells, over the seeds."""
    rivals: dict[str, Callable[[Replay, int], tuple[int | None, int]]] = {
        "search": by_search,
        "random": by_chance,
        "greedy_coordinate": by_coordinates,
        "all_of_a": lambda r, seed: (r.best_of(range(len(r.trials)), seed), len(r.trials)),
    }
    if importlib.util.find_spec("optuna"):
        rivals["optuna_tpe"] = by_optuna
    out: dict[str, Any] = {
        "objective": replay.asked.objective,
        "constraints": [c.text for c in replay.asked.constraints],
        "cells": len(replay.trials),
        "allowed": sum(not replay.asked.broken(r) for r in replay.fresh),
        "budget": replay.budget,
        "cells_measured_once": len(replay.once),
        "best_measured_once": replay.nearest_once(),
    }
    for name, rival in rivals.items():
        picks = [rival(replay, seed) for seed in range(seeds)]
        regrets = [replay.regret(pick) for pick, _ in picks]
        out[name] = {
            "median": round(float(np.median(regrets)), 4),
            "worst": round(max(regrets), 4),
            "regrets": [round(x, 4) for x in regrets],
            "cells_measured": max(count for _, count in picks),
            "no_pick": sum(pick is None for pick, _ in picks),
            "picks_measured_once": sum(pick in replay.once for pick, _ in picks),
        }
    return out | judged(out)


def by_search(replay: Replay, seed: int) -> tuple[int | None, int]:
    """Return the search's pick and how many cells it measured."""
    search = Search(replay.trials, replay.asked, seed=seed, macs=replay.macs, cores=replay.cores)
    while len(search.rows) < replay.budget:
        cell = search.suggest(replay.budget)
        if cell is None:
            break
        row = replay.row(cell, seed)
        if row is None:
            search.fail(cell, replay.seen[cell].status)
        else:
            search.tell(cell, row)
    return search.pick(), len(search.rows)


def by_chance(replay: Replay, seed: int) -> tuple[int | None, int]:
    """Return the best of cells drawn at random."""
    drawn = random.Random(seed).sample(range(len(replay.trials)), replay.budget)
    return replay.best_of(drawn, seed), len(drawn)


def by_coordinates(replay: Replay, seed: int) -> tuple[int | None, int]:
    """Return what greedy coordinate search finds: every level of one axis, the best stays, then the next axis."""
    rng, grid = random.Random(seed), regret_axes(replay.trials)
    seen: dict[int, None] = {}
    while len(seen) < replay.budget:
        here: int | None = rng.choice([i for i in range(len(replay.trials)) if i not in seen])
        while here is not None and len(seen) < replay.budget:
            start = here
            for axis in rng.sample(grid, len(grid)):
                others = [a for a in grid if a is not axis]
                line = [i for i in range(len(replay.trials)) if all(a.at[i] == a.at[here] for a in others)]
                fresh = [i for i in line if i not in seen][: replay.budget - len(seen)]
                seen |= dict.fromkeys(fresh)
                here = replay.best_of([i for i in line if i in seen], seed)
                if here is None:  # nothing on this line may be used: start anywhere else
                    break
            if here == start:
                break
    return replay.best_of(list(seen), seed), len(seen)


def by_optuna(replay: Replay, seed: int) -> tuple[int | None, int]:
    """Return what Optuna's TPE sampler finds, constraints given as it takes them; cells asked for twice are free."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    grid, asked = regret_axes(replay.trials), replay.asked.constraints
    place = {tuple(float(a.at[i]) for a in grid): i for i in range(len(replay.trials))}
    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=replay.budget // 2, constraints_func=lambda t: t.user_attrs["excess"]
    )
    study, seen = optuna.create_study(sampler=sampler), dict[int, None]()
    for _ in range(50 * replay.budget):
        trial = study.ask()
        levels = [sorted({float(x) for x in a.at}) for a in grid]
        at = tuple(float(trial.suggest_categorical(a.name, ls)) for a, ls in zip(grid, levels, strict=True))
        cell = place.get(at)
        row = None if cell is None else replay.row(cell, seed)
        excess = [c.excess(row) - 1 for c in asked] if row is not None else [1.0 for _ in asked]
        trial.set_user_attr("excess", excess or [0.0])
        if row is None or math.isinf(replay.cost(row)):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, replay.cost(row))
        if cell is not None:
            seen[cell] = None
        if len(seen) >= replay.budget:
            break
    return replay.best_of(list(seen), seed), len(seen)


if __name__ == "__main__":
    facts.chosen(write_grid, replay)
