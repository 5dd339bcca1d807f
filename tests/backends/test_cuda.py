"""The CUDA engines: on a GPU their answers, precision, placement and phases; without one, that they say so."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgescope import registry
from edgescope.backends.base import Laned, Phased, Spec, Staged
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.records import Trial
from edgescope.workloads import inference

MODEL = "squeezenet1_1"
ROWS = [
    ("torch_eager", "fp32", {}, 1e-4),
    ("torch_eager", "fp32", {"graph": True}, 1e-4),
    ("torch_eager", "tf32", {"graph": True}, 1e-2),
    ("torch_eager", "fp16", {"graph": True, "layout": "channels_last"}, 1e-2),
    ("torch_eager", "fp16", {"graph": True, "layout": "channels_last", "fold": True}, 1e-2),
    ("torch_eager", "bf16", {}, 5e-2),
    ("torch_compile", "fp16", {"graph": True, "layout": "channels_last"}, 1e-2),
    ("onnxruntime", "fp32", {}, 1e-4),
    ("onnxruntime", "tf32", {"graph": True}, 1e-2),
    ("onnxruntime", "fp16", {"graph": True}, 1e-2),
    ("onnxruntime", "fp16", {"graph": True, "layout": "channels_last"}, 1e-2),
]


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def inputs(seed: int, batch: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"input": rng.standard_normal((batch, 3, 224, 224), dtype=np.float32)}


def truth(batch: dict[str, np.ndarray]) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return zoo.get(MODEL).module()(torch.from_numpy(batch["input"])).numpy()


def opened(name: str, spec: Spec, folder: Path):
    backend = registry.load(registry.BACKENDS, name, "backend")()
    return backend.load(backend.prepare(zoo.get(MODEL), spec, folder))


@pytest.mark.gpu
@pytest.mark.parametrize(("backend", "precision", "options", "tolerance"), ROWS)
def test_answers_precision_and_phases_on_a_gpu(backend, precision, options, tolerance, tmp_path):
    session = opened(backend, Spec(precision, options=options, device="cuda"), tmp_path)
    try:
        for seed in (1, 2, 3):  # a replay that ignored its input would answer seed 1 again
            given = inputs(seed)
            out, wanted = np.array(session(given)[0]), truth(given)
            assert np.abs(out - wanted).max() <= tolerance * np.abs(wanted).max()
        effective = session.effective()
        assert (effective.device, effective.precision) == ("cuda", precision), effective
        assert isinstance(session, Phased)
        parts = session.phases(inputs(4))
        assert parts.h2d_ns >= 0 and parts.d2h_ns >= 0
        assert 0 < parts.compute_ns <= parts.latency_ns
        if backend == "onnxruntime" and options.get("graph"):
            assert parts.enqueue_ns is None  # it waits inside its replay
        else:
            assert 0 < parts.enqueue_ns <= parts.latency_ns
        assert np.abs(np.array(session(inputs(3))[0]) - truth(inputs(3))).max() <= tolerance * 10
    finally:
        session.close()


@pytest.mark.gpu
@pytest.mark.parametrize("io", ["pinned", "device"])
@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("torch_eager", {}),
        ("torch_eager", {"graph": True}),
        ("onnxruntime", {}),
        ("onnxruntime", {"graph": True}),
    ],
)
def test_inputs_in_pinned_and_device_memory(backend, options, io, tmp_path):
    session = opened(backend, Spec("fp32", io=io, options=options, device="cuda"), tmp_path)
    assert isinstance(session, Staged)
    for seed in (1, 2):
        given = inputs(seed)
        out = np.array(session.fetch(session(session.stage(given)))[0])
        assert np.abs(out - truth(given)).max() <= 1e-4 * np.abs(out).max()
    session.close()


@pytest.mark.gpu
@pytest.mark.parametrize(("backend", "options"), [("torch_eager", {}), ("torch_eager", {"graph": True})])
def test_threads_have_streams_of_their_own_and_do_not_mix_their_answers(backend, options, tmp_path):
    import torch

    session = opened(backend, Spec("fp32", options=options, device="cuda"), tmp_path)
    assert isinstance(session, Laned)
    session.lanes(4, inputs(0))
    used, given = set(), [inputs(seed) for seed in range(8)]

    def answer(seed):
        return seed, np.array(session(given[seed])[0])

    with ThreadPoolExecutor(4) as pool:
        answers = [a for _ in range(20) for a in pool.map(answer, range(8))]
    lanes = session.idle if options else session.streams
    while not lanes.empty():
        lane = lanes.get()
        used.add((lane.stream if options else lane).cuda_stream)
    assert len(used) == 4 and torch.cuda.default_stream().cuda_stream not in used
    wanted = [truth(batch) for batch in given]
    assert all(np.abs(out - wanted[seed]).max() <= 1e-4 * np.abs(out).max() for seed, out in answers)
    session.close()


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"graph": True}])
def test_outputs_that_the_caller_owns_are_not_overwritten_by_later_calls(options, tmp_path):
    spec = Spec("fp32", options=options, device="cuda", io="device")
    session = opened("torch_eager", spec, tmp_path)
    session.lanes(2, session.stage(inputs(0)), owned=True)
    given = [inputs(seed) for seed in range(8)]
    with ThreadPoolExecutor(2) as pool:
        kept = list(pool.map(lambda batch: session(session.stage(batch)), given))
    for batch, outputs in zip(given, kept, strict=True):
        out = np.array(session.fetch(outputs)[0])
        assert np.abs(out - truth(batch)).max() <= 1e-4 * np.abs(out).max()
    session.close()


def test_several_queries_in_flight_are_refused_where_a_session_takes_turns():
    class InTurns:
        def __call__(self, batch):
            return ()

    trial = Trial(model=MODEL, backend="onnxruntime", device="cuda", in_flight=3)
    with pytest.raises(UnsupportedError, match=r"E-LANE-1: onnxruntime .*--processes 3"):
        inference._widen(InTurns(), trial, {})
    inference._widen(InTurns(), replace(trial, in_flight=1), {})
    inference._widen(InTurns(), replace(trial, device="cpu"), {})


@pytest.mark.parametrize("name", ["torch_eager", "torch_compile", "onnxruntime"])
def test_without_a_gpu_cuda_is_unavailable_with_the_reason(name, tmp_path):
    if has_cuda():
        pytest.skip("there is a GPU here")
    with pytest.raises(UnavailableError, match="E-CUDA-"):
        opened(name, Spec("fp32", device="cuda"), tmp_path)


@pytest.mark.parametrize("name", ["torch_eager", "onnxruntime"])
def test_graph_capture_on_a_cpu_is_a_usage_error(name, tmp_path):
    with pytest.raises(UsageError, match="E-OPT-4"):
        opened(name, Spec("fp32", options={"graph": True}), tmp_path)


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_onnxruntime_on_cuda_refuses_what_it_would_compute_in_fp32(precision, tmp_path):
    with pytest.raises(UnsupportedError, match="E-PREC-1"):
        opened("onnxruntime", Spec(precision, device="cuda"), tmp_path)


@pytest.mark.slow
def test_folding_keeps_the_function(monkeypatch):
    """The rewriting itself, with stand-ins for cuDNN's kernels; the kernels are tested on a GPU above."""
    import torch

    from edgescope.backends.pytorch import module as shared

    conv = torch.nn.Conv2d.forward
    monkeypatch.setattr(shared.ConvRelu, "forward", lambda self, x: torch.relu(conv(self, x)))
    monkeypatch.setattr(shared.ConvAddRelu, "forward", lambda self, x, r: torch.relu(conv(self, x) + r))
    given = torch.from_numpy(inputs(5)["input"])
    for name, relus, residuals in (("resnet50", 33, 16), ("squeezenet1_1", 26, 0), ("densenet121", 59, 0)):
        module = zoo.get(name).module()
        changed = shared.folded(module)
        kinds = [type(m).__name__ for m in changed.modules()]
        assert (kinds.count("ConvRelu"), kinds.count("ConvAddRelu")) == (relus, residuals)
        with torch.inference_mode():
            wanted, got = module(given), changed(given)
        assert float((got - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
    assert not any(isinstance(m, shared.ConvRelu | shared.ConvAddRelu) for m in module.modules())


def test_a_network_that_cannot_be_traced_is_not_folded():
    import torch

    from edgescope.backends.pytorch import module as shared

    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(UnsupportedError, match="E-FOLD-1"):
        shared.folded(Branching())
