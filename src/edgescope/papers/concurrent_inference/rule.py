"""A rule's answer: from what each series says to one word, the figures behind it, and the cells they are from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from edgescope.analysis.cells.concurrency import Cell, MemoryLine, sharing_words
from edgescope.papers.concurrent_inference.paper import PaperRule
from edgescope.records import Machine, Trust

LONG = 90
"""Characters from which a reason is cut to what happened."""


class Answer(str, Enum):
    """What became of a rule on this machine."""

    HOLDS = "holds"
    FAILS = "does not hold here"
    UNSURE = "unsure here"
    UNKNOWN = "not measurable here"


@dataclass(frozen=True)
class View:
    """What a check may look at."""

    cells: tuple[Cell, ...]
    machine: Machine | None
    memory: str
    """The memory figure that the lines are of."""
    lines: tuple[MemoryLine, ...]


@dataclass(frozen=True)
class Found:
    """What a check found."""

    answer: Answer
    found: str
    """One sentence with figures."""
    cells: int = 0
    """Cells that it rests on."""
    evidence: tuple[str, ...] = ()
    """A line a series, those against the rule first."""


@dataclass(frozen=True)
class Checked:
    """A rule and what was found."""

    rule: PaperRule
    found: Found


@dataclass(frozen=True)
class Voice:
    """What one series says to a rule."""

    holds: bool | None
    """None: within the noise."""
    text: str
    """The series and its figures."""
    cells: Sequence[Cell]
    value: float | None = None
    """The figure that says it, where it is a ratio."""


def heard(
    voices: Sequence[Voice], what: str, missing: str, ratio: str = "", *, read_off: bool = False
) -> Found:
    """Return the answer that the voices come to.

    `what` names them (`series`), `missing` is said without any, `ratio` says what the voices' values are.
    One surely against it fails a rule; it holds where most are surely for it, else it is unsure.
    What is `read_off`, as memory is, does not suffer from a disturbed machine.
    """
    if not voices:
        return unknown(missing)
    for_, against = (sum(v.holds is side for v in voices) for side in (True, False))
    unsure = len(voices) - for_ - against
    order = {False: 0, True: 1, None: 2}
    lines = tuple(v.text for v in sorted(voices, key=lambda v: order[v.holds]))
    parts = [f"{for_} of {len(voices)} {what} agree{_by_sharing(voices) if for_ and against else ''}"]
    parts += [f"{against} do not"] if against else []
    parts += [f"{unsure} unsure (within the noise, or no interval)"] if unsure else []
    answer = Answer.FAILS if against else Answer.HOLDS if for_ > unsure else Answer.UNSURE
    cells = [c for v in voices for c in v.cells]
    text = ", ".join(parts) + _span(voices, ratio) + ("" if read_off else untrusted(cells))
    return Found(answer, text, distinct(cells), lines)


def _by_sharing(voices: Sequence[Voice]) -> str:
    """Return ` (time slicing 3 of 18, MPS 18 of 18)` where there are several ways of sharing."""
    groups: dict[str, list[Voice]] = {}
    for voice in voices:
        crowd = [c.trial for c in voice.cells if c.trial.processes > 1 or c.trial.sharing != "time_slicing"]
        groups.setdefault(sharing_words(crowd[-1]) if crowd else "one process", []).append(voice)
    if len(groups) < 2:
        return ""
    shown = (
        f"{name} {sum(v.holds is True for v in group)} of {len(group)}" for name, group in groups.items()
    )
    return f" ({', '.join(shown)})"


def _span(voices: Sequence[Voice], ratio: str) -> str:
    """Return `; latency at the largest P: 1.2x to 6.7x, median 3.1x`."""
    values = [v.value for v in voices if v.value is not None]
    if not ratio or not values:
        return ""
    low, high = (f"{v:.2f}x" if v < 10 else f"{v:.3g}x" for v in (min(values), max(values)))
    if low == high:
        return f"; {ratio}: {low}"
    return f"; {ratio}: {low} to {high}, median {median(values):.2f}x"


def untrusted(cells: Iterable[Cell]) -> str:
    """Return `; 3 of 8 cells were disturbed or throttled`, or ''."""
    every = {c.trial.id: c.verdict.trust for c in cells}
    bad = sum(v in (Trust.DISTURBED, Trust.THROTTLED) for v in every.values())
    return f"; {bad} of {len(every)} cells were disturbed or throttled" if bad else ""


def per_cent(share: float, places: int = 0) -> str:
    """Return `12 %`."""
    return f"{100 * share:.{places}f} %"


def unknown(why: str, evidence: tuple[str, ...] = ()) -> Found:
    """Return that a rule cannot be checked here, and why."""
    return Found(Answer.UNKNOWN, why, 0, evidence)


def brief(reason: str) -> str:
    """Return a reason without its evidence where it is long: up to the first bracket, then the first colon."""
    what = reason.partition(". Try:")[0].rstrip(".")
    if len(what) <= LONG:
        return what
    head = what.partition(" (")[0]
    return head if len(head) <= LONG else head.partition(": ")[0]


def distinct(cells: Iterable[Cell]) -> int:
    """Return how many different cells these are."""
    return len({c.trial.id for c in cells})
