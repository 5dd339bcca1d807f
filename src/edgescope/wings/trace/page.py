"""The document about a trace: the budget of an inference, launching, the GPU's time, kernels, blame, scheduling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgescope.analysis.finding import CAUSES
from edgescope.analysis.kernels.account import COUNTERS, Account, of_trace
from edgescope.analysis.kernels.gpu_time import GpuTime, Launches, Named, Scheduled, Sharing
from edgescope.analysis.kernels.inferences import EC, PARTS, Budget
from edgescope.analysis.kernels.rows import Distribution
from edgescope.errors import Message
from edgescope.records import Absent, Field, Json, Measured, Verdict
from edgescope.report import document as doc
from edgescope.units import show

if TYPE_CHECKING:
    from edgescope.plots.style import Figure
    from edgescope.wings.trace.verb import Growth, Traced

MOST = 10
"""Kernels, calls and processes in a table of a terminal."""
OVER_TIME = "The share of each stretch of time in which it took place; all panels have one time axis."
SAMPLED = "The share of the samples, while the GPU had work, in which the counter was at most this high."
CDF = "The share of inferences whose EC (solid) or CS (dotted) is at most this long."
WIDTH = 46
"""Characters of a kernel's name."""


#: A GPU that works less than this share of the time waits for the host for the rest.
STARVED = 0.8


def document(traced: Traced) -> doc.Document:
    """Return the document about one or several traces: the answer, what it may be trusted for, then its tables."""
    trust: list[doc.Part | None] = [_verdict(traced.verdict), _disturbed(traced)]
    parts: list[doc.Part | None] = _growth(traced.growth) if traced.growth is not None else []
    own = [_parts(traced, label, one) for label, one in traced.accounts]
    if len(own) == 1:
        (first, *answer), tables = own[0]
        parts += [first, *trust, *answer, *tables]
    else:
        labels = [label for label, _ in traced.accounts]
        whole = [tuple(p for p in (*answer, *tables) if p) for answer, tables in own]
        parts += trust
        parts += [doc.Section(n, p, level=doc.DETAIL) for n, p in zip(labels, whole, strict=True)]
    budgets = [(label, one.budget) for label, one in traced.accounts]
    parts.append(doc.Figure("cdf", "EC and CS of the inferences", CDF, partial(_drawn, "cdfs", budgets)))
    if any(name.endswith(COUNTERS) for _, one in traced.accounts for name in one.samples):
        drawn = partial(_drawn, "counters", traced.accounts)
        parts.append(doc.Figure("counters", "SM active, SM issue and tensor active", SAMPLED, drawn))
    title = f"Trace of {', '.join(label for label, _ in traced.accounts)}"
    return doc.Document(title, tuple(p for p in (*_warned(traced.warnings), *parts) if p), _data(traced))


def _drawn(name: str, what: Any) -> Figure | Absent:
    """Return a figure; a terminal draws none, and is spared the import of what does."""
    from edgescope.wings.trace import figures

    found: Figure | Absent = getattr(figures, name)(what)
    return found


def _parts(traced: Traced, label: str, one: Account) -> tuple[list[doc.Part | None], list[doc.Part | None]]:
    """Return the answer of one trace, and the tables behind it."""
    answer: list[doc.Part | None] = [
        doc.Text(f"{len(one.inferences):,} inferences: {one.inferences.how}") if one.trace.timed else None,
        doc.Items(tuple(_lines(one))),
        *(_cause(label, one) if traced.conclusive else []),
    ]
    return answer, _account(one)


def _verdict(found: Verdict) -> doc.Part:
    return doc.Text((doc.badge(found.trust), doc.Mark(f": {'; '.join(found.evidence)}", "dim")))


def _cause(label: str, one: Account) -> list[doc.Part | None]:
    """Return what limits the program by its trace alone, with the first remedy; nothing if no cause is known."""
    found = of_trace(one, label)
    if not found.findings:
        return []
    first = found.findings[0]
    what = f"{first.name} ({CAUSES[first.cause]}), {first.extent}, {first.confidence.value}"
    return [doc.Text(f"What limits it: {what}. Try: {first.remedies[0].words}")]


