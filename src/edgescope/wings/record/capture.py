"""Capture: turn this machine's files into a recording, reading only, and write it, with results on request.

Only the files in listed.toml are read: those that edgescope's devices read. Whatever names a machine
or a person is not on it: serial numbers, host name, addresses, environment, command lines of processes, and the
control group (which names a container). Lines of a listed file that carry such a thing are left out, and so are such
facts of a result.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from edgescope.devices import recording, replay
from edgescope.devices.kernel_files import fact, is_absent, why
from edgescope.devices.recording import MAX_ENTRIES, Entry, Frame, Recording
from edgescope.errors import StoreError, UsageError
from edgescope.store import files
from edgescope.store import results as store
from edgescope.wings.record.nameless import nameless

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTED: Mapping[str, Sequence[str]] = tomllib.loads(
    Path(__file__).with_name("listed.toml").read_text("utf-8")
)
"""Subject -> patterns of the paths that are read, below the root."""

_CLOSED = ("sys/kernel/debug",)
"""Folders that may be closed to this user; then one entry stands for everything below."""
_LEFT_OUT = ("proc/sys/kernel/hostname", "proc/device-tree/serial-number", "proc/self/cgroup")
"""Read by the devices, never recorded: they name the machine, its owner or a container."""
_SECRET_LINES = {"proc/cpuinfo": ("Serial",), "proc/stat": ("intr", "softirq")}
"""Starts of lines that are left out: a Raspberry Pi prints its serial number; interrupts are only long."""
_KEPT_LINES = {"proc/interrupts": "soctherm_edp"}
"""A line without one of these words is left out: only one of a thousand interrupts counts over-currents."""
_CLIENTS = "sys/kernel/debug/nvmap/iovmm/clients"
_CLIENT = re.compile(r"\s*(\S+)\s+\S.*?\s+[0-9]{1,10}\s+([0-9]{1,15}[BKMG]?)\s*")
_NO_CLIENT = re.compile(r"\s*(CLIENT\s+PROCESS\s+PID\s+SIZE|total\s+[0-9]+[BKMG]?)\s*")
"""Lines of NvMap's client list: a client with its process, PID and size; the heading and the sum."""
_MAX_TEXT = 1 << 19
_MOVING = ("proc/stat", "proc/loadavg", "proc/uptime", "proc/meminfo", "proc/pressure/*", "sys/*")
"""Subjects that are read again for every frame."""


@dataclass(frozen=True)
class Plan:
    """How long and how often to read."""

    seconds: float = 30.0
    hz: float = 2.0


