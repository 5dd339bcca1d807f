"""A trial of several workers: this process leads them, watches the machine, and imports no engine.

Worker 0 runs the accuracy gate after the window, in the session that was measured; the others must give the same
outputs for one input. Every worker's engine is checked against the Trial. See edgescope/isolate.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np

from edgescope import registry
from edgescope.analysis.run import workers as joint
from edgescope.analysis.run.workers import Rows, merged
from edgescope.bench import watch as footprint
from edgescope.bench.drivers import Run, require
from edgescope.bench.watch import Footprint, Watch
from edgescope.clock import MonotonicClock
from edgescope.errors import WrongOutputError
from edgescope.isolate import placement
from edgescope.isolate.pool import WorkerPools
from edgescope.isolate.worker import AT_STOP, LeaderRun, WorkerRun
from edgescope.modes import gpu
from edgescope.process import Line
from edgescope.records import (
    Absent,
    Effective,
    Field,
    GateOutcome,
    Json,
    Machine,
    Measured,
    ModelInfo,
    Result,
    Trial,
    Window,
    Worker,
    codec,
)
from edgescope.scenarios.open_loop import patience_s

SHORTEST_S = 2.0
"""The shortest window in seconds if max_s allows it: workers need a moment to settle against each other."""
ALIKE = {"fp32": 1e-3, "tf32": 2e-2, "fp16": 2e-2, "bf16": 5e-2, "int8": 5e-2, "as_is": 5e-2}
"""Largest relative l2 between two processes' outputs for one input: engines choose kernels by timing them."""
WEIGHT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1, "as_is": 1}

Looked = dict[int, Footprint]


def seconds(trial: Trial) -> float:
    """Return how many seconds the workers measure; an open loop takes max_s, because its queue has to settle."""
    if registry.scenario(trial.scenario).open_loop:
        return trial.max_s
    return min(trial.max_s, max(trial.min_s, SHORTEST_S))


class Workers:
    """Leads workers that each open the trial; takes them from `pools` if given."""

    def __init__(self, pools: WorkerPools | None = None) -> None:
        self.pools = pools

    def measure(self, started: Result, watch: Watch) -> Run:
        """Have all workers open the trial and drive it from an agreed start to a stop; collect their results."""
        trial = started.trial
        with ExitStack() as stack:
            watch.get_ready(stack)  # while the workers load
            pools = self.pools or stack.enter_context(WorkerPools())
            gpu.require_mps(trial, {**os.environ, **pools.launch.env})
            pool, places = pools.of(trial), pools.placements(trial)
            trials = placement.trials(trial)
            with pool.run(trials, places, pools.limit_s, prestart=pools.prestart) as run:
                for opened in run.opened[: trial.processes]:
                    require(trial, Effective(**opened["effective"]))
                with watch.watching(), watch.idling(trial.idle_s, MonotonicClock()):
                    look = partial(footprint.footprints, devices=watch.by_name, device=trial.device)
                    patience = patience_s(trial) if registry.scenario(trial.scenario).open_loop else 0.0
                    driven = run.drive(seconds(trial), look, patience_s=patience, edge=watch.mark)
                return _run(started, watch, run, driven, pools)


def _run(bare: Result, watch: Watch, run: WorkerRun, driven: LeaderRun[Looked], pools: WorkerPools) -> Run:
    trial, idle = bare.trial, pools.idle(bare.trial)
    rows = [_rows(done) for done in driven.done]
    start_ns, stop_ns = joint.window_of(rows[: trial.processes], driven.span.start_ns, driven.span.stop_ns)
    queries, window = joint.joined(rows, trial.processes, start_ns, stop_ns)
    workers = tuple(_worker(trial, run, driven, n, rows[n]) for n in range(len(rows)))
    if idle:
        diluted = Absent(f"{idle} kept workers that do nothing in this trial share pages with those that do")
        workers = tuple(replace(worker, pss_bytes=diluted) for worker in workers)
    own = run.workers[: trial.processes]
    its_own = _reported(run, trial, window)
    answers = run.ask("answer", "answer", own)
    _alike(trial, answers)
    verification = _verified(run, bare)
    effective = Effective(**run.opened[0]["effective"])
    model, artifact = ModelInfo(**run.opened[0]["model"]), run.opened[0]["artifact"]
    metrics: dict[str, Field] = {
        **merged([fields(opened["facts"]) for opened in run.opened[: trial.processes]]),
        **its_own,
        **joint.worker_metrics(trial, queries, window, workers),
        "counter_gap_queries": _gap(driven, rows),
        **_memory(workers[: trial.processes]),
        "memory_rule_bytes": _rule(trial, model, artifact, answers[0]),
        **_board_memory(watch.board_memory(trial.device, window, pools.free), idle),
    }
    each = [len(joint.of_worker(queries, n, window)) for n in range(trial.processes)]
    cpus = len(os.sched_getaffinity(0))
    shared = placement.oversubscribed(trial, cpus)
    warnings = (*([shared] if shared else []), *joint.warnings(trial, metrics, each, cpus))
    return Run(
        model=model,
        artifact=artifact,
        effective=effective,
        verification=verification,
        queries=queries,
        window=window,
        metrics=metrics,
        warnings=warnings,
        warmed=all(ready["settled"] for ready in driven.ready),
        failure=next((done["failure"] for done in driven.done if done["failure"]), ""),
        workers=workers,
    )


