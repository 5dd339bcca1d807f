"""The noise of a machine from an A/A run: the same trial against itself, in pairs of fresh processes.

An A/A run has a true ratio of exactly 1, and the two processes of a pair take turns, so the spread of the log ratios d
is noise, and their mean is known: s^2 = sum(d^2) / n, with n degrees of freedom.

    floor       95 % of single pairs of identical cells differ by no more than exp(t(0.975, n) s) - 1
    detectable  the change whose 95 % interval excludes 1 in 80 % of comparisons of k pairs:
                exp((c(k) + t(0.8, k-1)) s / sqrt(k)) - 1, the usual sample-size formula with the half width c(k)
                that stats.alternation usually takes of k pairs
    needed      the least k for which a given change is that

FASTER and SLOWER also need a difference of 1 % (stats.pairs), so a change of just 1 % is found to be significant, but
is called FASTER in only about half of the comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import StoreError
from edgescope.records import plain_json
from edgescope.stats.alternation import standard_errors
from edgescope.stats.intervals import t_quantile
from edgescope.stats.pairs import MIN_PAIRS
from edgescope.store import files

PAIRS = 5
"""Pairs that `detectable` is given for: as many as confirm the pick of `optimize`, if the budget allows no more."""
CHANGES = (0.01, 0.02, 0.05)
LEVEL, POWER = 0.95, 0.80
MOST_BYTES = 1_000_000
FILE = "noise.json"
_MOST = 10_000


@dataclass(frozen=True)
class Noise:
    """How much identical cells differ on one machine."""

    machine_id: str
    measured_at: str
    workload: str
    pairs: int
    spread: float
    """Standard deviation of a pair's log ratio."""
    floor: float
    detectable: float
    """The least change that PAIRS replicates detect."""
    needed: Mapping[str, int | None]
    """Change in percent -> replicates; None above 10,000."""
    verdicts: Mapping[str, int]
    p50_s: Sequence[tuple[float, float]]


def spread(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the standard deviation of log(a / b) about its known mean of 0."""
    return math.sqrt(sum(math.log(a / b) ** 2 for a, b in pairs) / len(pairs))


def floor(s: float, n: int) -> float:
    """Return the 95 % quantile of |ratio - 1|, from the spread `s` of n pairs."""
    return math.expm1(t_quantile(0.5 + LEVEL / 2, n) * s)


def detectable(s: float, k: int) -> float:
    """Return the least change that k pairs find in 80 % of comparisons."""
    return math.expm1((standard_errors(k, LEVEL) + t_quantile(POWER, k - 1)) * s / math.sqrt(k))


def needed(s: float, change: float) -> int | None:
    """Return the least number of pairs that find `change`; None above 10,000."""
    lo, hi = MIN_PAIRS, _MOST
    if detectable(s, hi) > change:
        return None
    while lo < hi:
        middle = (lo + hi) // 2
        lo, hi = (lo, middle) if detectable(s, middle) <= change else (middle + 1, hi)
    return lo


def save(noise: Noise, root: Path) -> Path:
    """Write ROOT/<machine id>/noise.json, whole or not at all."""
    return cache.write_json(root / noise.machine_id / FILE, asdict(noise))


def stored(root: Path, machine_id: str) -> Noise | None:
    """Return the last measured noise of this machine, or None if there is none or it cannot be read."""
    try:
        page: dict[str, Any] = plain_json.parsed(files.read(root / machine_id / FILE, MOST_BYTES))
        page["p50_s"] = [(float(a), float(b)) for a, b in page["p50_s"]]
        page |= {key: float(page[key]) for key in ("spread", "floor", "detectable")}
        page |= {key: dict(page[key]) for key in ("needed", "verdicts")}
        return Noise(**page)
    except (OSError, ValueError, TypeError, KeyError, StoreError):
        return None


def words(noise: Noise) -> str:
    """Return the noise floor in one sentence."""
    found = ", ".join(f"{change} needs {k if k else 'over 10,000'}" for change, k in noise.needed.items())
    disturbed = sum(n for name, n in noise.verdicts.items() if name != "CLEAN")
    of = sum(noise.verdicts.values())
    return (
        f"identical runs differ by up to {noise.floor:.2%} (95 % of pairs; {noise.pairs} pairs of {noise.workload}, "
        f"{noise.measured_at[:10]}). {PAIRS} pairs detect {noise.detectable:.2%}; {found} replicates"
        + (f". {disturbed} of {of} runs were not CLEAN: repeat it on a quiet machine" if disturbed else "")
    )


def sentence(root: Path, machine_id: str) -> str:
    """Return the stored noise floor as a sentence, or '' if none was measured."""
    found = stored(root, machine_id)
    return f"{words(found)}." if found else ""
