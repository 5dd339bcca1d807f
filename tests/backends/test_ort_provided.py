"""ONNX Runtime on a plug-in provider: what is asked of it, and that what it did is read from what it does."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.backends.base import Artifact, Spec
from edgescope.backends.ort import arithmetic
from edgescope.errors import UnavailableError, UnsupportedError, UsageError

plugin = pytest.importorskip("edgescope.backends.ort.plugin")
provided = pytest.importorskip("edgescope.backends.ort.provided")

OPENVINO = "OpenVINOExecutionProvider"


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
    assert arithmetic.of(rounded) == name


def test_other_arithmetic_has_the_name_of_no_precision():
    assert arithmetic.of(lambda x: np.round(x * 16) / 16) == "4 bits"


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
    assert arithmetic.agreed(small, distance) == name


def test_the_distance_is_over_all_outputs():
    a, b = [np.array([3.0]), np.array([0.0])], [np.array([3.0]), np.array([4.0])]
    assert arithmetic.apart(a, b) == pytest.approx(0.8)
    assert arithmetic.apart([np.zeros(1)], [np.zeros(1)]) == 0.0
    assert arithmetic.apart([np.ones(1)], [np.zeros(1)]) == 1.0


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
        assert provided.threads(spin) == n
    finally:
        stop.set()


class Options:
    """Session options that note what they are given."""

    def __init__(self):
        self.given, self.entries = (), {}

    def add_provider_for_devices(self, devices, options):
        self.given = devices, options

    def add_session_config_entry(self, key, value):
        self.entries[key] = value


def device(ep=OPENVINO, kind="CPU"):
    return SimpleNamespace(ep_name=ep, device=SimpleNamespace(type=f"OrtHardwareDeviceType.{kind}"))


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
            get_providers=lambda: [OPENVINO, "CPUExecutionProvider"],
            get_provider_graph_assignment_info=lambda: [
                SimpleNamespace(
                    ep_name=ep, get_nodes=lambda kinds=kinds: [SimpleNamespace(op_type=k) for k in kinds]
                )
                for ep, kinds in found.nodes
            ],
        )

    listed = [device("CPUExecutionProvider")]
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
    assert found.name == OPENVINO and len(found.devices) == 1
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
    assert str(plugin.chosen(spec("intel_gpu", "fp16")).devices[0].device.type).endswith("GPU")
    with pytest.raises(UnavailableError, match="E-EP-1") as caught:
        plugin.chosen(spec("intel_npu"))
    assert OPENVINO in caught.value.evidence


def test_a_library_that_cannot_be_loaded_is_named(runtime):
    with pytest.raises(UnavailableError, match="E-EP-1") as caught:
        plugin.chosen(spec(provider_library="/broken.so"))
    assert "undefined symbol: x in it" in caught.value.evidence


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
        plugin.chosen(spec()).opened("f.onnx", Options())
    assert "num_of_threads" in caught.value.evidence
    runtime.says = "W: some nodes were not assigned\n"
    made = plugin.chosen(spec()).opened("f.onnx", Options())
    assert made.options.entries == {plugin.RECORD: "1"} and made.options.given[0] == [runtime.devices[0]]


def session(runtime, nodes, seen):
    runtime.nodes = nodes
    artifact = Artifact(SimpleNamespace(), spec(), Path("f.onnx"), notes={"provided": seen})
    return provided.ProvidedSession(artifact, Options()).effective()


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
