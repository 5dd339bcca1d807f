"""Programs that edgescope starts, how they talk, and temporary folders that go with them.

Every process that lasts is started here: a trial's, its workers, the sampler, ssh to a board. Modes and profilers put
words before the program, and every interpreter is a fresh one, which is why this is no multiprocessing.

Standard library only, because the sampler's own process imports it.
"""

from edgescope.process.pipe import Line, Pipe
from edgescope.process.program import TAIL_BYTES, Launch, Process, die_with_parent, how_ended, signal_name

__all__ = [
    "TAIL_BYTES",
    "Launch",
    "Line",
    "Pipe",
    "Process",
    "die_with_parent",
    "how_ended",
    "signal_name",
]
