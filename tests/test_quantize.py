import dataclasses
import subprocess
import sys

import numpy as np
import onnx
import pytest

from edgescope import cache, export, quantize, verify
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Purpose, Samples


@pytest.fixture(scope="module")
def int8_file(trained, artifacts):
    return quantize.int8(trained, artifacts)


def openvino_on(path):
    import openvino

    model = openvino.Core().read_model(str(path))
    model.reshape([1, 3, 224, 224])
    request = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    return lambda batch: [request.infer({0: batch["input"]})[0].copy()]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_one_file_passes_the_gate_in_both_engines(engine, int8_file, trained, trained_truth, open_onnx):
    run = open_onnx(int8_file) if engine == "onnxruntime" else openvino_on(int8_file)
    answer, _ = verify.verify(run, trained, trained_truth, precision="int8")
    assert answer.passed, answer.detail
    assert answer.fields["top1_agreement"].lo >= 0.85
    assert answer.fields["top1_agreement"].n >= 300
    assert answer.fields["accuracy"].n == 20


def test_the_file_is_int8_and_says_how_it_was_made(int8_file, trained, artifacts):
    about = export.about(int8_file)
    source = trained.onnx(artifacts)
    assert int8_file.stat().st_size < 0.35 * source.stat().st_size
    assert about["source_sha256"] == cache.content(source)
    assert about["calibration"]["digests"] == list(trained.samples(Purpose.CALIBRATION, 64).digests)
    assert about["biases_corrected"] >= 40
    assert about["build_s"] > 0
    weights = [t for t in onnx.load(str(int8_file)).graph.initializer if t.data_type == onnx.TensorProto.INT8]
    assert len(weights) >= 40
    convolutions = [n.name for n in onnx.load(str(int8_file)).graph.node if n.op_type == "Conv"]
    assert set(about["kept_float"]) <= set(convolutions)


def test_correcting_biases_brings_the_outputs_closer(
    untrained, untrained_truth, artifacts, tmp_path, open_onnx, monkeypatch
):
    """On its own: the same file with and without the correction."""
    from edgescope import _quantizer

    source, calibration = untrained.onnx(artifacts), untrained.samples(Purpose.CALIBRATION, 16)
    errors = []
    for name in ("with", "without"):
        if name == "without":
            monkeypatch.setattr(_quantizer, "correct_biases", lambda *args: 0)
        path = tmp_path / f"{name}.onnx"
        _quantizer.quantize(source, calibration, path, keep_float=2)
        got = verify.outputs(open_onnx(path), verify.gate_samples(untrained), 1)
        errors.append(verify.centred_l2(got, untrained_truth.gate))
    assert errors[0] < 0.7 * errors[1]


def test_a_calibration_input_among_the_gates_is_refused(trained, artifacts, monkeypatch):
    gate, calibration = trained.samples(Purpose.GATE, 400), trained.samples(Purpose.CALIBRATION, 64)
    planted = dataclasses.replace(calibration, digests=(*calibration.digests[:-1], gate.digests[7]))
    with pytest.raises(UsageError, match=f"E-LEAK-1.*1 calibration inputs.*{gate.digests[7]}"):
        quantize.disjoint(planted, gate)
    samples = type(trained).samples
    leaky = lambda self, purpose, n: planted if purpose is Purpose.CALIBRATION else samples(self, purpose, n)  # noqa: E731
    monkeypatch.setattr(type(trained), "samples", leaky)
    with pytest.raises(UsageError, match="E-LEAK-1"):
        quantize.int8(trained, artifacts)


def test_without_calibration_inputs_there_is_no_int8(trained, artifacts, monkeypatch):
    monkeypatch.setattr(type(trained), "samples", lambda self, purpose, n: None)
    with pytest.raises(UnsupportedError, match=r"no calibration inputs.*Try: "):
        quantize.int8(trained, artifacts)


def test_what_cannot_be_quantised_is_unsupported(tmp_path):
    from edgescope import _quantizer

    (tmp_path / "bad.onnx").write_bytes(b"not onnx")
    samples = Samples({"x": np.zeros((2, 3), np.float32)}, ("a", "b"), "")
    with pytest.raises(UnsupportedError, match="cannot be quantised"):
        _quantizer.quantize(tmp_path / "bad.onnx", samples, tmp_path / "out.onnx", keep_float=2)
    assert not (tmp_path / "out.onnx").exists()


def test_a_cached_file_needs_neither_torch_nor_onnx(int8_file, artifacts):
    code = f"""
import sys
for name in ("torch", "onnx", "onnxruntime", "onnxscript"):
    sys.modules[name] = None
from pathlib import Path
from edgescope import quantize
from edgescope.models import zoo
assert quantize.int8(zoo.get("efficientnet_lite0"), Path({str(artifacts)!r})) == Path({str(int8_file)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
