"""Makes the page of any paper: paper.toml says which parts in which order, the paper's own module what is in them.

    [[part]] kind = "answer", "claims"    the answer; the claims with their answers
             kind = "table"               `rows` names the readings, `columns` what each says of a reading (`of`);
                                          one with `known` is left out if no reading has its figure
             kind = "bars", "marks"       a figure of readings (plot.py): `of` names a mark, `series` its values
             kind = "items", "text"       `lines` names the sentences
             kind = "section"             `title` over `parts`
             kind = "own"                 `part` names one that the module made, where no data says it

A reading is one row under the names of its values: tables, figures and CSV print the same one, so they agree. `{name}`
is a word of the module's or of the paper's head. A column or series with `each` is repeated for each of a list (the
list itself, or its name in paper.toml or among the lines), which `{each}` names; `use` names a list of them. A part of
a page on which nothing was measured is left out unless it is `always` there, and so is one with nothing in it, but a
table of DATA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from edgescope.analysis.cells.machines import called
from edgescope.errors import UsageError
from edgescope.records import Machine, Measured, Result
from edgescope.report import document as doc
from edgescope.wings.studies import claim
from edgescope.wings.studies.paper import Paper, papers

if TYPE_CHECKING:
    from edgescope.store.results import Store

Reading = Mapping[str, Any]
"""One row: name -> its value, as a table's cell holds it."""
Spec = Mapping[str, Any]
WORD = re.compile(r"(?<!%)\{(\w+)\}")
"""A word to fill in; `%{x}` is plotly's."""
COLUMN = {each.name for each in fields(doc.Column)}


@dataclass(frozen=True)
class Content:
    """What a paper's own module says of some results."""

    title: str
    answer: doc.Answer
    rows: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    lines: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    own: Mapping[str, doc.Part | None] = field(default_factory=dict)
    claims: Sequence[claim.Answered] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    """What JSON prints."""


def study(
    name: str,
    store: Store,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    command: str = "",
    **options: Any,
) -> doc.Document:
    """Return the document that compares a paper with one machine's results; read raw rows only of the results used.

    `store` holds the raw rows of `results`. `models`: beginnings of names; `options`: the flags of this study.
    UsageError for an unknown study, mixed machines, or an option that names something that the store lacks.
    """
    from edgescope.analysis.cells import machines

    if name not in papers():
        raise UsageError(
            "E-PAPER-1", f"no study is called {name!r}", evidence=f"known: {', '.join(papers())}"
        )
    paper = papers()[name]
    mine = [r for r in results if not models or r.trial.model.startswith(models)]
    wanted = [r for r in mine if paper.own.wanted(r.trial, models, **options)]
    used, left = store.fulls(machines.one(wanted)), len(mine) - len(wanted)
    return document(paper, used, models=models, left_out=left, command=command, **options)


def document(paper: Paper, results: Iterable[Result], *, command: str = "", **options: Any) -> doc.Document:
    """Return the page of a paper about these results; `options` are those of its own module."""
    return of(paper, paper.own.content(paper, results, **options), command)


def of(paper: Paper, content: Content, command: str = "") -> doc.Document:
    """Return the page with this content."""
    parts = _Page(paper, content).parts(paper.page["part"])
    return doc.Document(content.title, parts, {"command": command, **content.data}, command)


def where(machine: Machine | None) -> str:
    """Return ` on NVIDIA H100`, or '' if no machine is known."""
    return f" on {called(machine)}" if machine else ""


