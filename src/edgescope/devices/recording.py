"""A recording: the contents of one board's files under /proc, /sys and /etc and their changes, in one file.

JSON lines, named `*.board.jsonl`:

    {"schema": 1, "board": .., "made": "constructed" | "captured", "about": .., "sources": {key: text}}
    {"path": "sys/..", "text": .., "source": keys}       a file, as it was at the start
    {"path": "sys/..", "absent": reason, "source": keys} a file that could not be read
    {"t_s": .., "files": {path: text}, "source": keys}   content of these files from then on; null: unreadable

Paths are relative to the root of the board; `source` names one key of the header's `sources`, or several
separated by blanks: the origin of the content. A captured recording may be a .zip that holds
`board.jsonl` and, under `results/`, a store of results.

A recording comes from someone else's machine, so nothing in it is trusted: every line is checked, sizes are
bounded while reading (whatever an archive claims), and no path can leave the folder it is written to.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from edgescope.errors import StoreError, UsageError, flagged, near_names

SCHEMA = 1
MADE = ("constructed", "captured")
SUFFIX = ".board.jsonl"
MEMBER = "board.jsonl"
SHIPPED = Path(__file__).parent / "boards"
TOPS = ("etc", "proc", "sys", "var")
"""Allowed first parts of a path: Linux keeps device files there, and no programs."""
_ALSO = "usr/lib/os-release"
MAX_LINE = 1 << 20
MAX_BYTES = 64 << 20
MAX_ENTRIES, MAX_FRAMES = 20_000, 200_000
_MAX_PART = 200
_MAX_PATH = 1000
_BROKEN = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)
"""Exceptions of opening a damaged archive, or an encrypted one (RuntimeError)."""


@dataclass(frozen=True)
class Entry:
    """One file of the board at the start; `text` is None if it could not be read, and `absent` says why."""

    path: str
    text: str | None
    absent: str = ""
    source: str = ""


@dataclass(frozen=True)
class Frame:
    """The content of some files from `t_s` seconds on."""

    t_s: float
    files: Mapping[str, str | None]
    """Path -> text; None from when the file could not be read, until a later frame has a text."""
    source: str = ""


@dataclass(frozen=True)
class Recording:
    """One board: its files at the start, and their changes."""

    board: str
    made: str
    about: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    frames: tuple[Frame, ...] = ()

    @property
    def seconds(self) -> float:
        """Return the start of the last frame."""
        return self.frames[-1].t_s if self.frames else 0.0


def shipped() -> list[str]:
    """Return the names of the recordings that come with edgescope."""
    return sorted(p.name.removesuffix(SUFFIX) for p in SHIPPED.glob(f"*{SUFFIX}"))


def find(name: str) -> Path:
    """Return the file that `name` means: a path, or a shipped recording's name; UsageError for neither."""
    known = shipped()
    word = name.lower().replace("-", "_")
    if word in known:
        return SHIPPED / f"{word}{SUFFIX}"
    if not name or "\0" in name or not os.path.lexists(name):
        raise UsageError(
            "E-REC-1",
            f"no recording is called {name!r}",
            evidence=f"shipped: {', '.join(known)}; or the path of a .board.jsonl or .zip that edgescope record made",
            fix=flagged("--board", near_names(name, known) or known),
        )
    return Path(name)


def read(path: Path) -> Recording:
    """Return the recording in a .board.jsonl or .zip; StoreError if it is not a recording, or not a safe one."""
    try:
        with _opened(path) as file:
            return parse(_lines(file, path), path)
    except _BROKEN as error:
        raise _unusable(path, f"{type(error).__name__}: {error}") from error


def _opened(path: Path) -> BinaryIO:
    """Open the lines of a recording; a device, a pipe or a folder is refused, because reading it may never end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    file = os.fdopen(fd, "rb")
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            _fail(path, "it is not a regular file")
        if file.read(4) != b"PK\3\4":
            file.seek(0)
            return file
        data = _member(file, path)
        file.close()
        return io.BytesIO(data)
    except BaseException:
        file.close()
        raise


def _member(file: BinaryIO, path: Path) -> bytes:
    """Return the archive's board.jsonl up to the size limit, whatever size the archive claims."""
    with zipfile.ZipFile(file) as archive:
        if MEMBER not in archive.namelist():
            _fail(path, f"the archive holds no {MEMBER}")
        if archive.getinfo(MEMBER).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            _fail(path, f"{MEMBER} is packed in another way than deflate")
        with archive.open(MEMBER) as member:
            data = member.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        _fail(path, f"{MEMBER} unpacks to more than {MAX_BYTES >> 20} MiB")
    return data


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    total = 0
    while line := file.readline(MAX_LINE + 1):
        total += len(line)
        if len(line) > MAX_LINE:
            _fail(path, f"a line is longer than {MAX_LINE} bytes")
        if total > MAX_BYTES:
            _fail(path, f"it is larger than {MAX_BYTES >> 20} MiB")
        yield line


def parse(lines: Iterable[bytes], path: Path) -> Recording:
    """Return the recording in these lines; `path` is for messages. StoreError names the wrong line."""
    entries: dict[str, Entry] = {}
    frames: list[Frame] = []
    head: Mapping[str, Any] | None = None
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            data = _object(line)
            if head is None:
                head = _header(data)
            elif "t_s" in data:
                frames.append(_frame(data, head, entries, frames))
            else:
                _add(_entry(data, head), entries, frames)
        except (ValueError, RecursionError) as error:
            _fail(path, f"line {number}: {error}")
    if head is None:
        _fail(path, "it is empty")
    _no_file_is_a_folder(entries, path)
    return Recording(
        head["board"], head["made"], head["about"], head["sources"], tuple(entries.values()), tuple(frames)
    )


