"""OpenVINO on its CPU plugin, or on its GPU or NPU plugin where the driver of such a device is.

The CPU plugin's default precision is bf16 if the CPU has it, so the precision is always requested by name and read
back, node by node, from the compiled graph. int8 reads the same QDQ file as ONNX Runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import openvino as ov
from numpy.typing import NDArray

from edgescope import cache, registry
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
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model, TensorSpec, written
from edgescope.records import Effective, Place
from edgescope.wings.openvino import layers
from edgescope.wings.openvino.about import HINTS, AboutOpenVino

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
        self.profile = layers.Profile() if profile_folder() is not None else None

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
            if layers.text(info, "layerType") in HEAVY:
                kinds[layers.precision_of(info)] += 1
        devices = [str(d) for d in self.compiled.get_property("EXECUTION_DEVICES")]
        here = {d.partition(".")[0] for d in devices} == {self.place.called("openvino")}
        device = self.place.name if here else ",".join(devices).lower()
        threads = int(self.compiled.get_property("INFERENCE_NUM_THREADS")) if self.place.is_host else None
        if not kinds:
            hint = str(self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string())
            kind = layers.KERNELS.get(hint, hint)
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
        return layers.read(lambda: _compiled(artifact, settings), inputs, paths, LAYER_RUNS)


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
