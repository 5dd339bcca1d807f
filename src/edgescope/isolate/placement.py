"""Where each worker of a trial runs, and how its processes start: their CPUs, their environment, their tracer.

A profiler writes its trace when its process ends, so the trial's folder is read here, after that end and before the
folder is removed. If workers do the work, each has its own tracer; the process that leads them has none.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.command import option_value
from edgescope.errors import Message, UsageError
from edgescope.isolate.worker import Placement
from edgescope.modes import launcher
from edgescope.process import Launch
from edgescope.records import Result, Spans, Trial
from edgescope.tracing import FOLDER, Samples, Tracer
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


def tracer_of(trial: Trial) -> Tracer:
    """Return the tracer that a trial names."""
    tracer: Tracer = registry.load(registry.TRACERS, trial.tracer, "tracer")()
    return tracer


def traced_launch(trial: Trial, folder: Path) -> Launch:
    """Return how the trial's own process starts: under its tracer, or with the folder for its workers' traces."""
    if trial.tracer == Trial.tracer:
        return Launch()
    return Launch(env={FOLDER: str(folder)}) if trial.multi_process else _tracer_launch(trial, folder)


def worker_launch(trial: Trial, number: int) -> Launch:
    """Return how worker `number` of the trial starts: under the trial's tracer if the leader has a trace folder."""
    folder = os.environ.get(FOLDER)
    return _tracer_launch(trial, _of_worker(Path(folder), number)) if folder else Launch()


def _tracer_launch(trial: Trial, folder: Path) -> Launch:
    folder.mkdir(parents=True, exist_ok=True)
    return tracer_of(trial).launch(folder) + Launch(env={FOLDER: str(folder)})


def _of_worker(folder: Path, number: int) -> Path:
    return folder / f"worker-{number}"


def with_spans(result: Result, folder: Path) -> Result:
    """Return the result with its tracer's spans and their metrics.

    It has a warning for each trace that is missing or unreadable.
    """
    trial = result.trial
    if trial.tracer == Trial.tracer:
        return result
    from edgescope.analysis.kernels import account

    tracer, parts, unread = tracer_of(trial), [result.spans] if result.spans else [], list[Message]()
    readings = result.readings
    workers = range(len(trials(trial))) if trial.multi_process else ()
    for number, place in [(n, _of_worker(folder, n)) for n in workers] or [(-1, folder)]:
        try:
            seen = tracer.spans(place)
            parts.append(seen if number < 0 else seen.of_process(number))
            sampled = tracer.readings(place) if isinstance(tracer, Samples) else None
            readings = sampled.beside(readings) if sampled is not None else readings
        except Exception as error:  # a killed profiler may leave any content
            unread.append(_unread(trial, place.name, error))
    spans = Spans.joined(parts) if parts else None
    found = replace(result.warned(*unread), spans=spans, readings=readings)
    return replace(found, metrics={**found.metrics, **account.metrics(found)})


def _unread(trial: Trial, where: str, error: Exception) -> Message:
    return Message(
        "W-SPAN-1",
        f"what tracer {trial.tracer} recorded in {where} cannot be read",
        evidence=f"{type(error).__name__}: {error}",
        effect="The result has no spans of that process; its other figures stand",
        fix="the same command again; a process that was killed leaves half a trace",
    )
