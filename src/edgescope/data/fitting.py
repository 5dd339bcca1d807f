"""Whether what a record holds is what the network takes: names, shapes, types, and no NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import UsageError, closest_name
from edgescope.models.base import TensorSpec
from edgescope.models.image.preprocess import Preprocess, sides_of
from edgescope.registry import need


def picture_input(specs: Sequence[TensorSpec]) -> TensorSpec | None:
    """Return the only input where it is a picture; None otherwise."""
    return specs[0] if len(specs) == 1 and sides_of(specs[0].shape) else None


def fitted(
    value: Any, name: str, specs: Sequence[TensorSpec], preprocess: Preprocess | None
) -> dict[str, NDArray[Any]]:
    """Return one sample's arrays by input name; UsageError where a value does not fit the network."""
    if not isinstance(value, Mapping):
        if len(specs) != 1:
            raise _names(name, ["one array"], specs)
        value = {specs[0].name: value}
    if len(specs) == 1 and len(value) == 1:
        value = {specs[0].name: next(iter(value.values()))}
    if set(value) != {spec.name for spec in specs}:
        raise _names(name, list(value), specs)
    return {spec.name: _one(value[spec.name], name, spec, preprocess) for spec in specs}


def picture(value: Any, specs: Sequence[TensorSpec]) -> Any:
    """Return the picture (PIL) that a record holds, None where it holds arrays as the network takes them."""
    spec = picture_input(specs)
    if isinstance(value, Mapping):
        value = next(iter(value.values())) if len(value) == 1 else None
    if value is None or hasattr(value, "convert") or spec is None:
        return value if hasattr(value, "convert") else None
    return as_picture(value, spec)


def _one(value: Any, name: str, spec: TensorSpec, preprocess: Preprocess | None) -> NDArray[Any]:
    """Return one input of the shape and type that the network takes."""
    if (image := value if hasattr(value, "convert") else as_picture(value, spec)) is not None:
        if preprocess is None:
            raise _shape(name, f"a picture of {image.size[0]} x {image.size[1]}", spec)
        array: NDArray[Any] = preprocess(image)
        if array.shape != spec.shape:
            array = array.transpose(1, 2, 0)
        if np.dtype(spec.dtype).kind in "iu":
            about = np.iinfo(spec.dtype)
            if spec.step is not None and not (spec.dtype == "uint8" and preprocess.leaves_bytes):
                array = array / np.float32(spec.step[0])
                array = np.trunc(array + np.copysign(0.5, array)) + spec.step[1]  # as LiteRT's own QUANTIZE
            array = array.round().clip(about.min, about.max)
        return np.ascontiguousarray(array, dtype=spec.dtype)
    array = np.asarray(value)
    if array.shape != spec.shape:
        raise _shape(name, f"{array.dtype} {_dims(array.shape)}", spec)
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and np.dtype(spec.dtype).kind in "iu"):
        raise _shape(name, f"{array.dtype} {_dims(array.shape)}", spec)
    bad = array.size - int(np.count_nonzero(np.isfinite(array)))
    if bad:
        raise UsageError(
            "E-DATASET-4",
            f"{name} holds NaN or infinity",
            evidence=f"{bad} of {array.size} values of {spec.name}",
            effect="Every answer to it would be NaN, of a right variant, too",
            fix="mend or remove it",
        )
    return np.ascontiguousarray(array, dtype=spec.dtype)


def as_picture(value: Any, spec: TensorSpec) -> Any:
    """Return bytes of a picture as a PIL image; None for what is a network's own input.

    They are (height, width, channels), or (channels, height, width) where the network takes just that shape.
    """
    array = np.asarray(value)
    if array.dtype != np.uint8 or sides_of(spec.shape) is None or spec.dtype == "uint8":
        return None
    if array.shape == spec.shape and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))):
        return None
    plain = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    made = need("PIL.Image:fromarray", "the image reader", "pip install pillow")
    return made(np.ascontiguousarray(plain))


def _names(name: str, given: Sequence[str], specs: Sequence[TensorSpec]) -> UsageError:
    wanted = [spec.name for spec in specs]
    missing = [w for w in wanted if w not in given]
    close = [f"{c!r} for {g!r}" for g in given if g not in wanted and (c := closest_name(g, wanted))]
    return UsageError(
        "E-DATASET-5",
        f"the names of {name} do not fit the network's inputs",
        evidence=f"it holds {', '.join(given)}; the network takes {', '.join(map(_said, specs))}",
        effect=f"Nothing is known of {', '.join(missing) or 'what the others are for'}",
        fix=f"name it {', '.join(close)}" if close else f"give {', '.join(wanted)}",
    )


def _shape(name: str, given: str, spec: TensorSpec) -> UsageError:
    return UsageError(
        "E-DATASET-6",
        f"{name} does not fit the network's input {spec.name}",
        evidence=f"it is {given}, the network takes {_said(spec)} for each sample",
        fix="save inputs as the network takes them, without the batch axis",
    )


def _said(spec: TensorSpec) -> str:
    return f"{spec.name} ({spec.dtype} {_dims(spec.shape)})"


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "of one number"
