"""What edgescope itself costs, and whether its figures are those of other programs.

    python benchmarks/harness.py COMMAND --help

The commands: a query of the harness (cost), a bare loop over the same session (bare_loop), a frame through the stages
of a pipeline (flow), the command line (start_up), OpenVINO's benchmark_app (openvino), polygraphy's verdict on outputs
(polygraphy), how well two workers agree on a start (worker_skew), and what idleness costs a query (idle_gap).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import facts
import numpy as np
from facts import publish, write
from polygraphy.comparator import (
    Comparator,
    CosineSimilarityCompareFunc,
    IndicesCompareFunc,
    IterationResult,
    L2CompareFunc,
    RunResults,
    SimpleCompareFunc,
)
from polygraphy.logger import G_LOGGER

from edgescope import bench, cache, registry
from edgescope.analysis.run.summary import Gap, idle_gap_curve
from edgescope.backends.base import Spec
from edgescope.bench import here, present
from edgescope.bench.alternation import ORDER
from edgescope.bench.parts import HERE
from edgescope.bench.watch import Watch
from edgescope.clock import MonotonicClock
from edgescope.isolate import fresh
from edgescope.isolate.pool import WorkerPools
from edgescope.models import zoo
from edgescope.models.base import Model
from edgescope.records import Json, Measured, Result, Status, Trial
from edgescope.scenarios import SingleStream
from edgescope.scenarios.stop_rule import Plan
from edgescope.stats import Interval, paired_log_ratio, quantile_interval
from edgescope.stats.alternation import mean_ratio
from edgescope.store.results import Store
from edgescope.verify import judge
from edgescope.wings.video import what_if
from edgescope.wings.video.flow import Flow, Sequential, Stage, Threaded
from edgescope.workloads.base import Work
from edgescope.workloads.blocking import Failures, Inline
from edgescope.workloads.inference import loaded

QUERIES = 1_000_000
ONE_RUN = """
import json, re, sys, time
from pathlib import Path
import edgescope
run = edgescope.run  # loads what it needs: an import is no part of a run
n = int(sys.argv[1])
trial = edgescope.Trial(model="null", backend="null", warmup=0, max_queries=n, max_s=600)
start = time.monotonic()
result = run(trial, isolated=False)
run_s = time.monotonic() - start
assert result.status in ("ok", "unstable"), result.reason  # a millisecond of nothing may drift
w = result.window
assert len(result.queries) == n == w.stop - w.first
hwm = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"wall_s": (w.stop_ns - w.start_ns) / 1e9, "run_s": run_s, "hwm_bytes": hwm}))
"""


def cost_one(n: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", ONE_RUN, str(n)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def cost() -> None:
    """What the harness costs: wall time and peak memory a query, over 10^6 queries of the null backend through run().

    Target: <= 2.5 us and <= 80 bytes a query, clock readings and recorded columns included. `us_per_query` is the
    measured window; `whole_run_us_per_query` is all of run(): machine facts, sampler, probes, statistics. Each run is
    a fresh process; memory is the growth of VmHWM against a run of 1,000 queries, which pays for the same imports.

        python benchmarks/harness.py cost
    """
    runs = [(cost_one(1_000), cost_one(QUERIES)) for _ in range(5)]
    us = [big["wall_s"] / QUERIES * 1e6 for _, big in runs]
    whole = [big["run_s"] / QUERIES * 1e6 for _, big in runs]
    grown = [(big["hwm_bytes"] - small["hwm_bytes"]) / QUERIES for small, big in runs]
    figures = {
        "queries": QUERIES,
        "us_per_query": {"median": statistics.median(us), "min": min(us), "max": max(us), "runs": us},
        "whole_run_us_per_query": {"median": statistics.median(whole), "max": max(whole), "runs": whole},
        "bytes_per_query": {"median": statistics.median(grown), "max": max(grown), "runs": grown},
    }
    publish("harness/cost", figures, met=statistics.median(whole) <= 2.5 and max(grown) <= 80)


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


def bare_loop() -> None:
    """Does the harness slow an engine down? ONNX Runtime MobileNetV2, batch 1, against a bare Python loop.

    The same session and the same inputs, in one process, in turns as of bench/alternation.py, ABBA: the arm
    `edgescope` drives them through the scenario, the arm `bare` is `for i in range(n): session.run(...)`. The sampler
    runs beside both (what it costs is benchmarks/sampler.py cpu). Both arms share a process, since two would differ
    by more than is looked for; what differs between processes is in the interval, because it is that of several fresh
    ones (stats/alternation.py). Target: the 95 % interval of the throughput ratio (edgescope / bare) lies above
    0.985.

        python benchmarks/harness.py bare_loop [--processes 8] [--blocks 20] [--queries 25]     3 minutes
    """
    parser = argparse.ArgumentParser(description=facts.text(bare_loop))
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--queries", type=int, default=25)
    parser.add_argument("--one", action="store_true", help="one process, which prints its blocks")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(logs(args.blocks, args.queries)))
        return
    again = [*facts.again(), "--one"]
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
            write("harness/bare_loop", figures, met=False)
    publish("harness/bare_loop", figures, met=ratio.lo > 0.985)


STAGES, MOST = 5, {"sequence": 2.0, "threads": 20.0}


def cost_us(flow: Flow, in_flight: int, frames: int) -> float:
    """Return microseconds of a frame and stage."""
    with what_if.running(flow):
        start = time.perf_counter()
        what_if.driven(flow, in_flight, lambda number: number < frames)
        return (time.perf_counter() - start) / frames / STAGES * 1e6


def flow() -> None:
    """What a pipeline's own machinery costs: stages that do nothing, in sequence and in threads.

    Microseconds of a frame and stage: the time of a closed loop over null stages, over frames times stages. Targets:
    2 in sequence, 20 in threads.

        python benchmarks/harness.py flow [--rounds 7]
    """
    parser = argparse.ArgumentParser(description=facts.summary(flow))
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    stages = [Stage(f"stage {number}", lambda item: None) for number in range(STAGES)]
    found: dict[str, list[float]] = {"sequence": [], "threads": []}
    for _ in range(args.rounds):
        found["sequence"].append(cost_us(Sequential(stages), 1, 50_000))
        found["threads"].append(cost_us(Threaded(stages), 16, 20_000))
    figures: dict[str, Any] = {
        name: {"us_median": sorted(costs)[len(costs) // 2], "us": costs} for name, costs in found.items()
    }
    publish("harness/flow", figures, met=all(max(found[name]) <= most for name, most in MOST.items()))


ROUNDS = 15


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def fill(root: Path, n: int) -> None:
    """Store n results with this machine's real manifest."""
    store, begun = Store(root), Result.begun(Trial(model="null", backend="null"), here())
    metrics = {f"latency_p{q}_s": Measured(1e-3, "s", 0.9e-3, 1.1e-3, 1000) for q in range(50, 100)}
    for i in range(n):
        trial = Trial(model="null", backend="null", batch=i + 1)
        store.save(replace(begun, id=f"{trial.id}-{i}", trial=trial, status=Status.OK, metrics=metrics))


