"""What was measured where: the machine, what differed, warnings, ids, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from edgescope.analysis.cells.compare import differences
from edgescope.analysis.cells.machines import flat
from edgescope.analysis.cells.replicates import across
from edgescope.command import bench_command
from edgescope.plots.style import ordered
from edgescope.records import Json, Measured, Result, Status
from edgescope.report.chapter import Chapter
from edgescope.report.defence import grid, term
from edgescope.report.markup import Child, Markup, join, tag
from edgescope.report.numbers import fact, shares


def machine(chapter: Chapter) -> Markup:
    """Return the machine's facts, those that name it first, as the newest result saw them."""
    where = chapter.machine
    parts = [tag("h3", "What was measured where"), tag("p", _scope(chapter), class_="lead")]
    parts.append(_facts("Machine", where.stable))
    parts.append(_facts("State and versions, at the newest result", where.state, folded=True))
    return tag("section", parts)


def _scope(chapter: Chapter) -> Markup:
    info = chapter.info
    times = sorted(r.started_at for r in chapter.results if r.started_at)
    when = f"{_minute(times[0])} to {_minute(times[-1])} UTC" if times else "at an unrecorded time"
    text = f"{len(chapter.results)} results, {when}, machine id "
    model = ""
    if info:
        size = f", {info.params / 1e6:.2f} M parameters" if info.params else ""
        work = f", {info.macs / 1e6:,.0f} M multiply-accumulates a sample" if info.macs else ""
        weights = "trained weights" if info.trained else "untrained weights"
        model = f" Model {info.name} ({info.source}, {weights}{size}{work}, digest {info.digest})."
    return join(text, tag("code", chapter.machine.id), ".", model)


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _facts(title: str, facts: Mapping[str, Json], folded: bool = False) -> Markup:
    rows = [tag("div", tag("dt", key), tag("dd", fact(value))) for key, value in flat(facts).items()]
    listing = tag("dl", rows or "nothing was recorded", class_="facts")
    if not folded:
        return listing
    return tag("details", tag("summary", f"{title} ({len(rows)} facts)"), listing)


def settings(chapter: Chapter) -> Markup:
    """Return what was set or found differently from the baseline, besides what the label says."""
    base = chapter.groups[chapter.table.baseline]
    rows: list[list[Child | Markup]] = []
    for row in ordered(chapter.table):
        if row.cell == chapter.table.baseline:
            continue
        found = differences(base, chapter.groups[row.cell])
        lines = [
            f"{d.name}: {fact(d.baseline)} → {fact(d.candidate)}"
            for d in found
            if not d.name.startswith("state.time")
        ]
        rows.append(
            [
                row.label,
                tag("ul", [tag("li", line) for line in lines], class_="plain") if lines else "nothing",
            ]
        )
    if not rows:
        return tag("section", tag("h3", "Settings that differ"), tag("p", "There is one variant only."))
    table = grid(("Variant", f"Differs from {chapter.baseline.label} in"), rows)
    lead = tag(
        "p", "Facts that also vary between replicates of one variant are noise and left out.", class_="lead"
    )
    return tag("section", tag("h3", "Settings that differ"), lead, table)


def warnings(chapter: Chapter) -> Markup:
    """Return every warning and every reason of a result that did not end well.

    One variant's warnings of one code share a line: the first one's words, and how many results said so.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for r in chapter.results:
        for text in _said(r):
            alike.setdefault((r.trial.label, text.split(":")[0]), []).append(text)
    items = []
    for (label, _), texts in alike.items():
        words = "alike" if len(set(texts)) == 1 else "with figures of their own"
        more = f" ({len(texts) - 1} more {words})" if len(texts) > 1 else None
        items.append(
            tag("li", tag("b", label), " ", texts[0], tag("span", more, class_="dim") if more else None)
        )
    body = tag("ul", items, class_="warnings") if items else tag("p", "None.")
    return tag("section", tag("h3", "Warnings"), body)


def _said(result: Result) -> Iterator[str]:
    yield from map(str, result.warnings)
    if result.status is not Status.OK:
        yield f"{result.status.value}: {result.reason or 'no reason given'}"


def sampler(chapter: Chapter) -> Markup:
    """Return what watching cost."""
    cost = across([r for r in chapter.results if "sampler_cpu_share" in r.metrics], "sampler_cpu_share")
    if not isinstance(cost, Measured):
        text: Child = f"not measured: {cost.reason}"
    else:
        form = shares([cost])
        text = f"{100 * cost.value:.2f} % of one core on average" + (
            f" [{100 * cost.lo:.2f} – {100 * cost.hi:.2f}]"
            if form.interval(cost) and cost.lo is not None and cost.hi is not None
            else ""
        )
    return tag(
        "section", tag("h3", "What measuring itself cost"), tag("p", term("sampler_cost"), ": ", text, ".")
    )


def identities(found: Sequence[Chapter], whole: Chapter, command: str) -> Markup:
    """Return the command that made this page, one per cell that measures it again, and all ids."""
    runs = {cell: 1 + max(r.trial.replicate for r in group) for cell, group in whole.groups.items()}
    again = [bench_command(row.trial, runs[row.cell]) for c in found for row in ordered(c.table)]
    rows: list[list[Child | Markup]] = [
        [
            tag("code", r.id),
            r.trial.label,
            str(r.trial.replicate),
            tag("code", r.trial.id),
            tag("code", r.trial.cell),
            r.status.value,
        ]
        for r in whole.results
    ]
    head = ("Result", "Variant", "Replicate", "Trial", "Cell", "Status")
    return tag(
        "section",
        tag("h3", "Do it again"),
        tag("p", "This page:"),
        tag("pre", tag("code", command)),
        tag("p", "One variant at a time:"),
        tag("pre", tag("code", "\n".join(again))),
        _commands(whole.results),
        tag("details", tag("summary", f"Ids of all {len(rows)} results"), grid(head, rows)),
    )


def _commands(results: Sequence[Result]) -> Markup | None:
    """Return the command lines that the measuring processes recorded."""
    found = dict.fromkeys(_words(r.machine.state.get("command")) for r in results)
    lines = [line for line in found if line]
    if not lines:
        return None
    listing = tag("pre", tag("code", "\n".join(lines[:20])))
    return tag("details", tag("summary", "Command lines as the measuring processes recorded them"), listing)


def _words(command: Json) -> str:
    if isinstance(command, list):
        return shlex.join(str(w) for w in command)
    return command if isinstance(command, str) else ""