def capture(
    board: str,
    plan: Plan,
    root: Path = Path("/"),
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Recording:
    """Return the recording of this machine over `plan.seconds`; frames hold only what changed."""
    start = clock()
    first = tuple(_entries(root))
    held: dict[str, str | None] = {e.path: e.text for e in first if e.text is not None}
    moving = [p for p in held if _matches(p, _MOVING)]
    frames = []
    for tick in range(1, int(plan.seconds * plan.hz) + 1):
        sleep(max(0.0, start + tick / plan.hz - clock()))
        t_s = round(clock() - start, 3)
        changed = {p: text for p in moving if (text := _text(root, p)) != held[p]}
        held |= changed
        if changed:
            frames.append(Frame(t_s, changed, "here"))
    about = f"{len(held)} files over {plan.seconds:g} s at {plan.hz:g} Hz"
    sources = {
        "here": f"read on the board itself by edgescope record, {time.strftime('%Y-%m-%d', time.gmtime())}"
    }
    return Recording(board, "captured", about, sources, first, tuple(frames))


def known(path: str) -> bool:
    """Return whether a recording may hold this path or leaves it out on purpose."""
    return path in _LEFT_OUT or any(_matches(path, patterns) for patterns in LISTED.values())


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _entries(root: Path) -> Iterator[Entry]:
    seen: set[str] = set()
    for path in _CLOSED:
        if (root / path).is_dir() and not os.access(root / path, os.R_OK | os.X_OK):
            yield Entry(path, None, f"no permission to read /{path}", "here")
    for patterns in LISTED.values():
        for pattern in patterns:
            for name in sorted(glob.glob(str(root / pattern), recursive=True)):
                path = os.path.relpath(name, root)
                if path in seen or len(seen) >= MAX_ENTRIES or not os.path.isfile(name):
                    continue
                seen.add(path)
                yield _entry(root, path)


def _entry(root: Path, path: str) -> Entry:
    try:
        return Entry(path, _read(root, path), "", "here")
    except OSError as error:
        return Entry(path, None, why(error, Path("/") / path), "here")


def _text(root: Path, path: str) -> str | None:
    """Return a file's current text, or None if it has become unreadable."""
    try:
        return _read(root, path)
    except OSError:
        return None


def _read(root: Path, path: str) -> str:
    fd = os.open(root / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    data = b""
    try:
        while len(data) < _MAX_TEXT and (part := os.read(fd, _MAX_TEXT)):  # /proc gives a page at a time
            data += part
    except BlockingIOError as error:
        raise OSError(errno.EAGAIN, "reading would wait") from error
    finally:
        os.close(fd)
    text = data.decode("utf-8", errors="replace")
    hidden = _SECRET_LINES.get(path)
    kept = _KEPT_LINES.get(path)
    if kept:
        text = "".join(line for line in text.splitlines(keepends=True) if kept in line)
    if path == _CLIENTS:
        text = "".join(map(_nameless, text.splitlines()))
    if hidden:
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(hidden))
    return text


def _nameless(line: str) -> str:
    """Return a line of NvMap's client list with the size but without the process; '' if its form is unknown."""
    if found := _CLIENT.fullmatch(line):
        return f"{found[1]} - 0 {found[2]}\n"
    return f"{line}\n" if _NO_CLIENT.fullmatch(line) else ""


# -- writing it to disk, with results that do not name their owner -----------------------------------------------

MAX_SECONDS, MAX_HZ = 3600.0, 50.0


def plan(output: str, seconds: float, hz: float, results: str | None) -> Plan:
    """Return the plan for these flags; UsageError if they are not valid."""
    if replay.played():
        raise UsageError(
            "E-REC-8", "a recording cannot be recorded", fix="leave out --board, and unset EDGESCOPE_BOARD"
        )
    if not (0 < seconds <= MAX_SECONDS and 0 < hz <= MAX_HZ):
        raise UsageError(
            "E-REC-3",
            f"{seconds:g} s at {hz:g} Hz cannot be recorded",
            evidence=f"up to {MAX_SECONDS:.0f} s and {MAX_HZ:.0f} Hz",
        )
    if not output.endswith(".zip" if results else (recording.SUFFIX, ".zip")):
        raise UsageError(
            "E-REC-4",
            f"{output!r} cannot be the recording's name",
            fix="-o NAME.zip (with --results), or -o NAME.board.jsonl",
        )
    if results and not Path(results).is_dir():
        raise UsageError("E-REC-5", f"there is no store at {results!r}", fix="--results DIR")
    return Plan(seconds, hz)


def board_name(root: Path = Path("/")) -> str:
    """Return the model's name as the device tree or the firmware prints it."""
    for path in ("proc/device-tree/model", "sys/class/dmi/id/product_name"):
        name = fact(root / path, lambda text: text.strip("\0 \n"))
        if not is_absent(name) and name:
            return str(name)
    return "unnamed board"


def write(what: Recording, output: Path, results: Path | None = None) -> int:
    """Write the recording, with the results of a store if one is given; return its size in bytes."""
    try:
        with files.written(output) as file:
            if output.suffix == ".zip":
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.writestr(recording.MEMBER, "".join(recording.lines(what)))
                    if results:
                        _add_results(results, archive)
            else:
                file.writelines(line.encode() for line in recording.lines(what))
    except OSError as error:
        raise StoreError(
            "E-REC-6", f"{output} cannot be written", evidence=str(error), fix="-o FILE in another folder"
        ) from error
    return output.stat().st_size


def _add_results(root: Path, archive: zipfile.ZipFile) -> None:
    """Add every readable result, without its owner's name, as a store below results/."""
    where = store.Store(root)
    for result in where.fulls(where.results()):
        bare = nameless(result)
        folder = Path(tempfile.mkdtemp(prefix="edgescope-record-"))
        try:
            store.write(bare, folder)
            for path in sorted(folder.iterdir()):
                archive.write(path, f"results/{bare.machine.id}/{bare.id}/{path.name}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
