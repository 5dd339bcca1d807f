"""The document of variants: what `optimize` prints, and a report's part for each model, machine and load.

It has the answer and one row for each variant first, then the evidence behind the numbers (evidence.py)
and their origin (evidence.py).
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from edgescope import metrics, units
from edgescope.analysis.cells import alternation
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.metrics import METRICS, Metric
from edgescope.records import Absent, Json, Measured, Trust
from edgescope.report import document as doc
from edgescope.report import evidence
from edgescope.report.chapter import Chapter, doubts, unread
from edgescope.stats.pairs import SAME_WITHIN

if TYPE_CHECKING:
    from edgescope.search.candidates import NotHere

TIES_SAID = 4
"""Number of tied variants from which the sentence names only some of them."""
EVIDENCE_SHOWN = 2
"""Pieces of evidence printed under a verdict that is not CLEAN; the full list is in its own section."""
ONE_LINE = 80
"""Characters of a line that a terminal shows whole."""
INTERVALS = (
    "Small figures are 95 % ",
    doc.Mark("intervals", to="def-interval"),
    ", of power and energy they may be the meter's bounds.",
)


def document(
    found: Sequence[Chapter],
    *,
    title: str = "",
    command: str = "",
    missing: Sequence[NotHere] = (),
    again: Sequence[str] = (),
    written: Mapping[str, str | None] | None = None,
) -> doc.Document:
    """Return the document with the answers of all loads.

    `missing`: variants whose packages are not installed; `again`: statuses to retry; `written`: kind of file -> path.
    """
    groups = [list(g) for _, g in itertools.groupby(found, key=lambda c: (c.model, c.machine.id))]
    articles: list[doc.Part | None] = []
    number = 0
    for group in groups:
        loads = [_load(c, f"c{number + i}", len(found) > 1) for i, c in enumerate(group, start=1)]
        number += len(group)
        heading = group[0].title if len(groups) > 1 else ""
        articles.append(doc.Section(heading, (*loads, evidence.shared(group, command)), "article"))
    said = (
        *doubts(r for c in found for r in c.results),
        _contents(found) if len(found) > 1 else None,
        *(articles or [_nothing(command)]),
        _out_of_time(missing),
        _not_here(missing),
        doc.Text(f"measure again: --retry {','.join(again)}", level=doc.DETAIL) if again else None,
        doc.Pairs(tuple((k, v) for k, v in written.items() if v)) if written else None,
        _rows(found),
        _glossary(),
    )
    return doc.Document(title or _title(found), said, _data(found, missing), command)


def _title(found: Sequence[Chapter]) -> str:
    titles = {c.title for c in found}
    if not titles:
        return "edgescope report: no results"
    return titles.pop() if len(titles) == 1 else f"edgescope report: {len(titles)} models and machines"


def _nothing(command: str) -> doc.Answer:
    reason = "There are no results, so nothing can be recommended. Measure first: edgescope optimize MODEL"
    return doc.Answer(
        "No results", "", (reason,), reason, more=(doc.Code(command, level=doc.PAGE),), kind="none"
    )


def _load(chapter: Chapter, anchor: str, several: bool) -> doc.Section:
    """Return one load: its answer and table; if there are several loads, the rest is folded."""
    drawn = _figures(chapter, anchor, "" if several else "Plots")
    rest = doc.Section("", evidence.parts(chapter), level=doc.PAGE)
    if several:
        drawn = replace(drawn, title="Plots", kind="folded")
        rest = replace(rest, title="Why these numbers may be believed", kind="folded")
    parts = (answer(chapter, anchor), *_before_after(chapter), drawn, rest)
    return doc.Section(chapter.load if several else "", parts, "load", anchor)


# -- the answer ----------------------------------------------------------------------------------------------


def answer(chapter: Chapter, anchor: str = "c1") -> doc.Answer:
    """Return the answer in short: the pick, or why no variant can be picked."""
    row, best = chapter.pick.row or chapter.alone, chapter.pick
    if row is None:
        short = best.reason if best.nearest else f"{best.reason.partition('. ')[0].rstrip('.')}."
        what = doc.Mark("No variant could be picked")
        return doc.Answer(
            "No recommendation", what, (short,), best.reason, kind="none", anchor=f"{anchor}-answer"
        )
    return doc.Answer(
        "Measured" if chapter.alone is not None else _word(chapter, row),
        (
            "nearest: " if best.unproven else "",
            doc.Mark(row.label, anchor=f"{anchor}-pick"),
            "  ",
            _verdict(row),
        ),
        tuple(_short(chapter, row)),
        best.reason,
        tuple(_tiles(chapter, row)),
        tuple(_ties(chapter)),
        "" if chapter.alone is None else "measured",
        f"{anchor}-answer",
    )


def _word(chapter: Chapter, row: Row) -> str:
    """Return what to do, or that nothing is shown to be better than the baseline."""
    best, kept = chapter.pick, row.cell == chapter.table.baseline
    if best.unproven or (kept and best.undecided):
        fast = chapter.table.wanted.goal.name in alternation.OF_SPEED
        return f"Nothing here is shown to be {'faster' if fast else 'better'} than the baseline"
    return "Keep the baseline" if kept else "Use"


def _nearest(chapter: Chapter) -> Row | None:
    """Return the fastest of those that are undecided against the pick, the baseline."""
    rows = [r for r in chapter.table.rows if r.label in chapter.pick.undecided]
    known = [r for r in rows if isinstance(r["speedup"], Measured)]
    return max(known, key=lambda r: r.measured("speedup").value, default=None)


def _to_decide(row: Row, more_pairs: int | None) -> str:
    """Return what would decide whether a row is faster than the baseline."""
    if not more_pairs:
        return "to decide it: the same command with a longer --budget"
    each = alternation.pair_s(row.turns)
    time = f", {units.lasting(more_pairs * each)} more of --budget" if each else " (a longer --budget)"
    return f"to decide it: about {units.counted(more_pairs, 'more pair')}{time}"


def _short(chapter: Chapter, row: Row) -> Iterator[str]:
    """Yield how much faster, how sure, in a line each."""
    base, goal, best = chapter.baseline, chapter.table.wanted.goal, chapter.pick
    speedup, undecided = row["speedup"], best.undecided
    if row.cell != base.cell and isinstance(speedup, Measured):
        yield f"{units.ratio(speedup)} as fast as {base.label} ({row.pairs})"
        silent = best.unproven in undecided or not chapter.advises
        if wish := None if silent else alternation.further(row.turns, speedup):
            pairs = (
                f"about {units.counted(wish.pairs, 'more pair')}, {units.lasting(wish.seconds)} of --budget"
            )
            yield f"{pairs}, would bound that within {alternation.NARROW:.0%}"
    elif row.cell != base.cell and isinstance(speedup, Absent) and chapter.alone is None:
        yield f"speed-up over {base.label}: {speedup.reason}"
    near = _nearest(chapter) if row.cell == base.cell else None
    if near is not None:
        yield f"nearest: {near.label} at {units.ratio(near['speedup'])} ({near.pairs})"
    if near is not None or best.unproven in undecided:
        yield _to_decide(near or row, best.more_pairs)
        undecided = tuple(label for label in undecided if label not in (best.unproven, near and near.label))
    checked = agreement(row)
    yield f"{goal.title.lower()} {units.why(row[goal.name])}" + (f"; {checked}" if checked else "")
    yield from standing(best.ties, undecided, best.more_pairs)
    if row.verdict.trust in (Trust.THROTTLED, Trust.DISTURBED):
        said = f"measured while {row.verdict.trust.value}: {'; '.join(row.verdict.evidence[:2])}"
        yield from textwrap.wrap(said, ONE_LINE)
    if bad := unread(row.trial):
        yield bad


def agreement(row: Row) -> str:
    """Return `top-1 agreement 93.8 % (min 80 %)`, or the gate's own sentence if another method judged."""
    checks = [r.verification for r in row.replicates.values() if r.verification]
    floor = next((c.threshold for c in checks if c.method == "top1_agreement"), None)
    if floor is None or isinstance(row["agreement"], Absent):
        return row.gate.partition("; accuracy check")[0].rstrip(".")
    return f"top-1 agreement {units.cell(row['agreement'], 'share')} (min {100 * floor:g} %)"


