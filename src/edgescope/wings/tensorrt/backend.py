"""TensorRT in this process, through its official Python API, versions 8.5 to 11.

`prepare` builds an engine from the ONNX file and keeps it, with a sidecar, under a name made of everything that
affects it (engine_file.py); `load` deserialises it. Up to TensorRT 10 the builder's flags set fp16 and int8, in 11 the
ONNX file does; both are read back from the engine's own layers. int8 is a QDQ file, symmetric, never a calibration
cache. A precision without kernels on the GPU is refused.

A build that hangs in TensorRT 8 cannot be stopped from inside; the trial's time-out in the parent process ends it.

Polygraphy is not used: its loaders would shorten the building, but not the running. They have no pinned or
device-resident inputs, no capture and no device events, allocate in their runner and time themselves. They hide the
version differences that are handled and tested here, and every old board would need an old release.

`Options` holds a trial's options besides precision and batch, checked before anything is built.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import tensorrt as trt
from numpy.typing import NDArray

from edgescope import cache
from edgescope.artifacts import onnx_export
from edgescope.artifacts.for_precision import TENSORRT_INT8_OPTIONS, onnx_file, refuse
from edgescope.backends import cudart
from edgescope.backends.base import Artifact, Phases, Spec, checked
from edgescope.errors import DeviceError, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model
from edgescope.records import Effective, Json
from edgescope.wings.tensorrt import about, build, engine_file
from edgescope.wings.tensorrt import api_types as types
from edgescope.wings.tensorrt import layers as _trt_layers
from edgescope.wings.tensorrt.engine_file import EngineFacts
from edgescope.wings.tensorrt.execution import Lane, open_io

OPTIONS = {
    "workspace_mb": "scratch memory kernels may use (all)",
    "dla": "number of the DLA core to build for, the GPU runs the rest (none)",
    "graph": "launch as a CUDA graph (false)",
    "profile_min": "smallest batch the engine takes (the batch)",
    "profile_opt": "batch it is tuned for (the batch)",
    "profile_max": "largest batch it takes (the batch)",
    "timing_cache": "keep kernel timings between builds (true)",
    "builder_level": "0 to 5, how long to look for kernels; TensorRT 8.6 and later (3)",
    "build_timeout": "seconds a build may take; TensorRT 10 and later (none)",
    **TENSORRT_INT8_OPTIONS,
}


@dataclass(frozen=True)
class Options:
    """A trial's options, read and checked."""

    workspace_mb: int | None
    dla: int | None
    graph: bool
    profile: tuple[int, int, int]
    timing_cache: bool
    builder_level: int | None
    build_timeout: float | None

    @classmethod
    def of(cls, spec: Spec) -> Options:
        """Return the options of a spec; UsageError for a wrong value, UnsupportedError for one of a later TensorRT."""
        checked("tensorrt", spec, OPTIONS)
        least, usual, most = (
            about.whole(spec, f"profile_{name}", 1) or spec.batch for name in ("min", "opt", "max")
        )
        if not least <= usual <= most or not least <= spec.batch <= most:
            raise UsageError(
                "E-TRT-15",
                f"need profile_min <= profile_opt <= profile_max around the batch, not {least}, {usual}, {most}",
                evidence=f"batch {spec.batch}",
            )
        options = cls(
            about.whole(spec, "workspace_mb", 1),
            about.whole(spec, "dla", 0),
            about.switch(spec, "graph"),
            (least, usual, most),
            about.switch(spec, "timing_cache", True),
            about.whole(spec, "builder_level", 0),
            about.whole(spec, "build_timeout", 1),
        )
        for name, since in (
            ("builder_level", types.OPTIMISATION_LEVEL),
            ("build_timeout", types.PROGRESS_MONITOR),
        ):
            if getattr(options, name) is not None and since > types.VERSION:
                raise UnsupportedError(
                    "E-TRT-16",
                    f"TensorRT {types.FULL_VERSION} has no {name}",
                    evidence=f"it came with {'.'.join(map(str, since))}",
                    effect="The trial would name an option that has no effect",
                    fix="leave the option out"
                    + ("; --timeout bounds the trial" if name == "build_timeout" else ""),
                )
        return options


