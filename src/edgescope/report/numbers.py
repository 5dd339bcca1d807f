"""What papers still imports of units.py; goes with its conversion to documents."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from edgescope.records import Field
from edgescope.units import Format, absence, column

times, memory, rates, watts, joules, ratios, shares = (
    partial(column, unit) for unit in ("s", "bytes", "samples/s", "W", "J", "ratio", "share")
)

__all__ = [
    "Field",
    "Format",
    "Iterable",
    "absence",
    "joules",
    "memory",
    "rates",
    "ratios",
    "shares",
    "times",
    "watts",
]
