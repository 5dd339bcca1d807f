"""What a command says to a person on stderr: as wide as the terminal, and a command to paste never broken.

While it works, a line counts the seconds. A measuring process writes one line
for whoever waits for it at a terminal: the waiting command names a file in the environment of the processes that it
starts. Without one nothing is written, so a run that nobody watches pays nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

WIDTH = 80
"""Columns where stderr is no terminal."""
HANG = "  "
MESSAGE = re.compile(r"[EWI]-[A-Z][A-Z0-9]*(-\d+)?: ")
"""What a message begins with."""
HELD = "\0"
"""Stands for a space at which no line may end."""
_FIX = " Try: "
_PIECES = re.compile(r"(?<=[,;]) ")
"""Between two remedies, or between a command and what is said of it."""
_CODE = re.compile(r"`[^`]*`|\bedgescope \S.*?(?= {3})")
"""A command that a sentence quotes, or that a wide gap parts from what is said of it."""
_QUOTED = re.compile(r"`[^`]*`|(?<!\w)'[^']*'|\"[^\"]*\"")
_TYPED = re.compile(r"(?<![\w-])(--?[a-zA-Z]|(edgescope|sudo|pip|docker|python3?|ssh|rm|mv|apt) )")
"""What only stands in a command: a flag, or a program's name."""
LIVE_LINE = "EDGESCOPE_LIVE_LINE"
#: Seconds between two updates of the line on a terminal.
TICK_S = 1.0
_CLEAR = "\r\x1b[K"
_LINES: list[threading.Event] = []
"""The lines that are shown, the innermost last: only that one is drawn."""


def say(text: object) -> None:
    """Print a message on stderr, wrapped, in place of a line that counts, which is drawn again below it."""
    print((_CLEAR if _LINES else "") + wrapped(str(text), columns()), file=sys.stderr, flush=True)


def columns() -> int:
    """Return the columns of the terminal, WIDTH if stderr is none."""
    return max(40, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stderr.isatty() else WIDTH


def fitted(line: str, room: int) -> str:
    """Return a line that is drawn again and again: one that does not fit would stay on the terminal each time."""
    return line if len(line) <= room else f"{line[: room - 1]}…"


def wrapped(text: str, width: int) -> str:
    """Return a text whose lines have at most `width` columns; only a command or a word may be longer."""
    return "\n".join(part for line in text.split("\n") for part in _folded(line, width))


def _folded(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    hang = line[: len(line) - len(line.lstrip())] + HANG
    parts = textwrap.wrap(
        held(line, width - len(hang)),
        width,
        subsequent_indent=hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part.replace(HELD, " ") for part in parts]


def held(text: str, room: int) -> str:
    """Return a message with HELD for each space that may end no line, in a remedy and in what is quoted as code.

    A remedy ends a line after `,` and `;` alone, unless it is a sentence that is longer than a line.
    """
    said, sep, fix = text.partition(_FIX)
    said = _CODE.sub(lambda code: code[0].replace(" ", HELD), said)
    if not sep:
        return said
    whole = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", HELD), fix)
    pieces = [_piece(piece, room) for piece in _PIECES.split(whole)]
    start = (
        HELD if len(_FIX.strip()) + 1 + len(pieces[0]) <= room else " "
    )  # else the command has its own line
    return f"{said} {_FIX.strip()}{start}{' '.join(pieces)}"


def _piece(piece: str, room: int) -> str:
    return piece.replace(" ", HELD) if len(piece) <= room or _TYPED.search(piece) else piece


def watched() -> bool:
    """Return whether a command waits for lines from this process."""
    return LIVE_LINE in os.environ


def tell_watcher(text: str) -> None:
    """Replace the line that the waiting command shows; '' removes it."""
    if watched():
        with suppress(OSError):  # the command that waited may have gone
            Path(os.environ[LIVE_LINE]).write_text(text, encoding="utf-8")


@contextmanager
def watching() -> Iterator[Callable[[], str]]:
    """Let processes that are started meanwhile write a line; yield the function that returns it."""
    with tempfile.TemporaryDirectory(prefix="edgescope-") as folder:
        path = Path(folder) / "line"

        def line() -> str:
            with suppress(OSError, UnicodeDecodeError):
                return path.read_text(encoding="utf-8")
            return ""

        os.environ[LIVE_LINE] = str(path)
        try:
            yield line
        finally:
            os.environ.pop(LIVE_LINE, None)


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
    with watching() if live else nullcontext(str) as line:
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
                sys.stderr.write(_CLEAR + fitted(line() or text, columns() - len(spent) - 1) + spent)
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
