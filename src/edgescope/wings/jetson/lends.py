"""What another wing may import: what is known of a board's rails, and how a line of tegrastats is read."""

from edgescope.wings.jetson.boards import Board, boards
from edgescope.wings.jetson.tegrastats_line import parse

__all__ = ["Board", "boards", "parse"]
