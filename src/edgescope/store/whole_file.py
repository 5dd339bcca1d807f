"""Write output files (--output) completely, or leave the previous file in place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
