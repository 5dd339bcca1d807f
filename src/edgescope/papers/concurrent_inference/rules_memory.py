"""Checks of the paper's rules on memory: linear in P, a slope of model + 2 x batch, a limit, more for more bits."""

from __future__ import annotations

from edgescope.analysis.cells.concurrency import NEAR, MemoryLine, Series, over_precisions
from edgescope.analysis.cells.replicates import above, of_fields
from edgescope.analysis.cells.sharing_gain import times
from edgescope.papers.concurrent_inference.rule import Answer, Found, View, Voice, heard, per_cent, unknown
from edgescope.records import Absent, Field, Measured, Status

AGREES = 0.10
"""Share by which a slope may differ from model + 2 x batch."""
#: Figure -> what it is, in words.
NAMES = {
    "processes_pss_bytes": "proportional share of resident memory, summed",
    "processes_rss_bytes": "peak resident memory, summed",
    "gpu_processes_memory_bytes": "GPU memory of the processes, as the driver says",
    "gpu_board_memory_bytes": "memory in use on the GPU's board",
}


def linear(view: View) -> Found:
    """Memory lies on a line over P."""
    voices = [Voice(m.linear, _line(m), m.series.cells) for m in view.lines if m.linear is not None]
    missing = f"{NAMES.get(view.memory, view.memory)}: {_why(view)}"
    return heard(voices, f"series (no point over {per_cent(NEAR)} off its line)", missing, read_off=True)


def _why(view: View) -> str:
    if any(m.points == 2 for m in view.lines):
        return "two numbers of processes were measured, and two points lie on any line"
    return next(
        (m.slope.reason for m in view.lines if isinstance(m.slope, Absent)),
        "no series over processes was measured",
    )


def _line(line: MemoryLine) -> str:
    off = (
        f", at most {per_cent(line.residual.value, 1)} off the line"
        if isinstance(line.residual, Measured)
        else ""
    )
    return f"{line.series.words}: {megabytes(line.slope)} a process from {megabytes(line.start)}{off}"


def rule(view: View) -> Found:
    """The slope is model + 2 x batch."""
    known = [(m, m.against) for m in view.lines if isinstance(m.against, Measured)]
    voices = [
        Voice(_agrees(a), f"{_line(m)}; {times(a)} of {megabytes(m.rule)}", m.series.cells, a.value)
        for m, a in known
    ]
    why = next(
        (m.against.reason for m in view.lines if isinstance(m.against, Absent)), "no series over processes"
    )
    what = f"series (slope within {per_cent(AGREES)} of the rule)"
    return heard(voices, what, why, "one more process costs, of model + 2 x batch", read_off=True)


def _agrees(against: Measured) -> bool | None:
    """Return whether a slope over the rule is within AGREES of 1; None where its interval does not say."""
    if abs(against.value - 1) <= AGREES:
        return True
    outside = (above(against, 1 + AGREES, exact=True), above(against, 1 - AGREES, exact=True))
    return False if outside[0] is True or outside[1] is False else None


def limit(view: View) -> Found:
    """Cells that ran out of memory."""
    out = [c for c in view.cells if c.status is Status.OOM]
    if not out:
        most = max((c.trial.processes for c in view.cells if c.ok), default=0)
        why = f"no cell ran out of memory, up to P = {most}" if most else "no cell ran"
        return unknown(why)
    lines = tuple(f"{c.place}: {c.rejected}" for c in out)
    return Found(
        Answer.HOLDS,
        f"{len(out)} cell{'s' * (len(out) != 1)} ran out of memory; the machine stayed up",
        len(out),
        lines,
    )


def precision(view: View) -> Found:
    """More bits take more memory."""
    voices = [v for s in over_precisions(view.cells) if (v := _more(s, view.memory))]
    missing = f"{NAMES.get(view.memory, view.memory)}: not at two precisions"
    return heard(voices, "series", missing, "memory of the most bits over the fewest", read_off=True)


def _more(series: Series, memory: str) -> Voice | None:
    first, last = series.cells[0], series.cells[-1]
    ratio = of_fields(last[memory], first[memory])
    if not isinstance(ratio, Measured):
        return None
    names = f"{last.trial.precision} takes {times(ratio)} the memory of {first.trial.precision}"
    return Voice(above(ratio, exact=True), f"{series.words}: {names}", (first, last), ratio.value)


def megabytes(field: Field) -> str:
    """Return `412 MB [405, 419]`, or `n/a`."""
    if isinstance(field, Absent):
        return "n/a"
    places = 0 if abs(field.value) >= 1e7 else 1

    def shown(value: float) -> str:
        return f"{round(value * 1e-6, places) + 0.0:,.{places}f}"  # what is rounded to nothing has no sign

    text = f"{shown(field.value)} MB"
    if field.lo is None or field.hi is None:
        return text
    return f"{text} [{shown(field.lo)}, {shown(field.hi)}]"
