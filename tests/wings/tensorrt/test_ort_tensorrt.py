"""ONNX Runtime's TensorRT provider through a fake of the runtime and of CUDA, and the real module's refusals.

The fake computes with the real CPU provider; what it says of providers, profile and build log has the form of the
public logs. Nothing here has seen TensorRT.
"""

import ctypes
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgescope import cache
from edgescope.backends import cudart
from edgescope.backends.base import Phased, Spec, Staged
from edgescope.backends.ort import cuda as _ort_cuda
from edgescope.errors import ModelError, UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.wings.tensorrt import ort_provider as tensorrt
from edgescope.wings.tensorrt.ort_provider import OrtTensorrt
from fake_binding import Binding, at

LINE = "Layer(CaskConvolution): conv + relu, Tactic: 0x4727434768e46395, image[{}(1,3,8,8)] -> y[{}(1,4,8,8)]"
NOISE = (
    "[W:onnxruntime:Default, tensorrt_execution_provider.h:90 log] [VERBOSE] Fastest Tactic: 0x1 Time: 0.5"
)


class FakeCuda:
    """libcudart over host memory."""

    def __init__(self):
        self.blocks, self.freed = {}, []

    def stream(self):
        return 7

    def pinned(self, shape, dtype):
        return np.empty(tuple(shape), dtype)

    def malloc(self, size):
        block = ctypes.create_string_buffer(size)
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, address):
        self.freed.append(address)

    def to_device(self, address, array, stream):
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def to_host(self, array, address, stream):
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def synchronize(self, stream):
        pass

    destroy_stream = destroy_event = lambda self, handle: None

    def event(self):
        return 1

    def record(self, event, stream):
        pass

    def elapsed_ns(self, start, stop):
        return 1000

    def device_name(self):
        return "Fake Orin"

    def compute_capability(self):
        return "8.7"


class FakeOrt:
    """The onnxruntime module with a TensorRT provider that does as `says`, computing on the CPU provider."""

    __version__ = "1.99.0"
    SessionOptions, RunOptions = onnxruntime.SessionOptions, onnxruntime.RunOptions

    def __init__(self, says):
        self.says, self.opened = says, []

    def get_available_providers(self):
        return self.says.get(
            "available", [tensorrt.PROVIDER, "CUDAExecutionProvider", "CPUExecutionProvider"]
        )

    def InferenceSession(self, path, options, *, providers, enable_fallback):
        assert enable_fallback == 0
        if "raises" in self.says:
            os.write(2, b"[ERROR] no tactic was found\n")
            raise RuntimeError(self.says["raises"])
        session = _Session(self.says, path, options, dict(providers))
        self.opened.append(session)
        return session


class _Session:
    def __init__(self, says, path, options, providers):
        self.says, self.options, self.providers = says, options, providers
        plain = onnxruntime.SessionOptions()
        if len({v for k, v in providers[tensorrt.PROVIDER].items() if k.endswith("_shapes")}) == 1:
            plain.add_free_dimension_override_by_name("N", _batch_of(providers))
        self.real = onnxruntime.InferenceSession(path, plain, providers=["CPUExecutionProvider"])
        self.get_inputs, self.get_outputs = self.real.get_inputs, self.real.get_outputs
        engine = (
            Path(providers[tensorrt.PROVIDER]["trt_engine_cache_path"]) / "TRTKernel_graph_g_1_0_sm87.engine"
        )
        if not engine.exists():
            engine.write_bytes(b"plan")
            os.write(2, "\n".join([NOISE, *says.get("log", []), NOISE, ""]).encode())

    def get_providers(self):
        return self.says.get("kept", list(self.providers))

    def run(self, names, feeds):
        return self.real.run(names, feeds)

    def end_profiling(self):
        path = Path(f"{self.options.profile_file_prefix}_1.json")
        path.write_text(
            json.dumps(self.says.get("profile", [node("TRTKernel_graph_g_1", tensorrt.PROVIDER)]))
        )
        return str(path)

    def io_binding(self):
        return Binding()

    def run_with_iobinding(self, binding, options):
        feeds = {name: at(*place) for name, place in binding.inputs.items()}
        for (name, place), got in zip(binding.outputs.items(), self.real.run(None, feeds), strict=True):
            assert got.shape == place[1], name
            at(*place)[...] = got


