"""run.py of a pick on a GPU: with its graph and its folded network, on a device made of the CPU and on a real one."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import edgescope
from edgescope import _deployer, deploy, snippets
from edgescope.models import zoo
from edgescope.records import Status, Trial

SOURCE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.relu = nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x):
        return torch.relu(self.norm(self.two(self.relu(self.one(x)))) + x)

def net():
    torch.manual_seed(0)
    block = Block()
    block.norm.running_mean.uniform_(-1, 1)
    block.norm.running_var.uniform_(0.5, 2)
    layers = [nn.Conv2d(3, 8, 3, stride=2), block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)]
    return nn.Sequential(*layers).eval(), (torch.randn(1, 3, 32, 32),)
"""
FUSED = {"graph": True, "fold": True, "layout": "channels_last"}


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A small network of the user's own, with a residual and a batch norm."""
    (tmp_path / "tiny_cuda.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    yield "tiny_cuda:net"
    sys.modules.pop("tiny_cuda", None)


@pytest.mark.parametrize(("options", "batch"), [({"graph": True}, 1), (FUSED, 1), (FUSED, 2)])
def test_a_replayed_graph_answers_each_batch_anew(model, tmp_path, options, batch):
    trial = Trial(model=model, backend="torch_eager", device="cuda", options=options, batch=batch)
    network = zoo.get(model)
    _deployer.export(network, replace(trial, device="cpu"), tmp_path / "model.pt2")
    name = network.inputs[0].name
    (tmp_path / "run.py").write_text(snippets.script(trial, "model.pt2", (name,)))
    given = np.random.default_rng(1).standard_normal((6, 3, 32, 32), dtype=np.float32)
    np.savez(tmp_path / "in.npz", **{name: given})
    code = "import runpy, sys, fake_cuda; sys.argv[1:] = ['in.npz', 'out.npz'];"
    code += "runpy.run_path('run.py', run_name='__main__')"
    path = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": path}, check=True)
    with torch.inference_mode():
        wanted = network.module()(torch.from_numpy(given)).numpy()
    with np.load(tmp_path / "out.npz") as got:
        assert np.abs(got["output_0"] - wanted).max() < 1e-4
    assert snippets.left_out(trial) == ()


def test_a_folded_network_keeps_its_fused_kernels_in_the_file(model, tmp_path):
    trial = Trial(model=model, backend="torch_eager", options=FUSED)
    _deployer.export(zoo.get(model), trial, tmp_path / "model.pt2")
    called = {str(n.target) for n in torch.export.load(tmp_path / "model.pt2").graph.nodes}
    assert {"aten.cudnn_convolution_relu.default", "aten.cudnn_convolution_add_relu.default"} <= called
    assert not any("batch_norm" in name for name in called)
    # what was said of the kernels' shapes was said for the export alone
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::cudnn_convolution_relu", "Meta")


@pytest.mark.parametrize(
    ("backend", "left"), [("torch_compile", ()), ("onnxruntime", ()), ("torch_tensorrt", ("graph",))]
)
def test_a_graph_is_left_out_where_there_are_no_lines_for_it(backend, left):
    trial = Trial(model="m", backend=backend, device="cuda", options={"graph": True})
    assert snippets.left_out(trial) == left
    assert snippets.left_out(replace(trial, options={})) == ()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("backend", "precision", "options"),
    [
        ("torch_eager", "fp16", FUSED),
        ("torch_eager", "tf32", {"graph": True}),
        ("torch_compile", "fp16", {"graph": True, "layout": "channels_last"}),
        ("onnxruntime", "tf32", {"graph": True}),
    ],
)
def test_a_pick_of_a_gpu_is_handed_over_as_fast_as_it_was_measured(
    model, tmp_path, backend, precision, options
):
    trial = Trial(
        model="squeezenet1_1", backend=backend, precision=precision, device="cuda", options=options, max_s=1.0
    )
    found = edgescope.run(trial)
    assert found.status in (Status.OK, Status.UNSTABLE), found.reason
    folder = deploy.save([replace(found, status=Status.OK, reason="")], [found], tmp_path / "out")
    card = json.loads((folder / "card.json").read_text())
    assert card["artifact"]["left_out_of_run_py"] == [] and card["checked"]["run_py"]["passed"]
    assert card["measured"]["run_py"]["median_s"] < 2 * card["measured"]["figures"]["p50_s"]["value"]