def _object(line: bytes) -> dict[str, Any]:
    data = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    if not isinstance(data, dict):
        raise ValueError(f"a JSON object is needed, not a {type(data).__name__}")
    return data


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _header(data: Mapping[str, Any]) -> Mapping[str, Any]:
    version = data.get("schema")
    if type(version) is not int:
        raise ValueError("the first line has no schema: this is not a recording")
    if version != SCHEMA:
        raise ValueError(f"schema {version} is not known; this edgescope reads {SCHEMA}")
    _keys(data, {"schema", "board", "made", "about", "sources"})
    board, made, about = (_text(data, key) for key in ("board", "made", "about"))
    sources = data.get("sources")
    if not board or made not in MADE:
        raise ValueError(f"board must be named and made one of {', '.join(MADE)}")
    if not isinstance(sources, dict) or not all(isinstance(v, str) for v in sources.values()):
        raise ValueError("sources must be an object of texts")
    return {"board": board, "made": made, "about": about, "sources": sources}


def _entry(data: Mapping[str, Any], head: Mapping[str, Any]) -> Entry:
    _keys(data, {"path", "text", "absent", "source"})
    if ("text" in data) == ("absent" in data):
        raise ValueError("a file has either a text or a reason why it is absent")
    path, source = _path(data.get("path")), _source(data, head)
    if "text" in data:
        return Entry(path, _text(data, "text"), "", source)
    reason = _text(data, "absent")
    if not reason:
        raise ValueError("absent needs a reason")
    return Entry(path, None, reason, source)


def _add(entry: Entry, entries: dict[str, Entry], frames: list[Frame]) -> None:
    if frames:
        raise ValueError("a file follows a frame")
    if entry.path in entries:
        raise ValueError(f"{entry.path} is there twice")
    if len(entries) >= MAX_ENTRIES:
        raise ValueError(f"more than {MAX_ENTRIES} files")
    entries[entry.path] = entry


def _frame(
    data: Mapping[str, Any], head: Mapping[str, Any], entries: Mapping[str, Entry], frames: list[Frame]
) -> Frame:
    _keys(data, {"t_s", "files", "source"})
    t_s, files = data["t_s"], data.get("files")
    if type(t_s) not in (int, float) or not 0 <= t_s < 1e6 or not math.isfinite(t_s):
        raise ValueError("t_s must be a number of seconds from 0")
    if frames and t_s < frames[-1].t_s:
        raise ValueError(f"t_s goes back from {frames[-1].t_s} to {t_s}")
    if len(frames) >= MAX_FRAMES:
        raise ValueError(f"more than {MAX_FRAMES} frames")
    if not isinstance(files, dict):
        raise ValueError("files must be an object")
    for path in files:
        if path not in entries or entries[path].text is None:
            raise ValueError(f"{path[:_MAX_PATH]!r} changes but is no readable file of the start")
    texts = {p: None if t is None else _text(files, p) for p, t in files.items()}
    return Frame(float(t_s), texts, _source(data, head))


def _keys(data: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(data) - known):
        raise ValueError(f"unknown key {unknown[0][:80]!r}")


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key[:_MAX_PATH]} must be a text")
    value.encode("utf-8")  # a lone surrogate is a ValueError here, not later when it is written
    return value


def _source(data: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    source = _text(data, "source") if "source" in data else ""
    for key in source.split():
        if key not in head["sources"]:
            raise ValueError(f"source {key[:80]!r} is not in the header")
    return source


def _path(path: Any) -> str:
    """Return the path if it stays below the folder that it is joined to; ValueError otherwise."""
    if not isinstance(path, str) or not path:
        raise ValueError("a path must be a text")
    parts = path.split("/")
    if any(ord(c) < 32 or c == "\x7f" for c in path):
        raise ValueError("a path holds a control character")
    size = len(path.encode("utf-8"))
    if size > _MAX_PATH or any(len(p.encode("utf-8")) > _MAX_PART for p in parts):
        raise ValueError("a path is too long")
    below = parts[0] in TOPS and len(parts) > 1 and not any(p in ("", ".", "..") for p in parts)
    if not below and path != _ALSO:
        raise ValueError(f"{path!r} is not a path below {', '.join(TOPS)}")
    return path


def _no_file_is_a_folder(entries: Mapping[str, Entry], path: Path) -> None:
    for name in entries:
        at = name.rfind("/")
        while at > 0:
            if name[:at] in entries:
                _fail(path, f"{name[:at]} is both a file and the folder of {name}")
            at = name.rfind("/", 0, at)


def _fail(path: Path, why: str) -> NoReturn:
    raise _unusable(path, why)


def _unusable(path: Path, why: str) -> StoreError:
    return StoreError(
        "E-REC-2",
        f"{path} is not a recording that can be used",
        evidence=why[:400],
        effect="Nothing of it was used",
        fix="edgescope record -o FILE on the board makes one",
    )


def lines(recording: Recording) -> Iterator[str]:
    """Yield the recording as JSON lines, each with its newline."""
    head = {"schema": SCHEMA, "board": recording.board, "made": recording.made, "about": recording.about}
    yield _line(head | {"sources": dict(recording.sources)})
    for e in recording.entries:
        content = {"absent": e.absent} if e.text is None else {"text": e.text}
        yield _line({"path": e.path} | content | _keyed(e.source))
    for f in recording.frames:
        yield _line({"t_s": f.t_s, "files": dict(f.files)} | _keyed(f.source))


def _keyed(source: str) -> dict[str, str]:
    return {"source": source} if source else {}


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"
