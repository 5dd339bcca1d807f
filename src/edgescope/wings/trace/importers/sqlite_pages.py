"""Columns of integers straight from the pages of an SQLite file: a tenth of the time that a cursor takes for its rows.

    pages = Pages(path)
    start, end = pages.integers(root, [0, 1])     # the table's first page, the numbers of its columns

A table is a tree of pages (https://www.sqlite.org/fileformat.html). A leaf holds cells: the payload's length, the row's
number, a header with a type for each column, the values, big-endian. Rows of equal headers lie equally, so where their
values are is worked out once for each header. Whatever is not laid out so, or holds something else than integers and
NULL, is `Unreadable`: SQLite itself then reads it, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAF, INNER = 13, 5
"""Types of the pages of a table with row numbers."""
SIZES = (0, 1, 2, 3, 4, 6, 8)
"""Bytes of an integer by its type in a header; types 8 and 9 are the numbers 0 and 1 and take none."""
FLOAT, ZERO, ONE, BLOB = 7, 8, 9, 12
NULL = -1
AT_ONCE = 4096
"""Leaves that are in memory at once."""
DEEPEST = 20
PAD = 16
"""Bytes before and after the leaves, where a wide read may begin or end."""
Numbers = NDArray[np.int64]


class Unreadable(Exception):
    """The table holds what only SQLite reads."""


class Pages:
    """The pages of one file."""

    def __init__(self, path: Path) -> None:
        whole: NDArray[np.uint8] = np.memmap(path, "uint8", "r")
        head = bytes(whole[:100])
        size = int.from_bytes(head[16:18], "big")
        self.size = 65536 if size == 1 else size
        self.usable = self.size - head[20]
        if self.size < 512 or len(whole) % self.size:
            raise Unreadable(f"{len(whole)} bytes are no whole pages of {self.size}")
        logged = head[18:20] != b"\1\1"  # by a write-ahead log
        if logged or Path(f"{path}-journal").exists():
            raise Unreadable("pages that count may lie in a file beside it")
        self.pages = whole.reshape(-1, self.size)

    def integers(self, root: int, columns: Sequence[int]) -> list[Numbers]:
        """Return columns of a table, in order of the rows' numbers; NULL is -1. Unreadable if they are not integers."""
        leaves = self._leaves(root)
        parts = [
            Leaves(self, leaves[i : i + AT_ONCE]).integers(columns) for i in range(0, len(leaves), AT_ONCE)
        ]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def _leaves(self, root: int) -> NDArray[np.int64]:
        """Return the numbers of a table's leaves, from 0, in order."""
        level = np.array([root - 1], "int64")
        for _ in range(DEEPEST):
            if level.min() < 1 or level.max() >= len(
                self.pages
            ):  # page 0 is the schema's, with a header of its own
                raise Unreadable("a page lies outside the file")
            kinds = self.pages[level, 0]
            if (kinds == LEAF).all():
                return level
            if (kinds != INNER).any():
                raise Unreadable("a page is no table's")
            level = np.concatenate([self._children(page) for page in self.pages[level]]) - 1
        raise Unreadable("the tree of pages has no end")

    def _children(self, page: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the numbers, from 1, of the pages below an inner one."""
        cells = page[12 : 12 + 2 * int.from_bytes(page[3:5].tobytes(), "big")].view(">u2").astype("int64")
        if len(cells) and cells.max() > self.size - 4:
            raise Unreadable("a cell lies outside its page")
        below = page[cells[:, None] + np.arange(4)] if len(cells) else page[:0].reshape(0, 4)
        return np.vstack([below, page[8:12]]).view(">u4").ravel().astype("int64")


class Leaves:
    """Some leaves of a table, one after the other in memory, and where each row's header and values lie."""

    def __init__(self, pages: Pages, numbers: NDArray[np.int64]) -> None:
        self.bytes = np.zeros(len(numbers) * pages.size + 2 * PAD, "uint8")
        leaves = self.bytes[PAD:-PAD].reshape(-1, pages.size)
        np.take(pages.pages, numbers, axis=0, out=leaves)
        base = PAD + pages.size * np.arange(len(numbers))
        count = leaves[:, 3:5].astype("int64") @ [256, 1]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        base = np.repeat(base, count)
        if len(within) and 8 + 2 * count.max() > pages.size:
            raise Unreadable("a page has more cells than room")
        cells = self._words(">u2")[base + 8 + 2 * within].astype("int64")
        payload, at = self._varint(base + np.minimum(cells, pages.size - 1))
        _, self.record = self._varint(at, known=False)
        outside = self.record + payload > base + pages.usable
        if (payload > pages.usable - 35).any() or outside.any():
            raise Unreadable("a row goes on in another page, or outside of its own")
        self.header = self.bytes[self.record].astype("int64")
        if len(payload) and (self.header.max() > 127 or (self.header > payload).any()):
            raise Unreadable("a header is too long")

    def _words(self, kind: str) -> NDArray[Any]:
        """Return the number of this kind that begins at each byte."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self.bytes) - size + 1,), kind, self.bytes, strides=(1,))

    def _varint(self, at: Numbers, *, known: bool = True) -> tuple[Numbers, Numbers]:
        """Return the numbers of variable length that begin at places, and where they end; not `known`, any number."""
        found = self.bytes[at].astype("int64")
        end = at + 1
        more = np.flatnonzero(found > 127)
        found &= 127
        for _ in range(8):
            if not len(more):
                return found, end
            following = self.bytes[end[more]].astype("int64")
            found[more] = found[more] << 7 | following & 127
            end[more] += 1
            more = more[following > 127]
        if known and len(more):
            raise Unreadable("a number is too long")
        return found, end

    def integers(self, columns: Sequence[int]) -> list[Numbers]:
        """Return columns; Unreadable if they hold anything but integers and NULL."""
        if not len(self.record):
            return [np.empty(0, "int64") for _ in columns]
        headers, which = self._headers()
        laid = np.array([list(_layout(header, columns)) for header in headers], "int64")
        values = self.record + self.header
        words, found = self._words(">i8"), []
        for number in range(len(columns)):
            end, size, constant = (laid[:, number, part][which] for part in range(3))
            shift = 8 * (8 - np.maximum(size, 1))
            read = words[values + end - 8].astype("int64") << shift >> shift
            found.append(np.where(size > 0, read, constant))
        return found

    def _headers(self) -> tuple[list[bytes], NDArray[np.int64]]:
        """Return the different headers, and which one each row has."""
        words, width = self._words("<u8"), -(-int(self.header.max()) // 8)
        kept = np.array([(1 << 8 * n) - 1 for n in range(9)], "uint64")
        found = np.empty((len(self.record), width), "uint64")
        keys = np.zeros(len(self.record), "uint64")
        for i in range(width):  # what follows a header in its last word is no part of it
            begin = np.minimum(self.record + 8 * i, len(self.bytes) - 8)
            found[:, i] = words[begin] & kept[np.clip(self.header - 8 * i, 0, 8)]
            keys = keys * np.uint64(0x9E3779B97F4A7C15) + (found[:, i] ^ found[:, i] >> np.uint64(29))
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        if (found != found[first[which]]).any():
            raise Unreadable("two headers have one key")
        return [row.tobytes()[: row.tobytes()[0]] for row in found[first]], which


def _layout(header: bytes, columns: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield where each column's value ends behind the header, its bytes, and the value that takes none."""
    kinds, offset, ends = [], 0, []
    for kind in _kinds(header):
        kinds.append(kind)
        offset += SIZES[kind] if kind < len(SIZES) else 8 if kind == FLOAT else max(0, kind - BLOB) // 2
        ends.append(offset)
    for column in columns:
        if column >= len(kinds) or kinds[column] == FLOAT or kinds[column] > ONE:
            raise Unreadable("a column holds no integers, or was added later")
        kind = kinds[column]
        yield ends[column], SIZES[kind] if kind < len(SIZES) else 0, NULL if kind == 0 else kind - ZERO


def _kinds(header: bytes) -> Iterator[int]:
    """Yield the types of the columns; the first number of a header is its length."""
    number = 0
    for byte in header[1:]:
        number = number << 7 | byte & 127
        if byte < 128:
            yield number
            number = 0
