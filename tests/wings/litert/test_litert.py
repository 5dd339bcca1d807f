"""LiteRT, really run on files made by hand: right answers, and a truthful word on precision, threads and XNNPACK."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

import data_sets
import edgescope
from edgescope import bench, cache, registry
from edgescope.analysis.cells import variants
from edgescope.backends.base import Spec
from edgescope.errors import ModelError, UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.records import Result, Status, Trial
from edgescope.wings.litert import backend, tflite
from edgescope.wings.litert.backend import LiteRt
from making import show_card
from models import tiny_tflite


@pytest.fixture
def made(tmp_path):
    return lambda kind="fp32", **how: str(tiny_tflite.write(tmp_path / f"{kind}.tflite", kind, **how))


def opened(name, precision="fp32", batch=1, **options):
    spec = Spec(precision, batch, options=options)
    return LiteRt().load(LiteRt().prepare(zoo.get(name), spec, cache.folder("artifacts")))


def inputs(name, batch=1):
    given = zoo.get(name).samples(Purpose.BENCH, batch)
    return {key: np.ascontiguousarray(array) for key, array in given.arrays.items()}


def by_hand(image, seed=0):
    """The network in numpy: convolution with zero padding, ReLU, matrix product."""
    given = tiny_tflite.weights(seed)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    hidden = np.zeros((*image.shape[:3], 8), np.float64)
    for row in range(3):
        for column in range(3):
            part = padded[:, row : row + tiny_tflite.SIZE, column : column + tiny_tflite.SIZE]
            hidden += part @ given["filter"][:, row, column].T
    hidden = np.maximum(hidden + given["bias"], 0)
    return hidden.reshape(len(image), -1) @ given["matrix"].T


@pytest.mark.parametrize(
    ("kind", "precision", "options", "tolerance"),
    [
        ("fp32", "fp32", {}, 1e-5),
        ("fp32", "fp32", {"xnnpack": False}, 1e-5),
        ("fp16", "fp32", {}, 2e-3),
        ("fp32", "fp16", {}, 2e-2),
        ("dynamic", "int8", {}, 0.05),
    ],
)
def test_the_answers_are_those_of_the_network(made, kind, precision, options, tolerance):
    name = made(kind)
    try:
        session = opened(name, precision, **options)
    except UnsupportedError as error:
        pytest.skip(str(error))
    batch = inputs(name)
    (got,), wanted = session(batch), by_hand(batch["image"])
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() / np.abs(wanted).max() <= tolerance
    assert session.effective().precision == precision
    session.close()


def test_a_whole_int8_file_takes_and_gives_int8(made):
    name = made("int8")
    session = opened(name, "int8")
    image = np.random.default_rng(0).normal(0, 1, (1, 8, 8, 3)).astype(np.float32)
    whole = np.clip(np.round(image / (4 / 127)), -128, 127).astype(np.int8)
    (got,) = session({"image": whole})
    assert got.dtype == np.int8
    wanted = by_hand(whole * (4 / 127))
    assert np.abs(got * (12 / 127) - wanted).max() / np.abs(wanted).max() < 0.1
    effective = session.effective()
    assert (effective.device, effective.precision) == ("cpu", "int8")


def test_what_xnnpack_took_over_is_read_back(made):
    name = made()
    for xnnpack, taken in ((True, "2 of 2"), ("false", "0 of 2")):
        session = opened(name, xnnpack=xnnpack)
        session(inputs(name))
        assert f"{taken} run by XNNPACK" in session.effective().evidence
    assert "dynamic range" in opened(made("dynamic"), "int8").effective().evidence


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_are_those_that_were_started(made, threads, precision):
    try:
        session = opened(made(), precision, threads=threads)
    except UnsupportedError as error:
        pytest.skip(str(error))
    assert session.effective().threads == threads


def test_all_cores_of_the_affinity_mask_unless_told_otherwise(made):
    assert opened(made()).effective().threads == len(os.sched_getaffinity(0))


def test_threads_that_start_late_are_not_claimed(made):
    assert opened(made(), threads=2, xnnpack=False).effective().threads is None


def test_an_open_batch_is_fixed_at_load(made):
    name = made(batch=None)
    batch = inputs(name, 3)
    for precision, tolerance in (("fp32", 1e-5), ("fp16", 2e-2)):
        try:
            (got,) = opened(name, precision, 3)(batch)
        except UnsupportedError as error:
            pytest.skip(str(error))
        wanted = by_hand(batch["image"])
        assert got.shape == wanted.shape
        assert np.abs(got - wanted).max() / np.abs(wanted).max() <= tolerance


def test_queries_in_flight_do_not_share_tensors(made):
    name = made()
    session, pool = opened(name, threads=1), [inputs(name) for _ in range(8)]
    for index, batch in enumerate(pool):
        batch["image"] = batch["image"] * (index + 1)
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda i: np.array(session(pool[i % 8])[0]), range(200)))
    for index, answer in enumerate(got):
        wanted = by_hand(pool[index % 8]["image"])
        assert np.abs(answer - wanted).max() / np.abs(wanted).max() < 1e-5


@pytest.mark.parametrize(
    ("kind", "precision"), [("fp32", "int8"), ("int8", "fp32"), ("int8", "fp16"), ("dynamic", "fp32")]
)
def test_a_file_is_refused_under_another_precision(made, kind, precision):
    with pytest.raises(UnsupportedError, match=rf"E-TFL-3: .* {precision}.*2 (int8|fp32).*Try:"):
        opened(made(kind), precision)


def test_a_file_that_lets_xnnpack_narrow_is_not_called_fp32(made):
    name = made(reduced=True)
    with pytest.raises(UnsupportedError, match=r"E-TFL-4.*reduced_precision_support.*xnnpack=false"):
        opened(name)
    assert opened(name, xnnpack="false").effective().precision == "fp32"


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_precision_it_lacks_is_refused(made, precision):
    with pytest.raises(UnsupportedError, match=f"E-PREC-1: litert .*{precision}"):
        opened(made(), precision)


def test_fp16_that_gives_the_bits_of_fp32_is_refused(made, monkeypatch):
    monkeypatch.setattr(backend, "FORCE_FP16", 0)  # as on a CPU whose XNNPACK ignores the wish
    monkeypatch.setattr(backend, "PROBE", -1)
    with pytest.raises(UnsupportedError, match=r"E-PREC-1: .*fp16 .* by 0 of "):
        opened(made(), "fp16")


@pytest.mark.parametrize(("difference", "refused"), [(1e-6, True), (float("nan"), True), (3e-4, False)])
def test_fp16_is_proven_by_more_than_another_order_of_summation(made, monkeypatch, difference, refused):
    monkeypatch.setattr(backend, "probe", lambda *_: {"difference": difference})
    spec = Spec("fp16")
    if not refused:
        assert LiteRt().prepare(zoo.get(made()), spec, cache.folder("artifacts")).notes["fp16"]
        return
    with pytest.raises(UnsupportedError, match=r"E-PREC-1: .*fp16 .*\b1e-3\b"):
        LiteRt().prepare(zoo.get(made()), spec, cache.folder("artifacts"))


def test_built_in_kernels_have_no_fp16(made):
    with pytest.raises(UnsupportedError, match="built-in kernels"):
        opened(made(), "fp16", xnnpack=False)


@pytest.mark.parametrize("options", [{"xnnpack": "maybe"}, {"threads": 0}, {"delegate": "gpu"}])
def test_options_that_make_no_sense(made, options):
    with pytest.raises(UsageError, match=next(iter(options))):
        opened(made(), **options)


@pytest.mark.slow
def test_a_float_file_is_measured_and_verified_a_quantised_one_is_measured_only(made, capsys):
    results = []
    for kind, precision in (("fp32", "fp32"), ("int8", "int8")):
        trial = Trial(model=zoo.pin(made(kind)), backend="litert", precision=precision, min_s=0.05, max_s=0.1)
        assert bench.prepare(Result.begun(trial, bench.here())).status is Status.OK
        results.append(edgescope.run(trial))
    verified, unverified = results
    assert verified.verification is not None
    assert verified.verification.passed
    assert verified.verification.reference == "litert fp32"
    assert unverified.verification is None and unverified.unverified.code == "W-GATE-1"
    assert unverified.status in (Status.OK, Status.UNSTABLE)
    assert "latency_p50_s" in unverified.metrics
    assert variants.pick(variants.table([unverified])).row is None
    show_card(unverified)
    assert "outputs not verified" in capsys.readouterr().out


class TestConverted:
    """From PyTorch, through a converter that stands in for litert-torch (1.2 GB, not installed for tests)."""

    @pytest.fixture
    def converter(self, monkeypatch, tmp_path):
        fake, calls = ModuleType("edgescope.wings.litert.litert_torch"), []

        def convert(module, inputs, samples, path, *, batch):
            calls.append(("convert", batch))
            tiny_tflite.write(path, batch=batch)
            return {"build_s": 1.5, "names": {"image": inputs[0].name}}

        def quantise(source, names, calibration, path, *, batch):
            calls.append(("quantise", len(calibration)))
            assert backend.describe(source)["kinds"] == {"fp32": 2}
            tiny_tflite.write(path, "dynamic", batch=batch)
            return {"build_s": 0.5, "method": "a fake's"}

        fake.convert, fake.quantise = convert, quantise
        monkeypatch.setitem(sys.modules, fake.__name__, fake)
        monkeypatch.setattr(edgescope, "_tflite_converter", fake, raising=False)
        return calls

    class Net:
        """A model that is no file: takes `x` of 8x8x3."""

        info, reference = zoo.get("null").info, "torch_eager"

        def __init__(self):
            from edgescope.models.base import TensorSpec

            self.inputs = (TensorSpec("x", (8, 8, 3), "float32"),)

        def module(self):
            return None

        def samples(self, purpose, n):
            from edgescope.models import synthetic

            return synthetic.samples(self.inputs, purpose, n)

    def test_it_is_converted_once_for_each_batch(self, converter, tmp_path):
        for batch in (1, 2, 2):
            artifact = LiteRt().prepare(self.Net(), Spec(batch=batch), tmp_path)
            session = LiteRt().load(artifact)
            given = np.random.default_rng(0).normal(size=(batch, 8, 8, 3)).astype(np.float32)
            (got,), wanted = session({"x": given}), by_hand(given)
            assert np.abs(got - wanted).max() / np.abs(wanted).max() < 1e-5
        assert converter == [("convert", 1), ("convert", 2)]
        assert artifact.build_s == 1.5

    def test_int8_is_made_from_the_float_file_on_calibration_inputs(self, converter, tmp_path):
        artifact = LiteRt().prepare(data_sets.untrained(self.Net()), Spec("int8"), tmp_path)
        assert converter == [("convert", 1), ("quantise", 64)]
        assert LiteRt().load(artifact).effective().precision == "int8"
        made = cache.notes(artifact.path)
        assert made["names"] == {"image": "x"}
        assert made["calibration"]["n"] == 64
        assert made["source_made"]["build_s"] == 1.5

    def test_a_kill_leaves_no_half_file(self, converter, tmp_path, monkeypatch):
        def dies(*_, **__):
            raise ModelError("E-TFL-7", "cannot convert")

        monkeypatch.setattr(sys.modules["edgescope.wings.litert.litert_torch"], "convert", dies)
        with pytest.raises(ModelError, match="E-TFL-7"):
            tflite.tflite(self.Net(), tmp_path, batch=1)
        assert not list(tmp_path.glob("*.tflite"))

    def test_without_the_converter_the_way_out_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "litert_torch", None)
        monkeypatch.delitem(sys.modules, "edgescope.wings.litert.litert_torch", raising=False)
        with pytest.raises(UnavailableError, match=r"pip install litert-torch \(1.2 GB\)"):
            LiteRt().prepare(self.Net(), Spec(), tmp_path)


def test_the_registry_knows_it():
    assert registry.load(registry.BACKENDS, "litert", "backend") is LiteRt
    assert registry.home("litert") == "cpu"
