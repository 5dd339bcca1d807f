"""Memory against the number of processes: a straight line, its slope, and what a rule says the slope should be.

Least squares over the measured numbers of processes. The slope is what one more process costs; Student's t gives its
interval from three numbers on. Memory counts as linear in P where no point lies more than NEAR of its own value off the
line. The rule is P x (model + 2 x batch): weights of the model, and one batch computed while another waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.cells.concurrency import Cell, scaled
from edgescope.analysis.cells.series import Series
from edgescope.records import Absent, Field, Measured
from edgescope.stats.special import t_quantile

NEAR = 0.05
"""Share of a point's own value by which it may lie off the line."""
TWO = Absent("two points lie on any line")


@dataclass(frozen=True)
class MemoryLine:
    """One series' line."""

    series: Series
    points: int
    slope: Field
    """Bytes that one more process costs."""
    start: Field
    """Bytes at P = 0, where the line meets the axis."""
    residual: Field
    """Largest distance of a point from the line, as a share of the point."""
    rule: Field
    """Bytes of model + 2 x batch."""
    against: Field
    """slope / rule."""

    @property
    def linear(self) -> bool | None:
        """Whether no point lies further than NEAR off the line; None where that cannot be said."""
        return self.residual.value <= NEAR if isinstance(self.residual, Measured) else None


def memory_line(series: Series, figure: str) -> MemoryLine:
    """Return the line through one memory figure of a series; its fields say why where there is none."""
    points = [(c.trial.processes, v) for c in series.cells if (v := c.value(figure)) is not None]
    rule = _rule(series.cells)
    if len(points) < 2:
        none = Absent(f"{figure} was measured at {len(points)} number of processes")
        return MemoryLine(series, len(points), none, none, none, rule, none)
    x, y = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    slope, start = np.polyfit(x, y, 1)
    off = y - (slope * x + start)
    fitted = _slope(float(slope), x, off)
    residual = Measured(float(np.max(np.abs(off) / y)), "1", n=len(x)) if len(x) > 2 else TWO
    against = rule if isinstance(rule, Absent) else scaled(fitted, 1 / rule.value)
    start_ = Measured(float(start), "bytes", n=len(x))
    return MemoryLine(series, len(x), fitted, start_, residual, rule, against)


def _slope(slope: float, x: NDArray[np.float64], off: NDArray[np.float64]) -> Measured:
    n = len(x)
    if n < 3:
        return Measured(slope, "bytes", n=n)
    error = math.sqrt(float(off @ off) / (n - 2) / float(((x - x.mean()) ** 2).sum()))
    half = t_quantile(0.975, n - 2) * error
    return Measured(slope, "bytes", slope - half, slope + half, n)


def _rule(cells: Sequence[Cell]) -> Field:
    """Return model + 2 x batch in bytes, of any cell that knows it: the same for every P."""
    fields = [(c.figure("memory_rule_bytes"), c.trial.processes) for c in cells]
    known = [f.value / p for f, p in fields if isinstance(f, Measured) and f.value > 0]
    if known:
        return Measured(known[0], "bytes")
    return next((f for f, _ in fields if isinstance(f, Absent)), Absent("no cell says it"))
