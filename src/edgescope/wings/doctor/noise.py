"""Measures the noise of this machine: one small trial against itself, in pairs of fresh processes that take turns.

analysis/run/noise.py explains the figures; this module makes the runs, on the same path as every measurement.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from edgescope import registry
from edgescope.analysis.cells import alternation
from edgescope.analysis.run.noise import CHANGES, PAIRS, Noise, detectable, floor, needed, spread
from edgescope.errors import EdgescopeError, UnsupportedError, UsageError
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.modes.catalog import Together
from edgescope.modes.enter import entered
from edgescope.records import Result, Trial

MIN_PAIRS = 5
_SECONDS = 1.0

_WINDOW: Mapping[str, Any] = {"turn_s": 0.1, "min_s": _SECONDS, "max_s": _SECONDS}

WORKLOADS: tuple[Trial, ...] = (
    Trial(model="squeezenet1_1", backend="onnxruntime", **_WINDOW),
    Trial(model="squeezenet1_1", backend="torch_eager", **_WINDOW),
    Trial(model="null", backend="null", workload="inference", options={"delay_us": 2000}, **_WINDOW),
)
"""The first that can be prepared here is used: a small network that needs no download, or else sleeping."""


def measure(
    seconds: float,
    *,
    workloads: Sequence[Trial] = WORKLOADS,
    min_pairs: int = MIN_PAIRS,
    tell: Callable[[str], None] = lambda text: None,
) -> Noise:
    """Return the noise of this machine now, from as many pairs as fit into `seconds`, at least `min_pairs`.

    UnsupportedError if no workload can be prepared or a run fails, SettingError if another edgescope holds this
    machine's settings or a setting cannot be restored.
    """
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(
            "E-NOISE-1", f"--minutes must be a positive number, not {seconds / 60:g}", fix="--minutes 2"
        )
    trial = _prepared(workloads)
    end, results = time.monotonic() + seconds, list[tuple[Result, Result]]()
    with entered(Together()), PersistentChild() as leader:  # restores settings that a killed run left changed
        while True:
            again = replace(trial, replicate=len(results))  # baseline and candidate are names only
            results.append(pair := leader.pair((again, again), alternation.CONFIRMING))
            each = (time.monotonic() - (end - seconds)) / len(results)
            tell(f"pair {len(results)}: {_typical_s(pair[0]) / _typical_s(pair[1]) - 1:+.2%}")
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
        failed = fresh.prepare(trial)
        if failed is None:
            return trial
        why.append(str(failed.reason))
    raise UnsupportedError(
        "E-NOISE-2", "no workload runs here to measure the noise with", evidence="; ".join(why)
    )


def _typical_s(result: Result) -> float:
    found = alternation.typical_s(result)
    if found <= 0:
        raise UnsupportedError(
            "E-NOISE-3", "a run of the noise workload has no latency", evidence=str(result.reason)
        )
    return found


def _summary(trial: Trial, results: Sequence[tuple[Result, Result]]) -> Noise:
    pairs = [(_typical_s(a), _typical_s(b)) for a, b in results]
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
