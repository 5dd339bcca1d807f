"""The ONNX file an engine reads for a precision: fp32 as exported, int8 as quantised; one file serves every engine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from edgescope.errors import UnsupportedError
from edgescope.models.base import Model
from edgescope.records import Json


def onnx_file(model: Model, precision: str, folder: Path) -> Path:
    """Return the ONNX file of `model` for `precision`, made once; fp32 also serves engines that lower it themselves."""
    if precision == "int8":
        from edgescope.quantize import int8

        return int8(model, folder)
    return model.onnx(folder)


def sidecar(path: Path) -> dict[str, Json]:
    """Return what was written beside the file when it was made; empty for a file the user brought."""
    note = path.with_suffix(".json")
    return dict(json.loads(note.read_text())) if note.is_file() else {}


def refuse(name: str, precision: str, why: str) -> UnsupportedError:
    """Return the error for a precision this engine does not have on this machine."""
    return UnsupportedError(
        "E-PREC-1",
        f"{name} has no {precision} on this CPU",
        evidence=why,
        effect="It would run in another precision under this label",
        fix="--precision fp32 or int8",
    )


def file_digest(path: Path) -> str:
    """Return sixteen hex digits of the file's SHA-256."""
    hashed = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            hashed.update(block)
    return hashed.hexdigest()[:16]
