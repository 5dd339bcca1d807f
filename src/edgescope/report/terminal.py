"""How things look on a terminal: scaled units, tables, notes. Numbers are scaled here and nowhere before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgescope.records import Absent, Field, Measured

BYTES = ((1e-9, "GB"), (1e-6, "MB"), (1e-3, "kB"), (1.0, "B"))
#: unit -> (factor, shown unit) from the largest down; the first whose scaled value reaches 1 is used.
SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")),
    "bytes": BYTES,
    "byte": BYTES,
    "Hz": ((1e-9, "GHz"), (1e-6, "MHz"), (1e-3, "kHz"), (1.0, "Hz")),
    "share": ((100.0, "%"),),
    "J": ((1.0, "J"), (1e3, "mJ"), (1e6, "uJ")),
    "W": ((1.0, "W"), (1e3, "mW")),
}
PLAIN = {"1": "", "samples/s": "samples/s", "queries": ""}


def console(*, stderr: bool = False) -> Console:
    """Return a console; tables are not squeezed below 100 columns when output goes to a file.

    Text is printed as it is: rich would take `[torch]` in a command or a user's name for markup and drop it.
    """
    made = partial(Console, stderr=stderr, highlight=False, markup=False, emoji=False)
    out = made(soft_wrap=False)
    return out if out.is_terminal else made(width=150)


def scale(value: float, unit: str) -> tuple[float, str]:
    """Return (factor, unit) that shows `value` with one to three digits before the point."""
    steps = SCALES.get(unit)
    if steps is None:
        return 1.0, PLAIN.get(unit, unit)
    return next(((f, u) for f, u in steps if abs(value) * f >= 1), steps[-1])


def number(value: float) -> str:
    """Return `value` with three significant digits, more for large whole parts."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def show(field: Field | None, *, interval: bool = True) -> str:
    """Return `1.82 ms [1.80, 1.84]`, or `n/a` for what is absent (the reason goes into the notes)."""
    if field is None or isinstance(field, Absent):
        return "n/a"
    factor, unit = scale(field.value, field.unit)
    text = f"{number(field.value * factor)} {unit}".strip()
    if interval and field.lo is not None and field.hi is not None:
        text += f" [{number(field.lo * factor)}, {number(field.hi * factor)}]"
    return text


def why(field: Field | None) -> str:
    """Return the value, or the reason why there is none."""
    return field.reason if isinstance(field, Absent) else show(field)


def ratio(field: Field) -> str:
    """Return `8.31x [8.02, 8.60]`."""
    if isinstance(field, Absent):
        return "n/a"
    text = f"{number(field.value)}x"
    return (
        text if field.lo is None or field.hi is None else f"{text} [{number(field.lo)}, {number(field.hi)}]"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str = "") -> None:
    """Print a table on stdout."""
    grid = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for index, name in enumerate(header):
        grid.add_column(name, overflow="fold", no_wrap=index == 0)
    for row in rows:
        grid.add_row(*row)
    console().print(grid)


def note(text: str) -> None:
    """Print a sentence under a table."""
    console().print(Text(text, style="dim"))


def measured(field: Field | None) -> Measured | None:
    """Return the field when it was measured."""
    return field if isinstance(field, Measured) else None
