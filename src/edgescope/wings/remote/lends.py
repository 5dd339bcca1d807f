"""What another wing may import: a connected board, what watches it, and a line that it runs."""

from edgescope.wings.remote.address import parse
from edgescope.wings.remote.board import Board, Line, Lines, opened
from edgescope.wings.remote.run import BoardWatch

__all__ = ["Board", "BoardWatch", "Line", "Lines", "opened", "parse"]
