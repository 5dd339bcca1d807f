"""What another wing may import: a program on a board, profiled there, and what a profiler's file holds."""

from edgescope.wings.trace.imported import read
from edgescope.wings.trace.on_board import on

__all__ = ["on", "read"]
