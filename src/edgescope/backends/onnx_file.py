"""The ONNX file an engine reads for a precision: fp32 as exported, int8 as quantised; one file serves every engine."""

from __future__ import annotations

from pathlib import Path

from edgescope.errors import UnsupportedError
from edgescope.models.base import Model


def onnx_file(model: Model, precision: str, folder: Path) -> Path:
    """Return the ONNX file of `model` for `precision`, made once; fp32 also serves engines that lower it themselves."""
    if precision == "int8":
        from edgescope.quantize import int8

        return int8(model, folder)
    return model.onnx(folder)


def refuse(name: str, precision: str, why: str) -> UnsupportedError:
    """Return the error for a precision this engine does not have on this machine."""
    return UnsupportedError(
        "E-PREC-1",
        f"{name} has no {precision} on this CPU",
        evidence=why,
        effect="It would run in another precision under this label",
        fix="--precision fp32 or int8",
    )
