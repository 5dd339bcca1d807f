"""What papers still imports; goes with its conversion to documents."""

from edgescope.report.render.markdown import escaped

__all__ = ["escaped"]