def _disturbed(traced: Traced) -> doc.Part:
    """Return how much the profiler slowed the trial, which belongs to every figure below it."""
    share = traced.perturbation
    if isinstance(share, Absent):
        return doc.Text(f"perturbation: {share.reason}", "dim", doc.DETAIL)
    words = f"perturbation: under the profiler the throughput is {share.value:.2f} of the clean run's"
    if traced.conclusive:
        return doc.Text(words)
    if isinstance(traced.clean_busy, Measured):
        return doc.Items(
            (doc.Mark(f"{words}: of the times below, the kernels' own hold", "warn"), _bounded(traced))
        )
    return doc.Text(doc.Mark(f"{words}: no conclusion", "warn"))


def _bounded(traced: Traced) -> str:
    """Return what limits the trial by the clean run's rate and the kernels' own times."""
    busy = traced.clean_busy
    assert isinstance(busy, Measured)
    held = f"without the profiler the GPU works at most {busy.value:.0%} of the time"
    if busy.value < STARVED:
        return f"What limits it: launch-bound ({CAUSES['launch-bound']}): {held}; the rest waits for the host"
    return f"What limits it: its kernels, as far as they run one after another: {held}"


def _warned(warnings: Sequence[Message]) -> list[doc.Part]:
    return [doc.Items(tuple(doc.Mark(str(w), "warn") for w in warnings), kind="warnings")] if warnings else []


def _account(one: Account) -> list[doc.Part | None]:
    """Return the parts about one trace, those that it has rows for."""
    drawn = partial(_drawn, "over_time", one)
    return [
        doc.Figure(f"time-{id(one)}", "Host, GPU and sensors over time", OVER_TIME, drawn),
        doc.Text(
            f"{one.trace.source}: {len(one.trace.spans):,} spans, clock: {one.trace.clock}", "dim", doc.DETAIL
        ),
        *(_budget(one.budget) if one.budget is not None else []),
        *(
            _gpus(one.gpus)
            if one.gpus
            else [doc.Text("nothing in the trace ran on a GPU", "dim", doc.DETAIL)]
        ),
        *(_launches(one.launches) if one.launches is not None else []),
        _names("Kernels", one.kernels),
        _names("Operators", one.operators, one.trace.facts.get("layers", {})),
        _names("Copies", one.copies),
        _names("Calls of the host", one.calls),
        _names("Functions, without what they call", one.functions),
        *(_sharing(one.sharing) if one.sharing is not None else []),
        _scheduled(one.scheduled),
        _samples(one.samples),
        *_warned(one.trace.notes),
    ]


def _lines(one: Account) -> Iterator[str]:
    """Yield the account in a few lines."""
    if one.budget is not None:
        t, ec, cs, launch = (
            show(_at(one.budget.distribution(n), 0.5)) for n in ("total", "ec", "cs", "launch")
        )
        yield f"an inference takes {t} (median): EC {ec}, of which {launch} launching; CS {cs}"
        whole = show(_seconds(one.budget.wall_ns), digits=4)
        rest = "they overlap" if one.budget.closure > 1 else "the rest lies between them"
        yield f"the inferences sum to {one.budget.closure:.2%} of {whole} of wall time; {rest}"
        own = one.budget
        yield f"an inference has {_median(own.launches)} launches and {_median(own.syncs)} waits for the GPU"
    for g in one.gpus:
        idle = f"{_percent(g.idle_host_ns, g)} idle because the host was late"
        yield f"GPU {g.device} is busy {g.busy:.1%} of the time, {idle}, {_percent(g.idle_launch_ns, g)} after a launch"
    if one.launches is not None and one.launches.graph_launches and not one.launches.kernel.count:
        yield (
            f"{one.launches.graph_launches:,} CUDA graphs: launch {show(_at(one.launches.api, 0.5))}, queue "
            + (f"{show(_at(one.launches.queue, 0.5))} (medians)")
        )
    if one.launches is not None and one.launches.kernel.count:
        d = one.launches
        times = ", ".join(
            f"{name} {show(_at(x, 0.5))}"
            for name, x in (("launch", d.api), ("queue", d.queue), ("kernel", d.kernel))
        )
        yield f"{d.kernel.count:,} kernels: {times} (medians); {d.short:,} ran shorter than their launch took"
    for title, names in (("kernel", one.kernels), ("operator", one.operators)):
        if whole_ns := _whole_ns(names):
            layer = one.trace.facts.get("layers", {}).get(names[0].name)
            called = f"{short(names[0].name)} ({layer})" if layer else short(names[0].name)
            yield f"longest {title}: {called}, {(names[0].total_ns or 0) / whole_ns:.1%} of their time"
    if one.functions and not one.kernels:
        yield f"longest function: {one.functions[0].name}, {show(_seconds(one.functions[0].total_ns))} of its own"
    if one.operating is not None:
        yield f"operators run for {one.operating:.1%} of the inferences' time"
    if program := one.trace.facts.get("program"):
        yield from _program(program)
    for s in one.scheduled[:1]:
        yield f"process {s.process}: {s.switches:,} context switches, {s.migrations:,} migrations"


