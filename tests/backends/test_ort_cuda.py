"""ONNX Runtime's CUDA provider through a fake of the runtime and of CUDA that computes on the real CPU provider.

What it says of providers is told to it; its profile is the CPU provider's with the provider's name changed. Nothing
here has seen a GPU: test_cuda.py has the tests that need one.
"""

import ctypes
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgescope import cache
from edgescope.backends import cudart
from edgescope.backends.base import Spec
from edgescope.backends.ort import cuda as _ort_cuda
from edgescope.backends.ort.backend import OnnxRuntime
from edgescope.errors import ModelError, SettingError, UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from fake_binding import Binding, at

PROVIDER, CPU = _ort_cuda.PROVIDER, "CPUExecutionProvider"
SLOW_S = 0.02


class FakeCuda:
    """libcudart over host memory; new device memory holds garbage, as the real one may."""

    name, capability, copy_s = "Fake Orin", "8.7", 0.0

    def __init__(self):
        self.blocks = []

    def stream(self):
        return 7

    def pinned(self, shape, dtype):
        return np.empty(tuple(shape), dtype)

    def malloc(self, size):
        self.blocks.append(ctypes.create_string_buffer(b"\x7b" * size, size))
        return ctypes.addressof(self.blocks[-1])

    def to_device(self, address, array, stream):
        time.sleep(self.copy_s)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def to_host(self, array, address, stream):
        time.sleep(self.copy_s)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def nothing(self, *_):
        return None

    free = synchronize = destroy_stream = destroy_event = record = event = nothing

    def elapsed_ns(self, start, stop):
        return 1000

    def device_name(self):
        return self.name

    def compute_capability(self):
        return self.capability


class FakeOrt:
    """The onnxruntime module as it looks where there is a CUDA provider."""

    __version__ = "1.99.0"
    SessionOptions, RunOptions = onnxruntime.SessionOptions, onnxruntime.RunOptions

    def __init__(self):
        self.kept, self.raises, self.run_raises = [PROVIDER, CPU], None, None
        self.opened, self.feeds = [], []

    def get_available_providers(self):
        return [PROVIDER, CPU]

    def InferenceSession(self, path, options, *, providers, enable_fallback=1):
        assert not enable_fallback, "the runtime would go on without the provider"
        if self.raises:
            raise self.raises
        self.opened.append(_Session(self, path, options, providers))
        return self.opened[-1]


