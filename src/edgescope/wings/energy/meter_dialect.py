"""How the log of a meter is to be read, as far as a user says so, and what is said of a log that is not understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgescope.errors import UsageError

QUANTITIES = ("time", "power", "voltage", "current", "energy")
"""What a column of a meter's log can hold; the names of the flags --QUANTITY-column and --QUANTITY-unit."""


@dataclass(frozen=True)
class Dialect:
    """What a user says about a log; what is left out is recognised, or the log is refused."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Quantity -> the name of its column, or its number from 1 on."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Quantity -> the unit of its column: ms, mW, V ..."""
    only: str = ""
    """COLUMN=VALUE: the rows that are read, where rows are of several devices."""
    total: str = ""
    """The column that tells devices apart whose power is added up."""
    repeated: str = ""
    """What rows of one time are: `mean` of one meter with a coarse clock, or `sum` of one row a device."""
    decimal: str = ""
    """The decimal mark: . or ,"""
    dates: str = ""
    """The order of 05/04/2026: `dmy` or `mdy`."""


def refused(code: str, what: str, *, evidence: str = "", fix: str = "") -> UsageError:
    """Return the error about a log that is not used."""
    fix = fix or "--time-column NAME --power-column NAME"
    return UsageError(code, what, evidence=evidence[:200], effect="The log was not used", fix=fix)