def _program(facts: Mapping[str, Json]) -> Iterator[str]:
    """Yield what the kernel knew of a program."""
    wall = facts["wall_ns"]
    cpus, waited = f"{facts['on_cpu_ns'] / wall:.2f} CPUs", show(_seconds(facts["ready_ns"]))
    yield f"the program ran {show(_seconds(wall))} on {cpus} in {facts['threads']} threads"
    moved = f"{facts['switches']:,} switches, at least {facts['migrations_seen']:,} migrations"
    yield f"ready threads waited {waited} for a CPU; {moved}"


def _percent(ns: int, gpu: GpuTime) -> str:
    return f"{ns / gpu.span_ns:.1%}" if gpu.span_ns else "0 %"


def _seconds(ns: float | None) -> Field:
    return Absent("not in the trace") if ns is None else Measured(ns * 1e-9, "s")


def _share(part: float, whole: float) -> Field:
    return Measured(part / whole, "share") if whole > 0 else Absent("nothing to be a share of")


def _at(found: Distribution, share: float) -> Field:
    return _seconds(found.quantile_ns(share)) if found.count else Absent("no such event")


def _budget(found: Budget) -> list[doc.Part]:
    """Return the table of an inference's parts, and what they sum to."""
    whole = float(found.total.sum())
    rows = []
    for name in ("ec", *EC, "cs", *(p for p in PARTS if p not in EC), "total"):
        if name == "rescheduled" and not found.scheduled:
            absent = Absent("the trace has no scheduling events")
            rows.append(doc.Row(("  rescheduled", absent, absent, absent, absent)))
            continue
        d = found.distribution(name)
        label = {"ec": "EC", "cs": "CS", "total": "T = EC + CS"}.get(name, f"  {name}")
        values = (_at(d, 0.5), _at(d, 0.95), _at(d, 0.99), _share(d.total_ns, whole))
        rows.append(doc.Row((label, *values)))
    columns = (
        doc.Column("part"),
        doc.Column("median", "s"),
        doc.Column("p95", "s", rank=1),
        doc.Column("p99", "s", rank=2),
        doc.Column("share of T", "share"),
    )
    meaning = doc.Items(tuple(f"{k}: {v}" for k, v in PARTS.items()), level=doc.DETAIL)
    return [
        doc.Table(columns, tuple(rows), "Time budget of an inference", level=doc.DETAIL, grid=True),
        meaning,
    ]


def _median(values: object) -> str:
    return f"{float(Distribution.of(values).quantile_ns(0.5)):.0f}"  # type: ignore[arg-type]


def _launches(found: Launches) -> list[doc.Part]:
    rows = tuple(
        doc.Row((name, d.count, _at(d, 0.5), _at(d, 0.9), _at(d, 0.99), _seconds(d.total_ns)))
        for name, d in (
            ("launch (call of the host)", found.api),
            ("queue (call's end to kernel's start)", found.queue),
            ("blocked (another's work runs)", found.blocked),
            ("kernel", found.kernel),
            ("gap (kernel to kernel)", found.gap),
        )
    )
    columns = (
        doc.Column("of a kernel"),
        doc.Column("count"),
        doc.Column("median", "s"),
        doc.Column("p90", "s", rank=2),
        doc.Column("p99", "s", rank=1),
        doc.Column("total", "s"),
    )
    lines = [
        f"{found.short:,} of {found.kernel.count:,} kernels ran shorter than the call that launched them"
    ]
    if found.graph_launches:
        lines.append(
            f"{found.graph_launches:,} launches of CUDA graphs ran {found.graph_kernels:,} kernels: "
            "launch and queue of a single kernel are not separable there"
        )
    if found.lone:
        lines.append(f"{found.lone:,} kernels have no call in the trace")
    if found.repeated:
        lines.append(
            f"{found.repeated:,} correlation ids occur twice; the last call before the work was taken"
        )
    if found.began_early:
        lines.append(
            f"{found.began_early:,} kernels began before their call returned: they have no queue time"
        )
    return [
        doc.Table(columns, rows, "Launching", level=doc.DETAIL),
        doc.Items(tuple(lines), level=doc.DETAIL),
    ]


