"""What a claim of a paper is, and how a machine's own cells answer it: it holds, it does not, or it cannot be said.

A claim speaks of many series (a model at a precision and batch over processes, say). Each series is a voice: for it,
against it, or within the noise. The claim holds where most are for it and none against it, fails with the first that
is surely against it, and is unsure where half or more are within the noise. The counts and the figures are given, so
that a reader may weigh them otherwise. A claim whose counter or cells are missing says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any, Generic, TypeVar

from edgescope.analysis.cells.concurrency import sharing_words
from edgescope.analysis.cells.replicates import above
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.sharing_gain import times
from edgescope.papers.paper import Paper, Stated
from edgescope.records import Field, Measured, Trust
from edgescope.report import document as doc
from edgescope.report.document import BRIEF, DETAIL, Cell, Column, Items, Mark, Section, Table

LONG = 90
"""Characters from which a reason is cut to what happened."""
T = TypeVar("T")


class Answer(str, Enum):
    """What became of a claim on this machine."""

    HOLDS = "holds"
    FAILS = "does not hold here"
    UNSURE = "unsure here"
    UNKNOWN = "not measurable here"


#: Answer -> its badge on a page, and the words on a terminal.
LOOKS: Mapping[Answer, tuple[str, str]] = {
    Answer.HOLDS: ("badge clean", "✓ holds"),
    Answer.FAILS: ("badge throttled", "✗ does not"),
    Answer.UNSURE: ("badge disturbed", "~ within noise"),
    Answer.UNKNOWN: ("badge none", "? not measured"),
}


@dataclass(frozen=True)
class Found:
    """What a check found."""

    answer: Answer
    found: str
    """One sentence with figures."""
    cells: int = 0
    """Cells that it rests on."""
    evidence: tuple[str, ...] = ()
    """A line a series, those against the claim first."""
    agree: str = ""
    """`16 of 28`: the voices for it."""


@dataclass(frozen=True)
class Answered:
    """A claim and what was found."""

    claim: Stated
    found: Found


@dataclass(frozen=True)
class Voice:
    """What one series says to a claim."""

    holds: bool | None
    """None: within the noise."""
    text: str
    """The series and its figures."""
    cells: Sequence[Row]
    value: float | None = None
    """The figure that says it, where it is a ratio."""


@dataclass(frozen=True)
class Claim(Generic[T]):
    """How a claim is judged: what each series of a table says to it."""

    voices: Callable[[T], Iterable[Voice | None]]
    missing: str | Callable[[T], str]
    """What is said without any voice."""
    ratio: str = ""
    """What the voices' values are."""
    of: str = "series"
    read_off: bool = False
    """Whether a disturbed machine does not matter: memory is read off."""

    def __call__(self, table: T) -> Found:
        """Return the answer of a table's voices."""
        voices = [v for v in self.voices(table) if v is not None]
        missing = self.missing if isinstance(self.missing, str) else self.missing(table)
        return heard(voices, self.of, missing, self.ratio, read_off=self.read_off)


def answered(paper: Paper, table: T, nothing: str = "") -> tuple[Answered, ...]:
    """Return every claim of a paper with its answer; `nothing` says why none can be answered: no cell finished."""

    def one(claim: Stated) -> Found:
        why = nothing or claim.unmeasured
        found: Found = unknown(why) if why else getattr(paper.judges, claim.key)(table)
        return found

    return tuple(Answered(claim, one(claim)) for claim in paper.claims)


def heard(
    voices: Sequence[Voice], what: str, missing: str, ratio: str = "", *, read_off: bool = False
) -> Found:
    """Return the answer that the voices come to.

    `what` names them (`series`), `missing` is said without any, `ratio` says what the voices' values are.
    One surely against it fails a claim; it holds where most are surely for it, else it is unsure.
    """
    if not voices:
        return unknown(missing)
    for_, against = (sum(v.holds is side for v in voices) for side in (True, False))
    unsure = len(voices) - for_ - against
    order = {False: 0, True: 1, None: 2}
    lines = tuple(v.text for v in sorted(voices, key=lambda v: order[v.holds]))
    agree = f"{for_} of {len(voices)}"
    parts = [f"{agree} {what} agree{_by_sharing(voices) if for_ and against else ''}"]
    parts += [f"{against} do not"] if against else []
    parts += [f"{unsure} unsure (within the noise, or no interval)"] if unsure else []
    answer = Answer.FAILS if against else Answer.HOLDS if for_ > unsure else Answer.UNSURE
    cells = [c for v in voices for c in v.cells]
    text = ", ".join(parts) + _span(voices, ratio) + ("" if read_off else untrusted(cells))
    return Found(answer, text, distinct(cells), lines, agree)


