"""Serving and training on one device: turns in one process, plain co-location, and MPS on a GPU, in alternation.

    PYTHONPATH=src:tests python benchmarks/interleaved.py --seconds 290 --json interleaved_cpu.json
    PYTHONPATH=src:tests python benchmarks/interleaved.py --device cuda --seconds 150 --json interleaved_gpu.json

One network answers queries at a fixed rate while another trains. First both are measured alone, the training at two
minibatches; the planner then chooses the minibatch that trains fastest within the latency bound. Then rounds follow,
in each every arm once in a fresh process, in another order each time:

    interleaved   a step of training begins only while no query is answered (the planner's minibatch)
    colocated     two processes, shared by the scheduler; on a CPU each has as many threads as there are cores
    split         two processes with half of the threads each (CPU)
    mps           two processes under MPS (GPU)

For each arm: p90 of the latency, rate of training and, where there is a meter, watts, as the geometric mean over the
rounds with an interval; `kept` says whether the mean of the p90 lies within the bound. The planner's prediction stands
beside what was measured, and the ratio of the rates of training beside plain co-location is paired by round.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from facts import page

from edgescope.analysis.cells.replicates import value_of
from edgescope.analysis.predict.interleave import Slice
from edgescope.records import Result, Trial
from edgescope.stats import paired_log_ratio
from edgescope.verbs.run import run
from edgescope.verbs.train_interleave import Interleaving, train_interleave

BATCHES = {"cpu": (4, 16), "cuda": (16, 64)}
RATE = {"cpu": 20.0, "cuda": 50.0}
BOUND_S = {"cpu": 0.15, "cuda": 0.03}
WINDOW_S = {"cpu": 5.0, "cuda": 3.0}
CORES = len(os.sched_getaffinity(0))
Row = dict[str, Any]


def base(args: argparse.Namespace) -> Trial:
    """Return the serving side at its rate."""
    return Trial(
        model=args.serve,
        device=args.device,
        backend="torch_eager",
        scenario="fixed_rate",
        rate=args.rate,
        warmup=0.5,
        min_s=WINDOW_S[args.device],
        max_s=WINDOW_S[args.device],
        options={"threads": CORES} if args.device == "cpu" else {},
    )


def figures(result: Result) -> Row:
    """Return what one run gave; `failed` in it if it did not finish."""
    found: Row = {"p90_s": value_of(result, "latency_p90_s"), "power_w": value_of(result, "power_w")}
    found["trained_sps"] = value_of(result, "trained_sps") or value_of(result, "colocated_throughput_sps")
    return found if found["p90_s"] else found | {"failed": f"{result.status.value}: {result.reason}"[:300]}


def planned(args: argparse.Namespace, bound: float, store: Path) -> Interleaving:
    """Return the plan of `edgescope train interleave`, with both sides as measured alone."""
    asked = base(args)
    return train_interleave(
        args.serve,
        rate=args.rate,
        constraints=[f"p90<={bound:g}s"],
        train=args.train,
        train_batch=BATCHES[args.device],
        verify=False,
        store=store,
        **{
            name: getattr(asked, name)
            for name in ("device", "backend", "warmup", "min_s", "max_s", "options")
        },
    )


def arms(args: argparse.Namespace, batch: int) -> dict[str, Trial]:
    """Return the trial of each arm."""
    serve = base(args)
    beside = replace(serve, colocated=f"{args.train} workload=training batch={batch}")
    found = {
        "interleaved": replace(
            serve, workload="interleaved", workload_options={"train": args.train, "train_batch": batch}
        ),
        "colocated": beside,
    }
    if args.device == "cuda":
        return found | {"mps": replace(beside, sharing="mps")}
    return found | {"split": replace(beside, options={"threads": max(1, CORES // 2)})}


def summary(rounds: list[dict[str, Row]], bound: float, chosen: Slice) -> dict[str, Any]:
    """Return each arm's figures over the rounds, and its rate of training beside plain co-location."""
    out: dict[str, Any] = {}
    for name in rounds[0] if rounds else ():
        good = [turn[name] for turn in rounds if name in turn and "failed" not in turn[name]]
        row: dict[str, Any] = {"runs": len(good)}
        for figure in ("p90_s", "trained_sps", "power_w"):
            values = [each[figure] for each in good if each[figure]]
            row[figure] = statistics.geometric_mean(values) if values else None
            row[f"{figure}_runs"] = values
        row["kept"] = row["p90_s"] is not None and row["p90_s"] <= bound
        pairs = [
            (turn[name]["trained_sps"], turn["colocated"]["trained_sps"])
            for turn in rounds
            if all(turn.get(arm, {}).get("trained_sps") for arm in (name, "colocated"))
        ]
        if name != "colocated" and pairs:
            found = paired_log_ratio([a for a, _ in pairs], [b for _, b in pairs])
            if math.isfinite(found.hi):  # too few rounds bound nothing
                row["trained_beside_colocated"] = {"ratio": found.value, "lo": found.lo, "hi": found.hi}
        out[name] = row
    turns = out.get("interleaved", {})
    out["planner"] = {
        "train_batch": chosen.trained.batch,
        "latency_s": {"predicted_longest": chosen.latency_s, "measured_p90": turns.get("p90_s")},
        "trained_sps": {"predicted": chosen.trained_sps, "measured": turns.get("trained_sps")},
        "power_w": {"predicted": chosen.watts, "measured": turns.get("power_w")},
    }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no round after so long (290, 150)")
    parser.add_argument("--serve", default="lenet5")
    parser.add_argument("--train", default="resnet18_cifar")
    parser.add_argument("--rate", type=float, default=0.0, help="queries a second (20, 50)")
    parser.add_argument("--latency", type=float, default=0.0, help="bound of the p90 in seconds (0.15, 0.03)")
    parser.add_argument("--json", type=Path, default=Path("published/interleaved.json"))
    args = parser.parse_args()
    args.rate = args.rate or RATE[args.device]
    bound = args.latency or BOUND_S[args.device]
    begun, limit = time.monotonic(), args.seconds or (150.0 if args.device == "cuda" else 290.0)
    facts = page({}, met=False)
    with tempfile.TemporaryDirectory(prefix="edgescope-turns-") as place:
        plan = planned(args, bound, Path(place))
        if not plan.slices:
            raise SystemExit(str(plan))
        steps = sorted((each.trained for each in plan.slices), key=lambda side: side.batch)
        smallest = min(plan.slices, key=lambda each: each.trained.batch)
        served, chosen = smallest.served, plan.pick or smallest  # one that breaks the bound is measured, too
        trials = arms(args, chosen.trained.batch)
        rounds: list[dict[str, Row]] = []
        found: dict[str, Any] = {}
        spent = 0.0
        while not rounds or (len(rounds) < 20 and time.monotonic() - begun + spent < limit):
            start, number = time.monotonic(), len(rounds)
            names = list(trials)[number % len(trials) :] + list(trials)[: number % len(trials)]
            turn: dict[str, Row] = {}
            for name in names:
                turn[name] = figures(run(replace(trials[name], replicate=number), store=Path(place)))
                print(name, json.dumps(turn[name]), file=sys.stderr, flush=True)
            rounds.append(turn)
            spent = time.monotonic() - start
            found = {
                "device": args.device,
                "serve": args.serve,
                "train": args.train,
                "rate_qps": args.rate,
                "bound_s": bound,
                "cores": CORES,
                "planned_within_bound": plan.pick is not None,
                "alone": {
                    "serve_mean_s": served.seconds,
                    "serve_p90_s": served.tail,
                    "train": [{"batch": s.batch, "step_s": s.seconds, "power_w": s.watts} for s in steps],
                },
                "arms": summary(rounds, bound, chosen),
                "left_out": [n for n in BATCHES[args.device] if n not in {side.batch for side in steps}],
            }
            met = found["arms"]["interleaved"]["kept"] and len(rounds) > 1
            args.json.write_text(json.dumps(facts | {"figures": found, "met": met}, indent=1) + "\n")
    print(json.dumps(found["arms"], indent=1))


if __name__ == "__main__":
    main()
