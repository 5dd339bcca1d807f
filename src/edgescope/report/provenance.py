"""The origin of the numbers: the machine, settings that differ, warnings, ids, and the commands to repeat them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from edgescope.analysis.cells.compare import differences
from edgescope.analysis.cells.machines import flat
from edgescope.analysis.cells.replicates import across
from edgescope.command import bench_command
from edgescope.metrics import METRICS
from edgescope.records import Json, Measured, Result, Status
from edgescope.report import document as doc
from edgescope.report import inputs
from edgescope.report.chapter import Chapter
from edgescope.units import counted, fact


def shared(found: Sequence[Chapter], command: str) -> doc.Section:
    """Return the sections that all loads of one model and machine share."""
    groups = {cell: group for c in found for cell, group in c.groups.items()}
    whole = replace(found[0], results=[r for c in found for r in c.results], groups=groups)
    said = doc.Items(tuple(whole.remarks), kind="warnings") if whole.remarks else None
    page = (machine(whole), warnings(whole), sampler(whole), identities(found, whole, command))
    concurrent = doc.Section("Concurrent runs", (said,), level=doc.DETAIL)
    return doc.Section("", (concurrent, inputs.section(whole), doc.Section("", page, level=doc.PAGE)))


def machine(chapter: Chapter) -> doc.Section:
    """Return the section with the machine's facts in the newest result, its stable facts first."""
    where = chapter.machine
    stable, state = (
        tuple((k, fact(v)) for k, v in flat(facts).items()) for facts in (where.stable, where.state)
    )
    title = f"State and versions, at the newest result ({len(state)} facts)"
    parts = (doc.Text(_scope(chapter), "lead"), doc.Pairs(stable), doc.Pairs(state, title))
    return doc.Section("What was measured where", parts)


def _scope(chapter: Chapter) -> doc.Value:
    info = chapter.info
    times = sorted(r.started_at for r in chapter.results if r.started_at)
    when = f"{_minute(times[0])} to {_minute(times[-1])} UTC" if times else "at an unrecorded time"
    text = f"{counted(len(chapter.results), 'result')}, {when}, machine id "
    model = ""
    if info:
        size = f", {info.params / 1e6:.2f} M parameters" if info.params else ""
        work = f", {info.macs / 1e6:,.0f} M multiply-accumulates a sample" if info.macs else ""
        pictures = f" Pictures were prepared: {info.prepared}." if info.prepared else ""
        model = (
            f" Model {info.name} ({info.source}, {info.weights}{size}{work}, digest {info.digest}).{pictures}"
        )
    return (text, doc.Mark(chapter.machine.id, "code"), ".", model)


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def settings(chapter: Chapter) -> doc.Section:
    """Return the section of settings and facts that differ from the baseline, besides those in the label."""
    base = chapter.groups[chapter.table.baseline]
    rows: list[doc.Row] = []
    for row in chapter.table.ordered():
        if row.cell == chapter.table.baseline:
            continue
        told: list[doc.Value] = []
        for d in differences(base, chapter.groups[row.cell]):
            if not d.name.startswith("state.time"):
                line = f"{d.name}: {fact(d.baseline)} → {fact(d.candidate)}"
                told += ["\n", line] if told else [line]
        rows.append(doc.Row((row.label, tuple(told) or "nothing")))
    if not rows:
        return doc.Section("Settings that differ", (doc.Text("There is one variant only."),))
    head = (doc.Column("Variant"), doc.Column(f"Differs from {chapter.baseline.label} in"))
    lead = "Facts that also vary between replicates of one variant are noise and left out."
    return doc.Section("Settings that differ", (doc.Text(lead, "lead"), doc.Table(head, tuple(rows))))


def warnings(chapter: Chapter) -> doc.Section:
    """Return the section with every warning, and the reason of every result that did not end well.

    A variant's warnings with the same code share a line: the text of the first, and how many more there are.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for r in chapter.results:
        for text in _said(r):
            alike.setdefault((r.trial.label, text.split(":")[0]), []).append(text)
    items: list[doc.Value] = []
    for (label, _), texts in alike.items():
        words = "alike" if len(set(texts)) == 1 else "with figures of their own"
        more = f" ({len(texts) - 1} more {words})" if len(texts) > 1 else ""
        items.append((doc.Mark(label, "strong"), " ", texts[0], doc.Mark(more, "dim")))
    return doc.Section(
        "Warnings", (doc.Items(tuple(items), kind="warnings") if items else doc.Text("None."),)
    )


def _said(result: Result) -> Iterator[str]:
    yield from map(str, result.warnings)
    if result.status is not Status.OK:
        yield f"{result.status.value}: {result.reason or 'no reason given'}"


def sampler(chapter: Chapter) -> doc.Section:
    """Return the section on the cost of the sampler."""
    cost = across([r for r in chapter.results if "sampler_cpu_share" in r.metrics], "sampler_cpu_share")
    if not isinstance(cost, Measured):
        text = f"not measured: {cost.reason}"
    else:
        ends = cost.lo is not None and cost.hi is not None and cost.hi < float("inf")
        text = f"{100 * cost.value:.2f} % of one core on average"
        text += f" [{100 * (cost.lo or 0):.2f} – {100 * (cost.hi or 0):.2f}]" if ends else ""
    return doc.Section(
        "What measuring itself cost", (doc.Text((doc.defined(METRICS["sampler_cost"]), ": ", text, ".")),)
    )


def identities(found: Sequence[Chapter], whole: Chapter, command: str) -> doc.Section:
    """Return the section with the command that made this page, one command for each cell, and all ids."""
    runs = {cell: 1 + max(r.trial.replicate for r in group) for cell, group in whole.groups.items()}
    again = [bench_command(row.trial, runs[row.cell]) for c in found for row in c.table.ordered()]
    rows = tuple(
        doc.Row(
            (
                doc.Mark(r.id, "code"),
                r.trial.label,
                r.trial.replicate,
                r.trial.id,
                r.trial.cell,
                r.status.value,
            )
        )
        for r in whole.results
    )
    names = ("Result", "Variant", "Replicate", "Trial", "Cell", "Status")
    head = tuple(doc.Column(name, "1" if name == "Replicate" else None) for name in names)
    recorded = filter(None, dict.fromkeys(_words(r.machine.state.get("command")) for r in whole.results))
    typed = "\n".join(list(recorded)[:20])
    parts = (
        doc.Text("This page:"),
        doc.Code(command),
        doc.Text("One variant at a time:"),
        doc.Code("\n".join(again)),
        doc.Code(typed, "Command lines as the measuring processes recorded them") if typed else None,
        doc.Section(f"Ids of all {len(rows)} results", (doc.Table(head, rows),), "folded"),
    )
    return doc.Section("Do it again", parts)


def _words(command: Json) -> str:
    if isinstance(command, list):
        return shlex.join(str(w) for w in command)
    return command if isinstance(command, str) else ""
