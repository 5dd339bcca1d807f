"""Text that other programs wrote: with or without a byte order mark, of Unix or Windows, in UTF-8, UTF-16 or Latin.

Two readers need the names of the columns of trtexec's --exportTimes, which changed once, so these are here as well.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import Path

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; that of UTF-32 begins with that of UTF-16, so it is asked for first."""
NOTHING = ("", "nan", "na", "n/a", "none", "null", "nil", "<na>")
"""What tables hold where nothing is known, in small letters."""
NUMBER = re.compile(r"([+-]?\d{1,18})(?:\.0*)?", re.ASCII)


def read(path: Path) -> str:
    """Return a file's text without a byte order mark, lines ending in a newline; OSError as `open` raises it."""
    return decoded(path.read_bytes())


def decoded(data: bytes) -> str:
    """Return the text of bytes: as their mark says, else UTF-8, else what Windows writes in western Europe."""
    name = next((name for mark, name in MARKS if data.startswith(mark)), "")
    for encoding in filter(None, (name, "utf-8", "cp1252")):
        try:
            return _lines_as_unix(data.decode(encoding))
        except UnicodeDecodeError:
            continue
    return _lines_as_unix(data.decode("latin-1"))


def _lines_as_unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines(path: Path) -> list[str]:
    """Return the lines of a file without their ends and without blanks around them; empty ones at the end left out."""
    return [line.strip() for line in read(path).rstrip().split("\n")] if path.stat().st_size else []


def whole(word: object) -> int | None:
    """Return the whole number that a word, or a number, says: 3 of `3`, ` 3`, `03`, `3.0` and 3.0; None for no such."""
    found = NUMBER.fullmatch(str(word).strip())
    return int(found[1]) if found else None


def counted(word: str) -> list[tuple[int, str]]:
    """Return a key that sorts words as people count: a2 before a10, and equal numbers by how they are written."""
    parts = re.split(r"(\d+)", word)
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in parts]


#: Column -> its names over the versions, newest first; all in milliseconds since the start of the loop.
TRTEXEC_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "start_enq": ("startEnqMs",),
    "end_enq": ("endEnqMs",),
    "start_h2d": ("startH2dMs", "startInMs"),
    "end_h2d": ("endH2dMs", "endInMs"),
    "start_compute": ("startComputeMs",),
    "end_compute": ("endComputeMs",),
    "start_d2h": ("startD2hMs", "startOutMs"),
    "end_d2h": ("endD2hMs", "endOutMs"),
    "h2d": ("h2dMs", "inMs"),
    "compute": ("computeMs",),
    "d2h": ("d2hMs", "outMs"),
    "latency": ("latencyMs",),
}
