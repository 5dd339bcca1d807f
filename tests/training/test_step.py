"""A step moves what it is given, updates the weights, and marks its parts."""

from collections import namedtuple
from dataclasses import dataclass

import torch
from torch import nn

from edgescope.training.step import Step, moved
from edgescope.training.task import Task


def line():
    network = nn.Linear(3, 1)
    return Task(
        network,
        lambda epoch: [(torch.ones(4, 3), torch.zeros(4, 1))],
        lambda net, batch: nn.functional.mse_loss(net(batch[0]), batch[1]),
        torch.optim.SGD(network.parameters(), lr=0.05),
    )


def test_a_step_lowers_the_loss_and_marks_its_parts_in_order():
    task, parts = line(), []
    step = Step(task, "cpu")
    (batch,) = task.batches(0)
    losses = [float(step(batch, parts.append)) for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert parts[:4] == ["h2d", "forward", "backward", "optimizer"] and len(parts) == 20


def test_a_minibatch_of_any_shape_is_moved():
    Pair = namedtuple("Pair", "a b")

    @dataclass(frozen=True)
    class Row:
        x: torch.Tensor
        name: str

    batch = {"p": Pair(torch.zeros(1), [torch.ones(2)]), "r": Row(torch.zeros(3), "film"), "n": 4}
    got = moved(batch, "meta")
    assert got["p"].a.is_meta and got["p"].b[0].is_meta and got["r"].x.is_meta
    assert got["r"].name == "film" and got["n"] == 4
