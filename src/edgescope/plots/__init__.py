"""Plotly figures of a variant table: nothing here computes a statistic.

Every figure takes the VariantTable that the page prints, so a bar and its printed number cannot disagree. A
variant keeps its colour and its marker in all of them. A figure with nothing to show is `Absent(reason)`.
"""

from edgescope.plots.bars import speedups
from edgescope.plots.distribution import percentiles
from edgescope.plots.scatter import tradeoff
from edgescope.plots.style import Style, styles
from edgescope.plots.time import over_time, queue, telemetry

__all__ = ["Style", "over_time", "percentiles", "queue", "speedups", "styles", "telemetry", "tradeoff"]
