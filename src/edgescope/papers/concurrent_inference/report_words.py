"""What page, Markdown and terminal say of the concurrent sweep in the same words."""

from __future__ import annotations

from collections import Counter

from edgescope.analysis.cells.concurrency import Cell, key, setup
from edgescope.analysis.cells.concurrency import place as place_of
from edgescope.analysis.cells.machines import called
from edgescope.analysis.cells.replicates import of_fields
from edgescope.analysis.cells.sharing_gain import times
from edgescope.papers.concurrent_inference.paper import Number
from edgescope.papers.concurrent_inference.rule import Answer, brief
from edgescope.papers.concurrent_inference.rules import counts
from edgescope.papers.concurrent_inference.rules_memory import NAMES
from edgescope.papers.concurrent_inference.table import Concurrent, WarmRatio
from edgescope.records import Absent, Measured, Trust

MARKS = {Answer.HOLDS: "✓", Answer.FAILS: "✗", Answer.UNSURE: "~", Answer.UNKNOWN: "?"}
RUN = "edgescope sweep --model squeezenet1_1 --backend onnxruntime --precision fp32,int8 --batch 1,4 --processes 1,2"
OTHER_HARDWARE = (
    "The paper measured a Jetson Orin Nano, a Jetson Nano and an A40. Its figures stand here for orientation; they are "
    "other hardware, so no ratio of ours to theirs is given."
)


def title(found: Concurrent) -> str:
    """Return the heading."""
    where = f" on {called(found.machine)}" if found.machine else ""
    return f"Concurrent inference{where}"


def summary(found: Concurrent) -> str:
    """Return what was measured and what became of the rules, in sentences."""
    n = len(found.measured)
    if not n:
        return f"No finished cell of concurrent inference is in this store. {_failed(found)}Measure: {RUN}"
    answers = counts(found.rules)
    rules = ", ".join(
        f"{answers[a.value]} {_verb(a, answers[a.value])}" for a in Answer if answers.get(a.value)
    )
    models = len({c.trial.model for c in found.measured})
    plural = "model" if models == 1 else "models"
    what = f"{n} cell{'s' if n > 1 else ''} of {models} {plural} ({found.setup}). {_failed(found)}"
    return f"{what}Of the paper's {len(found.rules)} rules {rules}."


def _verb(answer: Answer, n: int) -> str:
    words = {
        Answer.HOLDS: "hold",
        Answer.FAILS: "do not hold here",
        Answer.UNSURE: "are unsure here",
        Answer.UNKNOWN: "are not measurable here",
    }
    one = {
        Answer.HOLDS: "holds",
        Answer.FAILS: "does not hold here",
        Answer.UNSURE: "is unsure here",
        Answer.UNKNOWN: "is not measurable here",
    }
    return (one if n == 1 else words)[answer]


def _failed(found: Concurrent) -> str:
    if not found.failed:
        return ""
    kinds = Counter(c.status.value for c in found.failed)
    shown = ", ".join(f"{n} {status}" for status, n in kinds.most_common())
    return f"{len(found.failed)} cell{'s' if len(found.failed) > 1 else ''} gave no figure ({shown}). "


def intervals(found: Concurrent) -> str:
    """Return where the intervals come from, e.g. `114 cells within one run, 12 between 3 fresh processes`."""
    kinds = Counter(c.interval for c in found.measured)
    return "95 % intervals: " + "; ".join(
        f"{n} cell{'s' * (n > 1)}: {kind}" for kind, n in kinds.most_common()
    )


def notes(found: Concurrent) -> list[str]:
    """Return what a reader must know of the table: where its figures come from, and what is not in it."""
    if not found.measured:
        return [*_coverage(found), *_others(found)]
    out = [
        *_coverage(found),
        intervals(found),
        f"Memory: {NAMES.get(found.memory, found.memory)} ({found.memory}).",
    ]
    if found.scope:
        out.append(f"Power and energy: scope {found.scope}.")
    alone = [c for c in found.measured if c.trial.processes == 1]
    if len(alone) == len(found.measured):
        out.append("Only one process was measured: nothing here shows how processes share the device.")
    bad = [c.place for c in found.measured if c.verdict.trust in (Trust.DISTURBED, Trust.THROTTLED)]
    if bad:
        shown = "; ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        shown = f"all {len(bad)} cells" if len(bad) == len(found.measured) > 1 else shown
        out.append(f"Measured while the machine was disturbed or throttled: {shown}.")
    lost = Counter(f"{r.status.value}: {brief(str(r.reason))}" for c in found.measured for r in c.lost)
    out += [
        f"{n} more run{'s' * (n > 1)} of these cells gave no figure: {why}." for why, n in lost.most_common(3)
    ]
    out += _skewed(found)
    return out + _others(found)


