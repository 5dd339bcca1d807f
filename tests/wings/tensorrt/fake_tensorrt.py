"""A stand-in for the tensorrt module of one version: the same names, the same refusals, real outputs.

It is written from NVIDIA's documentation and the signatures of the Python bindings, not from TensorRT, and no number
from it means anything. What a version does not have is not here: reaching for it raises AttributeError, as it would
on the board. An engine is the ONNX file behind a line of JSON; a context runs it with ONNX Runtime on the CPU, on the
memory whose addresses it was given, when the fake stream comes to it.
"""

from __future__ import annotations

import ctypes
import enum
import json
import time
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from fake_cudart import FakeCudart

HEAVY = ("Conv", "Gemm", "MatMul")


class State:
    """What a test sets and looks at."""

    def __init__(self, version: str, cudart: FakeCudart) -> None:
        self.full, self.cudart = version, cudart
        self.version = tuple(int(part) for part in version.split(".")[:2])
        self.builds = 0
        self.timed = 0
        self.configs: list[Any] = []
        self.network_flags: list[int] = []
        self.fast = {"fp16": True, "int8": True, "tf32": True}
        self.dla_cores = 0
        self.unsupported: set[str] = set()
        self.fail = ""
        self.build_s = 0.0
        self.names_only = False
        self.uncapturable = False
        self.runtime_dla: list[int] = []
        self.specialised: list[Any] = []
        self.kernels: list[bytes] = []
        self.precision_done: str | None = None

    @property
    def newest_opset(self) -> int:
        return 17 if self.version < (9, 0) else 24


