"""What an answer is made of: a value with its unit and interval, or why there is none: never 0, never a guess.

Every answer prints as a few readable lines, and becomes a pandas or Polars data frame.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgescope.errors import UnavailableError

FRAMES = ("pandas", "polars")
#: Most rows that are printed.
PRINTED = 12


def frame(columns: Mapping[str, Any]) -> Any:
    """Return the columns as a pandas or Polars data frame; UnavailableError if neither is installed."""
    for name in FRAMES:
        if importlib.util.find_spec(name) is not None:
            module = importlib.import_module(name)
            return module.DataFrame(dict(columns), **({"strict": False} if name == "polars" else {}))
    raise UnavailableError(
        "E-FRAME-1",
        "a data frame needs pandas or Polars",
        evidence="neither is installed",
        fix="pip install pandas",
    )


def plain(field: Field) -> float | None:
    """Return the value of a figure, or None if it was not measured."""
    return field.value if isinstance(field, Measured) else None


def figure_text(name: str, field: Field) -> str:
    """Return a figure as text, `latency_p50_s 0.00512 s`, or its name with the reason if it was not measured."""
    if isinstance(field, Absent):
        return f"{name} n/a: {field.reason}"
    ends = "" if field.lo is None or field.hi is None else f" [{field.lo:.4g}, {field.hi:.4g}]"
    return f"{name} {field.value:.4g} {field.unit}{ends}"


class Answer:
    """The answer of a verb; a subclass defines its `lines` and its `records`."""

    def lines(self) -> Iterable[str]:
        """Yield the lines to print."""
        raise NotImplementedError

    def records(self) -> Sequence[Mapping[str, Json]]:
        """Return the rows of its table, each a mapping column -> value; a missing value is None."""
        raise NotImplementedError

    def __repr__(self) -> str:
        every = list(self.lines())
        more = len(every) - PRINTED
        return "\n".join([*every[:PRINTED], *([f"... and {more} more"] if more > 0 else [])])

    def frame(self) -> Any:
        """Return its rows as a data frame; UnavailableError if neither pandas nor Polars is installed."""
        rows = self.records()
        names = dict.fromkeys(name for row in rows for name in row)
        return frame({name: [row.get(name) for row in rows] for name in names})


Scalar = str | int | float | bool
Json = Any  # what json.loads returns


@dataclass(frozen=True)
class Measured:
    """A measured value in `unit`, with a 95 % interval if there is one, and the count behind it."""

    value: float
    unit: str
    lo: float | None = None
    hi: float | None = None
    n: int = 1


@dataclass(frozen=True)
class Absent:
    """A value that was not measured, and why."""

    reason: str


Field = Measured | Absent


def digest(value: Json) -> str:
    """Return sixteen hex digits of the SHA-256 of `value` as canonical JSON."""
    import hashlib  # loads OpenSSL

    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
