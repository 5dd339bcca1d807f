"""run.py of a pick on a GPU: with its graph and its folded network, on a device made of the CPU and on a real one."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import edgescope
from edgescope.models import zoo
from edgescope.records import Status, Trial
from edgescope.wings.optimize import check, save, standalone

pytestmark = pytest.mark.slow

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

class Pair(nn.Module):
    # numbers and indices in; a mixture, other indices, and an input as it came out
    def __init__(self):
        super().__init__()
        self.rows, self.mix = nn.Embedding(7, 4), nn.Linear(4, 4)

    def forward(self, x, ids):
        return {"mixed": self.mix(self.rows(ids) + x), "next": ids + 1, "same": x}

def pair():
    torch.manual_seed(0)
    return Pair().eval(), (torch.randn(1, 4), torch.zeros(1, dtype=torch.int64))
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


def deployed(trial, folder):
    """run.py beside a module that was exported here, on the CPU."""
    network = zoo.get(trial.model)
    save.export(network, replace(trial, device="cpu"), folder / "model.pt2")
    names = tuple(i.name for i in network.inputs)
    inputs = {i.name: i.shape for i in network.inputs}
    (folder / "run.py").write_text(standalone.script(trial, "model.pt2", inputs))
    shutil.copy(check.__file__, folder)
    return network.module(), names


PROGRAM = """
import contextlib, fake_cuda, os, runpy, sys, traceback

sys.argv[1:] = ["in.npz", "out.npz"]
for folder in sys.stdin:
    os.chdir(folder.strip())
    ended = "done"
    with open("said.txt", "w") as said, contextlib.redirect_stdout(said):
        try:
            runpy.run_path("run.py", run_name="__main__")
        except BaseException:
            ended = "failed"
            traceback.print_exc(file=said)
    print(ended, flush=True)
"""


@pytest.fixture(scope="module")
def cuda_program():
    """A process with a device made of the CPU; it runs run.py in the folders that it reads: importing takes seconds."""
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        yield program


@pytest.fixture
def answered(cuda_program, tmp_path):
    """A function that returns what run.py answers there; ValueError with its last words if it fails."""

    def answered(given):
        np.savez(tmp_path / "in.npz", **given)
        print(tmp_path, file=cuda_program.stdin, flush=True)
        if cuda_program.stdout.readline() != "done\n":
            raise ValueError((tmp_path / "said.txt").read_text())
        with np.load(tmp_path / "out.npz") as got:
            return [got[f"output_{i}"] for i in range(len(got.files))]

    return answered


def images(n):
    return np.random.default_rng(1).standard_normal((n, 3, 32, 32), dtype=np.float32)


@pytest.mark.parametrize(("options", "batch"), [({"graph": True}, 1), (FUSED, 2)])
def test_a_replayed_graph_answers_each_batch_anew(model, tmp_path, answered, options, batch):
    trial = Trial(model=model, backend="torch_eager", device="cuda", options=options, batch=batch)
    module, (name,) = deployed(trial, tmp_path)
    (got,) = answered({name: images(6)})
    with torch.inference_mode():
        assert np.abs(got - module(torch.from_numpy(images(6))).numpy()).max() < 1e-4
    assert standalone.left_out(trial) == ()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_replayed_graph_takes_indices_and_gives_out_what_it_was_given(model, tmp_path, answered, precision):
    trial = Trial(
        model="tiny_cuda:pair",
        backend="torch_eager",
        device="cuda",
        precision=precision,
        options={"graph": True},
    )
    module, names = deployed(trial, tmp_path)
    x = np.random.default_rng(2).standard_normal((5, 4), dtype=np.float32)
    ids = np.array([3, 0, 6, 2, 5])
    mixed, after, same = answered(dict(zip(names, (x, ids), strict=True)))
    with torch.inference_mode():
        wanted = module(torch.from_numpy(x), torch.from_numpy(ids))["mixed"].numpy()
    near = 1e-5 if precision == "fp32" else 0.05
    assert np.abs(mixed - wanted).max() < near and np.abs(same - x).max() < near
    assert (after == ids + 1).all()


def test_a_batch_of_another_shape_is_not_answered_by_repeating_a_row(model, tmp_path, answered):
    trial = Trial(model=model, backend="torch_eager", device="cuda", options=FUSED, batch=2)
    _, (name,) = deployed(trial, tmp_path)
    with pytest.raises(ValueError, match=r"is \(1, 3, 32, 32\), the first call's was \(2, 3, 32, 32\)"):
        answered({name: images(5)})


def test_a_folded_network_keeps_its_fused_kernels_in_the_file(model, tmp_path):
    trial = Trial(model=model, backend="torch_eager", options=FUSED)
    save.export(zoo.get(model), trial, tmp_path / "model.pt2")
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
    assert standalone.left_out(trial) == left
    assert standalone.left_out(replace(trial, options={})) == ()


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
def test_a_pick_of_a_gpu_is_handed_over_about_as_fast_as_it_was_measured(
    model, tmp_path, backend, precision, options
):
    trial = Trial(
        model="squeezenet1_1", backend=backend, precision=precision, device="cuda", options=options, max_s=1.0
    )
    found = edgescope.run(trial)
    assert found.status in (Status.OK, Status.UNSTABLE), found.reason
    folder = save.save([replace(found, status=Status.OK, reason=None)], [found], tmp_path / "out")
    card = json.loads((folder / "card.json").read_text())
    assert card["artifact"]["left_out_of_run_py"] == [] and card["checked"]["run_py"]["passed"]
    assert card["measured"]["run_py"]["median_s"] < 1.5 * card["measured"]["figures"]["p50_s"]["value"]
