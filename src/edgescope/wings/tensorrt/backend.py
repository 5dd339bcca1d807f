"""TensorRT in this process, through its official Python API, versions 8.5 to 11, and TensorRT-RTX.

`prepare` builds an engine from the ONNX file and keeps it, with a sidecar, under a name made of everything that
affects it (engine_file.py); `load` deserialises it. Up to TensorRT 10 the builder's flags set fp16 and int8, in 11 the
ONNX file does; both are read back from the engine's own layers. int8 is a QDQ file, symmetric, never a calibration
cache. A precision without kernels on the GPU is refused.

A build that hangs in TensorRT 8 cannot be stopped from inside; the trial's time-out in the parent process ends it.

Polygraphy is not used: its loaders would shorten the building, but not the running. They have no pinned or
device-resident inputs, no capture and no device events, allocate in their runner and time themselves. They hide the
version differences that are handled and tested here, and every old board would need an old release.

`Options` holds a trial's options besides precision and batch, checked before anything is built.
`Target` is the GPU that an engine is built for: this machine's, or one that is named where the library builds without
it. What that GPU cannot do is refused before anything is exported or built.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.artifacts import onnx_export
from edgescope.artifacts.for_precision import TENSORRT_INT8_OPTIONS, onnx_file, refuse
from edgescope.backends import cudart
from edgescope.backends.base import Artifact, Phases, Spec, checked, counted, precision_of
from edgescope.errors import DeviceError, UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model
from edgescope.records import Effective, Json
from edgescope.wings.tensorrt import about, build, engine_file, library
from edgescope.wings.tensorrt import api_types as types
from edgescope.wings.tensorrt import layers as _trt_layers
from edgescope.wings.tensorrt.engine_file import EngineFacts
from edgescope.wings.tensorrt.execution import Lane, open_io
from edgescope.wings.tensorrt.library import FULL_VERSION, trt

OPTIONS = {
    "workspace_mb": "scratch memory kernels may use (all)",
    "dla": "number of the DLA core to build for, the GPU runs the rest (none)",
    "compute_capability": "build for a GPU that is not here, as 8.6; TensorRT-RTX (this machine's)",
    "graph": "launch as a CUDA graph (false)",
    "profile_min": "smallest batch the engine takes (the batch)",
    "profile_opt": "batch it is tuned for (the batch)",
    "profile_max": "largest batch it takes (the batch)",
    "timing_cache": "keep kernel timings between builds (true; TensorRT-RTX has none)",
    "builder_level": "0 to 5, how long to look for kernels; TensorRT 8.6 and later (3)",
    "build_timeout": "seconds a build may take; TensorRT 10 and later (none)",
    **TENSORRT_INT8_OPTIONS,
}


@dataclass(frozen=True)
class Options:
    """A trial's options, read and checked."""

    workspace_mb: int | None
    dla: int | None
    compute_capability: str | None
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
            _capability(spec),
            about.switch(spec, "graph"),
            (least, usual, most),
            about.switch(spec, "timing_cache", True),
            about.whole(spec, "builder_level", 0),
            about.whole(spec, "build_timeout", 1),
        )
        for name, since in (
            ("builder_level", library.OPTIMISATION_LEVEL),
            ("build_timeout", library.PROGRESS_MONITOR),
        ):
            if getattr(options, name) is not None and since > library.API:
                raise _without(name, f"it came with {'.'.join(map(str, since))}")
        if library.IS_RTX and spec.options.get("timing_cache"):
            raise _without("timing_cache", "the library itself says that it does nothing there")
        return options


def _without(name: str, evidence: str) -> UnsupportedError:
    return UnsupportedError(
        "E-TRT-16",
        f"TensorRT {library.FULL_VERSION} has no {name}",
        evidence=evidence,
        effect="The trial would name an option that has no effect",
        fix="leave the option out" + ("; --timeout bounds the trial" if name == "build_timeout" else ""),
    )


