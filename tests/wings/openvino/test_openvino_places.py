"""OpenVINO's other devices: a listing stands for a machine that has them, and its CPU plugin for their plugins."""

import numpy as np
import pytest

from edgescope import cache
from edgescope.backends.base import Spec
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose

pytestmark = pytest.mark.network

backend = pytest.importorskip("edgescope.wings.openvino.backend")

MODEL = "lenet5"


class Compiled:
    """A graph that the CPU plugin compiled, and that says another device executes it."""

    def __init__(self, graph, ran_on, shows=True):
        self.graph, self.ran_on, self.shows = graph, ran_on, shows

    def __getattr__(self, name):
        return getattr(self.graph, name)

    def get_property(self, name):
        return [self.ran_on] if name == "EXECUTION_DEVICES" else self.graph.get_property(name)

    def get_runtime_model(self):
        if not self.shows:
            raise RuntimeError("get_runtime_model is not implemented")
        return self.graph.get_runtime_model()


class Core:
    """A machine with these devices; what is compiled for another than the CPU runs on `ran_on`."""

    listed, ran_on, shows = ("CPU", "GPU.0", "GPU.1"), "GPU.0", True

    def __init__(self):
        self.core, self.available_devices = backend_core(), list(self.listed)

    def get_property(self, device, name):
        if device not in self.available_devices and f"{device}.0" not in self.available_devices:
            raise RuntimeError(f"no {device}")
        return ["FP32", "FP16", "INT8"] if device != "CPU" else self.core.get_property(device, name)

    def read_model(self, path):
        return self.core.read_model(path)

    def compile_model(self, graph, device, settings):
        made = self.core.compile_model(graph, "CPU", settings)
        return made if device == "CPU" else Compiled(made, self.ran_on, self.shows)


backend_core = backend.ov.Core


@pytest.fixture
def machine(monkeypatch):
    """A machine whose listing tests change."""

    class Here(Core):
        pass

    monkeypatch.setattr(backend.ov, "Core", Here)
    return Here


def session(device, precision="fp32", **options):
    engine, spec = backend.OpenVino(), Spec(precision, device=device, options=options)
    return engine.load(engine.prepare(zoo.get(MODEL), spec, cache.folder("artifacts")))


def test_a_gpu_that_is_listed_is_compiled_for_and_read_back(machine):
    made = session("intel_gpu")
    given = {n: a[:1] for n, a in zoo.get(MODEL).samples(Purpose.BENCH, 1).arrays.items()}
    assert np.isfinite(made(given)[0]).all()
    found = made.effective()
    assert (found.device, found.precision, found.threads) == ("intel_gpu", "fp32", None)


@pytest.mark.parametrize(("ran_on", "said"), [("CPU", "cpu"), ("NPU", "npu"), ("GPU.1", "intel_gpu")])
def test_a_graph_that_runs_elsewhere_says_so(machine, ran_on, said):
    machine.ran_on = ran_on
    assert session("intel_gpu").effective().device == said


def test_a_plugin_that_shows_no_graph_gives_no_number(machine):
    machine.listed, machine.ran_on, machine.shows = ("CPU", "NPU"), "NPU", False
    with pytest.raises(UnsupportedError, match="E-OV-3"):
        session("intel_npu", "fp16").effective()


@pytest.mark.parametrize("device", ["intel_gpu", "intel_npu", "cuda"])
def test_a_device_that_is_not_listed_is_refused(machine, device):
    machine.listed = ("CPU",)
    with pytest.raises(UnavailableError, match="E-OV-2"):
        backend.OpenVino.usable(device)
    with pytest.raises(UnavailableError, match="E-OV-2"):
        session(device)
    backend.OpenVino.usable("cpu")


def test_a_gpu_has_no_threads_and_no_bf16(machine):
    with pytest.raises(UsageError, match="E-OPT-4"):
        session("intel_gpu", threads=2)
    with pytest.raises(UnsupportedError, match="E-PREC-1"):
        session("intel_gpu", "bf16")


def test_the_lines_that_run_without_edgescope_name_the_device():
    from edgescope.records import Trial

    def lines(device):
        return backend.OpenVino.run_script(
            Trial(model="m", backend="openvino", device=device), "f.onnx"
        ).lines

    assert '"GPU", settings' in lines("intel_gpu") and '"CPU", settings' in lines("cpu")