def standing(ties: Sequence[str], undecided: Sequence[str], more_pairs: int | None) -> Iterator[str]:
    """Yield what is known of the variants that are not surely worse than the pick."""
    if ties:
        yield f"statistically tied with {_first(ties)}: the interval lies within {SAME_WITHIN:.0%}"
    if undecided:
        more = f"about {units.counted(more_pairs, 'more pair')}" if more_pairs else "too few pairs to tell"
        yield f"undecided against {_first(undecided)}: {more}"


def _first(names: Sequence[str]) -> str:
    """Return the first two names, and how many more there are."""
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _ties(chapter: Chapter) -> Iterator[doc.Part]:
    """Yield the names of all variants that are not significantly worse, if they are too many for the sentence."""
    for names, title in ((chapter.pick.ties, "As good"), (chapter.pick.undecided, "Undecided")):
        if len(names) >= TIES_SAID:
            yield doc.Items(tuple(names), f"{title} ({len(names)})", level=doc.DETAIL)


def _tiles(chapter: Chapter, row: Row) -> Iterator[doc.Tile]:
    base = chapter.baseline
    for metric in metrics.shown("table", row.trial.workload):
        field = row[metric.name]
        if isinstance(field, Absent) or (metric.name == "speedup" and row.cell == base.cell):
            continue
        between = units.column(metric.unit, [field]).interval(field)
        count = f"n\u00a0=\u00a0{field.n:,}"
        small = [f"{between}, {count}" if between and metric.artifact else between or count]
        before = base[metric.name]
        beside = base.cell != row.cell and metric.name not in ("speedup", "agreement")
        if beside and isinstance(before, Measured):
            bare = replace(before, lo=None, hi=None)
            small.append(f"baseline {units.column(metric.unit, [before]).text(bare)}")
        yield doc.Tile(metric.title, field, metric.unit, tuple(small), f"def-{metric.name}")


