"""What a client is promised: `p99<40ms`, `p50<=10ms`, `p99.9<0.1s`, `memory<=2GB`, `power<=10W`, `energy<50mJ`.

A service-level objective is a limit on one figure of a run. A latency's quantile is judged on its upper bound
(stats.upper_bound, 99 % confidence): a promise is kept where the data show it, not where they do not contradict it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgescope.analysis.cells.objective import QUANTITIES, TIME, Quantity, bound
from edgescope.analysis.run.usage import GPU, MEMORY
from edgescope.errors import UsageError

QUANTILE = re.compile(r"p(\d\d)\.?(\d{0,2})")
LATENCY = Quantity("", True, TIME)
#: What can be promised beside a quantile: the metrics that answer, the best first.
RESOURCES: Mapping[str, tuple[str, ...]] = {
    "memory": MEMORY,
    "gpu_memory": GPU,
    "power": ("power_w",),
    "energy": ("energy_per_sample_j",),
}
UNITS = {"power": "W", "energy": "J"}


@dataclass(frozen=True)
class Slo:
    """One promise; `limit` is SI, `text` is how it was written, without spaces."""

    name: str
    """p99, memory, gpu_memory, power or energy."""
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
        """SI unit of the limit: s, bytes, W or J."""
        return "s" if self.quantile else UNITS.get(self.name, "bytes")


def parse(text: str) -> Slo:
    """Read `p99<40ms`, in the grammar of constraints; UsageError says what can be written."""
    found = bound(text, _known, _unreadable)
    if found.limit <= 0:
        raise _unreadable(text, "the limit must be a positive number")
    return Slo(found.name, found.limit, found.strict, found.text, _quantile(found.name))


def _known(name: str) -> Quantity | str:
    """Return what a name bounds, or why nothing is promised of it."""
    if _quantile(name) is not None:
        return LATENCY
    if name in RESOURCES:
        return QUANTITIES[name]
    what = "is a constraint of recommend and optimize, not promised to clients" if name in QUANTITIES else ""
    return f"{name!r} {what or 'cannot be promised'}; known: p50 to p99.99, {', '.join(RESOURCES)}"


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