def _batch_of(providers):
    return int(providers[tensorrt.PROVIDER]["trt_profile_opt_shapes"].partition(":")[2].partition("x")[0])


def node(op, provider, kind="float"):
    shape = [{kind: [1, 4, 8, 8]}]
    args = {"op_name": op, "provider": provider, "output_type_shape": shape}
    return {"cat": "Node", "name": f"{op}_kernel_time", "args": args}


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["image", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])]
    given_ = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 8, 8])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 8, 8])
    graph = helper.make_graph(nodes, "g", [given_], [made], [weight])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return zoo.get(str(path))


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Put the fakes in place; returns what the provider shall say, to be filled in, and the fake module."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(tensorrt.TF32_SWITCH, "unset by the test")
    says, cuda = {"log": [LINE.format("Half", "Half")]}, FakeCuda()
    module = FakeOrt(says)
    monkeypatch.setattr(tensorrt, "ort", module)
    monkeypatch.setattr(_ort_cuda, "ort", module)
    monkeypatch.setattr(cudart, "runtime", lambda: cuda)
    return says, module


def prepared(model, precision="fp16", batch=1, io="host", **options):
    spec = Spec(precision, batch, options=options, io=io, device="cuda")
    return OrtTensorrt().prepare(model, spec, cache.folder("artifacts"))


def given_batch(model, n=1):
    return {"image": np.ascontiguousarray(model.samples(Purpose.BENCH, n).arrays["image"])}


def truth(model, batch):
    session = onnxruntime.InferenceSession(str(model.onnx(Path())), providers=["CPUExecutionProvider"])
    return session.run(None, dict(batch))[0]


@pytest.mark.parametrize("io", ["host", "pinned", "device"])
def test_a_query_goes_through_bound_buffers_and_comes_back(fake, model, io):
    fake[0]["log"] = [LINE.format("Float", "Float")]
    session = OrtTensorrt().load(prepared(model, "fp32", 2, io))
    batch = given_batch(model, 2)
    assert isinstance(session, Staged)
    assert isinstance(session, Phased)
    got = session.fetch(session(batch if io == "host" else session.stage(batch)))[0]
    np.testing.assert_allclose(got, truth(model, batch), rtol=1e-5)
    assert session.phases(batch).compute_ns == 1000
    session.close()


def test_the_engines_are_built_once_in_a_folder_of_their_own(fake, model):
    first, again = prepared(model), prepared(model)
    assert len(fake[1].opened) == 1
    assert first.build_s == again.build_s is not None
    places = {
        first.notes["engines"],
        *(prepared(model, **o).notes["engines"] for o in ({"graph": True}, {"dla": 0})),
    }
    assert len(places) == 3
    assert prepared(model, "fp32").notes["engines"] not in places


def test_weights_beside_the_onnx_file_are_in_the_key(fake, model):
    """Their hash is in the model's digest, not in the ONNX file's."""
    place = prepared(model).notes["engines"]
    model.info = replace(model.info, digest="other weights")
    assert prepared(model).notes["engines"] != place


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_tf32_and_bf16_need_ampere(fake, model, monkeypatch, precision):
    monkeypatch.setattr(FakeCuda, "compute_capability", lambda self: "7.2")
    with pytest.raises(UnsupportedError, match=rf"E-PREC-1.*no {precision}.*8\.0.*7\.2"):
        prepared(model, precision)
    assert not fake[1].opened


def test_heavy_operators_are_those_of_the_cuda_provider():
    assert tensorrt.HEAVY is _ort_cuda.HEAVY
    assert tensorrt.KINDS is _ort_cuda.KINDS


def test_an_engine_that_is_gone_is_built_again(fake, model):
    place = Path(prepared(model).notes["engines"])
    for engine in place.glob("*.engine"):
        engine.unlink()
    prepared(model)
    assert len(fake[1].opened) == 2


@pytest.mark.parametrize(
    ("word", "precision", "named"),
    [
        ("Half", "fp16", "fp16"),
        ("Float", "fp16", "fp32"),
        ("Int8", "fp16", "int8"),
        ("BFloat16", "bf16", "bf16"),
    ],
)
def test_the_precision_is_that_of_the_build_log(fake, model, word, precision, named):
    fake[0]["log"] = [LINE.format(word, word)]
    effective = OrtTensorrt().load(prepared(model, precision)).effective()
    assert (effective.device, effective.precision) == ("cuda", named)
    assert f"build log: 1 {named} heavy layers" in effective.evidence


