"""Age of results and queue depth over a run under load: the age above, the queries that were due and not done below.

A machine that keeps up shows two level bands. Where arrivals exceed service, both climb until the load ends; where a
pipeline drops frames to keep up, both stay below a ceiling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.analysis.run import lateness, open_loop
from edgescope.plots.style import Figure, Style, axis, name, seconds, styles
from edgescope.plots.thin import MAX_POINTS, by_time
from edgescope.plots.time import seconds_axis, stacked
from edgescope.records import Absent, Measured, Queries

DEADLINE = "#cc003d"
Loaded = dict[int, tuple[Queries, int]]


def live(row: Row) -> bool:
    """Return whether a cell was measured in an open loop, or on inputs with time stamps."""
    return isinstance(row["queue_depth_max"], Measured)


def queue(table: VariantTable) -> Figure | Absent:
    """Return two panels per variant: frame age (else latency) when each result came, and the queue depth."""
    rows = [(row, _loaded(row)) for row in table.ordered() if live(row)]
    drawn = [(row, several) for row, several in rows if several]
    if not drawn:
        return Absent("no variant was measured in an open loop, or its raw rows are not loaded")
    looks = styles(table)
    titles = [text for row, several in drawn for text in (f"{name(row)}: {_age(several)}", "queue depth")]
    figure = stacked(titles)
    for i, (row, several) in enumerate(drawn):
        _ages(figure, 2 * i + 1, row, several, looks[row.cell])
        _depths(figure, 2 * i + 2, several, looks[row.cell])
    return figure


def _loaded(row: Row) -> dict[int, tuple[Queries, int]]:
    """Return replicate -> (the rows of its window, the window's start in ns)."""
    whole = ((number, r.queries, r.window) for number, r in row.replicates.items())
    found = {n: (q.rows(w), w.start_ns) for n, q, w in whole if q is not None and w is not None}
    return {number: given for number, given in found.items() if len(given[0])}


def _age(several: Loaded) -> str:
    stamped = all(lateness.stamped(rows) for rows, _ in several.values())
    return "frame age" if stamped else "latency from the due time"


def _ages(figure: Figure, i: int, row: Row, several: Loaded, look: Style) -> None:
    tracks = {number: lateness.ages(rows) for number, (rows, _) in several.items()}
    every = np.concatenate([age for _, age in tracks.values()])
    if not len(every):
        return
    scale, limit = seconds([float(np.median(every))]), row.trial.deadline_s
    for number, (done, age) in tracks.items():
        keep = by_time(age, max(4, MAX_POINTS // len(tracks)))
        at = done[keep] - several[number][1]
        line = _line(at * 1e-9, age[keep] * scale.factor, number, look, scale.unit)
        figure.add_scatter(**line, row=i, col=1)
    seconds_axis(figure, i, every * scale.factor, scale)
    if limit is not None:
        figure.add_hline(y=limit * scale.factor, line={"color": DEADLINE, "dash": "dash"}, row=i, col=1)


def _depths(figure: Figure, i: int, several: Loaded, look: Style) -> None:
    for number, (rows, start_ns) in several.items():
        times, count = open_loop.depth(rows)
        keep = by_time(count, max(4, MAX_POINTS // len(several)))
        at = (times[keep] - start_ns) * 1e-9
        line = _line(at, count[keep], number, look, "queries")
        figure.add_scatter(**line, line_shape="hv", row=i, col=1)
    figure.update_yaxes(axis("queries", nticks=4, rangemode="tozero"), row=i, col=1)


def _line(at_s: NDArray[Any], y: NDArray[Any], number: int, look: Style, unit: str) -> dict[str, Any]:
    return {
        "x": np.round(at_s, 6),
        "y": y,
        "mode": "lines",
        "line": {"color": look.colour, "width": 1},
        "opacity": 0.75,
        "name": f"replicate {number}",
        "hovertemplate": f"replicate {number}<br>%{{x:.2f}} s: %{{y:.4g}} {unit}<extra></extra>",
    }
