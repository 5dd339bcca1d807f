"""The page of a study on several boards: what each did, what the claims come to on each, and each board's own page.

The columns of the table are [[beside]] in paper.toml; `better` says which end of a figure wins. A figure of one board
never enters another's: the table sets them side by side, and only claims about boards join two (boards.py). What a
study printed of its own boards stands below, in grey.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from edgescope.analysis.cells.replicates import NOTICED
from edgescope.records import Absent, Field, Measured, Result
from edgescope.records.answers import plain
from edgescope.report import document as doc
from edgescope.report.document import DATA, DETAIL, MAIN, PAGE, Cell, Column, Mark
from edgescope.units import counted, show
from edgescope.wings.studies import boards, claim
from edgescope.wings.studies.boards import Board, Entry
from edgescope.wings.studies.claim import LOOKS, Answered
from edgescope.wings.studies.page import Content, bars, content_of, of, of_trial, reasons
from edgescope.wings.studies.paper import Paper, sweep

PRICE, PER_PRICE = "price", "per_price"
NO_PRICE = Absent("no price is given: --price 'NAME=PRICE'")
LEGEND = "✓ holds  ✗ does not hold  ~ within the noise  ? not measurable here"
LEAST = 18
"""Characters that stay of a piece of work's name in a narrow table."""
Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """One board with what the study's page says of it alone."""

    board: Board
    content: Content
    failures: tuple[str, ...] = ()
    """Which cells have no figure, and why."""


@dataclass(frozen=True)
class Beside:
    """Several boards that did the work of one study."""

    paper: Paper
    every: tuple[Told, ...]
    together: tuple[Answered, ...]
    """The claims about boards, judged by all of them."""

    @property
    def boards(self) -> list[Board]:
        """Return the boards."""
        return [told.board for told in self.every]

    @property
    def works(self) -> list[str]:
        """Return the pieces of the study's work that a board did, in the study's order."""
        return list(dict.fromkeys(e.work for b in self.boards for e in b.entries))

    @property
    def columns(self) -> Sequence[Spec]:
        """Return the figures of the table."""
        found: Sequence[Spec] = self.paper.page.get("beside") or sweep()["beside"]
        return found

    def of(self, work: str) -> Iterator[tuple[Board, Entry]]:
        """Yield each board that did a piece of work, with what it did."""
        for board in self.boards:
            yield from ((board, e) for e in board.entries if e.work == work)

    def printed(self, work: str) -> list[tuple[str, Entry]]:
        """Return what the paper printed of its own boards at a piece of work."""
        every = {name: e for told in self.every for name, e in told.content.printed if e.work == work}
        return list(every.items())

    def best(self, work: str, spec: Spec) -> tuple[Board, Entry] | None:
        """Return the board with the best figure at a piece of work; None if it is not alone in that, or none compares.

        Watts and joules of meters that cover different things do not compare.
        """
        key = spec["key"]
        known = [(b, e, f.value) for b, e in self.of(work) if isinstance(f := e[key], Measured)]
        known.sort(key=lambda one: one[2], reverse=spec["better"] == "higher")
        if len(known) < 2:
            return None
        (board, e, _), *others = known
        ratios = [boards.over(e, other, key) for _, other, _ in others]
        apart = all(isinstance(r, Measured) and abs(r.value - 1) >= NOTICED for r in ratios)
        return (board, e) if apart else None


def beside(
    paper: Paper, groups: Sequence[Sequence[Result]], prices: Mapping[str, float], **options: Any
) -> Beside:
    """Return the boards of these groups of results, one a machine; UsageError for a price that names none of them."""
    pages = [content_of(paper, group, **options) for group in groups]
    alone = [boards.alone(group, page.entries) for group, page in zip(groups, pages, strict=True)]
    names = [board.name for board in alone]
    apart = [replace(board, apart=names.count(board.name) > 1) for board in alone]
    priced = boards.priced(apart, prices)
    failed = [tuple(reasons(group, of_trial)) for group in groups]
    told = tuple(map(Told, priced, pages, failed))
    asked = [each for each in paper.claims if each.boards]
    together = tuple(Answered(each, boards.between(paper, each, priced)) for each in asked)
    return Beside(paper, told, together)


def document(found: Beside, command: str = "") -> doc.Document:
    """Return the page."""
    title = f"{found.paper.heading} on {counted(len(found.every), 'board')}"
    parts = (
        _answer(found),
        _table(found),
        _figures(found),
        _failures(found),
        _claims(found),
        doc.Text("-v prints each board's own page, and the evidence of each claim", "lead", doc.BRIEF),
        *_evidence(found),
        *(_own(found.paper, told) for told in found.every),
        _data_table(found),
    )
    return doc.Document(title, parts, {"command": command, **_data(found)}, command)


# -- the answer ----------------------------------------------------------------------------------------------


