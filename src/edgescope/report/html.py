"""What papers still imports; goes with its conversion to documents."""

from edgescope.report.render.html import shell

__all__ = ["shell"]
