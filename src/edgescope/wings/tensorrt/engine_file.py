"""A TensorRT engine file and its sidecar, which says where it may run.

An engine (NVIDIA also says plan) is compiled code for one TensorRT version and one GPU. Deserialised elsewhere it
fails with a bare error code, or works and is slower than one built there. So `foo.engine` has a sidecar,
`foo.engine.json`: its source, its target, the program that built it, and how long that took. An engine without a
sidecar is refused, and so is one whose sidecar names another board. Engines of both the Python API and the `trtexec`
program are stored in this form.

Some exporters (Ultralytics) put a header in front of the engine: four bytes, the length of a JSON text in
little-endian order, then that text. TensorRT reads it as code and dies with "LLVM ERROR: out of memory", so the header
is checked for first.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path

from edgescope import cache
from edgescope.cache import safe
from edgescope.errors import StoreError, UnsupportedError
from edgescope.records import Json, digest

VERSION = 1  # raise this when engines of an earlier form must be built again
#: Longest header of another program, in bytes.
LONGEST_HEADER = 1 << 20


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """The facts that decide whether an engine may be used here, and its origin."""

    model: str
    """Name of the model, as a trial has it."""
    onnx_sha256: str
    """SHA-256 of the ONNX file it was built from, 64 hex digits."""
    tensorrt: str
    """Version of the library that built it, e.g. `8.2.1.8`; a program may know only three parts."""
    compute_capability: str
    """Compute capability of the GPU it was built on, e.g. `8.7`."""
    program: str
    """The program that built it: `tensorrt` (the Python API) or `trtexec`."""
    precision: str
    device: str = ""
    """Name of the GPU, and of its board, if they are known."""
    flags: Mapping[str, Json] = field(default_factory=dict)
    """Builder settings by name."""
    profile: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    """Input name -> smallest, usual and largest shape."""
    build_s: float = 0.0
    """Seconds the builder took."""
    built_at: str = ""
    """UTC, ISO 8601."""
    bytes: int = 0
    sha256: str = ""
    """SHA-256 of the engine file itself."""


def sidecar(path: Path) -> Path:
    """Return the path of an engine's sidecar: `foo.engine` -> `foo.engine.json`."""
    return path.with_name(f"{path.name}.json")


def key(facts: EngineFacts) -> str:
    """Return the cache file name of an engine, which only equal settings on equal boards share."""
    stored = asdict(facts)
    for name in ("build_s", "built_at", "bytes", "sha256"):
        del stored[name]
    return f"{safe(facts.model)}-{facts.precision}-{facts.program}-{digest([VERSION, stored])}.engine"


def write(path: Path, plan: bytes, facts: EngineFacts) -> EngineFacts:
    """Write an engine and its sidecar, both or neither; return the facts with size, hash and time filled in.

    StoreError if the disk is full.
    """
    cache.write_bytes(path, plan)
    return adopt(path, facts)


