"""ONNX Runtime's TensorRT provider: TensorRT engines inside an ONNX Runtime session.

The provider builds an engine for every part of the graph that TensorRT takes and leaves the rest to CUDA. `prepare`
builds them into a separate folder, so that a cache is never read by another version, GPU or setting, and records the
outcome. Three silent failures are prevented: a provider that cannot start is an error and not a session on another one
(`enable_fallback=0`); nodes that only the CPU has are an error (`session.disable_cpu_ep_fallback`); and fp32 means
fp32: TensorRT uses tf32 by default and the provider has no switch, so NVIDIA_TF32_OVERRIDE=0 is set for this process.

By default the provider reports neither the nodes that it took nor their precision. A profiled run names the provider of
every node that ran; TensorRT's own build log, enabled with `trt_detailed_build_log`, ends in one line per layer of the
engine with the types it reads and writes:

    Layer(CaskConvolution): conv1 + relu1, Tactic: 0x4727, input[Half(1,3,224,224)] -> output[Half(1,64,112,112)]

Both come from the session that builds the engines, and are stored with them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgescope import cache, registry
from edgescope.artifacts.for_precision import TENSORRT_INT8_OPTIONS, onnx_file, refuse
from edgescope.backends import cudart
from edgescope.backends.base import Artifact, Session, Spec, checked, counted, precision_of
from edgescope.backends.ort import cuda as _ort_cuda
from edgescope.backends.ort.about import AboutOrtTensorrt
from edgescope.errors import ModelError, UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Model
from edgescope.onnx_operators import HEAVY, KINDS
from edgescope.records import Effective, Json, digest
from edgescope.wings.tensorrt import about, engine_file, layers

PROVIDER = "TensorrtExecutionProvider"
NO_LIBRARIES = "Please install TensorRT libraries"
"""What ONNX Runtime says where it cannot load TensorRT (seen with onnxruntime-gpu 1.31.1)."""
LOGGED_LAYER = re.compile(r"Layer\((?P<kind>[^)]+)\): (?P<name>.*?), Tactic: \S*,(?P<flow>.*)$")
LOGGED_TENSOR = re.compile(r"\[(?P<type>[A-Za-z0-9]+)\([-\d, :]*\)\]")
#: TensorRT's name for a type in that log -> the engine inspector's name, which wings/tensorrt/layers.py reads.
TYPES = {"Half": "FP16", "Float": "FP32", "Int8": "INT8", "BFloat16": "BF16", "FP8": "FP8"}
VERSION = 1  # raise this when engines must be built again
TF32_SWITCH = "NVIDIA_TF32_OVERRIDE"
OPTIONS = {
    "workspace_mb": "scratch memory kernels may use (the provider's own choice)",
    "dla": "number of the DLA core to build for (none)",
    "graph": "capture the engines in a CUDA graph (false)",
    "profile_min": "smallest batch the engines take (the batch)",
    "profile_opt": "batch they are tuned for (the batch)",
    "profile_max": "largest batch they take (the batch)",
    "builder_level": "0 to 5, how long to look for kernels (the provider's own choice)",
    "min_subgraph": "fewest nodes that are worth an engine (1)",
    "fp16_beside_int8": "with int8: layers that are not may run in fp16 (true)",
    **TENSORRT_INT8_OPTIONS,
}
_WHOLE = {
    "workspace_mb": 1,
    "dla": 0,
    "profile_min": 1,
    "profile_opt": 1,
    "profile_max": 1,
    "builder_level": 0,
    "min_subgraph": 1,
}


class OrtTensorrt(AboutOrtTensorrt):
    """ort_tensorrt: fp32, tf32, fp16, bf16 and int8 (QDQ, symmetric) on a CUDA device."""

    OPTIONS: ClassVar[dict[str, str]] = OPTIONS

    @staticmethod
    def usable(device: str) -> None:
        """Raise UnavailableError if this ONNX Runtime was built without the provider."""
        _require()

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the ONNX file, after the provider has built its engines and reported which nodes it took."""
        spec = about.for_tensorrt(model, spec, folder)
        _check(checked("ort_tensorrt", spec, self.OPTIONS))
        _pin_tf32(spec)
        _require()
        cuda = cudart.runtime()
        about.require("ort_tensorrt", spec.precision, cuda.compute_capability(), cuda.device_name())
        path = _file(model, spec, folder)
        content = cache.content(path)
        place, sidecar = _place([content, model.info.digest], spec)
        report = cache.read_json(sidecar)
        if report is None or not any(place.glob("*.engine")):
            report = _built(path, model, spec, place)
            cache.write_json(sidecar, report)
        _took_something(path, report)
        notes = {"made": cache.notes(path), "engines": str(place), "tensorrt": report}
        return Artifact(model, spec, path, content, report["build_s"], notes)

    def load(self, artifact: Artifact) -> Session:
        """Return a session over the engines that `prepare` built."""
        return OrtTensorrtSession(artifact)


