"""Each engine on the board: it loads, its outputs are those of the fp32 network, and it ran where it was told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from edgescope import registry
from edgescope.process import scratch_folder
from edgescope.records import Absent, Json, Measured, Result, Status, Trial
from edgescope.units import text
from edgescope.wings.verify_board import check
from edgescope.wings.verify_board.check import Outcome, judged, unsupported
from edgescope.wings.verify_board.site import Site

NETWORK = "squeezenet1_1"
"""What runs where this Python has PyTorch to export it; elsewhere a small network of the same operators, as a file.

Its weights are random, and its answers have a size that fp16 holds. Those of MobileNetV2 lie at 1e-9, below the least
number of fp16, so no fp16 could be right.
"""
SECONDS = 2.0
FIGURES = (
    "latency_p50_s",
    "throughput_sps",
    "power_w",
    "energy_per_sample_j",
    "peak_rss_bytes",
    "unified_memory_bytes",
)
ENDED = (Status.OK, Status.UNSTABLE)
"""Statuses with figures: a machine that others use makes a latency unstable, and says nothing of the engine."""
LOADS = ("torch_eager", "trtexec", "onnxruntime", "tensorrt")
"""Engines that may load the GPU, in the order in which they are tried."""
BUSY = ("gpu_busy", "gpu0_busy")
RISE, LEAST_BUSY = 1.02, 0.05
"""Times the power at rest, and share of the time, that a GPU must show which computes all the time."""
NOT_HERE = Status.UNSUPPORTED


def engine(site: Site, backend: str, precisions: Sequence[str] = ("fp32",)) -> Outcome:
    """Run the network in an engine in each precision, on the GPU where there is one and the engine can use it."""
    places = registry.BACKENDS[backend].devices
    device = "cuda" if "cuda" in places and site.has_gpu() else "cpu"
    with network() as model:
        trial = Trial(model=model, backend=backend, device=device, warmup=0.2, min_s=SECONDS, max_s=SECONDS)
        results = {p: site.trial(dataclasses.replace(trial, precision=p)) for p in precisions}
    return _outcome(results, device)


def energy_gpu(site: Site) -> Outcome:
    """Load the GPU with the first engine that works: its meter must rise, and its load be seen."""
    refused: list[str] = []
    for backend in LOADS:
        with network() as model:
            trial = Trial(
                model=model, backend=backend, device="cuda", batch=8, warmup=0.5, min_s=4.0, max_s=4.0
            )
            result = site.trial(dataclasses.replace(trial, idle_s=4.0))
        if result.status in ENDED:
            return _risen(result)
        refused.append(f"{backend}: {result.reason or result.status.value}")
    return unsupported(f"no engine loads the GPU: {'; '.join(refused)}"[:400])


def _risen(result: Result) -> Outcome:
    """Judge a result that has idle stretches: its watts under load beside those at rest, and the load of the GPU."""
    names = ("power_w", "idle_power_w")
    watts, rest = (result.metrics.get(name, Absent("not measured")) for name in names)
    busy = next((v for name in BUSY if (v := _mean(result, name)) is not None), None)
    evidence = facts(result) | {"gpu_busy": busy, "idle_power_w": _figure(rest)}
    if not isinstance(watts, Measured) or not isinstance(rest, Measured):
        return unsupported(next(f.reason for f in (watts, rest) if isinstance(f, Absent)), evidence)
    wrong = (
        []
        if watts.value > rest.value * RISE
        else [f"{watts.value:.2f} W under load, {rest.value:.2f} W at rest"]
    )
    wrong += [] if busy is None or busy > LEAST_BUSY else [f"its load reads {busy:.0%} while it computes"]
    meter = result.meter.name if result.meter else "a meter"
    seen = "its load is not read" if busy is None else f"load {busy:.0%}"
    return judged(
        wrong, f"{meter}: {rest.value:.1f} W at rest, {watts.value:.1f} W under load; {seen}", evidence
    )


@contextmanager
def network() -> Iterator[str]:
    """Yield the name of the network, or the path of a file that lives as long as the block."""
    if find_spec("torch") and find_spec("torchvision"):
        yield NETWORK
        return
    with scratch_folder("network") as folder:
        yield str(written(Path(folder) / "small.onnx"))


def written(path: Path) -> Path:
    """Write a small network: a convolution, a ReLU, a mean over the picture and a product; return its path."""
    from edgescope.registry import need

    make = need("onnx.helper:make_model", "a network as a file", "pip install 'edgescope[onnx]'")
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    shapes = {"kernel": (16, 3, 3, 3), "head": (16, 10)}
    weights = [
        numpy_helper.from_array(rng.normal(size=shape, scale=0.2).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    steps = (
        ("Conv", ["picture", "kernel"], "a"), ("Relu", ["a"], "b"), ("GlobalAveragePool", ["b"], "c"),
        ("Flatten", ["c"], "d"), ("MatMul", ["d", "head"], "scores"),
    )  # fmt: skip
    nodes = [helper.make_node(kind, given, [out]) for kind, given, out in steps]
    value = helper.make_tensor_value_info
    ends = [
        [value("picture", TensorProto.FLOAT, ["N", 3, 64, 64])],
        [value("scores", TensorProto.FLOAT, ["N", 10])],
    ]
    graph = helper.make_graph(nodes, "small", *ends, weights)
    save(make(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


def _outcome(results: Mapping[str, Result], device: str) -> Outcome:
    """Judge the results by precision: what is unsupported in all of them is, else nothing may fail."""
    evidence: dict[str, Json] = {p: facts(result) for p, result in results.items()}
    missing = [r for r in results.values() if r.status is NOT_HERE]
    if len(missing) == len(results):
        return unsupported(str(missing[0].reason or "it says no reason"), evidence)
    wrong = [f"{p}: {why}" for p, r in results.items() if r.status is not NOT_HERE and (why := _wrong(r))]
    done = {p: r.metrics.get("latency_p50_s") for p, r in results.items() if r.status in ENDED}
    words = [f"{p} {text(f.value, 's')}" for p, f in done.items() if isinstance(f, Measured)]
    outcome = judged(wrong, f"on {device}: {', '.join(words)}; outputs verified", evidence)
    if outcome.status is check.Status.HOLDS and missing:
        left = ", ".join(p for p, r in results.items() if r.status is NOT_HERE)
        return dataclasses.replace(outcome, says=f"{outcome.says}; not supported: {left}")
    return outcome


def _wrong(result: Result) -> str:
    """Return what is wrong with a result that is not unsupported, or ''."""
    if result.status not in ENDED:
        return str(result.reason or result.status.value)
    if result.verification is None or not result.verification.passed:
        detail = result.verification.detail if result.verification else str(result.unverified or "not judged")
        return f"its outputs are not verified: {detail}"
    found, trial = result.effective, result.trial
    if found is not None and (found.device, found.precision) != (trial.device, trial.precision):
        return f"it ran on {found.device} in {found.precision}"
    return ""


def facts(result: Result) -> dict[str, Json]:
    """Return what a result says of its engine: status, figures, where it ran, what its outputs are."""
    found: dict[str, Json] = {
        "model": Path(result.trial.model).name,
        "status": result.status.value,
        "reason": str(result.reason or ""),
        "verdict": [result.verdict.trust.value, *result.verdict.evidence[:3]],
        "figures": {n: _figure(result.metrics[n]) for n in FIGURES if n in result.metrics},
        "meter": result.meter.name if result.meter else None,
    }
    if result.effective is not None:
        found["effective"] = dataclasses.asdict(result.effective)
    if result.verification is not None:
        found["verified"] = {"passed": result.verification.passed, "detail": result.verification.detail}
    if result.readings is not None:
        found["sensors"] = {n: v for n in (*BUSY, "gpu_clock_hz") if (v := _mean(result, n)) is not None}
    return found


def _figure(field: Measured | Absent) -> Json:
    return field.value if isinstance(field, Measured) else {"absent": field.reason}


def _mean(result: Result, channel: str) -> float | None:
    """Return the mean of a channel within the measured window, or None."""
    if result.readings is None or result.window is None:
        return None
    t_ns, values = result.readings.series(channel)
    inside = (t_ns >= result.window.start_ns) & (t_ns <= result.window.stop_ns)
    return float(values[inside].mean()) if inside.any() else None
