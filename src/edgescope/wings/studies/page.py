"""Makes the page of any paper: paper.toml says which parts in which order, the paper's own module what is in them.

    [[part]] kind = "answer", "claims"    the answer; the claims with their answers
             kind = "table"               `rows` names the readings, `columns` what each says of a reading (`of`);
                                          one with `known` is left out if no reading has its figure
             kind = "bars", "marks"       a figure of readings: `of` names a mark, `series` what is drawn of each: its
                                          `name`, the reading `of` its values, its look; `whiskers`: their intervals;
                                          `says` names what hovering shows, `hover` is plotly's template for it
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

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from edgescope.analysis.cells.machines import called
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.plots.style import COLOURS, INK, LINE, Figure, axis, bounds, layout, log_ticks
from edgescope.records import Machine, Measured, Result, Trial
from edgescope.report import document as doc
from edgescope.wings.studies import claim
from edgescope.wings.studies.boards import Entry
from edgescope.wings.studies.paper import Paper

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
    entries: Sequence[Entry] = ()
    """What this machine did of each piece of the study's work, for the page of several boards."""
    printed: Sequence[tuple[str, Entry]] = ()
    """What the paper printed: each board's name with what it did of a piece of work."""


def document(paper: Paper, results: Iterable[Result], *, command: str = "", **options: Any) -> doc.Document:
    """Return the page of a paper about these results; `options` are those of its own module."""
    return of(paper, content_of(paper, results, **options), command)


def content_of(paper: Paper, results: Iterable[Result], **options: Any) -> Content:
    """Return what a paper's own module says of one machine's results."""
    found: Content = paper.own.content(paper, results, **options)
    return found


def of(paper: Paper, content: Content, command: str = "") -> doc.Document:
    """Return the page with this content."""
    parts = _Page(paper, content).parts(paper.page["part"])
    return doc.Document(content.title, parts, {"command": command, **content.data}, command)


def reasons(results: Iterable[Result], named: Callable[[Trial], str]) -> list[str]:
    """Return why cells have no figure: a reason that several share once, with the cells by their names."""
    found, every = dict[str, list[str]](), list(results)
    measured = {result.trial.cell for result in every if result.status in MEASURED}
    for result in every:
        if result.trial.cell not in measured:
            found.setdefault(str(result.reason or result.status.value), []).append(named(result.trial))
    return [f"{_some(list(dict.fromkeys(cells)))}: {why}" for why, cells in found.items()]


def of_trial(trial: Trial) -> str:
    """Return a trial as a page names it that has no names of its own."""
    return f"{trial.model.partition('#')[0]} {trial.label}"


