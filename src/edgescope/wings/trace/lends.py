"""What another wing may import: a program on a board, profiled there, what a profiler's file holds, and a figure."""

from collections.abc import Sequence
from typing import Any

from edgescope.analysis.kernels.inferences import Budget
from edgescope.wings.trace.imported import read
from edgescope.wings.trace.on_board import on

__all__ = ["cdfs", "on", "read"]


def cdfs(budgets: Sequence[tuple[str, Budget | None]]) -> Any:
    """Return the figure of EC and CS over the inferences of several traces; only a page needs plotly."""
    from edgescope.wings.trace import figures

    return figures.cdfs(budgets)
