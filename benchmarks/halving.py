"""What the budget of `edgescope optimize` lets it find, against measuring everything, and at what share of the time.

For each model: the budgeted schedule in a store of its own, then the exhaustive one (every candidate in pairs with the
baseline until it is clearly behind, those with wrong outputs leaving at once in both), then both picks in turns with
each other, in fresh pairs that neither schedule has seen. What both share (exported files, references, the gate's
answers) is made before either is timed. --again runs the exhaustive schedule a second time, under another seed, and
scores that pick, too: what two exhaustive runs differ by, no schedule can be held to on this machine. Target: in those
fresh pairs the pick is within 3 % of the exhaustive one, at 40 % of its time, on every model. The page is written after
each model; a run of other models adds to it, unless --anew.

    python benchmarks/halving.py [MODEL ...] [--budget 60] [--scoring 5] [--again] [--anew]     5 minutes a model
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from facts import PUBLISHED, machine_id, publish

from edgescope.analysis.cells import alternation, variants
from edgescope.bench import here
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.records import Trial
from edgescope.records.codec import to_plain
from edgescope.runner.isolated import Isolated
from edgescope.runner.run import Cells
from edgescope.search import halving as optimize
from edgescope.search.candidates import installed, propose
from edgescope.search.halving import Budget
from edgescope.search.loop import Loop
from edgescope.stats import Interval
from edgescope.store.results import Store
from edgescope.verbs.optimize import TURNS

MODELS = ("efficientnet_lite0", "mobilenet_v2", "squeezenet1_1", "resnet50")
#: Replicates that score the picks are numbered from here, out of reach of either schedule.
FRESH = 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--scoring", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="the exhaustive schedule a second time")
    parser.add_argument("--anew", action="store_true", help="forget the models that were measured before")
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    page = f"halving_turns_{args.device}"
    rows = {} if args.anew or args.smoke else kept(PUBLISHED / f"{page}.json")
    for name in args.models:
        rows[name] = compared(name, args)
        found = figures(list(rows.values()))
        if args.smoke:
            print(found)
        else:
            publish(page, found, met=met(found))


def kept(page: Path) -> dict[str, dict[str, Any]]:
    """Return the rows that were published from this machine, by model."""
    found = json.loads(page.read_text()) if page.is_file() else {}
    here = found.get("machine_id") == machine_id()
    return {row["model"]: row for row in found["figures"]["models"]} if here else {}


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


def compared(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return what both schedules found for one model, what it took, and how the picks do on fresh runs."""
    base = Trial(model=zoo.pin(name), device=args.device, **TURNS)
    trials = propose(base, installed()).trials
    with tempfile.TemporaryDirectory(prefix="edgescope-halving-") as folder:
        warm(trials)
        halving = scheduled(trials, cells(Path(folder) / "halving"), Budget(args.budget))
        everything = scheduled(trials, cells(Path(folder) / "all"), Budget(exhaustive=True))
        found = {"halving": halving, "exhaustive": everything}
        if args.again:
            other = Budget(seed=1, exhaustive=True)
            found["exhaustive_again"] = scheduled(trials, cells(Path(folder) / "again"), other)
        picks = [run.pop("trial") for run in found.values()]
        scored = score(picks, cells(Path(folder) / "fresh"), args.scoring)
    return {"model": name, "candidates": len(trials)} | found | scored


def cells(folder: Path) -> Cells:
    return Cells(Store(folder), Limits(), Isolated(), here())


def warm(trials: tuple[Trial, ...]) -> None:
    """Make what the cache keeps, so that neither schedule pays for it; nothing is measured, so two at once."""
    runner = Isolated()

    def made(trial: Trial) -> None:
        if runner.prepare(trial, Limits()) is None:
            runner.run(optimize.short(trial, 0), Limits())

    made(trials[0])  # the reference that all need
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(made, trials[1:]))


def scheduled(trials: tuple[Trial, ...], where: Cells, budget: Budget) -> dict[str, Any]:
    begun = time.monotonic()
    results = list(Loop(where, print).run(optimize.halving(trials, budget=budget)))
    best = variants.pick(variants.table(results))
    if best.row is None:
        raise SystemExit(best.reason)
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "runs": len(results),
        "pick": best.row.label,
        "p50_s": to_plain(best.row["p50_s"]),
        "speedup": to_plain(best.row["speedup"]),
        "trial": best.row.trial,
    }


def score(picks: list[Trial], where: Cells, count: int) -> dict[str, Any]:
    """Return how many times longer the first pick takes than the second, and the third, in turns with each."""
    mine, best, *other = picks
    found = against(mine, best, where, count)
    out: dict[str, Any] = {"pick_over_best": found.value, "paired_ratio": to_plain(found.measured("1"))}
    if other:
        again = against(other[0], best, where, count)
        out |= {"again_over_first": again.value, "again_ratio": to_plain(again.measured("1"))}
    return out


def against(mine: Trial, best: Trial, where: Cells, count: int) -> Interval:
    """Return the ratio of the times of two picks, mine / best, over `count` fresh pairs that take turns."""
    if mine.variant == best.variant:
        return Interval(1.0, 1.0, 1.0, 0, 0)
    pairs = [
        where.run_pair(replace(mine, replicate=n), replace(best, replicate=n), alternation.CONFIRMING)
        for n in range(FRESH, FRESH + count)
    ]
    return alternation.speedup([(second, first) for first, second in pairs])


if __name__ == "__main__":
    main()
