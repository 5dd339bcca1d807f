"""What a command is doing while nothing else can be seen of it: a line on stderr, on a terminal one that counts."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds between two looks of the line on a terminal.
TICK_S = 1.0
_CLEAR = "\r\x1b[K"


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Say `text ...` on stderr while the block runs; on a terminal with the seconds it has taken, and gone after it."""
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
