"""ONNX Runtime on a plug-in provider: what is asked of it, and that what it did is read from what it does."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.backends.base import Artifact, Spec
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.records.trial import Place

plugin = pytest.importorskip("edgescope.backends.ort.plugin")

OPENVINO = "OpenVINOExecutionProvider"
INTEL, NVIDIA, AMD = 0x8086, 0x10DE, 0x1022


def bf16(x):
    """Round to the nearest bf16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def tf32(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).view(np.float32)


def fp16(x):
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16).astype(np.float32)
    first = rounded[:, :, 0, 0]
    if not np.isfinite(first).all():
        first[...] = np.nan  # infinity times 0 in every sum of the pixel
    return rounded


@pytest.mark.parametrize(
    ("rounded", "name"), [(lambda x: x, "fp32"), (bf16, "bf16"), (tf32, "tf32"), (fp16, "fp16")]
)
def test_the_arithmetic_is_told_by_the_bits_that_come_back(rounded, name):
    assert plugin.precision_kept(rounded) == name


def test_other_arithmetic_has_the_name_of_no_precision():
    assert plugin.precision_kept(lambda x: np.round(x * 16) / 16) == "4 bits"


@pytest.mark.parametrize(
    ("small", "distance", "name"),
    [
        ("fp32", 7e-7, "fp32"),
        ("bf16", 5e-3, "bf16"),
        ("fp32", 5e-3, "mixed (fp32, answers 0.005 from fp32's)"),
        ("bf16", 7e-7, "mixed (bf16, answers 7e-07 from fp32's)"),
        ("fp32", 0.5, "unknown (answers 0.5 from fp32's)"),
        ("fp32", float("nan"), "unknown (answers nan from fp32's)"),
    ],
)
def test_the_large_network_must_agree(small, distance, name):
    assert plugin.agreed_precision(small, distance) == name


def test_the_distance_is_over_all_outputs():
    a, b = [np.array([3.0]), np.array([0.0])], [np.array([3.0]), np.array([4.0])]
    assert plugin.distance_apart(a, b) == pytest.approx(0.8)
    assert plugin.distance_apart([np.zeros(1)], [np.zeros(1)]) == 0.0
    assert plugin.distance_apart([np.ones(1)], [np.zeros(1)]) == 1.0


@pytest.mark.parametrize("n", [1, 2])
def test_threads_are_those_that_compute(n):
    def spin():
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass

    stop, beside = threading.Event(), [threading.Thread(target=lambda: stop.wait(), daemon=True)]
    beside += [
        threading.Thread(target=lambda: [spin() for _ in iter(stop.is_set, True)]) for _ in range(n - 1)
    ]
    for one in beside:
        one.start()
    try:
        assert plugin.busy_threads(spin) == n
    finally:
        stop.set()


