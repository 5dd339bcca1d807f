"""Find the line on which every key and value of a TOML text begins; tomllib does not report it.

The text must be valid: tomllib has read it before, so this module finds no errors. It follows the grammar
(toml.io/en/v1.0.0) for comments, the four kinds of strings, multi-line arrays and inline tables, so text inside them is
never taken for a key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Names of tables and keys, and numbers of array elements, from the top of the file down.
Path = tuple[str | int, ...]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:""?(?!"))?'  # up to two quotes may stand right before the closing three
    r"|'''.*?'''(?:''?(?!'))?"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]+")


def lines(text: str) -> Mapping[Path, int]:
    """Return path -> line (from 1) of every table, key and array element of a valid TOML text."""
    return _Walk(text).found


class _Walk:
    """One walk through a text; `at` is the position, `found` the lines so far."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.counted, self.line = 0, 1
        self.found: dict[Path, int] = {}
        self.tables: dict[Path, int] = {}
        """Array of tables -> number of its [[headers]] so far."""
        inside: Path = ()
        while self._skip():
            inside = self._header() if self._sees("[") else self._pair(inside)

    def _skip(self) -> bool:
        """Pass spaces, line ends and comments; return False at the end of the text."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def _sees(self, mark: str) -> bool:
        """Pass `mark` if it is next; return whether it was."""
        there = self.text.startswith(mark, self.at)
        self.at += len(mark) * there
        return there

    def _note(self, path: Path) -> None:
        """Record the current line for a path, unless it has one."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        self.found.setdefault(path, self.line)

    def _header(self) -> Path:
        """Pass the rest of `[a.b]` or `[[a.b]]` after its first bracket; return the path of the table it opens."""
        several = self._sees("[")
        path: Path = ()
        names = self._key()
        for name in names[:-1]:
            path = self._latest((*path, name))
            self._note(path)
        path = (*path, names[-1])
        self._note(path)
        if several:
            self.tables[path] = self.tables.get(path, 0) + 1
            path = self._latest(path)
            self._note(path)
        else:
            path = self._latest(path)
        self._skip()
        self._sees("]]" if several else "]")
        return path

    def _latest(self, path: Path) -> Path:
        """Return the path; for an array of tables, the path of its newest element."""
        return (*path, self.tables[path] - 1) if path in self.tables else path

    def _key(self) -> list[str]:
        """Pass a dotted key; return its parts."""
        parts = []
        while True:
            self._skip()
            quoted = _STRING.match(self.text, self.at)
            match = quoted or _BARE_KEY.match(self.text, self.at)
            if match is None:
                raise ValueError(f"no key at {self.text[self.at : self.at + 20]!r}: the text is not TOML")
            self.at = match.end()
            parts.append(tomllib.loads(f"k={match[0]}")["k"] if quoted else match[0])
            self._skip()
            if not self._sees("."):
                return parts

    def _pair(self, inside: Path) -> Path:
        """Pass `key = value` in the table at `inside`; return `inside`."""
        self._skip()
        before = self.at
        names, after = self._key(), self.at
        self.at = before  # the line is where the key begins
        for depth in range(1, len(names) + 1):
            self._note((*inside, *names[:depth]))
        self.at = after
        self._sees("=")
        self._value((*inside, *names))
        return inside

    def _value(self, path: Path) -> None:
        """Pass one value; record the paths inside it."""
        self._skip()
        self._note(path)
        if self._sees("["):
            index = 0
            while self._skip() and not self._sees("]"):
                self._value((*path, index))
                index += 1
                self._skip()
                self._sees(",")
        elif self._sees("{"):
            while self._skip() and not self._sees("}"):
                self._pair(path)
                self._skip()
                self._sees(",")
        else:
            match = _STRING.match(self.text, self.at) or _BARE_VALUE.match(self.text, self.at)
            self.at = match.end() if match else self.at + 1
