"""Results on disk: one folder per result, written elsewhere and renamed into place, so a kill leaves no half result.

    DIR/<machine id>/<result id>/result.json        everything but the raw rows
                                 queries.parquet    one row per query, and a column for each of their marks
                                 readings.parquet   t_ns, channel (index into result.json's channels), value
                                 spans.parquet      where the time of a few units went (records.SPAN_DTYPES)
                                 files/             logs of a program that drove the load (MLPerf LoadGen)

Merging two machines' results is copying folders. DuckDB reads a tree of them in place:
`duckdb -c "select * from read_parquet('DIR/*/*/queries.parquet', union_by_name = true)"`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgescope.errors import EdgescopeError, StoreError, is_away
from edgescope.metrics import told_apart
from edgescope.records import (
    MARK,
    QUERY_DTYPES,
    SPAN_DTYPES,
    SPAN_KINDS,
    SPAN_LATER,
    Json,
    Machine,
    Queries,
    Readings,
    Result,
    Results,
    Spans,
    Status,
    Window,
    codec,
    plain_json,
)
from edgescope.registry import BOARD, REPLAYED
from edgescope.store import files, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

ASIDE = ".incoming"
RESULT, FILES = "result.json", "files"
QUERIES, READINGS, SPANS = "queries", "readings", "spans"
_WRITTEN = {RESULT, *(f"{table}{rows.SUFFIX}" for table in (QUERIES, READINGS, SPANS)), FILES}
READING_DTYPES = {"t_ns": "int64", "channel": "int16", "value": "float64"}
#: Most bytes read of a result.json, most bytes read of each log, and most logs read of one result. Ours hold
#: some ten kilobytes; a larger file was not written by a measurement and may not fit into memory.
MOST_BYTES, MOST_LOG_BYTES, MOST_LOGS = 32_000_000, 256_000_000, 32
#: Disk space that must be free before measuring starts: a few minutes of queries take less.
PROBE_BYTES = 1_000_000
#: A half-written result this old is abandoned; writing one takes seconds.
STALE_S = 3600.0
#: Names of folders that `save` is writing: host, process, random letters.
_LEFTOVER = re.compile(r"(?P<host>[^/\s]+)-(?P<pid>\d+)-[a-z0-9_]{8}\Z")
#: A trial with one of these statuses is done; a resumed sweep tries the others again.
FINAL = frozenset(
    {Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.WRONG_OUTPUT}
    | {Status.UNSTABLE, Status.SKIPPED, Status.FAILED}
)


def default_root() -> Path:
    """Return the folder EDGESCOPE_STORE, or ./edgescope-results; while a recorded board is replayed, one beside it.

    A replay's sensors are of one machine and its times of another, so its results are kept away from both.
    """
    usual = Path(os.environ.get("EDGESCOPE_STORE") or "edgescope-results")
    return usual.with_name(f"{usual.name}-{REPLAYED}") if os.environ.get(BOARD) else usual


class Store:
    """A folder of results, by default that of EDGESCOPE_STORE, else ./edgescope-results."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = default_root() if root is None else Path(root)
        self.problems: list[StoreError] = []
        """What the last listing could not read; all other results were listed."""

    def __repr__(self) -> str:
        """Return where it is and how many results it holds."""
        return f"Store({str(self.root)!r}): {sum(1 for _ in self.results())} results"

    def frame(self) -> Any:
        """Return a data frame with one row per result; UnavailableError if neither pandas nor Polars is installed."""
        return Results(self.results()).frame()

    def check(self) -> None:
        """Write and remove one megabyte; StoreError if that fails, before an hour of measuring is lost."""
        try:
            aside = self._aside()
            with tempfile.NamedTemporaryFile(dir=aside) as probe:
                probe.write(bytes(PROBE_BYTES))
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as error:
            raise self._cannot_write(error) from error

    def save(self, result: Result) -> Path:
        """Write the result and return its folder; on failure it is kept in a temporary folder that the error names."""
        try:
            return self._save(result)
        except (OSError, StoreError) as error:
            kept = _rescue(result)
            where = f"It is kept in {kept}" if kept else "It could not be kept elsewhere either"
            failure = self._cannot_write(error)
            copy = f"cp -r {shlex.quote(f'{kept}/.')} {shlex.quote(f'{self.root}/')}"
            fix = f"make room, then: {copy}" if kept else failure.fix
            raise StoreError(
                failure.code, failure.what, evidence=failure.evidence, effect=where, fix=fix
            ) from error

    def _save(self, result: Result) -> Path:
        target = self.folder(result)
        folder = Path(tempfile.mkdtemp(dir=self._aside(), prefix=f"{socket.gethostname()}-{os.getpid()}-"))
        try:
            write(result, folder)
            self._own(target.parent)
            folder.chmod(0o755)
            folder.rename(target)
            for named in (target.parent, self.root):  # the names of the result and of its machine
                _sync(named)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return target

    def folder(self, result: Result) -> Path:
        """Return the folder of a result; StoreError for an id of another form, which might lead out of the store."""
        if not files.NAME.match(result.id):
            raise StoreError("E-STORE-4", "a result's id has an unknown form", evidence=ascii(result.id)[:80])
        return self.root / result.machine.id / result.id

    def _aside(self) -> Path:
        return self._own(self.root / ASIDE)

    def _own(self, folder: Path) -> Path:
        """Return a folder of the store, created if needed; StoreError if a link or a file has its name."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        files.is_folder(folder)
        return folder

    def clean(self) -> None:
        """Remove half-written results that are older than an hour, or whose process on this host is gone.

        Only folders that `save` may have made, by their names and contents, are removed; links and all other files are
        left alone.
        """
        if not files.is_folder(self.root / ASIDE):
            return
        for entry in files.folders(self.root / ASIDE):
            leftover = _LEFTOVER.match(entry.name)
            if leftover is None or entry.is_symlink():
                continue
            host, pid = leftover["host"], leftover["pid"]
            gone = host == socket.gethostname() and not Path(f"/proc/{pid}").exists()
            with contextlib.suppress(OSError):
                stale = gone or time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_S
                if stale and {*os.listdir(entry)} <= _WRITTEN:
                    shutil.rmtree(entry.path)

    def results(self) -> Iterator[Result]:
        """Yield every readable result without its raw rows, oldest first; `problems` holds the others."""
        if not self.root.is_dir():
            return
        self.problems = []
        found: list[Result] = []
        for folder in self._folders():
            try:
                found.append(self.listed(folder))
            except StoreError as error:
                where = f"{files.shown(folder / RESULT)}: "
                where = "" if where[:-2] in error.what else where
                self.problems.append(
                    StoreError(
                        error.code,
                        error.what,
                        evidence=f"{where}{error.evidence}",
                        effect=error.effect,
                        fix=error.fix,
                    )
                )
        yield from sorted(found, key=lambda r: (r.started_at, r.id))

    def names(self, where: Machine, start: str = "") -> set[str]:
        """Return the names of this machine's results (trial id, dash, time) that begin so, without reading any."""
        with contextlib.suppress(OSError), os.scandir(self.root / where.id) as entries:
            return {e.name for e in entries if e.name.startswith(start) and e.is_dir(follow_symlinks=False)}
        return set()

    def _folders(self) -> Iterator[Path]:
        """Yield the folders of results; links are skipped and added to `problems`."""
        for machine in self._below(self.root):
            for folder in self._below(machine):
                if os.path.lexists(folder / RESULT):
                    yield folder

    def _below(self, folder: Path) -> Iterator[Path]:
        try:
            entries = [e for e in files.folders(folder) if not e.name.startswith(".")]
        except OSError as error:
            self.problems.append(_unreadable(folder / "*", str(error)))
            return
        for entry in entries:
            if entry.is_symlink():
                self.problems.append(files.refused(folder / entry.name, "it is a link"))
            else:
                yield folder / entry.name

    def listed(self, folder: Path) -> Result:
        """Return the result of a folder without its raw rows; StoreError if it does not match the folder's name."""
        result = codec.from_json(_json(folder / RESULT))
        if self.folder(result) != folder:
            raise StoreError(
                "E-STORE-4",
                f"{files.shown(folder)} does not hold the result that its name says",
                evidence=f"{RESULT} says {result.machine.id}/{result.id}",
                fix=f"mv it to {result.machine.id}/{result.id}, or delete it where that is there",
            )
        return told_apart(result)

    def finished(self, where: Machine, retry: Collection[Status] = ()) -> dict[str, Result]:
        """Return trial id -> latest result, for the trials that need no other run on this machine.

        Results of another machine, or of other package versions, answer another question; `retry` names statuses to try
        again.
        """
        software = where.state.get("packages")
        return {
            r.trial.id: r
            for r in self.results()
            if r.status in FINAL
            and not is_away(r.reason)
            and r.status not in retry
            and r.machine.id == where.id
            and r.machine.state.get("packages") == software
        }

    def fulls(self, results: Iterable[Result]) -> list[Result]:
        """Return the results with their raw rows; a result with unreadable rows is left out and added to `problems`."""
        found = []
        for result in results:
            try:
                found.append(self.full(result))
            except StoreError as error:
                self.problems.append(error)
        return found

    def remove(self, result: Result) -> None:
        """Remove a result's folder; StoreError if it holds anything but a result, or is a link."""
        folder = self.folder(result)
        files.is_folder(folder.parent)
        files.is_folder(folder)
        if stray := {*os.listdir(folder)} - _WRITTEN:
            raise files.refused(folder, f"it holds {', '.join(sorted(stray))[:200]}")
        aside = Path(tempfile.mkdtemp(dir=self._aside(), prefix=f"{socket.gethostname()}-{os.getpid()}-"))
        try:
            folder.rename(aside)  # renamed first, so that a kill leaves no half result
            shutil.rmtree(aside)
        except OSError as error:
            raise self._cannot_write(error) from error

    def full(self, result: Result) -> Result:
        """Return the result with its raw rows read from disk."""
        folder = self.folder(result)
        files.is_folder(folder.parent)
        files.is_folder(folder)
        return read(folder)

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


