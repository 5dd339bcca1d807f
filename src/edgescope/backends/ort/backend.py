"""ONNX Runtime on its CPU provider, or on its CUDA provider (backends/ort/cuda.py).

fp32 runs the exported file; int8 runs a QDQ file, whose quantise/dequantise pairs the CPU provider fuses into integer
kernels. On a CPU fp16 and bf16 files are refused, because the runtime casts them back to fp32; on CUDA int8 is
refused, because that provider computes in fp32 between the pairs. The label would be false. The operators that really
run are read from the graph that the runtime optimised (CPU) or from a profiled run (CUDA), once, when the artifact is
prepared.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

import onnxruntime as ort
from numpy.typing import NDArray

from edgescope import cache, registry
from edgescope.artifacts.for_precision import DYNAMIC_OPTIONS, int8_options, onnx_file, refuse, unreadable
from edgescope.backends import cudart
from edgescope.backends.base import (
    LAYER_RUNS,
    Artifact,
    Session,
    Spec,
    checked,
    choice,
    counted,
    flag,
    precision_of,
    profile_folder,
    threads_of,
)
from edgescope.backends.ort import cuda, plugin
from edgescope.backends.ort.about import AboutOrt
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model, written
from edgescope.onnx_operators import HEAVY, computes_in
from edgescope.process import scratch_folder
from edgescope.records import Effective, Json
from edgescope.records import digest as record_digest

if TYPE_CHECKING:
    from edgescope.analysis.roofline import Layer

BETWEEN = "product of activations"
"""Counted apart: attention multiplies activations by each other, and int8 is said of what has weights."""
COUNTED = 3  # raise this when operators are counted otherwise


class OrtSession:
    """One InferenceSession; inputs and outputs are numpy arrays on the host."""

    def __init__(self, session: Any, artifact: Artifact) -> None:
        self.session, self.artifact = session, artifact
        self.run = session.run

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs in the file's order."""
        return cast(Sequence[NDArray[Any]], self.run(None, batch))

    def effective(self) -> Effective:
        """Return the provider in use and the precision of the heavy operators in the optimised graph."""
        providers = self.session.get_providers()
        ops: Counter[str] = Counter(self.artifact.notes.get("executed_ops", {}))
        between, kinds = ops.pop(BETWEEN, 0), Counter[str]()
        for operator, n in ops.items():
            name, _, kind = operator.partition(" ")
            if name in HEAVY:
                kinds[kind or computes_in(name, "float")] += n
        kinds = kinds or Counter({"fp32": 0})
        threads = (
            self.session.get_session_options().intra_op_num_threads or None
        )  # 0: the runtime's own choice, which it does not report
        device = "cpu" if providers[0] == "CPUExecutionProvider" else str(providers[0])
        others = f", {between} fp32 products of two activations" if between else ""
        evidence = f"{providers[0]}; optimised graph: {counted(kinds)} heavy operators{others}"
        if set(kinds) - {"fp32", "int8", "fp16"}:
            evidence += (
                "; activations beside packed weights may be rounded to int8 (the runtime's own choice)"
            )
        return Effective(device, precision_of(kinds), threads, evidence)

    def close(self) -> None:
        """Drop the session; the runtime frees its arena, and writes its profile if it was asked for one."""
        if profile_folder() is not None:
            written = Path(self.session.end_profiling())
            start = self.session.get_profiling_start_time_ns()
            written.with_name(written.name + ".start").write_text(str(start))
        del self.run, self.session


