"""The plots of a chapter as page elements: data in a JSON island, drawn by page.js."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgescope import plots
from edgescope.analysis.cells.variants import VariantTable
from edgescope.plots.style import Figure
from edgescope.records import Absent
from edgescope.report.chapter import Chapter
from edgescope.report.markup import Markup, raw, tag


@dataclass(frozen=True)
class Plot:
    """One figure and how to read it."""

    title: str
    caption: str
    draw: Callable[[VariantTable], Figure | Absent]


FRONT = "Down and left is better. Nothing eligible lies below the grey steps; crosses were rejected."

PLOTS: Mapping[str, Plot] = {
    "speedups": Plot(
        "Speed-up",
        "Whiskers are 95 % intervals over pairs of fresh processes; hatched or named bars were rejected.",
        plots.speedups,
    ),
    "percentiles": Plot(
        "Latency by percentile",
        "Lower is better everywhere. Marks are the table's p50 and p99. A step is a second mode; "
        "a curve that bends up at the right is a tail of slow queries.",
        plots.percentiles,
    ),
    "memory": Plot(
        "Latency against memory",
        FRONT,
        plots.tradeoff,
    ),
    "energy": Plot(
        "Latency against energy",
        FRONT,
        lambda table: plots.tradeoff(table, "energy_per_sample_j"),
    ),
    "over_time": Plot(
        "Latency over time",
        "One line per replicate, a fresh process each; shaded is warm-up, which no number includes. Drift or "
        "throttling shows as a slope or a step.",
        plots.over_time,
    ),
    "telemetry": Plot(
        "Telemetry over the run",
        "Sensor readings on the queries' clock, in the variants' colours. What was not read is not drawn.",
        plots.telemetry,
    ),
}


def figures(chapter: Chapter, anchor: str) -> Markup:
    """Return every plot that has something to show; the others say in a sentence why they are not there."""
    drawn = {key: plot.draw(chapter.table) for key, plot in PLOTS.items()}
    parts = [
        plotted(f"{anchor}-{key}", PLOTS[key].title, PLOTS[key].caption, f, "h4")
        for key, f in drawn.items()
        if not isinstance(f, Absent)
    ]
    absent = [tag("li", f"{PLOTS[k].title}: {f.reason}") for k, f in drawn.items() if isinstance(f, Absent)]
    note = tag("ul", absent, class_="missing") if absent else None
    return tag("section", tag("h3", "Plots"), parts, note)


def plotted(name: str, title: str, caption: str, figure: Figure, heading: str = "h3") -> Markup:
    """Return one figure: how to read it, room for the plot, its data."""
    return tag(
        "figure",
        tag(heading, title),
        tag("figcaption", caption),
        tag("div", id=name, class_="plot", style=f"min-height:{int(figure.layout.height)}px"),
        tag("script", island(figure.to_json()), type="application/json", data_plot=name),
        id=f"{name}-figure",
    )


def island(text: str) -> Markup:
    """Return JSON that cannot end the script element it stands in, whatever its strings hold."""
    json.loads(text)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return raw(safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
