"""A trial of programs that own their loop (trtexec): they are started, watched and believed about their times.

Nothing gives several of them one start and one stop. Each says when its queries began and ended, and what counts is the
time in which all of them measured: their rows are then those of workers (analysis/run/workers.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgescope.analysis.run import summary
from edgescope.analysis.run import workers as joint
from edgescope.analysis.run.workers import Rows
from edgescope.backends.base import ProgramRun
from edgescope.bench import watch as footprint
from edgescope.bench.drivers import Run, require
from edgescope.bench.parts import recorded
from edgescope.bench.watch import Watch, available
from edgescope.clock import MonotonicClock
from edgescope.errors import DeviceError
from edgescope.records import Absent, Field, Machine, Result, Trial, Worker
from edgescope.workloads.base import Program

APART = Absent("the program runs in its own process")


class OwnLoop:
    """Starts the programs of a trial, watches the machine meanwhile, and checks their answers."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def measure(self, started: Result, watch: Watch) -> Run:
        """Run the program in all of the trial's processes at once, under the sampler."""
        trial, program = started.trial, self.program
        with watch.watching(), watch.idling(trial.idle_s, MonotonicClock()), recorded(trial):
            each = program.drive()
        for one in each:
            require(trial, one.effective)
        found = _alone(trial, program, each[0]) if len(each) == 1 else _joined(started, program, each)
        board = watch.board_memory(trial.device, found.window, available(started.machine))
        verification = program.verify(each[0], started.machine)
        return replace(found, verification=verification, metrics={**board, **found.metrics})


def _alone(trial: Trial, program: Program, one: ProgramRun) -> Run:
    """Return the run of one program."""
    figures = summary.metrics(one.queries, one.window, trial.scenario, trial.deadline_s)
    figures |= summary.of_spans(one.spans) if one.spans is not None else {}
    return Run(
        model=program.model,
        artifact={**program.artifact, "program": dict(one.notes)},
        effective=one.effective,
        verification=None,
        queries=one.queries,
        window=one.window,
        metrics={**figures, "peak_rss_bytes": APART, **one.facts},
        warnings=one.warnings,
        warmed=one.settled,
        driver="external",
        spans=one.spans,
    )


def _joined(started: Result, program: Program, each: Sequence[ProgramRun]) -> Run:
    """Return the run of several programs, over the time in which all of them measured."""
    trial, first = started.trial, each[0]
    rows = [Rows(one.queries.columns, one.window.first, one.window.stop, ran_on=False) for one in each]
    bounds = max(one.window.start_ns for one in each), min(one.window.stop_ns for one in each)
    start_ns, stop_ns = joint.window_of(rows, *bounds)
    if start_ns >= stop_ns:
        raise _never_together((start_ns - stop_ns) / 1e9, len(each))
    queries, window = joint.joined(rows, len(each), start_ns, stop_ns)
    workers = tuple(_worker(trial, number, one, rows[number]) for number, one in enumerate(each))
    metrics: dict[str, Field] = {
        **joint.merged([one.facts for one in each]),
        **joint.worker_metrics(trial, queries, window, workers),
        "processes_rss_bytes": footprint.total([w.peak_rss_bytes for w in workers], "the resident set"),
        "processes_pss_bytes": APART,
    }
    done = [len(joint.of_worker(queries, number, window)) for number in range(len(each))]
    spoken = {(warning.code, warning.what): warning for one in each for warning in one.warnings}
    notes = [dict(one.notes) for one in each]
    return Run(
        model=program.model,
        artifact={**program.artifact, "program": notes[0], "programs": notes},
        effective=first.effective,
        verification=None,
        queries=queries,
        window=window,
        metrics=metrics,
        warnings=(*spoken.values(), *joint.warnings(trial, metrics, done, _cpus(started.machine))),
        warmed=all(one.settled for one in each),
        driver="external",
        workers=workers,
    )


def _worker(trial: Trial, number: int, one: ProgramRun, rows: Rows) -> Worker:
    start_ns, stop_ns = rows.ends()
    pid = one.notes.get("pid")
    return Worker(
        number=number,
        model=trial.model,
        pid=pid if isinstance(pid, int) else 0,
        start_ns=start_ns,
        stop_ns=stop_ns,
        load_s=one.facts.get("load_s", APART),
        peak_rss_bytes=one.facts.get("peak_rss_bytes", APART),
        pss_bytes=APART,
        gpu_memory_bytes=APART,
    )


def _cpus(machine: Machine) -> int:
    """Return how many CPUs the programs may use, on the machine that they ran on."""
    cpu = machine.state.get("cpu")
    allowed = cpu.get("affinity") if isinstance(cpu, Mapping) else None
    return len(allowed) if isinstance(allowed, list | tuple) else len(os.sched_getaffinity(0))


def _never_together(seconds: float, count: int) -> DeviceError:
    return DeviceError(
        "E-WORKER-5",
        f"the {count} programs never measured at one moment",
        evidence=f"the last began {seconds:.1f} s after the first had ended",
        effect="There is no number: each had the device for itself a part of the time",
        fix="a longer --duration, or fewer --processes",
    )