class OnnxRuntime(AboutOrt):
    """onnxruntime: fp32 and int8 on the CPU provider."""

    OPTIONS: ClassVar[dict[str, str]] = {
        "threads": "intra-op threads (its own choice; under an affinity mask as many as that allows)",
        **DYNAMIC_OPTIONS,
        "layout": "on cuda: contiguous or channels_last (contiguous)",
        "graph": "on cuda: capture the kernels in a CUDA graph (false)",
        **plugin.OPTIONS,
    }

    @staticmethod
    def usable(device: str) -> None:
        """Raise UnavailableError if this build has no provider of its own for the device."""
        place = registry.place(device)
        if place.cuda:
            cuda.require()
        elif not place.is_host:
            raise UnavailableError(
                "E-EP-1",
                f"ONNX Runtime reaches the {place.word} by the provider of a package only",
                fix=f"--device {device} --option provider=NAME, where NAME is that of onnxruntime-ep-NAME",
            )

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the ONNX file for the precision, with the operators that the runtime will execute."""
        checked("onnxruntime", spec, self.OPTIONS)
        threads_of(spec)
        if plugin.wanted(spec):
            return _provided(model, spec, folder)
        if not (spec.place.is_host or spec.place.cuda):
            self.usable(spec.device)
        _check(replace(spec, precision="fp32") if written(model) else spec)
        path = onnx_file(model, spec.precision, folder, **int8_options(spec.options, spec.precision))
        made, digest = cache.notes(path), cache.content(path)
        notes: dict[str, Json] = {"made": made, "axes": _axes(path, digest, model, spec.batch)}
        if spec.place.cuda:
            notes["executed_cuda"] = _remembered_cuda(path, digest, model, spec, notes["axes"])
        else:
            notes["executed_ops"] = _remembered(path, digest)
        return Artifact(model, spec, path, digest, made.get("build_s"), notes)

    def load(self, artifact: Artifact) -> Session:
        """Return a session with every open axis fixed."""
        options = _options(artifact.spec, artifact.notes["axes"])
        if plugin.wanted(artifact.spec):
            return plugin.ProvidedSession(artifact, options)
        if artifact.spec.place.cuda:
            return cuda.OrtCudaSession(artifact, options)
        return OrtSession(_open(artifact.path, options), artifact)

    def layers(self, artifact: Artifact, batch: Batch) -> Sequence[Layer]:
        """Return the time, FLOPs and bytes of every operator of the optimised graph, from a profiled run."""
        if artifact.spec.place.cuda or plugin.wanted(artifact.spec):
            raise UnsupportedError(
                "E-LAYER-1",
                "onnxruntime tells no times of the device for its operators",
                effect="Nothing was measured",
                fix="its own CPU provider, or --backend torch_eager",
            )
        assert artifact.path is not None
        from edgescope.artifacts.onnx_names import (
            ModulePaths,  # with onnx: a measured process has no need of it
        )
        from edgescope.backends.ort import layers

        paths = ModulePaths(artifact.path, artifact.spec.batch)
        options = _options(artifact.spec, artifact.notes["axes"])
        with scratch_folder("ort-profile") as folder:
            options.enable_profiling = True
            options.profile_file_prefix = f"{folder}/profile"
            session = _open(artifact.path, options)
            for _ in range(LAYER_RUNS + 1):
                session.run(None, batch)
            return layers.read(Path(session.end_profiling()), paths)


def _provided(model: Model, spec: Spec, folder: Path) -> Artifact:
    """Return the fp32 file, which a plug-in provider computes in the precision that it is asked for."""
    if spec.precision not in plugin.TOLD_APART or written(model):
        why = "what a plug-in provider computes in is read from its answers, which tell floats apart only"
        raise refuse("onnxruntime", spec.precision, why, "a plug-in provider", "--precision fp32")
    path = onnx_file(model, "fp32", folder)
    made, digest = cache.notes(path), cache.content(path)
    axes = _axes(path, digest, model, spec.batch)
    seen = plugin.witnessed(path, spec, lambda: _options(spec, axes), cuda.shapes(model, spec))
    notes: dict[str, Json] = {"made": made, "axes": axes, "provided": seen}
    return Artifact(model, spec, path, digest, made.get("build_s"), notes)


def _check(spec: Spec) -> None:
    """Raise an error for a precision or an option that this provider does not have."""
    asked = {
        "graph": flag(spec, "graph"),
        "layout": choice(spec, "layout", cuda.LAYOUTS) != "contiguous",
    }
    on_cuda = [name for name, value in asked.items() if value]
    if spec.place.is_host:
        if on_cuda:
            raise UsageError("E-OPT-4", f"{', '.join(on_cuda)}: only on a CUDA device", fix="--device cuda")
        if spec.precision not in ("fp32", "int8", "as_is"):
            raise refuse("onnxruntime", spec.precision, "its CPU kernels cast 16-bit floats to fp32")
    elif spec.precision not in ("fp32", "tf32", "fp16", "as_is"):
        why = "the CUDA provider has no integer kernels: between QDQ pairs it computes in fp32"
        if spec.precision == "bf16":
            why = "the CUDA provider has no bf16 convolution"
        raise refuse("onnxruntime", spec.precision, why, "its CUDA provider", "--precision fp32 or fp16")
    else:
        cuda.able(spec)


def _axes(path: Path, digest: str, model: Model, batch: int) -> dict[str, int]:
    """Return the size of each named open axis of the file, without names that would need two sizes."""
    known = cache.folder("ort") / f"{digest}-axes.json"
    named = cache.read_json(known)
    if named is None:
        named = _named(path)
        cache.write_json(known, named)
    sizes: dict[str, set[int]] = {}
    for given in model.inputs:
        for axis, size in zip(named.get(given.name, ()), (batch, *given.shape), strict=False):
            sizes.setdefault(axis, set()).add(size)
    return {axis: min(found) for axis, found in sizes.items() if axis and len(found) == 1}


def _named(path: Path) -> Json:
    """Return the names of each input's axes, '' for an axis that is closed or unnamed."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return {i.name: [axis.dim_param for axis in i.type.tensor_type.shape.dim] for i in graph.input}


