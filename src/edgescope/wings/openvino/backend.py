"""OpenVINO on its CPU plugin, or on its GPU or NPU plugin where the driver of such a device is.

The CPU plugin's default precision is bf16 if the CPU has it, so the precision is always requested by name and read
back, node by node, from the compiled graph. int8 reads the same QDQ file as ONNX Runtime.

Layers are the executed nodes of the graph; their work is that of the file's nodes. A counter's `real_time` is the mean
over every inference since the model was compiled, in whole microseconds and over all requests. The first inference,
which lays out memory, stays in it for ever. Two readings tell what lies between:
(n * mean after n - w * mean after w) / (n - w).

`runtimePrecision` is the type of a node's first tensor: an int8 tensor may go into a kernel of fp32, and 16-bit
quantisation is dropped when the graph is compiled. The last part of `primitiveType` (`brgconv_avx512_f32`) is what the
kernel multiplies.
"""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import openvino as ov
from numpy.typing import NDArray

from edgescope import cache, registry
from edgescope.analysis.roofline import Layer
from edgescope.artifacts.for_precision import INT8_OPTIONS, int8_options, onnx_file, refuse, unreadable
from edgescope.artifacts.onnx_names import ModulePaths
from edgescope.backends.base import (
    LAYER_RUNS,
    Artifact,
    Spec,
    checked,
    counted,
    precision_of,
    profile_folder,
    threads_of,
)
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model, TensorSpec, written
from edgescope.records import Effective, Place
from edgescope.wings.openvino import HINTS, AboutOpenVino

#: Batches whose tensors a request keeps; the bench pool has fewer.
REMEMBERED = 16
#: Precision -> the capability of a plugin that it needs.
NEEDS = {"fp32": "FP32", "fp16": "FP16", "bf16": "BF16", "int8": "INT8", "as_is": "FP32"}
HEAVY = {"Convolution", "FullyConnected", "MatMul", "Deconvolution", "GroupConvolution", "Gemm"}


class _Request:
    """One infer request; arrays are wrapped in Tensors, and outputs looked up, once, not per call."""

    def __init__(self, compiled: Any, names: Sequence[str]) -> None:
        self.request, self.names = compiled.create_infer_request(), tuple(names)
        self.outputs = [self.request.get_output_tensor(i).data for i in range(len(compiled.outputs))]
        self.known: dict[int, tuple[Batch, list[Any]]] = {}

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        for index, tensor in enumerate(self._tensors(batch)):
            self.request.set_input_tensor(index, tensor)
        # not start_async and wait: on one thread infer() runs here, and the handover takes as long as a small network
        self.request.infer(None, share_inputs=True, share_outputs=True)
        return self.outputs

    def _tensors(self, batch: Batch) -> list[Any]:
        found = self.known.get(id(batch))
        if found is None or found[0] is not batch:
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            found = batch, [ov.Tensor(batch[name], shared_memory=True) for name in self.names]
            self.known[id(batch)] = found
        return found[1]


