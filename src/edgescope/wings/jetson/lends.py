"""What another wing may import: boards, rails, what a JetPack holds, a line of tegrastats."""

from edgescope.wings.jetson.boards import Board, Software, boards, software
from edgescope.wings.jetson.tegrastats_line import parse

__all__ = ["Board", "Software", "boards", "parse", "software"]