def _gpus(found: Sequence[GpuTime]) -> list[doc.Part]:
    columns = (
        doc.Column("GPU"),
        doc.Column("time", "s"),
        doc.Column("busy", "share"),
        doc.Column("kernels", "share"),
        doc.Column("copies alone", "share", rank=1),
        doc.Column("idle: host late", "share"),
        doc.Column("idle: launched", "share"),
        doc.Column("idle: unknown", "share", rank=2),
    )
    rows = tuple(
        doc.Row(
            (
                str(g.device),
                _seconds(g.span_ns),
                *(_share(ns, g.span_ns) for ns in (g.busy_ns, g.kernel_ns, g.copy_ns)),
                *(_share(ns, g.span_ns) for ns in (g.idle_host_ns, g.idle_launch_ns, g.idle_unknown_ns)),
            )
        )
        for g in found
    )
    return [doc.Table(columns, rows, "Time of the GPU, first to last activity", level=doc.DETAIL)]


def short(name: str) -> str:
    """Return a kernel's name without its template arguments and parameters, shortened in the middle."""
    bare = re.sub(r"^void ", "", name)
    while (shorter := re.sub(r"<[^<>]*>|\((?!anonymous)[^()]*\)", "", bare)) != bare:
        bare = shorter
    bare = bare.strip() or name
    return bare if len(bare) <= WIDTH else f"{bare[: WIDTH // 2 - 2]}...{bare[-WIDTH // 2 + 1 :]}"


NO_INFERENCES = Absent("the trace marks no inferences")
NO_LAYERS: Mapping[str, str] = MappingProxyType({})


def _whole_ns(found: Sequence[Named]) -> int | None:
    """Return the time of all names; None if that of one of them is not known."""
    totals = [n.total_ns for n in found]
    return None if None in totals else sum(t for t in totals if t is not None)


def _names(title: str, found: Sequence[Named], layers: Mapping[str, str] = NO_LAYERS) -> doc.Part | None:
    """Return the table of the names that took longest, with the model's layers behind them; None if there are none."""
    if not found:
        return None
    whole = _whole_ns(found)
    moved = any(n.bytes is not None for n in found)
    rows = tuple(
        doc.Row(
            (
                doc.Mark(short(n.name), about=n.name),
                *((layers.get(n.name),) if layers else ()),
                n.count,
                NO_INFERENCES if n.inferences is None else n.inferences,
                _seconds(n.mean_ns),
                *map(_seconds, n.spread_ns or (None, None, None)),
                _seconds(n.total_ns),
                Absent("not in the trace") if whole is None else _share(n.total_ns or 0, whole),
                *((None if n.bytes is None else Measured(float(n.bytes), "bytes"),) if moved else ()),
            )
        )
        for n in found[:MOST]
    )
    columns = (
        doc.Column("name"),
        *((doc.Column("layer"),) if layers else ()),
        doc.Column("count"),
        doc.Column("inferences", rank=2),
        doc.Column("mean", "s"),
        doc.Column("p5", "s", rank=1),
        doc.Column("median", "s", rank=2),
        doc.Column("p95", "s", rank=1),
        doc.Column("total", "s", rank=2),
        doc.Column("share", "share"),
        *((doc.Column("moved", "bytes", rank=2),) if moved else ()),
    )
    left = f", the {MOST} longest of {len(found)}" if len(found) > MOST else ""
    return doc.Table(columns, rows, f"{title}{left}", level=doc.DETAIL)


def _sharing(found: Sharing) -> list[doc.Part]:
    turns = tuple(
        doc.Row((str(t.process), t.turns, _seconds(t.mean_ns), Measured(t.share, "share")))
        for t in found.turns[:MOST]
    )
    heads = (
        doc.Column("process"),
        doc.Column("turns"),
        doc.Column("mean turn", "s"),
        doc.Column("share", "share"),
    )
    order = sorted(found.blocked_ns.items(), key=lambda item: -item[1])[:MOST]
    blamed = tuple(doc.Row((str(a), str(b), _seconds(ns))) for (a, b), ns in order)
    columns = (doc.Column("waited"), doc.Column("while this process ran"), doc.Column("time", "s"))
    lapped = f"Work of two processes ran at once for {show(_seconds(found.overlapped_ns))}."
    return [
        doc.Table(heads, turns, "Turns of the GPU", level=doc.DETAIL),
        doc.Table(columns, blamed, "Whose work held up whom", level=doc.DETAIL),
        doc.Text(lapped, level=doc.DETAIL),
    ]


