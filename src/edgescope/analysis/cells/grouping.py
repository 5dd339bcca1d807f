"""Find the cells that answer the same question: settings that must be equal before two figures share a table.

A latency belongs to one query under one load. Cells that differ in samples per query, arrival pattern, queue or
number of copies answer different questions, even if all else is equal. Engine, device, precision, options, sharing
and mode are the choices. In the offline scenario all samples are there at once, so batch, processes and queries in
flight are choices too: its figure is the throughput.

When a recommendation is for the best throughput, those three are choices in closed loops as well (choices.load).
"""

from __future__ import annotations

from edgescope import registry
from edgescope.records import Role, Trial, digest

#: Engines and models that measure the harness; a pick among them would recommend an engine that computes nothing.
HARNESS = "null"


def question_id(trial: Trial) -> str:
    """Return the name of the question that a trial answers; trials with the same name may be compared."""
    load = (trial.workload, trial.key(Role.LOAD), trial.colocated, trial.io)
    size = (trial.batch, trial.processes, trial.in_flight) if registry.scenario(trial.scenario).timed else ()
    shapes = {name: shape[1:] for name, shape in trial.shapes.items()}
    data = [trial.data, trial.preprocess] if trial.data or trial.preprocess else []
    return digest([load, size, shapes, *data])


def in_words(trial: Trial) -> str:
    """Return the load in words: `single_stream, batch 4, 2 processes`."""
    parts = [trial.workload] if trial.workload != Trial.workload else []
    parts.append(trial.load)
    if registry.scenario(trial.scenario).timed:
        parts += [f"batch {trial.batch}"] if trial.batch > 1 else []
        parts += [f"{trial.processes} processes"] if trial.processes > 1 else []
        parts += [f"{trial.in_flight} in flight"] if trial.in_flight > 1 else []
    parts += [f"beside {trial.colocated}"] if trial.colocated else []
    parts += [f"io {trial.io}"] if trial.io != "host" else []
    parts += [f"data {trial.data.partition('#')[0]}"] if trial.data else []
    parts += [f"{name} {'x'.join(map(str, shape[1:]))}" for name, shape in trial.shapes.items()]
    return ", ".join(parts)


def of_harness(trial: Trial) -> bool:
    """Return whether a trial measures edgescope itself: nothing that computes is in it."""
    return HARNESS in (trial.backend, trial.model, trial.workload)
