"""A line on stderr that says what a silent command is doing; on a terminal it counts the seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds between two updates of the line on a terminal.
TICK_S = 1.0
_CLEAR = "\r\x1b[K"


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Print `text ...` on stderr while the block runs; on a terminal with its seconds, and removed at the end."""
    if not sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr, flush=True)
        yield
        return
    done, begun = threading.Event(), time.monotonic()

    def count() -> None:
        while True:
            sys.stderr.write(f"{_CLEAR}{text} ... {time.monotonic() - begun:.0f} s")
            sys.stderr.flush()
            if done.wait(TICK_S):
                return

    line = threading.Thread(target=count, daemon=True)
    line.start()
    try:
        yield
    finally:
        done.set()
        line.join()
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()
