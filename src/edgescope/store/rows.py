"""Raw rows as parquet: columns of equal length and requested types, no more rows than fit into memory.

The file is opened here and handed to DuckDB by its descriptor, so DuckDB follows no link and reads no pattern of names.
"""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from edgescope.errors import StoreError
from edgescope.records.lazy import NDArray, np
from edgescope.store import files

SUFFIX = ".parquet"
#: Most bytes, and most rows, of a file: an hour at ten thousand queries a second. Equal values take no space in a
#: file, so a small file can hold more rows than fit into memory.
MOST_BYTES, MOST = 4_000_000_000, 40_000_000

_SQL = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float64": "DOUBLE",
}


@functools.cache
def _database() -> Any:
    """Return this process's one database in memory: to open one takes as long as ten small files.

    It has no thread, which would stay in a process that is measured, and keeps no file, as descriptors are used again.
    """
    import duckdb

    database = duckdb.connect(config={"threads": 1})
    with contextlib.suppress(duckdb.Error):  # before 1.3 there is no such setting
        database.execute("SET enable_external_file_cache = false")
    return database


def write(columns: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write columns of equal length; OSError if the disk does not take them."""
    import duckdb

    rows = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    try:
        with _database().cursor() as connection:
            connection.register("rows", rows)
            connection.execute(
                "COPY (SELECT * FROM rows) TO ? (FORMAT parquet, COMPRESSION zstd)", [str(path)]
            )
    except duckdb.Error as error:
        _database.cache_clear()
        text = str(error).splitlines()[0]
        full = "No space left" in text
        raise OSError(errno.ENOSPC if full else errno.EIO, text) from error


def read(
    path: Path,
    dtypes: Mapping[str, str],
    later: Collection[str] = (),
    also: Callable[[str], object] = lambda name: False,
) -> dict[str, NDArray[Any]]:
    """Return the columns that `dtypes` names, as these types; StoreError if the file lacks them.

    A column in `later` may be lacking: older versions did not write it. It is then -1 in every row. Other columns
    whose names `also` accepts are int64; a file with many of them may have fewer rows.
    """
    import duckdb

    try:
        with files.opened(path, MOST_BYTES) as handle, _database().cursor() as connection:
            source = [f"/dev/fd/{handle}"]
            counted = connection.execute("SELECT count(*) FROM read_parquet(?)", source).fetchone()
            has = [
                row[0]
                for row in connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", source).fetchall()
            ]
            kinds = {**dtypes, **{name: "int64" for name in has if name not in dtypes and also(name)}}
            most = MOST * len(dtypes) // len(kinds)
            if not counted or counted[0] > most:
                raise damaged(path, f"{counted[0] if counted else 'no'} rows; {most:,} are read at most")
            lacking = set(later) - set(has)
            words = ", ".join(
                f"CAST({-1 if name in lacking else _quoted(name)} AS {_SQL[kind]}) AS {_quoted(name)}"
                for name, kind in kinds.items()
            )
            found = connection.execute(f"SELECT {words} FROM read_parquet(?)", source).fetchnumpy()
    except (duckdb.Error, OSError) as error:
        _database.cache_clear()  # some errors end the database
        raise damaged(path, (str(error) or type(error).__name__).splitlines()[0]) from error
    if any(np.ma.is_masked(found[name]) for name in kinds):
        raise damaged(path, "some values are missing")
    return {name: np.asarray(found[name], dtype=kind) for name, kind in kinds.items()}


def _quoted(name: str) -> str:
    """Return a column's name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def damaged(path: Path, evidence: str) -> StoreError:
    """Return the error for a file of raw rows that cannot be read."""
    return StoreError(
        "E-STORE-4",
        f"{files.shown(path)} cannot be read",
        evidence=evidence,
        effect="Its result has no raw rows, so no figure is derived from it",
        fix=files.removal(path.parent),
    )
