"""Seeded random inputs for networks without real inputs here: untrained networks and a user's own.

Good for timing, since the time of a dense network does not depend on the values, and for checking that two
engines compute the same function; useless for accuracy. Every sample has its own generator, so the
first n are the same for any number requested, and no two purposes share a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image.photos import fingerprint
from edgescope.records.lazy import np

Range = tuple[int, int]


def samples(
    specs: Sequence[TensorSpec], purpose: Purpose, n: int, *, ranges: Mapping[str, Range] | None = None
) -> Samples | None:
    """Return n random samples: standard normal floats, uniform integers within `ranges` (inclusive).

    None for LABELLED: random inputs have no labels.
    """
    if purpose is Purpose.LABELLED:
        return None
    salt = list(Purpose).index(purpose)
    rows = [_one(specs, np.random.default_rng([salt, index]), ranges or {}) for index in range(n)]
    return Samples(
        arrays={spec.name: np.stack([row[spec.name] for row in rows]) for spec in specs},
        digests=tuple(fingerprint(row) for row in rows),
        origin="synthetic: seeded random numbers, not real input" + _integers(specs, ranges or {}),
        noise=True,
    )


def _one(
    specs: Sequence[TensorSpec], rng: np.random.Generator, ranges: Mapping[str, Range]
) -> dict[str, np.ndarray]:
    row = {}
    for spec in specs:
        dtype = np.dtype(spec.dtype)
        if dtype.kind == "f":
            row[spec.name] = rng.standard_normal(spec.shape, dtype=np.float32).astype(dtype)
        else:
            low, high = ranges.get(spec.name, (0, 1))
            row[spec.name] = rng.integers(low, high, spec.shape, endpoint=True).astype(dtype)
    return row


def _integers(specs: Sequence[TensorSpec], ranges: Mapping[str, Range]) -> str:
    """Return what is said of inputs that are integers: `; image 0 to 255`."""
    drawn = {spec.name: ranges.get(spec.name, (0, 1)) for spec in specs if "int" in spec.dtype}
    return "".join(f"; {name} {low} to {high}" for name, (low, high) in drawn.items())