def convolution(path, wide=8):
    """Write a network of one convolution with weights of many bits."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(1).standard_normal((wide, 3, 3, 3)).astype(np.float32)
    ports = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, None, None])
        for n, c in (("x", 3), ("y", wide))
    ]
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    graph = helper.make_graph(
        [node], "network", ports[:1], ports[1:], [numpy_helper.from_array(weights, "w")]
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


class Options:
    """Session options that note what they are given."""

    def __init__(self):
        self.given, self.entries = (), {}

    def add_provider_for_devices(self, devices, options):
        self.given = devices, options

    def add_session_config_entry(self, key, value):
        self.entries[key] = value


def device(ep=OPENVINO, kind="CPU", maker=INTEL):
    hardware = SimpleNamespace(type=f"OrtHardwareDeviceType.{kind}", vendor_id=maker, vendor="")
    return SimpleNamespace(ep_name=ep, device=hardware, ep_metadata={"version": "1.8.1"})


@pytest.fixture
def runtime(monkeypatch):
    """A runtime with one library that adds these devices."""
    found = SimpleNamespace(devices=[device(), device(kind="GPU")], registered=[], says="", nodes=[])

    def register(name, library):
        if library == "/broken.so":
            raise RuntimeError("undefined symbol: x\n  in it")
        found.registered.append((name, library))

    def session(path, options, **_):
        os.write(2, found.says.encode())
        return SimpleNamespace(
            run=lambda names, batch: [batch["x"]],
            options=options,
            get_provider_graph_assignment_info=lambda: [
                SimpleNamespace(
                    ep_name=ep, get_nodes=lambda kinds=kinds: [SimpleNamespace(op_type=k) for k in kinds]
                )
                for ep, kinds in found.nodes
            ],
        )

    session.get_provider_graph_assignment_info = True
    listed = [device("CPUExecutionProvider", maker=AMD)]
    monkeypatch.setattr(
        plugin.ort, "get_ep_devices", lambda: listed + found.devices * bool(found.registered), False
    )
    monkeypatch.setattr(plugin.ort, "register_execution_provider_library", register, False)
    monkeypatch.setattr(plugin.ort, "InferenceSession", session)
    monkeypatch.setattr(plugin, "need", lambda target, what, fix: lambda: f"/site/{target}")
    plugin._registered.cache_clear()
    yield found
    plugin._registered.cache_clear()


def spec(device="cpu", precision="fp32", **options):
    return Spec(precision, device=device, options={"provider": "openvino", **options})


def test_a_provider_is_found_by_the_name_of_its_package_or_by_its_path(runtime):
    found = plugin.chosen(spec(threads=1))
    assert (found.name, found.version, found.device) == (OPENVINO, "1.8.1", runtime.devices[0])
    assert runtime.registered == [("openvino", "/site/onnxruntime_ep_openvino:get_library_path")]
    config = '{"CPU": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}}'
    assert found.options == {"load_config": config}
    runtime.registered.clear()
    plugin.chosen(spec(provider_library="/mine.so"))
    plugin.chosen(spec(provider_library="/mine.so"))
    assert runtime.registered == [("openvino", "/mine.so")]


def test_a_provider_that_is_not_known_is_asked_for_nothing(runtime):
    runtime.devices = [device("WebGpuExecutionProvider", "GPU")]
    found = plugin.chosen(Spec(device="intel_gpu", options={"provider": "webgpu"}))
    assert (found.name, found.options) == ("WebGpuExecutionProvider", {})


def test_the_device_is_that_of_the_place(runtime):
    assert plugin.chosen(spec("intel_gpu", "fp16")).device is runtime.devices[1]
    with pytest.raises(UnavailableError, match="E-EP-1") as caught:
        plugin.chosen(spec("intel_npu"))
    assert "CPU, GPU" in caught.value.evidence


def test_a_gpu_of_another_maker_is_not_the_place_s(runtime):
    runtime.devices = [device(kind="GPU", maker=INTEL), device(kind="GPU", maker=NVIDIA)]
    assert plugin.chosen(spec("cuda")).device is runtime.devices[1]
    assert plugin.chosen(spec("intel_gpu")).device is runtime.devices[0]


def test_a_place_of_a_package_takes_the_devices_that_it_names(runtime, monkeypatch):
    place = Place("amd_gpu", "AMD GPU", names={"onnxruntime": "GPU"}, vendor=0x1002)
    monkeypatch.setattr(Spec, "place", property(lambda _: place))
    runtime.devices = [device(kind="GPU"), device(kind="GPU", maker=0x1002)]
    assert plugin.chosen(spec("amd_gpu")).device is runtime.devices[1]


def test_a_provider_that_offers_nothing_here_says_so(runtime):
    runtime.devices = []
    with pytest.raises(UnavailableError, match="E-EP-1") as caught:
        plugin.chosen(spec())
    assert "offers no device" in caught.value.evidence and "--backend openvino" in caught.value.fix


def test_a_provider_that_chooses_a_gpu_by_itself_has_but_one(runtime):
    webgpu = Spec(device="cuda", options={"provider": "webgpu"})
    runtime.devices = [device("WebGpuExecutionProvider", "GPU", NVIDIA)]
    assert plugin.chosen(webgpu).name == "WebGpuExecutionProvider"
    plugin._registered.cache_clear()
    runtime.registered.clear()
    runtime.devices *= 2
    with pytest.raises(UnsupportedError, match="E-EP-4"):
        plugin.chosen(webgpu)


def test_a_library_that_cannot_be_loaded_is_named(runtime):
    with pytest.raises(UnavailableError, match="E-EP-3") as caught:
        plugin.chosen(spec(provider_library="/broken.so"))
    assert "undefined symbol: x in it" in caught.value.evidence


def test_a_provider_of_nvidia_without_a_driver_asks_for_the_driver(runtime, monkeypatch):
    """What ONNX Runtime 1.32 says of onnxruntime-ep-nv-tensorrt-rtx 0.5 on a machine without a GPU."""
    said = "[ONNXRuntimeError] : 1 : FAIL : Failed to load library x.so with error: libcuda.so.1: cannot open shared"

    def refuse(name, library):
        raise RuntimeError(f"{said} object file: No such file or directory")

    monkeypatch.setattr(plugin.ort, "register_execution_provider_library", refuse)
    with pytest.raises(UnavailableError, match="E-EP-3") as caught:
        plugin.chosen(spec())
    assert "NVIDIA driver" in caught.value.fix and "pip" not in caught.value.fix


def test_a_runtime_that_records_nothing_gives_no_number(runtime, monkeypatch):
    monkeypatch.setattr(plugin.ort, "InferenceSession", object)
    with pytest.raises(UnavailableError, match="E-EP-3"):
        plugin.chosen(spec())


@pytest.mark.parametrize(
    ("device", "options"),
    [
        ("cpu", {"provider_library": "/mine.so"}),
        ("cpu", {"provider": "openvino", "per_channel": True}),
        ("cuda", {"provider": "openvino", "graph": True}),
        ("intel_gpu", {"provider": "openvino", "threads": 1}),
    ],
)
def test_options_that_no_provider_would_get_are_refused(device, options):
    with pytest.raises(UsageError, match="E-OPT-4"):
        plugin.wanted(Spec(device=device, options=options))


def test_the_name_is_that_of_a_package(runtime):
    with pytest.raises(UsageError, match="E-OPT-4"):
        plugin.chosen(spec(provider="../x:y"))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a=1;b=x=y", {"a": "1", "b": "x=y"}),
        ('{"load_config": {"CPU": {}}, "n": 2}', {"load_config": '{"CPU": {}}', "n": "2"}),
        ("", {"load_config": '{"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}'}),
    ],
)
def test_options_of_its_own_go_to_it_last(runtime, text, options):
    found = dict(plugin.chosen(spec(provider_options=text)).options)
    assert {key: found[key] for key in options} == options


@pytest.mark.parametrize("text", ["a", "a=1;b", "{", "{1}"])
def test_options_that_cannot_be_read(runtime, text):
    with pytest.raises(UsageError, match="E-OPT-4"):
        plugin.chosen(spec(provider_options=text))


def test_an_option_that_is_ignored_gives_no_number(runtime):
    runtime.says = "W: [OpenVINO-EP] num_of_threads is ignored\n"
    with pytest.raises(UnsupportedError, match="E-EP-2") as caught:
        plugin.chosen(spec()).opened(Path("f.onnx"), Options())
    assert "num_of_threads" in caught.value.evidence
    runtime.says = "W: some nodes were not assigned\n"
    made = plugin.chosen(spec()).opened(Path("f.onnx"), Options())
    assert made.options.entries == {plugin.RECORD: "1"} and made.options.given[0] == [runtime.devices[0]]


def of_one_thread():
    options = plugin.ort.SessionOptions()
    options.intra_op_num_threads = 1
    return options


class Reduced:
    """A session that answers in one thread, from inputs and to outputs that are `rounded`."""

    def __init__(self, path, rounded):
        made = plugin.ort.InferenceSession(str(path), of_one_thread(), providers=["CPUExecutionProvider"])
        self.own, self.rounded = made, rounded

    def get_inputs(self):
        return [SimpleNamespace(name="x", type="tensor(float)")]

    def run(self, names, batch):
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        return [self.rounded(y) for y in self.own.run(None, {k: self.rounded(v) for k, v in batch.items()})]


@pytest.mark.parametrize(
    ("rounded", "name"),
    [
        (lambda x: x, "fp32"),
        (bf16, "bf16"),
        (lambda x: bf16(x) if x.shape[1] < 8 else x, "mixed"),
    ],
)
def test_a_network_in_another_precision_than_asked_is_seen(tmp_path, monkeypatch, rounded, name):
    path = convolution(tmp_path / "network.onnx")
    provider = SimpleNamespace(name=OPENVINO, opened=lambda path, options: Reduced(path, rounded))
    monkeypatch.setattr(plugin, "chosen", lambda spec: provider)
    monkeypatch.setattr(plugin, "COUNTED_S", 0.05)
    shapes = {"x": (1, 3, 8, 8)}
    seen = plugin.witnessed(path, spec(threads=1), of_one_thread, shapes)
    assert (seen["precision"].split(" ")[0], seen["threads"]) == (name, 1)


def test_more_threads_than_asked_give_no_number(tmp_path, monkeypatch):
    provider = SimpleNamespace(name=OPENVINO, opened=lambda path, options: Reduced(path, lambda x: x))
    monkeypatch.setattr(plugin, "chosen", lambda spec: provider)
    monkeypatch.setattr(plugin, "busy_threads", lambda answer: 2)
    path = convolution(tmp_path / "network.onnx")
    with pytest.raises(UnsupportedError, match="E-EP-2"):
        plugin.witnessed(path, spec(threads=1), of_one_thread, {"x": (1, 3, 8, 8)})


def test_the_runtime_s_own_cpu_provider_is_read_as_what_it_is(tmp_path, monkeypatch):
    """Its device is listed as a package's are: all but the loading of a library is ONNX Runtime's own here."""
    (cpu,) = (d for d in plugin.ort.get_ep_devices() if d.ep_name == "CPUExecutionProvider")
    provider = plugin.Provider("CPUExecutionProvider", cpu, {})
    monkeypatch.setattr(plugin, "chosen", lambda spec: provider)
    path = convolution(tmp_path / "network.onnx", wide=64)

    seen = plugin.witnessed(path, spec(threads=1), of_one_thread, {"x": (1, 3, 64, 64)})
    assert (seen["precision"], seen["distance"], seen["threads"]) == ("fp32", 0.0, 1)
    session = plugin.ProvidedSession(
        Artifact(SimpleNamespace(), spec(), path, notes={"provided": seen}), of_one_thread()
    )
    found = session.effective()
    assert (found.device, found.precision, found.threads) == ("cpu", "fp32", 1)
    session.close()
    assert "1 heavy operators" in found.evidence and plugin.ort.__version__ in found.evidence


def test_the_package_itself(tmp_path):
    """The real one: a number with what was asked, or the reason that there is none on this machine."""
    pytest.importorskip("onnxruntime_ep_openvino", reason="pip install onnxruntime-ep-openvino")
    backend = pytest.importorskip("edgescope.backends.ort.backend").OnnxRuntime()
    model, asked = zoo.get("lenet5"), spec(threads=1)
    try:
        session = backend.load(backend.prepare(model, asked, tmp_path))
    except UnavailableError as error:
        assert error.code == "E-EP-1"
        pytest.skip(f"{error.code}: {error.evidence}")
    found = session.effective()
    assert (found.device, found.precision, found.threads) == ("cpu", "fp32", 1)


def session(runtime, nodes, seen):
    runtime.nodes = nodes
    artifact = Artifact(SimpleNamespace(), spec(), Path("f.onnx"), notes={"provided": seen})
    return plugin.ProvidedSession(artifact, Options()).effective()


SEEN = {"precision": "bf16", "distance": 4e-3, "threads": 2}


def test_what_it_did_is_what_was_seen(runtime):
    found = session(runtime, [(OPENVINO, ["Conv", "Conv", "Relu"])], SEEN)
    assert (found.device, found.precision, found.threads) == ("cpu", "bf16", 2)
    assert "2 heavy operators" in found.evidence and "0.004" in found.evidence


@pytest.mark.parametrize(
    ("nodes", "device"),
    [
        (
            [(OPENVINO, ["Conv"]), ("CPUExecutionProvider", ["Gemm"])],
            "cpu and 1 Gemm on CPUExecutionProvider",
        ),
        ([("CPUExecutionProvider", ["Gemm"])], "1 Gemm on CPUExecutionProvider"),
        ([(OPENVINO, ["Conv"]), ("CPUExecutionProvider", ["Softmax"])], "cpu"),
    ],
)
def test_heavy_operators_elsewhere_are_another_device(runtime, nodes, device):
    assert session(runtime, nodes, SEEN).device == device