def test_a_log_without_layers_is_said_to_tell_nothing(fake, model):
    fake[0]["log"] = []
    effective = OrtTensorrt().load(prepared(model)).effective()
    assert effective.precision == "fp16"
    assert "as requested: TensorRT's build log lists no layers" in effective.evidence


def test_what_fell_to_cuda_counts_with_its_own_precision(fake, model):
    fake[0]["profile"] = [
        node("TRTKernel_graph_g_1", tensorrt.PROVIDER),
        *[node("Conv", "CUDAExecutionProvider")] * 2,
        node("Relu", "CUDAExecutionProvider"),
    ]
    effective = OrtTensorrt().load(prepared(model)).effective()
    assert effective.precision == "mixed (2 fp32, 1 fp16)"
    assert "heavy operators outside TensorRT: 2 Conv fp32 CUDAExecutionProvider" in effective.evidence
    fake[0]["log"] = []
    assert "2 fp32 outside" in OrtTensorrt().load(prepared(model, builder_level=3)).effective().precision


def test_a_file_of_which_it_takes_nothing_is_refused(fake, model):
    fake[0]["profile"] = [node("Conv", "CUDAExecutionProvider")]
    with pytest.raises(UnsupportedError, match=r"E-ORTTRT-4.*1 CUDAExecutionProvider.*--backend onnxruntime"):
        prepared(model)


def test_a_provider_that_was_dropped_is_not_replaced(fake, model):
    fake[0]["kept"] = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with pytest.raises(UnavailableError, match=r"E-ORTTRT-2.*dropped.*the session has CUDAExecutionProvider"):
        prepared(model)


def test_missing_libraries_of_tensorrt_are_a_missing_package_and_no_fault_of_the_network(fake, model):
    fake[0]["raises"] = (
        "onnxruntime_pybind_state.cc:729 void RegisterTensorRTPluginsAsCustomOps() Please install TensorRT "
        "libraries as mentioned in the GPU requirements page, make sure they're in the PATH or LD_LIBRARY_PATH"
    )
    with pytest.raises(UnavailableError, match=r"E-ORTTRT-2.*Please install TensorRT libraries") as raised:
        prepared(model)
    assert "LD_LIBRARY_PATH" in raised.value.message.fix and ".cc" not in raised.value.message.evidence


def test_a_build_that_fails_says_why_and_passes_its_log_on(fake, model, capfd):
    fake[0]["raises"] = "Fail: TensorRT EP failed to create engine from network"
    with pytest.raises(ModelError, match=r"E-ORTTRT-1: .*to create engine.*--backend onnxruntime"):
        prepared(model)
    assert "no tactic was found" in " ".join(capfd.readouterr().err.split())


def test_fp32_means_fp32(fake, model):
    fake[0]["log"] = [LINE.format("Float", "Float")]
    assert OrtTensorrt().load(prepared(model, "fp32")).effective().precision == "fp32"
    assert os.environ[tensorrt.TF32_SWITCH] == "0"
    session = OrtTensorrt().load(prepared(model, "tf32"))
    assert tensorrt.TF32_SWITCH not in os.environ
    assert session.effective().precision == "tf32"


def test_every_option_reaches_the_provider(fake, model):
    options = {"workspace_mb": 64, "dla": 1, "graph": True, "builder_level": 5, "min_subgraph": 3}
    OrtTensorrt().load(prepared(model, "fp16", 2, profile_min=1, profile_opt=2, profile_max=4, **options))
    building, running = (session.providers[tensorrt.PROVIDER] for session in fake[1].opened)
    assert running["trt_max_workspace_size"] == str(64 << 20)
    assert (running["trt_dla_enable"], running["trt_dla_core"]) == ("1", "1")
    assert (building["trt_cuda_graph_enable"], running["trt_cuda_graph_enable"]) == ("0", "1")
    assert (building["trt_detailed_build_log"], running["trt_detailed_build_log"]) == ("1", "0")
    assert running["trt_builder_optimization_level"] == "5"
    assert running["trt_profile_min_shapes"] == "image:1x3x8x8"
    assert running["trt_profile_opt_shapes"] == "image:2x3x8x8"
    assert running["trt_profile_max_shapes"] == "image:4x3x8x8"
    assert running["trt_engine_cache_path"] == building["trt_engine_cache_path"]
    assert running["user_compute_stream"] == "7"
    assert fake[1].opened[1].options.get_session_config_entry("session.disable_cpu_ep_fallback") == "1"


