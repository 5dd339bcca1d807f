"""The verdict as a document (terminal, Markdown, HTML, JSON) and as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from edgescope import units
from edgescope.records import Field, Measured
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.units import counted, fact
from edgescope.wings.gate.judging import Check, Verdict
from edgescope.wings.gate.verb import Gate

NAMED = 4
"""Number of differing settings that a terminal names without -v."""


def document(found: Gate, command: str = "") -> doc.Document:
    """Return the document: the verdict, the limits with their figures, what differs."""
    against = f" against {found.baseline}" if found.baseline else ""
    title = f"{found.candidate}{against}"
    undecided = [c for c in found.checks if c.verdict is Verdict.INCONCLUSIVE]
    told = tuple(f"{c.limit}: {c.why}" for c in undecided)
    kind = "none" if found.verdict is Verdict.INCONCLUSIVE else ""
    parts: tuple[doc.Part, ...] = (
        doc.Answer(found.verdict.value, title, (_measured(found), *told), kind=kind),
        _table(found),
        *_settings(found),
        *(doc.Text(doc.Mark(text, "warn")) for text in found.warnings),
    )
    data = to_plain(found) | {"verdict": found.verdict.value}
    data.pop("results", None)
    return doc.Document(f"{found.verdict.value}: {title}", parts, data, command)


def _measured(found: Gate) -> str:
    if not found.baseline:
        return "judged on the candidate's own figures"
    pairs = f"{counted(found.pairs, 'pair')} in turns" if found.pairs else "stored results, not in turns"
    return f"{pairs}, {found.seconds:.0f} s" if found.seconds else pairs


def _table(found: Gate) -> doc.Table:
    heads = (
        doc.Column("limit"),
        doc.Column("verdict"),
        *((doc.Column("baseline", "1"),) if found.baseline else ()),
        doc.Column("candidate", "1"),
        *((doc.Column("ratio", "ratio"),) if found.baseline else ()),
        doc.Column("why", rank=1, level=doc.DETAIL),
    )
    return doc.Table(heads, tuple(_row(check, full=bool(found.baseline)) for check in found.checks))


def _row(check: Check, *, full: bool) -> doc.Row:
    old, new = (_shown(field, units.show(field)) for field in (check.baseline, check.candidate))
    ratio = _shown(check.ratio, units.ratio(check.ratio) if check.ratio else "")
    return doc.Row((check.limit, check.verdict.value, *((old, new, ratio) if full else (new,)), check.why))


def _shown(field: Field | None, text: str) -> doc.Value | doc.Cell:
    """Return a figure; nothing where the reason of its absence is why the limit could not be judged."""
    return doc.Cell(field, brief=text) if isinstance(field, Measured) else ""


def _settings(found: Gate) -> tuple[doc.Text, ...]:
    shown = [f"{d.name} {fact(d.baseline)} -> {fact(d.candidate)}" for d in found.differences]
    if not shown:
        return ()
    more = f"; {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    return (doc.Text(f"differs: {'; '.join(shown[:NAMED])}{more}", "dim"),)


def junit(found: Gate) -> str:
    """Return the checks as JUnit XML: FAIL is a failure, INCONCLUSIVE an error, since neither is a pass."""
    counts = {v: sum(c.verdict is v for c in found.checks) for v in Verdict}
    about = {
        "name": f"edgescope gate {found.candidate}",
        "tests": str(len(found.checks)),
        "failures": str(counts[Verdict.FAIL]),
        "errors": str(counts[Verdict.INCONCLUSIVE]),
        "time": f"{found.seconds:.3f}",
    }
    suite = ET.Element("testsuite", about)
    for check in found.checks:
        case = ET.SubElement(suite, "testcase", {"classname": "edgescope.gate", "name": check.limit})
        kind = {Verdict.FAIL: "failure", Verdict.INCONCLUSIVE: "error"}.get(check.verdict)
        if kind:
            ET.SubElement(case, kind, {"type": check.verdict.value, "message": check.why})
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def save_junit(found: Gate, path: Path) -> None:
    """Write the JUnit file."""
    path.write_text(junit(found) + "\n", encoding="utf-8")
