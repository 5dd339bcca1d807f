"""What a command says on stderr while it works: a line that counts the seconds, and how long the rest will take."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from edgescope.process import said

#: Seconds between two updates of the line on a terminal.
TICK_S = 1.0
_CLEAR = "\r\x1b[K"
_LINES: list[threading.Event] = []
"""The lines that are shown, the innermost last: only that one is drawn."""


def say(text: object) -> None:
    """Print a text on stderr, in place of a line that counts, which is drawn again below it."""
    sys.stderr.write(_CLEAR if _LINES else "")
    said.say(text)


@contextmanager
def waiting(text: str, *, live: bool = False, patience_s: float = 0.0) -> Iterator[None]:
    """Print `text ...` on stderr while the block runs; on a terminal with its seconds, and removed at the end.

    On a terminal, `live` shows the line that a measuring process writes meanwhile, in place of the text. Elsewhere
    nothing is printed of a block that ends within `patience_s`.
    """
    if not sys.stderr.isatty():
        with _late(f"{text} ...", patience_s):
            yield
        return
    with said.watching() if live else nullcontext(str) as line:
        yield from _counted(text, line)


@contextmanager
def _late(line: str, patience_s: float) -> Iterator[None]:
    """Print the line once the caller's block has lasted so long; at once for 0."""
    if not patience_s:
        say(line)
        yield
        return
    timer = threading.Timer(patience_s, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _counted(text: str, line: Callable[[], str]) -> Iterator[None]:
    """Count the seconds on the terminal until the caller's block ends."""
    done, begun = threading.Event(), time.monotonic()

    def count() -> None:
        while True:
            if _LINES[-1:] == [done]:
                spent = f" ... {time.monotonic() - begun:.0f} s"
                sys.stderr.write(
                    _CLEAR + said.fitted(line() or text, said.columns() - len(spent) - 1) + spent
                )
                sys.stderr.flush()
            if done.wait(TICK_S):
                return

    counter = threading.Thread(target=count, daemon=True)
    _LINES.append(done)
    counter.start()
    try:
        yield
    finally:
        done.set()
        counter.join()
        _LINES.remove(done)
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


# -- how long the rest of a job of like parts takes, by the pace of those that are done --------------------------

EVERY_S = 5.0
"""Seconds between two lines about a job of many short parts."""


class Countdown:
    """Estimates from the pace since the first report: what comes before it is loading, and happens once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.begun = clock, clock()
        self._first: tuple[float, float] | None = None
        self._said = -EVERY_S

    def left_s(self, done: float, total: float) -> float | None:
        """Return the seconds left once `done` parts are done; None at the first report, which has no pace yet."""
        now = self.clock()
        self._first = self._first or (done, now)
        start, since = self._first
        return (now - since) / (done - start) * (total - done) if done > start else None

    def words(self, done: float, total: float) -> str:
        """Return `, about 40 s left`; the time so far where there is no pace yet, and that of all at the end."""
        from edgescope.units import lasting, remaining  # needs numpy, through records

        left, spent = self.left_s(done, total), self.clock() - self.begun
        return f", {lasting(spent)} in all" if done >= total else remaining(left, spent)

    def due(self, done: float, total: float) -> bool:
        """Return whether to print a line: for the first part and the last, and every EVERY_S seconds."""
        now = self.clock() - self.begun
        due = done >= total or now - self._said >= EVERY_S
        self._said = now if due else self._said
        return due
