"""Checks of the paper's rules on throughput and latency: over processes, batch sizes and precisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from edgescope.analysis.cells.concurrency import (
    Cell,
    Series,
    over_batches,
    over_precisions,
    over_processes,
    scaled,
)
from edgescope.analysis.cells.replicates import above, quotient
from edgescope.analysis.cells.sharing_gain import digits, times
from edgescope.papers.concurrent_inference.rule import (
    Answer,
    Found,
    View,
    Voice,
    brief,
    distinct,
    heard,
    unknown,
)
from edgescope.records import Field, Json, Machine, Measured, Status

STABLE = 1.25
"""Latency over that of one process up to which it counts as stable: the paper's own spread was 1 to 2 ms."""
EC = (
    "A whole query's latency stands for the execution context, whose host span needs a profiler around the same cell, "
    "which this version does not drive"
)


def usable_cores(machine: Machine | None) -> int | None:
    """Return the CPU cores of a machine, physical ones where known, no more than the process may use; or None."""
    facts: Json = machine.stable.get("cpu") if machine else None
    state: Json = machine.state.get("cpu") if machine else None
    if not isinstance(facts, Mapping):
        return None
    known = [facts.get(name) for name in ("physical_cores", "logical_cores", "cores")]
    found = next((n for n in known if isinstance(n, int)), None)
    allowed = state.get("affinity") if isinstance(state, Mapping) else None
    if found is None or not isinstance(allowed, list | tuple) or not allowed:
        return found
    return min(found, len(allowed))


def cores(view: View) -> Found:
    """Latency is stable up to cores/2 processes and grows beyond."""
    n = usable_cores(view.machine)
    if n is None:
        return unknown("the number of CPU cores of this machine is not known")
    voices = [v for s in over_processes(view.cells) if (v := _growth(s, n / 2))]
    missing = "needs both P = 1 and P > 1 runs"
    found = heard(voices, "series", missing, "latency at the largest P, of that at P = 1")
    if not voices:
        return found
    tested = any(1 < c.trial.processes <= n / 2 for v in voices for c in v.cells)
    alone = "" if tested else " (no P between 2 and that: only the growth beyond was tested)"
    text = f"with {n} cores, cores/2 = {n / 2:g}{alone}: {found.found}. {EC}"
    return Found(found.answer, text, found.cells, found.evidence)


def _growth(series: Series, half: float) -> Voice | None:
    """Return what a series says: latency over that of one process, at each P."""
    first, *rest = series.cells
    if first.trial.processes != 1:
        return None
    found = [(c, quotient(c.runs, first.runs, "latency_p50_s")) for c in rest]
    known = [(c, r) for c, r in found if isinstance(r, Measured)]
    if not known:
        return None
    inside = [above(r, STABLE) for c, r in known if c.trial.processes <= half]
    beyond = [above(r, STABLE) for c, r in known if c.trial.processes > half]
    shown = ", ".join(f"{times(r)} at P = {c.trial.processes}" for c, r in known)
    return Voice(
        _stable(inside, beyond), f"{series.words}: latency {shown}", series.cells, known[-1][1].value
    )


def _stable(inside: Sequence[bool | None], beyond: Sequence[bool | None]) -> bool | None:
    """Return whether latency stayed inside cores/2 and grew beyond; the side that was not measured is not asked."""
    if True in inside or (beyond and all(grown is False for grown in beyond)):
        return False
    quiet = all(grown is False for grown in inside)
    return True if quiet and (True in beyond or not beyond) else None


def batch(view: View) -> Found:
    """Throughput rises with the batch, less than in proportion."""
    voices = [v for s in over_batches(view.cells) if (v := _gain(s))]
    return heard(
        voices,
        "series",
        "only one batch size was measured",
        "throughput of the largest batch over the smallest",
    )


def _gain(series: Series) -> Voice | None:
    first, last = series.cells[0], series.cells[-1]
    ratio, more = quotient(last.runs, first.runs, "throughput_sps"), last.trial.batch / first.trial.batch
    if not isinstance(ratio, Measured):
        return None
    rises, linear = above(ratio), above(ratio, more)
    holds = False if rises is False or linear is True else True if rises and linear is False else None
    text = f"{series.words}: {times(ratio)} from batch {first.trial.batch} to {last.trial.batch} ({more:g}x)"
    return Voice(holds, text, (first, last), ratio.value)


