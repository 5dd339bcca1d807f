"""One unit is one step of training: fetch a minibatch, forward, loss, backward, optimizer.

Any classifier of the zoo or module:callable can be trained. The last minibatch of an epoch holds the samples that are
left, and the next epoch has another order. The loss shows whether the steps are right: the first steps are repeated
from the same weights with the same minibatches, once as the trial specifies and once in fp32 on the CPU, both without
dropout, and the two curves must agree.

The breakdown of a step comes from extra steps after the window, with a wait for the device after each part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgescope.errors import UnsupportedError
from edgescope.options import Option, read
from edgescope.records import Absent, Field, Measured, Spans, Trial, Verification
from edgescope.registry import need
from edgescope.workloads.base import Glimpse, Opened, Parts
from edgescope.workloads.blocking import Failures, blocking

if TYPE_CHECKING:
    from edgescope.backends.pytorch.training import Loop

PRECISIONS = ("fp32", "tf32", "bf16")
#: Steps whose losses are compared, and the largest relative distance from the fp32 curve on the CPU.
STEPS = 5
CLOSE = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 5e-2}
#: On a GPU, in fp32 too: batch norms of small minibatches magnify another order of summation from step to step.
CLOSE_CUDA = 1e-2
#: Extra steps after the window, with a wait after each part.
TIMED = 20


class Training:
    """Trains a classifier in PyTorch; one unit is one minibatch."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "optimizer": Option("sgd", "how weights are updated", ("sgd", "adam")),
        "learning_rate": Option(0.01, "step size of the optimizer", least=0.0),
        "epoch_samples": Option(1000, "samples in one epoch", least=1),
    }

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Raise UnsupportedError for a trial that cannot be trained; nothing is built beforehand."""
        read("training", trial.workload_options, self.OPTIONS)
        _supported(trial)
        parts.model(trial).module()

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[Opened]:
        """Hold the network, its optimizer and its minibatches open; do one step before anything is timed."""
        options = read("training", trial.workload_options, self.OPTIONS)
        _supported(trial)
        model = parts.model(trial)
        make = need("edgescope.backends.pytorch.training:Loop", "training", "pip install 'edgescope[torch]'")
        start = time.monotonic_ns()
        loop: Loop = make(model, trial, options)
        loaded = time.monotonic_ns()
        loop.step()
        first, loss = time.monotonic_ns(), loop.loss
        failures = Failures()

        def again(of: Trial) -> list[float]:
            return _losses(make(model, of, options, dropout=False))

        yield Opened(
            work=blocking(lambda query_id: loop.step(), 1, failures),
            model=model.info,
            effective=loop.effective,
            verify=lambda machine: _verified(again, trial),
            facts={
                "build_s": Absent("nothing is built beforehand"),
                "load_s": Measured((loaded - start) / 1e9, "s"),
                "first_s": Measured((first - loaded) / 1e9, "s"),
            },
            artifact={"path": None, "data": loop.origin, **options},
            failure=lambda: failures.first,
            breakdown=lambda: Spans.of("phase", [row for n in range(TIMED) for row in loop.timed(n)]),
            metrics=lambda: _metrics(loop, loss),
            glimpse=lambda: Glimpse(
                [np.array(again(replace(trial, seed=0)))], loop.inputs[: loop.batch].nbytes
            ),
        )


def _supported(trial: Trial) -> None:
    problems = (
        (trial.backend == "torch_eager", f"backend {trial.backend}", "--backend torch_eager"),
        (
            trial.precision in PRECISIONS,
            f"precision {trial.precision}",
            f"--precision {' or '.join(PRECISIONS)}",
        ),
        (trial.in_flight == 1, f"{trial.in_flight} steps at once", "--in-flight 1"),
        (trial.io == "host", f"io {trial.io}", "--io host"),
    )
    for ok, what, fix in problems:
        if not ok:
            raise UnsupportedError(
                "E-STEP-1", f"training has no {what}", effect="Nothing was measured", fix=fix
            )


def _losses(loop: Loop) -> list[float]:
    found = []
    for _ in range(STEPS):
        loop.step()
        found.append(loop.loss)
    return found


def _metrics(loop: Loop, first: float) -> dict[str, Field]:
    return {
        "loss_first": Measured(first, "nats"),
        "loss_last": Measured(loop.loss, "nats"),
        "epochs": Measured(loop.done / loop.size, "epochs", n=loop.done),
    }


def _verified(again: Callable[[Trial], list[float]], trial: Trial) -> Verification:
    """Return whether the first losses agree with those of the same steps in fp32 on the CPU."""
    got, wanted = again(trial), again(replace(trial, precision="fp32", device="cpu"))
    gaps = [abs(a - b) / max(abs(b), 1e-6) for a, b in zip(got, wanted, strict=True)]
    apart = float(np.max(gaps))  # NaN if a loss is
    close = max(CLOSE[trial.precision], CLOSE_CUDA if trial.device == "cuda" else 0.0)
    fields: dict[str, Any] = {"loss_error": Measured(apart, "1", n=STEPS)}
    return Verification(
        passed=bool(apart <= close),
        method="loss_curve",
        fields=fields,
        threshold=close,
        detail=f"the losses of {STEPS} steps differ from fp32 on the CPU by {apart:.2g} at most (max {close:g})",
        reference="torch_eager fp32 cpu",
    )
