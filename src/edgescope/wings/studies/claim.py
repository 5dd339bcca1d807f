"""Judges the claims of a paper by this machine's cells: a claim holds, does not hold, or cannot be decided.

A claim is about many series (for example a model at a precision and batch, over processes). Each series is a voice: for
the claim, against it, or within the noise. The claim holds if most voices are for it and none is against it, fails if
one is surely against it, and is unsure if half or more are within the noise. Counts and figures are reported, so
that a reader can judge differently. A claim whose counter or cells are missing names them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any, Generic, TypeVar

from edgescope.analysis.cells.concurrency import sharing_words, times
from edgescope.analysis.cells.replicates import above
from edgescope.analysis.cells.row import Row
from edgescope.records import Field, Measured, Trust
from edgescope.report import document as doc
from edgescope.report.document import BRIEF, DETAIL, Cell, Column, Items, Mark, Section, Table
from edgescope.wings.studies.paper import Paper, Stated

LONG = 90
"""Longest reason, in characters, that is printed whole; a longer one loses its evidence."""
T = TypeVar("T")


class Answer(str, Enum):
    """The outcome of a claim on this machine."""

    HOLDS = "holds"
    FAILS = "does not hold here"
    UNSURE = "unsure here"
    UNKNOWN = "not measurable here"


#: Answer -> its badge on a page, and the words on a terminal.
LOOKS: Mapping[Answer, tuple[str, str]] = {
    Answer.HOLDS: ("badge clean", "✓ holds"),
    Answer.FAILS: ("badge throttled", "✗ does not"),
    Answer.UNSURE: ("badge disturbed", "~ in noise"),
    Answer.UNKNOWN: ("badge none", "? unmeasured"),
}


@dataclass(frozen=True)
class Found:
    """The answer to a claim, with the figures behind it."""

    answer: Answer
    found: str
    """One sentence with figures."""
    cells: int = 0
    """Number of cells behind the answer."""
    evidence: tuple[str, ...] = ()
    """One line for each series, those against the claim first."""
    agree: str = ""
    """`16 of 28`: how many voices are for the claim."""


@dataclass(frozen=True)
class Answered:
    """A claim with its answer."""

    claim: Stated
    found: Found


@dataclass(frozen=True)
class Voice:
    """Whether one series supports a claim."""

    holds: bool | None
    """None: within the noise."""
    text: str
    """The series and its figures."""
    cells: Sequence[Row]
    value: float | None = None
    """The ratio behind the voice, if it is one."""


@dataclass(frozen=True)
class Claim(Generic[T]):
    """The rule of a claim: the voice of each series of a table."""

    voices: Callable[[T], Iterable[Voice | None]]
    missing: str | Callable[[T], str]
    """The reason to print if there is no voice."""
    ratio: str = ""
    """The meaning of the voices' values."""
    of: str = "series"
    read_off: bool = False
    """Whether a disturbed machine does not matter, as for memory."""
    often: bool = False
    """Whether the claim says `often`: fewer voices against it than for it do not make it fail."""

    def __call__(self, table: T) -> Found:
        """Return the answer that a table's voices give."""
        voices = [v for v in self.voices(table) if v is not None]
        missing = self.missing if isinstance(self.missing, str) else self.missing(table)
        return heard(voices, self.of, missing, self.ratio, read_off=self.read_off, often=self.often)


def answered(
    paper: Paper, table: T, nothing: str = "", boards: Callable[[Stated], Found] | None = None
) -> tuple[Answered, ...]:
    """Return every claim of a paper with its answer; `nothing` is the reason if no claim can be answered.

    `boards` judges the claims about machines.
    """

    def one(claim: Stated) -> Found:
        if claim.boards and boards:
            return boards(claim)
        why = nothing or claim.unmeasured
        found: Found = unknown(why) if why else getattr(paper.judges, claim.key)(table)
        return found

    return tuple(Answered(claim, one(claim)) for claim in paper.claims)


