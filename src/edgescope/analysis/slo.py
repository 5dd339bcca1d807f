"""What a client is promised: `p99<40ms`, `p50<=10ms`, `p99.9<0.1s`, `memory<=2GB`, `power<=10W`.

A service-level objective is a limit on one figure of a run. A latency's quantile is judged on its upper bound
(stats.upper_bound, 99 % confidence): a promise is kept where the data show it, not where they do not contradict it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgescope.analysis.memory_figures import GPU, MEMORY
from edgescope.analysis.objective import BYTES, TIME
from edgescope.errors import UsageError

WRITTEN = re.compile(r"\s*([a-z_]+[0-9.]*)\s*(<=?)\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")
QUANTILE = re.compile(r"p(\d\d)\.?(\d{0,2})")
WATTS = {"W": 1.0, "mW": 1e-3}
#: What can be promised beside a quantile: the unit's factors to SI, and the metrics that answer, the best first.
RESOURCES: Mapping[str, tuple[Mapping[str, float], tuple[str, ...]]] = {
    "memory": (BYTES, MEMORY),
    "gpu_memory": (BYTES, GPU),
    "power": (WATTS, ("power_w",)),
}


@dataclass(frozen=True)
class Slo:
    """One promise; `limit` is SI, `text` is how it was written, without spaces."""

    name: str
    """p99, memory, gpu_memory or power."""
    limit: float
    strict: bool
    """Whether the limit itself is already too much (`<`)."""
    text: str
    quantile: float | None = None
    """Of a latency: which quantile, 0.99 for p99."""

    def kept_by(self, value: float) -> bool:
        """Whether `value` (SI) is within the limit."""
        return value < self.limit if self.strict else value <= self.limit

    @property
    def unit(self) -> str:
        """SI unit of the limit: s, bytes or W."""
        return "s" if self.quantile else "W" if self.name == "power" else "bytes"


def parse(text: str) -> Slo:
    """Read `p99<40ms`; UsageError says what can be written."""
    match = WRITTEN.fullmatch(text)
    if match is None:
        raise _unreadable(text, "it is not FIGURE<VALUE or FIGURE<=VALUE")
    name, sense, number, unit = match.groups()
    quantile = _quantile(name)
    if quantile is None and name not in RESOURCES:
        raise _unreadable(text, f"{name!r} cannot be promised; known: p50 to p99.99, {', '.join(RESOURCES)}")
    units = TIME if quantile else RESOURCES[name][0]
    if unit not in units:
        raise _unreadable(text, f"{name} is written in {', '.join(units)}")
    limit = float(number) * units[unit]
    if not (math.isfinite(limit) and limit > 0):
        raise _unreadable(text, "the limit must be a positive number")
    return Slo(name, limit, sense == "<", f"{name}{sense}{number}{unit}", quantile)


def promises(texts: Iterable[str]) -> tuple[Slo, ...]:
    """Return the promises as typed, several of them also joined by commas; UsageError where there is none."""
    found = tuple(parse(part) for text in texts for part in text.split(",") if part.strip())
    if not found:
        raise _unreadable("", "nothing is promised")
    return found


def _quantile(name: str) -> float | None:
    """Return 0.99 of p99, 0.999 of p999 and p99.9; None of what is no quantile from the median up."""
    match = QUANTILE.fullmatch(name)
    if match is None or name.endswith("."):
        return None
    value = float(f"0.{match[1]}{match[2]}")
    return value if value >= 0.5 else None


def _unreadable(text: str, why: str) -> UsageError:
    return UsageError("E-SLO-1", f"--slo {text!r} cannot be read", evidence=why, fix='--slo "p99<40ms"')
