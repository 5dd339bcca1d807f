"""Results on disk: a folder each, written aside and renamed into place, so a kill leaves no half of one.

    DIR/<machine id>/<result id>/result.json        everything but the raw rows
                                 queries.parquet    one row per query
                                 readings.parquet   t_ns, channel (index into result.json's channels), value
                                 files/             logs of a program that drove the load (MLPerf LoadGen)

Merging two machines' results is copying folders. DuckDB reads a tree of them in place:
`duckdb -c "select * from 'DIR/*/*/queries.parquet'"`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import codec
from edgescope.errors import EdgescopeError, StoreError, UsageError
from edgescope.records import QUERY_DTYPES, Json, Machine, Queries, Readings, Result, Status

ASIDE = ".incoming"
FILES = "files"
#: Room that must be there before measuring starts: a few minutes of queries take less.
PROBE_BYTES = 1_000_000
#: A half-written result this old belongs to nobody; writing one takes seconds.
STALE_S = 3600.0
#: A trial with one of these is answered; the others are tried again by a resumed sweep.
FINAL = frozenset(
    {Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.WRONG_OUTPUT}
    | {Status.UNSTABLE, Status.SKIPPED, Status.FAILED}
)


def default_root() -> Path:
    """Return EDGESCOPE_STORE or ./edgescope-results."""
    return Path(os.environ.get("EDGESCOPE_STORE") or "edgescope-results")


class Store:
    """A folder of results."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[StoreError] = []
        """What the last listing could not read; the rest was listed all the same."""

    def check(self) -> None:
        """Write and remove one megabyte; StoreError where that fails, before an hour of measuring is spent."""
        try:
            aside = self._aside()
            with tempfile.NamedTemporaryFile(dir=aside) as probe:
                probe.write(bytes(PROBE_BYTES))
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as error:
            raise self._cannot_write(error) from error

    def save(self, result: Result) -> Path:
        """Write the result whole and return its folder; on failure keep it in the temporary folder and say where."""
        try:
            return self._save(result)
        except (OSError, StoreError) as error:
            kept = _rescue(result)
            where = f"It is kept in {kept}" if kept else "It could not be kept elsewhere either"
            failure = self._cannot_write(error)
            fix = f"make room, then: cp -r {kept}/. {self.root}/" if kept else failure.fix
            raise StoreError(
                failure.code, failure.what, evidence=failure.evidence, effect=where, fix=fix
            ) from error

    def _save(self, result: Result) -> Path:
        target = self.root / result.machine.id / result.id
        folder = Path(tempfile.mkdtemp(dir=self._aside(), prefix=f"{socket.gethostname()}-{os.getpid()}-"))
        try:
            write(result, folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
            folder.rename(target)
            _sync(target.parent)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return target

    def _aside(self) -> Path:
        aside = self.root / ASIDE
        aside.mkdir(parents=True, exist_ok=True)
        return aside

    def clean(self) -> None:
        """Remove what was left half-written: older than an hour, or by a process of this host that is gone."""
        for leftover in (self.root / ASIDE).glob("*-*-*"):
            host, pid, _ = leftover.name.rsplit("-", 2)
            gone = host == socket.gethostname() and not Path(f"/proc/{pid}").exists()
            with contextlib.suppress(OSError):
                if gone or time.time() - leftover.stat().st_mtime > STALE_S:
                    shutil.rmtree(leftover)

    def results(self) -> Iterator[Result]:
        """Yield every readable result without its raw rows, oldest first; `problems` holds the others."""
        if not self.root.is_dir():
            return
        self.problems = []
        found: list[Result] = []
        for path in self.root.glob("*/*/result.json"):
            if path.parts[-3] == ASIDE:
                continue
            try:
                found.append(codec.from_json(_json(path)))
            except StoreError as error:
                self.problems.append(
                    StoreError(error.code, error.what, evidence=f"{path}: {error.evidence}", fix=error.fix)
                )
        yield from sorted(found, key=lambda r: (r.started_at, r.id))

    def finished(self, where: Machine, retry: Collection[Status] = ()) -> dict[str, Result]:
        """Return trial id -> latest result of the trials that need no other run on this machine.

        A result of another machine, or of other package versions, answers another question; `retry` names statuses
        that are worth another try.
        """
        software = where.state.get("packages")
        return {
            r.trial.id: r
            for r in self.results()
            if r.status in FINAL
            and r.status not in retry
            and r.machine.id == where.id
            and r.machine.state.get("packages") == software
        }

    def fulls(self, results: Iterable[Result]) -> list[Result]:
        """Return the results with their raw rows; one whose rows cannot be read is left out and named in `problems`."""
        found = []
        for result in results:
            try:
                found.append(self.full(result))
            except StoreError as error:
                self.problems.append(error)
        return found

    def find(self, prefix: str) -> list[Result]:
        """Return the results whose result, trial or cell id starts with `prefix`; UsageError for none."""
        found = [
            r for r in self.results() if any(i.startswith(prefix) for i in (r.id, r.trial.id, r.trial.cell))
        ]
        if not found:
            raise UsageError(
                "E-STORE-5",
                f"no result, trial or cell id starts with {prefix!r}",
                fix=f"edgescope list --store {self.root}",
            )
        return found

    def full(self, result: Result) -> Result:
        """Return the result with its raw rows read from disk."""
        return read(self.root / result.machine.id / result.id)

    def _cannot_write(self, error: Exception) -> StoreError:
        if isinstance(error, EdgescopeError):
            return StoreError("E-STORE-1", error.what, evidence=error.evidence, fix=error.fix)
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        return StoreError(
            "E-STORE-1",
            f"the store {self.root} is full" if full else f"the store {self.root} cannot be written",
            evidence=str(error),
            effect="Results finished earlier are untouched",
            fix="free some space, or --store DIR on another disk",
        )


def write(result: Result, folder: Path) -> None:
    """Write one result's files into `folder`, each synced to disk: a power cut leaves no empty one behind."""
    if result.queries is not None:
        _parquet(result.queries.columns, folder / "queries.parquet")
    if result.readings is not None:
        r = result.readings
        _parquet({"t_ns": r.t_ns, "channel": r.channel, "value": r.value}, folder / "readings.parquet")
    files = result.artifact.get("files")
    for name, text in files.items() if isinstance(files, Mapping) else ():
        (folder / FILES).mkdir(exist_ok=True)
        (folder / FILES / Path(name).name).write_text(text)
    (folder / "result.json").write_text(json.dumps(codec.to_json(result), indent=1))
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: Path) -> None:
    """Have the kernel write a file or folder to disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(folder: Path) -> Result:
    """Read one result's folder with its raw rows; StoreError where it is missing, half-written or newer."""
    data = _json(folder / "result.json")
    result = codec.from_json(data)
    if (folder / FILES).is_dir():
        files = {path.name: path.read_text() for path in sorted((folder / FILES).iterdir())}
        result = replace(result, artifact={**result.artifact, "files": files})
    queries = readings = None
    if result.window is not None and not (folder / "queries.parquet").is_file():
        raise StoreError(
            "E-STORE-4",
            f"{folder} has lost its queries.parquet",
            effect="Its numbers have no raw rows behind them",
        )
    if (folder / "queries.parquet").is_file():
        queries = Queries(_columns(folder / "queries.parquet", list(QUERY_DTYPES)))
    if (folder / "readings.parquet").is_file():
        c = _columns(folder / "readings.parquet", ["t_ns", "channel", "value"])
        readings = Readings(codec.channels(data), c["t_ns"], c["channel"], c["value"])
    return replace(result, queries=queries, readings=readings)


