"""Build the bytes of a TensorRT engine from an ONNX file, in every version from 8.5 to 11.

The builder times many kernels for every layer, which takes seconds on a desktop and many minutes on a board: it prints
its progress, and the timings are kept for this TensorRT and GPU, so that the next engine is built faster and of the
same kernels. TF32 is on in TensorRT by default: it is cleared for fp32, or the number would be tf32 under another
name.

A build cannot be interrupted from outside; from TensorRT 10 on it asks a monitor after every step whether to go on,
which gives it a time limit. In earlier versions a build that hangs ends with the trial, which the parent process
kills.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from edgescope import cache
from edgescope.errors import DeviceError, SafetyError, UnsupportedError, UsageError
from edgescope.records import Json
from edgescope.wings.tensorrt import api_types as types
from edgescope.wings.tensorrt import library
from edgescope.wings.tensorrt.api_types import Builder, Config, Log, Network, Shape
from edgescope.wings.tensorrt.library import API, trt
from edgescope.wings.tensorrt.network import heavy_types, parse

PRECISIONS = ("fp32", "tf32", "fp16", "int8")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One engine to build."""

    onnx: Path
    precision: str
    profile: Mapping[str, tuple[Shape, Shape, Shape]]
    """Input name -> smallest, usual and largest shape."""
    title: str = ""
    workspace_mb: int | None = None
    dla: int | None = None
    compute_capability: str = ""
    """Of the GPU to build for; a library that builds for the GPU that it finds does not look at it."""
    level: int | None = None
    timing_cache: Path | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Built:
    """An engine that was built."""

    plan: bytes
    timings: str
    """State of the kernel timings of earlier builds: `used`, `empty` or `off`."""
    heavy: Mapping[str, int]
    """Precision -> heavy layers of the network, where TensorRT keeps its types; else {}."""


def platform() -> dict[str, Json]:
    """Return {fp16, int8, tf32: whether the GPU has kernels for it, or None if not known (11), dla_cores}."""
    builder: Builder = trt.Builder(types.fresh_log())
    found: dict[str, Json] = {
        name: getattr(builder, attribute, None)
        for name, attribute in (
            ("fp16", "platform_has_fast_fp16"),
            ("int8", "platform_has_fast_int8"),
            ("tf32", "platform_has_tf32"),
        )
    }
    return found | {"dla_cores": _dla_cores(builder)}


def _dla_cores(builder: Builder) -> int:
    return int(getattr(builder, "num_DLA_cores", 0))


def no_dla(core: int, cores: int, board: str) -> UnsupportedError:
    """Return the error for a DLA core that is not there: TensorRT takes its number without a word, and builds."""
    return UnsupportedError(
        "E-TRT-13",
        f"there is no DLA core {core} here",
        evidence=f"TensorRT {library.FULL_VERSION} finds {cores} on {board}",
        effect="All of it would run on the GPU under a DLA label",
        fix="leave --option dla out",
    )


def build(request: Request) -> Built:
    """Return the serialised engine and what is known of it.

    UnsupportedError if the parser does not know an operator or the DLA core is not there, SafetyError if memory ran
    out, DeviceError if the builder failed or took longer than allowed.
    """
    log = types.fresh_log()
    trt.init_libnvinfer_plugins(log, "")
    builder: Builder = trt.Builder(log)
    cores = _dla_cores(builder)
    if request.dla is not None and request.dla >= cores:
        raise no_dla(request.dla, cores, "this machine")
    explicit = API < library.ALWAYS_EXPLICIT_BATCH
    network: Network = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH) if explicit else 0
    )
    parse(network, request.onnx, log)
    config: Config = builder.create_builder_config()
    _configure(config, request)
    _add_profile(builder, network, config, request)
    timings = _load_timings(config, request.timing_cache)
    monitor = _limit(config, request.timeout_s)
    with ticking(f"tensorrt {library.FULL_VERSION}: building {request.title or request.onnx.name}"):
        plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise _failed(request, log, stopped=bool(monitor and monitor.stopped))
    _save_timings(config, request.timing_cache)
    return Built(plan=bytes(plan), timings=timings, heavy=heavy_types(network))


def _configure(config: Config, request: Request) -> None:
    flags = trt.BuilderFlag
    (config.set_flag if request.precision == "tf32" else config.clear_flag)(flags.TF32)
    if API < library.STRONGLY_TYPED and request.precision in ("fp16", "int8"):
        config.set_flag(flags.FP16 if request.precision == "fp16" else flags.INT8)
    if request.workspace_mb is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request.workspace_mb << 20)
    config.profiling_verbosity = (
        trt.ProfilingVerbosity.DETAILED
    )  # so that effective() can read precisions back
    if (
        library.PROFILE_SHARING <= API < library.ALWAYS_EXPLICIT_BATCH
    ):  # one profile, several queries in flight
        cast(Any, config).set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    if request.level is not None:
        cast(Any, config).builder_optimization_level = request.level
    if named := library.BUILDS_FOR.get(request.compute_capability):
        cast(Any, config).num_compute_capabilities = 1
        cast(Any, config).set_compute_capability(named, 0)
    if request.dla is not None:
        cast(Any, config).default_device_type = trt.DeviceType.DLA
        cast(Any, config).DLA_core = request.dla
        config.set_flag(flags.GPU_FALLBACK)


