"""Where an exported file lies, what decides that it is another one, and what its sidecar says; nothing is exported."""

from __future__ import annotations

import pytest

from edgescope import cache
from edgescope.artifacts import for_precision, onnx_export
from edgescope.errors import UsageError
from edgescope.models.base import TensorSpec
from edgescope.records import ModelInfo

SPECS = (TensorSpec("x", (3,), "float32"),)
INFO = ModelInfo("net", "unknown", False, "a test", "d1")


@pytest.fixture
def exporter(monkeypatch):
    """Stand in for export and renaming: a few bytes, and what was asked for."""
    asked, names = [], []

    def export(module, inputs, path, ranges, *, opset, batch):
        asked.append((module, ranges, opset, batch))
        path.write_bytes(b"onnx")
        return {"build_s": 1.0}

    stands_in = {"export": export, "rename": lambda path: list(names)}
    monkeypatch.setattr(onnx_export, "need", lambda target, *_: stands_in[target.partition(":")[2]])
    return asked, names


def made(folder, info=INFO, **how):
    return onnx_export.onnx_file(info, SPECS, lambda: "network", folder, **how)


def test_each_opset_batch_network_and_package_has_a_file_of_its_own(tmp_path, exporter):
    asked, _ = exporter
    ways = [{}, {"opset": 13}, {"opset": 17}, {"batch": 1}, {"batch": 2}, {"packages": ("numpy",)}]
    ways.append({"info": ModelInfo("net", "unknown", False, "a test", "d2")})
    paths = [made(tmp_path, **way) for way in ways]
    assert len(set(paths)) == len(ways) and made(tmp_path, opset=18) == paths[0]
    assert [row[2:] for row in asked[:5]] == [(18, None), (13, None), (17, None), (18, 1), (18, 2)]
    made(tmp_path, batch=3, ranges={"x": (0, 5)})
    assert asked[-1] == ("network", {"x": (0, 5)}, 18, 3)


@pytest.mark.parametrize(
    ("opset", "tool"), [(19, "onnxscript"), (18, "onnxscript"), (17, "onnxslim"), (9, "onnxslim")]
)
def test_the_versions_of_the_exporter_that_is_used_are_noted(tmp_path, exporter, opset, tool):
    about = cache.notes(made(tmp_path, opset=opset, packages=("numpy",)))
    assert set(about["made_with"]) == {"torch", "onnx", "numpy", tool}
    assert (about["model"], about["model_digest"], about["bytes"]) == ("net", "d1", 4)
    assert "batch_axis_was" not in about


def test_another_name_of_the_batch_axis_is_noted(tmp_path, exporter):
    exporter[1].append("s77")
    assert cache.notes(made(tmp_path))["batch_axis_was"] == ["s77"]


@pytest.mark.parametrize(("opset", "known"), [(9, True), (8, False)])
def test_no_opset_before_nine_is_written(tmp_path, exporter, opset, known):
    if known:
        assert made(tmp_path, opset=opset).exists()
        return
    with pytest.raises(UsageError, match="E-EXPORT-6"):
        made(tmp_path, opset=opset)


@pytest.mark.parametrize(
    ("version", "opset"),
    [
        ("7.0", 11),
        ("7", 11),
        ("7.2.9", 11),
        ("7.9", 11),
        ("8", 13),
        ("8.0.0", 13),
        ("8.3", 13),
        ("8.4", 17),
        ("8.6.1", 17),
        ("9.9", 17),
        ("10", None),
        ("10.0.1", None),
        ("11", None),
    ],
)
def test_each_tensorrt_has_its_latest_opset(version, opset):
    assert onnx_export.opset_for(version) == opset


@pytest.mark.parametrize("version", ["6.9", "", "x", "8.x", "8."])
def test_an_unknown_tensorrt_is_told_with_those_that_are_known(version):
    with pytest.raises(UsageError) as caught:
        onnx_export.opset_for(version)
    assert caught.value.code == "E-EXPORT-5"
    assert caught.value.evidence == "known: 7.0 on, 8.0 on, 8.4 on, 10.0 on"


def test_weights_beside_a_file_count_with_it(tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(b"1234")
    assert onnx_export.size_of(path) == {"bytes": 4, "sha256": cache.content(path)}
    data = cache.external_data(path)
    data.write_bytes(b"12345")
    assert onnx_export.size_of(path) == {
        "bytes": 9,
        "sha256": cache.content(path),
        "data_sha256": cache.content(data),
    }


def test_fp16_is_made_once_from_the_file_of_the_same_opset(tmp_path, monkeypatch):
    class Net:
        info = INFO

        def onnx(self, folder, opset=None):
            path = tmp_path / f"own{opset}.onnx"
            path.write_bytes(f"own {opset}".encode())
            return path

    asked = []

    def convert(source, path):
        asked.append(source.name)
        path.write_bytes(b"half")
        return {"build_s": 1.0}

    monkeypatch.setattr(for_precision, "need", lambda *_: convert)
    paths = [for_precision.fp16(Net(), tmp_path / "made", opset=opset) for opset in (None, 13, None)]
    assert paths[0] == paths[2] != paths[1] and asked == ["ownNone.onnx", "own13.onnx"]
    about = cache.notes(paths[0])
    assert (about["model"], about["model_digest"], about["build_s"]) == ("net", "d1", 1.0)
