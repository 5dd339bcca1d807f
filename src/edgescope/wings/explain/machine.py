"""Causes outside of the work itself: the offered load, a quota, held clocks, and other programs on the same cores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from edgescope import units
from edgescope.analysis.finding import Bound, Confidence, Evidence, Finding, Remedy, between
from edgescope.records import Absent, Field, Measured
from edgescope.wings.explain.case import SAMPLER, WINDOW, Case, known, logical_cores

QUOTA = re.compile(r"(?:^|\+)quota=([\d.]+)")
STOPPED, WAITS, OTHERS = 0.1, 0.1, 0.15
"""Share of the quota's periods, of the time ready to run, and of the cores, from which each of these matters."""
IDLE = 0.2
"""Share of the time in which an open loop leaves the work idle, from which the load is what limits it."""


def found(case: Case) -> Iterator[Finding]:
    """Yield the causes outside of the work that the figures speak for."""
    for look in (_load, _quota, _throttled, _contention):
        if (finding := look(case)) is not None:
            yield finding


def _load(case: Case) -> Finding | None:
    """Return the offered load as the cause, if an open loop is served as it comes and time is left."""
    period, service = case.unit_s, case.figure("latency_p50_s")
    if not case.open_loop or period is None or service is None or period <= 0:
        return None
    if any(w.code == "W-LOAD-1" for w in case.result.warnings):
        return None
    idle = 1 - service / (period * case.trial.in_flight)
    if idle < IDLE:
        return None
    evidence = [
        Evidence(
            f"a unit comes every {units.text(period, 's')} and takes {units.text(service, 's')}",
            "the queries",
        )
    ]
    busy, basis, bound = service, "time between units / time of a unit after a pause", Bound.LEAST
    if (warm := case.back_to_back_s) is not None:
        busy = (
            min(warm, service) if case.trial.in_flight == 1 else warm
        )  # several at once, as it would be then
        basis, bound = "time between units / time of a unit without one", Bound.NONE
        text = f"without a pause between them, a unit takes {units.text(warm, 's')}"
        evidence.append(Evidence(text, "the warm-up"))
    remedy = Remedy(
        "offer more, or measure what it can do at most",
        {"scenario": "single_stream", "rate": None, "scenario_options": {}},
        Measured(period / busy * case.trial.in_flight, "ratio"),
        basis,
        bound,
    )
    return Finding("offered load", idle, Confidence.LIKELY, tuple(evidence), (remedy,))


def _quota(case: Case) -> Finding | None:
    stopped, used = case.figure("quota_stopped_share"), case.cores_used
    named = QUOTA.search(case.trial.mode)
    allowed = float(named[1]) if named else None
    if allowed is None:
        facts = case.result.machine.state.get("cpu", {})
        limit = facts.get("cgroup_cpu_limit") if isinstance(facts, dict) else None
        allowed = float(limit) if isinstance(limit, int | float) else None
    if used is None or allowed is None:
        return None
    if (stopped or 0.0) < STOPPED and used < 0.9 * allowed:
        return None
    wanted = _wanted(case, allowed)
    if wanted <= allowed * 1.05:
        return None
    evidence = [Evidence(f"it used {used:.2f} cores of the {allowed:g} that its quota allows", WINDOW)]
    if stopped is not None:
        evidence.append(Evidence(f"the quota stopped it in {stopped:.0%} of the periods", "cpu.stat"))
    share = 1 - allowed / wanted
    less = QUOTA.sub("", case.trial.mode).strip("+") or "as_is"
    sure = Confidence.LIKELY if (stopped or 0.0) >= STOPPED else Confidence.POSSIBLE
    remedy = Remedy(
        "raise the quota",
        {"mode": less} if named else {},
        Measured(wanted / min(allowed, max(used, 0.01)), "ratio"),
        f"{wanted:g} cores that its threads can use / {used:.2f} that they got",
    )
    return Finding("quota", share, sure, tuple(evidence), (remedy,))


def _wanted(case: Case, allowed: float) -> float:
    """Return the cores that the work would use without a quota: those of its threads, those of the machine at most."""
    cores = float(logical_cores(case.result.machine.stable))
    threads = float(case.threads or 1)
    if case.parts and case.made_of != "phases" and not case.overlapped:
        threads = max(1.0, min(threads, 1.0))
    return min(cores, max(threads, 1.0))


def _throttled(case: Case) -> Finding | None:
    holds = case.usage.holds
    if not holds:
        return None
    clock = known(_clock(case))
    share = 1 - clock if clock is not None and clock < 1 else max(h.share for h in holds) * 0.5
    evidence = tuple(Evidence(str(h), SAMPLER) for h in holds)
    if clock is not None:
        evidence += (Evidence(f"the clock stood at {clock:.0%} of its highest within the run", SAMPLER),)
    gain: Field = (
        Measured(1 / clock, "ratio") if clock is not None and 0 < clock < 1 else Absent("no clock was read")
    )
    remedy = Remedy(
        "cool it, raise its power limit, or feed it properly", {}, gain, "highest clock / mean clock"
    )
    guessed = not isinstance(gain, Measured)
    return Finding("throttled", share, Confidence.LIKELY, evidence, (remedy,), guessed=guessed)


