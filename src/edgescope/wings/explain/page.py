"""The document of an explanation: the cause, its evidence, what to do, what else was looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgescope.analysis.finding import CAUSES, Diagnosis, Finding, Remedy
from edgescope.command import bench_command
from edgescope.records import Absent, Field, Json, Measured, Trial
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.wings.explain.case import settings
from edgescope.wings.explain.verb import Check


def document(
    diagnoses: Sequence[Diagnosis], checks: Sequence[Check | None], *, command: str = ""
) -> doc.Document:
    """Return the document about one or more results."""
    parts: list[doc.Part | None] = []
    for diagnosis, check in zip(diagnoses, checks, strict=True):
        mine = tuple(_parts(diagnosis, check))
        parts += mine if len(diagnoses) == 1 else [doc.Section(diagnosis.label, mine)]
    data = [_data(d, c) for d, c in zip(diagnoses, checks, strict=True)]
    title = f"Explanation of {diagnoses[0].label}" if len(diagnoses) == 1 else "Explanations"
    return doc.Document(title, tuple(parts), {"results": data}, command)


def _parts(diagnosis: Diagnosis, check: Check | None) -> Iterator[doc.Part | None]:
    if diagnosis.result is not None:
        of = diagnosis.result.trial
        yield doc.Text(
            f"{of.model.partition('#')[0]}, {of.label}, result {diagnosis.result.id}", "lead", doc.MAIN
        )
    yield _answer(diagnosis)
    if diagnosis.findings:
        first = diagnosis.findings[0]
        yield doc.Items(tuple(_evidence(first)), kind="plain")
        yield _in_words(first)
        yield _remedies(first)
        yield doc.Code(_applied(diagnosis), level=doc.MAIN) if _applied(diagnosis) else None
    if check is not None:
        kind = "" if check.holds else "warn"
        yield doc.Text(doc.Mark(f"Checked: {check.words}.", kind))
    if diagnosis.findings[1:]:
        yield doc.Section("Next", (_table(diagnosis.findings[1:]),), level=doc.MAIN)
    if diagnosis.ruled_out:
        yield doc.Section("Looked at and left out", (_table(diagnosis.ruled_out),), level=doc.DETAIL)
    if diagnosis.missing:
        level = doc.DETAIL if diagnosis.findings else doc.MAIN
        yield doc.Items(tuple(diagnosis.missing), "Would tell more", level=level)


def _answer(diagnosis: Diagnosis) -> doc.Answer:
    if not diagnosis.findings:
        return doc.Answer(
            "Unknown", "", (diagnosis.reason,), f"The cause is unknown: {diagnosis.reason}.", kind="none"
        )
    first = diagnosis.findings[0]
    means = CAUSES[first.cause]
    short = (means, f"{first.extent}, {first.confidence.value}")
    reason = f"{first.name}: {means}. It explains {first.extent} ({first.confidence.value})."
    return doc.Answer("Cause", first.name, short, reason)


def _evidence(finding: Finding) -> Iterator[doc.Value]:
    for e in finding.evidence:
        text = f"{'Against: ' if e.against else ''}{e.text}"
        yield doc.Mark(f"{text} [{e.source}]" if e.source else text, "warn" if e.against else "")


def _in_words(finding: Finding) -> doc.Items | None:
    """Return the remedies whole, for a terminal, whose tables cut what is long."""
    said = (f"{r.words}: {_gain(r)}" for r in finding.remedies)
    return doc.Items(tuple(said), "Remedies", level=doc.BRIEF) if finding.remedies else None


def _gain(remedy: Remedy) -> str:
    how = f" ({remedy.basis})" if remedy.basis else ""
    return _why(remedy) or f"{remedy.promise}{how}"


def _remedies(finding: Finding) -> doc.Table | None:
    if not finding.remedies:
        return None
    heads = (
        doc.Column("Remedy", head="remedy"),
        doc.Column("Predicted gain", "ratio", head="gain"),
        doc.Column("How it was computed", head="computed from", rank=1),
    )
    rows = tuple(
        doc.Row((r.words, r.promise if r.bound.value else r.gain, r.basis or _why(r)))
        for r in finding.remedies
    )
    return doc.Table(heads, rows, reasons=True, level=doc.DETAIL)


def _why(remedy: Remedy) -> str:
    return remedy.gain.reason if isinstance(remedy.gain, Absent) else ""


def _applied(diagnosis: Diagnosis) -> str:
    """Return the command that measures the first remedy that flags can do, or ''."""
    if diagnosis.result is None:
        return ""
    trial = diagnosis.result.trial
    for remedy in diagnosis.findings[0].remedies:
        if remedy.change:
            return bench_command(Trial.from_json({**trial.to_json(), **remedy.change, "replicate": 0}))
    return ""


def _table(findings: Sequence[Finding]) -> doc.Table:
    heads = (
        doc.Column("Cause", head="cause"),
        doc.Column("Of the time", "share", head="of the time"),
        doc.Column("Confidence", head="confidence"),
        doc.Column("Evidence", head="evidence", rank=1),
    )
    rows = tuple(
        doc.Row((f.name, _share(f), f.confidence.value, f.evidence[0].text if f.evidence else ""))
        for f in findings
    )
    return doc.Table(heads, rows)


def _share(finding: Finding) -> Field:
    return Absent("nothing measures it") if finding.guessed else Measured(finding.share, "share")


def _data(diagnosis: Diagnosis, check: Check | None) -> dict[str, Json]:
    return {
        "result": diagnosis.result.id if diagnosis.result else None,
        "trial": settings(diagnosis.result.trial) if diagnosis.result else None,
        "trace": diagnosis.trace,
        "cause": diagnosis.cause,
        "reason": diagnosis.reason,
        "findings": [to_plain(f) for f in diagnosis.findings],
        "ruled_out": [to_plain(f) for f in diagnosis.ruled_out],
        "missing": list(diagnosis.missing),
        "check": None if check is None else {**to_plain(check), "holds": check.holds},
    }