class OrtTensorrtSession(_ort_cuda.OrtCudaSession):
    """One InferenceSession with fixed buffers, as on the CUDA provider; calls are serialised by a lock."""

    def __init__(self, artifact: Artifact, runtime: cudart.CudaRuntime | None = None) -> None:
        super().__init__(artifact, _options(artifact.spec), runtime)

    def _open(self, artifact: Artifact, options: Any) -> Any:
        assert artifact.path is not None
        place = Path(artifact.notes["engines"])
        chain = providers(artifact.model, artifact.spec, place, stream=self.stream)
        return opened(artifact.path, options, chain)

    def _pinned(self, port: Any, artifact: Artifact) -> NDArray[Any]:
        shape = [self.spec.batch if i == 0 and n == "N" else n for i, n in enumerate(port.shape)]
        return super()._pinned(_Port(port.name, shape, port.type), artifact)

    def effective(self) -> Effective:
        """Return the precision of the operators in TensorRT; operators outside count with the type they ran in."""
        report = self.notes["tensorrt"]
        outside: Counter[str] = Counter()
        for operator, n in report["outside"].items():
            outside[operator.split(" ")[1]] += n
        present = self.session.get_providers()
        ran, evidence = Counter(report["kinds"]), _evidence(report)
        if not ran:
            return Effective(_device(present), self._requested(outside), None, evidence)
        precision = precision_of(ran + outside)
        tf32 = precision == "fp32" and os.environ.get(TF32_SWITCH) != "0"
        return Effective(_device(present), "tf32" if tf32 else precision, None, evidence)

    def _requested(self, outside: Mapping[str, int]) -> str:
        """Return the requested precision, if the log lists no layers and nothing heavy ran outside TensorRT."""
        return f"mixed ({counted(outside)} outside TensorRT)" if outside else self.spec.precision


class _Port:
    """An input or output with its batch closed."""

    def __init__(self, name: str, shape: list[Any], kind: str) -> None:
        self.name, self.shape, self.type = name, shape, kind


def providers(
    model: Model, spec: Spec, place: Path, *, stream: int = 0, log: bool = False
) -> list[tuple[str, dict[str, str]]]:
    """Return the providers with their options: TensorRT with its caches in `place`, CUDA for the rest."""
    options = {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(place),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(cache.folder("ort_tensorrt") / f"timing-{digest(_here())}"),
        "trt_fp16_enable": _bit(spec.precision == "fp16" or _beside(spec)),
        "trt_int8_enable": _bit(spec.precision == "int8"),
        "trt_cuda_graph_enable": _bit(spec.options.get("graph") and not log),
        "trt_detailed_build_log": _bit(log),
        **_profile(model, spec),
    }
    if spec.precision == "bf16":
        options["trt_bf16_enable"] = "1"
    for name, key, factor in (
        ("workspace_mb", "trt_max_workspace_size", 1 << 20),
        ("builder_level", "trt_builder_optimization_level", 1),
        ("min_subgraph", "trt_min_subgraph_size", 1),
        ("dla", "trt_dla_core", 1),
    ):
        if name in spec.options:
            options[key] = str(int(spec.options[name]) * factor)
    if "dla" in spec.options:
        options["trt_dla_enable"] = "1"
    if stream:
        options["user_compute_stream"] = str(stream)
    plain = Spec(spec.precision, spec.batch)  # TensorRT captures graphs and chooses layouts itself
    return [(PROVIDER, options), _ort_cuda.provider(plain, stream)]


