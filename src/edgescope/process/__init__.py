"""Programs that edgescope starts, the pipes they talk through, and temporary folders that are removed with them.

Every long-lived process is started here: a trial's, its workers, the sampler, ssh to a board. Modes and profilers put
a prefix before the command, and every interpreter starts fresh, which is why this does not use multiprocessing.

Standard library only, because the sampler's own process imports it.
"""

from edgescope.process.program import (
    TAIL_BYTES,
    Child,
    Launch,
    Line,
    Pipe,
    Process,
    die_with_parent,
    how_ended,
    signal_name,
)

__all__ = [
    "TAIL_BYTES",
    "Child",
    "Launch",
    "Line",
    "Pipe",
    "Process",
    "die_with_parent",
    "how_ended",
    "signal_name",
]
