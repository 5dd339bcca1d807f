"""Weights as trainers leave them: found by the network's own names, or refused with what was found.

The kinds are those of public reports: names under torch.compile (pytorch 101107, timm 2003, nanoGPT 325), Lightning's
`model.`, weights beside an optimizer, an average of networks, and files that are no weights at all.
"""

from __future__ import annotations

import argparse
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from edgescope.cli.main import main
from edgescope.errors import ModelError
from edgescope.models import zoo

pytestmark = pytest.mark.network

SOURCE = """
import torch
from torch import nn

def made():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.zeros(2, 4)
"""


@pytest.fixture
def network(tmp_path, monkeypatch):
    """The name of a network, and the state with which each case fills it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own_net_for_weights.py").write_text(SOURCE)
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).state_dict()


def named(prefix, state, **more):
    return {prefix + key: value for key, value in state.items()} | more


def filled(tmp_path, held):
    torch.save(held, tmp_path / "w.pth")
    return zoo.get("own_net_for_weights:made@w.pth").module().state_dict()


OTHER = {"weight": torch.zeros(9, 9), "bias": torch.zeros(9)}


@pytest.mark.parametrize(
    "hold",
    [
        lambda s: named("module.", s),
        lambda s: named("_orig_mod.", s),
        lambda s: named("module._orig_mod.", s),
        lambda s: named("_orig_mod.module.model.", s),
        lambda s: {"state_dict": named("model.", s), "epoch": 1, "hparams": {"lr": 0.1}},
        lambda s: {"state_dict": named("model.net.", s, **{"loss.weight": torch.ones(3)})},
        lambda s: {"net": s, "acc": 91.0},
        lambda s: {"ema": named("module.", s), "step": 1},
        lambda s: {"weights": s},
        lambda s: {"params": s, "params_note": "x"},
        lambda s: {"whatever": {"inside": s}},
        lambda s: {"n_averaged": torch.tensor(4), **named("module.", s)},
        lambda s: {**s, "epoch": 5},
        lambda s: {"generator": s, "discriminator": {f"0.{k}": v for k, v in OTHER.items()}},
        lambda s: {
            "model": s,
            "optimizer": {"state": {0: {"exp_avg": torch.zeros(4, 4)}}, "param_groups": []},
        },
        lambda s: {"ema": {k: v + 1 for k, v in s.items()}, "model": s},
        lambda s: {"model": s, "args": argparse.Namespace(lr=0.1), "best": np.float64(0.9)},
        lambda s: {k.replace("0.", "0._orig_mod."): v for k, v in s.items()},
    ],
)
def test_weights_are_found_by_the_names_of_the_network(tmp_path, network, hold):
    found = filled(tmp_path, hold(network))
    assert all(torch.equal(found[key], value) for key, value in network.items())


@pytest.mark.parametrize(
    ("hold", "said"),
    [
        (lambda s: {k: v for k, v in s.items() if "weight" not in k}, "2 missing: 0.weight, 1.weight"),
        (lambda s: {**s, "7.weight": torch.ones(3)}, "1 not of this network: 7.weight"),
        (lambda s: {**s, "0.weight": torch.ones(4, 5)}, "1 of another shape: 0.weight 4x5 for 4x4"),
        (lambda s: {**named("student.", s), **named("teacher.", s)}, "student.0.weight"),
        (lambda s: {"encoder": OTHER}, "missing"),
    ],
)
def test_weights_of_another_network_are_refused_with_what_was_found(tmp_path, network, hold, said):
    with pytest.raises(ModelError) as caught:
        filled(tmp_path, hold(network))
    assert caught.value.code == "E-WEIGHTS-5" and said in str(caught.value)


def test_a_file_without_weights_lists_what_it_holds(tmp_path, network):
    with pytest.raises(ModelError) as caught:
        filled(tmp_path, {"epoch": 3, "config": {"lr": 0.1}})
    assert caught.value.code == "E-WEIGHTS-4" and "epoch (int), config (dict)" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"<!DOCTYPE html><html></html>", "E-WEIGHTS-3", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "E-WEIGHTS-3", "Git LFS pointer"),
        (b"", "E-WEIGHTS-3", "0 bytes"),
        (pickle.dumps({"blobs": {"w": np.zeros(3)}}), "E-WEIGHTS-5", "1 not of this network: w"),
        (pickle.dumps({"blobs": {"w": {1, 2}}}, 2), "E-WEIGHTS-2", "a pickle that PyTorch did not write"),
        (pickle.dumps({"blobs": {"w": len}}), "E-WEIGHTS-2", "builtins.len"),
        (pickle.dumps({"w": np.zeros(3)})[:-20], "E-WEIGHTS-2", "a pickle that PyTorch did not write"),
        (pickle.dumps(["w", 1]), "E-WEIGHTS-4", "found list"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_named(tmp_path, network, data, code, said):
    (tmp_path / "w.pth").write_bytes(data)
    with pytest.raises(ModelError) as caught:
        zoo.get("own_net_for_weights:made@w.pth").module()
    assert caught.value.code == code and said in str(caught.value) and caught.value.fix


@pytest.mark.process
def test_a_pickled_network_is_refused_without_the_colours_of_its_reader(tmp_path, network, capsys):
    torch.save(nn.Linear(2, 2), tmp_path / "w.pth")
    code = main(["bench", "own_net_for_weights:made@w.pth", "--store", str(tmp_path / "s")])
    said = "".join(capsys.readouterr())
    assert code == 1 and "\x1b" not in said and "torch.nn.modules.linear.Linear" in " ".join(said.split())


@pytest.mark.parametrize("protocol", [1, 2, 4])
def test_a_pickle_of_arrays_is_read_as_weights(tmp_path, network, protocol):
    blobs = {key: value.numpy() for key, value in network.items()}
    (tmp_path / "w.pth").write_bytes(pickle.dumps({"blobs": blobs, "cfg": "lr: 0.1"}, protocol))
    found = zoo.get("own_net_for_weights:made@w.pth").module().state_dict()
    assert all(torch.equal(found[key], value) for key, value in network.items())


def test_safetensors_are_known_by_their_content(tmp_path, network):
    from safetensors.torch import save_file

    save_file(named("_orig_mod.", network), str(tmp_path / "w.pth"))
    found = zoo.get("own_net_for_weights:made@w.pth").module().state_dict()
    assert all(torch.equal(found[key], value) for key, value in network.items())