class Tables(Protocol):
    """How raw rows are kept in a file: `rows`, or `handed_rows`."""

    SUFFIX: str

    def write(self, columns: Mapping[str, NDArray[Any]], path: Path) -> None:
        """Write columns of equal length; OSError if the disk does not take them."""

    def read(
        self,
        path: Path,
        dtypes: Mapping[str, str],
        later: Collection[str] = ...,
        also: Callable[[str], object] = ...,
    ) -> dict[str, NDArray[Any]]:
        """Return the columns that `dtypes` names, as these types; StoreError if the file lacks them."""


def write(result: Result, folder: Path, tables: Tables = rows) -> None:
    """Write one result's files into `folder`, each synced to disk: a power cut leaves no empty one behind.

    What one process hands to another need not outlive that.
    """
    if result.queries is not None:
        tables.write(result.queries.columns, folder / f"{QUERIES}{tables.SUFFIX}")
    if result.readings is not None:
        r = result.readings
        columns: dict[str, NDArray[Any]] = {"t_ns": r.t_ns, "channel": r.channel, "value": r.value}
        tables.write(columns, folder / f"{READINGS}{tables.SUFFIX}")
    if result.spans is not None:
        tables.write(result.spans.columns, folder / f"{SPANS}{tables.SUFFIX}")
    files = result.artifact.get("files")
    for name, text in files.items() if isinstance(files, Mapping) else ():
        (folder / FILES).mkdir(exist_ok=True)
        (folder / FILES / Path(name).name).write_text(text)
    (folder / RESULT).write_text(json.dumps(codec.to_json(result), indent=1))
    for path in (*folder.rglob("*"), folder) if tables is rows else ():
        _sync(path)


