"""What of a data set lies in the page cache, and how to put it there or take it out, for the user's own files.

`mincore` tells which pages of a mapped file are resident, `posix_fadvise` drops clean pages; neither needs rights
beyond those on the files. A file that another process has mapped keeps its pages.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
SAMPLE = 256
"""Number of files whose residency stands for a data set of more: asking costs 20 microseconds a file."""


def resident_bytes(path: Path | str) -> tuple[int, int]:
    """Return how many bytes of a file lie in the page cache, and its size; OSError if it cannot be mapped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if not size:
            return 0, 0
        with mmap.mmap(fd, size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as pages:
            view = np.frombuffer(pages, np.uint8)
            flags = np.zeros(-(-size // PAGE), np.uint8)
            failed = _mincore()(view.ctypes.data, size, flags.ctypes.data)
            del view
    finally:
        os.close(fd)
    if failed:
        raise OSError("the kernel does not say which pages are resident")
    return min(int((flags & 1).sum()) * PAGE, size), size


def _mincore() -> Any:
    call = ctypes.CDLL(None, use_errno=True).mincore
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return call


def residency(files: Sequence[Path | str]) -> float | None:
    """Return the share of a data set that lies in the page cache, from at most SAMPLE of its files; None if unknown."""
    chosen = files[:: max(1, len(files) // SAMPLE)]
    held = whole = 0
    for path in chosen:
        try:
            here, size = resident_bytes(path)
        except OSError:
            continue
        held, whole = held + here, whole + size
    return held / whole if whole else None


def drop(files: Iterable[Path | str]) -> None:
    """Take files out of the page cache; what is not yet on the disk is written first."""
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def fill(files: Iterable[Path | str]) -> None:
    """Read files once, so that the page cache holds them as far as memory allows."""
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def device_read_bytes(path: Path | str, root: Path = Path("/proc")) -> int | None:
    """Return the bytes read so far from the block device of a file, by anybody; None if it lies on none."""
    number = os.stat(path).st_dev
    wanted = (os.major(number), os.minor(number))
    try:
        rows = (root / "diskstats").read_text().splitlines()
    except OSError:
        return None
    for row in map(str.split, rows):
        if (int(row[0]), int(row[1])) == wanted:
            return int(row[5]) * 512
    return None