def _answer(found: Beside) -> doc.Answer:
    names = ", ".join(board.name for board in found.boards)
    if not found.works:
        none = f"None of {names} finished a piece of the study's work. Measure: {found.paper.measure}"
        return doc.Answer("Nothing measured", "", (none,), none, kind="none")
    said = list(_best(found))
    decided = claim.tally(found.together) if found.together else ""
    short = tuple(filter(None, (*said, f"of the claims about boards: {decided}" if decided else "")))
    reason = ". ".join(line[0].upper() + line[1:] for line in short)
    tiles = [
        doc.Tile(board.name, e[found.columns[0]["key"]], small=(e.how,))
        for work in found.works[:1]
        for board, e in found.of(work)
    ]
    return doc.Answer("Beside each other", names, short, reason, tuple(tiles))


def _best(found: Beside) -> Iterator[str]:
    """Yield which board is best by which figure; of several pieces of work, in how many."""
    wins: dict[str, list[str]] = {}
    for spec in found.columns:
        best = [won for work in found.works if spec.get("better") and (won := found.best(work, spec))]
        if best and len(found.works) > 1:
            counts = Counter(board.name for board, _ in best).most_common()
            each = ", ".join(f"{name} in {n}" for name, n in counts)
            yield f"{spec['best']}: {each} of {len(found.works)}"
            continue
        for board, e in best:
            said = f"{spec['best']} ({show(e[spec['key']], interval=False)})"
            wins.setdefault(board.name, []).append(said)
    yield from (f"{name}: {', '.join(what)}" for name, what in wins.items())


def _failures(found: Beside) -> doc.Items | None:
    lines = tuple(_failed(found))
    level = DETAIL if all(board.entries for board in found.boards) else MAIN
    return doc.Items(lines, "What did not run", "warnings", level) if lines else None


def _failed(found: Beside) -> Iterator[str]:
    """Yield what did not run on each board and why, and what of it was not tried yet."""
    for told in found.every:
        yield from (
            f"{told.board.name}: {why}" for why in (*told.failures, *told.content.lines.get("lacking", ()))
        )


# -- the table -----------------------------------------------------------------------------------------------


def _table(found: Beside) -> doc.Table | None:
    """Return the boards that did each piece of work, and below them the study's own."""
    works = found.works
    if not works:
        return None
    specs = [s for s in _shown(found) if _known(found, s)]
    named = [Column("Work", least=LEAST)] * (len(works) > 1)
    columns = (*named, Column("Board"), *(_column(found, s) for s in specs), Column("Ran as", rank=3))
    rows = []
    for work in works:
        lead = [work] * len(named)
        for b, e in found.of(work):
            rows.append(doc.Row((*lead, _name(b, e), *(_value(b, e, s["key"]) for s in specs), e.how)))
            lead = [""] * len(named)
        for name, e in found.printed(work):
            figures = (e[s["key"]] for s in specs)
            rows.append(doc.Row((*lead, f"{name} (study)", *figures, e.how), "dim"))
    return doc.Table(columns, tuple(rows), "Board for board" if named else f"Board for board: {works[0]}")


def _shown(found: Beside) -> list[Spec]:
    price = {"title": "Price", "unit": "1", "key": PRICE, "head": "price", "rank": 5}
    lead = found.columns[0]
    per = {"title": f"{lead['title']} for a price of 100", "unit": "1", "key": PER_PRICE, "rank": 6}
    priced = any(board.price is not None for board in found.boards)
    return [*found.columns, *([price, {**per, "head": "per 100"}] if priced else [])]


def _known(found: Beside, spec: Spec) -> bool:
    """Return whether a board has the figure, or the reason why none has is worth a column."""
    if not spec.get("rank"):
        return True
    every = [_value(b, e, spec["key"]) for b in found.boards for e in b.entries]
    return any(isinstance(value, Measured) for value in every)


def _column(found: Beside, spec: Spec) -> Column:
    """Return a column; of watts and joules with what the meters cover, if they all cover the same."""
    scopes = {e.scope for b in found.boards for e in b.entries if isinstance(e[boards.POWER], Measured)}
    metered = spec["unit"] in ("W", "J")
    note = (
        next(iter(scopes))
        if metered and len(scopes) == 1
        else "of unlike meters" * (metered and len(scopes) > 1)
    )
    return Column(spec["title"], spec["unit"], head=spec.get("head", ""), rank=spec.get("rank", 0), note=note)


def _name(board: Board, e: Entry) -> Cell:
    marks = [doc.badge(trust) for trust in dict.fromkeys(r.verdict.trust for r in e.runs)]
    return Cell(board.name, tuple(part for mark in marks for part in (mark, " ")))


def _value(board: Board, e: Entry, key: str) -> Field:
    if key not in (PRICE, PER_PRICE):
        return e[key]
    if board.price is None:
        return NO_PRICE
    if key == PRICE:
        return Measured(board.price, "1")
    rate = e[boards.RATE]
    return rate if isinstance(rate, Absent) else Measured(100 * rate.value / board.price, "1")


