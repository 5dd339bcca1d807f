"""What `memory` and `gpu_memory` are: which of a result's figures answers for each word, the best first.

`memory` is the host's, on every device: what the trial's processes hold, pages that they share counted once (PSS), else
their resident sets; where a GPU lives in the machine's memory, what the machine was short of, both together.
`gpu_memory` is what the driver says the processes hold, else all that is in use on the board, other programs included.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgescope.records import Absent, Field, Measured, Result

HOST = ("processes_pss_bytes", "peak_rss_bytes")
"""Of the processes; a crowd's peak_rss_bytes is the sum of its processes'."""
UNIFIED = ("unified_memory_bytes",)
"""Of a board whose GPU lives in the machine's memory."""
MEMORY = (*UNIFIED, *HOST)
GPU = ("gpu_processes_memory_bytes", "gpu_board_memory_bytes")


def first(result: Result, names: Iterable[str]) -> Field:
    """Return the first of these figures that was measured; Absent with the reason of the first that was not."""
    found = [f for f in (result.metrics.get(name) for name in names) if f is not None]
    measured = [f for f in found if isinstance(f, Measured)]
    return next(iter([*measured, *found]), Absent("nothing measures it here"))
