"""Does the harness slow an engine down? ONNX Runtime MobileNetV2, batch 1, against a bare Python loop.

The same session and the same inputs, in one process, in turns as of bench/alternation.py, ABBA: the arm `edgescope`
drives them through the scenario, the arm `bare` is `for i in range(n): session.run(...)`. The sampler runs beside
both (what it costs is benchmarks/sampler_cost.py). Both arms share a process, since two would differ by more than is
looked for; what differs between processes is in the interval, because it is that of several fresh ones
(stats/alternation.py). Target: the 95 % interval of the throughput ratio (edgescope / bare) lies above 0.985.

    python benchmarks/bare_loop.py [--processes 8] [--blocks 20] [--queries 25]     3 minutes
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from typing import Any

from facts import publish, write

from edgescope.bench import present
from edgescope.bench.alternation import ORDER
from edgescope.bench.parts import HERE
from edgescope.bench.watch import Watch
from edgescope.clock import MonotonicClock
from edgescope.records import Trial
from edgescope.scenarios import SingleStream
from edgescope.scenarios.stop_rule import Plan
from edgescope.stats.alternation import mean_ratio
from edgescope.workloads.base import Work
from edgescope.workloads.blocking import Failures, Inline
from edgescope.workloads.inference import loaded


def bare(session: Any, batches: list[Any], queries: int) -> float:
    """Queries per second of the plainest loop there is."""
    size = len(batches)
    start = time.monotonic()
    for i in range(queries):
        session.run(None, batches[i % size])
    return queries / (time.monotonic() - start)


def driven(trial: Trial, work: Work) -> float:
    """Queries per second of the measured window of a scenario."""
    plan = Plan(trial)
    SingleStream(trial, plan).drive(work, MonotonicClock())
    window = plan.window
    return (window.stop - window.first) / ((window.stop_ns - window.start_ns) / 1e9)


def logs(blocks: int, queries: int) -> list[float]:
    """Return the log of the ratio of throughputs, edgescope / bare, of each block of four turns in this process."""
    trial = Trial(model="mobilenet_v2", backend="onnxruntime", warmup=0, max_queries=queries, max_s=600)
    model, backend = HERE.model(trial), HERE.backend(trial.backend)
    found = []
    with loaded(trial, model, backend, HERE) as ready, Watch(present(), 10.0).watching():
        session, batches, size = ready.session.session, ready.batches, len(ready.batches)
        work = Inline(lambda query_id: ready.session(batches[query_id % size]), Failures())
        arms = (lambda: bare(session, batches, queries)), (lambda: driven(trial, work))
        for arm in arms * 4:  # warm
            arm()
        for _ in range(blocks):
            turns = [math.log(arms[number]()) * (1 if number else -1) for number in ORDER]
            found.append(sum(turns) / 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--queries", type=int, default=25)
    parser.add_argument("--one", action="store_true", help="one process, which prints its blocks")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(logs(args.blocks, args.queries)))
        return
    again = [sys.executable, *sys.argv, "--one"]
    processes: list[float] = []
    figures: dict[str, Any] = {"queries_a_turn": args.queries, "blocks": args.blocks, "logs": []}
    for number in range(args.processes):
        done = subprocess.run(again, stdout=subprocess.PIPE, text=True, check=True)
        figures["logs"].append(json.loads(done.stdout))
        processes.append(statistics.fmean(figures["logs"][-1]))
        ratio = mean_ratio(processes)
        ends = {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "level": 0.95, "processes": ratio.n}
        figures["throughput_ratio"] = ends if ratio.reliable else {"absent": ratio.note}
        if number + 1 < args.processes:
            write("bare_loop", figures, met=False)
    publish("bare_loop", figures, met=ratio.lo > 0.985)


if __name__ == "__main__":
    main()
