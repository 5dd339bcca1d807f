"""The cache of files that are expensive to make: exported and quantised models, decoded photographs.

Everything in it can be made again, so deleting the folder is always safe. A file appears whole or not at
all: it is written under another name and renamed, so two processes may make the same file at once and a
kill leaves no partial file. EDGESCOPE_CACHE names the folder; by default it is ~/.cache/edgescope.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from edgescope import registry
from edgescope.errors import StoreError
from edgescope.records import Json

STALE_S = 24 * 3600.0
"""A workbench of this age in seconds that no process holds belongs to a killed process."""
_BENCH, _HELD = ".edgescope-making-", ".held"


def root() -> Path:
    """Return the cache folder; it need not exist yet."""
    named = os.environ.get("EDGESCOPE_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "edgescope"


def folder(kind: str) -> Path:
    """Return the folder for one kind of file (`onnx`, `int8`, `samples`, `references`); make it if missing."""
    path = root() / kind
    return made(path)


def made(path: Path) -> Path:
    """Make the folder `path` if missing and return it; StoreError if it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            "E-CACHE-1",
            f"the cache folder {path} cannot be made",
            evidence=str(error),
            fix="EDGESCOPE_CACHE=/a/folder/you/can/write edgescope ...",
        ) from error
    return path


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; it is renamed to `path` if the block ends without an error."""
    handle, name = tempfile.mkstemp(dir=made(path.parent), prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise unwritten(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def workbench(path: Path) -> Iterator[Path]:
    """Yield a new folder next to `path` to make it in; the folder is removed with its content when the block ends.

    A killed process leaves its folder behind, weights included; such folders of a day ago that no process holds are
    removed first. Raises StoreError if no folder can be made.
    """
    for left in made(path.parent).glob(f"{_BENCH}*"):
        with suppress(OSError):  # it is held, or another process removes it
            _remove_if_left(left)
    with ExitStack() as stack:
        try:
            new = TemporaryDirectory(dir=path.parent, prefix=_BENCH, ignore_cleanup_errors=True)
            bench = Path(stack.enter_context(new))
            held = stack.enter_context(open(bench / _HELD, "w"))
        except OSError as error:
            raise unwritten(path, error) from error
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield bench


def _remove_if_left(folder: Path) -> None:
    """Remove an old workbench that no process holds; OSError if one does. Setting the clock can make a new one old."""
    with open(folder / _HELD) as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - folder.stat().st_mtime > STALE_S:
            shutil.rmtree(folder, ignore_errors=True)


def unwritten(path: Path, error: OSError) -> StoreError:
    """Return the error for a file that cannot be written to the cache."""
    return StoreError(
        "E-CACHE-2",
        f"{path.name} cannot be written to the cache",
        evidence=str(error),
        fix=f"free space under {path.parent} or set EDGESCOPE_CACHE",
    )


def named(folder: Path, name: str, kind: str, key: str, suffix: str) -> Path:
    """Return the path of a file of the model `name`; `key` is a digest of everything that decides its content."""
    return made(folder) / f"{safe(name)}-{kind}-{key}{suffix}"


def made_once(path: Path, make: Callable[[Path], Mapping[str, Json]]) -> Path:
    """Return `path`; if it is missing or partial, call `make`, which writes the path it is given and returns notes.

    The notes are stored next to the file with its length, by which a partial file is recognised. `make` may write
    nothing and return why, which is remembered.
    """
    if whole(path):
        return path
    with alone(path):
        if not whole(path):
            with building(path) as temporary:
                found = dict(make(temporary))
                found["bytes"] = length(temporary)
            write_json(sidecar(path), found)
    return path


def whole(path: Path) -> bool:
    """Return whether an artifact, with its external weights, exists and is as long as when it was made."""
    return path.exists() and length(path) == notes(path).get("bytes")


def notes(path: Path) -> dict[str, Json]:
    """Return the notes stored when an artifact was made; {} for a file made elsewhere."""
    return read_json(sidecar(path)) or {}


def sidecar(path: Path) -> Path:
    """Return the path of the JSON file that says how an artifact was made."""
    return path.with_suffix(".json")


def safe(name: str) -> str:
    """Return `name` with only characters that are safe in a file name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-60:]


def external_data(path: Path) -> Path:
    """Return the path of a file's external weights, which ONNX uses if they do not fit into the file."""
    return path.with_name(path.name + ".data")


def length(path: Path) -> int:
    """Return the bytes of a file and of its external weights."""
    return sum(part.stat().st_size for part in (path, external_data(path)) if part.exists())


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process is in such a block for `path`: it need not make what that one makes.

    Where nothing can be locked, several make it, and the last one's stays.
    """
    lock = path.with_name(f".{path.name}.lock")
    with ExitStack() as stack:
        with suppress(OSError):
            held = stack.enter_context(open(made(path.parent) / lock.name, "w"))
            stack.callback(lock.unlink, missing_ok=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """Yield a path of the same name in a temporary folder; move the file to `path` when the block ends.

    Raises StoreError for any OSError meanwhile: the disk is full or cannot be written.
    """
    with workbench(path) as bench:
        try:
            yield bench / path.name
        except OSError as error:
            raise unwritten(path, error) from error
        put(bench, path)


def put(bench: Path, path: Path) -> None:
    """Move the file made in `bench` to `path`; StoreError if that fails.

    The external weights move before the file, so `path` exists only if all of it does.
    """
    try:
        for name in (external_data(path).name, path.name):
            if (part := bench / name).exists():
                part.replace(path.parent / name)
    except OSError as error:
        raise unwritten(path, error) from error


def write_bytes(path: Path, data: bytes) -> Path:
    """Write `data` to `path` whole or not at all; return `path`."""
    with writing(path) as temporary:
        temporary.write_bytes(data)
    return path


def write_json(path: Path, value: Json) -> Path:
    """Write `value` as JSON to `path` whole or not at all; return `path`."""
    return write_bytes(path, json.dumps(value, indent=1, sort_keys=True).encode())


def read_json(path: Path) -> Json | None:
    """Return the JSON in `path`, or None if it is missing or damaged, so that it is made again."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def content(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits; read the file again only if its size or time changed."""
    about = path.stat()
    return _hashed(str(path.resolve()), about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=4096)  # more than the files of a data set: each is asked for in turn, again and again
def _hashed(path: str, size: int, mtime_ns: int) -> str:
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            state.update(chunk)
    return state.hexdigest()


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return package -> installed version, without importing any; 'absent' if it is not installed."""
    return {package: registry.version(package) or "absent" for package in packages}