class OpenVinoSession:
    """One compiled model and an infer request for each query in flight; inputs are read in place."""

    def __init__(self, compiled: Any, names: Sequence[str], place: Place) -> None:
        self.compiled, self.names, self.place = compiled, tuple(names), place
        self.idle = [_Request(compiled, names)]
        self.profile = Profile() if profile_folder() is not None else None

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs; each call borrows a request, so threads do not share one."""
        try:
            request = self.idle.pop()
        except IndexError:
            request = _Request(self.compiled, self.names)
        outputs = request(batch)
        if self.profile is not None:
            self.profile.note(request.request)
        self.idle.append(request)
        return outputs

    def effective(self) -> Effective:
        """Return the precision of most heavy nodes of the compiled graph, and their device."""
        kinds: Counter[str] = Counter()
        for node in self._nodes():
            info = node.get_rt_info()
            if node_text(info, "layerType") in HEAVY:
                kinds[node_precision(info)] += 1
        devices = [str(d) for d in self.compiled.get_property("EXECUTION_DEVICES")]
        here = {d.partition(".")[0] for d in devices} == {self.place.called("openvino")}
        device = self.place.name if here else ",".join(devices).lower()
        threads = int(self.compiled.get_property("INFERENCE_NUM_THREADS")) if self.place.is_host else None
        if not kinds:
            hint = str(self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string())
            kind = KERNELS.get(hint, hint)
            return Effective(device, kind, threads, "precision hint; no heavy node in the graph")
        evidence = f"compiled graph: {counted(kinds)} heavy nodes, by their kernels"
        return Effective(device, precision_of(kinds), threads, evidence + self._rounded(kinds))

    def _nodes(self) -> Sequence[Any]:
        """Return the nodes of the compiled graph; UnsupportedError from a plugin that shows none."""
        try:
            nodes: Sequence[Any] = self.compiled.get_runtime_model().get_ordered_ops()
        except RuntimeError as error:
            raise UnsupportedError(
                "E-OV-3",
                f"OpenVINO's {self.place.called('openvino')} plugin shows no compiled graph",
                evidence=str(error)[:200],
                effect="Which precision it computed in is not known, so there is no number",
                fix="--device cpu",
            ) from error
        return nodes

    def _rounded(self, kinds: Mapping[str, int]) -> str:
        """Return what happens to activations beside weights of fewer bits: the hint of fp32 does not prevent it."""
        group = int(self.compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE"))
        if "int4" not in kinds or not group:
            return ""
        return f"; activations may be rounded to int8 in groups of {group} (the plugin's own choice)"

    def close(self) -> None:
        """Drop requests and graph; write the counters if a profile was asked for."""
        if self.profile is not None and (folder := profile_folder()) is not None:
            self.profile.write(self.idle[0].request, folder / "engine.csv")
        self.idle.clear()
        del self.compiled


class OpenVino(AboutOpenVino):
    """openvino: fp32, bf16 if the CPU has it, and int8; fp16 on a GPU or an NPU."""

    OPTIONS: ClassVar[dict[str, str]] = {
        "threads": "on cpu: inference threads (all cores)",
        "streams": "execution streams (1)",
        **INT8_OPTIONS,
    }

    @staticmethod
    def usable(device: str) -> None:
        """Raise UnavailableError if OpenVINO finds no such device."""
        name = registry.place(device).called("openvino")
        found = [str(each) for each in ov.Core().available_devices]
        if name not in {each.partition(".")[0] for each in found}:
            raise UnavailableError(
                "E-OV-2",
                f"OpenVINO finds no {name} here",
                evidence=f"it finds {', '.join(found) or 'no device'}",
                effect="Nothing was measured",
                fix="install the device's driver, or --device cpu",
            )

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the ONNX file for the precision; OpenVINO compiles it when it loads."""
        checked("openvino", spec, self.OPTIONS)
        if threads_of(spec) and not spec.place.is_host:
            raise UsageError("E-OPT-4", "threads: only on the CPU", fix="--device cpu")
        self.usable(spec.device)
        name = spec.place.called("openvino")
        able = [str(c) for c in ov.Core().get_property(name, "OPTIMIZATION_CAPABILITIES")]
        has = self.PRECISIONS.get(spec.device, tuple(NEEDS))
        if (spec.precision not in has or NEEDS.get(spec.precision) not in able) and not written(model):
            where = "this CPU" if spec.place.is_host else f"this {spec.place.word}"
            raise refuse("openvino", spec.precision, f"the {name} plugin offers {', '.join(able)}", where)
        path = onnx_file(model, spec.precision, folder, **int8_options(spec.options, spec.precision))
        made = cache.notes(path)
        return Artifact(model, spec, path, cache.content(path), made.get("build_s"), {"made": made})

    def load(self, artifact: Artifact) -> OpenVinoSession:
        """Return a session compiled for the fixed batch and the requested precision."""
        compiled = _compiled(artifact, _settings(artifact.spec))
        return OpenVinoSession(compiled, [i.name for i in artifact.model.inputs], artifact.spec.place)

    def layers(self, artifact: Artifact, batch: Batch) -> Sequence[Layer]:
        """Return the time, FLOPs and bytes of every executed node, from the plugin's performance counters."""
        settings = {**_settings(artifact.spec), "PERF_COUNT": "YES"}
        assert artifact.path is not None
        inputs = [batch[i.name] for i in artifact.model.inputs]
        paths = ModulePaths(artifact.path, artifact.spec.batch)
        return layer_times(lambda: _compiled(artifact, settings), inputs, paths, LAYER_RUNS)


def _compiled(artifact: Artifact, settings: dict[str, Any]) -> Any:
    """Return the artifact's graph compiled for its fixed batch."""
    core = ov.Core()
    try:
        graph = core.read_model(str(artifact.path))
        graph.reshape(_shapes(graph, artifact.model.inputs, artifact.spec))
        return core.compile_model(graph, artifact.spec.place.called("openvino"), settings)
    except RuntimeError as error:
        raise unreadable("E-OV-1", "OpenVINO", artifact.path, error) from error


def _settings(spec: Spec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": HINTS.get(spec.precision, "f32"),
        "NUM_STREAMS": str(spec.options.get("streams", 1)),
    }
    if (threads := threads_of(spec)) is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    if profile_folder() is not None:
        settings["PERF_COUNT"] = True
    return settings


