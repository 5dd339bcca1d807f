import onnx
import pytest

from edgescope import cache
from edgescope.artifacts import for_precision, onnx_write
from edgescope.errors import StoreError, UnsupportedError
from edgescope.verify import judge, measures


@pytest.mark.slow
def test_fp16_keeps_inputs_opset_and_answers(untrained, untrained_truth, artifacts, open_onnx):
    source = untrained.onnx(artifacts, 13)
    path = for_precision.fp16(untrained, artifacts, opset=13)
    model = onnx.load(str(path))
    assert {entry.version for entry in model.opset_import if entry.domain == ""} == {13}
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert path.stat().st_size < 0.6 * source.stat().st_size
    got = judge.outputs(open_onnx(path), judge.gate_samples(untrained), 1)
    assert measures.centred_l2(got, untrained_truth.gate) < 0.05
    assert cache.whole(path)
    assert cache.notes(path)["source_made"]["opset"] == 13


def test_each_opset_has_its_own_fp16_file(untrained, artifacts):
    assert for_precision.fp16(untrained, artifacts) != for_precision.fp16(untrained, artifacts, opset=13)


def test_large_fp16_weights_lie_beside_the_file(untrained, artifacts, tmp_path, monkeypatch, open_onnx):
    from edgescope.artifacts import onnx_write

    monkeypatch.setattr(onnx_write, "LIMIT", 1000)
    path = tmp_path / "half.onnx"
    found = onnx_write.convert(untrained.onnx(artifacts), path)
    assert path.stat().st_size < 200_000 < cache.external_data(path).stat().st_size
    assert found["bytes"] == path.stat().st_size + cache.external_data(path).stat().st_size
    open_onnx(path)


def test_what_cannot_be_lowered_leaves_nothing(untrained, artifacts, tmp_path, monkeypatch):
    monkeypatch.setattr(type(untrained), "onnx", lambda self, folder, opset=None: bad)
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"not onnx")
    with pytest.raises(UnsupportedError, match=r"E-FP16-1.*--precision fp32"):
        for_precision.fp16(untrained, tmp_path / "made")
    assert list((tmp_path / "made").iterdir()) == []


def test_a_full_disk_is_named(untrained, artifacts, tmp_path, monkeypatch):

    def full(source, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx_write, "convert", full)
    source = untrained.onnx(artifacts)
    monkeypatch.setattr(type(untrained), "onnx", lambda self, folder, opset=None: source)
    with pytest.raises(StoreError, match=r"No space left.*Try: free space"):
        for_precision.fp16(untrained, tmp_path / "made")
    assert list((tmp_path / "made").iterdir()) == []