def _coverage(found: Concurrent) -> list[str]:
    """Return how much of the study finished, and which of its cells did not."""
    if not found.asked:
        return []
    there = f"{len(found.asked) - len(found.missing)} of the study's {len(found.asked)} cells"
    lacking = f"; missing: {_some([place_of(t) for t in found.missing])}" if found.missing else ""
    other = sorted({setup(t) for t in found.asked} - {found.setup})
    but = f" The study asks for {'; '.join(other)}." if other and found.setup else ""
    return [f"Coverage: {there}{lacking}.{but}"]


def _skewed(found: Concurrent) -> list[str]:
    """Name the largest difference between workers' starts."""
    skews = [(v, c) for c in found.measured if (v := c.value("start_skew_s")) is not None]
    if not skews:
        return []
    most, cell = max(skews, key=lambda pair: pair[0])
    return [f"Workers began within {most * 1e3:.3g} ms of each other at worst ({cell.place})."]


def _others(found: Concurrent) -> list[str]:
    out = [
        f"Also in this store, not shown: {n} cells of {name}. Try: --setup '{name}'"
        for name, n in found.others
    ]
    if found.left_out:
        why = "another scenario, several queries in flight, or other models beside"
        out.append(f"{found.left_out} results are left out: {why}.")
    return out


def failures(found: Concurrent) -> list[str]:
    """Return each reason why cells did not finish, in short, with how many and which; one line a reason."""
    reasons: dict[str, list[str]] = {}
    for c in found.failed:
        reasons.setdefault(f"{c.status.value}: {brief(c.rejected) or 'no reason given'}", []).append(c.place)
    return [f"{why} ({_some(places)})" for why, places in reasons.items()]


def _some(places: list[str]) -> str:
    if len(places) == 1:
        return places[0]
    more = f" and {len(places) - 2} more" if len(places) > 2 else ""
    return f"{len(places)} cells: {'; '.join(places[:2])}{more}"


def warm(each: WarmRatio) -> str:
    """Return one cell's warm over fresh throughput."""
    runs = f"{each.warm} warm, {each.fresh} fresh"
    shown = times(each.ratio) if isinstance(each.ratio, Measured) else f"n/a ({each.ratio.reason})"
    return f"{each.cell.place}: {shown} ({runs})"


def place(number: Number) -> str:
    """Return which cell of the paper a figure is of."""
    t = " ".join(filter(None, [number.model or "all models", number.precision, f"batch {number.batch}"]))
    return f"{t}, P = {number.processes}"


def beside(found: Concurrent, number: Number) -> str:
    """Return our figure of the same cell, or why there is none: printed beside the paper's, never divided by it."""
    if number.figure not in ("throughput_sps", "throughput_per_process_sps"):
        return _growth(found, number)
    mine = [c for c in found.measured if number.is_of(c.trial.model) and _same(c, number)]
    if not mine:
        return "not measured here"
    return "; ".join(f"{_rate(c, number.figure)} ({_how(c, number)})" for c in mine)


def _same(cell: Cell, number: Number) -> bool:
    t = cell.trial
    same = (t.batch, t.processes) == (number.batch, number.processes)
    return same and (not number.precision or t.precision == number.precision)


def _how(cell: Cell, number: Number) -> str:
    parts = cell.place.removeprefix(f"{cell.trial.model} ").split(", ")
    return ", ".join(p for p in parts if not p.startswith("P ="))


def _rate(cell: Cell, figure: str) -> str:
    y = cell[figure]
    if isinstance(y, Absent):
        return "n/a"
    text = f"{y.value:,.0f}"
    return text + (f" [{y.lo:,.0f}, {y.hi:,.0f}]" if y.lo is not None and y.hi is not None else "")


def _growth(found: Concurrent, number: Number) -> str:
    if number.figure == "latency_growth":
        return "an execution context needs a profiler around the same cell, which this version does not drive"
    many = [c for c in found.measured if number.is_of(c.trial.model) and _same(c, number)]
    alone = [c for c in found.measured if c.trial.processes == 1]
    pairs = [(c, a) for c in many for a in alone if key(c.trial)[:-2] == key(a.trial)[:-2]]
    ratios = [(c, of_fields(c[found.memory], a[found.memory])) for c, a in pairs]
    shown = [f"{times(r)} ({_how(c, number)})" for c, r in ratios if isinstance(r, Measured)]
    return "; ".join(shown) or "not measured here"
