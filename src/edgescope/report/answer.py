"""The top of a chapter: which variant to use, the reason in one sentence, and the figures it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from edgescope.analysis.cells.row import Row
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Measured, Trust
from edgescope.report.chapter import Chapter
from edgescope.report.columns import form_of
from edgescope.report.markup import Markup, join, tag

TILES = (
    "speedup",
    "p50_s",
    "p99_s",
    "throughput_sps",
    "peak_rss_bytes",
    "energy_per_sample_j",
    "agreement",
    "accuracy",
)
TIES_SAID = 4
"""From so many variants on the sentence names some of them only."""
BADGES = {Trust.CLEAN: "✓", Trust.THROTTLED: "▼", Trust.DISTURBED: "!", Trust.UNKNOWN: "?"}


def answer(chapter: Chapter, anchor: str) -> Markup:
    """Return the card that a hurried reader stops at; where nothing may be picked it says why."""
    row = chapter.pick.row or chapter.alone
    if row is None:
        return tag(
            "section",
            tag("p", "No recommendation", class_="eyebrow"),
            tag("p", "No variant could be picked", class_="pick"),
            tag("p", chapter.pick.reason, class_="reason"),
            class_="answer none",
            id=f"{anchor}-answer",
        )
    word = "Keep the baseline" if row.cell == chapter.table.baseline else "Use"
    if chapter.baseline.label in chapter.pick.ties:
        word = "Best figure, not significantly better than the baseline"
    word = "Measured" if chapter.alone is not None else word
    return tag(
        "section",
        tag("p", word, class_="eyebrow"),
        tag("p", row.label, badge(row), class_="pick", id=f"{anchor}-pick"),
        tag("p", chapter.pick.reason, class_="reason"),
        _as_good(chapter),
        tag("dl", _tiles(chapter, row), class_="tiles"),
        class_="answer" if chapter.alone is None else "answer measured",
        id=f"{anchor}-answer",
    )


def _as_good(chapter: Chapter) -> Markup | None:
    """Return the names of all variants that are not significantly worse, where the sentence has not room for them."""
    ties = chapter.pick.ties
    if len(ties) < TIES_SAID:
        return None
    listing = tag("ul", [tag("li", name) for name in ties], class_="plain")
    return tag("details", tag("summary", f"Not significantly worse ({len(ties)})"), listing)


def _tiles(chapter: Chapter, row: Row) -> Iterator[Markup]:
    base = chapter.baseline
    for metric in (METRICS[name] for name in TILES):
        field = row[metric.name]
        if isinstance(field, Absent) or (metric.name == "speedup" and row.cell == base.cell):
            continue
        form = form_of(metric, [field])
        unit = f" {form.unit}" if form.unit not in ("", "×") else form.unit
        yield tag(
            "div",
            tag("dt", tag("a", metric.title, href=f"#def-{metric.name}")),
            tag("dd", form.number(field.value), tag("span", unit, class_="unit")),
            tag("dd", _small(field, form.interval(field), metric.name, base, row), class_="small"),
        )


def _small(field: Measured, between: str, key: str, base: Row, row: Row) -> Markup:
    """The interval (or the count), and the baseline's value to compare with."""
    parts: list[str] = [between] if between else [f"n\u00a0=\u00a0{field.n:,}"]
    if key in ("agreement", "accuracy") and between:
        parts[0] += f", n\u00a0=\u00a0{field.n:,}"
    before: Field = base[key]
    if base.cell != row.cell and isinstance(before, Measured) and key not in ("speedup", "agreement"):
        parts.append(f"baseline {form_of(METRICS[key], [before]).text(Measured(before.value, before.unit))}")
    return join(parts[0], [join(tag("br"), p) for p in parts[1:]])


def badge(row: Row) -> Markup:
    """Return the verdict with its evidence on hover; the page prints the evidence in full further down."""
    trust = row.verdict.trust
    text = f"{BADGES[trust]} {trust.value}"
    return tag(
        "span", text, class_=f"badge {trust.value.lower()}", title="; ".join(row.verdict.evidence) or None
    )
