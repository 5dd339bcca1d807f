"""Do we measure what OpenVINO's own benchmark_app measures? Same file, same threads, fresh processes, interleaved.

The arm `edgescope` is one isolated trial of the openvino backend; the arm `benchmark_app` is
`benchmark_app -api sync -hint none -nstreams 1 -nireq 1 -nthreads T -infer_precision f32`. Target: the 95 % interval
of the median paired throughput ratio (edgescope / benchmark_app; sign test, so that a burst of other load in one arm
of a pair counts once) lies inside 1 +- 0.02; the t interval of the ratio is published beside it. Throughput is wall
time on both sides. Median latencies are published too and not judged: benchmark_app's is the request's own clock,
ours runs from handing the inputs over to having the outputs.

    python benchmarks/openvino_parity.py [--model mobilenet_v2] [--pairs 80] [--seconds 2]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from facts import publish

from edgescope import cache
from edgescope.isolate import fresh
from edgescope.models import zoo
from edgescope.records import Measured, Trial
from edgescope.stats import Interval, paired_log_ratio, quantile_interval


def theirs(path: Path, threads: int, seconds: int) -> tuple[float, float]:
    """(median latency in s, throughput) by benchmark_app."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(
                str(Path(sys.executable).parent / "benchmark_app"),
                "-m",
                str(path),
                "-d",
                "CPU",
                "-api",
                "sync",
            ),
            *("-hint", "none", "-nstreams", "1", "-nireq", "1", "-nthreads", str(threads), "-ip", "f32"),
            *("-infer_precision", "f32", "-t", str(seconds), "-data_shape", "[1,3,224,224]", "-shape"),
            *("[1,3,224,224]", "-report_type", "no_counters", "-json_stats", "-report_folder", folder),
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)
        report = json.loads(next(Path(folder).glob("*report.json")).read_text())
    results = report["execution_results"]
    return float(results["latency (ms)"]) / 1e3, float(results["throughput"])


def ours(trial: Trial) -> tuple[float, float]:
    """(median latency in s, throughput) by an isolated trial."""
    result = fresh.run(trial)
    p50, rate = (result.metrics.get(name) for name in ("latency_p50_s", "throughput_sps"))
    if not isinstance(p50, Measured) or not isinstance(rate, Measured):
        raise SystemExit(f"{result.status.value}: {result.reason}")
    return p50.value, rate.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--pairs", type=int, default=80)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    trial = Trial(
        model=args.model,
        backend="openvino",
        options={"threads": args.threads},
        min_s=args.seconds,
        max_s=args.seconds,
    )
    fresh.prepare(trial)
    path = zoo.get(args.model).onnx(cache.folder("artifacts"))
    rng, pairs = random.Random(0), []
    for number in range(args.pairs):
        got = {}
        for arm in rng.sample(("ours", "theirs"), 2):
            got[arm] = ours(trial) if arm == "ours" else theirs(path, args.threads, args.seconds)
        pairs.append(got)
        print(number, {k: f"{v[1]:.1f}/s" for k, v in got.items()}, file=sys.stderr, flush=True)
    figures: dict[str, object] = {"model": args.model, "threads": args.threads, "pairs": pairs}
    for index, name in enumerate(("median_latency", "throughput")):
        mine, other = ([p[arm][index] for p in pairs] for arm in ("ours", "theirs"))
        ratio = paired_log_ratio(mine, other)
        figures[f"{name}_ratio"] = {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "level": 0.95}
    middle = quantile_interval(np.array(mine) / np.array(other), 0.5)
    assert isinstance(middle, Interval), "six pairs at least"
    figures["median_throughput_ratio"] = {
        "value": middle.value,
        "lo": middle.lo,
        "hi": middle.hi,
        "level": 0.95,
    }
    publish("openvino_parity", figures, met=middle.lo >= 0.98 and middle.hi <= 1.02)


if __name__ == "__main__":
    main()
