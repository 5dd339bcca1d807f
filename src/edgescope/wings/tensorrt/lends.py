"""What another wing may import: trtexec as a program that a place runs, here or on a board."""

from edgescope.wings.tensorrt.engine_file import gpu
from edgescope.wings.tensorrt.trtexec.program import BEAT_S, Ran, Tool, surveyed

__all__ = ["BEAT_S", "Ran", "Tool", "gpu", "surveyed"]