def _verdict(row: Row) -> doc.Mark:
    return doc.badge(row.verdict.trust, row.verdict.evidence)


# -- the table -----------------------------------------------------------------------------------------------


def _shown(chapter: Chapter) -> tuple[list[Row], list[Metric]]:
    """Return the rows with figures in reading order, and the metrics that at least one of them has."""
    rows = [row for row in chapter.table.ordered() if row.replicates]
    every = metrics.shown("table", rows[0].trial.workload if rows else "")
    kept = [m for m in every if any(isinstance(r[m.name], Measured) for r in rows)]
    return rows, [m for m in kept if m.name != "speedup" or len(rows) > 1]


def _before_after(chapter: Chapter) -> Iterator[doc.Part]:
    """Yield the table, the metrics that no variant has and why, and the variants that did not run."""
    rows = _shown(chapter)[0]
    found = chapter.table
    left = [r for r in found.rows if not r.replicates]
    notes = [f"{titles}: {units.absence(Absent(why))}" for why, titles in _gaps(rows)]
    notes += [screened(row) for row in sorted(found.screened, key=_seconds)]
    notes += [text for row in rows for text in (*row.notes, _unresolved(row)) if text]
    told = (doc.Items(tuple(notes), kind="missing", level=doc.DETAIL),) if notes else ()
    if rows:
        title = "Before and after" if len(rows) > 1 else "What was measured"
        yield doc.Section(title, (comparison(chapter), *told))
    if counts := _counts(found, left):
        yield doc.Text(f"{counts}: -v says why", "lead", doc.BRIEF)
    if left:
        items = tuple((doc.Mark(row.label, "strong"), " ", row.rejected) for row in left)
        level = doc.MAIN if not rows else doc.DETAIL
        yield doc.Section("Not measured", (doc.Items(items, "", "missing", level),), level=level)


