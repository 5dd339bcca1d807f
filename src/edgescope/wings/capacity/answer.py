"""The answer of a capacity search: how many clients fit, by which runs, and the limit that keeps one more from fitting.

Two things can weaken it: a disturbed machine, and a client that is served worse than the others. What limits is
checked in this order, on the run just above the capacity: did memory end it, did a guard hold the clocks down (power
cap, heat), is a promise of memory or power broken; can one client alone keep the promises at all; then the servers. A
server that has a query nearly all the time is limited by the part that is busy while it works. If it has idle time and
the tail is still beyond its limit, the limit is latency: queries that arrive together wait for each other, and the
part that serves them is named too. If figures are missing or contradict each other, the limit is "not known" with the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgescope import units
from edgescope.analysis.run.usage import Usage, usage
from edgescope.errors import Message
from edgescope.records import Absent, Field, Measured, Queries, Result, Status, Trust
from edgescope.stats import percentile
from edgescope.wings.capacity.keeping_up import measured_rows
from edgescope.wings.capacity.question import Held, Point, Question, timed, words

BUSY = 0.90
"""A part that is busy for this share of the time in which queries are served is what serves them."""
SATURATED = 0.95
"""A server that has a query for this share of the time has no room for more of them."""
OVERRUN = 0.80
"""The same where the wait grows all the time; a stall makes it grow as well, but leaves a server idle afterwards."""
OTHERS = 0.10
"""Share of the cores that others may use before the answer is about a shared machine."""
MINOR = 3.0
"""If other programs use this many times as much as the run itself, the limit of the run is not known."""
LIMIT_OF = {"power cap": "power", "over-current": "power", "under-voltage": "power", "thermal": "heat"}
"""Cause of a throttle -> limit."""


@dataclass(frozen=True)
class Limit:
    """The binding limit: cpu, gpu, memory, power, heat, decoder, latency, promise, servers, untried or not known."""

    name: str
    sentence: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Capacity:
    """How many clients fit, the runs that show it, and the limit that keeps one more out."""

    question: Question
    clients: int
    confirmed: Point | None
    """The sustained run at the answer; None if not one client fits."""
    above: Point | None
    """The run that shows that more do not fit; None if none was tried."""
    limit: Limit
    points: tuple[Point, ...]
    throughput: Field
    """Queries per second of the closed loop: one process that is never idle, in_flight queries at a time."""
    warnings: tuple[Message, ...] = ()


def answer(
    question: Question, points: Sequence[Point], throughput: Field, warnings: Sequence[Message] = ()
) -> Capacity:
    """Return the capacity: the largest number confirmed, and the least number above it that does not fit."""
    confirmed = max(
        (p for p in points if p.stage == "confirm" and p.shown), key=lambda p: p.clients, default=None
    )
    clients = confirmed.clients if confirmed else 0
    missed = [p for p in points if p.clients > clients and not p.shown and not p.fits]
    missed += [p for p in points if p.clients > clients and p.stage == "confirm" and not p.shown]
    above = min(missed, key=lambda p: (p.clients, p.stage != "confirm", -p.seconds), default=None)
    return Capacity(
        question,
        clients,
        confirmed,
        above,
        binding(above, confirmed, question.base.in_flight),
        tuple(points),
        throughput,
        tuple(warnings),
    )


def doubts(found: Capacity) -> tuple[Message, ...]:
    """Return the warnings about the run on which the answer rests."""
    rests_on = found.confirmed or found.above
    if rests_on is None or not rests_on.held:
        return ()
    unequal = _unequal(found.confirmed) if found.confirmed else None
    return tuple(said for said in (_untrusted(rests_on), unequal) if said)


def _untrusted(point: Point) -> Message | None:
    verdict = point.result.verdict
    if verdict.trust is Trust.CLEAN:
        return None
    what = f"the run that the answer rests on is {verdict.trust.value}"
    effect = "The answer holds for the machine in the state of that run"
    fix = "the same command with --no-cache on a quiet machine"
    return Message("W-CAP-3", what, evidence="; ".join(verdict.evidence[:2]), effect=effect, fix=fix)


def _unequal(point: Point) -> Message | None:
    """Return a warning if a client with its own process misses a constraint that all clients together get."""
    if point.result.trial.processes == 1:
        return None
    rows = measured_rows(point.result)
    for constraint in (h.constraint for h in point.held if h.constraint.quantile is not None):
        q = constraint.quantile or 0.0
        each = [timed(constraint, _of(rows, n)) for n in range(point.result.trial.processes)]
        worst = max((percentile(x, q) for x in each if len(x) * (1 - q) >= 1), default=0.0)
        if not constraint.holds(worst):
            return Message(
                "W-CAP-4",
                f"the worst client's own {constraint.name} is {units.text(worst, 's')}",
                evidence=f"promised {units.text(constraint.limit, 's')}, which all clients together keep",
                effect="The promise does not hold for each of them",
                fix="--sharing pinned, or --server-processes one",
            )
    return None


def _of(rows: Queries, worker: int) -> Queries:
    """Return the rows of one worker."""
    mine = rows.columns["worker"] == worker
    return Queries({name: column[mine] for name, column in rows.columns.items()})


# -- the limit that keeps one more from fitting ---------------------------------------------------------------


def binding(above: Point | None, at: Point | None, in_flight: int = 1) -> Limit:
    """Return the limit from the run just above the capacity and the one at it (None: not one client fits)."""
    if above is None:
        return Limit("untried", "no limit was reached: all requested clients fit")
    used = usage(above.result)
    facts = evidence(above, used)
    for name, sentence in (_memory(above), _power(above, used), _alone(above, at)):
        if name:
            return Limit(name, sentence, facts)
    if not above.held:
        return Limit("not known", f"not known: {above.why}", facts)
    return _servers(above, used, in_flight, facts)


def _memory(above: Point) -> tuple[str, str]:
    if above.result.status is Status.OOM:
        return "memory", "memory is the limit: the run was stopped or refused for it"
    broken = [h for h in above.held if "memory" in h.constraint.name and _broken(h)]
    return ("memory", f"memory is the limit: {words(broken[0])}") if broken else ("", "")


def _power(above: Point, used: Usage) -> tuple[str, str]:
    broken = [h for h in above.held if h.constraint.name in ("power", "energy") and _broken(h)]
    if broken:
        return "power", f"{broken[0].constraint.name} is the limit: {words(broken[0])}"
    causes = [(LIMIT_OF.get(h.cause, ""), h) for h in used.holds]
    for name, what in (("power", "power is the limit"), ("heat", "heat is the limit")):
        hold = next((h for found, h in causes if found == name), None)
        if hold is not None:
            return name, f"{what}: {hold}"
    return "", ""


def _alone(above: Point, at: Point | None) -> tuple[str, str]:
    if at is not None or above.clients > 1 or not above.held:
        return "", ""
    return "promise", "the promise itself: even one client alone misses it"


def _servers(above: Point, used: Usage, in_flight: int, facts: tuple[str, ...]) -> Limit:
    busy = above.busy.value if isinstance(above.busy, Measured) else None
    if busy is None:
        return Limit("not known", "not known: how busy the servers were was not measured", facts)
    part, why = serving(used, busy)
    name = {"cpu": "the CPU", "gpu": "the GPU", "decoder": "the decoder"}.get(part, "")
    if busy < (SATURATED if above.sustained else OVERRUN) and not _crowded_out(above, used, part):
        where = (
            f"; {name} is what they wait for ({why})"
            if name
            else f"; which part they wait for is not known: {why}"
        )
        text = f"latency, not throughput: queries queue for each other at {busy:.0%} utilisation{where}"
        return Limit("latency", text, facts)
    if name:
        return Limit(part, f"{name} is the limit ({why})", facts)
    if _idle(used) and above.result.trial.processes == 1:
        text = (
            f"the server is the limit: {in_flight} {'query' if in_flight == 1 else 'queries'} at a time keep it"
            f" busy {busy:.0%} of the time while {why}; more --in-flight may fit more"
        )
        return Limit("servers", text, facts)
    return Limit("not known", f"not known: {why}", facts)


def serving(used: Usage, busy: float) -> tuple[str, str]:
    """Return (part that is busy while queries are served, its figure), or ('', reason) if none can be named."""
    parts = (
        ("cpu", "CPU", used.cpu),
        ("gpu", "GPU", used.gpu),
        ("gpu", "GPU's multiprocessors", used.sm),
        ("decoder", "decoder", used.decoder),
    )
    read = [(name, text, f.value) for name, text, f in parts if isinstance(f, Measured)]
    full = [
        (name, f"{text} busy {value:.0%}") for name, text, value in read if value >= BUSY * min(busy, 1.0)
    ]
    names = {name for name, _ in full}
    if shared := _shared(used, busy, names):
        return shared
    if len(names) == 1:
        return full[0][0], full[0][1]
    if names:
        return "", f"the figures conflict: {', '.join(text for _, text in full)}"
    if read:
        return "", f"no part is busy throughout ({', '.join(f'{t} {v:.0%}' for _, t, v in read)})"
    reason = used.cpu.reason if isinstance(used.cpu, Absent) else "nothing was read"
    return "", f"not known ({reason})"


def _crowded_out(above: Point, used: Usage, part: str) -> bool:
    """Whether several processes fill one part together, though each of them has idle time.

    False for a single process: engines spin while they wait, which keeps a CPU busy with nothing.
    """
    shares = {"cpu": used.cpu, "gpu": used.gpu, "decoder": used.decoder}
    share = shares.get(part)
    return above.result.trial.processes > 1 and isinstance(share, Measured) and share.value >= SATURATED


def _shared(used: Usage, busy: float, names: set[str]) -> tuple[str, str] | None:
    """Return (part, figures) if other programs use the cores too, or None if they do not matter."""
    own, others = used.cpu, used.cpu_others
    if not isinstance(own, Measured) or not isinstance(others, Measured) or not names <= {"cpu"}:
        return None
    if others.value <= OTHERS or own.value + others.value < BUSY * busy:
        return None
    if MINOR * own.value < others.value and not names:
        return "", f"other programs use {others.value:.0%} of the cores, this one {own.value:.0%}"
    return "cpu", f"CPU busy {own.value + others.value:.0%}, {others.value:.0%} of it with other programs"


def _idle(used: Usage) -> bool:
    """Whether every part that was read has time to spare."""
    read = [f.value for f in (used.cpu, used.cpu_others, used.gpu, used.decoder) if isinstance(f, Measured)]
    return bool(read) and max(read) < BUSY * SATURATED


def _broken(held: Held) -> bool:
    """Whether a promise was measured and broken; a promise that could not be judged names no limit."""
    return isinstance(held.bound, Measured) and not held.constraint.holds(held.bound.value)


def evidence(point: Point, used: Usage) -> tuple[str, ...]:
    """Return the figures behind a limit, one sentence each; a figure that was not read gives its reason."""
    lines = [
        _share("servers had a query", point.busy),
        _share("CPU (of the allowed cores, by this)", used.cpu),
        _share("CPU (other programs)", used.cpu_others),
    ]
    if point.result.trial.place.channels:
        lines += [_share("GPU (any kernel)", used.gpu), _share("GPU (SM active)", used.sm)]
    lines.append(_figure("memory left", used.memory_free, "bytes"))
    lines.append(_figure("power", used.power, "W"))
    lines += [f"clocks held down: {h}" for h in used.holds]
    lines.append(_share("decoder", used.decoder))
    return (*lines, *_slowest_stage(point.result))


def _slowest_stage(result: Result) -> list[str]:
    """Return which stage of a video pipeline took longest while it ran; none of other work."""
    ends = "_busy_s"
    times = {
        name.removesuffix(ends): field.value
        for name, field in result.metrics.items()
        if name.endswith(ends) and isinstance(field, Measured)
    }
    if not times:
        return []
    name = max(times, key=times.__getitem__)
    spent, whole = (units.text(value, "s") for value in (times[name], sum(times.values())))
    return [f"slowest stage: {name}, {spent} of the {whole} that a unit takes in all stages"]


def _share(what: str, field: Field) -> str:
    return f"{what}: {field.value:.0%}" if isinstance(field, Measured) else f"{what}: {_short(field)}"


def _figure(what: str, field: Field, unit: str) -> str:
    return (
        f"{what}: {units.text(field.value, unit)}"
        if isinstance(field, Measured)
        else f"{what}: {_short(field)}"
    )


def _short(field: Absent) -> str:
    """Return the reason up to its first detail: sensors list everything they looked for."""
    return field.reason.split(":")[0] if len(field.reason) > 60 else field.reason