def adopt(path: Path, facts: EngineFacts) -> EngineFacts:
    """Write the sidecar of an engine that a program has just written to `path`; return its facts.

    If that fails the engine is removed, because it could not be identified later.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    stored = asdict(facts) | {
        "built_at": facts.built_at or now,
        "bytes": path.stat().st_size,
        "sha256": cache.content(path),
    }
    try:
        cache.write_json(sidecar(path), stored)
    except StoreError:
        remove(path)
        raise
    return EngineFacts(**stored)


def remove(path: Path) -> None:
    """Remove an engine and its sidecar, if they exist."""
    path.unlink(missing_ok=True)
    sidecar(path).unlink(missing_ok=True)


def read(path: Path) -> EngineFacts:
    """Return the facts of an engine; UnsupportedError E-ENG-2 if it has none or does not match them."""
    if not path.is_file():
        raise _unusable(f"there is no engine {path}")
    if (written_by := foreign_header(path)) is not None:
        raise _unusable(
            f"{path.name} begins with the JSON header of another program",
            evidence=f"{written_by} metadata in front of the engine",
            effect="TensorRT would read the header as the engine and abort",
        )
    stored = cache.read_json(sidecar(path))
    if not isinstance(stored, dict):
        raise _unusable(
            f"{path.name} has no readable {sidecar(path).name} next to it",
            effect="It is not known for which board, TensorRT version and model it was built",
        )
    facts = _facts(path, stored)
    size = path.stat().st_size
    if (size, cache.content(path)) != (facts.bytes, facts.sha256):
        raise _unusable(
            f"{path.name} is not the file that its sidecar describes",
            evidence=f"{size} bytes, {facts.bytes} when it was built",
            effect="It may be damaged; a damaged engine crashes or answers wrongly",
        )
    return facts


def gpu(name: str, root: Path = Path("/")) -> str:
    """Return a GPU's name with its board's, if a device tree has it: CUDA calls every Orin just `Orin`."""
    try:
        board = (root / "proc/device-tree/model").read_text(errors="replace").strip("\0 \n")
    except OSError:
        return name
    return f"{name} ({board})" if name and board else name


def check(path: Path, *, tensorrt: str, compute_capability: str, device: str = "") -> EngineFacts:
    """Return the facts of an engine that may run here; `device` is the GPU's name as gpu() gives it, '' if unknown.

    UnsupportedError E-ENG-1 if it was built for another TensorRT or GPU, E-ENG-2 if that is not known.
    """
    facts = read(path)
    same_gpu = facts.compute_capability == compute_capability and (
        facts.device == device or not facts.device or not device
    )
    if _same(facts.tensorrt, tensorrt) and same_gpu:
        return facts
    raise UnsupportedError(
        "E-ENG-1",
        f"{path.name} was built for {_board(facts.compute_capability, facts.tensorrt, facts.device)}, "
        f"this board is {_board(compute_capability, tensorrt, device)}",
        evidence=f"{sidecar(path).name}: built {facts.built_at} by {facts.program}",
        effect="It would not load, or would run code that was tuned for another GPU",
        fix=rebuild(facts),
    )


def cached(path: Path, *, tensorrt: str, compute_capability: str, device: str = "") -> EngineFacts | None:
    """Return the facts of a usable engine in the cache, or None if it must be built (again)."""
    try:
        return check(path, tensorrt=tensorrt, compute_capability=compute_capability, device=device)
    except UnsupportedError:
        return None


def rebuild(facts: EngineFacts) -> str:
    """Return the command that builds the same engine here."""
    batch = next((shapes[1][0] for shapes in facts.profile.values() if len(shapes) == 3 and shapes[1]), 1)
    return (
        f"edgescope bench {shlex.quote(facts.model)} --backend {shlex.quote(facts.program)} --device cuda "
        f"--precision {shlex.quote(facts.precision)} --batch {batch}"
    )


def foreign_header(path: Path) -> str | None:
    """Return the author named in a JSON header in front of an engine, or 'JSON', or None if there is no header."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(4), "little")
        if not 2 <= length <= LONGEST_HEADER:
            return None
        text = file.read(length)
    if len(text) < length or not text.startswith(b"{"):
        return None
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return str(stored.get("author", "JSON"))


def _facts(path: Path, stored: Mapping[str, Json]) -> EngineFacts:
    """Return a sidecar's content as facts; keys of a later version are ignored, a missing key is an error."""
    known = {f.name for f in fields(EngineFacts)}
    try:
        facts = EngineFacts(**{name: value for name, value in stored.items() if name in known})
        texts = (facts.model, facts.onnx_sha256, facts.tensorrt, facts.compute_capability, facts.program)
        sound = all(isinstance(t, str) for t in (*texts, facts.precision)) and isinstance(facts.profile, dict)
    except TypeError:
        sound = False
    if not sound:
        raise _unusable(f"{sidecar(path).name} lacks the facts that decide where the engine may run")
    return facts


def _same(built: str, here: str) -> bool:
    """Return whether two versions agree in every part that both have, at least three."""
    ours, theirs = built.split("."), here.split(".")
    parts = min(len(ours), len(theirs))
    return parts >= 3 and ours[:parts] == theirs[:parts]


def _board(compute_capability: str, tensorrt: str, device: str) -> str:
    return f"{device or 'a GPU'} of compute capability {compute_capability} and TensorRT {tensorrt}"


def _unusable(what: str, *, evidence: str = "", effect: str = "") -> UnsupportedError:
    return UnsupportedError(
        "E-ENG-2",
        what,
        evidence=evidence,
        effect=effect,
        fix="edgescope bench model.onnx --backend tensorrt --device cuda (builds one from the ONNX file)",
    )
