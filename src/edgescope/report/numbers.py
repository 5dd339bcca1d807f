"""Measured values in print: one unit and one number of decimals per column, intervals beside the value.

Values are SI inside and scaled here only. A column is scaled by its largest value and gets as many decimals
as its smallest needs for three digits, so figures that stand below each other can be compared by eye.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgescope.plots.style import Scale, seconds, values
from edgescope.records import Absent, Field, Json, Measured

MAX_DECIMALS = 3


@dataclass(frozen=True)
class Format:
    """How one column prints: scale and decimals."""

    scale: Scale
    decimals: int

    @property
    def unit(self) -> str:
        """The unit in print; `` for a plain ratio."""
        return self.scale.unit

    def number(self, value: float) -> str:
        """Return the scaled value with thousands separated, e.g. `1,204.5`."""
        return f"{value * self.scale.factor:,.{self.decimals}f}"

    def interval(self, field: Measured) -> str:
        """Return `4.58 – 4.65`, or '' where there is no interval."""
        if field.lo is None or field.hi is None or not math.isfinite(field.hi):
            return ""
        return f"{self.number(field.lo)}\u00a0–\u00a0{self.number(field.hi)}"

    def text(self, field: Field) -> str:
        """Return `4.61 ms [4.58 – 4.65]` or the reason why there is no value."""
        if isinstance(field, Absent):
            return absence(field)
        joint = "" if self.unit in ("", "%", "×") else " "
        unit = f"{joint}{self.unit}" if self.unit != "%" else " %"
        between = self.interval(field)
        return f"{self.number(field.value)}{unit}" + (f" [{between}]" if between else "")


def absence(field: Absent) -> str:
    """Return the reason, marked as an absence: `unsupported: no powercap zones`."""
    marked = field.reason.startswith(("unsupported", "failed", "n/a", "untrained", "not "))
    return field.reason if marked else f"n/a: {field.reason}"


def decimals(shown: Iterable[float]) -> int:
    """Return the decimals that give the smallest non-zero value three digits, at most MAX_DECIMALS."""
    smallest = min((abs(v) for v in shown if v and math.isfinite(v)), default=1.0)
    return min(MAX_DECIMALS, max(0, 2 - math.floor(math.log10(smallest))))


def _column(pick_scale: Callable[[Sequence[float]], Scale]) -> Callable[[Iterable[Field]], Format]:
    def make(fields: Iterable[Field]) -> Format:
        found = values(fields)
        scale = pick_scale(found)
        return Format(scale, decimals(v * scale.factor for v in found))

    return make


def _step(unit: str, big: str, factor: float) -> Callable[[Sequence[float]], Scale]:
    """Scale to `unit` (value x factor), or to a thousand of them where even the smallest fills one."""

    def scale(found: Sequence[float]) -> Scale:
        whole = bool(found) and min(found) * factor >= 1000
        return Scale(factor / 1000, big) if whole else Scale(factor, unit)

    return scale


times = _column(seconds)
memory = _column(_step("MB", "GB", 1e-6))
rates = _column(lambda _: Scale(1.0, "samples/s"))
watts = _column(lambda _: Scale(1.0, "W"))
joules = _column(_step("mJ", "J", 1e3))
ratios = _column(lambda _: Scale(1.0, "×"))


def plain(unit: str) -> Callable[[Iterable[Field]], Format]:
    """Return what prints a unit of its own as it is; 1 has no name."""
    return _column(lambda _: Scale(1.0, "" if unit == "1" else unit))


def shares(fields: Iterable[Field]) -> Format:
    """Return per cent with one decimal."""
    return Format(Scale(100.0, "%"), 1)


def fact(value: Json) -> str:
    """Return a fact of the manifest in print; an unreadable one says why."""
    if isinstance(value, dict):
        if set(value) == {"absent"}:
            return f"absent: {value['absent']}"
        return "; ".join(f"{k}: {fact(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(fact(v) for v in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
