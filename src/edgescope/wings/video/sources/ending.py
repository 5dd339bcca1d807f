"""Whether a film's file was cut off, by the sizes that its container writes of itself.

A header's count of frames or its duration says nothing about that: recorders count dropped frames, FFmpeg counts one
too many, a last frame may stand for seconds. The outermost boxes, chunks or elements end where the file ends, or it was
cut.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

EBML, SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def missing_bytes(path: Path) -> int:
    """Return how many bytes the container says the file should have beyond its end; 0 if it does not say so."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        if head[:4] == b"RIFF":
            return _beyond(file, size, _chunk)
        if head[4:8] == b"ftyp":
            return _beyond(file, size, _box)
        return max(0, _matroska(file) - size) if head[:4] == EBML else 0


def _beyond(file: BinaryIO, size: int, length: object) -> int:
    """Walk what stands one after another; return how far the last of it reaches beyond the end."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        step = length(file.read(16))  # type: ignore[operator]
        if step < 8:
            return 0  # a size that was never filled in, or one that means `to the end`
        at += step
    return max(0, at - size)


def _chunk(head: bytes) -> int:
    """Return the bytes of a RIFF chunk with its head; 0 for what is none, such as padding behind the last."""
    length: int = struct.unpack("<I", head[4:8])[0]
    return 8 + length + length % 2 if head[:4] == b"RIFF" and length else 0


def _box(head: bytes) -> int:
    """Return the bytes of a box of MP4 with its head."""
    length: int = struct.unpack(">I", head[:4])[0]
    if length == 1 and len(head) == 16:
        return int(struct.unpack(">Q", head[8:16])[0])
    return length if head[4:8].isalnum() else 0


def _matroska(file: BinaryIO) -> int:
    """Return where the segment ends by its own size; 0 if that was never filled in."""
    file.seek(4)
    file.seek(_vint(file), 1)
    if file.read(4) != SEGMENT:
        return 0
    length = _vint(file)
    return file.tell() + length if length else 0


def _vint(file: BinaryIO) -> int:
    """Return a number of EBML; 0 for one that is unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return 0
    wide = 9 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (1 << 8 - wide) - 1]) + file.read(wide - 1), "big")
    return 0 if value == (1 << 7 * wide) - 1 else value