def _options(spec: Spec, axes: Mapping[str, int]) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads_of(spec) or _allowed()
    for axis, size in axes.items():
        options.add_free_dimension_override_by_name(axis, size)
    options.log_severity_level = 3
    if (folder := profile_folder()) is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(folder / "engine")
    return options


def _allowed() -> int:
    """Return how many CPUs the affinity mask allows, or 0 (the runtime's choice) if it allows all.

    By default the runtime starts a thread for each core of the machine and pins it there, even outside the mask.
    """
    allowed = len(os.sched_getaffinity(0))
    return allowed if allowed < (os.cpu_count() or 1) else 0


def _open(path: Path | None, options: Any) -> Any:
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no base class
        raise unreadable("E-ONNX-1", "ONNX Runtime", path, error) from error


def _remembered(path: Path, digest: str) -> Json:
    """Return `_executed(path)`, computed once per file and version of the runtime."""
    note = cache.folder("ort") / f"{digest}-{ort.__version__}-{COUNTED}.json"
    if not note.is_file():
        cache.write_json(note, _executed(path))
    return json.loads(note.read_text())


def _remembered_cuda(path: Path, digest: str, model: Model, spec: Spec, axes: Mapping[str, int]) -> Json:
    """Return the operators of a profiled run on the CUDA provider, done once per file, version, settings and GPU."""
    shapes = cuda.shapes(model, spec)
    gpu = [cudart.runtime().device_name(), cudart.runtime().compute_capability()]
    layout = choice(spec, "layout", cuda.LAYOUTS)
    asked = [digest, ort.__version__, spec.precision, layout, sorted(shapes.items()), *gpu]
    note = cache.folder("ort") / f"cuda-{record_digest(asked)}.json"
    if not note.is_file():
        cache.write_json(note, cuda.executed(path, spec, _options(spec, axes), shapes))
    return json.loads(note.read_text())


def _executed(path: Path) -> Json:
    """Return {operator: count} of the graph after the runtime's own optimisation; BETWEEN is an operator of its own.

    An operator that computes in another precision than its name says has that behind it: `Conv fp16`.
    """
    import onnx

    target = cache.folder("ort") / f"optimised-{os.getpid()}.onnx"
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    try:
        _open(path, options)
        graph = onnx.load(str(target), load_external_data=False).graph
        return dict(_counted(graph))
    finally:
        for leftover in (target, Path(f"{target}.data")):
            leftover.unlink(missing_ok=True)


def _counted(graph: Any, around: Mapping[str, int] = MappingProxyType({})) -> Counter[str]:
    """Return the operators of a graph and of the graphs inside it, which read the weights stored `around` them."""
    stored = {**around, **{tensor.name: tensor.data_type for tensor in graph.initializer}}
    makers = {name: node for node in graph.node for name in node.output}
    found = Counter(_kind(node, stored, makers) for node in graph.node)
    for attribute in (a for node in graph.node for a in node.attribute):
        for inner in (attribute.g, *attribute.graphs):
            found += _counted(inner, stored)
    return found


def _kind(node: Any, stored: Mapping[str, int], makers: Mapping[str, Any]) -> str:
    """Return a node's operator and precision, or BETWEEN for a product of activations: no weights to be rounded."""
    kept = [stored[name] for name in node.input if name in stored]
    if node.op_type not in ("MatMul", "FusedMatMul", "TransposeMatMul"):
        return _labelled(node, kept)
    for name in node.input:
        while name in makers and makers[name].op_type in (
            "DequantizeLinear",
            "Transpose",
            "Cast",
            "Identity",
            "Reshape",
        ):
            name = makers[name].input[0]  # noqa: PLW2901
        if name in stored or (name in makers and makers[name].op_type == "Constant"):
            return _labelled(node, kept)
    return BETWEEN


def _labelled(node: Any, kept: Sequence[int]) -> str:
    """Return `Conv`, `Conv fp16` or `MatMulNBits int4`; `kept` are the types of the tensors that the file stores."""
    from onnx import TensorProto

    bits = next((attribute.i for attribute in node.attribute if attribute.name == "bits"), 0)
    element = TensorProto.DataType.Name(kept[0]).lower() if kept else "float"
    usual, precision = computes_in(node.op_type, "float"), computes_in(node.op_type, element, bits)
    plain = node.op_type not in HEAVY or (precision == usual and not bits)
    return str(node.op_type) if plain else f"{node.op_type} {precision}"
