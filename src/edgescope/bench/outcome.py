"""The one place that sets a Result's status, its verdict and its warnings.

A run that finished is judged by its own numbers. A mode that did not last, a recording in place of sensors, wrong
outputs and an engine's errors all end here. That the mode is in effect is checked before the run, too, in the process
that measures.
"""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from edgescope import registry
from edgescope.analysis.run import summary
from edgescope.analysis.run.energy import consumption
from edgescope.analysis.run.slowdowns import apart, sustained
from edgescope.bench.drivers import Run
from edgescope.bench.watch import Devices, Watch, board
from edgescope.errors import (
    EdgescopeError,
    Message,
    SafetyError,
    SettingError,
    UnavailableError,
    UnsupportedError,
    WrongOutputError,
    is_away,
)
from edgescope.isolate.worker import WorkerError
from edgescope.metrics import RECORDING, scoped, told_apart
from edgescope.records import Absent, Json, Machine, Measured, Result, Status, Trial, Verification
from edgescope.registry import REPLAYED

#: Significant drift of the latency over the window beyond which the run is called unstable.
UNSTABLE_DRIFT = 0.25
#: An open loop is unstable only with one of these warnings: a queue near capacity drifts by a quarter in one
#: run of ten by chance.
MOVING = ("W-LOAD-1", "W-STAT-4")
SHARED_METER = Absent("measured in turns with another variant: no meter tells the two apart")


def guarded(started: Result, work: Callable[[Result], Result]) -> Result:
    """Return work(started), or the started result with the status and reason of the exception that it raised."""
    try:
        found = work(started)
    except Exception as error:  # models and engines raise anything
        found = started.ended(*status_of(error))
    return marked(found)


def concluded(started: Result, watch: Watch, run: Run, in_effect: Mapping[str, Json] | None = None) -> Result:
    """Return the Result of a run that finished: metrics, energy, long-run behaviour, status and verdict.

    `in_effect` holds the evidence and figures of its mode when it began.
    """
    found = settled(run.review(_assembled(started, watch, run)), run.failure)
    return mode_noted(mode_rechecked(found, watch.by_name), in_effect or {})


def _assembled(started: Result, watch: Watch, run: Run) -> Result:
    trial, queries, window = started.trial, run.queries, run.window
    spent = consumption(
        watch.readings,
        queries,
        window,
        idle=watch.idle,
        device=run.effective.device,
        board=board(),
        colocated=trial.colocated,
    )
    long_run = sustained(queries, watch.readings, window, trial.scenario)
    metrics = {**long_run.fields, **spent.metrics, **watch.metrics(), **run.metrics}
    if run.alternation is not None:
        metrics |= {name: SHARED_METER for name in metrics if scoped(name)}
    return replace(
        started,
        status=Status.OK,
        driver=run.driver,
        process=run.process,
        model=run.model,
        artifact=run.artifact,
        effective=run.effective,
        verification=run.verification if isinstance(run.verification, Verification) else None,
        unverified=run.verification if isinstance(run.verification, Message) else None,
        window=window,
        workers=run.workers,
        alternation=run.alternation,
        idle=watch.idle,
        meter=spent.meter if run.alternation is None else None,
        metrics=metrics,
        queries=queries,
        readings=watch.readings,
        spans=run.spans,
        verdict=watch.verdict(
            window,
            summary.speeds(queries, window, trial.scenario),
            run.effective.unwatched,
            apart=registry.place(run.effective.device).is_host and apart(started.machine, watch.core_to_core),
        ),
        warnings=(
            *_doubtful(run.verification),
            *run.warnings,
            *spent.warnings,
            *summary.warnings(queries, window, trial.scenario, may_drop=registry.stamps(trial.workload)),
            *long_run.warnings,
            *(() if run.warmed else (_not_warm(),)),
        ),
    )


def _doubtful(check: Verification | Message | None) -> tuple[Message, ...]:
    """Return the warning that labels are not those of the network; nothing after it can be trusted more than it."""
    if not isinstance(check, Verification) or not check.doubt:
        return ()
    said = Message(
        "W-LABEL-1",
        "the labels are as good as chance for the fp32 network",
        evidence=check.doubt,
        effect="They cannot show what a variant loses, so outputs were compared with those of fp32",
        fix="give labels of this network's own classes, or another --preprocess (edgescope docs your-data)",
    )
    return (said,)


def _not_warm() -> Message:
    return Message(
        "W-WARM-1",
        "the latencies had not settled when the warm-up was cut off",
        effect="The first measured queries may be slower than the rest",
        fix="--warmup 30s",
    )


def settled(result: Result, failure: str = "") -> Result:
    """Return the result with the status that its own numbers give it; `failure`: the first failed unit's text."""
    check, errors = result.verification, result.metrics.get("errors")
    if check is not None and not check.passed:
        return result.ended(Status.WRONG_OUTPUT, Message("E-OUT-2", f"wrong outputs: {check.detail}"))
    if isinstance(errors, Measured) and errors.value:
        text = f"{errors.value:.0f} of {errors.n} queries failed"
        return result.ended(Status.FAILED, Message("E-RUN-3", text, evidence=failure))
    if drift := _drift(result):
        return result.ended(Status.UNSTABLE, _moved(drift, result.warnings))
    return result