def opened(path: Path, options: Any, chain: list[tuple[str, dict[str, str]]]) -> Any:
    """Return a session on exactly these providers; ModelError with the runtime's text, never another provider."""
    try:
        session = ort.InferenceSession(str(path), options, providers=chain, enable_fallback=0)
    except Exception as error:  # the runtime's exceptions share no base class
        said = " ".join(str(error).split())
        if NO_LIBRARIES in said:
            raise _dropped(said[said.index(NO_LIBRARIES) :][:200]) from error
        raise ModelError(
            "E-ORTTRT-1",
            f"ONNX Runtime's TensorRT provider cannot run {path.name}",
            evidence=said[:300],
            effect="Another provider in its place would be another engine's number",
            fix="--backend onnxruntime --device cuda; the versions of onnxruntime-gpu and TensorRT must match",
        ) from error
    if PROVIDER not in session.get_providers():
        raise _dropped(f"the session has {', '.join(session.get_providers())}")
    return session


def _dropped(evidence: str) -> UnavailableError:
    return UnavailableError(
        "E-ORTTRT-2",
        "ONNX Runtime dropped its TensorRT provider",
        evidence=evidence,
        effect="The number would be another provider's",
        fix="install the TensorRT that this onnxruntime-gpu was built for, its lib folder in LD_LIBRARY_PATH",
    )


def _check(spec: Spec) -> None:
    if spec.precision not in (able := OrtTensorrt.PRECISIONS["cuda"]):
        raise refuse("ort_tensorrt", spec.precision, f"it has {', '.join(able)}", "a CUDA device")
    for name, least in _WHOLE.items():
        about.whole(spec, name, least)
    for name in ("graph", "fp16_beside_int8"):
        about.switch(spec, name)
    least, usual, most = _batches(spec)
    if not least <= usual <= most or not least <= spec.batch <= most:
        raise UsageError(
            "E-ORTTRT-5",
            f"batch {spec.batch} does not lie in the profile {least}, {usual}, {most}",
            fix="profile_min <= profile_opt <= profile_max, with --batch among them",
        )
    if "dla" in spec.options and spec.precision not in ("fp16", "int8"):
        raise refuse(
            "ort_tensorrt", spec.precision, "a DLA core computes in fp16 and int8 only", "a DLA core"
        )


def _require() -> None:
    _ort_cuda.require(PROVIDER, "E-ORTTRT-3", "onnxruntime-gpu tensorrt")


def _file(model: Model, spec: Spec, folder: Path) -> Path:
    if spec.precision == "int8":
        return onnx_file(model, "int8", folder, **about.int8_recipe(model, spec))
    return onnx_file(model, "fp16" if spec.precision == "fp16" else "fp32", folder)


def _place(content: list[str], spec: Spec) -> tuple[Path, Path]:
    """Return the folder of the engines for these settings on this machine, and the file that describes them.

    `content` is the digest of the ONNX file and of the model: external weights are not part of the file.
    """
    asked = [VERSION, *content, spec.precision, spec.batch, dict(spec.options), _here()]
    place = cache.made(cache.folder("ort_tensorrt") / digest(asked))
    return place, place / "told.json"


def _here() -> list[Json]:
    """Return the versions and hardware facts on which engines and kernel timings depend."""
    cuda = cudart.runtime()
    device = engine_file.gpu(cuda.device_name())
    return [
        ort.__version__,
        registry.version("tensorrt") or "not from pip",
        device,
        cuda.compute_capability(),
    ]


def _built(path: Path, model: Model, spec: Spec, place: Path) -> dict[str, Json]:
    """Build the engines; return seconds, heavy layers by precision, and the facts of a profiled run."""
    options = _options(spec)
    options.enable_profiling = True
    options.profile_file_prefix = str(place / "profile")
    log: list[str] = []
    start = time.perf_counter()
    with standard_error(log):
        session = opened(path, options, providers(model, spec, place, log=True))
        feeds = {
            i.name: np.zeros((spec.batch, *i.shape[1:]), _ort_cuda.dtype(i.type))
            for i in session.get_inputs()
        }
        report = profiled(session, feeds)
    return report | {"build_s": round(time.perf_counter() - start, 3), "kinds": kinds(log[0])}


def _took_something(path: Path, report: Mapping[str, Json]) -> None:
    if not report["providers"].get(PROVIDER):
        raise UnsupportedError(
            "E-ORTTRT-4",
            f"TensorRT takes no node of {path.name}",
            evidence=f"a profiled run: {_counts(report['providers'])}",
            effect="All of it would run on another provider under TensorRT's name",
            fix="--backend onnxruntime --device cuda, or --option min_subgraph=1",
        )


def _options(spec: Spec) -> Any:
    _pin_tf32(spec)  # a session may be loaded without a prepare in this process
    options = ort.SessionOptions()
    options.log_severity_level = 2
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if len(set(_batches(spec))) == 1:
        options.add_free_dimension_override_by_name("N", spec.batch)
    return options