class _Session:
    def __init__(self, module, path, options, providers):
        self.module, self.settings = module, dict(p for p in providers if not isinstance(p, str))
        self.real = onnxruntime.InferenceSession(path, options, providers=[CPU])
        self.get_inputs, self.get_outputs = self.real.get_inputs, self.real.get_outputs

    def get_providers(self):
        return self.module.kept

    def get_provider_options(self):
        return self.settings

    def run(self, names, feeds):
        if self.module.run_raises:
            raise self.module.run_raises
        return self.real.run(names, feeds)

    def end_profiling(self):
        path = Path(self.real.end_profiling())
        path.write_text(path.read_text().replace(CPU, PROVIDER))
        return str(path)

    def io_binding(self):
        return Binding()

    def run_with_iobinding(self, binding, options):
        feeds = {name: at(*place).copy() for name, place in binding.inputs.items()}
        self.module.feeds.append(feeds)
        never = (
            options is not None
            and options.get_run_config_entry("disable_synchronize_execution_providers") == "1"
        )
        self.module.waited = not never
        for (name, place), got in zip(binding.outputs.items(), self.real.run(None, feeds), strict=True):
            assert got.shape == place[1], name
            at(*place)[...] = got


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a convolution with such input axes and returns its path."""

    def write(*axes):
        weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
        nodes = [
            helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("GlobalAveragePool", ["c"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, axes)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [axes[0], 4, 1, 1])],
            [numpy_helper.from_array(weight, "w")],
        )
        path = tmp_path / "net.onnx"
        opset = [helper.make_opsetid("", 18)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
        return str(path)

    return write


@pytest.fixture
def model(written):
    return zoo.get(written("N", 3, 8, 8))


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    monkeypatch.setattr(cudart, "runtime", lambda: fake)
    return fake


@pytest.fixture
def fake(monkeypatch, tmp_path, cuda):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    module = FakeOrt()
    monkeypatch.setattr(_ort_cuda, "ort", module)
    return module


def prepared(model, precision="fp32", batch=1, io="host", **options):
    spec = Spec(precision, batch, options=options, io=io, device="cuda")
    return OnnxRuntime().prepare(model, spec, cache.folder("artifacts"))


def opened(model, precision="fp32", batch=1, io="host", **options):
    return OnnxRuntime().load(prepared(model, precision, batch, io, **options))


def given(model, n=1):
    return {"image": np.ascontiguousarray(model.samples(Purpose.BENCH, n).arrays["image"])}


def truth(model, batch):
    session = onnxruntime.InferenceSession(str(model.onnx(Path())), providers=[CPU])
    return session.run(None, dict(batch))[0]


def left(pattern):
    return [path.name for path in cache.folder("ort").glob(pattern)]


def test_a_provider_that_was_dropped_is_an_error_and_nothing_is_kept(fake, model):
    fake.kept = [CPU]
    with pytest.raises(UnavailableError, match=r"E-ORT-3.*dropped.*the session has CPUExecutionProvider"):
        prepared(model)
    assert not left("cuda-*")
    fake.kept = [PROVIDER, CPU]
    artifact = prepared(model)
    fake.kept = [CPU]
    with pytest.raises(UnavailableError, match="E-ORT-3"):
        OnnxRuntime().load(artifact)


def test_a_provider_that_goes_later_is_named(fake, model):
    session = opened(model)
    assert (session.effective().device, session.effective().precision) == ("cuda", "fp32")
    fake.kept = [CPU]
    assert session.effective().device == "cpu"


def test_the_profile_leaves_no_file_even_where_the_run_fails(fake, model):
    prepared(model)
    assert not left("**/*profile*")
    fake.run_raises = RuntimeError("no kernel image is available")
    with pytest.raises(RuntimeError, match="no kernel image"):
        prepared(model, batch=2)
    assert not [name for name in left("**/*") if "profile" in name or name.startswith("tmp")]


def test_what_was_executed_is_asked_once_for_each_gpu_batch_and_shape(fake, model, cuda, written):
    for _ in range(2):
        prepared(model)
    assert len(fake.opened) == 1
    for change in ({"name": "Fake Xavier"}, {"capability": "7.2"}):
        vars(cuda).update(change)
        prepared(model)
    prepared(model, batch=2)
    assert len(fake.opened) == 4
    path = written("N", 3, "H", "W")
    for size in (8, 16):
        prepared(zoo.get(path, {"image": (1, 3, size, size)}))
    assert len(fake.opened) == 6


def test_why_a_session_cannot_be_opened_is_kept(fake, model):
    fake.raises = RuntimeError("Failed to allocate memory for requested buffer of size 1")
    with pytest.raises(ModelError, match=r"E-ORT-1.*Failed to allocate") as caught:
        prepared(model)
    assert caught.value.__cause__ is fake.raises


@pytest.mark.parametrize(
    ("capability", "refused"), [("7.2", True), ("7.5", True), ("8.0", False), ("12.1", False)]
)
def test_tf32_needs_a_gpu_that_has_it(fake, model, cuda, capability, refused):
    cuda.capability = capability
    if refused:
        with pytest.raises(UnsupportedError, match=rf"E-PREC-3.*no tf32.*compute capability {capability}"):
            prepared(model, "tf32")
    else:
        assert opened(model, "tf32").effective().precision == "tf32"
    assert opened(model, "fp32").effective().precision == "fp32"


def test_tf32_that_the_environment_forbids_is_no_tf32(fake, model, monkeypatch):
    artifact = prepared(model, "tf32")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with pytest.raises(SettingError, match=r"E-TF32-1.*NVIDIA_TF32_OVERRIDE=0.*unset") as caught:
        OnnxRuntime().load(artifact)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("options", [{"layout": "nhwc"}, {"graph": "yes"}, {"graph": 1}])
def test_an_option_it_does_not_understand_is_refused(fake, model, device, options):
    with pytest.raises(UsageError, match=rf"E-OPT-[34]: {next(iter(options))} must be"):
        OnnxRuntime().prepare(model, Spec(options=options, device=device), cache.folder("artifacts"))


def test_the_word_false_is_false(fake, model):
    assert "enable_cuda_graph" not in _ort_cuda.provider(Spec(options={"graph": "false"}))[1]
    spec = Spec(options={"graph": False, "layout": "contiguous"})
    session = OnnxRuntime().load(OnnxRuntime().prepare(model, spec, cache.folder("artifacts")))
    np.testing.assert_allclose(session(given(model))[0], truth(model, given(model)), rtol=1e-5)


@pytest.mark.parametrize(("graph", "runs"), [(False, 1), (True, _ort_cuda.SETTLE + 1)])
def test_loading_runs_nothing_and_the_first_call_captures(fake, model, graph, runs):
    session = opened(model, graph=graph)
    assert not fake.feeds
    session(given(model))
    assert len(fake.feeds) == runs
    session(given(model))
    session.phases(given(model))
    assert len(fake.feeds) == runs + 2


@pytest.mark.parametrize("io", ["host", "pinned", "device"])
def test_no_run_reads_memory_that_nobody_wrote(fake, model, io):
    session, batch = opened(model, io=io, graph=True), given(model)
    got = session.fetch(session(batch if io == "host" else session.stage(batch)))[0]
    np.testing.assert_allclose(got, truth(model, batch), rtol=1e-5)
    for fed in fake.feeds:
        assert not fed["image"].any() or np.array_equal(fed["image"], batch["image"])


@pytest.mark.parametrize("graph", [False, True])
def test_the_runtime_waits_for_a_graph_and_for_nothing_else(fake, model, graph):
    opened(model, graph=graph)(given(model))
    assert fake.waited == graph


def test_enqueueing_is_the_call_alone_and_not_told_where_it_waits(fake, model, cuda):
    plain, graph = opened(model), opened(model, graph=True)
    cuda.copy_s = SLOW_S
    phases = plain.phases(given(model))
    assert phases.enqueue_ns is not None
    assert 0 < phases.enqueue_ns < SLOW_S * 1e9 <= phases.latency_ns / 2
    assert graph.phases(given(model)).enqueue_ns is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("axes", [("batch_size", 3, 8, 8), ("batch_size", 3, "H", "W"), ("n", 3, "s", "s")])
def test_open_axes_of_any_name_are_closed(fake, written, axes, device):
    model = zoo.get(written(*axes), {"image": (2, 3, 8, 8)})
    spec = Spec(batch=2, device=device)
    session = OnnxRuntime().load(OnnxRuntime().prepare(model, spec, cache.folder("artifacts")))
    assert session.session.get_inputs()[0].shape == [2, 3, 8, 8]
    batch = given(model, 2)
    np.testing.assert_allclose(session(batch)[0], truth(model, batch), rtol=1e-5)


def test_a_name_for_two_sizes_is_left_open_and_the_buffer_still_fits(fake, written):
    model = zoo.get(written("n", 3, "n", "n"), {"image": (1, 3, 8, 8)})
    artifact = prepared(model, batch=8)
    assert artifact.notes["axes"] == {"n": 8}
    with pytest.raises(ModelError, match=r"E-ORT-2: y of .* has open axes"):
        opened(model, batch=2)


def test_every_heavy_operator_is_counted_in_the_type_it_multiplies():
    for name in ("ConvTranspose", "NhwcFusedConv", "QLinearConv", "MatMulIntegerToFloat", "QGemm", "LSTM"):
        assert name in _ort_cuda.HEAVY
    event = {"op_name": "MatMulIntegerToFloat", "provider": CPU, "output_type_shape": [{"float": [1]}]}
    assert _ort_cuda._operator(event) == f"MatMulIntegerToFloat int8 {CPU}"
    assert _ort_cuda._operator(event | {"op_name": "ConvTranspose"}) == f"ConvTranspose fp32 {CPU}"
