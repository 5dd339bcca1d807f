"""What this machine can tell apart: the same trial against itself, in pairs of fresh processes.

An A/A run has a true ratio of exactly 1, and the order within a pair is drawn, so whatever the log ratios d spread
by is noise, and their mean is known: s^2 = sum(d^2) / n, with n degrees of freedom.

    floor       95 % of single pairs of identical cells differ by no more than exp(t(0.975, n) s) - 1
    detectable  the change whose 95 % interval excludes 1 in 80 % of comparisons of k pairs:
                exp((t(0.975, k-1) + t(0.8, k-1)) s / sqrt(k)) - 1, the usual sample-size formula
    needed      the least k for which a given change is that

FASTER and SLOWER also ask for a size of 1 % (stats.pairs), so a change of just 1 % is seen as significant, and
called FASTER in about half of the comparisons only.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgescope import isolate, registry
from edgescope.errors import EdgescopeError, UnsupportedError, UsageError
from edgescope.records import Measured, Result, Trial
from edgescope.stats.special import t_quantile

PAIRS = 5
"""Replicates that `detectable` is given for: the final rounds of `optimize`, unless told otherwise."""
CHANGES = (0.01, 0.02, 0.05)
LEVEL, POWER = 0.95, 0.80
MIN_PAIRS = 5
_MOST = 10_000
_SECONDS = 1.0
FILE = "noise.json"

WORKLOADS: tuple[Trial, ...] = (
    Trial(model="squeezenet1_1", backend="onnxruntime", min_s=_SECONDS, max_s=_SECONDS),
    Trial(model="squeezenet1_1", backend="torch_eager", min_s=_SECONDS, max_s=_SECONDS),
    Trial(
        model="null",
        backend="null",
        workload="inference",
        options={"delay_us": 2000},
        min_s=_SECONDS,
        max_s=_SECONDS,
    ),
)
"""The first that can be prepared here: a small network that needs no download; sleeping is the last resort."""


@dataclass(frozen=True)
class Noise:
    """What identical cells differ by on one machine."""

    machine_id: str
    measured_at: str
    workload: str
    pairs: int
    spread: float
    """Standard deviation of a pair's log ratio."""
    floor: float
    detectable: float
    """With PAIRS replicates."""
    needed: Mapping[str, int | None]
    """Change in percent -> replicates; None above 10,000."""
    verdicts: Mapping[str, int]
    p50_s: Sequence[tuple[float, float]]


def spread(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the standard deviation of log(a / b) about its known mean of 0."""
    return math.sqrt(sum(math.log(a / b) ** 2 for a, b in pairs) / len(pairs))


def floor(s: float, n: int) -> float:
    """Return what 95 % of |ratio - 1| stay below, from the spread `s` of n pairs."""
    return math.expm1(t_quantile(0.5 + LEVEL / 2, n) * s)


def detectable(s: float, k: int) -> float:
    """Return the least change that k pairs find in 80 % of comparisons."""
    return math.expm1((t_quantile(0.5 + LEVEL / 2, k - 1) + t_quantile(POWER, k - 1)) * s / math.sqrt(k))


def needed(s: float, change: float) -> int | None:
    """Return the least number of pairs that find `change`; None above 10,000."""
    lo, hi = 2, _MOST
    if detectable(s, hi) > change:
        return None
    while lo < hi:
        middle = (lo + hi) // 2
        lo, hi = (lo, middle) if detectable(s, middle) <= change else (middle + 1, hi)
    return lo


def measure(
    seconds: float,
    *,
    workloads: Sequence[Trial] = WORKLOADS,
    min_pairs: int = MIN_PAIRS,
    tell: Callable[[str], None] = lambda text: None,
) -> Noise:
    """Return the noise of this machine now, from as many pairs as fit into `seconds`, at least `min_pairs`.

    UnsupportedError where no workload can be prepared or a run of it fails.
    """
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(
            "E-NOISE-1", f"--minutes must be a positive number, not {seconds / 60:g}", fix="--minutes 2"
        )
    trial = _prepared(workloads)
    end, results = time.monotonic() + seconds, []
    for pair in _pairs(trial, random.Random(0)):
        results.append(pair)
        each = (time.monotonic() - (end - seconds)) / len(results)
        tell(f"pair {len(results)}: {_p50(pair[0]) / _p50(pair[1]) - 1:+.2%}")
        if len(results) >= min_pairs and time.monotonic() + each > end:
            break
    return _summary(trial, results)


def _prepared(workloads: Sequence[Trial]) -> Trial:
    why = []
    for trial in workloads:
        try:
            registry.load(registry.BACKENDS, trial.backend, "backend")
        except EdgescopeError as error:
            why.append(str(error))
            continue
        failed = isolate.prepare(trial)
        if failed is None:
            return trial
        why.append(failed.reason)
    raise UnsupportedError(
        "E-NOISE-2", "nothing can be run to measure the noise with", evidence="; ".join(why)
    )


def _pairs(trial: Trial, rng: random.Random) -> Iterator[tuple[Result, Result]]:
    """Yield runs of one trial two by two: a and b are names only, their order is drawn."""
    number = 0
    while True:
        arms: dict[str, Result] = {}
        for arm in rng.sample(("a", "b"), 2):
            arms[arm] = isolate.run(replace(trial, replicate=number))
        yield arms["a"], arms["b"]
        number += 1


def _p50(result: Result) -> float:
    value = result.metrics.get("latency_p50_s")
    if not isinstance(value, Measured) or value.value <= 0:
        raise UnsupportedError(
            "E-NOISE-3", "a run of the noise workload has no latency", evidence=result.reason
        )
    return value.value


def _summary(trial: Trial, results: Sequence[tuple[Result, Result]]) -> Noise:
    pairs = [(_p50(a), _p50(b)) for a, b in results]
    s = spread(pairs)
    verdicts = Counter(r.verdict.trust.value if r.verdict else "UNKNOWN" for pair in results for r in pair)
    return Noise(
        machine_id=results[0][0].machine.id,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        workload=f"{trial.model} {trial.label}",
        pairs=len(pairs),
        spread=s,
        floor=floor(s, len(pairs)),
        detectable=detectable(s, PAIRS),
        needed={f"{change:.0%}": needed(s, change) for change in CHANGES},
        verdicts=dict(verdicts),
        p50_s=pairs,
    )


def save(noise: Noise, root: Path) -> Path:
    """Write ROOT/<machine id>/noise.json, whole or not at all."""
    path = root / noise.machine_id / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(asdict(noise), indent=1) + "\n")
    aside.replace(path)
    return path


def stored(root: Path, machine_id: str) -> Noise | None:
    """Return what was measured on this machine last; None where nothing was, or it cannot be read."""
    try:
        page: dict[str, Any] = json.loads((root / machine_id / FILE).read_text())
        page["p50_s"] = [(float(a), float(b)) for a, b in page["p50_s"]]
        return Noise(**page)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def words(noise: Noise) -> str:
    """Return the noise floor in one sentence."""
    found = ", ".join(f"{change} needs {k if k else 'over 10,000'}" for change, k in noise.needed.items())
    disturbed = sum(n for name, n in noise.verdicts.items() if name != "CLEAN")
    of = sum(noise.verdicts.values())
    return (
        f"identical runs differ by up to {noise.floor:.2%} (95 % of pairs; {noise.pairs} pairs of {noise.workload}, "
        f"{noise.measured_at[:10]}). {PAIRS} replicates detect {noise.detectable:.2%}; {found} replicates"
        + (f". {disturbed} of {of} runs were not CLEAN: repeat it on a quiet machine" if disturbed else "")
    )
