"""OpenVINO on its CPU plugin.

The plugin's default precision is bf16 if the CPU has it, so the precision is always requested by name and read
back, node by node, from the compiled graph. int8 reads the same QDQ file as ONNX Runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import openvino as ov
from numpy.typing import NDArray

from edgescope import cache
from edgescope.analysis.layers import Layer
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
from edgescope.backends.openvino import counters, layers, precision
from edgescope.backends.openvino.about import HINTS, AboutOpenVino
from edgescope.models.base import Batch, Model, TensorSpec, written
from edgescope.records import Effective

#: Batches whose tensors a request keeps; the bench pool has fewer.
REMEMBERED = 16
HEAVY = {"Convolution", "FullyConnected", "MatMul", "Deconvolution", "GroupConvolution"}


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

    def __init__(self, compiled: Any, names: Sequence[str]) -> None:
        self.compiled, self.names = compiled, tuple(names)
        self.idle = [_Request(compiled, names)]
        self.profile = counters.Profile() if profile_folder() is not None else None

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
        for node in self.compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            if precision.text(info, "layerType") in HEAVY:
                kinds[precision.of(info)] += 1
        devices = [str(d) for d in self.compiled.get_property("EXECUTION_DEVICES")]
        device = "cpu" if devices == ["CPU"] else ",".join(devices).lower()
        threads = int(self.compiled.get_property("INFERENCE_NUM_THREADS"))
        if not kinds:
            hint = str(self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string())
            kind = precision.KERNELS.get(hint, hint)
            return Effective(device, kind, threads, "precision hint; no heavy node in the graph")
        evidence = f"compiled graph: {counted(kinds)} heavy nodes, by their kernels"
        return Effective(device, precision_of(kinds), threads, evidence + self._rounded(kinds))

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
    """openvino: fp32, bf16 if the CPU has it, and int8."""

    OPTIONS: ClassVar[dict[str, str]] = {
        "threads": "inference threads (all cores)",
        "streams": "execution streams (1)",
        **INT8_OPTIONS,
    }

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the ONNX file for the precision; OpenVINO compiles it when it loads."""
        checked("openvino", spec, self.OPTIONS)
        threads_of(spec)
        able = [str(c) for c in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")]
        needs = {"fp32": "FP32", "bf16": "BF16", "int8": "INT8", "as_is": "FP32"}
        if needs.get(spec.precision) not in able and not written(model):
            raise refuse("openvino", spec.precision, f"the CPU plugin offers {', '.join(able)}")
        path = onnx_file(model, spec.precision, folder, **int8_options(spec.options, spec.precision))
        made = cache.notes(path)
        return Artifact(model, spec, path, cache.content(path), made.get("build_s"), {"made": made})

    def load(self, artifact: Artifact) -> OpenVinoSession:
        """Return a session compiled for the fixed batch and the requested precision."""
        compiled = _compiled(artifact, _settings(artifact.spec))
        return OpenVinoSession(compiled, [i.name for i in artifact.model.inputs])

    def layers(self, artifact: Artifact, batch: Batch) -> Sequence[Layer]:
        """Return the time, FLOPs and bytes of every executed node, from the plugin's performance counters."""
        settings = {**_settings(artifact.spec), "PERF_COUNT": "YES"}
        assert artifact.path is not None
        inputs = [batch[i.name] for i in artifact.model.inputs]
        paths = ModulePaths(artifact.path, artifact.spec.batch)
        return layers.read(lambda: _compiled(artifact, settings), inputs, paths, LAYER_RUNS)


def _compiled(artifact: Artifact, settings: dict[str, Any]) -> Any:
    """Return the artifact's graph compiled for its fixed batch."""
    core = ov.Core()
    try:
        graph = core.read_model(str(artifact.path))
        graph.reshape(_shapes(graph, artifact.model.inputs, artifact.spec))
        return core.compile_model(graph, "CPU", settings)
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
