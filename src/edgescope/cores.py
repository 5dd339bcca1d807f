"""Which cores a run is judged by: those that its process may use where a mask makes them fewer, else all.

The CPU's source publishes shares of either, `cpu_others` and `cpu_allowed_others`, the second under a mask alone. What
runs elsewhere is not the run's matter, and what runs on its cores is more of those than of all.
"""

from __future__ import annotations

from collections.abc import Container

ALL, ALLOWED = "cpu", "cpu_allowed"
"""What the names of the shares begin with."""
WORDS = {ALL: "all cores", ALLOWED: "the allowed cores"}


def judged(names: Container[str]) -> str:
    """Return what the names of the shares that count begin with, from the names of all channels."""
    return ALLOWED if f"{ALLOWED}_others" in names else ALL
