"""How figures look: one colour and one marker per variant, axes with units, nothing that fights a dark page.

The colours keep a contrast of 3:1 or more against white and against near-black, and stay apart for the common kinds
of colour blindness; the marker's shape repeats the information. Backgrounds are transparent and text has the page's
colour, so one figure serves both schemes.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.records import Field, Measured
from edgescope.units import Scale
from edgescope.units import time_scale as seconds

__all__ = ["Scale", "seconds"]

Figure = Any  # plotly.graph_objects.Figure; plotly ships no types

BASELINE_COLOUR = "#808790"
COLOURS = ("#2b8cee", "#d55e00", "#007367", "#9b3eb2", "#cc003d", "#e04bcf", "#3aa65a")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon", "pentagon", "triangle-down")
INK, LINE = "#6a717b", "rgba(128,135,144,0.28)"
LOG_SPREAD = 5.0
"""Largest / smallest value from which a logarithmic axis is used."""


@dataclass(frozen=True)
class Style:
    """Colour and marker of one variant, in every figure."""

    colour: str
    symbol: str


def styles(table: VariantTable) -> Mapping[str, Style]:
    """Return cell -> Style: grey for the baseline, then the palette in the table's order."""
    found: dict[str, Style] = {table.baseline: Style(colour(0), "circle")}
    for i, row in enumerate(r for r in table.rows if r.cell != table.baseline):
        turn = i // len(COLOURS)
        found[row.cell] = Style(colour(i + 1), SYMBOLS[(i + 1 + turn) % len(SYMBOLS)])
    return found


def colour(series: int) -> str:
    """Return the colour of the baseline (0), or of the variant so many places after it in the table."""
    return COLOURS[(series - 1) % len(COLOURS)] if series else BASELINE_COLOUR


def values(fields: Iterable[Field]) -> list[float]:
    """Return the values of the fields that were measured."""
    return [f.value for f in fields if isinstance(f, Measured)]


def name(row: Row) -> str:
    """Return the variant's label, safe inside plotly's mark-up, struck out if it is rejected."""
    text = html.escape(row.label)
    return f"<s>{text}</s>" if row.rejected else text


def bounds(field: Measured) -> tuple[float, float]:
    """Return how far the interval reaches below and above the value; 0 if there is none."""
    if field.lo is None or field.hi is None or not math.isfinite(field.hi):
        return 0.0, 0.0
    return field.value - field.lo, field.hi - field.value


def interval(field: Measured, factor: float, unit: str) -> str:
    """Return `4.61 ms [4.58, 4.65], n = 812` for a hover text."""
    text = f"{field.value * factor:.4g} {unit}"
    if field.lo is not None and field.hi is not None:
        text += f" [{field.lo * factor:.4g}, {field.hi * factor:.4g}]"
    return f"{text}, n = {field.n:,}"


def axis_kind(shown: Sequence[float]) -> str:
    """Return `log` if the values are positive and spread widely, else `linear`."""
    low, high = min(shown, default=1.0), max(shown, default=1.0)
    return "log" if low > 0 and high / low >= LOG_SPREAD else "linear"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title and light grid lines."""
    lines = {
        "gridcolor": LINE,
        "linecolor": LINE,
        "zerolinecolor": LINE,
        "ticks": "outside",
        "tickcolor": LINE,
    }
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 13}},
        "automargin": True,
        **lines,
        **more,
    }


def layout(**more: Any) -> dict[str, Any]:
    """Return the layout that all figures share."""
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, 'Segoe UI', Roboto, Ubuntu, Arial, sans-serif",
            "size": 13,
            "color": INK,
        },
        "margin": {"l": 12, "r": 16, "t": 34, "b": 12},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": INK, "activecolor": COLOURS[0]},
        "hoverlabel": {"align": "left", "font": {"size": 12}},
        "showlegend": False,
        "legend": {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0, "font": {"size": 12}},
        **more,
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1-2-5 tick values that cover [low, high]."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
    inside = [t for t in every if low <= t <= high]
    return inside if len(inside) <= 8 else [t for t in inside if f"{t:e}"[0] == "1"]


MAX_POINTS = 2000
"""Points drawn for one variant."""


def by_time(value: NDArray[Any], limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return rising indices, at most `limit` (4 or more): both ends, and each stretch's extremes."""
    n = len(value)
    if n <= limit:
        return np.arange(n)
    edges = np.linspace(0, n, (limit - 2) // 2 + 1).astype(int)
    kept = [0, n - 1]
    for first, stop in itertools.pairwise(edges):
        kept += [first + int(np.argmin(value[first:stop])), first + int(np.argmax(value[first:stop]))]
    return np.unique(np.array(kept))


def by_rank(n: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return rising ranks 0 .. n-1, at most `limit`, denser towards the slow end, with both ends."""
    if n <= limit:
        return np.arange(n)
    body = np.linspace(0, n - 1, limit // 2).astype(int)
    tail = n - np.unique(np.geomspace(1, n, limit - limit // 2).astype(int))
    return np.unique(np.concatenate([body, tail]))
