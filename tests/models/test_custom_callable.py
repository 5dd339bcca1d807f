import hashlib
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.models import zoo
from edgescope.models.base import Purpose

pytestmark = pytest.mark.network

SOURCE = """
import os
import random

import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, ids, mask):
        return self.head((self.embed(ids) * mask.unsqueeze(-1)).mean(1))

def text():
    return Net(), {"mask": torch.ones(1, 5), "ids": torch.tensor([[0, 8, 2, 3, 4]])}

def plain():
    return nn.Linear(4, 2), torch.zeros(1, 4)

def stateful():
    net = nn.Linear(4, 2)
    net.load_state_dict(torch.load("own.pth", weights_only=True))
    return net, (torch.zeros(1, 4),)

def drawn():
    net = nn.Linear(2, 2, bias=False)
    net.weight.data = torch.tensor([[np.random.rand(), random.random()], torch.rand(2).tolist()])
    return net, torch.randn(1, 2)

def drifting():
    net = nn.Linear(4, 2)
    net.bias.data[0] = int.from_bytes(os.urandom(3), "big")
    return net, torch.zeros(1, 4)

def nothing():
    return nn.Linear(4, 2)

def words():
    return nn.Linear(4, 2), ("four",)

def broken():
    raise ValueError("no such dataset: cats")

def branching():
    class Net(nn.Module):
        def forward(self, x):
            return x if x.sum().item() > 0 else -x
    return Net(), torch.zeros(1, 4)
"""
counter = iter(range(100))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of a fresh name in the current folder."""
    name = f"user_net_{next(counter)}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_inputs_are_named_as_in_forward(module):
    model = zoo.get(f"{module}:text")
    assert [(s.name, s.shape, s.dtype) for s in model.inputs] == [
        ("ids", (5,), "int64"),
        ("mask", (5,), "float32"),
    ]
    assert model.info.params == 9 * 4 + 4 * 3 + 3
    assert not model.info.trained
    ids = model.samples(Purpose.GATE, 20).arrays["ids"]
    assert ids.min() >= 0
    assert ids.max() <= 8


@pytest.mark.slow
def test_it_is_exported_and_agrees(module, tmp_path, open_onnx):
    model = zoo.get(f"{module}:text")
    path = model.onnx(tmp_path / "out")
    assert cache.notes(path)["parity"]["max_rel_error"] < 1e-5
    batch = model.samples(Purpose.BENCH, 3).arrays
    with torch.inference_mode():
        wanted = model.module()(*(torch.from_numpy(batch[s.name]) for s in model.inputs)).numpy()
    assert np.allclose(open_onnx(path)(batch)[0], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("broken", r"raised an error.*ValueError: no such dataset: cats.*\.py:\d+"),
        ("nothing", r"must return \(nn\.Module, .*a Linear"),
        ("words", r"must return.*not tensors"),
        ("absent", r"cannot be imported.*AttributeError"),
    ],
)
def test_a_bad_factory_is_explained(module, factory, said):
    with pytest.raises(ModelError, match=said):
        zoo.get(f"{module}:{factory}")


def test_a_missing_module_is_explained():
    with pytest.raises(ModelError, match="ModuleNotFoundError"):
        zoo.get("no_such_module_anywhere:make")


@pytest.mark.slow
def test_a_network_that_cannot_be_exported_is_explained(module, tmp_path):
    with pytest.raises(ModelError, match=r"cannot be exported.*torch_eager"):
        zoo.get(f"{module}:branching").onnx(tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


def fresh(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_known_factory_is_measured_without_torch_until_a_file_it_read_changes(module, tmp_path):
    look = f"""
    import sys
    from edgescope.models import zoo
    print(zoo.get("{module}:stateful").info.digest, "torch" in sys.modules)
    """
    torch.save(torch.nn.Linear(4, 2).state_dict(), tmp_path / "own.pth")
    first, again = fresh(look).split(), fresh(look).split()
    assert first[1] == "True"
    assert again == [first[0], "False"]
    torch.save(torch.nn.Linear(4, 2).state_dict(), tmp_path / "own.pth")
    changed = fresh(look).split()
    assert changed[1] == "True"
    assert changed[0] != first[0]


WEIGHTS = """
import hashlib
from edgescope.models import zoo
state = zoo.get({name!r}).module().state_dict()
print(hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in state.values())).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["plain", "drawn"])
def test_a_factory_without_a_seed_gives_every_process_the_same_weights(module, factory):
    """The reference, the exported file and the measured network each come from a process of their own."""
    name = f"{module}:{factory}"
    other = fresh(WEIGHTS.format(name=name))
    for seed in (1, 2):
        for draw in (torch.manual_seed, np.random.seed, random.seed):
            draw(seed)
        state = zoo.get(name).module().state_dict()
        assert hashlib.sha256(b"".join(t.numpy().tobytes() for t in state.values())).hexdigest() == other


def test_a_factory_that_draws_other_weights_each_time_is_refused(module):
    model = zoo.get(f"{module}:drifting")
    with pytest.raises(ModelError, match=r"E-FACTORY-4.*not deterministic.*Try: .*load its weights"):
        model.module()


def test_the_pin_runs_none_of_the_users_code(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("raise SystemExit('imported')")
    assert "#" in zoo.pin(f"{module}:plain")


def test_the_pin_follows_the_source(module, tmp_path):
    pinned = zoo.pin(f"{module}:plain")
    assert "#" in pinned
    assert zoo.get(pinned).info.params == 10
    (tmp_path / f"{module}.py").write_text(SOURCE + "\n# changed\n")
    with pytest.raises(ModelError, match="planned"):
        zoo.get(pinned)
