"""The study's table as Markdown: for a README, an issue, a paper's appendix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgescope.papers.jetson_nano import report_words as words
from edgescope.papers.jetson_nano.table import TIMES, NanoRow, NanoTable
from edgescope.records import Field, Measured
from edgescope.report.markdown import escaped
from edgescope.report.numbers import times

HERE = ("Network", "Cold (ms)", "First (ms)", "Warm (ms)", "Steady (ms)", "After", "Steady (ms)")
RATIOS = ("Speed-up", "Cold / warm", "Of the limit", "Verdicts", "The study")
PRINTED = ("Network", "Before (s)", "After (s)", "Ratio", "Speed-up", "Before / after")
SIZES = ("Network", "Parameters", "MACs", "FLOPs", "The study: parameters", "FLOPS column", "It counts")


def render(found: NanoTable, command: str) -> str:
    """Return the page."""
    parts = [
        f"# {escaped(words.title(found))}",
        escaped(words.summary(found)),
        _table((*HERE, *RATIOS), [_here(r) for r in found.rows]),
        _list(words.LEGEND),
        _list(words.row_notes(found)),
        f"## As the study printed it ({found.study.source}, {found.study.board})",
        _table(PRINTED, [_printed(r) for r in found.rows]),
        _list(words.study_notes(found)),
        "## Sizes",
        _table(SIZES, [_sizes(r) for r in found.rows]),
        f"Made by `{command.replace('`', '')}`.",
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"* {escaped(line)}" for line in lines)


def _here(row: NanoRow) -> list[str]:
    share = f"{row.of_limit.value:.0%}" if isinstance(row.of_limit, Measured) else "n/a"
    return [
        escaped(row.model),
        *(_ms(getattr(row.before, t)) for t in TIMES),
        escaped(row.variant) or "n/a",
        _ms(row.after.steady_s),
        f"**{escaped(words.ratio(row.speedup))}**",
        escaped(words.ratio(row.claimed)),
        share,
        " → ".join(filter(None, row.verdicts)),
        f"{row.study.recomputed:.2f}×",
    ]


def _ms(field: Field) -> str:
    form = times([Measured(1e-3, "s")])
    if not isinstance(field, Measured):
        return "n/a"
    between = form.interval(field)
    return form.number(field.value) + (f" \\[{between}\\]" if between else "")


def _printed(row: NanoRow) -> list[str]:
    s = row.study
    wrong = {m.column: m for m in s.misprints}
    cells = [
        f"~~{text}~~ {wrong[column].correct}" if column in wrong else text
        for column, text in (("ratio", s.ratio), ("speed-up", s.speedup))
    ]
    return [s.name, f"{s.before_s:.4f}", f"{s.after_s:.4f}", *cells, f"{s.recomputed:.3f}"]


def _sizes(row: NanoRow) -> list[str]:
    ours = [words.count(f) for f in (row.params, row.macs, row.flops)]
    return [
        escaped(row.model),
        *ours,
        f"{row.study.params:,}",
        f"{row.study.flops:,}",
        words.flops_count(row),
    ]