def _counts(found: VariantTable, left: Sequence[Row]) -> str:
    """Return `1 rejected, 2 did not run, 6 screened out`."""
    kinds = {
        "rejected": sum(bool(r.rejected and r.replicates) for r in found.rows),
        "did not run": len(left),
        "screened out": len(found.screened),
    }
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)


def comparison(chapter: Chapter) -> doc.Table:
    """Return the table: one row for each variant with figures, one column for each metric that one of them has."""
    rows, columns = _shown(chapter)
    scopes = ", ".join(dict.fromkeys(r.scope for r in rows if r.scope))
    asked = {c.metric.name for c in chapter.table.wanted.constraints} | {chapter.table.wanted.goal.name}
    first = [m for m in columns if m.name != "speedup"]
    ordered = [*first, *(m for m in columns if m.name == "speedup")]  # the verdict stands last
    heads = [
        doc.Column.of(m, 0 if m.name in asked | {"speedup", "p50_s"} else i, scopes if m.scope else "")
        for i, m in enumerate(ordered, start=1)
    ]
    series = {chapter.table.baseline: 0}
    series |= {r.cell: i for i, r in enumerate((r for r in chapter.table.rows if r.cell not in series), 1)}
    body = tuple(_row(chapter, row, ordered, series[row.cell]) for row in rows)
    head = (
        doc.Column("Variant", head="variant"),
        *heads,
        doc.Column("Verdict", key="verdict", head="verdict", rank=1),
    )
    return doc.Table(head, body, lead=INTERVALS, reasons=True)


def _row(chapter: Chapter, row: Row, columns: Sequence[Metric], series: int) -> doc.Row:
    best, base = chapter.pick.row, row.cell == chapter.table.baseline
    picked = best is not None and best.cell == row.cell
    marks: list[doc.Value] = [doc.Mark(row.label, "struck" if row.rejected else "")]
    guess = bool(chapter.pick.unproven)
    marks += [doc.Mark("nearest", "chip") if guess else doc.Mark("pick", "pick")] if picked else []
    marks += [doc.Mark("baseline", "chip")] if base else []
    counted, asked = len(row.replicates), len(chapter.groups[row.cell])
    below = [f"{counted} of {asked} runs counted"] if 0 < counted < asked else []
    below += [f"rejected: {row.rejected}"] if row.rejected else []
    said = row.verdict.evidence if row.verdict.trust is not Trust.CLEAN else ()
    more = f"; {len(said) - EVIDENCE_SHOWN} more below" if len(said) > EVIDENCE_SHOWN else ""
    why = "; ".join(said[:EVIDENCE_SHOWN]) + more
    cells = (_figure(m, row, base) for m in columns)
    return doc.Row(
        (doc.Cell(tuple(marks), "; ".join(below) or None), *cells, doc.Cell(_verdict(row), why or None)),
        "rejected" if row.rejected else "picked" if picked and not guess else "",
        row.cell,
        series,
    )


COUNTED = 100
"""The least number of labelled inputs for which accuracy is printed in per cent and not as 17/20."""


def _figure(metric: Metric, row: Row, base: bool) -> doc.Value | doc.Cell:
    """Return a cell; the baseline over itself is 1 by definition, without an interval."""
    field = row[metric.name]
    if base and metric.name == "speedup" and isinstance(field, Measured):
        return Measured(field.value, field.unit, n=field.n)
    if metric.name == "accuracy" and isinstance(field, Measured):
        few = field.n < COUNTED and row["top1"] == field
        return doc.Cell(field, brief=f"{round(field.value * field.n)}/{field.n}") if few else field
    return field


