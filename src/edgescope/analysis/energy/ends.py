"""What stands beside a power or an energy of one run: an interval at 95 %, or bounds that hold for certain.

Only energy per sample has an interval within one run (analysis.blocks); every other pair of ends says what the meter
cannot have seen of this window. The two answer different questions and may differ in width by a lot.
"""

from __future__ import annotations

from edgescope.records import Absent, Field


def ends(field: Field | None, whole: Field | None) -> str:
    """Return `bounds`, `95 % over 12 blocks`, or '' without ends; `whole` is the energy of the same window.

    Bounds are those of the whole window divided, so that they count the same updates; blocks are fewer.
    """
    if field is None or isinstance(field, Absent) or field.lo is None or field.hi is None:
        return ""
    if field.unit != "J" or whole is None or isinstance(whole, Absent) or field.n == whole.n:
        return "bounds"
    return f"95 % over {field.n} blocks"