def _clock(case: Case) -> Field:
    """Return the mean clock within the window over the highest of the whole run, of the first clock that was read."""
    readings, window = case.result.readings, case.result.window
    if readings is None or window is None:
        return Absent("no sensor was read")
    for channel in readings.channels:
        if channel.name.endswith(("sm_clock_hz", "cpu_freq_hz", "gpu_clock_hz")):
            t_ns, value = readings.series(channel.name)
            inside = value[(t_ns >= window.start_ns) & (t_ns <= window.stop_ns)]
            if len(inside) and value.max() > 0:
                return Measured(float(inside.mean() / value.max()), "share", n=len(inside))
    return Absent("no clock was read")


def _contention(case: Case) -> Finding | None:
    """Return the finding that other work takes cores which this work was ready to use."""
    if case.trial.colocated:
        return _colocated(case)
    others, waits = known(case.usage.cpu_others), case.figure("run_wait_share")
    if others is None or waits is None or others < OTHERS or waits < WAITS:
        return None
    if case.threads is not None and case.threads > case.cores and others < 0.3:
        return None  # its own threads are in each other's way
    single = case.threads == 1 and not case.overlapped
    waited = (
        (case.cores_used or 0.0) * waits / max(0.01, 1 - waits)
    )  # of the time of one thread, sleep included
    lost = min(
        0.95, waited if single else min(waits, others)
    )  # who fills all cores gets those of others at most
    if lost < WAITS:
        return None
    evidence = [
        Evidence(f"other programs used {others * case.cores:.2f} of {case.cores:g} cores", SAMPLER),
        Evidence(f"its threads were ready and did not run for {waits:.0%} of their time", WINDOW),
    ]
    threads = _sharing_operations(case)
    left, basis = 1 - lost, "1 / share of the time in which it runs when it is ready"
    bound = Bound.LEAST if case.made_of == "stages" and (case.threads or 1) > 1 else Bound.NONE
    if threads > 1:
        left, basis = all_run(threads, lost), "1 / share of the time in which all threads of an operation run"
        if threads > 2:  # that neighbours come independently of each other was seen of two
            bound = Bound.MOST
        least = "at least " if bound is Bound.MOST else ""
        text = f"{threads} threads share each operation: all of them run {least}{left:.0%} of the time"
        evidence.append(Evidence(text, WINDOW))
    remedy = Remedy(
        "end the other programs, or keep them off its CPUs "
        " (edgescope doctor names them; --mode cpus= keeps nobody away)",
        {},
        Measured(1 / left, "ratio"),
        basis,
        bound,
    )
    share = lost if bound is Bound.MOST else 1 - left
    return Finding("contention", share, Confidence.LIKELY, tuple(evidence), (remedy,))


def _sharing_operations(case: Case) -> int:
    """Return the threads that end each operation together: 1 in a pipeline, whose other stages do not wait for them."""
    each = (case.threads or 1) // case.trial.processes
    return max(1, min(each, int(case.cores))) if case.made_of != "stages" else 1


def all_run(threads: int, waits: float) -> float:
    """Return the share of the time in which `threads` threads all run, each of which waits for a core for `waits`.

    A fair scheduler gives a neighbour's thread what it gives each of these, so it tells how many neighbours there are.
    One neighbour alone is on one core at a time, and stops one thread: these times add up. Neighbours on several cores
    are scheduled independently of each other.
    """
    neighbours = min(threads, max(1, round(threads * waits / (1 - waits))))
    taken = min(0.98, threads * waits / neighbours)
    return max(0.02, (1 - taken) ** neighbours)


def _colocated(case: Case) -> Finding | None:
    alone = next((i for i in case.of("colocated") if i.after == ""), None)
    beside = len([w for w in case.result.workers if w.number >= case.trial.processes]) or 1
    need = float(case.threads or 1)
    asked = need + beside * need / case.trial.processes
    share = 1 - min(1.0, case.cores / asked) / min(1.0, case.cores / need)
    evidence = [
        Evidence(f"{units.counted(beside, 'other model')} ran on the same {case.cores:g} cores", "the trial")
    ]
    sure, least = Confidence.LIKELY, 1 / max(0.05, 1 - share)
    gain, bound = between(least, max(least, 1 / all_run(_sharing_operations(case), min(0.95, share))))
    basis = "cores asked for / cores there are, and the same if all threads of an operation must run at once"
    if alone is not None:
        evidence.append(Evidence(alone.text, alone.source))
        gain, bound, basis = alone.ratio, Bound.NONE, "measured: " + alone.source
        share, sure = max(0.0, 1 - 1 / gain.value), Confidence.CONFIRMED
    if share < 0.1:
        return None
    words = "run the other model elsewhere or at another time"
    remedy = Remedy(words, {"colocated": ""}, gain, basis, bound)
    return Finding("contention", share, sure, tuple(evidence), (remedy,))
