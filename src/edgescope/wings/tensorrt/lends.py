"""What another wing may import: trtexec as a program that a place runs, here or on a board, or a person elsewhere."""

from edgescope.wings.tensorrt.engine_file import gpu
from edgescope.wings.tensorrt.trtexec.apart import Apart, command_in, version_in
from edgescope.wings.tensorrt.trtexec.backend import LAYERS, OUTPUTS, TIMES
from edgescope.wings.tensorrt.trtexec.program import BEAT_S, Ran, Tool, surveyed
from edgescope.wings.tensorrt.trtexec.versions import offered, tool

__all__ = [
    "BEAT_S",
    "LAYERS",
    "OUTPUTS",
    "TIMES",
    "Apart",
    "Ran",
    "Tool",
    "command_in",
    "gpu",
    "offered",
    "surveyed",
    "tool",
    "version_in",
]
