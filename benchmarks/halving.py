"""What the short schedule of `edgescope optimize` finds, against measuring everything, and at what share of the time.

For each model: the halving schedule in a store of its own, then the exhaustive one (every candidate in every final
round over the full window, those with wrong outputs leaving at once in both), then fresh replicates of both picks,
interleaved, which neither schedule has seen. What both share (exported files, references, the gate's answers) is made
before either is timed. --again runs the exhaustive schedule a second time, under another seed, and scores that pick,
too: what two exhaustive runs differ by, no schedule can be held to on this machine. `least_s` is what the short
schedule spent on each candidate's first run and on the final runs of baseline and pick: no screening does with less.
Target: on those fresh means the pick is within 3 % of the exhaustive one, at 40 % of its time, on every model; a part
of the models is published under another name.

    python benchmarks/halving.py [MODEL ...] [--rounds 5] [--scoring 8] [--duration 2.5] [--again] [--smoke]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from facts import publish

from edgescope.analysis.cells import variants
from edgescope.analysis.cells.replicates import across, by_replicate, of_pairs
from edgescope.bench import here
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.records import Measured, Result, Trial
from edgescope.records.codec import to_plain
from edgescope.runner.isolated import Isolated
from edgescope.runner.run import Cells
from edgescope.search import halving as optimize
from edgescope.search.candidates import installed, propose
from edgescope.search.halving import Rounds
from edgescope.search.loop import Loop
from edgescope.stats import paired_log_ratio
from edgescope.store.results import Store

MODELS = ("efficientnet_lite0", "mobilenet_v2", "squeezenet1_1", "resnet50")
#: Replicates that score the picks are numbered from here, out of reach of either schedule.
FRESH = 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scoring", type=int, default=8)
    parser.add_argument("--duration", type=float, default=2.5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="the exhaustive schedule a second time")
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    rows = [compared(name, args) for name in args.models]
    found = figures(rows)
    if args.smoke:
        print(found)
    else:
        publish(named(args.device, args.models), found, met=met(found))


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows, and the worst model of each target beside the share of time of all models together."""
    times = [(r["halving"]["seconds"], r["exhaustive"]["seconds"]) for r in rows]
    return {
        "models": rows,
        "worst_pick_over_best": max(r["pick_over_best"] for r in rows),
        "share_of_time": sum(t for t, _ in times) / sum(t for _, t in times),
        "worst_share_of_time": max(mine / full for mine, full in times),
    }


def met(found: dict[str, Any]) -> bool:
    """Return whether the targets are reached on every one of MODELS."""
    complete = {r["model"] for r in found["models"]} >= set(MODELS)
    return complete and found["worst_pick_over_best"] <= 1.03 and found["worst_share_of_time"] <= 0.40


def named(device: str, models: Sequence[str]) -> str:
    """Return the name of what is published."""
    return f"halving_{device}" + ("" if set(models) >= set(MODELS) else "_subset")


def compared(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return what both schedules found for one model, what it took, and how the picks do on fresh runs."""
    base = Trial(model=zoo.pin(name), device=args.device, min_s=min(1.0, args.duration), max_s=args.duration)
    trials = propose(base, installed()).trials
    with tempfile.TemporaryDirectory(prefix="edgescope-halving-") as folder:
        warm(trials, cells(Path(folder) / "warm"))
        halving = scheduled(trials, cells(Path(folder) / "halving"), Rounds(args.rounds))
        everything = scheduled(trials, cells(Path(folder) / "all"), Rounds(args.rounds, short=0))
        found = {"halving": halving, "exhaustive": everything}
        if args.again:
            other = Rounds(args.rounds, seed=1, short=0)
            found["exhaustive_again"] = scheduled(trials, cells(Path(folder) / "again"), other)
        picks = [run.pop("trial") for run in found.values()]
        scored = score(picks, cells(Path(folder) / "fresh"), args.scoring)
    return {"model": name, "candidates": len(trials)} | found | scored


def cells(folder: Path) -> Cells:
    return Cells(Store(folder), Limits(), Isolated(), here())


def warm(trials: tuple[Trial, ...], where: Cells) -> None:
    """Make what the cache keeps, so that neither schedule pays for it."""
    for trial in trials:
        where.run(optimize.short(trial, 0))


def scheduled(trials: tuple[Trial, ...], where: Cells, rounds: Rounds) -> dict[str, Any]:
    results, took, begun = [], [], time.monotonic()
    for result in Loop(where, print).run(optimize.halving(trials, rounds=rounds)):
        results.append(result)
        took.append(time.monotonic() - begun - sum(took))
    best = variants.pick(variants.table(results))
    if best.row is None:
        raise SystemExit(best.reason)
    kept = {variants.variant(t) for t in (trials[0], best.row.trial)}
    spent = zip((r.trial for r in results), took, strict=True)
    least = sum(seconds for trial, seconds in spent if needed(trial, kept, trials[0].max_s))
    return {
        "seconds": round(sum(took), 1),
        **({"least_s": round(least, 1)} if rounds.short else {}),
        "runs": len(results),
        "pick": best.row.label,
        "p50_s": to_plain(best.row["p50_s"]),
        "trial": best.row.trial,
    }


def needed(trial: Trial, kept: Collection[str], full_s: float) -> bool:
    """Return whether every screening needs this run: a candidate's first, or a final one of the variants `kept`."""
    final = trial.max_s == full_s
    return variants.variant(trial) in kept if final else trial.replicate == 0


def score(picks: list[Trial], where: Cells, count: int) -> dict[str, Any]:
    """Return the ratio of the picks' mean latencies over `count` fresh, interleaved replicates of each."""
    distinct = list({variants.variant(t): t for t in picks}.values())
    results: dict[str, list[Result]] = {variants.variant(t): [] for t in distinct}
    order = random.Random(0)
    for number in range(FRESH, FRESH + count):
        for trial in order.sample(distinct, len(distinct)):
            results[variants.variant(trial)].append(where.run(replace(trial, replicate=number)))
    groups = [by_replicate(results[variants.variant(t)]) for t in picks]
    means = [across(list(group.values()), "latency_mean_s") for group in groups]
    values = [m.value for m in means if isinstance(m, Measured)]
    if len(values) < len(picks):
        raise SystemExit("the fresh runs failed")
    found = {"pick_over_best": values[0] / values[1], "paired_ratio": ratio(*groups[:2])}
    if len(picks) > 2:
        found |= {"again_over_first": values[2] / values[1], "again_ratio": ratio(groups[2], groups[1])}
    return found | {"fresh_mean_s": to_plain(means)}


def ratio(mine: Mapping[int, Result], best: Mapping[int, Result]) -> Any:
    """Return how many times longer the one took than the other in the same fresh round, with its interval."""
    pairs = variants.paired_values(mine, best, "latency_mean_s")
    return to_plain(of_pairs(paired_log_ratio(*pairs), "--scoring"))


if __name__ == "__main__":
    main()
