"""What a candidate may lose against its baseline: `latency=5%`, `memory=10%,20MB`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from edgescope import metrics
from edgescope.analysis.cells.objective import units
from edgescope.errors import UsageError, flagged, known_names, near_names
from edgescope.metrics import Metric

NUMBER = r"(\d+(?:\.\d+)?)"
WRITTEN = re.compile(rf"\s*([a-z][a-z_]*[0-9.]*)\s*=\s*{NUMBER}\s*%\s*(?:,\s*{NUMBER}\s*([A-Za-z%/]+)\s*)?")
EXAMPLE = "--limit latency=5%"


@dataclass(frozen=True)
class Limit:
    """The largest loss of one metric that passes."""

    metric: Metric
    share: float
    """Of the baseline's value: 0.05 lets a latency rise to 1.05 times, and a throughput fall to 0.95 times."""
    floor: float = 0.0
    """A loss of at most this (SI) passes, whatever its share."""
    text: str = ""

    def most(self, baseline: float) -> float:
        """Return the largest factor by which a candidate may be worse than this value of the baseline."""
        share = max(self.share, self.floor / baseline) if baseline > 0 else self.share
        if not self.metric.higher:
            return 1 + share
        return 1 / (1 - share) if share < 1 else math.inf


def parse(text: str) -> Limit:
    """Return the Limit in `latency=5%` or `memory=10%,20MB`; UsageError says what can be written."""
    match = WRITTEN.fullmatch(text)
    if match is None:
        raise _unreadable(text, "it is not METRIC=SHARE% or METRIC=SHARE%,FLOOR with a unit", EXAMPLE)
    name, share, floor, unit = match.groups()
    known = metrics.bounded()
    if name not in known:
        near = near_names(name, known)
        raise _unreadable(text, known_names(known, near), flagged("--limit", [f"{n}={share}%" for n in near]))
    factors = units(known[name])
    if floor is not None and unit not in factors:
        right = f'--limit "{name}={share}%,{floor}{next(iter(factors))}"'
        raise _unreadable(text, f"{unit} is no unit of {name}", right)
    least = float(floor) * factors[unit] if floor is not None else 0.0
    return Limit(known[name], float(share) / 100, least, re.sub(r"\s", "", text))


def _unreadable(text: str, why: str, fix: str) -> UsageError:
    return UsageError(
        "E-JUDGE-1", f"{text!r} is no limit", evidence=why, effect="Nothing was measured", fix=fix or EXAMPLE
    )
