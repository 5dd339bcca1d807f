"""The before/after table of optimize, and the pick, for a terminal and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import Pick, VariantTable
from edgescope.cli.card import TRUST_STYLE
from edgescope.errors import Message, asked_wrongly
from edgescope.metrics import Metric, shown
from edgescope.records import Absent, Field, Json, Measured, Result, Status
from edgescope.records.codec import to_json as result_to_json
from edgescope.report import terminal
from edgescope.search.candidates import NotHere


def _speedup(row: Row) -> str:
    """Return the speed-up with the pairs it is of, below its interval."""
    text = terminal.ratio(row["speedup"])
    return f"{text}\n{row.pairs}" if row.pairs and text != "n/a" else text


def _agreement(row: Row) -> str:
    """Return the share with the floor that its lower end is held against: a precision's own."""
    checks = [r.verification for r in row.replicates.values() if r.verification]
    floor = next((c.threshold for c in checks if c.method == "top1_agreement"), None)
    text = _share(row["agreement"])
    return text if floor is None or text == "n/a" else f"{text}\n(from {floor:.0%})"


#: Ends that another attempt may change; the store answers with them until --retry names them.
AGAIN = (Status.TIMEOUT, Status.CRASHED, Status.OOM, Status.FAILED, Status.UNSUPPORTED)
#: Metrics whose cell says more than the figure.
CELLS: Mapping[str, Callable[[Row], str]] = {
    "speedup": _speedup,
    "agreement": _agreement,
    "accuracy": lambda row: _count(row["accuracy"]),
}


def _figure(metric: Metric, row: Row) -> str:
    """Return a cell of the table: of watts and joules with their scope, of rates and bytes without the interval."""
    field = row[metric.name]
    if metric.name in CELLS:
        return CELLS[metric.name](row)
    if metric.scope:
        return _scoped(field, row)
    return terminal.show(field, interval=metric.unit == "s").removesuffix(" samples/s")


def show(found: VariantTable, best: Pick, not_here: Sequence[NotHere] = ()) -> None:
    """Print the table, what was rejected, screened out or not here and why, and the pick."""
    ran = [row for row in found.rows if row.replicates]
    rows = sorted(ran, key=lambda row: (row.cell != found.baseline, bool(row.rejected), _seconds(row)))
    wanted = sorted(shown("table", rows[0].trial.workload if rows else ""), key=lambda m: m.name == "speedup")
    columns = [m for m in wanted if any(_figure(m, row) != "n/a" for row in rows)]
    header = ("variant", *(m.head for m in columns), "")
    cells = ([row.label, *(_figure(m, row) for m in columns)] for row in rows)
    terminal.table(header, [_row(row, c, found, best) for row, c in zip(rows, cells, strict=True)])
    out = terminal.console()
    for row in found.rows:
        if row.rejected:
            word = "cannot run here" if row.status is Status.UNSUPPORTED else "rejected"
            out.print(Text(f"{word}  {row.label}: {row.rejected}", style="red" if row.replicates else "dim"))
    if ends := again(found):
        terminal.note(f"measure again: --retry {','.join(ends)}")
    for row in sorted(found.screened, key=_seconds):
        terminal.note(f"screened out  {screened(row)}")
    for missing in not_here:
        terminal.note(f"not here  {missing.label}: " + "; ".join(filter(None, (missing.reason, missing.fix))))
    for text in [text for row in rows for text in (*row.notes, _unresolved(row)) if text]:
        terminal.note(text)
    for text in dict.fromkeys(_absent(row) for row in found.rows if not row.rejected):
        terminal.note(text)
    if best.row is None:
        out.print(Text(f"no pick: {best.reason}", style="bold red"))
    else:
        out.print(Text("pick  ", style="bold green") + Text(best.reason, style="bold"))


def again(found: VariantTable) -> list[str]:
    """Return the statuses by which rows are rejected and that another attempt may change."""
    rows = (row.rejected for row in found.rows if row.rejected)
    said = {
        text.partition(":")[0].partition(" ")[0]
        for text in rows
        if not asked_wrongly(Message(text.partition(": ")[2].partition(":")[0], text))
    }
    return [status.value for status in AGAIN if status.value in said]


def screened(row: Row) -> str:
    """Return what is known of a variant that the short runs left behind."""
    runs = len(row.replicates)
    count = f"after {runs} short run{'s' if runs > 1 else ''} of {row.trial.max_s:.2g} s"
    lead = row["p50_s"] if isinstance(row["p50_s"], Measured) else row["throughput_sps"]
    speed = f", {terminal.number(row['speedup'].value)}x" if isinstance(row["speedup"], Measured) else ""
    return f"{row.label}: {terminal.show(lead, interval=False)}{speed} {count}"


def _row(row: Row, cells: list[str], found: VariantTable, best: Pick) -> list[str | Text]:
    style, mark = ("strike dim", "rejected") if row.rejected else ("", "")
    if row.cell == found.baseline:
        mark = "baseline"
    if best.row is not None and row.cell == best.row.cell:
        style, mark = "bold green", "pick"
    trust = Text(row.verdict.trust.value, style=TRUST_STYLE[row.verdict.trust])
    stacked = [cell.replace(" [", "\n[") for cell in cells]  # the interval goes below its value
    return [*(Text(cell, style=style) for cell in stacked), Text(f"{mark}\n" if mark else "") + trust]


def _scoped(field: Field, row: Row) -> str:
    """Return watts or joules with what they were measured in front of."""
    text = terminal.show(field)
    return f"{text} ({row.scope})" if row.scope and isinstance(field, Measured) else text


def _unresolved(row: Row) -> str:
    return f"speed-up of {row.label}: {row['speedup'].reason}" if isinstance(row["speedup"], Absent) else ""


def _share(field: Measured | Absent) -> str:
    if isinstance(field, Absent):
        return "n/a"
    if field.lo is None or field.hi is None:
        return f"{field.value:.1%}"
    return f"{field.value:.1%} [{field.lo * 100:.0f}, {field.hi * 100:.0f}]"


def _seconds(row: Row) -> float:
    return row["p50_s"].value if isinstance(row["p50_s"], Measured) else float("inf")


def _count(field: Measured | Absent) -> str:
    return "n/a" if isinstance(field, Absent) else f"{round(field.value * field.n)}/{field.n}"


def _absent(row: Row) -> str:
    """Return why there is no power or energy, '' where there is."""
    if isinstance(row["energy_per_sample_j"], Absent):
        return f"power, energy: {row['energy_per_sample_j'].reason}"
    return ""


def to_json(
    found: VariantTable, best: Pick, results: Sequence[Result], not_here: Sequence[NotHere] = ()
) -> dict[str, Json]:
    """Return {baseline, constraints, rows, screened, not_here, pick, results} as plain JSON values."""
    pick = {
        "cell": best.row.cell if best.row else None,
        "reason": best.reason,
        "ties": list(best.ties),
        "nearest": best.nearest.cell if best.nearest else None,
    }
    return {
        "baseline": found.baseline,
        "constraints": [c.text for c in found.wanted.constraints],
        "rows": [_plain(row) for row in found.rows],
        "screened": [_plain(row) for row in found.screened],
        "not_here": [dataclasses.asdict(missing) for missing in not_here],
        "pick": pick,
        "results": [result_to_json(r) for r in results],
    }


def _plain(row: Row) -> dict[str, Json]:
    return row.to_json() | {"runs": len(row.replicates)}
