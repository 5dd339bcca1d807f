"""The before/after table of optimize, and the pick, for a terminal and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.text import Text

from edgescope.analysis.variants import Pick, VariantRow, VariantTable
from edgescope.cli import terminal
from edgescope.cli.card import TRUST_STYLE
from edgescope.codec import to_json as result_to_json
from edgescope.codec import to_plain
from edgescope.records import Absent, Json, Measured, Result

HEADER = (
    "variant",
    "p50",
    "p99",
    "samples/s",
    "peak RSS",
    "energy",
    "class as fp32",
    "accuracy",
    "speed-up",
    "",
)


def show(found: VariantTable, best: Pick) -> None:
    """Print the table, the reasons of rejected rows, and the pick."""
    rows = sorted(found.rows, key=lambda row: (row.cell != found.baseline, bool(row.rejected), _seconds(row)))
    terminal.table(HEADER, [_row(row, found, best) for row in rows])
    out = terminal.console()
    for row in found.rows:
        if row.rejected:
            out.print(Text(f"rejected  {row.label}: {row.rejected}", style="red"))
    for text in sorted({_absent(row) for row in found.rows if not row.rejected} - {""}):
        terminal.note(text)
    if best.row is None:
        out.print(Text(f"no pick: {best.reason}", style="bold red"))
    else:
        out.print(Text("pick  ", style="bold green") + Text(best.reason, style="bold"))


def _row(row: VariantRow, found: VariantTable, best: Pick) -> list[str | Text]:
    style = "strike dim" if row.rejected else ""
    if best.row is not None and row.cell == best.row.cell:
        style = "bold green"
    mark = "rejected" if row.rejected else "baseline" if row.cell == found.baseline else ""
    if best.row is not None and row.cell == best.row.cell:
        mark = "pick"
    cells = [
        row.label,
        terminal.show(row.p50_s),
        terminal.show(row.p99_s),
        terminal.show(row.throughput_sps, interval=False).replace(" samples/s", ""),
        terminal.show(row.peak_rss_bytes, interval=False),
        terminal.show(row.energy_per_sample_j),
        _share(row.agreement),
        _count(row.accuracy),
        terminal.ratio(row.speedup),
    ]
    trust = Text(row.verdict.trust.value, style=TRUST_STYLE[row.verdict.trust])
    stacked = [cell.replace(" [", "\n[") for cell in cells]  # the interval goes below its value
    return [*(Text(cell, style=style) for cell in stacked), Text(f"{mark}\n" if mark else "") + trust]


def _share(field: Measured | Absent) -> str:
    if isinstance(field, Absent):
        return "n/a"
    if field.lo is None or field.hi is None:
        return f"{field.value:.1%}"
    return f"{field.value:.1%} [{field.lo * 100:.0f}, {field.hi * 100:.0f}]"


def _seconds(row: VariantRow) -> float:
    return row.p50_s.value if isinstance(row.p50_s, Measured) else float("inf")


def _count(field: Measured | Absent) -> str:
    return "n/a" if isinstance(field, Absent) else f"{round(field.value * field.n)}/{field.n}"


def _absent(row: VariantRow) -> str:
    return f"energy: {row.energy_per_sample_j.reason}" if isinstance(row.energy_per_sample_j, Absent) else ""


def to_json(found: VariantTable, best: Pick, results: Sequence[Result]) -> dict[str, Json]:
    """Return {baseline, rows, pick, results} as plain JSON values."""
    rows = []
    for row in found.rows:
        plain = to_plain(
            {f.name: getattr(row, f.name) for f in dataclasses.fields(row) if f.name != "replicates"}
        )
        rows.append(plain | {"trial": row.trial.to_json()})
    pick = {"cell": best.row.cell if best.row else None, "reason": best.reason, "ties": list(best.ties)}
    return {
        "baseline": found.baseline,
        "rows": rows,
        "pick": pick,
        "results": [result_to_json(r) for r in results],
    }
