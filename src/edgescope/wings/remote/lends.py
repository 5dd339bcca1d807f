"""What another wing may import: a connected board, what watches it, a line that it runs, and a copy of its files."""

from edgescope.wings.remote.address import parse
from edgescope.wings.remote.board import Board, Line, Lines, Tree, opened
from edgescope.wings.remote.run import BoardWatch

__all__ = ["Board", "BoardWatch", "Line", "Lines", "Tree", "opened", "parse"]
