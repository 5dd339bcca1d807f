"""Why artifacts are built as they are: neighbours, memory, and how a network is exported.

    python benchmarks/preparing.py COMMAND --help

The commands: preparing beside busy neighbours (busy), with the C library's memory kept (memory), and exporting with
operators in place (export).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import facts
from facts import publish

from edgescope.isolate import fresh
from edgescope.isolate.fresh import BUILDING
from edgescope.records import Json, Trial
from edgescope.stats import paired_log_ratio

BUSY = "while True: pass"


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep so many processes computing."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def seconds(trial: Trial, env: dict[str, str]) -> float:
    """Return how long one preparation takes from an empty cache, in an environment with `env` added."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"EDGESCOPE_CACHE": folder}),
        mock.patch.object(fresh, "BUILDING", env),
    ):
        begun = time.monotonic()
        if (failed := fresh.prepare(trial)) is not None:
            raise SystemExit(str(failed.reason))
        return time.monotonic() - begun


def busy() -> None:
    """How long references take beside other work: OpenMP's threads asleep while they wait, against spinning.

    `edgescope optimize` prepares a baseline before it measures: pictures are read and fp32 answers computed. Beside
    one endless loop for each core, pairs of preparations from an empty cache take turns, with the environment that
    edgescope gives them and with the usual one; `asleep_ratio` is of their times, usual over edgescope's. Target:
    above 1.

        python benchmarks/preparing.py busy [--pairs 4] [--model efficientnet_lite0]     8 minutes
    """
    parser = argparse.ArgumentParser(description=facts.summary(busy))
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--model", default="efficientnet_lite0")
    args = parser.parse_args()
    trial, cores = Trial(model=args.model), len(os.sched_getaffinity(0))
    usual = {name: value for name, value in fresh.BUILDING.items() if not name.startswith("OMP_")}
    arms = {"usual": usual, "asleep": dict(fresh.BUILDING)}
    took: dict[str, list[float]] = {name: [] for name in arms}
    with neighbours(cores):
        for number in range(args.pairs):
            for name in sorted(arms, reverse=bool(number % 2)):
                took[name].append(seconds(trial, arms[name]))
                print(f"pair {number} {name} {took[name][-1]:.1f} s", file=sys.stderr, flush=True)
    ratio = paired_log_ratio(took["usual"], took["asleep"])
    ends = {"lo": ratio.lo, "hi": ratio.hi} if ratio.reliable else {"absent": ratio.note}
    figures = {"model": args.model, "neighbours": cores, "seconds": took}
    publish(
        "preparing/busy",
        figures | {"asleep_ratio": {"value": ratio.value, "pairs": ratio.n, **ends}},
        met=ratio.reliable and ratio.lo > 1,
    )


ARMS = {
    "given back": {name: value for name, value in BUILDING.items() if not name.startswith("MALLOC_")},
    "kept": BUILDING,
}


def faults() -> int:
    """Return how many pages the system has cleared or mapped for this process's ended children."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def compared(model: str, pairs: int) -> dict[str, Json]:
    """Return the seconds and page faults of each arm's preparations, and the ratio of the seconds."""
    took: dict[str, list[float]] = {arm: [] for arm in ARMS}
    pages: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for number in range(pairs):
        for arm in sorted(ARMS, reverse=bool(number % 2)):
            before = faults()
            took[arm].append(seconds(Trial(model=model), ARMS[arm]))
            pages[arm].append(faults() - before)
            print(f"{model} pair {number} {arm} {took[arm][-1]:.1f} s", file=sys.stderr, flush=True)
    ratio = paired_log_ratio(took["given back"], took["kept"])
    ends = {"lo": ratio.lo, "hi": ratio.hi} if ratio.reliable else {"absent": ratio.note}
    return {
        "seconds": took,
        "faults": {arm: statistics.fmean(each) for arm, each in pages.items()},
        "given_back_ratio": {"value": ratio.value, "pairs": ratio.n, **ends},
    }


