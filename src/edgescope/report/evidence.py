"""The evidence behind the numbers and their origin.

The evidence is the accuracy gate's results, the verdicts, what ran, and the four times; the origin is the machine,
settings that differ, warnings, ids, and the commands to repeat them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from edgescope import units
from edgescope.analysis.cells.compare import differences
from edgescope.analysis.cells.machines import flat
from edgescope.analysis.cells.replicates import across
from edgescope.analysis.cells.row import Row
from edgescope.command import bench_command
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Json, Measured, Result, Status, Verdict, Verification
from edgescope.report import chapter
from edgescope.report import document as doc
from edgescope.report.chapter import Chapter
from edgescope.units import counted, fact

GATE_FIELDS = ("top1_agreement", "box_agreement", "centred_l2", "rank_agreement")
FOUR = ("build_s", "load_s", "first_s", "steady_s")


def parts(chapter: Chapter) -> tuple[doc.Section, ...]:
    """Return all sections of evidence of a chapter."""
    found = (verified(chapter), trusted(chapter), four_numbers(chapter), ran_as(chapter))
    return (*(section for section in found if section), settings(chapter))


def grid(title: str, head: Sequence[str], rows: Sequence[Sequence[doc.Value]], lead: str = "") -> doc.Section:
    """Return a table of words under a heading."""
    columns = tuple(doc.Column(name) for name in head)
    table = doc.Table(columns, tuple(doc.Row(tuple(row)) for row in rows))
    return doc.Section(title, (doc.Text(lead, "lead") if lead else None, table))


def lines(texts: Sequence[doc.Value]) -> doc.Value:
    """Return texts as lines of one cell."""
    out: list[doc.Value] = []
    for text in texts:
        out += ["\n", text] if out else [text]
    return tuple(out)


def verified(chapter: Chapter) -> doc.Section:
    """Return the section on verification: the reference of each variant, the method and the result."""
    info = chapter.info
    if info is None:
        weights = "No result loaded the model, so nothing is known about its weights."
    else:
        known = f"{info.weights[:1].upper()}{info.weights[1:]}"
        weights = f"{known}." if info.trained else f"{known}: no task accuracy."
    lead = f"{weights} Each variant answered the same inputs as the reference, after its measured window."
    rows = [_gate_row(chapter, row) for row in chapter.table.ordered()]
    head = ("Variant", "Gate", "Method and threshold", "Result", "Task accuracy")
    return grid("How the outputs were verified", head, rows, lead)


def _gate_row(chapter: Chapter, row: Row) -> list[doc.Value]:
    every = [r.verification for r in chapter.groups[row.cell] if r.verification]
    check = next((v for v in every if not v.passed), every[0] if every else None)
    if check is None:
        return [
            row.label,
            "outputs not verified",
            row.rejected or str(chapter.first(row).reason or ""),
            "",
            "",
        ]
    passed = doc.Mark("passed", "good") if check.passed else doc.Mark("FAILED", "bad")
    if check.method == "none":
        passed = doc.Mark("nothing to compare")
    return [row.label, passed, _method(check), _gate_result(check), _accuracy(check)]


def _method(check: Verification) -> doc.Value:
    name = {"top1_agreement": "agreement"}.get(check.method, check.method)
    what: doc.Value = doc.defined(METRICS[name]) if name in METRICS else check.method.partition("#")[0]
    against = f", against {check.reference}" if check.reference else ""
    if "accuracy" in check.fields and check.method not in GATE_FIELDS:
        return (what, f", at least {check.threshold:g} of fp32's value{against}")
    sense = "at most" if check.method == "centred_l2" else "lower bound at least"
    return (what, f", {sense} {check.threshold:g}{against}")


def _gate_result(check: Verification) -> doc.Value:
    """Return the gate's own sentence, or else the figures behind it."""
    if check.detail:
        return check.detail
    found = {k: f for k, f in check.fields.items() if isinstance(f, Measured) and k in GATE_FIELDS}
    said = [f"{key}: {f.value:.3g}, n\u00a0=\u00a0{f.n:,}" for key, f in found.items()]
    return lines(said or ["no figures"])