def _gaps(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield (reason, `Power, Energy per sample`) of the metrics that no row has."""
    found: dict[str, list[str]] = {}
    every = metrics.shown("table", rows[0].trial.workload if rows else "")
    for metric in every if rows else ():
        if metric.optional or any(isinstance(r[metric.name], Measured) for r in rows):
            continue
        fields = (r[metric.name] for r in rows if not r.rejected)
        why = dict.fromkeys(f.reason for f in fields if isinstance(f, Absent))
        found.setdefault("; ".join(why) or "no variant finished", []).append(metric.title)
    return ((why, ", ".join(titles)) for why, titles in found.items())


def screened(row: Row) -> str:
    """Return the row of a variant that was screened out; its speed-up is that of the short runs."""
    runs = len(row.replicates)
    lead = row["p50_s"] if isinstance(row["p50_s"], Measured) else row["throughput_sps"]
    at = f" at {units.show(lead, interval=False)}" if isinstance(lead, Measured) else ""
    ratio = row["speedup"]
    speed = f", {units.ratio(ratio, interval=False)} the baseline" if isinstance(ratio, Measured) else ""
    length = f" of {row.trial.max_s:.2g} s"
    return f"{row.label}: screened out{at}{speed} after {units.counted(runs, 'short run')}{length}"


def _unresolved(row: Row) -> str:
    return f"speed-up of {row.label}: {row['speedup'].reason}" if isinstance(row["speedup"], Absent) else ""


def _seconds(row: Row) -> float:
    return row["p50_s"].value if isinstance(row["p50_s"], Measured) else float("inf")


def _out_of_time(missing: Sequence[NotHere]) -> doc.Part | None:
    """Return which candidates the budget left no time for, and a budget that has room for them."""
    late = [m for m in missing if m.fix.startswith("--budget")]
    if not late:
        return None
    said = f"{units.counted(len(late), 'candidate')} not tried in this time: {late[0].fix}"
    return doc.Text(f"{said} ({', '.join(m.label for m in late)})", "lead", doc.BRIEF)


def _not_here(missing: Sequence[NotHere]) -> doc.Part | None:
    items = tuple(f"{m.label}: {'; '.join(filter(None, (m.reason, m.fix)))}" for m in missing)
    return (
        doc.Section("Not tried here", (doc.Items(items, kind="missing"),), level=doc.DETAIL)
        if items
        else None
    )


# -- all loads -----------------------------------------------------------------------------------------------


def _contents(found: Sequence[Chapter]) -> doc.Section:
    """Return one line for each load with its answer."""
    several = len({c.title for c in found}) > 1
    head = [
        doc.Column("Load"),
        *([doc.Column("Model and machine")] if several else []),
        doc.Column("Variants", "1"),
    ]
    told = [METRICS[name] for name in ("p50_s", "p99_s", "throughput_sps")]
    columns = (*head, doc.Column("Answer"), *(doc.Column.of(m, rank=i) for i, m in enumerate(told)))
    rows = []
    for i, c in enumerate(found, start=1):
        row = c.pick.row or c.alone
        cells: list[doc.Value] = [
            doc.Mark(c.load, to=f"c{i}"),
            *([c.title] if several else []),
            len(c.measured),
        ]
        if row is None:
            rows.append(doc.Row((*cells, "no recommendation", *("" for _ in told))))
            continue
        name = row.label.removesuffix(f" {row.trial.load}")
        chip = doc.Mark("measured" if c.alone else "nearest" if c.pick.unproven else "pick", "chip")
        fields = (row[m.name] for m in told)
        bare = (replace(f, lo=None, hi=None) if isinstance(f, Measured) else f for f in fields)
        rows.append(doc.Row((*cells, (name, chip), *bare)))
    return doc.Section("", (doc.Table(columns, tuple(rows)),), "nav", level=doc.PAGE)


def _rows(found: Sequence[Chapter]) -> doc.Table:
    """Return every row of every load, for a CSV."""
    facts: tuple[str, ...] = ("model", "machine", "load", "cell", "variant", "status", "verdict", "evidence")
    facts += ("baseline", "pick", "rejected", "power_scope")
    told = metrics.shown("table")
    head = (*(doc.Column(name, key=name) for name in facts), *(doc.Column.of(m) for m in told))
    rows = []
    for c in found:
        for row in c.table.ordered():
            picked = c.pick.row is not None and c.pick.row.cell == row.cell
            cells: tuple[doc.Value, ...] = (
                c.model,
                c.machine.id,
                c.load,
                row.cell,
                row.label,
                row.status.value,
            )
            cells += (row.verdict.trust.value, "; ".join(row.verdict.evidence))
            cells += ("yes" if row.cell == c.table.baseline else "", "yes" if picked else "")
            rows.append(doc.Row((*cells, row.rejected, row.scope, *(row[m.name] for m in told))))
    return doc.Table(head, tuple(rows), level=doc.DATA)


def _glossary() -> doc.Section:
    told = [m for m in METRICS.values() if m.meaning or m.shown]
    rows = tuple((doc.Mark(m.title, anchor=f"def-{m.name}"), m.meaning) for m in told)
    return doc.Section(
        "What the numbers mean", (doc.Pairs(rows, kind="glossary"),), "chapter", "glossary", level=doc.PAGE
    )


def _data(found: Sequence[Chapter], missing: Sequence[NotHere]) -> Mapping[str, Any]:
    if len(found) != 1:
        return {"loads": [_facts(c, ()) for c in found]}
    return _facts(found[0], missing)


def _facts(chapter: Chapter, missing: Sequence[NotHere]) -> dict[str, Any]:
    """Return {baseline, constraints, rows, screened, not_installed, pick, results}."""
    table, best = chapter.table, chapter.pick

    def row(of: Row) -> dict[str, Json]:
        return of.to_json() | {"runs": len(of.replicates)}

    return {
        "baseline": table.baseline,
        "constraints": [c.text for c in table.wanted.constraints],
        "rows": [row(r) for r in table.rows],
        "screened": [row(r) for r in table.screened],
        "not_installed": list(missing),
        "pick": {
            "cell": best.row.cell if best.row else None,
            "reason": best.reason,
            "ties": list(best.ties),
            "undecided": list(best.undecided),
            "unproven": best.unproven,
            "nearest": best.nearest.cell if best.nearest else None,
        },
    }


# -- plots ---------------------------------------------------------------------------------------------------

FRONT = "Down and left is better. Nothing eligible lies below the grey steps; crosses were rejected."
#: Name -> title and caption of a plot (_drawn).
PLOTS: Mapping[str, tuple[str, str]] = {
    "speedups": (
        "Speed-up",
        "Whiskers are 95 % intervals over pairs of fresh processes; hatched or named bars were rejected.",
    ),
    "percentiles": (
        "Latency by percentile",
        "Lower is better everywhere. Marks are the table's p50 and p99. A step is a second mode; "
        "a curve that bends up at the right is a tail of slow queries.",
    ),
    "memory": ("Latency against memory", FRONT),
    "energy": ("Latency against energy", FRONT),
    "over_time": (
        "Latency over time",
        "One line per replicate, a fresh process each; shaded is warm-up, which no number includes. Drift or "
        "throttling shows as a slope or a step.",
    ),
    "queue": (
        "Age and queue over time",
        "Above, how old each result was when it came, with the deadline dashed; below, how many queries were due "
        "and not done. Both climb where arrivals exceed service.",
    ),
    "telemetry": (
        "Telemetry over the run",
        "Sensor readings on the queries' clock, in the variants' colours. What was not read is not drawn.",
    ),
}


def _figures(chapter: Chapter, anchor: str, title: str) -> doc.Section:
    loaded = any(isinstance(row["queue_depth_max"], Measured) for row in chapter.measured)
    drawn = (
        doc.Figure(f"{anchor}-{name}", heading, caption, partial(_drawn, name, chapter.table))
        for name, (heading, caption) in PLOTS.items()
        if name != "queue" or loaded
    )
    return doc.Section(title, tuple(drawn), level=doc.PAGE)


def _drawn(name: str, table: VariantTable) -> Any:
    from edgescope.plots import distribution, gains, time  # only a page needs plotly

    if name in ("memory", "energy"):
        return gains.tradeoff(table, "peak_rss_bytes" if name == "memory" else "energy_per_sample_j")
    draw = {
        "speedups": gains.speedups,
        "percentiles": distribution.percentiles,
        "over_time": time.over_time,
        "queue": time.queue,
        "telemetry": time.telemetry,
    }
    return draw[name](table)
