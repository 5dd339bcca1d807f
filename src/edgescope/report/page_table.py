"""Tables of a page: a row a thing, a column a measured quantity in one unit, each value with its interval below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgescope.records import Absent, Field
from edgescope.report.markup import Child, Markup, tag
from edgescope.report.numbers import Format, absence, times


@dataclass(frozen=True)
class Column:
    """A heading, its unit, and one cell a row."""

    words: str
    unit: str
    cells: Sequence[Markup]


Formatter = Callable[[Iterable[Field]], Format]


def column(name: str, fields: Sequence[Field], form: Formatter = times, unit: str = "") -> Column:
    """Return a column of measured fields in one unit, each with its interval."""
    look = form(fields)
    heading = f"{name} ({look.unit})" if look.unit else name
    return Column(name, unit or look.unit, [cell(f, look, heading) for f in fields])


def cell(field: Field, look: Format, heading: str) -> Markup:
    """Return one value with its interval below; `n/a` with the reason on hovering."""
    if isinstance(field, Absent):
        return tag("td", "n/a", class_="num absent", data_label=heading, title=absence(field))
    between = look.interval(field)
    small = tag("span", between, class_="ci") if between else None
    hover = f"{field.value:.6g} {field.unit if field.unit != '1' else ''}, n = {field.n:,}"
    return tag(
        "td",
        tag("span", look.number(field.value), class_="v"),
        small,
        class_="num",
        data_label=heading,
        title=hover,
    )


def num(text: Child, heading: str, *, more: Child = None) -> Markup:
    """Return a right-aligned cell of text as it is."""
    return tag("td", text, more, class_="num", data_label=heading)


def scroll(names: Sequence[Markup], columns: Sequence[Column], first: str = "Network") -> Markup:
    """Return the table: one row a name, headings with their units."""
    head = [tag("th", first, scope="col")]
    for c in columns:
        kind = "num" if c.cells and 'class="num' in c.cells[0] else None
        head.append(
            tag(
                "th",
                c.words,
                tag("span", c.unit, class_="unit") if c.unit else None,
                class_=kind,
                scope="col",
            )
        )
    body = [tag("tr", name, [c.cells[i] for c in columns]) for i, name in enumerate(names)]
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", body), class_="variants stack")
    return tag("div", table, class_="scroll")
