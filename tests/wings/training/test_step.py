"""A step moves what it is given, updates the weights, and marks its parts."""

from collections import namedtuple
from dataclasses import dataclass, replace

import torch
from torch import nn

from edgescope.fit import Step, Task, moved


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


def test_only_half_precision_has_its_loss_scaled_and_a_schedule_goes_on_with_each_step(monkeypatch):
    made = {name: Step(line(), "cpu", name) for name in ("fp32", "tf32", "bf16", "fp16")}
    assert {name: step.dtype for name, step in made.items()} == {
        **{"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
    }
    assert [name for name, step in made.items() if step.scaler.is_enabled()] == ["fp16"]
    assert made["fp32"].non_blocking is False and Step(line(), "cpu", non_blocking=True).non_blocking
    seen, task = [], line()
    task = replace(task, schedule=torch.optim.lr_scheduler.StepLR(task.optimizer, 1, 0.5))
    for precision, wanted in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        chosen = replace(
            task, loss=lambda net, batch: seen.append(net(batch[0]).dtype) or task.loss(net, batch)
        )
        loss = Step(chosen, "cpu", precision)(next(iter(task.batches(0))))
        assert seen.pop() is wanted and not loss.requires_grad
    assert task.optimizer.param_groups[0]["lr"] == 0.05 * 0.25


def test_gradients_of_the_step_before_are_forgotten():
    task = line()
    for _ in range(2):
        before = [p.detach().clone() for p in task.network.parameters()]
        Step(task, "cpu")(next(iter(task.batches(0))))
        change = [b - p for b, p in zip(before, task.network.parameters(), strict=True)]
        assert all(
            torch.allclose(c, 0.05 * p.grad) for c, p in zip(change, task.network.parameters(), strict=True)
        )


def test_how_tensors_are_moved_is_passed_on(monkeypatch):
    told = []
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device, non_blocking: told.append(non_blocking))
    moved({"a": [torch.zeros(1)]}, "cpu", non_blocking=True)
    moved((torch.zeros(1), Row), "cpu")
    assert told == [True, False]


@dataclass
class Row:
    """A class, which is no row."""

    x: int