def _figures(found: Beside) -> doc.Section | None:
    """Return a bar for each board at each piece of work, of each figure by which boards differ in worth."""
    made = []
    for spec in found.columns:
        key = spec["key"]
        rows = [{"work": work, **{b.name: e[key] for b, e in found.of(work)}} for work in found.works]
        if spec.get("better") and any(
            isinstance(row.get(b.name), Measured) for row in rows for b in found.boards
        ):
            series = [{"name": b.name, "of": b.name, "whiskers": True} for b in found.boards]
            how = {
                "of": "work",
                "axis": spec["title"] + (f" ({spec['unit']})" if spec["unit"] != "1" else ""),
                "series": series,
            }
            caption = "Each board as the table says it ran. Whiskers are 95 % intervals."
            made.append(doc.Figure(f"boards-{key}", spec["title"], caption, partial(bars, how, rows)))
    return doc.Section("", tuple(made), level=PAGE) if made else None


# -- the claims ----------------------------------------------------------------------------------------------


def _claims(found: Beside) -> doc.Section | None:
    """Return each claim with its answer on each board, or with that of all together if it is about boards."""
    if not found.paper.claims:
        return None
    about = {each.claim.key: each for each in found.together}
    every = [Column("All")] * bool(about)
    columns = (Column("Claim"), *(Column(b.name) for b in found.boards), *every)
    rows = []
    for i, stated in enumerate(found.paper.claims):
        title = Cell(stated.title, f"{stated.says} [{stated.known}]")
        if stated.key in about:
            rows.append(doc.Row((title, *("" for _ in found.every), _mark(about[stated.key]))))
        else:
            marks = (_mark(told.content.claims[i]) for told in found.every)
            rows.append(doc.Row((title, *marks, *[""] * len(every))))
    lead = f"{found.paper.title} ({found.paper.source}): {found.paper.boards}."
    lead += " The last column judges claims about boards, by all of them." if about else ""
    said = tuple(
        f"{LOOKS[each.found.answer][1][0]} {each.claim.title}: {_said(each)}" for each in found.together
    )
    legend = doc.Text(LEGEND, "lead", doc.BRIEF)
    table = doc.Table(columns, tuple(rows), lead=lead)
    return doc.Section(
        "The paper's claims", (table, legend, doc.Items(said, kind="missing") if said else None)
    )


def _mark(each: Answered) -> Cell:
    badge, word = LOOKS[each.found.answer]
    return Cell(Mark(each.found.answer.value, badge, each.found.found), brief=word[0])


def _said(each: Answered) -> str:
    """Return the figures behind an answer: those of the one piece of work, or what several come to."""
    known = each.found.evidence
    return known[0] if len(known) == 1 else each.found.found


def _evidence(found: Beside) -> Iterator[doc.Items]:
    """Yield what each board says to each claim."""
    for i, stated in enumerate(found.paper.claims):
        if not stated.boards:
            said = ((told.board.name, told.content.claims[i].found) for told in found.every)
            lines = tuple(f"{name}: {LOOKS[f.answer][1]}: {f.found}" for name, f in said)
            yield doc.Items(lines, f"{stated.title}: board for board", level=DETAIL)
    for each in found.together:
        if len(each.found.evidence) > 1:
            yield doc.Items(each.found.evidence, f"{each.claim.title}: evidence", level=DETAIL)


# -- each board's own page -----------------------------------------------------------------------------------


def _own(paper: Paper, told: Told) -> doc.Section:
    """Return a board's own page, folded; names of its figures get the board's, since a page has each name once."""
    name, page = told.board.name, of(paper, told.content)
    anchor = told.board.id[:8] or "unknown"
    parts = tuple(_renamed(part, anchor) for part in page.parts if part and part.level is not DATA)
    return doc.Section(f"{name}: its own page", parts, "folded", level=DETAIL)


def _renamed(part: doc.Part | None, anchor: str) -> doc.Part | None:
    if isinstance(part, doc.Figure):
        return replace(part, name=f"{part.name}-{anchor}")
    if isinstance(part, doc.Section):
        return replace(part, parts=tuple(_renamed(each, anchor) for each in part.parts))
    return part


# -- what a program reads ------------------------------------------------------------------------------------


def _data_table(found: Beside) -> doc.Table:
    specs = _shown(found)
    heads = [Column(name, key=name) for name in ("work", "board", "machine", "how", "meter")]
    figures = [Column(s["key"], s["unit"], s["key"]) for s in specs]
    rows = tuple(
        doc.Row((work, b.name, b.id, e.how, e.scope, *(_value(b, e, s["key"]) for s in specs)))
        for work in found.works
        for b, e in found.of(work)
    )
    return doc.Table((*heads, *figures), rows, level=DATA)


def _data(found: Beside) -> dict[str, Any]:
    keys = [s["key"] for s in _shown(found)]
    each = [
        {
            "board": b.name,
            "machine": b.id,
            "price": b.price,
            "works": [
                {"work": e.work, "how": e.how, "meter": e.scope, **{k: plain(_value(b, e, k)) for k in keys}}
                for e in b.entries
            ],
            "failures": list(told.failures),
            "claims": claim.plain(told.content.claims),
            "page": told.content.data,
        }
        for told in found.every
        for b in [told.board]
    ]
    return {"boards": each, "claims": claim.plain(found.together)}