class Sealed:
    """Refuses attributes that its version has not, as the real classes do."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in type(self).ALLOWED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        object.__setattr__(self, name, value)


RTX_RUNS_ON = ("SM75", "SM80", "SM86", "SM89", "SM120", "SM121")


def module(version: str, cudart: FakeCudart, rtx: bool = False) -> tuple[ModuleType, State]:
    """Return the module and its state; TensorRT-RTX has the API of 11 and counts its own versions."""
    state = State(version, cudart)
    if rtx:
        state.version = (11, 0)
    v = state.version
    name = "tensorrt_rtx" if rtx else "tensorrt"
    trt = ModuleType(name)
    trt.__spec__ = ModuleSpec(name, None)  # others ask whether there is such a package
    trt.__version__ = version
    trt.init_libnvinfer_plugins = lambda logger, namespace: True

    class Severity(enum.Enum):
        INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    class ILogger:
        def __init__(self):
            pass

    class Logger(ILogger):
        ERROR = Severity.ERROR

        def __init__(self, least):
            super().__init__()
            self.said = []

        def log(self, severity, text):
            self.said.append(text)

    ILogger.Severity = Severity
    trt.Logger = Logger
    trt.ILogger = ILogger

    def complain(logger, text):
        logger.log(Severity.WARNING, "a warning nobody needs")
        logger.log(Severity.ERROR, text)

    flags = ["INT8", "FP16"] if v < (11, 0) else []
    trt.BuilderFlag = enum.Enum("BuilderFlag", [*flags, "TF32", "GPU_FALLBACK", "DISABLE_TIMING_CACHE"])
    trt.DataType = enum.Enum("DataType", ["FLOAT", "HALF", "INT8", "INT32", "INT64", "BOOL"])
    trt.LayerType = enum.Enum("LayerType", ["CONVOLUTION", "MATRIX_MULTIPLY", "DEQUANTIZE", "OTHER"])
    if rtx:
        trt.ComputeCapability = enum.Enum("ComputeCapability", ["NONE", "CURRENT", *RTX_RUNS_ON])
        trt.DynamicShapesKernelSpecializationStrategy = enum.Enum("S", ["LAZY", "EAGER", "NONE"])
    trt.TensorIOMode = enum.Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])
    trt.DeviceType = enum.Enum("DeviceType", ["GPU", "DLA"])
    if v < (11, 0):
        trt.NetworkDefinitionCreationFlag = enum.IntEnum("F", {"EXPLICIT_BATCH": 0})
    trt.MemoryPoolType = enum.Enum("MemoryPoolType", ["WORKSPACE"])
    trt.ProfilingVerbosity = enum.Enum("ProfilingVerbosity", ["LAYER_NAMES_ONLY", "NONE", "DETAILED"])
    trt.LayerInformationFormat = enum.Enum("LayerInformationFormat", ["ONELINE", "JSON"])
    if (8, 6) <= v < (10, 0):
        trt.PreviewFeature = enum.Enum("PreviewFeature", ["PROFILE_SHARING_0806"])
    if v >= (10, 0):
        trt.IProgressMonitor = type("IProgressMonitor", (), {"__init__": lambda self: None})

    allowed = {"default_device_type", "DLA_core", "profiling_verbosity"}
    allowed |= {"builder_optimization_level"} if v >= (8, 6) else set()
    allowed |= {"progress_monitor"} if v >= (10, 0) else set()
    allowed |= {"num_compute_capabilities"} if rtx else set()

    class Config(Sealed):
        ALLOWED = allowed

        def __init__(self):
            self._flags, self._profiles, self._pools = {trt.BuilderFlag.TF32}, [], {}
            self._timings, self._features = b"", set()
            self._named = []
            state.configs.append(self)

        def set_flag(self, flag):
            assert isinstance(flag, trt.BuilderFlag)
            self._flags.add(flag)

        def clear_flag(self, flag):
            self._flags.discard(flag)

        def add_optimization_profile(self, profile):
            self._profiles.append(profile._shapes)
            return len(self._profiles) - 1

        def create_timing_cache(self, content):
            mine = f"timings of {version}:".encode()
            return bytes(content) or mine if not content or bytes(content).startswith(mine) else None

        def set_timing_cache(self, cache, ignore_mismatch):
            self._timings = cache
            return True

        def get_timing_cache(self):
            content = self._timings + b"x"

            class Timings:
                def serialize(self):
                    return bytearray(content)

            return Timings()

    Config.set_memory_pool_limit = lambda self, pool, size: self._pools.__setitem__(pool.name, size)
    if rtx:
        Config.set_compute_capability = lambda self, named, index: self._named.append(named.name) or True
    if (8, 6) <= v < (10, 0):
        Config.set_preview_feature = lambda self, feature, on: self._features.add(feature.name)

    class Profile:
        def __init__(self):
            self._shapes = {}

        def set_shape(self, name, least, usual, most):
            self._shapes[name] = [list(least), list(usual), list(most)]

    class Tensor:
        def __init__(self, value):
            self.name = value.name
            dims = value.type.tensor_type.shape.dim
            self.shape = tuple(-1 if d.dim_param or not d.dim_value else d.dim_value for d in dims)

    class Network:
        def __init__(self):
            self.content, self.inputs = b"", []

        @property
        def num_inputs(self):
            return len(self.inputs)

        def get_input(self, index):
            return Tensor(self.inputs[index])

        @property
        def num_layers(self):
            return len(self.layers())

        def get_layer(self, index):
            return self.layers()[index]

        def layers(self):
            model = onnx.load_from_string(self.content)
            halves = {t.name for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT16}
            return [Layer(node, halves) for node in model.graph.node]

    class Layer:
        def __init__(self, node, halves):
            kinds = {"Conv": "CONVOLUTION", "Gemm": "MATRIX_MULTIPLY", "DequantizeLinear": "DEQUANTIZE"}
            self.type = trt.LayerType[kinds.get(node.op_type, "OTHER")]
            self.node, self.num_outputs = node, len(node.output)
            self.dtype = trt.DataType.HALF if halves & set(node.input) else trt.DataType.FLOAT

        def get_input(self, index):
            return SimpleNamespace(name=self.node.input[index], dtype=self.dtype)

        def get_output(self, index):
            return SimpleNamespace(name=self.node.output[index], dtype=self.dtype)

    class Error:
        def __init__(self, index, node, text):
            self._index, self._node, self._text = index, node, text

        def node(self):
            return self._index

        def desc(self):
            return self._text

    if v >= (10, 0):
        Error.node_name = lambda self: self._node.name if self._node else ""
        Error.node_operator = lambda self: self._node.op_type if self._node else ""

    class OnnxParser:
        def __init__(self, network, logger):
            self.network, self.errors = network, []

        num_errors = property(lambda self: len(self.errors))

        def get_error(self, index):
            return self.errors[index]

        def parse_from_file(self, path):
            model = onnx.load(path)
            opset = next(e.version for e in model.opset_import if e.domain in ("", "ai.onnx"))
            if opset > state.newest_opset:
                self.errors.append(Error(-1, None, f"opset {opset} is newer than {state.newest_opset}"))
            for index, node in enumerate(model.graph.node):
                if node.op_type in state.unsupported:
                    text = f"No importer registered for op: {node.op_type}"
                    self.errors.append(Error(index, node, text))
            stored = {tensor.name for tensor in model.graph.initializer}
            self.network.inputs = [i for i in model.graph.input if i.name not in stored]
            self.network.content = model.SerializeToString()
            return not self.errors

    trt.OnnxParser = OnnxParser

    class Builder:
        def __init__(self, logger):
            self.logger = logger
            self.num_DLA_cores = state.dla_cores
            if v < (11, 0):
                self.platform_has_fast_fp16 = state.fast["fp16"]
                self.platform_has_fast_int8 = state.fast["int8"]
                self.platform_has_tf32 = state.fast["tf32"]

        def create_network(self, flags=0):
            assert (flags & 1) or v >= (10, 0), "before TensorRT 10 an ONNX network needs an explicit batch"
            state.network_flags.append(flags)
            return Network()

        def create_builder_config(self):
            return Config()

        def create_optimization_profile(self):
            return Profile()

        def build_serialized_network(self, network, config):
            state.builds += 1
            monitor, end = getattr(config, "progress_monitor", None), time.monotonic() + state.build_s
            while time.monotonic() < end:
                time.sleep(0.01)
                if monitor is not None and not monitor.step_complete("timing", 1):
                    return None
            is_open = any(-1 in Tensor(i).shape for i in network.inputs)
            if is_open and not config._profiles:
                state.fail = (
                    "Network has dynamic or shape inputs, but no optimization profile has been defined."
                )
            if state.fail:
                complain(self.logger, state.fail)
                return None
            state.timed += b"x" not in config._timings
            told = {
                "version": version,
                "capability": state.cudart.capability,
                "flags": sorted(flag.name for flag in config._flags),
                "profile": config._profiles[0] if config._profiles else {},
                "shared": v >= (10, 0) or "PROFILE_SHARING_0806" in config._features,
                "dla": getattr(config, "DLA_core", None),
                "detailed": getattr(config, "profiling_verbosity", None) is not None and not state.names_only,
            }
            return bytearray(json.dumps(told).encode() + b"\n" + network.content)

    trt.Builder = Builder

    class Inspector:
        def __init__(self, engine):
            self.engine = engine

        def get_engine_information(self, format):
            return json.dumps({"Layers": list(layers(self.engine, state)), "Bindings": []})

    class Engine:
        def __init__(self, told, content, logger):
            self.told, self.content, self.logger, self.contexts = told, content, logger, 0
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            self.session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
            ports = [(i, True) for i in self.session.get_inputs()]
            self.ports = [*ports, *((o, False) for o in self.session.get_outputs())]

        def dtype(self, index):
            name = self.ports[index][0].type.removeprefix("tensor(").removesuffix(")")
            names = {"float": "FLOAT", "float16": "HALF", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}
            if v < (10, 0) and name == "int64":
                return trt.DataType.INT32
            return trt.DataType[names[name]]

        def create_runtime_config(self):
            assert rtx
            return SimpleNamespace(
                dynamic_shapes_kernel_specialization_strategy=None,
                create_runtime_cache=lambda: SimpleNamespace(
                    deserialize=state.kernels.append, serialize=lambda: b"kernels"
                ),
                set_runtime_cache=lambda cache: None,
            )

        def create_execution_context(self, config=None):
            strategy = config and config.dynamic_shapes_kernel_specialization_strategy.name
            state.specialised.append(strategy)
            self.contexts += 1
            if self.contexts > 1 and self.told["profile"] and not self.told["shared"]:
                complain(self.logger, "Profile 0 has been chosen by another IExecutionContext")
                return None
            return Context(self)

        def index(self, name):
            return [port.name for port, _ in self.ports].index(name)

    Engine.create_engine_inspector = lambda self: Inspector(self)
    Engine.num_io_tensors = property(lambda self: len(self.ports))
    Engine.get_tensor_name = lambda self, i: self.ports[i][0].name
    Engine.get_tensor_mode = lambda self, name: (
        trt.TensorIOMode.INPUT if self.ports[self.index(name)][1] else trt.TensorIOMode.OUTPUT
    )
    Engine.get_tensor_dtype = lambda self, name: self.dtype(self.index(name))

    class Context:
        def __init__(self, engine):
            self.engine, self.shapes, self.addresses, self.settled = engine, {}, {}, False

        def _shape_input(self, name, shape):
            bounds = self.engine.told["profile"].get(name)
            if bounds and not all(a <= n <= b for a, n, b in zip(bounds[0], shape, bounds[2], strict=True)):
                complain(self.engine.logger, f"setInputShape: {name} {tuple(shape)} is outside the profile")
                return False
            self.shapes[name], self.settled = tuple(shape), False
            return True

        def _shape_of(self, name):
            port, is_input = self.engine.ports[self.engine.index(name)]
            if is_input:
                return self.shapes[name]
            inputs = [p for p, given in self.engine.ports if given]
            if any(p.name not in self.shapes for p in inputs):
                return tuple(-1 for _ in port.shape)
            zeros = {p.name: np.zeros(self.shapes[p.name], numpy_of(p)) for p in inputs}
            outputs = dict(
                zip(self.engine.session.get_outputs(), self.engine.session.run(None, zeros), strict=True)
            )
            return next(array.shape for o, array in outputs.items() if o.name == name)

        def _enqueue(self, addresses, stream):
            capturing = stream in state.cudart.capturing
            if capturing and (state.uncapturable or not self.settled):
                complain(
                    self.engine.logger, "operation would make the legacy stream depend on a capturing one"
                )
                return False
            self.settled = True
            places = {}
            for index, (port, is_input) in enumerate(self.engine.ports):
                dtype = np.dtype(
                    {"FLOAT": "f4", "HALF": "f2", "INT32": "i4", "INT64": "i8"}[self.engine.dtype(index).name]
                )
                shape = self._shape_of(port.name)
                size = int(np.prod(shape)) * dtype.itemsize
                if not state.cudart.holds(addresses[index], size):
                    complain(self.engine.logger, f"no device memory at {addresses[index]:#x} for {port.name}")
                    return False
                places[port.name] = (addresses[index], shape, dtype, is_input)
            state.cudart.queue(stream, lambda: self._run(places))
            return True

        def _run(self, places):
            inputs = {}
            for name, (address, shape, dtype, is_input) in places.items():
                if is_input:
                    wanted = numpy_of(self.engine.ports[self.engine.index(name)][0])
                    inputs[name] = view(address, shape, dtype).astype(wanted)
            names = [o.name for o in self.engine.session.get_outputs()]
            for name, array in zip(names, self.engine.session.run(names, inputs), strict=True):
                address, shape, dtype, _ = places[name]
                view(address, shape, dtype)[...] = array

    Context.set_input_shape = lambda self, name, shape: self._shape_input(name, shape)
    Context.get_tensor_shape = lambda self, name: self._shape_of(name)

    def set_tensor_address(self, name, address):
        self.addresses[self.engine.index(name)] = address
        return True

    Context.set_tensor_address = set_tensor_address
    Context.execute_async_v3 = lambda self, stream_handle: self._enqueue(dict(self.addresses), stream_handle)

    class Runtime:
        DLA_core = -1

        def __init__(self, logger):
            self.logger = logger

        def deserialize_cuda_engine(self, content):
            state.runtime_dla.append(self.DLA_core)
            head, _, body = bytes(content).partition(b"\n")
            told = json.loads(head)
            if told["version"] != version:
                complain(self.logger, "The engine plan file is not compatible with this version of TensorRT")
                return None
            return Engine(told, body, self.logger)

    trt.Runtime = Runtime
    return trt, state


def numpy_of(port: Any) -> str:
    """Return the numpy type of an ONNX Runtime input."""
    name = port.type.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32"}.get(name, name)


def view(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return memory as an array."""
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype).reshape(shape)