def _json(path: Path) -> Mapping[str, Json]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(
            "E-STORE-4", f"{path} cannot be read", evidence=str(error), fix=f"rm -r {path.parent}"
        ) from error
    if not isinstance(data, dict):
        raise StoreError("E-STORE-4", f"{path} is not a result", evidence=f"it holds a {type(data).__name__}")
    return data


def _parquet(columns: Mapping[str, NDArray[Any]], path: Path) -> None:
    import duckdb

    rows = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    try:
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            connection.execute(
                "COPY (SELECT * FROM rows) TO ? (FORMAT parquet, COMPRESSION zstd)", [str(path)]
            )
    except duckdb.Error as error:
        text = str(error).splitlines()[0]
        full = "No space left" in text
        raise OSError(errno.ENOSPC if full else errno.EIO, text) from error


def _columns(path: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    import duckdb

    try:
        with duckdb.connect() as connection:
            found = connection.execute(
                f"SELECT {', '.join(names)} FROM read_parquet(?)", [str(path)]
            ).fetchnumpy()
    except duckdb.Error as error:
        raise StoreError(
            "E-STORE-4",
            f"{path} cannot be read",
            evidence=str(error).splitlines()[0],
            fix=f"rm -r {path.parent}",
        ) from error
    return {name: np.asarray(found[name]) for name in names}


def _rescue(result: Result) -> Path | None:
    """Write the result into a fresh temporary folder laid out like a store; None where even that fails."""
    try:
        kept = Path(tempfile.mkdtemp(prefix="edgescope-kept-"))
        folder = kept / result.machine.id / result.id
        folder.mkdir(parents=True)
        write(result, folder)
    except OSError:
        return None
    return kept
