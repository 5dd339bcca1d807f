"""The networks of the study train on MNIST, CIFAR-10 and GLD-23k from their own files."""

import json

import numpy as np
import pytest

from edgescope.wings.training import data_sets
from edgescope.wings.training.data_sets import Packed, Photographs, Pictures
from published_sets import cifar10, landmarks, mnist

USUAL = {"decode": "full", "medium": "as_is", "medium_by": "delay", "preload": 0}


def test_mnist_is_held_in_memory(tmp_path):
    made = mnist(tmp_path)
    items = data_sets.opened(tmp_path, Pictures(1, 28, 28, (0.0,), (1.0,)), 0, USUAL)
    assert isinstance(items, Packed) and len(items) == 6
    tensor, label = items[2]
    assert np.allclose(tensor[0] * 255, made["train"][0][2]) and label == made["train"][1][2]
    assert "(train) is used" in items.notes[0]


def test_cifar_has_colours_first(tmp_path):
    cifar10(tmp_path)
    items = data_sets.opened(tmp_path, Pictures(3, 32, 32), 5, USUAL)
    assert len(items) == 5 and items[0][0].shape == (3, 32, 32) and items.classes == 3


def test_landmarks_are_decoded_one_by_one_and_their_classes_alternate(tmp_path):
    rows = landmarks(tmp_path)
    items = data_sets.opened(tmp_path, Pictures(3, 16, 16), 0, USUAL)
    assert isinstance(items, Photographs) and items.labels == [0, 1, 2, 0]
    assert items[0][0].shape == (3, 16, 16) and items.files[3].stem == rows[3][1]
    assert data_sets.draft_share(tmp_path, (3, 16, 16), files=2)[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "make"),
    [("lenet5", lambda root: mnist(root, (64, 8))), ("resnet18_cifar", lambda root: cifar10(root, 16))],
)
def test_bench_trains_on_it(tmp_path, model, make, capsys):
    from edgescope.cli.main import main

    make(tmp_path / "set")
    said = ["--workload", "training", "--workload-option", f"images={tmp_path / 'set'}", "--batch", "8"]
    code = main(["bench", model, *said, "--duration", "2s", "--store", str(tmp_path / "store"), "--json"])
    assert code in (0, 3) and json.loads(capsys.readouterr().out)["status"] == "ok"