def layers(engine: Any, state: State) -> Any:
    """Yield layers as the inspector writes them: one a heavy node, DLA subgraphs first."""
    graph = onnx.load_from_string(engine.content).graph
    made_by = {output: node for node in graph.node for output in node.output}
    halves = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT16}
    heavy = [node for node in graph.node if node.op_type in HEAVY]
    if not engine.told["detailed"]:
        yield from (node.name for node in heavy)
        return
    if engine.told["dla"] is not None:
        cut, heavy = heavy[: len(heavy) // 2], heavy[len(heavy) // 2 :]
        yield {
            "Name": "{ForeignNode[" + cut[0].name + "..." + cut[-1].name + "]}",
            "LayerType": "DLA",
            "Inputs": [{"Name": "x", "Format/Datatype": "Channel major FP16 format where channel % 4 == 0"}],
            "Metadata": "\x1e".join(f"[ONNX Layer: {node.name}]" for node in cut),
        }
    for node in heavy:
        yield from entry(node, kind(node, engine.told["flags"], made_by, halves, state), state)


def kind(node: Any, flags: list[str], made_by: Any, halves: set[str], state: State) -> str:
    """Return the precision that such a builder would choose."""
    if state.precision_done is not None:
        return state.precision_done
    sources = [made_by.get(name) for name in node.input[:2]]
    if all(s is not None and s.op_type == "DequantizeLinear" for s in sources):
        return "Int8"
    weights = {name for name in node.input} | {n for s in sources if s is not None for n in s.input}
    return "Half" if "FP16" in flags or weights & halves else "Float"


def entry(node: Any, precision: str, state: State) -> Any:
    """Yield one heavy layer, with a reformat before it that must not be counted."""
    formats = {
        "Int8": "Thirty-two wide channel vectorized row major Int8 format",
        "Half": "Channel major FP16 format where channel % 8 == 0",
        "Float": "Row major linear FP32",
    }
    flags = state.configs[-1]._flags if state.configs else set()
    tf32 = precision == "Float" and any(flag.name == "TF32" for flag in flags)
    yield {"Name": "copy", "LayerType": "Reformat", "Inputs": [{"Format/Datatype": "Row major linear FP32"}]}
    key = (
        {"Format/Datatype": formats[precision]} if state.version < (11, 0) else {"Format": formats[precision]}
    )
    yield {
        "Name": node.name,
        "LayerType": "CaskConvolution" if node.op_type == "Conv" else "CaskGemmMatrixMultiply",
        "ParameterType": "Convolution" if node.op_type == "Conv" else "MatrixMultiply",
        "Inputs": [{"Name": node.input[0], **key}],
        "Weights": {"Type": precision, "Count": 1} if node.op_type == "Conv" else None,
        "TacticName": "sm80_xmma_fprop_implicit_gemm_" + ("tf32f32" if tf32 else "f32f32"),
        "Metadata": f"[ONNX Layer: {node.name}]",
    }