def _drift(result: Result) -> Measured | None:
    """Return the drift of the latency if it is significant and too large for a steady state, else None."""
    drift = result.metrics.get("drift")
    if not isinstance(drift, Measured) or not _certain(drift) or abs(drift.value) <= UNSTABLE_DRIFT:
        return None
    if registry.scenario(result.trial.scenario).open_loop and not any(
        w.code in MOVING for w in result.warnings
    ):
        return None
    separated = isinstance(result.metrics.get("settled_s"), Measured)  # burst and sustained speed
    return None if separated else drift


def _certain(change: Measured) -> bool:
    """Return whether the confidence interval of a change excludes zero."""
    return change.lo is not None and change.hi is not None and (change.lo > 0 or change.hi < 0)


def _moved(drift: Measured, warnings: tuple[Message, ...]) -> Message:
    """Return why there is no steady state: an overload reaches none, however long the warm-up."""
    text = f"latency moved by {drift.value:+.0%} over the window"
    if any(warning.code == "W-LOAD-1" for warning in warnings):
        return Message(
            "E-STAT-2", text, evidence="more was offered than could be served", fix="a lower --rate"
        )
    return Message("E-STAT-1", text, fix="--warmup 30s")


def status_of(error: Exception) -> tuple[Status, Message]:
    """Return the status and the reason of a trial that `error` ended.

    For an error that edgescope did not raise itself, the traceback goes to stderr and its last line to the reason.
    """
    if isinstance(error, WorkerError):
        return error.status, error.reason
    if isinstance(error, EdgescopeError):
        return _status(error), error.message
    traceback.print_exception(error, file=sys.stderr)
    return Status.OOM if _out_of_memory(error) else Status.FAILED, _raised(error)


def _status(error: EdgescopeError) -> Status:
    if isinstance(error, SafetyError) or _out_of_memory(error.__cause__ or error):
        return Status.OOM
    if isinstance(error, UnsupportedError | UnavailableError) and not is_away(error.message):
        return Status.UNSUPPORTED
    if isinstance(error, WrongOutputError):
        return Status.WRONG_OUTPUT
    return Status.FAILED


def _out_of_memory(error: BaseException) -> bool:
    """Return whether the host's or the device's memory ran out; each engine words the latter differently."""
    text = f"{type(error).__name__}: {error}".lower().replace("_", " ")
    phrases = ("outofmemoryerror", "out of memory", "failed to allocate memory", "alloc failed")
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)


def _raised(error: BaseException) -> Message:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
    text = " ".join(str(error).split())[:300]
    return Message(
        "E-RUN-1",
        "the model or its engine raised an error",
        evidence=f"{type(error).__name__}: {text}; {where}",
        effect="There is no number for this cell",
    )


def marked(result: Result) -> Result:
    """Return the result with a warning and without the recording's watts if its sensors are one, else unchanged."""
    mark = result.machine.state.get(REPLAYED)
    if not mark:
        return result
    warning = Message(
        "W-REC-1",
        f"{RECORDING} of {mark['board']} ({mark['made']})",
        effect="Its power, clocks, temperatures, throttling and load are not those of this run",
    )
    return told_apart(result).warned(warning)


def require_mode(trial: Trial, devices: Devices) -> Mapping[str, Json]:
    """Return the evidence and figures of the trial's mode; {} for `as_is`.

    Raises SettingError E-MODE-2 if it is not in effect, UsageError E-MODE-1 if this machine has no such mode.
    """
    if trial.mode == Trial.mode:
        return {}
    from edgescope.modes import catalog  # it knows every mode of every board

    mode = catalog.find(trial.mode, devices)
    problem = mode.problem()
    if problem:
        raise SettingError(
            "E-MODE-2",
            f"mode {trial.mode} is not in effect in the process that measures",
            evidence=problem,
            effect="Nothing was measured",
            fix=f"edgescope bench --mode {shlex.quote(trial.mode)}, which sets and restores it",
        )
    return {"asked": trial.mode, "evidence": mode.evidence(), "features": dict(mode.features())}


def mode_rechecked(result: Result, devices: Devices) -> Result:
    """Return the result unchanged if its mode is still in effect, otherwise as failed with E-MODE-2."""
    trial = result.trial
    if trial.mode == Trial.mode:
        return result
    from edgescope.modes import catalog

    try:
        problem = catalog.find(trial.mode, devices).problem()
    except EdgescopeError as error:
        problem = str(error)
    if not problem:
        return result
    text = Message(
        "E-MODE-2",
        f"mode {trial.mode} was not in effect any more when the run ended",
        evidence=problem,
        effect="Its numbers belong to no one mode",
        fix="the same command again, with nothing else that changes settings",
    )
    return result.spoiled(text)


def mode_noted(result: Result, mode: Mapping[str, Json]) -> Result:
    """Return the result with the mode added to the machine's facts and to the engine's evidence."""
    if not mode:
        return result
    machine = Machine(result.machine.stable, {**result.machine.state, "mode": mode})
    effective = result.effective
    if effective is not None:
        evidence = "; ".join(
            filter(None, (effective.evidence, f"mode {result.trial.mode}: {mode['evidence']}"))
        )
        effective = replace(effective, evidence=evidence)
    return replace(result, machine=machine, effective=effective)