def _some(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


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
    return {"bars": bars, "marks": marks}[spec["kind"]](spec, rows)


# -- figures: bars or marks, one line or group for each reading -----------------------------------------------


ROW_PX, UPRIGHT_PX = 44, 380
Rows = Sequence[Mapping[str, Any]]


def bars(spec: Spec, rows: Rows) -> Figure:
    """Return one bar for each reading, its series in it (`stack`) or beside each other; `marks` lie over the bars."""
    import plotly.graph_objects as go

    names, figure = _names(spec, rows), go.Figure()
    for colour, series in zip(COLOURS, spec["series"], strict=False):
        found = [row.get(series["of"]) for row in rows]
        figure.add_bar(
            y=names,
            x=list(map(_number, found)),
            name=series["name"],
            orientation="h",
            marker_color=colour,
            customdata=[row.get(series["says"]) for row in rows] if "says" in series else None,
            hovertemplate=series.get("hover"),
            error_x=_whiskers(found) if series.get("whiskers") else None,
        )
    for series in spec.get("marks", ()):
        _mark(figure, names, rows, series)
    mode = "stack" if spec.get("stack") else "group"
    figure.update_layout(
        layout(height=150 + ROW_PX * len(names), barmode=mode, showlegend=True, bargap=0.3),
    )
    return _laid_out(figure, axis(spec["axis"]), names)


def marks(spec: Spec, rows: Rows) -> Figure:
    """Return the marks of each reading along a logarithmic axis, since halving and doubling are equally far from 1.

    `upright`: the readings stand side by side. `bridged`: a line joins the marks of each; `line_at`: a line across.
    """
    import plotly.graph_objects as go

    names, figure, upright = _names(spec, rows), go.Figure(), spec.get("upright", False)
    if line := spec.get("line_at"):
        figure.add_vline(x=line, line={"color": INK, "width": 1.5, "dash": "dash"})
    for name, row in zip(names, rows, strict=True) if spec.get("bridged") else ():
        values = [v for one in spec["bridged"] if (v := _number(row.get(one))) is not None]
        ends = {"x": [min(values), max(values)], "y": [name] * 2, "line": {"color": LINE, "width": 3}}
        figure.add_scatter(**ends, mode="lines", hoverinfo="skip", showlegend=False)
    for series in spec["series"]:
        _mark(figure, names, rows, series, upright)
    height = UPRIGHT_PX if upright else 150 + ROW_PX * len(names)
    figure.update_layout(layout(height=height, showlegend=True))
    low, high = _reach(spec, rows)
    suffix = spec.get("suffix", "")
    values_axis = axis(spec["axis"], type="log", tickvals=log_ticks(low, high), ticksuffix=suffix)
    values_axis["range"] = [math.log10(low), math.log10(high)]
    return _laid_out(figure, values_axis, names, upright)


def _names(spec: Spec, rows: Rows) -> list[str]:
    return [html.escape(str(row[spec["of"]])) for row in rows]


def _number(value: object) -> float | None:
    """Return a value that can be drawn: of a field, what was measured."""
    value = value.value if isinstance(value, Measured) else value
    return value if isinstance(value, int | float) else None


def _mark(figure: Figure, names: Sequence[str], rows: Rows, series: Spec, upright: bool = False) -> None:
    """Draw one series of marks; nothing if no reading has a value."""
    known = [(n, r) for n, r in zip(names, rows, strict=True) if _number(r.get(series["of"])) is not None]
    if not known:
        return
    fields = [row[series["of"]] for _, row in known]
    along, values = [name for name, _ in known], list(map(_number, fields))
    x, y = (along, values) if upright else (values, along)
    colour = COLOURS[series["colour"]] if "colour" in series else INK
    hover = series.get("hover", f"%{{{'x' if upright else 'y'}}}: %{{text}}<extra></extra>")
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+markers" if series.get("joined") else "markers",
        name=series["name"],
        line={"color": colour, "width": 2},
        marker={
            "symbol": series.get("symbol", "circle"),
            "size": series.get("size", 10),
            "color": colour,
            "line": {"width": series.get("line", 0), "color": colour},
        },
        text=[html.escape(row[series["says"]]) for _, row in known] if "says" in series else None,
        hovertemplate=hover,
        error_x=_whiskers(fields) if series.get("whiskers") else None,
    )


def _whiskers(fields: Sequence[object]) -> dict[str, Any]:
    below, above = zip(*(bounds(f) if isinstance(f, Measured) else (0.0, 0.0) for f in fields), strict=True)
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1.5}


def _reach(spec: Spec, rows: Rows) -> tuple[float, float]:
    """Return the ends of the axis, around all marks and whiskers; whiskers are cut at three times the largest mark."""
    found = [(row.get(one["of"]), one.get("whiskers")) for one in spec["series"] for row in rows]
    values = [v for field, _ in found if (v := _number(field)) is not None]
    ends = [f.hi for f, whole in found if whole and isinstance(f, Measured) and f.hi is not None]
    least = [*values, *([0.9 * spec["line_at"]] if "line_at" in spec else [])]
    return min(least) / 1.1, min(max([*values, *ends]) * 1.15, 3 * max(values))


def _laid_out(figure: Figure, values: dict[str, Any], names: list[str], upright: bool = False) -> Figure:
    order = names if upright else names[::-1]
    along = axis("", categoryorder="array", categoryarray=order) | (
        {} if upright else {"ticks": "", "showgrid": False}
    )
    figure.update_layout(
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"size": 12.5}},
        xaxis=along if upright else values,
        yaxis=values if upright else along,
    )
    return figure