class TensorRtSession:
    """One deserialised engine and a context for each query in flight."""

    def __init__(self, engine: Any, runtime: Any, artifact: Artifact, log: types.Log) -> None:
        self.engine, self.runtime, self.artifact, self.log = engine, runtime, artifact, log
        self.cuda = cudart.runtime()
        self.graph = Options.of(artifact.spec).graph
        self.idle = [self._lane()]
        self.owned = False
        """Whether output arrays are the caller's own."""

    def _lane(self) -> Lane:
        return Lane(self.cuda, open_io(self.engine, self.log), self.artifact.spec.io, self.graph)

    def _another(self) -> Lane:
        """Return a lane for one more query in flight; UnsupportedError if this TensorRT allows no second context."""
        try:
            return self._lane()
        except DeviceError as error:
            if types.VERSION >= types.PROFILE_SHARING:
                raise
            raise UnsupportedError(
                "E-TRT-14",
                f"TensorRT {types.FULL_VERSION} runs one query at a time on an engine with open axes",
                evidence=error.evidence,
                effect="Every second query in flight would fail",
                fix="--in-flight 1, an ONNX file with a closed batch axis, or TensorRT 8.6",
            ) from error

    def lanes(self, n: int, batch: Batch, *, owned: bool = False) -> None:
        """Open a context for each of n queries in flight, and run each once, which captures its graph."""
        self.owned = owned
        self.idle += [self._another() for _ in range(n - len(self.idle))]
        for lane in self.idle:
            lane(batch)

    @contextmanager
    def _borrowed(self) -> Iterator[Lane]:
        """Yield a lane for exclusive use within the block."""
        try:
            lane = self.idle.pop()
        except IndexError:
            lane = self._another()
        try:
            yield lane
        finally:
            self.idle.append(lane)

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs; each call borrows a lane, so threads do not share one."""
        with self._borrowed() as lane:
            outputs = lane(batch)
            return [o.copy() if isinstance(o, np.ndarray) else o for o in outputs] if self.owned else outputs

    def phases(self, batch: Batch) -> Phases:
        """Answer one query with events between its steps; return nanoseconds."""
        with self._borrowed() as lane:
            return lane.phases(batch)

    def stage(self, batch: Batch) -> Batch:
        """Return the batch in pinned memory or on the device."""
        with self._borrowed() as lane:
            return batch if self.artifact.spec.io == "host" else lane.stage(batch)

    def fetch(self, outputs: Sequence[Any]) -> Sequence[NDArray[Any]]:
        """Return the outputs of a call on the host."""
        with self._borrowed() as lane:
            return lane.fetch(outputs)

    def effective(self) -> Effective:
        """Return the precision of the engine's heavy layers, as the engine reports it, and its GPU."""
        where = f"{self.cuda.device_name()} (compute capability {self.cuda.compute_capability()})"
        end = f"; TensorRT {types.FULL_VERSION} on {where}" + ("; in a CUDA graph" if self.graph else "")
        inspector = self.engine.create_engine_inspector()
        layers = _trt_layers.read(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
        return Effective("cuda", layers.precision(), None, layers.evidence() + end)

    def close(self) -> None:
        """Free contexts, memory and engine."""
        for lane in self.idle:
            lane.close()
        self.idle.clear()
        del self.engine, self.runtime


class TensorRt(about.AboutTensorRt):
    """tensorrt: fp32, tf32, fp16 and int8 on an NVIDIA GPU, and on its DLA cores."""

    OPTIONS: ClassVar[dict[str, str]] = OPTIONS

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the engine for this GPU and TensorRT, built once; UnsupportedError if it cannot be built."""
        spec = about.for_tensorrt(model, spec, folder)
        options = Options.of(spec)
        cuda = cudart.runtime()
        _require(spec, options, cuda.compute_capability(), engine_file.gpu(cuda.device_name()))
        opset = onnx_export.opset_for(types.FULL_VERSION)
        recipe = about.int8_recipe(model, spec)
        onnx = onnx_file(model, _file_precision(spec.precision), folder, opset=opset, **recipe)
        requested = _requested(model, spec, options, onnx)
        path = cache.made(folder) / engine_file.key(requested)
        facts = engine_file.cached(path, **_board()) or _built(path, requested, onnx, options)
        notes = {"engine": asdict(facts), "made": cache.notes(onnx)}
        return Artifact(model, spec, path, facts.sha256, facts.build_s, notes)

    def load(self, artifact: Artifact) -> TensorRtSession:
        """Return a session over the engine; UnsupportedError if it was built elsewhere."""
        assert artifact.path is not None
        log = types.Log()
        engine_file.check(artifact.path, **_board())
        trt.init_libnvinfer_plugins(log, "")
        runtime = trt.Runtime(log)
        if (dla := Options.of(artifact.spec).dla) is not None:
            cast(Any, runtime).DLA_core = dla
        engine: Any = runtime.deserialize_cuda_engine(artifact.path.read_bytes())
        if engine is None:
            raise DeviceError(
                "E-TRT-12",
                f"TensorRT cannot load {artifact.path.name}",
                evidence=log.last_errors(),
                fix=f"rm {shlex.quote(str(artifact.path))}*, then run it again: it is rebuilt",
            )
        return TensorRtSession(engine, runtime, artifact, log)


def _board() -> dict[str, str]:
    """Return the TensorRT version and GPU for which an engine must have been built to run here."""
    cuda = cudart.runtime()
    return {
        "tensorrt": types.FULL_VERSION,
        "compute_capability": cuda.compute_capability(),
        "device": engine_file.gpu(cuda.device_name()),
    }


def _requested(model: Model, spec: Spec, options: Options, onnx: Path) -> EngineFacts:
    """Return the required facts of the engine, before it is built."""
    board = _board()
    return EngineFacts(
        model=model.info.name,
        onnx_sha256=cache.content(onnx),
        tensorrt=board["tensorrt"],
        compute_capability=board["compute_capability"],
        program="tensorrt",
        precision=spec.precision,
        device=board["device"],
        flags={
            "model_digest": model.info.digest,  # covers external weights, which the ONNX file's hash leaves out
            "workspace_mb": options.workspace_mb,
            "dla": options.dla,
            "builder_level": options.builder_level,
            "timing_cache": options.timing_cache,
        },
        profile={
            tensor.name: [[batch, *tensor.shape] for batch in options.profile] for tensor in model.inputs
        },
    )


def _built(path: Path, requested: EngineFacts, onnx: Path, options: Options) -> EngineFacts:
    """Build the engine and keep it at `path`; return its facts."""
    kept = f"timings-{requested.tensorrt}-{requested.compute_capability}-{cache.safe(requested.device)}.cache"
    request = build.Request(
        onnx=onnx,
        precision=requested.precision,
        profile={name: _shapes(shapes) for name, shapes in requested.profile.items()},
        title=f"{requested.model} {requested.precision}",
        workspace_mb=options.workspace_mb,
        dla=options.dla,
        level=options.builder_level,
        timing_cache=cache.folder("tensorrt") / kept if options.timing_cache else None,
        timeout_s=options.build_timeout,
    )
    start = time.monotonic()
    plan, timings = build.build(request)
    told = {**requested.flags, "timings": timings}
    return engine_file.write(path, plan, replace(requested, flags=told, build_s=time.monotonic() - start))


def _shapes(shapes: Sequence[Sequence[int]]) -> tuple[types.Shape, types.Shape, types.Shape]:
    least, usual, most = (tuple(shape) for shape in shapes)
    return least, usual, most


def _file_precision(precision: str) -> str:
    """Return the precision of the ONNX file: fp32 up to TensorRT 10, whose builder lowers it; from 11 `precision`."""
    if precision == "int8":
        return "int8"
    return "fp16" if precision == "fp16" and types.VERSION >= types.STRONGLY_TYPED else "fp32"


def _require(spec: Spec, options: Options, capability: str, board: str) -> None:
    """Raise UnsupportedError for a device, precision or DLA core that does not exist here."""
    if not spec.place.cuda:
        raise UnsupportedError("E-TRT-1", f"TensorRT does not run on {spec.device}", fix="--device cuda")
    if spec.precision not in build.PRECISIONS:
        known = ", ".join(build.PRECISIONS)
        raise refuse("tensorrt", spec.precision, f"it is built for {known} here", where=board)
    about.require("tensorrt", spec.precision, capability, board)
    able = _platform(capability, board)
    if able.get(spec.precision) is False:
        why = f"TensorRT {types.FULL_VERSION} finds no fast {spec.precision} kernels on compute capability {capability}"
        raise refuse("tensorrt", spec.precision, why, where=f"this board ({board})")
    if options.dla is None:
        return
    if options.dla >= able["dla_cores"]:
        raise UnsupportedError(
            "E-TRT-13",
            f"there is no DLA core {options.dla} here",
            evidence=f"TensorRT {types.FULL_VERSION} finds {able['dla_cores']} on {board}",
            effect="All of it would run on the GPU under a DLA label",
            fix="leave --option dla out",
        )
    if spec.precision not in ("fp16", "int8"):
        raise refuse(
            "tensorrt", spec.precision, "a DLA core computes in fp16 and int8 only", where="a DLA core"
        )


def _platform(capability: str, board: str) -> Mapping[str, Json]:
    """Return the GPU's features, queried from TensorRT once, because that costs seconds and a builder's memory."""
    name = f"platform-{types.FULL_VERSION}-{capability}-{cache.safe(board)}.json"
    note = cache.folder("tensorrt") / name
    if not note.is_file():
        cache.write_json(note, build.platform())
    found: Mapping[str, Json] = json.loads(note.read_text())
    return found
