"""What papers still imports; goes with its conversion to documents."""

from typing import Any

from edgescope.report import document
from edgescope.report.render import html
from edgescope.report.render.markup import Markup


def plotted(name: str, title: str, caption: str, figure: Any, heading: str = "h3") -> Markup:
    """Return one figure: how to read it, room for the plot, its data."""
    return html.plotted(document.Figure(name, title, caption, lambda: figure), figure, heading)
