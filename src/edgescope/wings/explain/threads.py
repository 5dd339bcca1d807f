"""Causes in how threads share cores: too many, too few, one interpreter for all of them, or one lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgescope.analysis.finding import Bound, Confidence, Evidence, Finding, Remedy, between
from edgescope.records import Absent, Field, Measured
from edgescope.wings.explain.case import FASTER, SAMPLER, WINDOW, Case, Intervention, Part, known
from edgescope.wings.explain.machine import all_run

SPUN = "E-GEN-7"
"""The code of a run that was refused because threads which spin had to share their cores."""
LATE_S = 0.002
"""A thread that Python lets go on so late waits for the interpreter: its switch interval is 5 ms."""
PROMPT_S = 0.001
WAITS, CROWDED = 0.15, 0.35
"""Share of the time ready and not running: from here on threads are too many; lateness says nothing any more."""
TURNS = 0.7
"""Threads that run in turns sleep for at least this much of what k of them would sleep on one core: 1 - 1/k."""
ONE_CORE = (0.7, 1.35)
"""Cores that threads keep busy together when one of them runs at a time."""
USUAL_EFFICIENCY = (0.6, 1.0)
"""What each further core adds to the first, at least and at most, where no sweep tells."""
ADDS = f"each further core adds {USUAL_EFFICIENCY[0]:.0%} to {USUAL_EFFICIENCY[1]:.0%} of the first"


def found(case: Case) -> Iterator[Finding]:
    """Yield the causes in how threads share cores that the figures speak for."""
    if case.open_loop:
        return
    for look in (_spinning, _oversubscribed, _too_few, _one_at_a_time):
        if (finding := look(case)) is not None:
            yield finding


def _spinning(case: Case) -> Finding | None:
    """Return the finding that threads which wait for each other share their cores, where the run was refused for it."""
    reason, waits, others = case.result.reason, case.figure("run_wait_share"), known(case.usage.cpu_others)
    if reason is None or reason.code != SPUN or waits is None or others is None:
        return None
    evidence = [
        Evidence(f"other programs used {others * case.cores:.2f} of {case.cores:g} cores", SAMPLER),
        Evidence(f"its threads were ready and did not run for {waits:.0%} of their time", WINDOW),
    ]
    one = next((i for i in case.of("options.threads") if i.after == 1), None)
    gain: Field = Absent("how much they lose shows only in a run with one thread: --threads 1")
    share, sure = 1 - all_run(max(2, case.threads or 2), waits), Confidence.LIKELY
    if one is not None:
        evidence.append(Evidence(one.text, one.source, one.ratio.value < FASTER))
        if one.ratio.value < FASTER:
            return Finding("spinning threads", share, Confidence.POSSIBLE, tuple(evidence))
        gain, share, sure = one.ratio, 1 - 1 / one.ratio.value, Confidence.CONFIRMED
    single = Remedy("--threads 1", {"options": {**case.trial.options, "threads": 1}}, gain)
    alone = Remedy("end the other programs (edgescope doctor names them)")
    return Finding("spinning threads", share, sure, tuple(evidence), (single, alone), "", 1)


def _oversubscribed(case: Case) -> Finding | None:
    asked = case.asked
    if not case.trial.place.is_host or asked is None or case.trial.colocated:
        return None
    cores = max(1, int(case.cores))
    if asked <= cores or case.threads == case.trial.processes == 1:
        return None
    evidence = [Evidence(f"{asked} threads compute on {cores} cores", "what the engine says it runs with")]
    waits = case.figure("run_wait_share")
    if waits is not None:
        evidence.append(
            Evidence(f"its threads were ready and did not run for {waits:.0%} of their time", WINDOW)
        )
        if waits < WAITS:
            return None
    fewer = _fewer(case)
    if fewer is not None:
        evidence.append(Evidence(fewer.text, fewer.source, fewer.ratio.value < FASTER))
    change, words = _fitting(case, cores)
    if fewer is None and waits is None:
        return None  # that there are more threads than cores says nothing of the time that they lose
    share = 1 - 1 / fewer.ratio.value if fewer is not None and fewer.ratio.value > 1 else 0.5 * (waits or 0.0)
    sure = Confidence.POSSIBLE
    if fewer is not None:
        if fewer.ratio.value < FASTER:
            return Finding("oversubscription", max(0.0, share), sure, tuple(evidence))
        sure = Confidence.CONFIRMED
    remedy = Remedy(words, change, *_with_fewer(fewer, change, cores))
    return Finding("oversubscription", share, sure, tuple(evidence), (remedy,), "", 1)


def _with_fewer(
    tried: Intervention | None, change: Mapping[str, object], cores: int
) -> tuple[Field, str, Bound]:
    """Return the gain of one thread a core, how it was computed and how it is meant, by what was tried with fewer."""
    if tried is None:
        return Absent("how much the threads cost each other shows only in a run with fewer"), "", Bound.NONE
    if _same(tried, change):
        return tried.ratio, f"measured: {tried.source}", Bound.NONE
    asked = Case(tried.result).asked or cores
    if asked == cores:
        return tried.ratio, f"measured, as many threads: {tried.source}", Bound.NONE
    if asked > cores:  # it still has too many
        return tried.ratio, f"that of {tried.text}, and there would be fewer still", Bound.LEAST
    gain, bound = _further_cores(asked, cores, tried.ratio.value)
    return gain, f"{tried.text}; {ADDS}", bound


def _further_cores(threads: int, cores: int, so_far: float = 1.0) -> tuple[Measured, Bound]:
    """Return the gain of a thread on each core, over work on fewer that gained `so_far`."""
    low, high = (so_far * (1 + (cores / threads - 1) * e) for e in USUAL_EFFICIENCY)
    return between(low, high)


def _fewer(case: Case) -> Intervention | None:
    """Return the best of what was tried with fewer threads, processes or units at once."""
    down = [
        i
        for setting in ("options.threads", "processes", "in_flight")
        for i in case.of(setting)
        if isinstance(i.after, int) and (i.before is None or i.after < i.before)
    ]
    return max(down, key=lambda i: i.ratio.value, default=None)


def _fitting(case: Case, cores: int) -> tuple[dict[str, object], str]:
    """Return the change that leaves one thread a core, and its words."""
    per_process = case.threads // case.trial.processes if case.threads else 1
    if case.trial.processes > 1 and per_process <= 1:
        return {"processes": cores}, f"as many processes as cores: {cores}"
    if case.made_of == "phases" and case.trial.in_flight > 1 and per_process <= cores:
        return {"in_flight": max(1, cores // per_process)}, "fewer queries at once"
    each = max(1, cores // case.trial.processes)
    return {"options": {**case.trial.options, "threads": each}}, f"{each} thread{'s' * (each > 1)} a process"


def _same(tried: Intervention, change: Mapping[str, object]) -> bool:
    wanted = change.get(tried.setting)
    options = change.get("options")
    if isinstance(options, dict) and tried.setting == "options.threads":
        wanted = options.get("threads")
    return bool(wanted == tried.after)


def _too_few(case: Case) -> Finding | None:
    """Return the finding that cores are idle because the engine was told to use few threads."""
    threads, used = case.threads, case.cores_used
    if (
        not case.trial.place.is_host
        or case.overlapped
        or case.trial.multi_process
        or case.made_of != "phases"
    ):
        return None
    cores = int(case.cores)
    if threads is None or used is None or threads >= cores or used < 0.85 * threads:
        return None
    others = known(case.usage.cpu_others) or 0.0
    if others > 0.5 * (1 - threads / cores):
        return None  # the cores that it leaves are taken
    evidence = [
        Evidence(
            f"it computes with {threads} thread{'s' * (threads > 1)} and may use {cores} cores", "the engine"
        ),
        Evidence(f"{used:.2f} cores were busy with it", WINDOW if case.figure("cores_used") else SAMPLER),
    ]
    more = next((i for i in case.of("options.threads") if i.after is None or i.after > threads), None)
    gain, bound = _further_cores(threads, cores)
    basis, sure = ADDS, Confidence.LIKELY
    if more is not None:
        evidence.append(Evidence(more.text, more.source, more.ratio.value < FASTER))
        if more.ratio.value < FASTER:
            return None
        gain, bound, basis, sure = (
            more.ratio,
            Bound.NONE,
            f"measured: {more.source}",
            Confidence.CONFIRMED,
        )
    change = {"options": {**case.trial.options, "threads": cores}}
    remedy = Remedy(f"--threads {cores}", change, gain, basis, bound)
    return Finding("too few threads", 1 - 1 / gain.value, sure, tuple(evidence), (remedy,), "", 1)


def _one_at_a_time(case: Case) -> Finding | None:
    """Return the interpreter or a lock as the cause, if several threads keep about one core busy."""
    used, late = case.cores_used, case.figure("interpreter_wait_s")
    if not case.overlapped or case.cores < 2 or used is None or not case.trial.place.is_host:
        return None
    if late is None:
        return None
    turns = _in_turns(case)
    if late >= LATE_S:
        if (case.figure("run_wait_share") or 0.0) >= CROWDED:
            return None  # the thread that went on late may have waited for a core
        return _interpreter(case, used, late, turns) if used <= ONE_CORE[1] or turns is not None else None
    return _lock(case, turns, used, late) if late < PROMPT_S and turns is not None else None


def _in_turns(case: Case) -> Part | None:
    """Return the slowest stage if its threads are busy all the time and keep about one core busy together."""
    slow = slowest(case)
    if slow is None or slow.threads < 2 or not _busy(case, slow) or case.unit_s is None:
        return None
    asleep = case.asleep(slow)
    if asleep is None or slow.on_cpu is None:
        return None
    together = slow.on_cpu * slow.seconds / case.unit_s  # with less, they wait for something outside
    one_by_one = asleep >= TURNS * (1 - 1 / slow.threads)
    return slow if one_by_one and ONE_CORE[0] <= together <= ONE_CORE[1] else None


def _lock(case: Case, slow: Part, used: float, late: float) -> Finding:
    """Return a lock as the cause: the threads of a stage run in turns, and Python is not what they wait for."""
    on_cpu, asleep = slow.on_cpu or 0.0, case.asleep(slow) or 0.0
    evidence = (
        Evidence(f"{slow.threads} threads of {slow.name} are busy all the time", "the pipeline's own clock"),
        Evidence(
            f"each is on a CPU for {on_cpu:.0%} of that time and sleeps for {asleep:.0%}: they run in turns",
            WINDOW,
        ),
        Evidence(f"together with all else they keep {used:.2f} of {case.cores:g} cores busy", WINDOW),
        Evidence(
            f"Python lets a thread go on after {late * 1e3:.1f} ms, so it is no lock of Python's", WINDOW
        ),
    )
    remedy = Remedy(
        f"hold the lock in {slow.name} for less, or give each thread data of its own",
        {},
        Measured(min(case.cores / used, float(slow.threads)), "ratio"),
        "cores there are / cores in use, or the threads of the stage if these are fewer",
        Bound.MOST,
    )
    return Finding("lock-bound", asleep, Confidence.LIKELY, evidence, (remedy,), slow.name, 1)


def _interpreter(case: Case, used: float, late: float, turns: Part | None) -> Finding:
    gain, most = case.cores / max(used, 1.0), max(case.parts, key=lambda p: p.seconds, default=None)
    more = next((i for i in case.of("processes") if isinstance(i.after, int) and i.after > i.before), None)
    evidence = [
        Evidence(f"several threads keep {used:.2f} of {case.cores:g} cores busy", WINDOW),
        Evidence(f"Python lets a thread go on {late * 1e3:.1f} ms late: others hold the interpreter", WINDOW),
    ]
    sure, basis, part = Confidence.LIKELY, "cores there are / cores in use", most.name if most else ""
    if turns is not None:
        each = f"each is on a CPU for {turns.on_cpu:.0%} of its time"
        text = f"{turns.threads} threads of {turns.name} run in turns: {each}"
        evidence.append(Evidence(text, WINDOW))
    for tried in case.tried:
        if tried.setting.endswith("_threads") and isinstance(tried.after, int):
            more_threads = tried.after > (tried.before or 1)
            evidence.append(Evidence(tried.text, tried.source, more_threads and tried.ratio.value > 1.3))
    if more is not None:
        evidence.append(Evidence(more.text, more.source, more.ratio.value < FASTER))
        gain, basis = more.ratio.value, f"measured: {more.source}"
        sure = Confidence.CONFIRMED if gain >= FASTER else Confidence.POSSIBLE
    processes = int(case.cores)
    remedies = (
        Remedy(
            f"{processes} processes instead of threads, each with an interpreter of its own",
            {"processes": processes},
            Measured(gain, "ratio"),
            basis,
            Bound.MOST if more is None else Bound.NONE,
        ),
        Remedy(f"whole arrays instead of Python's loops{' in ' + part if part else ''}"),
    )
    share = max(1 - 1 / max(gain, 1.01), (case.asleep(turns) or 0.0) if turns is not None else 0.0)
    return Finding("GIL-bound", share, sure, tuple(evidence), remedies, "", 1)


def slowest(case: Case) -> Part | None:
    """Return the stage that takes longest for a unit, its threads taken together."""
    return max(case.parts, key=lambda p: p.seconds / p.threads, default=None)


def _busy(case: Case, part: Part) -> bool:
    """Return whether all threads of a stage are at work nearly all the time."""
    return case.unit_s is not None and part.seconds / part.threads >= 0.75 * case.unit_s