def _scheduled(found: Sequence[Scheduled]) -> doc.Part | None:
    if not found:
        return None
    rows = tuple(
        doc.Row(
            (
                str(s.process),
                s.threads,
                s.switches,
                s.migrations,
                _seconds(s.on_cpu_ns),
                _seconds(s.run_queue.total_ns) if s.run_queue.count else Absent("no wake-ups in the trace"),
            )
        )
        for s in found[:MOST]
    )
    columns = (
        doc.Column("process"),
        doc.Column("threads"),
        doc.Column("context switches"),
        doc.Column("migrations"),
        doc.Column("on a CPU", "s"),
        doc.Column("ready, waiting", "s"),
    )
    return doc.Table(columns, rows, "Scheduling of the CPU", level=doc.DETAIL)


def _samples(found: Mapping[str, Field]) -> doc.Part | None:
    rows = tuple(doc.Row((name, show(value))) for name, value in found.items() if isinstance(value, Measured))
    columns = (doc.Column("sampled"), doc.Column("mean"))
    return doc.Table(columns, rows, "Samples", level=doc.DETAIL) if rows else None


def _growth(found: Growth) -> list[doc.Part | None]:
    columns = (
        doc.Column("trace"),
        doc.Column("processes"),
        doc.Column("EC", "s"),
        doc.Column("CS", "s"),
        doc.Column("T", "s"),
        doc.Column("launch", "s"),
        doc.Column("EC off the CPU", "share", rank=1),
        doc.Column("GPU busy", "share"),
    )
    none = Absent("no scheduling events in the trace")
    rows = tuple(
        doc.Row(
            (
                level.label,
                level.processes,
                *(_seconds(ns) for ns in (level.ec_ns, level.cs_ns, level.total_ns, level.launch_ns)),
                none if level.off_cpu is None else Measured(level.off_cpu, "share"),
                Absent("nothing ran on a GPU") if level.busy is None else Measured(level.busy, "share"),
            )
        )
        for level in found.levels
    )
    cores = f"; the machine has {found.cores} cores" if found.cores else ""
    onset = (
        f"EC becomes clearly longer at {found.onset} processes{cores}"
        if found.onset
        else f"EC never becomes clearly longer{cores}"
    )
    return [doc.Table(columns, rows, "Medians over inferences"), doc.Text(onset)] if rows else []


def _data(traced: Traced) -> dict[str, Json]:
    """Return the accounts as plain values: nanoseconds, counts, shares."""
    return {
        "traces": {label: _plain(one) for label, one in traced.accounts},
        "growth": traced.growth,
        "perturbation": traced.perturbation,
        "conclusive": traced.conclusive,
        "clean_busy": traced.clean_busy,
        "verdict": traced.verdict,
        "warnings": list(traced.warnings),
    }


def _plain(one: Account) -> dict[str, Json]:
    found = one.budget
    return {
        "source": one.trace.source,
        "spans": len(one.trace.spans),
        "clock": one.trace.clock,
        "facts": dict(one.trace.facts),
        "inferences": {"count": len(one.inferences), "how": one.inferences.how},
        "verdict": one.verdict,
        "budget": found
        and {
            "closure": found.closure,
            "wall_ns": found.wall_ns,
            "parts": {name: found.distribution(name) for name in ("ec", "cs", "total", *found.parts)},
        },
        "launches": one.launches,
        "gpus": list(one.gpus),
        "kernels": list(one.kernels),
        "copies": list(one.copies),
        "calls": list(one.calls),
        "operators": list(one.operators),
        "operating": one.operating,
        "functions": list(one.functions),
        "sharing": one.sharing
        and {
            "blocked": [{"waited": a, "ran": b, "ns": ns} for (a, b), ns in one.sharing.blocked_ns.items()],
            "turns": list(one.sharing.turns),
            "overlapped_ns": one.sharing.overlapped_ns,
        },
        "scheduled": list(one.scheduled),
        "samples": dict(one.samples),
        "notes": list(one.trace.notes),
    }