@pytest.mark.parametrize(("beside", "fp16"), [({}, "1"), ({"fp16_beside_int8": False}, "0")])
def test_int8_reads_the_symmetric_file(fake, model, monkeypatch, beside, fp16):
    asked = []

    def file(given_model, precision, folder, **how):
        asked.append((precision, how))
        return given_model.onnx(folder)

    monkeypatch.setattr(tensorrt, "onnx_file", file)
    prepared(model, "int8", **beside)
    assert asked == [("int8", {"qdq": "s8s8"})]
    told = fake[1].opened[0].providers[tensorrt.PROVIDER]
    assert (told["trt_int8_enable"], told["trt_fp16_enable"]) == ("1", fp16)


@pytest.mark.parametrize(
    ("precision", "options", "said"),
    [
        ("fp16", {"profile_min": 2}, "E-ORTTRT-5"),
        ("fp16", {"profile_min": 3, "profile_max": 2}, "E-ORTTRT-5"),
        ("fp16", {"workspace_mb": 0}, "workspace_mb must be"),
        ("fp16", {"dla": True}, "dla must be"),
        ("fp16", {"graph": "yes"}, "graph .* true or false"),
        ("fp16", {"threads": 2}, "has no option threads"),
    ],
)
def test_options_that_make_no_sense(fake, model, precision, options, said):
    with pytest.raises(UsageError, match=said):
        prepared(model, precision, **options)
    assert not fake[1].opened


def test_a_dla_core_has_no_fp32(fake, model):
    with pytest.raises(UnsupportedError, match="DLA"):
        prepared(model, "fp32", dla=0)


def test_the_real_module_without_the_provider_says_so(model):
    if tensorrt.PROVIDER in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has the TensorRT provider")
    with pytest.raises(UnavailableError, match=r"E-ORTTRT-3.*offers .*CPUExecutionProvider.*onnxruntime-gpu"):
        prepared(model)


def test_a_real_profile_of_the_real_module_is_read(model, tmp_path):
    """On the CPU provider every node is outside TensorRT, and the profile says so."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(
        str(model.onnx(tmp_path)), options, providers=["CPUExecutionProvider"]
    )
    told = tensorrt.profiled(session, given_batch(model))
    assert told["outside"] in (
        {"Conv fp32 CPUExecutionProvider": 1},
        {"FusedConv fp32 CPUExecutionProvider": 1},
    )
    assert set(told["providers"]) == {"CPUExecutionProvider"}
    assert not list(tmp_path.glob("profile*"))


def test_a_fake_provider_is_never_faked_by_the_real_module(model):
    """ONNX Runtime itself: asked for a provider it lacks, with enable_fallback=0, it must not answer on another."""
    if tensorrt.PROVIDER in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has the TensorRT provider")
    chain = [(tensorrt.PROVIDER, {}), ("CUDAExecutionProvider", {})]
    with pytest.raises((ModelError, UnavailableError), match="E-ORTTRT"):
        tensorrt.opened(model.onnx(Path()), onnxruntime.SessionOptions(), chain)


@given(st.text())
def test_no_log_breaks_the_reader(text):
    assert all(set(layer) == {"LayerType", "Name", "Inputs"} for layer in tensorrt.engine_layers(text))


@given(st.lists(st.sampled_from(["Half", "Float", "Int8"]), max_size=20))
@pytest.mark.slow
def test_heavy_layers_are_counted_by_what_they_read(words):
    light = ["Layer(Reformat): Reformatting CopyNode, Tactic: 0, a[Float(1,3)] -> b[Half(1,3)]", NOISE]
    names = {"Half": "fp16", "Float": "fp32", "Int8": "int8"}
    log = "\n".join([*light, *(LINE.format(word, "Half") for word in words), *light])
    assert tensorrt.kinds(log) == {names[w]: words.count(w) for w in dict.fromkeys(words)}
