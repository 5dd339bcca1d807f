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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import tensorrt as trt

from edgescope import cache
from edgescope.errors import DeviceError, SafetyError, UnsupportedError, UsageError
from edgescope.records import Json
from edgescope.wings.tensorrt import api_types as types
from edgescope.wings.tensorrt.api_types import VERSION, Builder, Config, Log, Network, Shape

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
    level: int | None = None
    timing_cache: Path | None = None
    timeout_s: float | None = None


def platform() -> dict[str, Json]:
    """Return {fp16, int8, tf32: whether the GPU has kernels for it, or None if not known (11), dla_cores}."""
    builder: Builder = trt.Builder(Log())
    found: dict[str, Json] = {
        name: getattr(builder, attribute, None)
        for name, attribute in (
            ("fp16", "platform_has_fast_fp16"),
            ("int8", "platform_has_fast_int8"),
            ("tf32", "platform_has_tf32"),
        )
    }
    return found | {"dla_cores": int(getattr(builder, "num_DLA_cores", 0))}


def build(request: Request) -> tuple[bytes, str]:
    """Return the serialised engine, and the state of earlier kernel timings: `used`, `empty` or `off`.

    UnsupportedError if the parser does not know an operator, SafetyError if memory ran out, DeviceError if the
    builder failed or took longer than allowed.
    """
    log = Log()
    trt.init_libnvinfer_plugins(log, "")
    builder: Builder = trt.Builder(log)
    explicit = VERSION < types.ALWAYS_EXPLICIT_BATCH
    network: Network = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH) if explicit else 0
    )
    _parse(network, request.onnx, log)
    config: Config = builder.create_builder_config()
    _configure(config, request)
    _add_profile(builder, network, config, request)
    timings = _load_timings(config, request.timing_cache)
    monitor = _limit(config, request.timeout_s)
    with ticking(f"tensorrt {types.FULL_VERSION}: building {request.title or request.onnx.name}"):
        plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise _failed(request, log, stopped=bool(monitor and monitor.stopped))
    _save_timings(config, request.timing_cache)
    return bytes(plan), timings


def _configure(config: Config, request: Request) -> None:
    flags = trt.BuilderFlag
    (config.set_flag if request.precision == "tf32" else config.clear_flag)(flags.TF32)
    if VERSION < types.STRONGLY_TYPED and request.precision in ("fp16", "int8"):
        config.set_flag(flags.FP16 if request.precision == "fp16" else flags.INT8)
    if request.workspace_mb is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request.workspace_mb << 20)
    config.profiling_verbosity = (
        trt.ProfilingVerbosity.DETAILED
    )  # so that effective() can read precisions back
    if (
        types.PROFILE_SHARING <= VERSION < types.ALWAYS_EXPLICIT_BATCH
    ):  # one profile, several queries in flight
        cast(Any, config).set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    if request.level is not None:
        cast(Any, config).builder_optimization_level = request.level
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
    timings = config.get_timing_cache() if path is not None else None
    if path is not None and timings is not None:
        cache.write_bytes(path, bytes(timings.serialize()))


def _parse(network: Any, path: Path, log: Log) -> None:
    """Parse the ONNX file with its external weights; UnsupportedError names the nodes that TensorRT does not know."""
    parser = trt.OnnxParser(network, log)
    if parser.parse_from_file(str(path)):
        return
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    nodes = _nodes(path)
    complaints = [_complaint(error, nodes) for error in errors[:3]]
    raise UnsupportedError(
        "E-TRT-2",
        f"TensorRT {types.FULL_VERSION} cannot read {complaints[0] if complaints else path.name}",
        evidence="; ".join([*complaints[1:], log.last_errors()])[:400],
        effect=f"{path.name} is {_opset(path)}, and no engine can be built from it",
        fix="--backend onnxruntime, or replace the operator in the model",
    )


def _complaint(error: types.ParserError, nodes: list[tuple[str, str]]) -> str:
    """Return `node /a/b (NonZero): reason`; versions before 8.6 give only the node's number."""
    index = error.node()
    name, kind = nodes[index] if 0 <= index < len(nodes) else ("", "")
    name = str(getattr(error, "node_name", lambda: "")()) or name or f"number {index}"
    kind = str(getattr(error, "node_operator", lambda: "")()) or kind or "operator not named"
    return f"node {name} ({kind}): {' '.join(error.desc().split())[:200]}"


def _nodes(path: Path) -> list[tuple[str, str]]:
    """Return name and operator of every node, or [] if the onnx package is not on this board."""
    if find_spec("onnx") is None:
        return []
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return [(node.name, node.op_type) for node in graph.node]


def _opset(path: Path) -> str:
    """Return `opset 13`, from the file's stored facts, else from the file."""
    known = cache.notes(path).get("opset")
    if known is None and find_spec("onnx") is not None:
        import onnx

        imports = onnx.load(str(path), load_external_data=False).opset_import
        known = next((entry.version for entry in imports if entry.domain in ("", "ai.onnx")), None)
    return f"opset {known}" if known is not None else "of an unknown opset"


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
    return DeviceError(
        "E-TRT-4",
        f"TensorRT {types.FULL_VERSION} could not build an engine from {request.onnx.name}",
        evidence=errors,
        effect="There is no number for this cell",
        fix="--precision fp32, --option workspace_mb=1024, or --backend onnxruntime",
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
