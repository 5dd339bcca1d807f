"""Training by a program somewhere else (a board's own PyTorch): what it is given here, and how its losses are judged.

The samples are sent, so they are those that fit in memory: the model's own, or pictures that `train data --packed`
wrote. The first minibatches are taken again there without dropout, and here in fp32 on the CPU: the losses must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from edgescope.backends.base import Lessons, ProgramRun, Trainer
from edgescope.errors import UnsupportedError
from edgescope.models.base import Model, Trains
from edgescope.records import GateOutcome, Machine, Trial
from edgescope.wings.training.data_sets import Held
from edgescope.wings.training.loop import Loop, task_of
from edgescope.wings.training.workload import STEPS, losses, verified
from edgescope.workloads.base import Program

#: Bytes of samples that are sent to a board and held there.
MOST_BYTES = 1 << 29
#: Options of the workload that a program elsewhere follows; the others must stay as they are.
FOLLOWED = {"optimizer", "learning_rate", "images", "epoch_samples", "epochs"}
FOLLOWED |= {"num_workers", "prefetch_factor", "persistent_workers"}


def program(model: Model, trial: Trial, options: Mapping[str, Any], backend: Trainer) -> Program:
    """Return the program that trains the model somewhere else; UnsupportedError for what cannot be sent there."""
    from edgescope.wings.training.workload import Training

    unlike = [name for name, value in options.items() if value != Training.OPTIONS[name].default]
    if refused := sorted(set(unlike) - FOLLOWED):
        raise _unsent(f"workload option {refused[0]}", f"leave {', '.join(refused)} out")
    if isinstance(model, Trains) and model.task() is not None:
        raise _unsent("a task of your own, which brings its own loader", "a classifier of one input")
    torch.manual_seed(trial.seed)
    task, origin = task_of(model, trial, options)
    lessons = _lessons(getattr(task.batches(0), "dataset", None), options)

    def verify(driven: ProgramRun, machine: Machine) -> GateOutcome | None:
        plain = {**options, "num_workers": 0, "prefetch_factor": 0, "persistent_workers": False}
        return _judged(model, trial, plain, driven)

    about = {"path": None, "data": origin, **options}
    return Program(
        model=model.info, drive=lambda: backend.train(model, trial, lessons), verify=verify, artifact=about
    )


def _lessons(items: Any, options: Mapping[str, Any]) -> Lessons:
    """Return a data set as arrays, each different sample once."""
    if getattr(items, "files", ()) or items is None:
        raise _unsent(
            "pictures that are decoded one by one", "edgescope train data FOLDER --packed, or no images"
        )
    different = len(items.labels) if isinstance(items, Held) else len(items)
    inputs, labels = zip(*(items[index] for index in range(min(different, len(items)))), strict=True)
    found = Lessons(
        torch.stack(inputs).float().numpy(),
        np.array([int(label) for label in labels], np.int64),
        len(items),
        options,
    )
    if found.inputs.nbytes > MOST_BYTES:
        raise _unsent(
            f"{found.inputs.nbytes / 1e6:.0f} MB of samples", "--workload-option epoch_samples=1000"
        )
    return found


def _judged(model: Model, trial: Trial, options: Mapping[str, Any], driven: ProgramRun) -> GateOutcome | None:
    """Return whether the losses of the first steps there agree with those of the same steps here."""

    def loop(of: Trial) -> Loop:
        return Loop(model, of, options, dropout=False)

    here: dict[str, Any] = {
        "precision": "fp32",
        "device": "cpu",
        "backend": "torch_eager",
        "options": {},
        "io": "host",
    }
    batches: Sequence[Any] = loop(replace(trial, **here)).peek(STEPS)
    given = {
        "inputs": torch.cat([inputs for inputs, _ in batches]).numpy(),
        "labels": torch.cat([labels for _, labels in batches]).numpy(),
        "sizes": np.array([len(labels) for _, labels in batches], np.int64),
    }
    (there,) = driven.answer(given)

    def again(of: Trial, steps: int = STEPS) -> list[float]:
        if of is trial:
            return [float(loss) for loss in there]
        return losses(loop(of), list(batches[:steps]))

    return verified(again, trial)


def _unsent(what: str, fix: str) -> UnsupportedError:
    return UnsupportedError(
        "E-ON-13", f"a board does not train with {what}", effect="Nothing was measured", fix=fix
    )
