"""Reading /proc and sysfs: cheaply for the sampler, honestly for everyone.

A kernel file is opened once and read from its start with pread: the kernel renders it anew each time. A file
that does not exist is Unsupported, a file that exists but cannot be read now is Failed; both say why, and
neither is 0.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value

Fact = Any
"""A JSON value, or {"absent": reason}."""

_MAX_CPUS = 1 << 16
_LARGEST_SCALE = 1e9
_NOT_HERE = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


class KernelFile:
    """One kernel file, opened once."""

    __slots__ = ("_fd", "_problem", "_size", "path")

    def __init__(self, path: Path, size: int = 4096) -> None:
        self.path, self._size, self._fd = path, size, -1
        self._problem = Unsupported("")
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._problem = Unsupported(why(error, path))

    def read(self) -> bytes | Unsupported | Failed:
        """Return the content (up to `size` bytes), or why it cannot be read."""
        if self._fd < 0:
            return self._problem
        try:
            return os.pread(self._fd, self._size, 0)
        except OSError as error:
            reason = why(error, self.path)
            return Unsupported(reason) if error.errno in _NOT_HERE else Failed(reason)

    def number(self, scale: float = 1.0) -> float | Unsupported | Failed:
        """Return the one number the file holds, times `scale`."""
        data = self.read()
        if not isinstance(data, bytes):
            return data
        try:
            return finite(data) * scale
        except ValueError:
            return Failed(f"{self.path} holds {data[:40]!r}, not a number")

    def close(self) -> None:
        """Close the file; reading it afterwards returns Unsupported."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._problem = -1, Unsupported(f"{self.path} was closed")

    def __del__(self) -> None:
        self.close()


class Each:
    """A Source whose channels are read one by one, each by its own function."""

    def __init__(self, metrics: Iterable[tuple[ChannelSpec, Callable[[], Value]]]) -> None:
        self._metrics = tuple(metrics)

    def channels(self) -> Sequence[ChannelSpec]:
        """Return every channel."""
        return [spec for spec, _ in self._metrics]

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return every channel's value now."""
        return [(spec.name, time.monotonic_ns(), value()) for spec, value in self._metrics]


def word(text: str) -> str:
    """Return a kernel's label as part of a channel's name: `CPU-therm` is cpu_therm."""
    return "".join(c if c.isalnum() else "_" for c in text).strip("_").lower()


def finite(text: str | bytes) -> float:
    """Return the number; ValueError for nan and for a number so large that it would spoil every sum."""
    value = float(text)
    if not math.isfinite(value * _LARGEST_SCALE):
        raise ValueError(f"{text[:40]!r} is not a finite number")
    return value


def why(error: OSError, path: Path) -> str:
    """Return why a file could not be read, with its path."""
    if error.errno == errno.ENOENT:
        return f"no {path}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no permission to read {path}"
    if error.errno == errno.ESRCH:
        return f"the process of {path} has ended"
    return f"{path}: {error.strerror or error}"


def absent(reason: str) -> Fact:
    """Return the JSON form of a fact that is not known."""
    return {"absent": reason}


def fact(path: Path, convert: Callable[[str], Any] = str.strip) -> Fact:
    """Return the converted text of a file, or {"absent": reason}."""
    try:
        return convert(path.read_text(errors="replace"))
    except OSError as error:
        return absent(why(error, path))
    except (ValueError, LookupError, ArithmeticError) as error:
        return absent(f"{path} is not as expected ({error})")


def is_absent(value: Fact) -> bool:
    """Return whether a fact is {"absent": reason}."""
    return isinstance(value, dict) and set(value) == {"absent"}


def cpu_list(text: str) -> list[int]:
    """Return the numbers in a kernel list such as `0-3,8` (Documentation/admin-guide/cputopology)."""
    out: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if int(last or first) >= _MAX_CPUS:
            raise ValueError(f"no machine has a CPU {(last or first)[:20]}")
        out.extend(range(int(first), int(last or first) + 1))
    return out