@dataclass(frozen=True)
class _Page:
    paper: Paper
    content: Content

    @property
    def known(self) -> Mapping[str, Any]:
        """Return the lists that a spec can name."""
        return {**self.paper.page, **self.content.lines}

    def parts(self, specs: Sequence[Spec]) -> tuple[doc.Part | None, ...]:
        nothing = self.content.answer.kind == "none"
        return tuple(self.part(spec) for spec in specs if not nothing or spec.get("always"))

    def part(self, spec: Spec) -> doc.Part | None:
        made: doc.Part | None = getattr(self, f"_{spec['kind']}")(spec, doc.Level(spec.get("level", "main")))
        return made

    def _answer(self, spec: Spec, level: doc.Level) -> doc.Answer:
        return self.content.answer

    def _claims(self, spec: Spec, level: doc.Level) -> doc.Section:
        return claim.section(self.paper, self.content.claims)

    def _own(self, spec: Spec, level: doc.Level) -> doc.Part | None:
        return self.content.own.get(spec["part"])

    def _items(self, spec: Spec, level: doc.Level) -> doc.Items | None:
        found = tuple(self.known[spec["lines"]])
        return doc.Items(found, spec.get("title", ""), spec.get("look", "plain"), level) if found else None

    def _text(self, spec: Spec, level: doc.Level) -> doc.Text | None:
        text = " ".join(self.known[spec["lines"]]) if "lines" in spec else spec["text"]
        return doc.Text(text, spec.get("look", ""), level) if text else None

    def _section(self, spec: Spec, level: doc.Level) -> doc.Section | None:
        inner = tuple(part for each in spec["parts"] if (part := self.part(each)) is not None)
        return doc.Section(self.filled(spec["title"]), inner, level=level) if inner else None

    def _table(self, spec: Spec, level: doc.Level) -> doc.Table | None:
        rows = self.content.rows[spec["rows"]]
        if not rows and level is not doc.DATA:
            return None
        every = [{"of": one.get("key"), **one} for one in self.each(spec["columns"])]
        told = [one for one in every if not one.get("known") or _any(rows, one["of"])]
        made = (doc.Row(tuple(row[one["of"]] for one in told), row.get("look", "")) for row in rows)
        title, lead = (self.filled(spec.get(name, "")) for name in ("title", "lead"))
        return doc.Table(
            tuple(map(_column, told)), tuple(made), title, lead or None, level, grid=spec.get("grid", False)
        )

    def _figure(self, spec: Spec, level: doc.Level) -> doc.Figure | None:
        rows = self.content.rows[spec["rows"]]
        told = {name: self.filled(text) if isinstance(text, str) else text for name, text in spec.items()}
        told["series"] = list(self.each(spec["series"]))
        draw = partial(_drawn, told, rows)
        return doc.Figure(spec["name"], told["title"], told["caption"], draw) if rows else None

    _bars = _marks = _figure

    def each(self, specs: Sequence[Spec]) -> Iterator[dict[str, Any]]:
        """Yield columns or series, those with `each` once for each of its list."""
        for spec in specs:
            if "use" in spec:
                yield from self.each(self.known[spec["use"]])
                continue
            listed = spec.get("each", ("",))
            for one in self.known[listed] if isinstance(listed, str) else listed:
                words = {"each": str(one), "Each": str(one).capitalize()}
                yield {
                    name: self.filled(value, words) if isinstance(value, str) else value
                    for name, value in spec.items()
                    if name != "each"
                }

    def filled(self, text: str, words: Mapping[str, str] | None = None) -> str:
        """Return a text with its words; what is no word stays."""
        known = {**vars(self.paper), **self.content.words, **(words or {})}
        return WORD.sub(lambda m: str(known.get(m[1], m[0])), text)


def _column(spec: Spec) -> doc.Column:
    own = {name: value for name, value in spec.items() if name in COLUMN}
    return doc.Column(**{"title": spec.get("key", ""), **own})


def _any(rows: Sequence[Reading], name: str) -> bool:
    return any(isinstance(row[name], Measured) for row in rows)


def _drawn(spec: Spec, rows: Sequence[Reading]) -> Any:
    from edgescope.wings.studies import plot  # only a page needs plotly

    return {"bars": plot.bars, "marks": plot.marks}[spec["kind"]](spec, rows)
