"""The loop behind the training workload: one network, one optimizer, minibatches from memory, a step at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from edgescope.backends.base import spec_of
from edgescope.backends.pytorch import module as shared
from edgescope.errors import UnsupportedError
from edgescope.models.base import Model, Purpose
from edgescope.records import UNIT, Effective, Trial

#: Number of different samples in an epoch; more would only fill memory.
DISTINCT = 64
Phase = tuple[str, int, int, int]


class Loop:
    """Trains a network from its initial weights; `loss` and `done` (samples) show the progress."""

    def __init__(
        self, model: Model, trial: Trial, options: Mapping[str, Any], *, dropout: bool = True
    ) -> None:
        self.spec, self.size, self.batch = spec_of(trial), int(options["epoch_samples"]), trial.batch
        shared.require(self.spec)
        torch.manual_seed(trial.seed)
        self.net = model.module().to(self.spec.device).train()
        if not dropout:
            _without_dropout(self.net)
        shared.settle(self.spec)
        self.inputs, self.labels, self.origin = _data(model, self.net, self.spec.device, trial.seed)
        self.optimizer = _optimizer(self.net, str(options["optimizer"]), float(options["learning_rate"]))
        self.order, self.at = np.random.default_rng(abs(trial.seed)), 0
        self.rows: NDArray[np.int64] = self._epoch()
        self.done, self.loss = 0, float("nan")
        self.witness = shared.Heavy(self.net)

    def _epoch(self) -> NDArray[np.int64]:
        """Return the rows of one epoch in a new random order."""
        return self.order.permutation(np.arange(self.size) % len(self.inputs))

    def fetch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next minibatch on the host; the last one of an epoch holds the remaining rows."""
        if self.at >= self.size:
            self.rows, self.at = self._epoch(), 0
        rows = self.rows[self.at : self.at + self.batch]
        self.at += self.batch
        return torch.from_numpy(self.inputs[rows]), torch.from_numpy(self.labels[rows])

    def step(self) -> int:
        """Do one step and return its number of samples; the loss is read, so the device has finished."""
        return self._step([])

    def timed(self, number: int) -> list[Phase]:
        """Do one step, waiting for the device after each part; return the parts as (name, number, start, end)."""
        marks: list[tuple[str, int]] = [("", time.monotonic_ns())]
        self._step(marks)
        found = [(name, number, start, end) for (_, start), (name, end) in itertools.pairwise(marks)]
        return [(UNIT, number, marks[0][1], marks[-1][1]), *found]

    def _step(self, marks: list[tuple[str, int]]) -> int:
        inputs, labels = self.fetch()
        self._mark(marks, "fetch")
        inputs, labels = inputs.to(self.spec.device), labels.to(self.spec.device)
        self._mark(marks, "h2d")
        with torch.autocast(self.spec.device, torch.bfloat16, enabled=self.spec.precision == "bf16"):
            loss = nn.functional.cross_entropy(self.net(inputs), labels)
        self._mark(marks, "forward")
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._mark(marks, "backward")
        self.optimizer.step()
        self._mark(marks, "optimizer")
        self.loss = float(loss.detach())
        self.witness.stop()
        self.done += len(labels)
        return len(labels)

    def _mark(self, marks: list[tuple[str, int]], name: str) -> None:
        if not marks:
            return
        if self.spec.device == "cuda":
            torch.cuda.synchronize()
        marks.append((name, time.monotonic_ns()))

    def effective(self) -> Effective:
        """Return the output precision of the heavy layers in the first step."""
        return self.witness.effective(self.spec)


def _data(
    model: Model, net: nn.Module, device: str, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], str]:
    """Return inputs, labels and their origin: labelled samples if the model has some, else random labels."""
    samples = model.samples(Purpose.BENCH, DISTINCT)
    if samples is None or len(model.inputs) != 1:
        raise UnsupportedError("E-STEP-2", f"there is nothing to train {model.info.name} with")
    inputs = np.array(samples.arrays[model.inputs[0].name], dtype=np.float32)
    with torch.no_grad():
        logits = net.eval()(torch.from_numpy(inputs[:1]).to(device))
    net.train()
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2:
        raise UnsupportedError(
            "E-STEP-2",
            f"{model.info.name} is not a classifier, and training has no other loss",
            effect="Nothing was measured",
            fix="a model that gives one row of logits per sample",
        )
    if samples.labels is not None:
        return inputs, np.asarray(samples.labels, dtype=np.int64), samples.origin
    drawn = np.random.default_rng(abs(seed)).integers(0, logits.shape[1], len(inputs))
    return inputs, drawn, f"{samples.origin}; labels drawn at random"


def _without_dropout(net: nn.Module) -> None:
    for layer in net.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0


def _optimizer(net: nn.Module, name: str, rate: float) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(net.parameters(), lr=rate)
    return torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
