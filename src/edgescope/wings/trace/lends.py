"""What another wing may import: a program on a board, profiled there."""

from edgescope.wings.trace.on_board import on

__all__ = ["on"]
