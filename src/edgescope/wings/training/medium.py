"""Storage media as a training run meets them: a test of a folder's own, slower classes, and the page cache before them.

The emulated classes let SD card, eMMC, hard disk and NVMe be compared on one machine: a read waits as long as the
class would take for the bytes that the page cache does not hold. What the page cache holds costs no medium anything,
so it costs nothing here. All workers share one medium, as they share one card.

Where this process may, cgroup v2's io.max limits how fast it and its loader's workers read a disk. Against these delays
the kernel throttles every read, metadata and read-ahead too. It bounds bytes and reads a second only: the wait of a
single read stays the disk's own. Source: admin-guide/cgroup-v2.rst.

`mincore` tells which pages of a mapped file are in the page cache, `posix_fadvise` drops clean pages; neither needs
rights beyond those on the user's own files. A file that another process has mapped keeps its pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.errors import UnsupportedError


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
        held, size = resident_bytes(path)
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
    drop(chosen)
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
    drop(chosen)
    read, counted, start = 0, 0, time.monotonic()
    for path in chosen:
        read += len(Path(path).read_bytes())
        counted += 1
        if time.monotonic() > start + seconds / 2:
            break
    return Speed(read / (time.monotonic() - start), sorted(waits)[len(waits) // 2], counted)


# -- the kernel's limit --------------------------------------------------------------------------------------


DYING_TRIES = 60


@contextmanager
def limited(folder: Path, medium: Medium, root: Path = Path("/")) -> Iterator[str]:
    """Let this process and those that it starts read a folder's disk as slowly as a medium; yield the limit.

    UnsupportedError if this process may set no such limit, or the folder lies on no disk.
    """
    groups, pid = root / "sys/fs/cgroup", os.getpid()
    group = groups / f"edgescope-io-{pid}"
    try:
        limit = f"{disk(folder, root)} rbps={round(medium.bytes_s)} riops={round(medium.depth / medium.latency_s)}"
        before = _group_of(root)
        if before.startswith("edgescope-"):
            raise OSError(errno.EBUSY, "a mode's own group holds this process, and would lose it", before)
        if "io" not in (groups / "cgroup.controllers").read_text().split():
            raise OSError(
                errno.ENOTSUP, "the kernel limits no reads here", str(groups / "cgroup.controllers")
            )
        (groups / "cgroup.subtree_control").write_text("+io")
        group.mkdir(exist_ok=True)
        (group / "io.max").write_text(limit)
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        _remove(group)
        raise UnsupportedError(
            "E-MEDIUM-1",
            "the reads of a folder cannot be limited by a control group here",
            evidence=str(error),
            effect="Nothing was measured",
            fix="--workload-option medium_by=delay",
        ) from error
    try:
        yield limit
    finally:
        with contextlib.suppress(OSError):
            (groups / before / "cgroup.procs").write_text(str(pid))
        _remove(group)


def disk(folder: Path, root: Path = Path("/")) -> str:
    """Return the number of the whole disk that a folder lies on, as `8:0`; OSError if it lies on none."""
    number = folder.stat().st_dev
    block = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    if not block.exists():
        raise OSError(errno.ENODEV, "the folder lies on no disk", str(folder))
    whole = block.resolve().parent if (block / "partition").exists() else block
    return (whole / "dev").read_text().strip()


def _group_of(root: Path) -> str:
    """Return the control group of this process, below the top."""
    rows = (root / "proc/self/cgroup").read_text().splitlines()
    return next((row.removeprefix("0::").strip("/") for row in rows if row.startswith("0::")), "")


def _remove(group: Path) -> None:
    """Remove a group; workers that were just ended may still be in it for a moment."""
    for _ in range(DYING_TRIES):
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        time.sleep(0.05)


# -- the page cache -------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Traffic:
    """What the kernel counted of a block device so far (admin-guide/iostats.rst), and what was swapped in."""

    at_ns: int
    reads: int
    sectors: int
    read_ms: int
    """Time of all reads together."""
    busy_ms: int
    """Time for which any was under way."""
    queue_ms: int
    """Time of all that was under way, each counted."""
    swapped_pages: int | None

    def since(self, before: Traffic) -> dict[str, float | int | None]:
        """Return what iostat tells of the time in between: bytes, await, queue and use; and the bytes swapped in.

        `device_await_s` is seconds a read, None where none ended; `device_queue` the mean of reads and writes under
        way; `device_use` the share of the time with any.
        """
        reads, ms = self.reads - before.reads, (self.at_ns - before.at_ns) * 1e-6
        known = None not in (self.swapped_pages, before.swapped_pages)
        swapped = ((self.swapped_pages or 0) - (before.swapped_pages or 0)) * os.sysconf("SC_PAGESIZE")
        return {
            "device_bytes": (self.sectors - before.sectors) * 512,
            "device_await_s": (self.read_ms - before.read_ms) * 1e-3 / reads if reads else None,
            "device_queue": (self.queue_ms - before.queue_ms) / ms if ms else None,
            "device_use": min(1.0, (self.busy_ms - before.busy_ms) / ms) if ms else None,
            "swapped_bytes": swapped if known else None,
        }


def traffic(path: Path | str, root: Path = Path("/proc")) -> Traffic | None:
    """Return the counters of the block device that a file lies on, of everybody's reads; None if it lies on none."""
    number = os.stat(path).st_dev
    wanted = (os.major(number), os.minor(number))
    try:
        rows = (root / "diskstats").read_text().splitlines()
    except OSError:
        return None
    for row in map(str.split, rows):
        if (int(row[0]), int(row[1])) == wanted:
            reads, _, sectors, read_ms = map(int, row[3:7])
            busy, queue = (int(row[12]), int(row[13])) if len(row) > 13 else (0, 0)
            return Traffic(time.monotonic_ns(), reads, sectors, read_ms, busy, queue, _swapped(root))
    return None


def _swapped(root: Path) -> int | None:
    """Return the pages swapped in so far; None where the kernel does not say."""
    try:
        rows = (root / "vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(row.split()[1]) for row in rows if row.startswith("pswpin ")), None)