def held(
    ratio: Field, words: tuple[str, str], cells: Sequence[Row], *, rises: bool = True, exact: bool = False
) -> Voice | None:
    """Return the voice of a ratio that must lie above 1, or below it; None where it was not measured.

    `words` are what stands before and behind the ratio; `exact` figures are read off, not sampled.
    """
    if not isinstance(ratio, Measured):
        return None
    side = above(ratio, exact=exact)
    holds = side if rises or side is None else not side
    return Voice(holds, f"{words[0]}{times(ratio)}{words[1]}", cells, ratio.value)


def _by_sharing(voices: Sequence[Voice]) -> str:
    """Return ` (time slicing 3 of 18, MPS 18 of 18)` where there are several ways of sharing."""
    groups: dict[str, list[Voice]] = {}
    for voice in voices:
        crowd = [c.trial for c in voice.cells if c.trial.processes > 1 or c.trial.sharing != "time_slicing"]
        groups.setdefault(sharing_words(crowd[-1]) if crowd else "one process", []).append(voice)
    if len(groups) < 2:
        return ""
    shown = (f"{name} {sum(v.holds is True for v in g)} of {len(g)}" for name, g in groups.items())
    return f" ({', '.join(shown)})"


def _span(voices: Sequence[Voice], ratio: str) -> str:
    """Return `; latency at the largest P: 1.2x to 6.7x, median 3.1x`."""
    values = [v.value for v in voices if v.value is not None]
    if not ratio or not values:
        return ""
    low, high = (f"{v:.2f}x" if v < 10 else f"{v:.3g}x" for v in (min(values), max(values)))
    return f"; {ratio}: {low}" + ("" if low == high else f" to {high}, median {median(values):.2f}x")


def untrusted(cells: Iterable[Row]) -> str:
    """Return `; 3 of 8 cells were disturbed or throttled`, or ''."""
    every = {c.trial.id: c.verdict.trust for c in cells}
    bad = sum(v in (Trust.DISTURBED, Trust.THROTTLED) for v in every.values())
    return f"; {bad} of {len(every)} cells were disturbed or throttled" if bad else ""


def unknown(why: str, evidence: tuple[str, ...] = ()) -> Found:
    """Return that a claim cannot be checked here, and why."""
    return Found(Answer.UNKNOWN, why, 0, evidence)


def distinct(cells: Iterable[Row]) -> int:
    """Return how many different cells these are."""
    return len({c.trial.id for c in cells})


def per_cent(share: float, places: int = 0) -> str:
    """Return `12 %`."""
    return f"{100 * share:.{places}f} %"


def brief(reason: str) -> str:
    """Return a reason without its evidence where it is long: up to the first bracket, then the first colon."""
    what = reason.partition(". Try:")[0].rstrip(".")
    if len(what) <= LONG:
        return what
    head = what.partition(" (")[0]
    return head if len(head) <= LONG else head.partition(": ")[0]


# -- what a reader sees --------------------------------------------------------------------------------------


def tally(found: Sequence[Answered], *, why: bool = False) -> str:
    """Return `6 of 17 claims hold here, 3 do not, 8 cannot be said`; with why: 2 within the noise, 6 not measurable."""
    n = Counter(each.found.answer for each in found)
    unsaid = {"within the noise": n[Answer.UNSURE], "not measurable": n[Answer.UNKNOWN]}
    reasons = ", ".join(f"{k} {text}" for text, k in unsaid.items() if k) if why else ""
    parts = [f"{n[Answer.HOLDS]} of {len(found)} claims hold here"]
    parts += [f"{n[Answer.FAILS]} do{'es' * (n[Answer.FAILS] == 1)} not"] if n[Answer.FAILS] else []
    parts += [f"{sum(unsaid.values())} cannot be said"] if any(unsaid.values()) else []
    return ", ".join(parts) + (f" ({reasons})" if reasons else "")


def section(paper: Paper, found: Sequence[Answered]) -> Section:
    """Return the claims, a line each, and the evidence of each."""
    lead = (
        f"{paper.title} ({paper.source}): {paper.boards}. A claim holds where most series are for it and none is "
        "surely against it."
    )
    columns = (Column("Claim"), Column("Here"), Column("Agree", level=BRIEF), Column("Found", level=DETAIL))
    rows = []
    for each in found:
        claim, f = each.claim, each.found
        badge, word = LOOKS[f.answer]
        title = Cell(claim.title, f"{claim.says} [{claim.known}]")
        rows.append(doc.Row((title, Cell(Mark(f.answer.value, badge), brief=word), f.agree, f.found)))
    evidence = (
        Items(f.evidence, f"{each.claim.title}: evidence from {f.cells} cells", level=DETAIL)
        for each in found
        if (f := each.found).evidence
    )
    return Section("The paper's claims", (Table(columns, tuple(rows), lead=lead), *evidence))


def plain(found: Sequence[Answered]) -> list[dict[str, Any]]:
    """Return the claims and their answers as plain values."""
    return [
        {
            **{k: v for k, v in vars(each.claim).items() if k != "unmeasured"},
            "answer": each.found.answer.value,
            "found": each.found.found,
            "cells": each.found.cells,
            "evidence": list(each.found.evidence),
        }
        for each in found
    ]
