import importlib.metadata
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch

from edgescope import _batch_axis, cache, export
from edgescope.errors import ModelError
from edgescope.models.base import Purpose, TensorSpec
from edgescope.records import ModelInfo

SPECS = (TensorSpec("x", (3, 8, 8), "float32"),)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).relu().mean((2, 3))


class Random(Small):
    """Answers differently each time, as a network left in training mode would."""

    def forward(self, x):
        return super().forward(x) + torch.randn(4)


def info(name="small", digest="1" * 16):
    return ModelInfo(name, "unknown", False, "a test", digest)


def test_every_batch_size_agrees_with_torch(untrained, artifacts, open_onnx):
    path = untrained.onnx(artifacts)
    run, module = open_onnx(path), untrained.module()
    batch = untrained.samples(Purpose.GATE, 5).arrays
    for n in (1, 3, 5):
        with torch.inference_mode():
            wanted = module(torch.from_numpy(batch["input"][:n])).numpy()
        got = run({"input": batch["input"][:n]})[0]
        assert got.shape == (n, 1000)
        assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_the_file_says_how_it_was_made(trained, artifacts):
    path = trained.onnx(artifacts)
    about = export.about(path)
    assert about["model_digest"] == trained.info.digest
    assert about["parity"]["max_rel_error"] < 1e-5
    assert about["parity"]["batches"] == [1, 4]
    assert about["build_s"] > 0
    assert about["opset"] == 18
    assert about["made_with"]["torch"] == importlib.metadata.version("torch")
    graph = onnx.load(str(path)).graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert not list(path.parent.glob("*.data"))


def labelled(path, *axes, sizes=(3, 5)):
    """x, x2 -> inner -> y, the batch axis under the given names."""
    info = lambda name, *dims: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)  # noqa: E731
    nodes = [onnx.helper.make_node("Relu", ["x"], ["inner"]), onnx.helper.make_node("Exp", ["inner"], ["y"])]
    nodes.append(onnx.helper.make_node("Neg", ["x2"], ["y2"]))
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [info("x", axes[0], *sizes), info("x2", axes[-1], *sizes)],
        [info("y", axes[0], *sizes), info("y2", axes[-1], *sizes)],
        value_info=[info("inner", axes[0], *sizes)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(path))
    return path


def labels(path):
    graph = onnx.load(str(path)).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    return [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values]


@pytest.mark.parametrize("axes", [("s77",), ("batch", "s12")])
def test_a_batch_axis_of_another_name_is_called_n_everywhere(tmp_path, axes, open_onnx):
    path = labelled(tmp_path / "a.onnx", *axes)
    assert _batch_axis.rename(path) == sorted(axes)
    assert labels(path) == [["N", 3, 5]] * 5
    x = np.ones((4, 3, 5), np.float32)
    assert np.allclose(open_onnx(path)({"x": x, "x2": x})[0], np.e)


def test_sums_and_products_of_the_batch_are_renamed_with_it_and_other_axes_are_not(tmp_path):
    path = labelled(tmp_path / "a.onnx", "s7", sizes=("4*s7", "s77"))
    assert _batch_axis.rename(path) == ["s7"]
    assert labels(path) == [["N", "4*N", "s77"]] * 5


@pytest.mark.parametrize("axes", [("N",), (2,)], ids=["right already", "closed"])
def test_a_file_whose_batch_axis_needs_no_name_is_left_alone(tmp_path, axes):
    path = labelled(tmp_path / "a.onnx", *axes)
    before = path.read_bytes()
    assert _batch_axis.rename(path) == []
    assert path.read_bytes() == before


def test_an_exporter_with_names_of_its_own_still_gives_a_file_to_trust(tmp_path, monkeypatch):
    """As a torch version would that does not keep the name it was asked for."""
    from edgescope import _exporter

    write = _exporter._write

    def under_another_name(module, example, inputs, path):
        write(module, example, inputs, path)
        data = onnx.load(str(path))
        for value in (*data.graph.input, *data.graph.output, *data.graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "N":
                    dim.dim_param = "s77"
        onnx.save(data, str(path))

    monkeypatch.setattr(_exporter, "_write", under_another_name)
    path = export.onnx_file(info(), SPECS, Small, tmp_path)
    about = export.about(path)
    assert about["batch_axis_was"] == ["s77"]
    assert labels(path)[0] == ["N", 3, 8, 8]
    assert about["sha256"] == cache.content(path)
    assert export.whole(path)


def test_it_is_exported_once_and_quietly(tmp_path, capfd):
    made = []
    path = export.onnx_file(info(), SPECS, lambda: made.append(1) or Small(), tmp_path)
    assert export.onnx_file(info(), SPECS, lambda: made.append(1) or Small(), tmp_path) == path
    assert len(made) == 1
    assert capfd.readouterr().out == ""


def test_another_model_gets_another_file(tmp_path):
    paths = {export.onnx_file(info(digest=d), SPECS, Small, tmp_path) for d in ("a", "b")}
    assert len(paths) == 2


def test_a_damaged_file_is_made_again(tmp_path):
    path = export.onnx_file(info(), SPECS, Small, tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-9])
    export.onnx_file(info(), SPECS, Small, tmp_path)
    assert path.stat().st_size == size


def test_a_file_that_computes_something_else_is_not_kept(tmp_path):
    with pytest.raises(ModelError, match=r"does not compute what the network computes.*relative error"):
        export.onnx_file(info(), SPECS, Random, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_cached_export_needs_no_torch(trained, artifacts):
    path = trained.onnx(artifacts)
    code = f"""
import sys
for name in ("torch", "onnx", "onnxscript", "timm", "torchvision"):
    sys.modules[name] = None
from pathlib import Path
from edgescope.models import zoo
from edgescope.models.base import Purpose
model = zoo.get("efficientnet_lite0")
assert model.onnx(Path({str(artifacts)!r})) == Path({str(path)!r})
assert len(model.samples(Purpose.BENCH, 4)) == 4
"""
    subprocess.run([sys.executable, "-c", code], check=True)
