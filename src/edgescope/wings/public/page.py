"""Published figures as a table, and a result beside them."""

from __future__ import annotations

from edgescope import units
from edgescope.records import Json, Measured
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.units import counted
from edgescope.wings.public.numbers import Number
from edgescope.wings.public.verb import Beside, Public, counted_of, record


def document(found: Public, command: str = "") -> doc.Document:
    """Return the list, or the result beside it: the same quantities first, then why the rest is none."""
    data = {"figures": [_data(row, beside=bool(found.result)) for row in found.rows]}
    if not found.result:
        title = counted(len(found.rows), "published figure")
        parts: tuple[doc.Part, ...] = (doc.Text(title, "lead"), _listing(found.rows), _sources(found.rows))
        return doc.Document(title, parts, data, command)
    same = [row for row in found.rows if row.comparable]
    rest = [row for row in found.rows if not row.comparable]
    title = f"{found.result} beside what others published"
    parts = (
        doc.Answer("", title, (counted_of(found), *_nearest(same))),
        *((_compared(same),) if same else ()),
        *_why_not(rest),
        _sources(found.rows),
    )
    return doc.Document(title, parts, data, command)


def _data(row: Beside, *, beside: bool) -> dict[str, Json]:
    """Return one figure as JSON has it, with the fields of ours and the ratio whole."""
    whole = {"ours": to_plain(row.ours), "ratio": to_plain(row.ratio)} if beside else {}
    return record(row, beside=beside) | whole


def _nearest(same: list[Beside]) -> tuple[str, ...]:
    """Return the ratio to the figure with the nearest settings, and what can be tried."""
    if not same:
        return ()
    first, n = same[0], same[0].number
    told = f"nearest: {units.ratio(first.ratio)} of {_value(first)} on {_place(n)}"
    return (told, *((f"try here: {' '.join(first.tries)}",) if first.tries else ()))


def _listing(rows: tuple[Beside, ...]) -> doc.Table:
    heads = ("model", "board", "precision", "batch", "figure", "published", "value")
    table = [
        doc.Row((n.model, _place(n), n.precision, n.batch, n.definition.name, n.published, _value(row)))
        for row in rows
        for n in (row.number,)
    ]
    columns = [doc.Column(head, rank=rank) for head, rank in zip(heads, (0, 0, 0, 3, 2, 1, 0), strict=True)]
    return doc.Table(tuple(columns), tuple(table))


def _place(number: Number) -> str:
    """Return `rpi4`, or `agx_xavier cpu` where the board's GPU was not used."""
    return " ".join(filter(None, (number.board or "not named", number.processor)))


def _value(row: Beside) -> str:
    return units.text(row.number.value, row.number.unit if row.number.unit != "1" else "")


def _compared(rows: list[Beside]) -> doc.Table:
    heads = (
        doc.Column("published on"),
        doc.Column("figure", rank=1),
        doc.Column("published"),
        doc.Column("ours", "1"),
        doc.Column("ratio", "ratio"),
        doc.Column("differs", rank=2),
    )
    return doc.Table(heads, tuple(_row(row) for row in rows))


def _row(row: Beside) -> doc.Row:
    n, ours = row.number, doc.Cell(row.ours, brief=units.show(row.ours))
    ratio = doc.Cell(row.ratio, brief=units.ratio(row.ratio)) if isinstance(row.ratio, Measured) else ""
    differs = "; ".join(row.differs)
    return doc.Row((_place(n), n.definition.name, _value(row), ours, ratio, differs))


def _why_not(rest: list[Beside]) -> tuple[doc.Text, ...]:
    """Return why figures are not the same quantity, and what would measure it, each reason once."""
    reasons: dict[tuple[str, str], int] = {}
    for row in rest:
        key = (units.why(row.ours) if not isinstance(row.ours, Measured) else "", " ".join(row.tries))
        reasons[key] = reasons.get(key, 0) + 1
    return tuple(
        doc.Text(f"{counted(count, 'figure')} not comparable: {why}{f'. Try: {fix}' if fix else ''}", "dim")
        for (why, fix), count in reasons.items()
    )


def _sources(rows: tuple[Beside, ...]) -> doc.Items:
    places = dict.fromkeys(f"{row.number.source.partition('#')[0]} ({row.number.licence})" for row in rows)
    return doc.Items(tuple(places), level=doc.DETAIL)
