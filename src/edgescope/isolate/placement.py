"""Where each worker of a trial runs: which CPUs it has to itself, and what its environment adds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from edgescope import registry
from edgescope.command import option_value
from edgescope.errors import Message, UsageError
from edgescope.isolate.worker import Placement
from edgescope.modes import launcher
from edgescope.records import Trial
from edgescope.units import ranges

#: Fields in which a colocated worker may differ from the trial; any other key is an option of its workload.
DIFFERS = ("workload", "backend", "device", "precision", "batch")


def others(trial: Trial) -> tuple[str, ...]:
    """Return the models that are colocated with the trial's own."""
    return tuple(model for model, *_ in _parts(trial))


def _parts(trial: Trial) -> list[list[str]]:
    return [part.split() for part in trial.colocated.split("+") if part.strip()]


def placements(trial: Trial, allowed: Collection[int] | None = None) -> list[Placement]:
    """Return where each worker of the trial runs, the colocated ones last."""
    count = trial.processes + len(others(trial))
    if trial.sharing != "pinned":
        return [Placement()] * count
    cpus = split(sorted(os.sched_getaffinity(0) if allowed is None else allowed), count)
    return [Placement(launcher.launch(cpus=ranges(mine)), mine) for mine in cpus]


def split(cpus: list[int], workers: int) -> list[tuple[int, ...]]:
    """Return neighbouring CPUs for each worker, as evenly as possible; round robin if workers outnumber CPUs."""
    if workers > len(cpus):
        return [(cpus[i % len(cpus)],) for i in range(workers)]
    size, rest = divmod(len(cpus), workers)
    ends = [0]
    for i in range(workers):
        ends.append(ends[-1] + size + (i < rest))
    return [tuple(cpus[a:b]) for a, b in itertools.pairwise(ends)]


def oversubscribed(trial: Trial, cpus: int) -> Message | None:
    """Return a warning if pinned workers have to share CPUs, else None."""
    workers = trial.processes + len(others(trial))
    if trial.sharing != "pinned" or workers <= cpus:
        return None
    return Message(
        "W-WORKER-2",
        "pinned workers share CPUs",
        evidence=f"{workers} workers on {cpus} CPUs, dealt out in turn",
        effect="They slow each other down, which pinning should prevent",
        fix=f"--processes {cpus} at most, or --sharing time_slicing",
    )


def trials(trial: Trial) -> list[Trial]:
    """Return each worker's own trial: a single-process copy with its own seed; the colocated ones last."""
    alone = _alone(trial)
    return [replace(alone, seed=trial.seed + n) for n in range(trial.processes)] + colocated(trial)


def colocated(trial: Trial) -> list[Trial]:
    """Return the trials of the colocated workers: each copies the trial but for the keys it sets itself.

    Raises UsageError for a part that is not KEY=VALUE.
    """
    first = trial.seed + trial.processes
    return [_colocated(trial, parts, first + n) for n, parts in enumerate(_parts(trial))]


def _colocated(trial: Trial, parts: list[str], seed: int) -> Trial:
    model, *settings = parts
    pairs = dict(part.partition("=")[::2] for part in settings)
    if odd := next((part for part in settings if "=" not in part), ""):
        raise UsageError(
            "E-TRIAL-3",
            f"{odd!r} after {model} is not KEY=VALUE",
            effect="Nothing was measured",
            fix=f'--colocated "{model} workload=training batch=32"',
        )
    fields: dict[str, Any] = {k: v for k, v in pairs.items() if k in DIFFERS}
    if "batch" in fields:
        fields["batch"] = option_value(fields["batch"])
    other = _alone(trial)
    if fields.get("workload", trial.workload) != trial.workload:
        other = replace(other, workload_options={})
        if registry.made_of(fields["workload"]) == "parts":
            # nobody asks for a step of training: it takes one after the other
            other = replace(other, scenario=Trial.scenario, rate=None, scenario_options={})
    if fields.get("backend", trial.backend) != trial.backend:
        fields = {"device": registry.home(fields["backend"]), "options": {}, **fields}
    own = {k: option_value(v) for k, v in pairs.items() if k not in DIFFERS}
    kept = {**other.workload_options, **own}
    plain: dict[str, Any] = {"shapes": {}, "data": "", "preprocess": "", "metric": ""}
    plain |= {"min_accuracy": None, "min_agreement": None, "deadline_s": None}
    return replace(other, model=model, seed=seed, workload_options=kept, **plain | fields)


def _alone(trial: Trial) -> Trial:
    return replace(trial, processes=1, sharing="time_slicing", colocated="", mode="as_is")
