"""Whether a process's threads are asleep, told from their states.

An engine's threads may go on spinning for tens of milliseconds after its last answer (OpenMP, ONNX Runtime). Processor
time does not show it so soon: that of a thread which runs on another core is counted at the kernel's ticks, 4 or 10 ms
apart.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

STEP_S, LOOKS, LIMIT_S = 0.001, 2, 0.3
"""Threads are asleep once none runs in so many looks, a step apart; waited for at most so long."""


def awake(pid: int) -> bool:
    """Return whether a thread of a process runs or waits for a core, the calling one left out.

    False where /proc does not tell.
    """
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            if int(task) == threading.get_native_id():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"R":
                    return True
    return False


def until_asleep(pid: int) -> float:
    """Wait until a process's threads are asleep, LIMIT_S at most; return the seconds that it took."""
    begun, quiet = time.monotonic(), 0
    while (waited := time.monotonic() - begun) < LIMIT_S and quiet < LOOKS:
        time.sleep(STEP_S)
        quiet = 0 if awake(pid) else quiet + 1
    return waited
