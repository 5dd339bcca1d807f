"""A distribution of durations: count, total, quantiles, and the points of its CDF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.records import Absent, Field, Measured

CDF = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Distribution:
    """Durations of one kind of event in nanoseconds."""

    count: int
    total_ns: int
    lowest_ns: float
    quantiles_ns: tuple[float, ...]
    """At the shares of CDF."""
    highest_ns: float

    @classmethod
    def of(cls, durations: NDArray[Any]) -> Distribution:
        """Return the distribution; without durations it has a count of 0 and no quantiles."""
        if not len(durations):
            return cls(0, 0, 0.0, (), 0.0)
        found = np.quantile(durations, [0.0, *CDF, 1.0])
        return cls(
            len(durations),
            int(durations.sum(dtype="int64")),
            float(found[0]),
            tuple(map(float, found[1:-1])),
            float(found[-1]),
        )

    @property
    def mean_ns(self) -> float:
        """Return the mean, 0 without events."""
        return self.total_ns / self.count if self.count else 0.0

    def quantile_ns(self, share: float) -> float:
        """Return the quantile at one of the shares of CDF."""
        return self.quantiles_ns[CDF.index(share)]

    @property
    def median_s(self) -> Field:
        """Return the median in seconds, or Absent without events."""
        return (
            Measured(self.quantile_ns(0.5) * 1e-9, "s", n=self.count)
            if self.count
            else Absent("no such event")
        )
