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
BIT: Range = (0, 1)
"""What integers are drawn from where nothing is known of them."""


def samples(
    specs: Sequence[TensorSpec], purpose: Purpose, n: int, *, ranges: Mapping[str, Range] | None = None
) -> Samples | None:
    """Return n random samples: standard normal floats, uniform integers within `ranges` (inclusive).

    None for LABELLED: random inputs have no labels.
    """
    if purpose is Purpose.LABELLED:
        return None
    salt, digests = list(Purpose).index(purpose), []
    arrays = {spec.name: np.empty((n, *spec.shape), np.dtype(spec.dtype)) for spec in specs}
    for index in range(n):
        rng = np.random.default_rng([salt, index])
        row = {name: array[index : index + 1] for name, array in arrays.items()}
        for name, one in row.items():
            _fill(one, rng, (ranges or {}).get(name, BIT))
        digests.append(fingerprint(row))
    return Samples(
        arrays=arrays,
        digests=tuple(digests),
        origin="synthetic: seeded random numbers, not real input" + _integers(specs, ranges or {}),
        noise=True,
    )


def _fill(one: np.ndarray, rng: np.random.Generator, ends: Range) -> None:
    if one.dtype.kind == "f":
        one[:] = rng.standard_normal(one.shape, dtype=np.float32)
    else:
        one[:] = rng.integers(*ends, one.shape, endpoint=True)


def _integers(specs: Sequence[TensorSpec], ranges: Mapping[str, Range]) -> str:
    """Return what is said of inputs that are integers: `; image 0 to 255`."""
    drawn = {spec.name: ranges.get(spec.name, BIT) for spec in specs if "int" in spec.dtype}
    return "".join(f"; {name} {low} to {high}" for name, (low, high) in drawn.items())
