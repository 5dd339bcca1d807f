"""Storage media as a training run meets them: a test of a folder's own, and slower classes emulated by delays.

The emulated classes let SD card, eMMC, hard disk and NVMe be compared on one machine: a read waits as long as the
class would take for the bytes that the page cache does not hold. What the page cache holds costs no medium anything,
so it costs nothing here. All workers share one medium, as they share one card.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope.wings.training import page_cache


@dataclass(frozen=True)
class Medium:
    """A class of storage: bytes a second in sequence, seconds of one random read, reads that it serves at once."""

    bytes_s: float
    latency_s: float
    depth: int


MEDIA: Mapping[str, Medium] = {
    "sd": Medium(80e6, 1.2e-3, 1),  # UHS-I, A1: 1,500 random reads/s are not reached by most cards
    "emmc": Medium(250e6, 0.25e-3, 2),  # eMMC 5.1
    "hdd": Medium(120e6, 12e-3, 1),  # 5,400 rpm over USB: half a turn and a seek
    "nvme": Medium(2000e6, 0.08e-3, 32),  # PCIe 3.0 x4
}
"""Typical figures of each class; a real device is measured by `speed`."""


class Throttle:
    """Delays reads as a medium would; every process that inherits it shares the one medium."""

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        self.free_ns: Any = multiprocessing.get_context("fork").Value("q", 0)

    def wait(self, path: Path | str) -> None:
        """Return when the medium would have delivered what the page cache does not hold of a file."""
        held, size = page_cache.resident_bytes(path)
        if size > held:
            self.serve(size - held)

    def serve(self, size: int) -> None:
        """Return when the medium would have read so many bytes."""
        medium = self.medium
        alone = round(medium.latency_s / medium.depth * 1e9) + round(size / medium.bytes_s * 1e9)
        with self.free_ns.get_lock():
            now = time.monotonic_ns()
            end = max(now, self.free_ns.value) + alone
            self.free_ns.value = end
        end = max(end, now + round((medium.latency_s + size / medium.bytes_s) * 1e9))
        time.sleep(max(0, end - time.monotonic_ns()) * 1e-9)


@dataclass(frozen=True)
class Speed:
    """What a folder's medium did in a short test of cold reads."""

    bytes_s: float
    """Bytes a second of whole files, one after another."""
    latency_s: float
    """Median seconds of a read of 4 KiB at a random place that the page cache did not hold."""
    files: int
    """Files that were read as a whole in the time."""


def speed(files: Sequence[Path | str], *, most: int = 64, seconds: float = 2.0) -> Speed:
    """Return how fast cold reads of some of these files are; at most `most` files and `seconds`.

    Their pages are dropped before, and are in the page cache afterwards. ValueError if there are no files.
    """
    chosen = files[:: max(1, len(files) // most)][:most]
    if not chosen:
        raise ValueError("there are no files to read")
    page_cache.drop(chosen)
    end, waits = time.monotonic() + seconds / 2, []
    for path in chosen:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        start = time.monotonic()
        os.pread(fd, 4096, os.fstat(fd).st_size // 2 // 4096 * 4096)
        waits.append(time.monotonic() - start)
        os.close(fd)
        if time.monotonic() > end:
            break
    page_cache.drop(chosen)
    read, counted, start = 0, 0, time.monotonic()
    for path in chosen:
        read += len(Path(path).read_bytes())
        counted += 1
        if time.monotonic() > start + seconds / 2:
            break
    return Speed(read / (time.monotonic() - start), sorted(waits)[len(waits) // 2], counted)
