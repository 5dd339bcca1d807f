"""The rows of a damaged JSON array: what cannot be read costs itself, is counted, and its place is kept.

Programs that write JSON by hand leave the quote or the backslash of a name as it is, write nan, or are stopped in the
middle. Reading goes on at the next object that can be read and looks like a row of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

#: A backslash with what it escapes, or one that escapes nothing.
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])|\\')
#: What C++ prints for numbers that are none.
_NO_NUMBER = re.compile(r"(?<=[:\[,\s])-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_OBJECT = re.compile(r'\{\s*"')
_END = re.compile(r'\](?=\s*(?:,\s*"|\}|$))')
#: What lies between rows and says nothing.
_BETWEEN = " \t\r\n,[]}"


class Salvage:
    """Reads the rows of an array one by one; afterwards it knows what was lost.

    A row is an object that has one of `keys`; damaged ones are counted by `keys` and by what else all rows have,
    `others`. Numbers with a point stay text, so that no digit is lost.
    """

    def __init__(self, text: str, keys: Sequence[str], others: Sequence[str] = ()) -> None:
        text = _ESCAPE.sub(lambda m: m[0] if len(m[0]) > 1 else r"\\", text)
        self.text, self.keys, self.marks = _NO_NUMBER.sub("null", text), keys, (*keys, *others)
        self.lost = 0
        """Rows that could not be read."""
        self.first = ""
        """The place of the first: `line 12: {"ph": "X", ...`."""
        self.ended = False
        """Whether the end of the array was met; if not, what followed in it is not known."""
        self.runs = [0]
        """Number of the row with which each array begins, where several follow each other."""
        self._yielded = 0
        self._read = json.JSONDecoder(strict=False, parse_float=str, parse_constant=str).raw_decode

    def rows(self, at: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of the array whose first element begins at `at`, and of arrays that follow it."""
        while (at := self._skipped(at)) < len(self.text):
            if self.text[at] == "]" and self._closes(at):
                self.ended = True
                return
            row, end = self._row(at)
            if row is None:
                end = self._next(at)
                self._lose(at, end)
            else:
                self._yielded += 1
                yield row
            at = end

    def _skipped(self, at: int) -> int:
        while at < len(self.text) and self.text[at] in " \t\r\n,":
            at += 1
        return at

    def _closes(self, at: int) -> bool:
        """Return whether what follows a bracket is the rest of an object that holds the array, or nothing."""
        rest = self.text[at:]
        try:
            return not rest[1:].strip() or bool(json.loads('{"x":[' + rest))
        except (ValueError, RecursionError):
            return False

    def _row(self, at: int) -> tuple[dict[str, Any] | None, int]:
        """Return the row that begins at `at` and where it ends; None if there is none."""
        try:
            found, end = self._read(self.text, at)
        except (ValueError, RecursionError):
            return None, at
        is_row = isinstance(found, dict) and any(key in found for key in self.keys)
        return (found, end) if is_row else (None, at)

    def _next(self, at: int) -> int:
        """Return where the next row begins after `at`, else where the array ends, else the end of the text."""
        starts = (m.start() for m in _OBJECT.finditer(self.text, at + 1))
        found = next((i for i in starts if self._row(i)[0] is not None), None)
        if found is None:
            ends = (m.start() for m in _END.finditer(self.text, at + 1))
            found = next((i for i in ends if self._closes(i)), len(self.text))
        return found

    def _lose(self, at: int, end: int) -> None:
        """Count what lies between two rows: as many as have a key there, one if there is anything else."""
        piece = self.text[at:end]
        rows = max(piece.count(f'"{key}"') for key in self.marks)
        if not rows and piece[0] == "]":
            self.runs.append(self._yielded)
            return
        if not rows and not piece.strip(_BETWEEN):
            return
        if not self.lost:
            line = self.text.count("\n", 0, at) + 1
            self.first = f"the first in line {line}: {' '.join(piece[:60].split())}"
        self.lost += max(rows, 1)