def _rows(done: Line) -> Rows:
    with np.load(done["rows"]) as columns:
        table = dict(columns)
    return Rows(table, done["first"], done["stop"], done["stopped_by"] == AT_STOP)


def _worker(trial: Trial, run: WorkerRun, driven: LeaderRun[Looked], number: int, rows: Rows) -> Worker:
    process, first, last = run.workers[number], *driven.looks
    start, stop = rows.ends()
    seen = driven.seen[process.pid]
    return Worker(
        number=number,
        model=trial.model if number < trial.processes else placement.others(trial)[number - trial.processes],
        pid=process.pid,
        cpus=process.placement.cpus or tuple(sorted(os.sched_getaffinity(process.pid))),
        start_ns=start,
        stop_ns=stop,
        counted=(last.counts[number] - first.counts[number]) // rows.samples,
        load_s=_load(run.opened[number]),
        peak_rss_bytes=seen.peak_rss,
        pss_bytes=seen.pss,
        gpu_memory_bytes=seen.gpu,
    )


def _load(opened: Line) -> Field:
    reported = opened["facts"].get("load_s")
    return codec.field_from_json(reported) if reported else Absent("nothing is loaded")


def _gap(driven: LeaderRun[Looked], rows: Sequence[Rows]) -> Field:
    first, last = driven.looks
    looks = ((first.before_ns, first.after_ns), (last.before_ns, last.after_ns))
    gaps = [joint.counter_gap(mine, (first.counts[n], last.counts[n]), looks) for n, mine in enumerate(rows)]
    return Measured(float(max(gaps)), "queries", n=len(gaps))


def fields(told: Mapping[str, Json]) -> dict[str, Field]:
    """Return the metrics that a worker told."""
    return {name: codec.field_from_json(value) for name, value in told.items()}


def _reported(run: WorkerRun, trial: Trial, window: Window) -> dict[str, Field]:
    """Return the workloads' own metrics of the window: of the trial's own workers as one, of colocated ones by worker.

    One by one: some measure a little more, and would measure each other.
    """
    ends = {"start_ns": window.start_ns, "stop_ns": window.stop_ns}
    lines = [run.ask("metrics", "metrics", [worker], **ends)[0] for worker in run.workers]
    each = [fields(line["metrics"]) for line in lines]
    found = merged(each[: trial.processes])
    for number, beside in enumerate(each[trial.processes :], trial.processes):
        found |= {f"worker{number}_{name}": field for name, field in beside.items()}
    return found


def told(machine: Machine) -> dict[str, Json]:
    """Return the machine as a worker is told of it."""
    return {"stable": dict(machine.stable), "state": dict(machine.state)}


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


def _rule(trial: Trial, model: ModelInfo, artifact: Json, answer: Line) -> Field:
    """Return P x (model + 2 x batch) in bytes; batch is the inputs and outputs of one query."""
    weights = artifact.get("bytes") or (model.params and model.params * WEIGHT_BYTES[trial.precision])
    if not weights:
        return Absent("neither the model's file nor its number of parameters is known")
    batch = answer["input_bytes"] + answer["output_bytes"]
    return Measured(float(trial.processes * (weights + 2 * batch)), "bytes", n=trial.processes)


def _alike(trial: Trial, answers: Sequence[Line]) -> None:
    """Raise WrongOutputError if a worker's outputs for one input differ from worker 0's."""
    with np.load(answers[0]["outputs"]) as given:
        wanted = [given[name].astype(np.float64) for name in given.files]
    for number, answer in enumerate(answers[1:], 1):
        with np.load(answer["outputs"]) as given:
            got = [given[name].astype(np.float64) for name in given.files]
        apart = float(np.max([*map(_apart, got, wanted), 0.0]))  # NaN if an output is
        if len(got) != len(wanted) or not apart <= ALIKE[trial.precision]:
            raise WrongOutputError(
                "E-WORKER-4",
                f"worker {number} gives other outputs for one input than worker 0",
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


def _verified(run: WorkerRun, bare: Result) -> GateOutcome | None:
    """Return the accuracy gate's result in worker 0."""
    (found,) = run.ask("verify", "verified", run.workers[:1], machine=told(bare.machine))
    return codec.judged_from_json(found["verification"])
