"""A trial of several workers: this process leads them, watches the machine, and imports no engine.

Worker 0 answers the accuracy gate after the window, in the session that was measured; the others must answer one input
as it does. Every worker's engine is held against what was asked. See edgescope/isolate.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np

from edgescope.analysis.run import open_loop
from edgescope.analysis.run import workers as crowd
from edgescope.analysis.run.workers import Rows
from edgescope.bench import watch as footprint
from edgescope.bench.drivers import Run, require
from edgescope.bench.watch import Footprint, Watch
from edgescope.clock import MonotonicClock
from edgescope.errors import WrongOutputError
from edgescope.isolate import placement as seating
from edgescope.isolate.barrier import AT_STOP
from edgescope.isolate.leader import Driven, Shift
from edgescope.isolate.pool import Crews
from edgescope.modes import sharing
from edgescope.records import (
    Absent,
    Effective,
    Field,
    Json,
    Measured,
    ModelInfo,
    Result,
    Trial,
    Verification,
    Worker,
    codec,
)
from edgescope.scenarios.open_loop import patience_s

SHORTEST_S = 2.0
"""Seconds of a crowded window at least, where max_s allows them: workers take a moment to settle among each other."""
ALIKE = {"fp32": 1e-3, "tf32": 2e-2, "fp16": 2e-2, "bf16": 5e-2, "int8": 5e-2}
"""How far (relative l2) two processes' outputs for one input may lie apart: engines choose kernels by timing them."""
WEIGHT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1}

Looked = dict[int, Footprint]


def seconds(trial: Trial) -> float:
    """Return how long the workers measure: an open loop, whose queue has to settle, as long as it may."""
    if trial.scenario in open_loop.OPEN:
        return trial.max_s
    return min(trial.max_s, max(trial.min_s, SHORTEST_S))


class Workers:
    """Leads workers that each open the trial, those of `crews` where some are kept."""

    def __init__(self, crews: Crews | None = None) -> None:
        self.crews = crews

    def measure(self, begun: Result, watch: Watch) -> Run:
        """Have all workers open the trial, drive it between an agreed start and stop, and collect what they did."""
        trial = begun.trial
        with ExitStack() as stack:
            kept = self.crews or stack.enter_context(Crews())
            sharing.require(trial, {**os.environ, **kept.env})
            crew, seats = kept.of(trial), kept.seats(trial)
            with crew.shift(seating.trials(trial), seats, kept.limit_s, staff=kept.staff) as shift:
                for word in shift.opened[: trial.processes]:
                    require(trial, Effective(**word["effective"]))
                with watch.watching(), watch.idling(trial.idle_s, MonotonicClock()):
                    look = partial(footprint.footprints, devices=watch.by_name, device=trial.device)
                    patience = patience_s(trial) if trial.scenario in open_loop.OPEN else 0.0
                    driven = shift.drive(seconds(trial), look, patience_s=patience, edge=watch.mark)
                return _run(begun, watch, shift, driven, kept)


def _run(bare: Result, watch: Watch, shift: Shift, driven: Driven[Looked], kept: Crews) -> Run:
    trial, words, idle = bare.trial, driven.words, kept.idle(bare.trial)
    rows = [_rows(word) for word in words]
    start_ns, stop_ns = crowd.window_of(rows[: trial.processes], driven.span.start_ns, driven.span.stop_ns)
    queries, window = crowd.joined(rows, trial.processes, start_ns, stop_ns)
    workers = tuple(_worker(trial, shift, driven, n, rows[n]) for n in range(len(rows)))
    if idle:
        diluted = Absent(f"{idle} kept workers that do nothing in this trial share pages with those that do")
        workers = tuple(replace(worker, pss_bytes=diluted) for worker in workers)
    own = shift.members[: trial.processes]
    answers = shift.asked("answer", "answer", own)
    _alike(trial, answers)
    verification, its_own = _verified(shift, bare)
    effective = Effective(**shift.opened[0]["effective"])
    model, artifact = ModelInfo(**shift.opened[0]["model"]), shift.opened[0]["artifact"]
    metrics: dict[str, Field] = {
        **_facts(shift.opened[: trial.processes]),
        **its_own,
        **crowd.crowd_metrics(trial, queries, window, workers),
        "counter_gap_queries": _gap(driven, rows),
        **_memory(workers[: trial.processes]),
        "memory_rule_bytes": _rule(trial, model, artifact, answers[0]),
        **_board_memory(watch.board_memory(trial.device, window, kept.free), idle),
    }
    each = [len(crowd.of_worker(queries, n, window)) for n in range(trial.processes)]
    cpus = len(os.sched_getaffinity(0))
    crammed = seating.crammed(trial, cpus)
    warnings = (*([crammed] if crammed else []), *crowd.warnings(trial, metrics, each, cpus))
    return Run(
        model=model,
        artifact=artifact,
        effective=effective,
        verification=verification,
        queries=queries,
        window=window,
        metrics=metrics,
        warnings=warnings,
        warmed=all(word["settled"] for word in driven.ready),
        failure=next((word["failure"] for word in words if word["failure"]), ""),
        workers=workers,
    )


