"""A terminal drawn with few bytes: the alternate screen, one escape sequence per row that has changed.

A frame of rich costs milliseconds; this costs tens of microseconds if little changes (measured by
benchmarks/tool_cost.py monitor). Keys are read without echo and without signals, so Ctrl-C and q end the view alike
and Ctrl-Z cannot leave a half-drawn terminal behind. ECMA-48 names the sequences; 1049 is xterm's alternate
screen.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TextIO

Segment = tuple[str, str]
"""Text and its style: '', dim, bold, warn or bad."""
Row = tuple[Segment, ...]
BLOCKS, ASCII = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_STYLES = {"dim": "\x1b[2m", "bold": "\x1b[1m", "warn": "\x1b[33m", "bad": "\x1b[1;31m"}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[0m\x1b[?25h\x1b[?1049l"
QUIT = frozenset(("q", "Q", "\x03", "\x04", "\x1b"))  # an arrow key begins with ESC and goes on


def is_plain(out: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether `out` cannot be drawn on: it is no terminal, or a dumb one."""
    return not out.isatty() or environ.get("TERM", "dumb") == "dumb"


def painted(row: Row, *, colour: bool) -> str:
    """Return the row as text, with escape sequences if `colour`."""
    if not colour:
        return "".join(text for text, _ in row)
    return "".join(f"{_STYLES[style]}{text}\x1b[0m" if style in _STYLES else text for text, style in row)


class Screen:
    """The terminal while the view runs; leaving the context puts it back as it was."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._colour = not environ.get("NO_COLOR")
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if sys.stdin.isatty() else -1
        self._drawn: list[str] = []
        self._size = (0, 0)
        self._saved: list[object] = []

    def __enter__(self) -> Screen:
        if self._in >= 0:
            self._saved = termios.tcgetattr(self._in)
            mine = termios.tcgetattr(self._in)
            mine[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
            termios.tcsetattr(self._in, termios.TCSADRAIN, mine)
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._write(_LEAVE)
        finally:
            if self._in >= 0:
                termios.tcsetattr(self._in, termios.TCSADRAIN, self._saved)  # type: ignore[arg-type]

    def size(self) -> tuple[int, int]:
        """Return (columns, rows) of the terminal now; the call costs a microsecond, so no signal is needed."""
        columns, lines = os.get_terminal_size(self._out)
        return columns or 80, lines or 24

    def draw(self, rows: Sequence[Row]) -> None:
        """Show these rows; write only those that have changed."""
        size = self.size()
        if size != self._size:  # the terminal has reflowed what was there
            self._size, self._drawn = size, []
            self._write("\x1b[2J")
        new = [painted(row, colour=self._colour) for row in rows]
        old = self._drawn + [""] * (len(new) - len(self._drawn))
        changed = [f"\x1b[{n};1H{text}\x1b[K" for n, text in enumerate(new, 1) if text != old[n - 1]]
        if len(new) < len(self._drawn):
            changed.append(f"\x1b[{len(new) + 1};1H\x1b[J")
        self._drawn = new
        if changed:
            self._write("".join(changed))

    def key(self, seconds: float) -> str:
        """Wait up to `seconds` for a key and return it: '' for none, 'q' if the terminal has gone."""
        if self._in < 0:
            time.sleep(max(0.0, seconds))
            return ""
        if not select.select([self._in], [], [], max(0.0, seconds))[0]:
            return ""
        try:
            return os.read(self._in, 64).decode(errors="replace") or "q"
        except OSError:  # the terminal was closed
            return "q"

    def _write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self._out, data) :]
