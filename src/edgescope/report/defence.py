"""Why the numbers may be believed: the gate's answers, the verdicts' evidence, what ran, the four numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from edgescope.analysis.cells.replicates import across
from edgescope.analysis.cells.row import Row
from edgescope.metrics import METRICS
from edgescope.plots.style import ordered
from edgescope.records import Absent, Field, Json, Measured, Verdict, Verification
from edgescope.report.answer import badge
from edgescope.report.chapter import Chapter
from edgescope.report.markup import Child, Markup, join, tag
from edgescope.report.numbers import absence, shares, times

GATE_FIELDS = ("top1_agreement", "centred_l2", "rank_agreement")
FOUR = ("build_s", "load_s", "first_s", "steady_s")


def grid(head: Sequence[Child], rows: Sequence[Sequence[Child | Markup]], numeric: int = 0) -> Markup:
    """Return a table; the last `numeric` columns are aligned as numbers; it stacks into cards on a phone."""
    first = len(head) - numeric
    top = [tag("th", h, scope="col", class_="num" if i >= first else None) for i, h in enumerate(head)]
    body = []
    for row in rows:
        cells = [
            tag("td", c, class_="num" if i >= first else None, data_label=_plain(head[i]))
            for i, c in enumerate(row)
            if i
        ]
        body.append(tag("tr", tag("th", row[0], scope="row"), cells))
    table = tag("table", tag("thead", tag("tr", top)), tag("tbody", body), class_="stack")
    return tag("div", table, class_="scroll")


def _plain(heading: Child) -> str:
    """Return a heading without its tags, for the label beside a value on a phone."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", str(heading))).split())


def term(key: str) -> Markup:
    """Return a metric's name as a link to its definition."""
    return tag("a", METRICS[key].title, href=f"#def-{key}")


def verified(chapter: Chapter) -> Markup:
    """Return what each variant's outputs were compared with, by which method, and how it came out."""
    info = chapter.info
    if info is None:
        weights = "No result got as far as loading the model, so nothing is known of its weights."
    else:
        weights = "The model has trained weights." if info.trained else "untrained: no task accuracy."
    lead = f"{weights} Each variant answered the same inputs as the reference, after its measured window."
    rows = [_gate_row(chapter, row) for row in ordered(chapter.table)]
    head = ("Variant", "Gate", "Method and threshold", "Result", "Task accuracy")
    return tag(
        "section", tag("h3", "How the outputs were verified"), tag("p", lead, class_="lead"), grid(head, rows)
    )


def _gate_row(chapter: Chapter, row: Row) -> list[Child | Markup]:
    every = [r.verification for r in chapter.groups[row.cell] if r.verification]
    check = next((v for v in every if not v.passed), every[0] if every else None)
    if check is None:
        return [row.label, "not verified", row.rejected or str(chapter.first(row).reason or ""), "", ""]
    passed = tag("span", "passed" if check.passed else "FAILED", class_="ok" if check.passed else "bad")
    if check.method == "none":
        passed = tag("span", "nothing to compare")
    return [row.label, passed, _method(check), _gate_result(check), _accuracy(check)]


def _method(check: Verification) -> Markup:
    name = {"top1_agreement": "agreement"}.get(check.method, check.method)
    what = term(name) if name in METRICS else check.method
    sense = "at most" if check.method == "centred_l2" else "lower bound at least"
    against = f", against {check.reference}" if check.reference else ""
    return join(what, f", {sense} {check.threshold:g}{against}")


def _gate_result(check: Verification) -> Child | Markup:
    """The gate's own sentence; without one, the figures it rests on."""
    if check.detail:
        return check.detail
    found = {k: f for k, f in check.fields.items() if isinstance(f, Measured) and k in GATE_FIELDS}
    return _lines(
        [f"{key}: {f.value:.3g}, n\u00a0=\u00a0{f.n:,}" for key, f in found.items()] or ["no figures"]
    )