def start_up() -> None:
    """How long before edgescope answers: --help, import, and listing 1,000 stored results.

    Targets: `edgescope --help` <= 0.2 s; `import edgescope` <= 0.1 s over a bare interpreter; 1,000 results listed and
    filtered in <= 1 s. Interleaved, 15 rounds, medians; every run is a process of its own.

        python benchmarks/harness.py start_up
    """
    cli = str(Path(sys.executable).parent / "edgescope")
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), 1_000)
        commands = {
            "bare": [sys.executable, "-c", "pass"],
            "import": [sys.executable, "-c", "import edgescope"],
            "help": [cli, "--help"],
            "list_1000_filtered": [cli, "list", "--store", name, "--model", "null", "--status", "ok"],
        }
        times: dict[str, list[float]] = {key: [] for key in commands}
        for _ in range(ROUNDS):
            for key, command in commands.items():
                times[key].append(timed(command))
    over = [a - b for a, b in zip(times["import"], times["bare"], strict=True)]
    figures = {f"{k}_s": {"median": statistics.median(v), "max": max(v)} for k, v in times.items()}
    figures["import_over_bare_s"] = {"median": statistics.median(over), "max": max(over)}
    met = (
        figures["help_s"]["median"] <= 0.2
        and figures["import_over_bare_s"]["median"] <= 0.1
        and figures["list_1000_filtered_s"]["median"] <= 1.0
    )
    publish("harness/start_up", figures, met=met)


