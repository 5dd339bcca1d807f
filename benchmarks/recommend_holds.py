"""Whether what a recommendation promises holds: fresh runs of picks against constraints just above their bounds.

A small grid of each model is measured in a few fresh processes a cell. Each question's pick then gets constraints 5 %
above its own measured upper bounds (p99, memory, and power where a meter answers), is asked for again with them, and is
run in fresh processes that the recommendation has not seen, all picks interleaved in random order. A run holds when its
p99, memory and power are within the constraints; one that the machine disturbed so that it ended `unstable` is run once
more. Target: 36 of 40.

Beside it, where the windows are long enough for one: how many would hold by the largest order-statistic bound of the
tail within one process, which knows nothing of what lies between processes.

    python benchmarks/recommend_holds.py [MODEL ...] [--runs 40] [--replicates 3] [--duration 2.5] [--smoke]
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from facts import publish
from halving import cells

from edgescope.analysis.cells.choices import choices
from edgescope.analysis.cells.objective import Constraint, Wanted, judged_end, wanted
from edgescope.analysis.cells.recommend import Recommendation, recommend
from edgescope.analysis.cells.row import Row
from edgescope.metrics import bounded
from edgescope.models import zoo
from edgescope.records import Measured, Result, Status, Trial
from edgescope.runner import run
from edgescope.runner.run import Cells
from edgescope.study import grid

MODELS = ("squeezenet1_1", "mobilenet_v2", "efficientnet_lite0")
OBJECTIVES = ("throughput", "latency")
#: How far above the measured upper bound a constraint lies.
ABOVE = 1.05
#: What is constrained, with the unit and its factor to SI; all that is measured of it binds.
BOUND = {"p99": ("ms", 1e-3), "memory": ("MB", 1e6), "power": ("W", 1.0)}
#: Confirmations are numbered from here, out of reach of the replicates.
FRESH = 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--duration", type=float, default=2.5)
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgescope-holds-") as folder:
        fresh = cells(Path(folder))
        results = measured(args, fresh)
        promised = picks(results, args.replicates)
        rows = confirmed(promised, fresh, args.runs)
    found = figures(rows, promised)
    if args.smoke:
        print(found)
    else:
        publish(
            "recommend_holds_cpu", found, met=found["held"] >= 0.9 * found["runs"] and found["runs"] >= 40
        )


def measured(args: argparse.Namespace, cells: Cells) -> list[Result]:
    """Measure the grid of every model, round by round in random order."""
    keys = {
        "model": [zoo.pin(name) for name in args.models],
        "backend": ["onnxruntime", "openvino"],
        "batch": [1, 2],
        "processes": [1, 2],
        "warmup": 0.5,
        "min_s": args.duration,
        "max_s": args.duration,
        "replicates": args.replicates,
    }
    told = lambda p: print(f"[{p.done + 1}/{p.total}] {p.trial.model} {p.trial.label}", flush=True)  # noqa: E731
    done = list(run.run(grid.grid(keys), cells, tell=told))
    return cells.store.fulls(done)


def picks(results: Sequence[Result], least: int) -> list[tuple[Row, Wanted, Recommendation]]:
    """Return each question's pick with the constraints it is held to; a pick of two questions stands once."""
    out: dict[str, tuple[Row, Wanted, Recommendation]] = {}
    for model in dict.fromkeys(r.trial.model for r in results):
        mine = [r for r in results if r.trial.model == model]
        for objective in OBJECTIVES:
            pick = recommend(mine, wanted(objective), least=least).pick
            if pick is None:
                continue
            asked = Wanted(objective, tuple(binding(pick)))
            again = recommend(mine, asked, least=least)
            if again.pick is not None:
                out.setdefault(again.pick.cell, (again.pick, asked, again))
    return list(out.values())


def binding(pick: Row) -> list[Constraint]:
    """Return constraints a little above a pick's measured upper bounds."""
    found = []
    for name, (unit, factor) in BOUND.items():
        figure = pick[bounded()[name].name]
        if isinstance(figure, Measured):
            limit = judged_end(figure, True) * ABOVE
            text = f"{name}<={limit / factor:.6g}{unit}"
            found.append(Constraint(bounded()[name], limit, text=text))
    return found


def confirmed(
    promised: Sequence[tuple[Row, Wanted, Recommendation]], cells: Cells, runs: int
) -> list[dict[str, Any]]:
    """Run the picks again, interleaved; return each run's figures and whether it holds."""
    rng, rows = random.Random(0), []
    order = [i % len(promised) for i in range(runs)]
    rng.shuffle(order)
    for number, which in enumerate(order):
        pick, asked, _ = promised[which]
        trial: Trial = replace(pick.trial, replicate=FRESH + number)
        result = cells.run(trial)
        again = result.status is Status.UNSTABLE  # the machine was not steady: once more
        if again:
            result = cells.run(replace(trial, replicate=FRESH + runs + number))
        print(f"[confirm {number + 1}/{runs}] {pick.name} {result.status.value}", flush=True)
        rows.append({"pick": pick.name, "run_again": again} | held(result, pick, asked))
    return rows


def held(result: Result, pick: Row, asked: Wanted) -> dict[str, Any]:
    """Return one run's values beside the limits, and whether all are within them."""
    if result.status is not Status.OK:
        return {
            "held": False,
            "within_alone": None,
            "status": result.status.value,
            "reason": str(result.reason),
        }
    (row,), _ = choices([result], wanted(asked.objective))
    values = {c.name: row[c.metric.name] for c in asked.constraints}
    shares = {
        c.name: values[c.name].value / c.limit if isinstance(values[c.name], Measured) else None
        for c in asked.constraints
    }
    tail, bound = values.get("p99"), largest_bound(pick)
    within = tail.value <= ABOVE * bound if isinstance(tail, Measured) and bound else None
    kept = all(s is not None and s <= 1 for s in shares.values())
    return {"held": kept, "within_alone": within, "share_of_limit": shares, "status": "ok"}


def largest_bound(pick: Row) -> float | None:
    """Return the largest order-statistic bound of p99 (s) of the processes, None where no run was long enough."""
    found = [r.metrics.get("latency_p99_bound_s") for r in pick.replicates.values()]
    known = [f.value for f in found if isinstance(f, Measured)]
    return max(known, default=None)


def alone(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many runs held by the bound within one process, of those for which there was one."""
    known = [r["within_alone"] for r in rows if r["within_alone"] is not None]
    return (
        {"held": sum(known), "of": len(known)}
        if known
        else {"absent": "the windows are too short for that bound"}
    )


def figures(
    rows: list[dict[str, Any]], promised: Sequence[tuple[Row, Wanted, Recommendation]]
) -> dict[str, Any]:
    return {
        "runs": len(rows),
        "held": sum(r["held"] for r in rows),
        "run_again_because_unstable": sum(r["run_again"] for r in rows),
        "p99_held_by_the_bound_within_one_process": alone(rows),
        "questions": [
            {
                "model": pick.trial.model.partition("#")[0],
                "objective": asked.objective,
                "pick": pick.label,
                "processes": len(pick.replicates),
                "constraints": [c.text for c in asked.constraints],
                "reasons": list(answer.reasons),
                "held": sum(r["held"] for r in rows if r["pick"] == pick.name),
                "runs": sum(r["pick"] == pick.name for r in rows),
            }
            for pick, asked, answer in promised
        ],
        "confirmations": rows,
    }


if __name__ == "__main__":
    main()
