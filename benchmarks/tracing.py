"""What a tracer takes of the speed that it watches: clean and traced windows of eager networks on a GPU, in turns.

    python benchmarks/tracing.py --json tracing.json

Each turn is a process of its own, since a tracer leaves its hooks behind: it measures clean windows, then windows under
one tracer, and the ratio of the two is the turn's. `none` has no tracer in its second half and shows what this machine
does by itself. `cupti_waits` has records of waits, which nothing needs and edgescope leaves out; `cupti_no_graphs` has
no records of whole CUDA graphs. `cupti_kernels` has no calls, so no launch counts and no queue delays.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from facts import page

from edgescope.analysis.kernels.gpu_time import launches
from edgescope.analysis.kernels.rows import Rows
from edgescope.records import Spans
from edgescope.wings.trace import cupti
from edgescope.wings.trace.tracers import KinetoTracer

NETWORKS = ("resnet50", "mobilenet_v2", "vit_b_16")
GOAL = 0.92
TURN_S, WINDOWS, WINDOW_S = 40.0, 6, 0.15
KERNELS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")
ARMS: dict[str, tuple[str, ...]] = {
    "none": (),
    "cupti": cupti.KINDS,
    "cupti_waits": (*cupti.KINDS, "SYNCHRONIZATION"),
    "cupti_no_graphs": (*KERNELS, "RUNTIME", "DRIVER"),
    "cupti_kernels": KERNELS,
    "kineto": (),
}
"""Arm -> the kinds of CUPTI records that it asks for."""


def rate(network: Any, image: Any, queries: int) -> float:
    """Queries per second, one after the other."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(queries):
        network(image)
        torch.cuda.synchronize()
    return queries / (time.perf_counter() - begin)


def tracer_of(arm: str) -> KinetoTracer | cupti.CuptiTracer | None:
    """The arm's tracer; the records that it asks for are set in this process."""
    if arm == "none":
        return None
    if ARMS[arm]:
        vars(cupti)["KINDS"] = ARMS[arm]
    return KinetoTracer() if arm == "kineto" else cupti.CuptiTracer()


def account(spans: Spans, queries: int) -> dict[str, Any]:
    """What the trace holds of one query."""
    found = launches(Rows(spans))
    joined = {"call": found.api, "queue": found.queue, "kernel": found.kernel} if found else {}
    kernels = spans.of_kind("kernel").columns
    return {
        "kernels": len(kernels["start_ns"]) / queries,
        "kernel_us": float(np.sum(kernels["end_ns"] - kernels["start_ns"])) / queries / 1e3,
        "launching_calls": found.api.count / queries if found else None,
        "median_us": {name: each.quantile_ns(0.5) / 1e3 for name, each in joined.items() if each.count},
    }


def turn(name: str, arm: str, answer: Any) -> None:
    """One process: clean windows, then the same under the arm's tracer."""
    import torch
    import torchvision

    torch.manual_seed(0)
    network = getattr(torchvision.models, name)().eval().cuda()
    image = torch.randn(1, 3, 224, 224, device="cuda")
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        rate(network, image, 100)
        queries = max(15, int(rate(network, image, 50) * WINDOW_S))
        clean = [rate(network, image, queries) for _ in range(WINDOWS)]
        tracer = tracer_of(arm)
        with tracer.window(Path(folder)) if tracer else nullcontext():
            under = [rate(network, image, queries) for _ in range(WINDOWS)]
        found = account(tracer.spans(Path(folder)), queries * WINDOWS) if tracer else {}
    ratio = statistics.median(under) / statistics.median(clean)
    gpu = torch.cuda.get_device_name()
    answer.put({"gpu": gpu, "clean_qps": clean, "traced_qps": under, "ratio": ratio, "a_query": found})


def one(name: str, arm: str) -> dict[str, Any]:
    """A turn's figures, or why there are none."""
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    process = context.Process(target=turn, args=(name, arm, answer))
    process.start()
    process.join(TURN_S)
    if process.is_alive():
        process.kill()
        return {"absent": f"the process did not end within {TURN_S:.0f} s"}
    return dict(answer.get()) if not answer.empty() else {"absent": f"it ended with {process.exitcode}"}


def middle(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The median ratio of an arm's turns with their least and largest, and one turn's account."""
    whole = [one for one in turns if "ratio" in one]
    if not whole:
        return {"absent": turns[-1]["absent"] if turns else "no turn"}
    ratios = sorted(one["ratio"] for one in whole)
    return {
        "ratio": statistics.median(ratios),
        "range": [ratios[0], ratios[-1]],
        "turns": len(ratios),
        "lost": len(turns) - len(whole),
        "clean_qps": statistics.median(statistics.median(one["clean_qps"]) for one in whole),
        "a_query": whole[-1]["a_query"],
    }


def figures(turns: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """The page: each network's arms."""
    names = {one["gpu"] for arms in turns.values() for each in arms.values() for one in each if "gpu" in one}
    return {
        "gpu": ", ".join(sorted(names)),
        "goal": GOAL,
        "networks": {name: {arm: middle(each) for arm, each in arms.items()} for name, arms in turns.items()},
        "turns": turns,
    }


def main() -> None:
    """Run the turns; the page is written after each round, so that what is cut off loses its end alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the page goes")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--arms", default=",".join(ARMS), help="some of them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=240.0, help="no turn begins after these")
    args = parser.parse_args()
    import torchvision  # noqa: F401  the turns are forks of this process, which is spared the import each time

    end = time.monotonic() + args.seconds
    turns: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for index in range(args.rounds):
        for name in args.networks.split(","):
            for arm in args.arms.split(",")[:: 1 if index % 2 else -1]:
                if time.monotonic() > end:
                    continue
                found = one(name, arm)
                turns.setdefault(name, {}).setdefault(arm, []).append(found)
                print(index, name, arm, found.get("ratio", found.get("absent")), flush=True)
        made = figures(turns)
        met = all(arms.get("cupti", {}).get("ratio", 0) >= GOAL for arms in made["networks"].values())
        args.json.write_text(json.dumps(page(made, met=met), indent=1) + "\n")


if __name__ == "__main__":
    main()