def openvino_theirs(path: Path, threads: int, seconds: int) -> tuple[float, float]:
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


def openvino() -> None:
    """Do we measure what OpenVINO's own benchmark_app measures? Same file, same threads, fresh processes, interleaved.

    The arm `edgescope` is one isolated trial of the openvino backend; the arm `benchmark_app` is `benchmark_app -api
    sync -hint none -nstreams 1 -nireq 1 -nthreads T -infer_precision f32`. Target: the 95 % interval of the median
    paired throughput ratio (edgescope / benchmark_app; sign test, so that a burst of other load in one arm of a pair
    counts once) lies inside 1 +- 0.02; the t interval of the ratio is published beside it. Throughput is wall time on
    both sides. Median latencies are published too and not judged: benchmark_app's is the request's own clock, ours
    runs from handing the inputs over to having the outputs.

        python benchmarks/harness.py openvino [--model mobilenet_v2] [--pairs 80] [--seconds 2]
    """
    parser = argparse.ArgumentParser(description=facts.text(openvino))
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
            got[arm] = ours(trial) if arm == "ours" else openvino_theirs(path, args.threads, args.seconds)
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
    publish("harness/openvino", figures, met=middle.lo >= 0.98 and middle.hi <= 1.02)


VARIANTS = "squeezenet1_1:openvino:bf16,mobilenet_v2:onnxruntime:int8,efficientnet_lite0:onnxruntime:int8"
PRINTED = ".2g"
"""How the gate's sentence prints centred L2."""
FINER = ".5g"
Arrays = tuple[np.ndarray[Any, Any], ...]


def answers(model: Model, backend: str, precision: str) -> tuple[Arrays, Any]:
    """Outputs on the gate's inputs, and what top-1 keeps of the labelled photographs of a trained network."""
    engine = registry.load(registry.BACKENDS, backend, "backend")()
    session = engine.load(engine.prepare(model, Spec(precision), cache.folder("artifacts")))
    try:
        return judge.answers(session, judge.basis(model), 1)
    finally:
        session.close()


def poly_theirs(a: Sequence[Arrays], b: Sequence[Arrays], how: Any) -> list[Any]:
    """Polygraphy's answer for each pair of outputs: a result object, or whether they are equal."""
    runs = RunResults()
    for name, side in (("variant", a), ("reference", b)):
        runs[name] = [
            IterationResult({f"output{i}": o for i, o in enumerate(out)}, None, name) for out in side
        ]
    (compared,) = Comparator.compare_accuracy(runs, compare_func=how)
    return [found["output0"] for found in compared["variant", "reference"]]


def poly_one(name: str, backend: str, precision: str) -> dict[str, Any]:
    """Both tools' measures of one variant, as printed, and whether they agree."""
    model = zoo.get(name)
    (got, named), (wanted, truly) = answers(model, backend, precision), answers(model, "torch_eager", "fp32")
    reference = judge.Reference(wanted, truly, "torch_eager fp32")
    told = judge.told(judge.basis(model), named, reference)
    fields = judge.judge(got, reference, precision=precision, told=told).fields
    mean = np.broadcast_to(wanted[0].mean(axis=0), wanted[0].shape)
    l2 = poly_theirs([(got[0],)], [(wanted[0],)], L2CompareFunc())[0].l2_norm
    spread = poly_theirs([(wanted[0],)], [(mean,)], L2CompareFunc())[0].l2_norm
    ours = fields["centred_l2"]
    assert isinstance(ours, Measured)
    both = {"edgescope": ours.value, "polygraphy": l2 / spread}
    out: dict[str, Any] = {
        "variant": f"{name} {backend} {precision}",
        "inputs": len(got[0]),
        "centred_l2": {tool: format(v, FINER) for tool, v in both.items()},
    }
    agree = len({format(v, PRINTED) for v in both.values()}) == 1
    top1 = fields["top1_agreement"]
    if isinstance(top1, Measured):
        indices = [[(a[0][i : i + 1].argmax(axis=1),) for i in range(len(a[0]))] for a in (got, wanted)]
        same = sum(map(bool, poly_theirs(*indices, IndicesCompareFunc())))
        out["top1_same"] = {"edgescope": round(top1.value * top1.n), "polygraphy": same, "of": top1.n}
        agree = agree and out["top1_same"]["edgescope"] == same
    return out | {"agree": agree, "polygraphy_also": others(got, wanted)}