def per_process(view: View) -> Found:
    """T/P falls as P grows."""
    voices = [v for s in over_processes(view.cells) if (v := _fall(s))]
    missing = "only one number of processes was measured"
    return heard(voices, "series", missing, "T/P at the largest P, of that at the smallest")


def _fall(series: Series) -> Voice | None:
    first, *rest = series.cells
    found: list[tuple[Cell, Field]] = [
        (c, scaled(quotient(c.runs, first.runs, "throughput_sps"), first.trial.processes / c.trial.processes))
        for c in rest
    ]
    known = [(c, r) for c, r in found if isinstance(r, Measured)]
    if not known:
        return None
    sides = [above(r) for _, r in known]
    holds = False if sides[-1] is True else True if sides[-1] is False else None
    shown = ", ".join(f"{times(r)} at P = {c.trial.processes}" for c, r in known)
    base = f"that at P = {first.trial.processes}"
    return Voice(holds, f"{series.words}: T/P is {shown} of {base}", series.cells, known[-1][1].value)


def best_precision(view: View) -> Found:
    """int8 is the fastest; what is fastest here is said in any case."""
    groups = over_precisions(view.cells)
    if not groups:
        only = (
            "only one precision ran"
            if len({c.trial.precision for c in view.cells if c.ok}) == 1
            else "no equal cells"
        )
        return unknown(f"{only}; int8 {_why_not(view.cells, 'int8')}")
    best = Counter(_fastest(s).trial.precision for s in groups)
    shown = ", ".join(f"{p} in {n} of {len(groups)}" for p, n in best.most_common())
    with_int8 = [s for s in groups if s.cells[0].trial.precision == "int8"]
    if not with_int8:
        why = _why_not(view.cells, "int8")
        lines = tuple(map(_ladder, groups))
        text = f"fastest here: {shown}; int8 {why}"
        return Found(Answer.UNKNOWN, text, distinct(c for s in groups for c in s.cells), lines)
    found = heard([_int8(s) for s in with_int8], "series", "", "int8 over the fastest other")
    return Found(found.answer, f"fastest here: {shown}; int8: {found.found}", found.cells, found.evidence)


def _fastest(series: Series) -> Cell:
    return max(series.cells, key=lambda c: c.value("throughput_sps") or 0.0)


def _int8(series: Series) -> Voice:
    rest = max(series.cells[1:], key=lambda c: c.value("throughput_sps") or 0.0)
    ratio = quotient(series.cells[0].runs, rest.runs, "throughput_sps")
    against = f" (int8 {times(ratio)} of {rest.trial.precision})" if isinstance(ratio, Measured) else ""
    value = ratio.value if isinstance(ratio, Measured) else None
    return Voice(above(ratio), _ladder(series) + against, series.cells, value)


def _ladder(series: Series) -> str:
    rates = [(c.trial.precision, c.value("throughput_sps")) for c in series.cells]
    shown = ", ".join(f"{p} {digits(v)}" for p, v in rates if v is not None)
    return f"{series.words}: {shown} samples/s"


def _why_not(cells: Sequence[Cell], precision: str) -> str:
    mine = [c for c in cells if c.trial.precision == precision]
    if not mine:
        return "was not measured"
    if any(c.ok for c in mine):
        return "ran, with no other precision at an equal cell"
    return f"gave no figure ({mine[0].status.value}: {brief(mine[0].rejected)})"


def fallback(view: View) -> Found:
    """A precision that cannot be had is refused here, never computed in another."""
    refused = [c for c in view.cells if not c.ok and _refuses(c)]
    if not refused:
        return unknown("every precision asked for was supported: no cell was refused")
    lines = tuple(
        dict.fromkeys(f"{c.trial.model} {c.trial.precision}: {c.status.value}, {c.rejected}" for c in refused)
    )
    what = ", ".join(dict.fromkeys(c.trial.precision for c in refused))
    text = f"{len(refused)} cells of {what} are recorded as refused: nothing is computed in another precision unsaid"
    return Found(Answer.FAILS, text, len(refused), lines)


def _refuses(cell: Cell) -> bool:
    return cell.status is Status.UNSUPPORTED or cell.rejected.startswith("E-RAN-")


def launch(view: View) -> Found:
    """Kernel launches are a profiler's to see."""
    return unknown(
        "launches, rescheduled threads and blocking: needs a profiler around the same cell, which this version does "
        "not drive; what is measured are whole queries"
    )