def _capability(spec: Spec) -> str | None:
    """Return the named compute capability, which a command line reads as a number."""
    value = spec.options.get("compute_capability")
    if value is None:
        return None
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d+\.\d", text):
        raise UsageError("E-OPT-2", f"compute_capability must be as 8.6, not {value!r}")
    return text


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
            if library.API >= library.PROFILE_SHARING:
                raise
            raise UnsupportedError(
                "E-TRT-14",
                f"TensorRT {library.FULL_VERSION} runs one query at a time on an engine with open axes",
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
        end = f"; TensorRT {library.FULL_VERSION} on {where}" + ("; in a CUDA graph" if self.graph else "")
        inspector = self.engine.create_engine_inspector()
        layers = _trt_layers.read(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
        heavy = self.artifact.notes["engine"]["flags"].get("heavy")
        if not layers.kinds and heavy:
            told = f"; the network it was built from, whose types it keeps: {counted(heavy)} heavy layers"
            return Effective("cuda", precision_of(heavy), None, layers.evidence() + told + end)
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
        if not spec.place.cuda:
            raise UnsupportedError("E-TRT-1", f"TensorRT does not run on {spec.device}", fix="--device cuda")
        goal = target_of(options.compute_capability)
        _require(spec, options.dla, goal)
        opset = onnx_export.opset_for(".".join(map(str, library.API)))
        recipe = about.int8_recipe(model, spec)
        onnx = onnx_file(model, _file_precision(spec.precision), folder, opset=opset, **recipe)
        requested = _requested(model, spec, options, onnx, goal)
        path = cache.made(folder) / engine_file.key(requested)
        facts = engine_file.cached(path, **asdict(goal)) or _built(path, requested, onnx, options)
        notes = {"engine": asdict(facts), "made": cache.notes(onnx)}
        return Artifact(model, spec, path, facts.sha256, facts.build_s, notes)

    def load(self, artifact: Artifact) -> TensorRtSession:
        """Return a session over the engine; UnsupportedError if it was built elsewhere."""
        assert artifact.path is not None
        options, log = Options.of(artifact.spec), types.fresh_log()
        board = loading_on(options.compute_capability, str(artifact.path))
        engine_file.check(artifact.path, **asdict(board))
        trt.init_libnvinfer_plugins(log, "")
        runtime = trt.Runtime(log)
        if options.dla is not None:
            cast(Any, runtime).DLA_core = options.dla
        engine: Any = runtime.deserialize_cuda_engine(artifact.path.read_bytes())
        if engine is None:
            raise DeviceError(
                "E-TRT-12",
                f"TensorRT cannot load {artifact.path.name}",
                evidence=log.last_errors(),
                fix=f"rm {shlex.quote(str(artifact.path))}*, then run it again: it is rebuilt",
            )
        return TensorRtSession(engine, runtime, artifact, log)


def _requested(model: Model, spec: Spec, options: Options, onnx: Path, goal: Target) -> EngineFacts:
    """Return the required facts of the engine, before it is built."""
    return EngineFacts(
        model=model.info.name,
        onnx_sha256=cache.content(onnx),
        program="tensorrt",
        precision=spec.precision,
        **asdict(goal),
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
    version, device = cache.safe(requested.tensorrt), cache.safe(requested.device)
    kept = f"timings-{version}-{requested.compute_capability}-{device}.cache"
    request = build.Request(
        onnx=onnx,
        precision=requested.precision,
        profile={name: _shapes(shapes) for name, shapes in requested.profile.items()},
        title=f"{requested.model} {requested.precision}",
        workspace_mb=options.workspace_mb,
        dla=options.dla,
        compute_capability=requested.compute_capability,
        level=options.builder_level,
        timing_cache=cache.folder("tensorrt") / kept if options.timing_cache else None,
        timeout_s=options.build_timeout,
    )
    start = time.monotonic()
    made = build.build(request)
    told = {**requested.flags, "timings": made.timings, "heavy": made.heavy}
    facts = replace(requested, flags=told, build_s=time.monotonic() - start)
    return engine_file.write(path, made.plan, facts)


def _shapes(shapes: Sequence[Sequence[int]]) -> tuple[types.Shape, types.Shape, types.Shape]:
    least, usual, most = (tuple(shape) for shape in shapes)
    return least, usual, most


def _file_precision(precision: str) -> str:
    """Return the precision of the ONNX file: fp32 up to TensorRT 10, whose builder lowers it; from 11 `precision`."""
    if precision == "int8":
        return "int8"
    return "fp16" if precision == "fp16" and library.API >= library.STRONGLY_TYPED else "fp32"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The TensorRT and the GPU that decide whether an engine may run, as engine_file.check() takes them."""

    tensorrt: str
    compute_capability: str
    device: str
    """Name of the GPU and its board; '' of a named one, which need not be here."""


def _this_gpu() -> Target:
    """Return this machine's; DeviceError or UnavailableError if there is no GPU that CUDA can use."""
    cuda = cudart.runtime()
    return Target(
        tensorrt=FULL_VERSION,
        compute_capability=cuda.compute_capability(),
        device=engine_file.gpu(cuda.device_name()),
    )


def target_of(named: str | None) -> Target:
    """Return the target of the option `compute_capability`, None where it is not given.

    UnsupportedError if this TensorRT does not build for it, or does not run on this machine's GPU.
    """
    if named is None:
        found = _this_gpu()
        if library.RUNS_ON and found.compute_capability not in library.RUNS_ON:
            raise _does_not_run_on(found)
        return found
    if named not in library.BUILDS_FOR:
        names = ", ".join(library.BUILDS_FOR)
        raise UnsupportedError(
            "E-TRT-18",
            f"TensorRT {FULL_VERSION} does not build for a GPU of compute capability {named}",
            evidence=f"it names {names}"
            if names
            else "it builds for the GPU that it finds, and for no other",
            effect="No engine was built",
            fix="one of those"
            if names
            else "leave --option compute_capability out, or pip install 'edgescope[rtx]'",
        )
    return Target(tensorrt=FULL_VERSION, compute_capability=named, device="")


def _does_not_run_on(found: Target) -> UnsupportedError:
    return UnsupportedError(
        "E-TRT-17",
        f"TensorRT {FULL_VERSION} does not run on compute capability {found.compute_capability} ({found.device})",
        evidence=f"it names {', '.join(library.RUNS_ON)}",
        effect="An engine could be built, but this GPU would not load it",
        fix="--backend onnxruntime or torch_compile; or the full TensorRT, which runs there",
    )


def loading_on(named: str | None, path: str) -> Target:
    """Return this machine's, to load an engine; UnsupportedError where a named GPU's was built and there is none."""
    try:
        return _this_gpu()
    except (DeviceError, UnavailableError) as error:
        if named is None:
            raise
        raise UnsupportedError(
            "E-TRT-19",
            f"the engine for compute capability {named} is built, and this machine has no GPU to run it",
            evidence=f"{path}; {error.what}",
            effect="Nothing was measured",
            fix="copy it and its .json into the same folder of that machine's cache, and run the same command there",
        ) from error


def _require(spec: Spec, dla: int | None, goal: Target) -> None:
    """Raise UnsupportedError for a precision or DLA core that the target's GPU does not have."""
    if spec.precision not in build.PRECISIONS:
        known = ", ".join(build.PRECISIONS)
        raise refuse("tensorrt", spec.precision, f"it is built for {known} here", where=goal.device)
    about.require("tensorrt", spec.precision, goal.compute_capability, goal.device)
    able = _platform(goal)
    if able.get(spec.precision) is False:
        why = (
            f"TensorRT {FULL_VERSION} finds no fast {spec.precision} kernels on compute capability "
            f"{goal.compute_capability}"
        )
        raise refuse("tensorrt", spec.precision, why, where=f"this board ({goal.device})")
    if dla is None:
        return
    if dla >= able["dla_cores"]:
        raise build.no_dla(dla, able["dla_cores"], goal.device)
    if spec.precision not in ("fp16", "int8"):
        raise refuse(
            "tensorrt", spec.precision, "a DLA core computes in fp16 and int8 only", where="a DLA core"
        )


def _platform(goal: Target) -> Mapping[str, Json]:
    """Return the GPU's features, queried from TensorRT once, because that costs seconds and a builder's memory."""
    name = f"platform-{cache.safe(FULL_VERSION)}-{goal.compute_capability}-{cache.safe(goal.device)}.json"
    note = cache.folder("tensorrt") / name
    if not note.is_file():
        cache.write_json(note, build.platform())
    found: Mapping[str, Json] = json.loads(note.read_text())
    return found