def heard(
    voices: Sequence[Voice],
    what: str,
    missing: str,
    ratio: str = "",
    *,
    read_off: bool = False,
    often: bool = False,
) -> Found:
    """Return the answer that the voices give.

    `what` names the voices (`series`), `missing` is the reason if there are none, `ratio` says what their values mean.
    A claim fails if one voice is surely against it (`often`: if as many are against it as for it); it holds if most are
    surely for it, and is unsure otherwise.
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
    fails = against >= for_ if often else against
    answer = Answer.FAILS if against and fails else Answer.HOLDS if 2 * for_ > len(voices) else Answer.UNSURE
    cells = [c for v in voices for c in v.cells]
    text = ", ".join(parts) + _span(voices, ratio) + ("" if read_off else untrusted(cells))
    return Found(answer, text, distinct(cells), lines, agree)


def held(
    ratio: Field, words: tuple[str, str], cells: Sequence[Row], *, rises: bool = True, exact: bool = False
) -> Voice | None:
    """Return the voice of a ratio that must lie above 1 (`rises`) or below; None if it was not measured.

    `words` are the texts before and after the ratio; an `exact` figure is read, not sampled, and has no noise.
    """
    if not isinstance(ratio, Measured):
        return None
    side = above(ratio, exact=exact)
    holds = side if rises or side is None else not side
    return Voice(holds, f"{words[0]}{times(ratio)}{words[1]}", cells, ratio.value)


def _by_sharing(voices: Sequence[Voice]) -> str:
    """Return ` (time slicing 3 of 18, MPS 18 of 18)`, or '' if there is only one way of sharing."""
    groups: dict[str, list[Voice]] = {}
    for voice in voices:
        several = [c.trial for c in voice.cells if c.trial.processes > 1 or c.trial.sharing != "time_slicing"]
        groups.setdefault(sharing_words(several[-1]) if several else "one process", []).append(voice)
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
    """Return the answer `not measurable here` with the reason `why`."""
    return Found(Answer.UNKNOWN, why, 0, evidence)


def distinct(cells: Iterable[Row]) -> int:
    """Return how many different cells these are."""
    return len({c.trial.id for c in cells})


def per_cent(share: float, places: int = 0) -> str:
    """Return `12 %`."""
    return f"{100 * share:.{places}f} %"


def brief(reason: str) -> str:
    """Return a reason; a long one is cut at its first bracket, or else at its first colon."""
    what = reason.partition(". Try:")[0].rstrip(".")
    if len(what) <= LONG:
        return what
    head = what.partition(" (")[0]
    return head if len(head) <= LONG else head.partition(": ")[0]


# -- what a reader sees --------------------------------------------------------------------------------------


def tally(found: Sequence[Answered], *, why: bool = False) -> str:
    """Return `6 of 17 claims hold here, 3 do not, 8 cannot be decided`; with `why`, how many for which reason."""
    n = Counter(each.found.answer for each in found)
    unsaid = {"within the noise": n[Answer.UNSURE], "not measurable": n[Answer.UNKNOWN]}
    reasons = ", ".join(f"{k} {text}" for text, k in unsaid.items() if k) if why else ""
    parts = [f"{n[Answer.HOLDS]} of {len(found)} claims hold here"]
    parts += [f"{n[Answer.FAILS]} do{'es' * (n[Answer.FAILS] == 1)} not"] if n[Answer.FAILS] else []
    parts += [f"{sum(unsaid.values())} cannot be decided"] if any(unsaid.values()) else []
    return ", ".join(parts) + (f" ({reasons})" if reasons else "")


def section(paper: Paper, found: Sequence[Answered]) -> Section:
    """Return the section with one line for each claim, and the evidence of each."""
    lead = (
        f"{paper.title} ({paper.source}): {paper.boards}. A claim holds if most series are for it and none is "
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