def _pin_tf32(spec: Spec) -> None:
    """Switch tf32 off for every NVIDIA library of this process unless it was requested; they read it when they load."""
    if spec.precision == "tf32":
        os.environ.pop(TF32_SWITCH, None)
    else:
        os.environ[TF32_SWITCH] = "0"


def _batches(spec: Spec) -> tuple[int, int, int]:
    least, usual, most = (int(spec.options.get(f"profile_{n}", spec.batch)) for n in ("min", "opt", "max"))
    return least, usual, most


def _profile(model: Model, spec: Spec) -> dict[str, str]:
    """Return the smallest, usual and largest shapes of the engines, each as `name:1x3x224x224,other:1x10`."""
    report = {}
    for word, batch in zip(("min", "opt", "max"), _batches(spec), strict=True):
        shapes = (f"{i.name}:{'x'.join(map(str, (batch, *i.shape)))}" for i in model.inputs)
        report[f"trt_profile_{word}_shapes"] = ",".join(shapes)
    return report


def _beside(spec: Spec) -> bool:
    return spec.precision == "int8" and bool(spec.options.get("fp16_beside_int8", True))


def _bit(value: object) -> str:
    return "1" if value else "0"


def _device(present: list[str]) -> str:
    return "cuda" if PROVIDER in present else present[0]


def _evidence(report: Mapping[str, Json]) -> str:
    text = f"profiled run: {_counts(report['providers'])}"
    if report["outside"]:
        text += f"; heavy operators outside TensorRT: {_counts(report['outside'])}"
    if report["kinds"]:
        return f"{text}; TensorRT's build log: {counted(report['kinds'])} heavy layers"
    return f"{text}; precision as requested: TensorRT's build log lists no layers"


def _counts(found: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{n} {name}" for name, n in sorted(found.items(), key=lambda item: -item[1])) or "nothing"
    )


def engine_layers(log: str) -> list[dict[str, Json]]:
    """Return the engine's layers in a build log, in the form of the engine inspector; [] if it lists none."""
    found = [match for line in log.splitlines() if (match := LOGGED_LAYER.search(line))]
    return [
        {"LayerType": m["kind"], "Name": m["name"], "Inputs": _tensors(m["flow"].partition("->")[0])}
        for m in found
    ]


def _tensors(text: str) -> list[dict[str, Json]]:
    return [{"Format/Datatype": TYPES.get(m["type"], m["type"])} for m in LOGGED_TENSOR.finditer(text)]


def kinds(log: str) -> dict[str, int]:
    """Return {precision: heavy layers of the engine}, or {} if the log does not list them."""
    return dict(layers.of(engine_layers(log)).kinds)


def nodes(events: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """Return the counts of a profile: {"providers": {provider: nodes that ran}, "outside": {"Conv fp32 CUDA...": n}}.

    `outside` are the heavy operators that TensorRT did not take, with their type and provider.
    """
    ran = [e["args"] for e in events if e.get("cat") == "Node" and "provider" in e.get("args", {})]
    ran = [args for args in ran if "output_type_shape" in args]
    outside = [a for a in ran if a["provider"] != PROVIDER and a.get("op_name") in HEAVY]
    return {
        "providers": dict(Counter(a["provider"] for a in ran)),
        "outside": dict(Counter(f"{a['op_name']} {_type(a)} {a['provider']}" for a in outside)),
    }


def _type(arguments: Mapping[str, Any]) -> str:
    outputs = arguments["output_type_shape"]
    kind = next(iter(outputs[0]), "?") if outputs else "?"
    return KINDS.get(kind, kind)


def profiled(session: Any, feeds: Mapping[str, Any]) -> dict[str, Json]:
    """Return `nodes` of one run of a session that was opened with profiling on; its file is removed."""
    session.run(None, dict(feeds))
    path = Path(session.end_profiling())
    try:
        return nodes(json.loads(path.read_text()))
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def standard_error(taken: list[str]) -> Iterator[None]:
    """Append to `taken`, as one text, everything written to standard error within the block, also by C++.

    The build log is some tens of megabytes; if the block raises, the log's end is written to standard error.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            os.dup2(kept, 2)
            file.seek(max(0, file.tell() - 4000))
            sys.stderr.write(file.read().decode(errors="replace"))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            taken.append(file.read().decode(errors="replace"))