def _shapes(graph: Any, inputs: Sequence[TensorSpec], spec: Spec) -> dict[str, list[int]]:
    by_name = {i.name: i for i in inputs}
    return {port.any_name: [spec.batch, *by_name[port.any_name].shape] for port in graph.inputs}


KERNELS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8"}
WEIGHTS = {"i4": "int4", "u4": "int4", "nf4": "int4", "f4e2m1": "fp4", "u2": "int2"}
"""Types that weights have in memory alone: the kernel, named after the type of its products, unpacks them."""


WARM = 2
"""Inferences before the first reading."""


ROUNDS = 5
"""Times the graph is compiled anew: the counters are means since then, so only that gives several times."""


def layer_times(compiled: Callable[[], Any], inputs: Any, paths: ModulePaths, runs: int) -> list[Layer]:
    """Return the nodes that a request executes, with the median of ROUNDS times, each the mean of `runs` inferences.

    `compiled` compiles the graph anew, with counters.
    """
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        graph = compiled()
        for name, seconds in means(graph.create_infer_request(), inputs, runs).items():
            times.setdefault(name, []).append(seconds)
    nodes = {node.get_friendly_name(): node for node in graph.get_runtime_model().get_ordered_ops()}
    return [_layer(nodes[name], name, seen, paths) for name, seen in times.items() if name in nodes]


def _layer(node: Any, name: str, seen: list[float], paths: ModulePaths) -> Layer:
    info = node.get_rt_info()
    names = [part for part in node_text(info, "originalLayersNames").split(",") if part] or [name]
    parts = list(dict.fromkeys(paths.of(part) for part in names))  # a node may stand there twice
    first = next((part for part in parts if part.flops), parts[0])
    moved = sum(prod(_shape(port)) * _width(port) for port in (*node.inputs(), *node.outputs()))
    return Layer(
        first.path,
        node_text(info, "layerType"),
        statistics.median(seen),
        flops=sum(part.flops for part in parts),
        bytes=round(moved),
        precision=node_precision(info),
        grouped=first.depthwise,
        times=tuple(seen),
    )


def _shape(port: Any) -> list[int]:
    shape = port.get_partial_shape()
    return list(shape.to_shape()) if shape.is_static else [0]


def _width(port: Any) -> float:
    return float(port.get_element_type().bitwidth) / 8


def node_precision(info: Any) -> str:
    """Return the precision of a node, by the information that the runtime model holds about it."""
    if (packed := WEIGHTS.get(node_text(info, "runtimePrecision"))) and node_text(
        info, "layerType"
    ) == "FullyConnected":
        return packed
    kernel = node_text(info, "primitiveType").rpartition("_")[2].lower()
    return KERNELS.get(kernel, kernel or "unknown")


def node_text(info: Any, key: str) -> str:
    """Return one entry of a node's information as text, '' if it has none."""
    value = info[key] if key in info else ""  # noqa: SIM401  (an RTMap has no get)
    return str(getattr(value, "value", value))


def executed(rows: Sequence[Any]) -> dict[str, float]:
    """Return the mean time in seconds of every executed node in a request's profile."""
    return {r.node_name: r.real_time.total_seconds() for r in rows if str(r.status).endswith("EXECUTED")}


def between(before: Mapping[str, float], w: int, after: Mapping[str, float], n: int) -> dict[str, float]:
    """Return each node's mean over the inferences after the w-th up to the n-th; never below 0 (means are rounded)."""
    return {name: max(0.0, (n * mean - w * before.get(name, 0.0)) / (n - w)) for name, mean in after.items()}


class Profile:
    """The counters of a session: what its first WARM inferences left in the means is taken out of them."""

    def __init__(self) -> None:
        self.n, self.warm = 0, dict[str, float]()

    def note(self, request: Any) -> None:
        """Count an inference that has just ended; after the WARM-th read the means."""
        self.n += 1
        if self.n == WARM:
            self.warm = executed(request.get_profiling_info())

    def write(self, request: Any, path: Path) -> None:
        """Write each layer's mean time over the inferences after the first ones, in benchmark_app's format."""
        rows = request.get_profiling_info()
        found = executed(rows)
        if self.n > WARM:
            found = between(self.warm, WARM, found, self.n)
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(("layerName", "execStatus", "layerType", "execType", "realTime (ms)"))
            for row in rows:
                time = found.get(row.node_name, 0.0) * 1e3
                writer.writerow((row.node_name, str(row.status), row.node_type, row.exec_type, time))


def means(request: Any, inputs: Any, runs: int) -> dict[str, float]:
    """Return each executed node's mean over `runs` inferences of a request on a model compiled just before."""
    for _ in range(WARM):
        request.infer(inputs)
    warm = executed(request.get_profiling_info())
    for _ in range(runs):
        request.infer(inputs)
    return between(warm, WARM, executed(request.get_profiling_info()), WARM + runs)
