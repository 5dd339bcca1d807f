"""What another wing may import: a connected board, and a line that it runs."""

from edgescope.wings.remote.address import parse
from edgescope.wings.remote.board import Board, Line, Lines, opened

__all__ = ["Board", "Line", "Lines", "opened", "parse"]