def _limit(config: Config, seconds: float | None) -> Any:
    if seconds is None:
        return None
    monitor = stopping_after(seconds)
    cast(Any, config).progress_monitor = monitor
    return monitor


def _add_profile(builder: Builder, network: Network, config: Config, request: Request) -> None:
    """Give every input with an open axis its shapes; UsageError for one whose batch is closed at another size."""
    profile: types.Profile = builder.create_optimization_profile()
    is_open = False
    for index in range(network.num_inputs):
        tensor: types.Tensor = network.get_input(index)
        name, dims = tensor.name, tuple(tensor.shape)
        shapes = request.profile.get(name)
        if shapes is None or (-1 not in dims and any(shape != dims for shape in shapes)):
            raise UsageError(
                "E-TRT-3",
                f"{request.onnx.name} takes {name} as {'x'.join(map(str, dims))}",
                evidence=f"requested {shapes}",
                fix=f"--batch {dims[0] if dims else 1}, or export it with an open batch axis",
            )
        if -1 in dims:
            profile.set_shape(name, *shapes)
            is_open = True
    if is_open and config.add_optimization_profile(profile) < 0:
        raise UsageError(
            "E-TRT-3", "TensorRT refuses the optimisation profile", evidence=str(request.profile)
        )


def _load_timings(config: Config, path: Path | None) -> str:
    """Load earlier kernel timings; a cache of another build of TensorRT is ignored."""
    if library.IS_RTX:  # it takes a cache and does nothing with it, by its own word since 1.2
        return "off"
    if path is None:
        config.set_flag(trt.BuilderFlag.DISABLE_TIMING_CACHE)
        return "off"
    known = path.read_bytes() if path.is_file() else b""
    for content in (known, b""):
        timings = config.create_timing_cache(content)
        if timings is not None and config.set_timing_cache(timings, False):
            return "used" if content else "empty"
    return "empty"


def _save_timings(config: Config, path: Path | None) -> None:
    timings = config.get_timing_cache() if path is not None and not library.IS_RTX else None
    if path is not None and timings is not None:
        cache.write_bytes(path, bytes(timings.serialize()))


def _failed(request: Request, log: Log, *, stopped: bool) -> DeviceError | SafetyError:
    if stopped:
        return DeviceError(
            "E-TRT-5",
            f"the engine was not built within {request.timeout_s:g} s",
            fix="--option build_timeout=1800, or --option builder_level=2",
        )
    errors = log.last_errors()
    if "out of memory" in errors.lower() or "outofmemory" in errors.lower():
        return SafetyError(
            "E-TRT-6",
            "memory ran out while the engine was built",
            evidence=errors,
            fix="--option workspace_mb=64, or add swap",
        )
    other = "fp32" if request.precision in ("fp16", "int8") else "fp16"
    return DeviceError(
        "E-TRT-4",
        f"TensorRT {library.FULL_VERSION} could not build an engine from {request.onnx.name}",
        evidence=errors,
        effect="There is no number for this cell",
        fix=f"--precision {other}, --option workspace_mb=1024, or --backend onnxruntime",
    )


#: Seconds between two lines.
EVERY_S = 10.0


@contextmanager
def ticking(what: str) -> Iterator[None]:
    """Print `what` and the seconds so far on stderr every EVERY_S while the block runs."""
    done, start = threading.Event(), time.monotonic()

    def tick() -> None:
        while not done.wait(EVERY_S):
            print(f"{what}: {time.monotonic() - start:.0f} s so far", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def stopping_after(seconds: float) -> Any:
    """Return a progress monitor that ends the build at the first step after `seconds` (TensorRT 10 and later).

    Its attribute `stopped` says whether it did.
    """

    class Deadline(trt.IProgressMonitor):  # type: ignore[misc]
        """A progress monitor that lets the build go on until the time is over."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.stopped, self.end = False, time.monotonic() + seconds

        def phase_start(self, phase_name: str, parent_phase: str, num_steps: int) -> None:
            """Do nothing."""

        def step_complete(self, phase_name: str, step: int) -> bool:
            """Return whether to go on."""
            self.stopped = self.stopped or time.monotonic() > self.end
            return not self.stopped

        def phase_finish(self, phase_name: str) -> None:
            """Do nothing."""

    return Deadline()
