"""Find outputs that hold no finite number: what nothing can be compared with may still be told wrong by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgescope.models.base import Samples
from edgescope.verify.judge import Run, numeric

ASKED = 4
"""Inputs that are asked, or one batch if that is more."""


def silent(run: Run, samples: Samples, batch: int) -> tuple[bool, ...]:
    """Return, for each output of `run`, whether it holds numbers and none of them is finite, on the first inputs."""
    most = min(len(samples), max(ASKED, batch))
    found = [_silent(run, samples, start, batch) for start in range(0, most, batch)]
    said = ([one for one in each if one is not None] for each in zip(*found, strict=True))
    return tuple(bool(known) and all(known) for known in said)


def _silent(run: Run, samples: Samples, start: int, batch: int) -> list[bool | None]:
    rows = np.minimum(np.arange(start, start + batch), len(samples) - 1)
    outputs: Sequence[Any] = run(
        {name: np.ascontiguousarray(array[rows]) for name, array in samples.arrays.items()}
    )
    return [_holds_none(output) for output in outputs]


def _holds_none(output: object) -> bool | None:
    """Return whether no number of an output is finite; None where it is empty."""
    if not numeric(output):
        return False
    values = np.asarray(output)
    return not np.isfinite(values).any() if values.size else None