def _accuracy(check: Verification) -> doc.Value:
    said: list[str] = []
    named = (("accuracy", ""), ("reference_accuracy", "reference: "), ("accuracy_difference", "difference: "))
    for key, prefix in named:
        field = check.fields.get(key)
        if isinstance(field, Measured):
            said.append(f"{prefix}{units.column('share', [field]).text(field)}, n\u00a0=\u00a0{field.n:,}")
        elif isinstance(field, Absent) and not prefix:
            said.append(units.absence(field))
    return lines(said or ["not measured"])


def trusted(chapter: Chapter) -> doc.Section:
    """Return the section with every verdict and its evidence; variants with the same ones share a line."""
    alike: dict[Verdict, list[Row]] = {}
    for row in chapter.table.ordered():
        alike.setdefault(row.verdict, []).append(row)
    rows: list[list[doc.Value]] = []
    for verdict, members in alike.items():
        said = verdict.evidence or ("no evidence was recorded",)
        mark = doc.badge(verdict.trust, verdict.evidence)
        rows.append([lines([r.label for r in members]), mark, lines(said)])
    head = ("Variants", "Verdict", "Evidence, from the worst replicates")
    return grid("May the numbers be trusted?", head, rows)


def ran_as(chapter: Chapter) -> doc.Section | None:
    """Return the section on what each engine reported that it ran, and its artifact; None without a report."""
    rows: list[list[doc.Value]] = []
    for row in chapter.table.ordered():
        result = chapter.first(row)
        done = result.effective
        if done is None:
            continue
        threads = "engine's choice" if done.threads is None else str(done.threads)
        facts = f"{done.precision} on {done.device}, {threads} threads"
        rows.append([row.label, facts, done.evidence or "not stated", _artifact(result.artifact)])
    head = ("Variant", "Ran as", "Read from", "Artifact")
    return grid("What actually ran", head, rows) if rows else None


def _artifact(artifact: object) -> str:
    facts: dict[str, Json] = dict(artifact) if isinstance(artifact, dict) else {}
    size = facts.get("bytes")
    said = [f"{size / 1e6:.1f} MB" if isinstance(size, int | float) else "", str(facts.get("digest") or "")]
    return ", ".join(p for p in said if p) or "none recorded"


def four_numbers(chapter: Chapter) -> doc.Section:
    """Return the section with the build, load, first and steady time of each variant; they are never added up."""
    title, measured = "Build, load, first, steady", [r for r in chapter.table.ordered() if r.replicates]
    if not measured:
        return doc.Section(title, (doc.Text("No variant ran."),))
    rows = [doc.Row((row.label, *(_four(row, key) for key in FOUR))) for row in measured]
    columns = (doc.Column("Variant"), *(doc.Column.of(METRICS[key]) for key in FOUR))
    return doc.Section(title, (doc.Table(columns, tuple(rows), reasons=True),))


def _four(row: Row, key: str) -> doc.Cell | Field:
    if key == "steady_s":
        return _bare(row["p50_s"])
    return _bare(across(list(row.replicates.values()), key))


def _bare(field: Field) -> Field:
    """Return a figure without its interval, so that the four can be compared easily."""
    return field if isinstance(field, Absent) else Measured(field.value, field.unit, n=field.n)


# -- the origin of the numbers ---------------------------------------------------------------------------------


def shared(found: Sequence[Chapter], command: str) -> doc.Section:
    """Return the sections that all loads of one model and machine share."""
    groups = {cell: group for c in found for cell, group in c.groups.items()}
    whole = replace(found[0], results=[r for c in found for r in c.results], groups=groups)
    said = doc.Items(tuple(whole.remarks), kind="warnings") if whole.remarks else None
    page = (machine(whole), warnings(whole), sampler(whole), identities(found, whole, command))
    concurrent = doc.Section("Concurrent runs", (said,), level=doc.DETAIL)
    return doc.Section("", (concurrent, chapter.data_section(whole), doc.Section("", page, level=doc.PAGE)))


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
