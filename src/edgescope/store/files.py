"""Files of a store: read what a stranger may have written, and write output files completely or not at all.

A folder of results may come from another machine, an archive or a stranger. A link in it may lead anywhere, a FIFO
answers never, a device file never ends. So whatever is in there is looked at before it is opened, and again after: no
links are followed, nothing blocks, sizes are bounded.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from edgescope.errors import StoreError

#: Names of edgescope's folders in a store: letters, digits, dots, dashes, and no leading dot.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def refused(path: Path, evidence: str) -> StoreError:
    """Return the error E-STORE-6: something in a store was not written by edgescope."""
    return StoreError(
        "E-STORE-6",
        f"{shown(path)} is not edgescope's own",
        evidence=evidence,
        effect="It is left alone, and so is its target",
        fix="look at it before you delete it; a store holds folders and ordinary files only",
    )


def shown(path: Path) -> str:
    """Return a path for a message, with characters that a terminal would obey or hide escaped."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def kind(mode: int) -> str:
    """Return the kind of a special file, or '' for a folder or an ordinary file."""
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else _KINDS.get(stat.S_IFMT(mode), "no file")


def is_folder(path: Path) -> bool:
    """Return whether the path itself is a folder; False if nothing is there, StoreError for anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise refused(path, f"it is {kind(mode) or 'a file'}, not a folder")
    return True


def is_file(path: Path) -> bool:
    """Return whether the path itself is an ordinary file; False if nothing is there, StoreError for anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise refused(path, f"it is {_KINDS.get(stat.S_IFMT(mode), 'no file')}")
    return True


def folders(path: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the folders and links in a folder, in the order of their names."""
    with os.scandir(path) as entries:
        found = [e for e in entries if e.is_symlink() or e.is_dir(follow_symlinks=False)]
    yield from sorted(found, key=lambda e: e.name)


@contextmanager
def opened(path: Path, most: int) -> Iterator[int]:
    """Yield a descriptor of an ordinary file of at most `most` bytes; StoreError for anything else.

    Raises FileNotFoundError if there is none.
    """
    mode = path.lstat().st_mode  # before opening: opening a device may already do something
    if not stat.S_ISREG(mode):
        raise refused(path, f"it is {_KINDS.get(stat.S_IFMT(mode), 'no file')}")
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        now = os.fstat(handle)
        if not stat.S_ISREG(now.st_mode):  # exchanged meanwhile
            raise refused(path, f"it is {_KINDS.get(stat.S_IFMT(now.st_mode), 'no file')}")
        if now.st_size > most:
            raise refused(
                path, f"it holds {now.st_size / 1e6:,.0f} MB; {most / 1e6:,.0f} MB are read at most"
            )
        yield handle
    finally:
        os.close(handle)


def read(path: Path, most: int) -> bytes:
    """Return the content of an ordinary file of at most `most` bytes; StoreError for anything else."""
    with opened(path, most) as handle, open(handle, "rb", closefd=False) as file:
        data = file.read(most + 1)  # it may have grown since
    if len(data) > most:
        raise refused(path, f"it holds more than the {most / 1e6:,.0f} MB that are read at most")
    return data


def removal(folder: Path) -> str:
    """Return the shell command that removes a result's folder, or '' if its name is not one of edgescope's."""
    return f"rm -r -- {shlex.quote(str(folder))}" if NAME.match(folder.name) else ""


# -- output files (--output), whole or the previous one left in place ------------------------------------------


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file next to `path` that is renamed to `path` if the block ends without an error, and removed otherwise.

    A device or a pipe (/dev/stdout) is opened directly. OSError if nothing can be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))  # a link keeps pointing to the file
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> Path:
    """Write `text` as UTF-8 to `path`, whole or not at all; return `path`."""
    with written(path) as file:
        file.write(text.encode())
    return path


def writable(path: Path) -> None:
    """Raise OSError if `path` could not be written; its folder is created, nothing else is left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is write-protected")
    if not path.exists() or path.is_file():
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))):
            pass
