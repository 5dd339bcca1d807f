"""A trial under a tracer: how its processes start, and the spans that are read once they have ended.

A profiler writes its trace when its process ends, so the trial's folder is read here, after that end and before the
folder is removed. If workers do the work, each has its own tracer; the process that leads them has none.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from edgescope import registry
from edgescope.errors import Message
from edgescope.isolate import placement
from edgescope.process import Launch
from edgescope.records import Result, Spans, Trial
from edgescope.tracing.base import FOLDER, Tracer


def tracer_of(trial: Trial) -> Tracer:
    """Return the tracer that a trial names."""
    tracer: Tracer = registry.load(registry.TRACERS, trial.tracer, "tracer")()
    return tracer


def launch(trial: Trial, folder: Path) -> Launch:
    """Return how the trial's own process starts: under its tracer, or with the folder for its workers' traces."""
    if trial.tracer == Trial.tracer:
        return Launch()
    return Launch(env={FOLDER: str(folder)}) if trial.multi_process else _launch(trial, folder)


def worker_launch(trial: Trial, number: int) -> Launch:
    """Return how worker `number` of the trial starts: under the trial's tracer if the leader has a trace folder."""
    folder = os.environ.get(FOLDER)
    return _launch(trial, _of_worker(Path(folder), number)) if folder else Launch()


def _launch(trial: Trial, folder: Path) -> Launch:
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
    workers = range(len(placement.trials(trial))) if trial.multi_process else ()
    for number, place in [(n, _of_worker(folder, n)) for n in workers] or [(-1, folder)]:
        try:
            seen = tracer.spans(place)
            parts.append(seen if number < 0 else seen.of_process(number))
        except Exception as error:  # a killed profiler may leave any content
            unread.append(_unread(trial, place.name, error))
    found = replace(result.warned(*unread), spans=Spans.joined(parts) if parts else None)
    return replace(found, metrics={**found.metrics, **account.metrics(found)})


def _unread(trial: Trial, where: str, error: Exception) -> Message:
    return Message(
        "W-SPAN-1",
        f"what tracer {trial.tracer} recorded in {where} cannot be read",
        evidence=f"{type(error).__name__}: {error}",
        effect="The result has no spans of that process; its other figures stand",
        fix="the same command again; a process that was killed leaves half a trace",
    )
