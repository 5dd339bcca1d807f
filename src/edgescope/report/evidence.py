"""The evidence behind the numbers: the accuracy gate's results, the verdicts, what ran, and the four times."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope import units
from edgescope.analysis.cells.replicates import across
from edgescope.analysis.cells.row import Row
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Json, Measured, Verdict, Verification
from edgescope.report import document as doc
from edgescope.report import provenance
from edgescope.report.chapter import Chapter

GATE_FIELDS = ("top1_agreement", "box_agreement", "centred_l2", "rank_agreement")
FOUR = ("build_s", "load_s", "first_s", "steady_s")


def parts(chapter: Chapter) -> tuple[doc.Section, ...]:
    """Return all sections of evidence of a chapter."""
    found = (verified(chapter), trusted(chapter), four_numbers(chapter), ran_as(chapter))
    return (*(section for section in found if section), provenance.settings(chapter))


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