def _accuracy(check: Verification) -> Markup:
    parts: list[Child | Markup] = []
    for key, prefix in (("accuracy", ""), ("reference_accuracy", "reference: ")):
        field = check.fields.get(key)
        if isinstance(field, Measured):
            text = f"{prefix}{shares([field]).text(field)},"
            parts.append(join(tag("span", text, class_="nb"), f" n\u00a0=\u00a0{field.n:,}"))
        elif isinstance(field, Absent) and not prefix:
            parts.append(absence(field))
    return _lines(parts or ["not measured"])


def _lines(parts: Sequence[Child | Markup]) -> Markup:
    return join([tag("div", p) for p in parts])


def trusted(chapter: Chapter) -> Markup:
    """Return every verdict with all its evidence, in words; variants that share both share a line."""
    alike: dict[Verdict, list[Row]] = {}
    for row in ordered(chapter.table):
        alike.setdefault(row.verdict, []).append(row)
    rows: list[list[Child | Markup]] = []
    for verdict, members in alike.items():
        evidence = [tag("li", e) for e in verdict.evidence or ("no evidence was recorded",)]
        rows.append(
            [_lines([r.label for r in members]), badge(members[0]), tag("ul", evidence, class_="plain")]
        )
    head = ("Variants", tag("a", "Verdict", href="#def-verdict"), "Evidence, from the worst replicates")
    return tag("section", tag("h3", "May the numbers be trusted?"), grid(head, rows))


def ran_as(chapter: Chapter) -> Markup | None:
    """Return what each engine said it did, read back from it, and the artifact it ran."""
    rows: list[list[Child | Markup]] = []
    for row in ordered(chapter.table):
        result = chapter.first(row)
        done = result.effective
        if done is None:
            continue
        threads = "engine's choice" if done.threads is None else str(done.threads)
        facts = f"{done.precision} on {done.device}, {threads} threads"
        rows.append([row.label, facts, done.evidence or "not stated", _artifact(result.artifact)])
    if not rows:
        return None
    head = ("Variant", "Ran as", "Read from", "Artifact")
    return tag("section", tag("h3", "What actually ran"), grid(head, rows))


def _artifact(artifact: object) -> str:
    facts: dict[str, Json] = dict(artifact) if isinstance(artifact, dict) else {}
    size = facts.get("bytes")
    parts = [f"{size / 1e6:.1f} MB" if isinstance(size, int | float) else "", str(facts.get("digest") or "")]
    return ", ".join(p for p in parts if p) or "none recorded"


def four_numbers(chapter: Chapter) -> Markup:
    """Return build, load, first and steady of each variant: four numbers that are never added up."""
    table = [(row, [_four(row, key) for key in FOUR]) for row in ordered(chapter.table) if row.replicates]
    if not table:
        return tag(
            "section", tag("h3", "Build, load, first, steady"), tag("p", "No variant got as far as running.")
        )
    forms = [times([fields[i] for _, fields in table]) for i in range(len(FOUR))]
    rows: list[list[Child | Markup]] = []
    for row, fields in table:
        cells = [
            _number(f, form.number(f.value) if isinstance(f, Measured) else "")
            for f, form in zip(fields, forms, strict=True)
        ]
        rows.append([row.label, *cells])
    head: list[Child] = ["Variant"]
    head += [join(term(k), tag("span", f.unit, class_="unit")) for k, f in zip(FOUR, forms, strict=True)]
    return tag("section", tag("h3", "Build, load, first, steady"), grid(head, rows, numeric=len(FOUR)))


def _four(row: Row, key: str) -> Field:
    return row["p50_s"] if key == "steady_s" else across(list(row.replicates.values()), key)


def _number(field: Field, text: str) -> Markup:
    if isinstance(field, Absent):
        return tag("span", absence(field), class_="absent")
    return tag("span", text, class_="v", title=f"{field.value:.6g} {field.unit}, n\u00a0=\u00a0{field.n:,}")
