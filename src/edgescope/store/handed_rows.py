"""Raw rows as one process hands them to another: columns as they lie in memory, one after the other, in one file.

The process that measures would need a database to write what a store keeps: it takes as much memory as an engine.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from edgescope.records.lazy import NDArray, np
from edgescope.store import files
from edgescope.store.rows import MOST, MOST_BYTES, damaged

SUFFIX = ".npz"


def write(columns: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write columns of equal length; OSError if the disk does not take them."""
    with open(path, "wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]


def read(
    path: Path,
    dtypes: Mapping[str, str],
    later: Collection[str] = (),
    also: Callable[[str], object] = lambda name: False,
) -> dict[str, NDArray[Any]]:
    """Return the columns that `dtypes` names, and int64 ones that `also` accepts, as rows.read does."""
    try:
        with (
            files.opened(path, MOST_BYTES) as handle,
            open(handle, "rb", closefd=False) as file,
            np.load(file, allow_pickle=False) as held,
        ):
            kinds = {**dtypes, **{name: "int64" for name in held.files if name not in dtypes and also(name)}}
            found = {name: np.asarray(held[name], dtype=kind) for name, kind in kinds.items()}
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise damaged(path, str(error) or type(error).__name__) from error
    if len({column.shape for column in found.values()}) != 1 or next(iter(found.values())).ndim != 1:
        raise damaged(path, "its columns differ in length")
    if any(len(column) > MOST for column in found.values()):
        raise damaged(path, f"more than {MOST:,} rows")
    return found