def _sync(path: Path) -> None:
    """Sync a file or folder to disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(folder: Path, tables: Tables = rows) -> Result:
    """Return the result in a folder with its raw rows; StoreError if it is missing, incomplete, damaged or newer."""
    data = _json(folder / RESULT)
    result = codec.from_json(data)
    if logs := _files(folder / FILES):
        result = replace(result, artifact={**result.artifact, "files": logs})
    queries = readings = spans = None
    paths = [folder / f"{table}{tables.SUFFIX}" for table in (QUERIES, READINGS, SPANS)]
    if files.is_file(paths[0]):
        queries = _queries(paths[0], result.window, tables)
    elif result.window is not None:
        raise StoreError(
            "E-STORE-4",
            f"{files.shown(folder)} has lost its {paths[0].name}",
            effect="Its numbers have no raw rows behind them",
        )
    if files.is_file(paths[1]):
        readings = _readings(paths[1], data, tables)
    if files.is_file(paths[2]):
        spans = _spans(paths[2], data, tables)
    return told_apart(replace(result, queries=queries, readings=readings, spans=spans))


def _queries(path: Path, window: Window | None, tables: Tables) -> Queries:
    queries = Queries(tables.read(path, QUERY_DTYPES, also=MARK.fullmatch))
    if window is not None and not 0 <= window.first <= window.stop <= len(queries):
        raise _unreadable(path, f"it has {len(queries)} rows, the window is {window.first} to {window.stop}")
    return queries


def _spans(path: Path, data: Mapping[str, Json], tables: Tables) -> Spans:
    columns = tables.read(path, SPAN_DTYPES, SPAN_LATER)
    try:
        names = codec.span_names(data)
    except ValueError as error:
        raise _unreadable(path.parent / RESULT, str(error)) from error
    for column, known in (("name", len(names)), ("kind", len(SPAN_KINDS))):
        if len(columns[column]) and not 0 <= columns[column].min() <= columns[column].max() < known:
            raise _unreadable(path, f"its column {column} names what {RESULT} does not")
    return Spans(names, columns)


def _readings(path: Path, data: Mapping[str, Json], tables: Tables) -> Readings:
    columns = tables.read(path, READING_DTYPES)
    try:
        channels = codec.channels(data)
    except ValueError as error:
        raise _unreadable(path.parent / RESULT, str(error)) from error
    if len(columns["channel"]) and not 0 <= columns["channel"].min() <= columns["channel"].max() < len(
        channels
    ):
        raise _unreadable(path, f"it has readings of channels that {RESULT} does not name")
    return Readings(channels, columns["t_ns"], columns["channel"], columns["value"])


def _files(folder: Path) -> dict[str, str]:
    """Return the logs stored with a result by name, or {} if there are none."""
    if not files.is_folder(folder):
        return {}
    found = sorted(folder.iterdir())
    if len(found) > MOST_LOGS:
        raise _unreadable(folder, f"{len(found)} files; {MOST_LOGS} are read at most")
    return {path.name: files.read(path, MOST_LOG_BYTES).decode(errors="replace") for path in found}


def _json(path: Path) -> Mapping[str, Json]:
    try:
        data = plain_json.parsed(files.read(path, MOST_BYTES))
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(data, dict):
        raise StoreError(
            "E-STORE-4",
            f"{files.shown(path)} is not a result",
            evidence=f"it holds a {type(data).__name__}",
        )
    return data


def _unreadable(path: Path, evidence: str) -> StoreError:
    where = files.shown(path)
    return StoreError(
        "E-STORE-4", f"{where} cannot be read", evidence=evidence, fix=files.removal(path.parent)
    )


def _rescue(result: Result) -> Path | None:
    """Write the result into a new temporary folder laid out like a store; None if even that fails."""
    try:
        kept = Path(tempfile.mkdtemp(prefix="edgescope-kept-"))
        folder = kept / result.machine.id / result.id
        folder.mkdir(parents=True)
        write(result, folder)
    except OSError:
        return None
    return kept
