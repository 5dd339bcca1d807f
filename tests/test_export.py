import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch

from edgescope import export
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
    assert about["made_with"]["torch"] == torch.__version__
    graph = onnx.load(str(path)).graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert not list(path.parent.glob("*.data"))


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
