"""The study's table on a terminal and as JSON."""

from __future__ import annotations

from edgescope.papers.jetson_nano.paper import Study
from edgescope.papers.jetson_nano.table import NanoRow, NanoTable
from edgescope.records import Absent, Json, Measured
from edgescope.records.codec import to_plain
from edgescope.report import terminal

HEAD = (
    "model",
    "cold",
    "first",
    "warm",
    "steady",
    "after",
    "variant",
    "speed-up",
    "cold/warm",
    "of limit",
    "study",
)


def show(found: NanoTable) -> None:
    """Print the rows, the means, what is misprinted and why a row is empty."""
    terminal.table(HEAD, [_cells(row) for row in found.rows])
    page = found.study
    terminal.note(
        f"geometric mean {terminal.ratio(found.geometric)} over {len(found.measured)} of {len(found.rows)} models; "
        f"the study {page.geometric_mean:.2f}x (arithmetic {page.arithmetic_mean:.2f}x, printed "
        f"{page.mean_speedup_in_conclusion}x). Timed as the study did: {terminal.ratio(found.claimed)}"
    )
    for line in [*misprints(found), *_empty(found)]:
        terminal.note(line)


def _cells(row: NanoRow) -> list[str]:
    before, after = row.before, row.after
    times = [before.cold_s, before.first_s, before.warm_s, before.steady_s, after.steady_s]
    share = f"{row.of_limit.value:.0%}" if isinstance(row.of_limit, Measured) else "n/a"
    study = f"{row.study.recomputed:.2f}x" + ("*" if row.study.misprints else "")
    ratios = [terminal.ratio(row.speedup), terminal.ratio(row.claimed)]
    shown = [terminal.show(f, interval=False) for f in times]
    return [row.model, *shown, row.variant or "n/a", *ratios, share, study]


def misprints(found: NanoTable) -> list[str]:
    """Return a line for each printed value that cannot be right."""
    return [f"* {row.study.name}: {m}" for row in found.rows for m in row.study.misprints]


def _empty(found: NanoTable) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if isinstance(row.speedup, Absent):
            notes = [n for n in row.notes if n not in row.study.notes]
            why = (
                "; ".join([*notes, row.speedup.reason] if row.variant else notes) or "no result in this store"
            )
            reasons.setdefault(why, []).append(row.model)
    fix = f"edgescope study nano_table --run --device {found.device} --models"
    return [f"not measured, {why}: {', '.join(m)}. Try: {fix} {','.join(m)}" for why, m in reasons.items()]


def to_json(found: NanoTable) -> Json:
    """Return the table as plain values; fields are {value, lo, hi, n, unit} or {absent: reason}."""
    plain = to_plain(found)
    plain["machine"] = found.machine.id if found.machine else None
    plain["study"] = _study(found.study)
    for row, out in zip(found.rows, plain["rows"], strict=True):
        macs = int(row.macs.value) if isinstance(row.macs, Measured) else None
        out["study"] |= {
            "recomputed": row.study.recomputed,
            "misprints": to_plain(row.study.misprints),
            "flops_count": row.study.flops_count(macs),
        }
    return plain


def _study(page: Study) -> Json:
    out = {k: v for k, v in to_plain(page).items() if k != "rows"}
    return out | {"arithmetic_mean": page.arithmetic_mean, "geometric_mean": page.geometric_mean}
