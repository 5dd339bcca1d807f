"""The lines of a run.py for TensorRT, the full one or TensorRT-RTX: numpy, the library and the CUDA runtime suffice.

The file is an engine, or an ONNX file from which the script builds an engine where it runs, once for each version of
the library. Of several libraries the first that takes the file is used: an engine of TensorRT-RTX is none for the full
TensorRT. TensorRT-RTX compiles kernels when a context is made; what it compiled is kept beside the engine. The names
are those of TensorRT 8.5 to 11 and of TensorRT-RTX 1.x.
"""

IMPORTS = "import ctypes\nimport glob\nimport importlib"
LINES = """
FILE, PRECISION, DLA = HERE / "{file}", "{precision}", {dla}
LIBRARIES = ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings")
TYPES = {{"FLOAT": "float32", "HALF": "float16", "BOOL": "bool", "INT8": "int8", "UINT8": "uint8"}}
TYPES.update(INT32="int32", INT64="int64")
CUDART = ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so.10.2")


VOID, SIZE = ctypes.c_void_p, ctypes.c_size_t
TAKES = {{
    "cudaMalloc": (ctypes.POINTER(VOID), SIZE),
    "cudaFree": (VOID,),
    "cudaMemcpyAsync": (VOID, VOID, SIZE, ctypes.c_int, VOID),
    "cudaStreamCreate": (ctypes.POINTER(VOID),),
    "cudaStreamSynchronize": (VOID,),
}}


def libraries():
    found = {{}}
    for name in LIBRARIES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "__version__"):
            found.setdefault(module.__version__, module)  # tensorrt_rtx is the same as its bindings
    return list(found.values())


def built(trt, logger):
    kept = HERE / f"{{FILE.stem}}-{{trt.__name__}}-{{trt.__version__}}.engine"
    if kept.exists():
        return kept.read_bytes()
    builder = trt.Builder(logger)
    explicit = int(trt.__version__.split(".")[0]) in (8, 9)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH) if explicit else 0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(FILE)):
        sys.exit(f"run.py: {{trt.__name__}} cannot read {{FILE.name}}: {{parser.get_error(0).desc()}}")
    config, flags = builder.create_builder_config(), trt.BuilderFlag
    (config.set_flag if PRECISION == "tf32" else config.clear_flag)(flags.TF32)
    lowered = PRECISION
    if PRECISION == "as_is":
        lowered = "int8" if b"QuantizeLinear" in FILE.read_bytes() else "fp16"
    if lowered in ("fp16", "bf16", "int8") and hasattr(flags, lowered.upper()):
        config.set_flag(getattr(flags, lowered.upper()))
    elif PRECISION in ("fp16", "bf16"):
        sys.exit(f"run.py: {{trt.__name__}} {{trt.__version__}} takes types from the file alone, which is fp32")
    if DLA is not None:
        config.default_device_type, config.DLA_core = trt.DeviceType.DLA, DLA
        config.set_flag(flags.GPU_FALLBACK)
    profile, ports = builder.create_optimization_profile(), [network.get_input(i) for i in range(network.num_inputs)]
    ports = [port for port in ports if -1 in tuple(port.shape)]
    for port in ports:
        profile.set_shape(port.name, *[(BATCH, *INPUTS[port.name])] * 3)
    if ports:
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        sys.exit(f"run.py: {{trt.__name__}} {{trt.__version__}} could not build an engine from {{FILE.name}}")
    kept.write_bytes(bytes(plan))
    return bytes(plan)


def opened():
    found = libraries()
    for trt in found:
        logger = trt.Logger(trt.Logger.ERROR)
        content = built(trt, logger) if FILE.suffix == ".onnx" else FILE.read_bytes()
        engine = trt.Runtime(logger).deserialize_cuda_engine(content)
        if engine is not None:
            return trt, engine
    names = ", ".join(f"{{trt.__name__}} {{trt.__version__}}" for trt in found) or "none of " + ", ".join(LIBRARIES)
    sys.exit(f"run.py: no TensorRT here runs {{FILE.name}} on this GPU (found: {{names}})")


def context(trt, engine):
    if not trt.__name__.startswith("tensorrt_rtx"):
        return engine.create_execution_context()
    config = engine.create_runtime_config()
    config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
    compiled, kernels = HERE / f"{{FILE.stem}}-{{trt.__version__}}.kernels", config.create_runtime_cache()
    if compiled.exists():
        kernels.deserialize(compiled.read_bytes())
    config.set_runtime_cache(kernels)
    made = engine.create_execution_context(config)
    compiled.write_bytes(bytes(kernels.serialize()))
    return made


def cuda():
    pip = [path for folder in sys.path for path in glob.glob(f"{{folder}}/nvidia/*/lib/libcudart.so.*")]
    for name in (*CUDART, *pip):
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        for function, takes in TAKES.items():
            getattr(found, function).argtypes = takes
        return found
    sys.exit("run.py: the CUDA runtime is not here: " + ", ".join(CUDART))


def call(name, *arguments):
    code = getattr(RUNTIME, name)(*arguments)
    if code:
        sys.exit(f"run.py: {{name}} failed with CUDA error {{code}}")


RUNTIME, (TRT, ENGINE) = cuda(), opened()
CONTEXT, STREAM, BUFFERS = context(TRT, ENGINE), VOID(), {{}}
call("cudaStreamCreate", ctypes.byref(STREAM))
NAMES = [ENGINE.get_tensor_name(i) for i in range(ENGINE.num_io_tensors)]
GIVEN = [name for name in NAMES if ENGINE.get_tensor_mode(name) == TRT.TensorIOMode.INPUT]


def copy(name, host, kind):
    there, here = BUFFERS[name][0].value, host.ctypes.data
    call("cudaMemcpyAsync", *((there, here) if kind == 1 else (here, there)), host.nbytes, kind, STREAM.value)


def typed(name):
    return np.dtype(TYPES[ENGINE.get_tensor_dtype(name).name])


def space(name, host):
    if name not in BUFFERS or BUFFERS[name][1] != host.nbytes:
        address = VOID()
        if name in BUFFERS:
            call("cudaFree", BUFFERS.pop(name)[0].value)
        call("cudaMalloc", ctypes.byref(address), max(1, host.nbytes))
        BUFFERS[name] = address, host.nbytes
        CONTEXT.set_tensor_address(name, address.value)


def run(batch):
    hosts = {{}}
    for name in GIVEN:
        hosts[name] = np.ascontiguousarray(batch[name], dtype=typed(name))
        CONTEXT.set_input_shape(name, hosts[name].shape)
        space(name, hosts[name])
        copy(name, hosts[name], 1)
    outputs = [name for name in NAMES if name not in GIVEN]
    for name in outputs:
        shape = tuple(CONTEXT.get_tensor_shape(name))
        hosts[name] = np.empty(shape, typed(name))
        space(name, hosts[name])
    if not CONTEXT.execute_async_v3(STREAM.value):
        sys.exit("run.py: TensorRT refused to run")
    for name in outputs:
        copy(name, hosts[name], 2)
    call("cudaStreamSynchronize", STREAM.value)
    return [hosts[name] for name in outputs]
"""


def lines(file: str, precision: str, dla: object) -> str:
    """Return the lines for a file in this folder: `model.engine`, or `model.onnx` in a precision, on a DLA core."""
    return LINES.format(file=file, precision=precision, dla=dla)
