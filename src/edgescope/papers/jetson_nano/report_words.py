"""What the page and the Markdown of the study's table say in the same words: summary, notes, numbers."""

from __future__ import annotations

from edgescope.analysis.cells.machines import called
from edgescope.papers.jetson_nano.table import NanoRow, NanoTable
from edgescope.records import Absent, Field, Measured

TIMES = {"cold_s": "Cold", "first_s": "First", "warm_s": "Warm", "steady_s": "Steady"}
LEGEND = (
    "before: PyTorch eager, fp32, tf32 off (on a GPU it comes with cuDNN's tf32 on); after: the fastest variant whose "
    "outputs passed the accuracy gate",
    "cold: from the network's definition to its first answer (load + first; importing the framework is not in it)",
    "first: the first answer alone; warm: mean of the ten answers after it; steady: median once latencies settled",
    "speed-up: steady before / steady after, paired within rounds of fresh processes",
    "cold / warm: what timing a cold start before and a warm call after would have made of the same processes",
    "of the limit: least time that this machine's measured ceilings allow / steady after, at the fastest precision "
    "that passed the gate (a lower bound on time: activations are not counted)",
    "small figures are 95 % intervals over fresh processes; those of a mean say how well the mean of these networks "
    "is known",
)


def title(found: NanoTable) -> str:
    """Return the heading."""
    where = f" on {called(found.machine)}" if found.machine else ""
    return f"The Jetson Nano study's table{where} ({found.device})"


def ratio(field: Field) -> str:
    """Return `7.31× [7.20, 7.42]`, or `n/a`."""
    if isinstance(field, Absent):
        return "n/a"
    text = f"{digits(field.value)}×"
    return (
        text if field.lo is None or field.hi is None else f"{text} [{digits(field.lo)}, {digits(field.hi)}]"
    )


def digits(value: float) -> str:
    """Return three significant digits, or all of a larger whole part."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def summary(found: NanoTable) -> str:
    """Return what the table comes to, in sentences."""
    page, n, of = found.study, len(found.measured), len(found.rows)
    if not n:
        return f"None of the {of} networks was measured on {found.device}: edgescope study nano_table --run"
    theirs = (
        f"the study's own seconds give {page.geometric_mean:.2f}× (arithmetic {page.arithmetic_mean:.2f}×)"
    )
    return (
        f"Over {n} of {of} networks the gated pick is {ratio(found.geometric)} as fast as PyTorch eager (fp32, "
        f"tf32 off), both steady (geometric mean; arithmetic {ratio(found.arithmetic)}); {theirs}. "
        "Timed the study's way, cold before and warm after, the same processes "
        f"would have claimed {ratio(found.claimed)}.{_disturbed(found)}"
    )


def _disturbed(found: NanoTable) -> str:
    bad = [r.model for r in found.measured if set(r.verdicts) & {"DISTURBED", "THROTTLED"}]
    return f" Measured while the machine was disturbed or throttled: {', '.join(bad)}." if bad else ""


def study_notes(found: NanoTable) -> list[str]:
    """Return what is wrong with the study's figures, misprints first."""
    page = found.study
    wrong = [f"{row.study.name}: {m}" for row in found.rows for m in row.study.misprints]
    other = [f"{row.study.name}: {note}" for row in found.rows for note in row.study.notes]
    mean = (
        f"The mean of the eleven speed-ups is {page.arithmetic_mean:.2f}× (geometric {page.geometric_mean:.2f}×); the "
        f"conclusion says {page.mean_speedup_in_conclusion}×, the abstract {page.mean_speedup_in_abstract}."
    )
    counts = "Its FLOPS column counts multiply-accumulates in some rows and twice as many in others."
    return [*wrong, *other, mean, counts, *page.notes]


def row_notes(found: NanoTable) -> list[str]:
    """Return why rows are empty, what was rejected on the way and which gate the pick passed, once a sentence."""
    models: dict[str, list[str]] = {}
    for row in found.rows:
        mine = [n for n in row.notes if n not in row.study.notes]
        if isinstance(row.speedup, Absent) and (row.variant or not mine):
            mine = [*mine, row.speedup.reason]
        for note in (*mine, *([f"gate: {row.gate}"] if row.gate else [])):
            models.setdefault(note, []).append(row.model)
    return [f"{', '.join(names)}: {note}" for note, names in models.items()]


def flops_count(row: NanoRow) -> str:
    """Return what the study's FLOPS column counts in this row."""
    return row.study.flops_count(int(row.macs.value) if isinstance(row.macs, Measured) else None)


def count(field: Field) -> str:
    """Return a whole number with thousands separated, or `n/a`."""
    return f"{field.value:,.0f}" if isinstance(field, Measured) else "n/a"
