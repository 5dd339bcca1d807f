"""One row a backend and precision: each computes what fp32 computes or is caught, and says truly what it did."""

import functools

import numpy as np
import pytest

from edgescope import cache, registry
from edgescope.backends.base import Spec
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.verify import judge

pytestmark = pytest.mark.network

MODEL = "squeezenet1_1"
SMALL = {"torch_compile": "hostile_models:ordinary"}
"""Inductor compiles for seconds a layer."""

#: backend, precision, relative L2 allowed against torch_eager fp32 (plain, on raw logits)
ROWS = [
    ("torch_eager", "fp32", 1e-5),
    ("torch_eager", "bf16", 0.05),
    pytest.param("torch_compile", "fp32", 1e-4, marks=pytest.mark.slow),
    ("onnxruntime", "fp32", 1e-4),
    ("onnxruntime", "int8", 0.2),
    ("openvino", "fp32", 1e-4),
    ("openvino", "bf16", 0.05),
    ("openvino", "int8", 0.2),
    ("litert", "fp32", 1e-4),
]
REFUSED = [
    ("torch_eager", "fp16"),
    ("torch_eager", "int8"),
    ("torch_compile", "int8"),
    ("onnxruntime", "fp16"),
    ("onnxruntime", "bf16"),
    ("openvino", "tf32"),
]


def backend(name):
    return registry.load(registry.BACKENDS, name, "backend")()


def inputs(model, batch):
    samples = zoo.get(model).samples(Purpose.BENCH, batch)
    return {name: np.ascontiguousarray(array[:batch]) for name, array in samples.arrays.items()}


def answer(name, precision, batch, model=MODEL, **options):
    engine = backend(name)
    spec = Spec(precision, batch, options=options)
    try:
        session = engine.load(engine.prepare(zoo.get(model), spec, cache.folder("artifacts")))
    except (UnsupportedError, UnavailableError) as error:
        pytest.skip(f"this machine lacks it: {error}")
    out = np.array(session(inputs(model, batch))[0])
    effective = session.effective()
    session.close()
    return out, effective


@pytest.fixture(scope="module")
def truth():
    return functools.cache(lambda model: answer("torch_eager", "fp32", 2, model)[0])


@pytest.mark.parametrize(("name", "precision", "tolerance"), ROWS)
def test_outputs_are_those_of_fp32_and_the_precision_is_read_back(name, precision, tolerance, truth):
    model = SMALL.get(name, MODEL)
    (out, effective), wanted = answer(name, precision, 2, model), truth(model)
    assert out.shape == wanted.shape
    assert effective.device == "cpu"
    assert effective.precision == precision
    assert effective.evidence
    if np.linalg.norm(out - wanted) / np.linalg.norm(wanted) > tolerance:
        assert precision != "fp32"
        assert not gated(name, precision).passed, "the engine is wrong on this CPU and the gate let it pass"


def opened(name, precision):
    engine = backend(name)
    return engine.load(engine.prepare(zoo.get(MODEL), Spec(precision), cache.folder("artifacts")))


@functools.cache
def wanted():
    """Return the gate's inputs and PyTorch's fp32 outputs."""
    samples = judge.gate_samples(zoo.get(MODEL))
    return samples, judge.outputs(opened("torch_eager", "fp32"), samples, 1)


def gated(name, precision):
    """Return the gate's answer for an engine, by fp32 outputs of PyTorch."""
    samples, outputs = wanted()
    got = judge.outputs(opened(name, precision), samples, 1)
    return judge.judge(got, judge.Reference(outputs, None, "torch_eager fp32"), precision=precision)


@pytest.mark.slow
def test_an_engine_that_computes_wrongly_on_this_cpu_is_caught(monkeypatch):
    """As OpenVINO did with symmetric int8 on one CPU: right precision, right shapes, wrong numbers."""
    assert gated("onnxruntime", "fp32").passed
    session = type(opened("onnxruntime", "fp32"))
    call = session.__call__
    monkeypatch.setattr(session, "__call__", lambda self, batch: [out[:, ::-1] for out in call(self, batch)])
    answered = gated("onnxruntime", "fp32")
    assert not answered.passed
    assert answered.fields["centred_l2"].value > 0.5


@pytest.mark.parametrize("name", ["torch_eager", "onnxruntime", "openvino"])
def test_threads_are_set_and_read_back(name):
    assert answer(name, "fp32", 1, threads=1)[1].threads == 1


@pytest.mark.parametrize(("name", "precision"), REFUSED)
def test_a_precision_the_engine_lacks_is_refused_never_emulated(name, precision):
    with pytest.raises(UnsupportedError) as caught:
        backend(name).prepare(zoo.get(MODEL), Spec(precision), cache.folder("artifacts"))
    assert precision in str(caught.value)
    assert "Try:" in str(caught.value)


@pytest.mark.parametrize("name", sorted(registry.BACKENDS))
def test_an_unknown_option_names_the_known_ones(name):
    try:
        engine = backend(name)
    except UnavailableError as error:
        pytest.skip(f"this machine lacks it: {error}")
    with pytest.raises(UsageError, match="has no option thraeds"):
        engine.prepare(zoo.get(MODEL), Spec(options={"thraeds": 2}), cache.folder("artifacts"))


@pytest.mark.parametrize("value", [0, -1, "two", 1.5, True])
def test_threads_must_be_a_positive_whole_number(value):
    with pytest.raises(UsageError, match="threads must be"):
        backend("onnxruntime").prepare(
            zoo.get(MODEL), Spec(options={"threads": value}), cache.folder("artifacts")
        )


def test_openvinos_own_default_would_have_been_caught(monkeypatch):
    """Where the CPU has bf16, leaving the hint out runs bf16 under an fp32 label; the read-back must tell."""
    import openvino as ov

    module = pytest.importorskip("edgescope.wings.openvino.backend")
    if "BF16" not in [str(c) for c in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")]:
        pytest.skip("this CPU has no bf16")
    monkeypatch.setattr(module, "_settings", lambda spec: {})
    assert answer("openvino", "fp32", 1)[1].precision == "bf16"


def test_null_sleeps_as_long_as_it_is_told():
    import time

    session = backend("null").load(
        backend("null").prepare(
            zoo.get("null"), Spec(options={"delay_us": 20_000}), cache.folder("artifacts")
        )
    )
    start = time.monotonic()
    session({})
    assert time.monotonic() - start >= 0.02
