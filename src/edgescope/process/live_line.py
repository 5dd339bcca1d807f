"""One line that a measuring process writes for whoever waits for it at a terminal.

The waiting command names a file in the environment of the processes that it starts. Without one nothing is written, so
a run that nobody watches pays nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "EDGESCOPE_LIVE_LINE"


def watched() -> bool:
    """Return whether a command waits for lines from this process."""
    return VARIABLE in os.environ


def say(text: str) -> None:
    """Replace the line that the waiting command shows; '' removes it."""
    if watched():
        with suppress(OSError):  # the command that waited may have gone
            Path(os.environ[VARIABLE]).write_text(text, encoding="utf-8")


@contextmanager
def watching() -> Iterator[Callable[[], str]]:
    """Let processes that are started meanwhile write a line; yield the function that returns it."""
    with tempfile.TemporaryDirectory(prefix="edgescope-") as folder:
        path = Path(folder) / "line"

        def line() -> str:
            with suppress(OSError, UnicodeDecodeError):
                return path.read_text(encoding="utf-8")
            return ""

        os.environ[VARIABLE] = str(path)
        try:
            yield line
        finally:
            os.environ.pop(VARIABLE, None)