def others(got: Arrays, wanted: Arrays) -> dict[str, str]:
    """Polygraphy's further measures of the same outputs."""
    plain = poly_theirs([(got[0],)], [(wanted[0],)], SimpleCompareFunc())[0]
    cosine = poly_theirs([(got[0],)], [(wanted[0],)], CosineSimilarityCompareFunc())[0].cosine_similarity
    found = {
        "max_abs": plain.max_absdiff,
        "mean_abs": plain.mean_absdiff,
        "max_rel": plain.max_reldiff,
        "cosine": cosine,
    }
    return {k: format(v, FINER) for k, v in found.items()}


def polygraphy() -> None:
    """NVIDIA's Polygraphy on the same outputs as the accuracy gate, and whether both say the same.

    Both get the outputs of one variant and of eager fp32 on the gate's inputs. The gate's centred L2 is held against
    the quotient of two of Polygraphy's L2 norms (variant to fp32; fp32 to its own mean over the inputs), its top-1
    agreement against Polygraphy's comparison of the winning indices, input by input. Target: equal to all digits that
    the gate prints (two of the L2, the whole count). Polygraphy's other measures of the same outputs are published
    beside, unjudged. Needs `pip install polygraphy`.

        python benchmarks/harness.py polygraphy [--variants squeezenet1_1:openvino:bf16,...]
    """
    parser = argparse.ArgumentParser(description=facts.text(polygraphy))
    parser.add_argument("--variants", default=VARIANTS, metavar="MODEL:BACKEND:PRECISION,..")
    args = parser.parse_args()
    G_LOGGER.module_severity = G_LOGGER.CRITICAL  # it draws a histogram for every pair of outputs
    rows = []
    for text in args.variants.split(","):
        rows.append(poly_one(*text.split(":")))
        print(rows[-1], file=sys.stderr, flush=True)
    figures = {"polygraphy": version("polygraphy"), "variants": rows}
    publish("harness/polygraphy", figures, met=all(row["agree"] for row in rows))


SKEW_S, GAP = 1e-3, 1
WORKERS = 2
TRIALS = (
    Trial(model="null", backend="null", processes=WORKERS, warmup=0.05, min_s=0.3, max_s=0.3),
    Trial(
        model="squeezenet1_1",
        backend="onnxruntime",
        processes=WORKERS,
        warmup=0.2,
        min_s=0.3,
        max_s=0.3,
        options={"threads": 1},
    ),
)


def skew_value(result: Result, name: str) -> float:
    """A metric that must have been measured."""
    field = result.metrics[name]
    assert isinstance(field, Measured), f"{name}: {field.reason}"
    return field.value


def runs(trial: Trial, count: int, pools: WorkerPools) -> list[Result]:
    """`count` measured results of the trial, one after the other in the same workers."""
    devices, found = bench.present(), []
    for number in range(count):
        pools.begin({})
        begun = Result.begun(replace(trial, replicate=number), bench.here())
        result = bench.answer(begun, devices=devices, pools=pools)
        if result.status not in (Status.OK, Status.UNSTABLE):
            raise SystemExit(f"{trial.model}: {result.status.value}: {result.reason}")
        found.append(result)
        print(
            f"{trial.model} {number + 1}: {skew_value(result, 'start_skew_s') * 1e6:.0f} us", file=sys.stderr
        )
    return found


def figures(results: list[Result]) -> dict[str, Json]:
    """Quantiles of the skews and the largest gap of some runs."""
    start = np.array([skew_value(r, "start_skew_s") for r in results])
    stop = np.array([skew_value(r, "stop_skew_s") for r in results])
    gaps = [int(skew_value(r, "counter_gap_queries")) for r in results]
    return {
        "runs": len(results),
        "start_skew_s": {q: float(np.quantile(start, p)) for q, p in QUANTILES},
        "stop_skew_s": {q: float(np.quantile(stop, p)) for q, p in QUANTILES},
        "runs_within_1_ms": int(np.count_nonzero(start <= SKEW_S)),
        "counter_gap_queries": {"max": max(gaps), "runs_with_none": gaps.count(0)},
        "queries_per_run": int(np.median([skew_value(r, "queries") for r in results])),
        "start_skews_s": [float(s) for s in start],
    }


QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def worker_skew() -> int:
    """How well two workers agree on a start, and whether their rows and the shared counter tell the same story.

    Two questions, over runs of two workers on the CPU: how far apart are the first measured queries of the workers
    (target: at most 1 ms where there is a core for each), and by how many queries do a worker's raw rows and the
    counter that all share differ within the window (target: at most one, in every run). Each run goes through the
    whole measuring path (sampler, probes, window, gate), in reused workers, with the null engine, whose queries take
    a microsecond, and with a small network, whose threads fill all cores.

        python benchmarks/harness.py worker_skew     # 2 to 3 minutes; writes published/harness.json
    """
    parser = argparse.ArgumentParser(description=facts.text(worker_skew))
    parser.add_argument("--runs", type=int, default=50, help="runs of each workload")
    args = parser.parse_args()
    for trial in TRIALS:
        fresh.prepare(trial)
    with WorkerPools() as pools:
        found = {t.model: figures(runs(t, args.runs, pools)) for t in TRIALS}
    met = all(
        f["runs_within_1_ms"] == f["runs"] and f["counter_gap_queries"]["max"] <= GAP for f in found.values()
    )
    publish(
        "harness/worker_skew",
        {
            "workers": WORKERS,
            "cores": len(os.sched_getaffinity(0)),
            "targets": {"start_skew_s": SKEW_S, "counter_gap_queries": GAP},
            **found,
        },
        met=met,
    )
    return 0 if met else 1


PROCESSES = 3


def idle_value(gap: Gap) -> dict[str, float | None]:
    """Return one point of one process's curve as published."""
    latency, penalty = gap.latency, gap.penalty
    assert isinstance(latency, Measured) and isinstance(penalty, Measured)
    return {
        "asked_ms": round(gap.requested_s * 1e3, 3),
        "idle_ms": round(gap.idle_s * 1e3, 3),
        "latency_p50_ms": latency.value * 1e3,
        "penalty": penalty.value,
        "lo": penalty.lo,
        "hi": penalty.hi,
        "n": latency.n,
    }


def idle_gap() -> None:
    """What idleness costs here: the first query after 0, 10, 33, 100, 1000 and 10000 ms, three fresh processes.

    There is no target: the curve is a fact of the machine. `met` says whether every process measured every gap and
    passed the gate.

        python benchmarks/harness.py idle_gap                 # efficientnet_lite0 on ONNX Runtime, about seven minutes
        python benchmarks/harness.py idle_gap resnet50 openvino
    """
    model, backend = [*sys.argv[1:], *("efficientnet_lite0", "onnxruntime")[len(sys.argv) - 1 :]]
    trial = Trial(model=zoo.pin(model), backend=backend, scenario="idle_gap", warmup=2.0)
    failed = fresh.prepare(trial)
    if failed is not None:
        sys.exit(failed.reason)
    results = []
    for replicate in range(PROCESSES):
        result = fresh.run(replace(trial, replicate=replicate, seed=replicate))
        print(f"process {replicate + 1} of {PROCESSES}: {result.status.value}", file=sys.stderr, flush=True)
        results.append(result)
    good = [r for r in results if r.queries is not None and r.window is not None]
    curves = [[idle_value(gap) for gap in idle_gap_curve(r.queries, r.window)] for r in good]
    figures = {
        "model": model,
        "backend": backend,
        "statuses": [r.status.value for r in results],
        "verdicts": [r.verdict.trust.value for r in results],
        "penalty": {
            f"{points[0]['asked_ms']:g}_ms": statistics.median(p["penalty"] for p in points)
            for points in zip(*curves, strict=True)
        },
        "processes": curves,
    }
    whole = len(curves) == PROCESSES and all(len(points) == len(curves[0]) for points in curves)
    publish("harness/idle_gap", figures, met=whole and all(r.status is Status.OK for r in results))


if __name__ == "__main__":
    facts.chosen(cost, bare_loop, flow, start_up, openvino, polygraphy, worker_skew, idle_gap)
