"""The cores that a run is judged by: those that its process may use, if a mask limits them, else all.

The CPU's source publishes shares of both, `cpu_others` and, only under a mask, `cpu_allowed_others`. Load on other
cores does not disturb the run, and load on the allowed cores is a larger share of those than of all.
"""

from __future__ import annotations

from collections.abc import Container

ALL, ALLOWED = "cpu", "cpu_allowed"
"""The prefixes of the names of the shares."""
WORDS = {ALL: "all cores", ALLOWED: "the allowed cores"}


def judged(names: Container[str]) -> str:
    """Return the prefix of the shares that count: ALLOWED if `names`, all channels, has them, else ALL."""
    return ALLOWED if f"{ALLOWED}_others" in names else ALL