def _rows(word: dict[str, Json]) -> Rows:
    with np.load(word["rows"]) as columns:
        table = dict(columns)
    return Rows(table, word["first"], word["stop"], word["stopped_by"] == AT_STOP)


def _worker(trial: Trial, shift: Shift, driven: Driven[Looked], number: int, rows: Rows) -> Worker:
    member, first, last = shift.members[number], *driven.looks
    start, stop = rows.ends()
    seen = driven.seen[member.pid]
    return Worker(
        number=number,
        model=trial.model if number < trial.processes else seating.others(trial)[number - trial.processes],
        pid=member.pid,
        cpus=member.seat.cpus or tuple(sorted(os.sched_getaffinity(member.pid))),
        start_ns=start,
        stop_ns=stop,
        counted=(last.counts[number] - first.counts[number]) // rows.samples,
        load_s=_load(shift.opened[number]),
        peak_rss_bytes=seen.peak_rss,
        pss_bytes=seen.pss,
        gpu_memory_bytes=seen.gpu,
    )


def _load(word: dict[str, Json]) -> Field:
    told = word["facts"].get("load_s")
    return codec.field_from_json(told) if told else Absent("nothing is loaded")


def _gap(driven: Driven[Looked], rows: Sequence[Rows]) -> Field:
    first, last = driven.looks
    looks = ((first.before_ns, first.after_ns), (last.before_ns, last.after_ns))
    gaps = [crowd.counter_gap(mine, (first.counts[n], last.counts[n]), looks) for n, mine in enumerate(rows)]
    return Measured(float(max(gaps)), "queries", n=len(gaps))


def _facts(opened: Sequence[dict[str, Json]]) -> dict[str, Field]:
    """Return what opening cost the slowest worker, each fact by itself."""
    found: dict[str, Field] = {}
    for name in opened[0]["facts"]:
        fields = [codec.field_from_json(word["facts"][name]) for word in opened]
        known = [f for f in fields if isinstance(f, Measured)]
        slowest = max(known, key=lambda f: f.value, default=None)
        found[name] = replace(slowest, n=len(known)) if slowest else fields[0]
    return found


def _board_memory(found: dict[str, Field], idle: int) -> dict[str, Field]:
    why = Absent(f"{idle} kept workers that do nothing in this trial hold memory on the board, too")
    return dict.fromkeys(found, why) if idle else found


def _memory(own: Sequence[Worker]) -> dict[str, Field]:
    rss = footprint.total([w.peak_rss_bytes for w in own], "the resident set")
    return {
        "peak_rss_bytes": rss,
        "processes_rss_bytes": rss,
        "processes_pss_bytes": footprint.total([w.pss_bytes for w in own], "the proportional set"),
        "gpu_processes_memory_bytes": footprint.total([w.gpu_memory_bytes for w in own], "the GPU memory"),
    }


def _rule(trial: Trial, model: ModelInfo, artifact: Json, answer: dict[str, Json]) -> Field:
    """Return the memory that P x (model + 2 x batch) foretells, batch the inputs and outputs of one query."""
    weights = artifact.get("bytes") or (model.params and model.params * WEIGHT_BYTES[trial.precision])
    if not weights:
        return Absent("neither the model's file nor its number of parameters is known")
    batch = answer["input_bytes"] + answer["output_bytes"]
    return Measured(float(trial.processes * (weights + 2 * batch)), "bytes", n=trial.processes)


def _alike(trial: Trial, answers: Sequence[dict[str, Json]]) -> None:
    """Raise WrongOutputError where a worker answers one input otherwise than worker 0."""
    with np.load(answers[0]["outputs"]) as given:
        wanted = [given[name].astype(np.float64) for name in given.files]
    for number, answer in enumerate(answers[1:], 1):
        with np.load(answer["outputs"]) as given:
            got = [given[name].astype(np.float64) for name in given.files]
        apart = float(np.max([*map(_apart, got, wanted), 0.0]))  # not a number, too, where one is
        if len(got) != len(wanted) or not apart <= ALIKE[trial.precision]:
            raise WrongOutputError(
                "E-CREW-4",
                f"worker {number} answers one input otherwise than worker 0",
                evidence=f"relative l2 {apart:.2g}, {ALIKE[trial.precision]:g} allowed in {trial.precision}",
                effect="The workers did not do the same work, so their sum means nothing",
            )


def _apart(
    a: np.ndarray[tuple[int, ...], np.dtype[np.float64]], b: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> float:
    if a.shape != b.shape:
        return float("inf")
    size = float(np.linalg.norm(b))
    return float(np.linalg.norm(a - b)) / size if size else float(np.linalg.norm(a))


def _verified(shift: Shift, bare: Result) -> tuple[Verification | None, dict[str, Field]]:
    """Return the gate's answer in worker 0, and its workload's own metrics."""
    machine = {"stable": dict(bare.machine.stable), "state": dict(bare.machine.state)}
    (word,) = shift.asked("verify", "verified", shift.members[:1], machine=machine)
    check = codec.verification_from_json(word["verification"]) if word["verification"] else None
    return check, {name: codec.field_from_json(value) for name, value in word["metrics"].items()}
