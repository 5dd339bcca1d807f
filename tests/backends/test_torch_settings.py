"""What the torch backends set and read back: tf32, threads, options, Triton; and when a graph is captured.

PyTorch's CUDA is faked; test_cuda.py has the tests that need a GPU.
"""

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from edgescope import cache
from edgescope.backends.base import Artifact, Spec
from edgescope.backends.pytorch import backend
from edgescope.backends.pytorch import cuda as _torch_cuda
from edgescope.backends.pytorch import module as shared
from edgescope.backends.pytorch.backend import TorchCompile, TorchEager
from edgescope.errors import SettingError, UnavailableError, UsageError
from edgescope.models import zoo
from edgescope.models.base import TensorSpec

pytestmark = pytest.mark.network


class Careless:
    """A user's model whose file sets PyTorch's switches as it is made."""

    info, inputs, reference = zoo.get("null").info, (TensorSpec("x", (4,), "float32"),), "torch_eager"

    def module(self):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = False
        torch.set_num_threads(2)
        return torch.nn.Linear(4, 4)


@pytest.fixture
def cuda(monkeypatch):
    """A GPU that takes every precision, on which modules stay where they are; switches are put back afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, torch.get_num_threads()
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    monkeypatch.setattr(shared, "_require_cuda", lambda precision: shared.DTYPES[precision])
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *args, **named: self)
    monkeypatch.setattr(shared, "shaped", lambda tensor, spec, dtype: tensor)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Fake Orin")
    yield
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before[:3]
    torch.set_num_threads(before[3])


def switches():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("precision", "on"), [("fp32", False), ("tf32", True), ("fp16", False)])
def test_the_switches_are_ours_whatever_the_users_file_sets(cuda, precision, on):
    shared.ready(Artifact(Careless(), Spec(precision, device="cuda")))
    assert switches() == (on, on)
    assert torch.backends.cudnn.benchmark
    assert torch.get_num_threads() == 1


def test_threads_are_ours_on_a_cpu_too(cuda):
    shared.ready(Artifact(Careless(), Spec(options={"threads": 1})))
    assert torch.get_num_threads() == 1
    assert switches() == (True, True)  # nobody's business here


@pytest.mark.parametrize(
    ("matmul", "cudnn", "dtype", "said"),
    [
        (False, False, "fp32", "fp32"),
        (True, True, "fp32", "tf32"),
        (True, False, "fp32", "mixed (tf32, fp32)"),
        (False, True, "fp32", "mixed (tf32, fp32)"),
        (True, True, "fp16", "fp16"),
        (True, False, "bf16", "bf16"),
    ],
)
def test_fp32_tensors_are_named_after_both_switches(cuda, matmul, cudnn, dtype, said):
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn
    assert shared.effective(Spec(device="cuda"), "cuda", dtype, "").precision == said


@pytest.mark.parametrize(
    ("forced", "precision", "refused"),
    [
        ("0", "tf32", True),
        ("1", "fp32", True),
        ("0", "fp32", False),
        ("1", "tf32", False),
        ("0", "fp16", False),
        ("", "tf32", False),
    ],
)
def test_an_environment_that_overrides_the_switches_is_a_setting_error(
    cuda, monkeypatch, forced, precision, refused
):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", forced)
    spec = Spec(precision, device="cuda")
    if not refused:
        return shared.settle(spec)
    with pytest.raises(SettingError, match=rf"E-TF32-1.*NVIDIA_TF32_OVERRIDE={forced}.*Try: unset") as caught:
        shared.settle(spec)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("backend", [TorchEager, TorchCompile])
@pytest.mark.parametrize("options", [{"graph": "no"}, {"fold": 1}, {"layout": "nhwc"}])
def test_an_option_it_does_not_understand_is_refused(backend, options):
    with pytest.raises(UsageError, match=rf"E-OPT-[34]: {next(iter(options))} must be"):
        backend().prepare(Careless(), Spec(options=options), cache.folder("artifacts"))


@pytest.mark.parametrize("value", [False, "false"])
def test_graph_false_is_no_graph(cuda, value):
    for device in ("cpu", "cuda"):
        spec = Spec(options={"graph": value, "fold": value}, device=device)
        session = TorchEager().load(TorchEager().prepare(Careless(), spec, cache.folder("artifacts")))
        assert not isinstance(session, _torch_cuda.GraphSession)


def test_a_tune_it_has_not_is_refused():
    with pytest.raises(UsageError, match=r"E-OPT-3: tune .* default, max-autotune"):
        TorchCompile().prepare(Careless(), Spec(options={"tune": "hard"}), cache.folder("artifacts"))


@pytest.mark.parametrize(("tune", "times"), [("default", 0), ("max-autotune", 1)])
def test_who_times_kernels_takes_the_assembler_of_those_who_compile_them(cuda, monkeypatch, tune, times):
    from torch._inductor.runtime import compile_tasks

    called = []
    monkeypatch.setattr(backend, "_require_compiler", lambda spec: None)
    monkeypatch.setattr(compile_tasks, "_set_triton_ptxas_path", lambda: called.append(1))
    for device in ("cpu", "cuda"):
        spec = Spec(options={"tune": tune}, device=device)
        TorchCompile().load(TorchCompile().prepare(Careless(), spec, cache.folder("artifacts")))
    assert len(called) == times
    monkeypatch.delattr(compile_tasks, "_set_triton_ptxas_path")  # as in a version that has none
    TorchCompile().load(TorchCompile().prepare(Careless(), spec, cache.folder("artifacts")))


@pytest.mark.slow
def test_weights_are_frozen_and_inductor_is_imported_by_who_compiles_only(monkeypatch):
    listed = (
        "import sys, edgescope.backends.pytorch.backend; assert 'torch._inductor.config' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", listed], check=True, timeout=120)
    from torch._inductor import config

    monkeypatch.setattr(backend, "_require_compiler", lambda spec: None)
    monkeypatch.setattr(config, "freezing", False)
    TorchCompile().load(TorchCompile().prepare(Careless(), Spec(), cache.folder("artifacts")))
    assert config.freezing is True


@pytest.mark.parametrize(("device", "triton"), [("cuda", False), ("cuda", True), ("cpu", False)])
def test_without_triton_there_is_no_compiling_for_a_gpu(monkeypatch, device, triton):
    from torch.utils import _triton

    monkeypatch.setattr(_triton, "has_triton", lambda: triton)
    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", lambda: "g++")
    if device == "cpu" or triton:
        return backend._require_compiler(Spec(device=device))
    with pytest.raises(
        UnavailableError, match=r"E-COMP-2.*Triton.*Try: --backend torch_eager --option fold=true"
    ):
        backend._require_compiler(Spec(device=device))


class FakeTorch:
    """The torch module with CUDA graphs that note what is done while they capture, and do it again."""

    def __init__(self):
        self.captured, self.clock = [], 0
        self.cuda = SimpleNamespace(
            Stream=lambda: SimpleNamespace(synchronize=lambda: None),
            Event=lambda enable_timing: SimpleNamespace(
                record=lambda: None, elapsed_time=lambda other: 0.5, synchronize=lambda: None
            ),
            CUDAGraph=lambda: SimpleNamespace(replay=lambda: None, pool=lambda: "pool"),
            graph=self._graph,
            stream=lambda stream: nullcontext(),
            synchronize=lambda: None,
            empty_cache=lambda: None,
        )

    def __getattr__(self, name):
        return getattr(torch, name)

    def _graph(self, graph, *, stream, pool=None):
        self.captured.append(pool)
        return nullcontext()

    def empty(self, shape, *, dtype, pin_memory):
        return torch.empty(shape, dtype=dtype)

    def empty_like(self, tensor, *, device):
        return torch.empty_like(tensor)


@pytest.mark.parametrize(("io", "called", "asked"), [("host", 1, 2), ("pinned", 1, 1), ("device", 1, 1)])
def test_a_graph_is_captured_when_it_is_needed(cuda, monkeypatch, io, called, asked):
    """The copies are part of a graph for io host alone, and the network has one of its own for phases alone."""
    fake = FakeTorch()
    monkeypatch.setattr(_torch_cuda, "torch", fake)
    spec = Spec(io=io, options={"graph": True}, device="cuda")
    session = _torch_cuda.GraphSession(torch.nn.Linear(4, 4), Artifact(Careless(), spec), Quiet())
    given = torch.ones(1, 4)
    batch = {"x": given.numpy() if io == "host" else given}
    for _ in range(2):
        session(batch)
        assert len(fake.captured) == called
    for _ in range(2):
        phases = session.phases(batch)
        assert len(fake.captured) == asked
    assert phases.compute_ns == 500_000
    assert fake.captured[1:] == ["pool"] * (asked - 1)
    session.close()


class Quiet:
    def stop(self):
        pass


def test_enqueueing_is_the_networks_launch_alone(cuda, monkeypatch):
    """A clock that only copies and the network advance: 100 for a copy to the device, 7 for the network."""
    fake = FakeTorch()
    clock = SimpleNamespace(now=0, monotonic_ns=lambda: clock.now)

    def takes(ns):
        def advance(*_, **__):
            clock.now += ns

        return advance

    monkeypatch.setattr(_torch_cuda, "torch", fake)
    monkeypatch.setattr(_torch_cuda, "time", clock)
    fake.cuda.CUDAGraph = lambda: SimpleNamespace(replay=takes(7), pool=lambda: None)
    artifact = Artifact(Careless(), Spec(options={"graph": True}, device="cuda"))
    graph = _torch_cuda.GraphSession(torch.nn.Linear(4, 4), artifact, Quiet())
    monkeypatch.setattr(_torch_cuda._Captured, "_upload", takes(100))
    monkeypatch.setattr(_torch_cuda._Captured, "_download", takes(100))
    phases = graph.phases({"x": torch.ones(1, 4).numpy()})
    assert (phases.enqueue_ns, phases.latency_ns) == (7, 207)

    def network(x):
        takes(7)()
        return x

    plain = _torch_cuda.CudaSession(network, Artifact(Careless(), Spec()), Quiet())
    monkeypatch.setattr(plain, "_tensor", lambda value: takes(100)() or torch.ones(1, 4))
    phases = plain.phases({"x": torch.ones(1, 4).numpy()})
    assert (phases.enqueue_ns, phases.latency_ns) == (7, 107)
