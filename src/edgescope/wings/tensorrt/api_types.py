"""The part of TensorRT's Python API that is used, as Protocols, and its logger.

`Builder`, `Config`, `Engine` and the rest hold the members that both forms of the API share (library.py); a type
checker with the stubs of 10.13 confirms that 10's classes fit them. Members of only one form are looked up by name.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any, Protocol

from edgescope.wings.tensorrt.library import trt

Shape = tuple[int, ...]


class Tensor(Protocol):
    """An input of a network; an open axis is -1."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Any: ...


class Network(Protocol):
    """The graph the parser fills."""

    @property
    def num_inputs(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    def get_input(self, index: int, /) -> Any: ...
    def get_layer(self, index: int, /) -> Any: ...


class ParserError(Protocol):
    """One error of the ONNX parser; later versions also name node and operator."""

    def desc(self) -> str: ...
    def node(self) -> int: ...


class Profile(Protocol):
    """Smallest, usual and largest shape of each input with open axes."""

    def set_shape(self, name: str, least: Any, usual: Any, most: Any, /) -> Any: ...


class Config(Protocol):
    """The builder's configuration, in every version."""

    profiling_verbosity: Any

    def set_flag(self, flag: Any, /) -> None: ...
    def clear_flag(self, flag: Any, /) -> None: ...
    def add_optimization_profile(self, profile: Any, /) -> int: ...
    def create_timing_cache(self, content: Any, /) -> Any: ...
    def set_timing_cache(self, cache: Any, ignore_mismatch: bool, /) -> bool: ...
    def get_timing_cache(self) -> Any: ...
    def set_memory_pool_limit(self, pool: Any, size: int, /) -> None: ...


class Builder(Protocol):
    """The builder, which turns a network into an engine, in every version."""

    def create_network(self, flags: int = 0, /) -> Any: ...
    def create_builder_config(self) -> Any: ...
    def create_optimization_profile(self) -> Any: ...
    def build_serialized_network(self, network: Any, config: Any, /) -> Any: ...


class WeakBuilder(Builder, Protocol):
    """The builder up to version 10, which reports the precisions for which the GPU has kernels."""

    @property
    def platform_has_fast_fp16(self) -> bool: ...
    @property
    def platform_has_fast_int8(self) -> bool: ...


class Engine(Protocol):
    """A built engine: its inputs and outputs by name."""

    @property
    def num_io_tensors(self) -> int: ...
    def get_tensor_name(self, index: int, /) -> str: ...
    def get_tensor_mode(self, name: str, /) -> Any: ...
    def get_tensor_dtype(self, name: str, /) -> Any: ...


class Context(Protocol):
    """One execution context: a shape and an address for each name."""

    def set_input_shape(self, name: str, shape: Shape, /) -> bool: ...
    def get_tensor_shape(self, name: str, /) -> Any: ...
    def set_tensor_address(self, name: str, memory: int, /) -> bool: ...
    def execute_async_v3(self, stream_handle: int) -> bool: ...


class Log(trt.ILogger):  # type: ignore[misc]  # TensorRT may be absent where this is checked
    """A logger that keeps TensorRT's last errors, which it reports nowhere else, and prints nothing."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.kept: deque[str] = deque(maxlen=20)

    def log(self, severity: Any, msg: str) -> None:
        """Keep messages worse than a warning; called by TensorRT, from any of its threads."""
        if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
            self.kept.append(" ".join(msg.split()))

    def last_errors(self) -> str:
        """Return the last errors on one line."""
        return "; ".join(list(self.kept)[-3:])[:400] or "TensorRT gave no reason"


@lru_cache(maxsize=1)
def only_log() -> Log:
    """Return the logger of this process: TensorRT writes to the first it was given while anything made with it lives.

    Seen with TensorRT-RTX 1.7.1: a second builder's errors went to the logger of a session that was still open.
    """
    return Log()


def fresh_log() -> Log:
    """Return the logger without what it kept of earlier work."""
    only_log().kept.clear()
    return only_log()
