"""What papers still imports; goes with its conversion to documents."""

from edgescope.report.render.markup import Child, Markup, join, raw, tag

__all__ = ["Child", "Markup", "join", "raw", "tag"]