def memory() -> None:
    """How long fp32 references take where the C library keeps freed memory, against where it gives it back.

    Preparations of a network's baseline from an empty cache take turns in pairs, with the environment that edgescope
    gives them and with the C library's own settings; `given_back_ratio` is of their times, own settings over
    edgescope's. `faults` are the pages that the system cleared for one preparation, the mean of its runs. Target:
    above 1.

        python benchmarks/preparing.py memory [--pairs 6] [--models efficientnet_lite0,resnet50]     6 minutes
    """
    parser = argparse.ArgumentParser(description=facts.summary(memory))
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--models", default="efficientnet_lite0,resnet50")
    args = parser.parse_args()
    found = {model: compared(model, args.pairs) for model in args.models.split(",")}
    publish(
        "preparing/memory",
        {"models": found},
        met=all(each["given_back_ratio"].get("lo", 0) > 1 for each in found.values()),
    )


WAYS = ("in_place", "out_of_place", "seldom")
NETWORKS = {"efficientnet_lite0": "ReLU6", "mobilenet_v2": "ReLU6", "resnet50": "ReLU"}


def once(name: str, way: str) -> dict[str, Any]:
    """Return the seconds that one export takes, and how often each operator is in the file."""
    import onnx

    from edgescope.artifacts import onnx_export_torch as exporter
    from edgescope.bench.child import SELDOM
    from edgescope.models import zoo

    model = zoo.get(name)
    net = exporter.Net(model.module().eval(), model.inputs)
    if way == "seldom":
        gc.set_threshold(*SELDOM)
    as_it_is = mock.patch.object(exporter, "_out_of_place", lambda net: contextlib.nullcontext())
    with tempfile.TemporaryDirectory() as folder, as_it_is if way == "in_place" else contextlib.nullcontext():
        path, begun = Path(folder) / "net.onnx", time.perf_counter()
        exporter._write(net, path, exporter.OPSET)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "operators": Counter(n.op_type for n in onnx.load(path).graph.node)}


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Return the seconds of each way, in a drawn order in each round, and the ratios of one way to the next."""
    found: dict[str, list[float]] = defaultdict(list)
    operators = []
    for number in range(rounds):
        for way in random.Random(number).sample(WAYS, len(WAYS)):
            command = [sys.executable, __file__, "export", "--once", name, way]
            told = json.loads(
                subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1]
            )
            found[way].append(told["seconds"])
            operators.append(told["operators"])
    ratios = {}
    for slow, fast in pairwise(WAYS):
        ratio = paired_log_ratio(found[slow], found[fast])
        ratios[f"{slow}_over_{fast}"] = {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi}
    alike = all(each == operators[0] for each in operators)
    return {"activation": NETWORKS[name], "same_operators": alike, "seconds": dict(found), **ratios}


def export() -> None:
    """How long the export of a network to ONNX takes: layers that overwrite their input, and collecting garbage.

    Three ways, each in fresh processes that take turns: `in_place` as the network is, `out_of_place` with the layers
    as edgescope exports them, and `seldom` with garbage collected as seldom as in edgescope's processes that build.
    The files must hold the same operators. Target: out of place is faster than in place for a network with ReLU6, and
    no slower for one with ReLU.

        python benchmarks/preparing.py export [--rounds 6]     12 minutes
    """
    parser = argparse.ArgumentParser(description=facts.summary(export))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--once", nargs=2, metavar=("NETWORK", "WAY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(once(*args.once)))
        return
    figures = {name: measured(name, args.rounds) for name in NETWORKS}
    gained = [(f["activation"], f["in_place_over_out_of_place"]) for f in figures.values()]
    faster = all(ratio["lo"] > 1 for kind, ratio in gained if kind == "ReLU6")
    no_slower = all(ratio["hi"] >= 1 for kind, ratio in gained if kind == "ReLU")
    publish(
        "preparing/export",
        figures,
        met=faster and no_slower and all(f["same_operators"] for f in figures.values()),
    )


if __name__ == "__main__":
    facts.chosen(busy, memory, export)
