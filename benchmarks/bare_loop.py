"""Does the harness slow an engine down? ONNX Runtime MobileNetV2, batch 1, against a bare Python loop.

The same session and the same inputs, in one process, in short interleaved pairs of random order: the arm `edgescope`
drives them through the scenario, the arm `bare` is `for i in range(n): session.run(...)`. The sampler runs beside
both (what it costs is benchmarks/sampler_cost.py). The turns of bench/alternation.py are no use here: they are those
of two processes, each driven by the scenario, and the bare arm has no scenario. Target: the 95 % interval of the
paired throughput ratio (edgescope / bare) lies above 0.985.

    python benchmarks/bare_loop.py [--pairs 1000] [--queries 25]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

from facts import publish

from edgescope.bench import present
from edgescope.bench.parts import HERE
from edgescope.bench.watch import Watch
from edgescope.clock import MonotonicClock
from edgescope.records import Trial
from edgescope.scenarios import SingleStream
from edgescope.scenarios.stop_rule import Plan
from edgescope.stats import paired_log_ratio
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=25)
    args = parser.parse_args()
    trial = Trial(model="mobilenet_v2", backend="onnxruntime", warmup=0, max_queries=args.queries, max_s=600)
    model, rng, backend = HERE.model(trial), random.Random(0), HERE.backend(trial.backend)
    ours, theirs = [], []
    watch = Watch(present(), 10.0)
    with (
        loaded(trial, model, backend, HERE) as ready,
        watch.watching(),
    ):
        session, batches, size = ready.session.session, ready.batches, len(ready.batches)
        work = Inline(lambda query_id: ready.session(batches[query_id % size]), Failures())
        bare(session, batches, 200)
        for _ in range(args.pairs):
            for arm in rng.sample(("ours", "theirs"), 2):
                if arm == "ours":
                    ours.append(driven(trial, work))
                else:
                    theirs.append(bare(session, batches, args.queries))
    ratio = paired_log_ratio(ours, theirs)
    figures = {
        "throughput_ratio": {
            "value": ratio.value,
            "lo": ratio.lo,
            "hi": ratio.hi,
            "level": 0.95,
            "pairs": ratio.n,
        },
        "queries_a_block": args.queries,
        "median_qps": {"edgescope": statistics.median(ours), "bare": statistics.median(theirs)},
    }
    publish("bare_loop", figures, met=ratio.lo > 0.985)


if __name__ == "__main__":
    main()
