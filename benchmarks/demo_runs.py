"""How quick, how narrow and how right the demo's answer is: several runs, each from an empty cache.

Each run is `edgescope optimize efficientnet_lite0`, which is what `edgescope demo` asks. Then every pick that a run
chose takes turns with the baseline for --minutes, in fresh pairs spread over that time: the long-run ratio that the
runs' intervals should cover. Targets: an answer within 90 s, a 95 % interval within +-5 %, and the long-run ratio
within it, each in nine runs of ten.

    python benchmarks/demo_runs.py [--runs 10] [--minutes 10] [--budget 90s]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from facts import publish
from own_models import MODEL, asked

from edgescope.analysis.cells import alternation
from edgescope.isolate import fresh
from edgescope.records import Trial
from edgescope.stats.alternation import alternation_ratio

ANSWER_S, WITHIN, SHARE = 90.0, 0.05, 0.9


def one_run(work: Path, budget: str) -> dict[str, Any]:
    """Return what one demo answered, with a cache and a store of its own."""
    place = Path(tempfile.mkdtemp(dir=work))
    os.environ["XDG_CACHE_HOME"] = str(place)
    found = asked(place, [MODEL], budget)
    speedup = found.get("speedup") or {}
    if "lo" in speedup:
        middle = speedup["value"]
        found["half_width"] = max(speedup["hi"] / middle - 1, 1 - speedup["lo"] / middle)
    shutil.rmtree(place)
    return found


def long_run(pick: dict[str, Any], minutes: float) -> dict[str, Any]:
    """Return the speed-up of a pick over eager fp32, from fresh pairs that take turns for `minutes`."""
    ours = replace(Trial.from_json(pick), turn_s=0.1, min_s=5.0, max_s=5.0)
    eager = Trial(model=ours.model, turn_s=0.1, min_s=5.0, max_s=5.0)
    pairs, end, number = [], time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        sides = (replace(eager, replicate=number), replace(ours, replicate=number))
        first, second = fresh.pair(sides, alternation.CONFIRMING)
        pairs.append(alternation.blocks(second, first))
        number += 1
    found = alternation_ratio(pairs)
    return {"value": found.value, "lo": found.lo, "hi": found.hi, "pairs": found.n, "minutes": minutes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--budget", default="90s")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="demo-runs-"))
    usual, runs = os.environ.get("XDG_CACHE_HOME"), []
    for number in range(args.runs):
        runs.append(one_run(work, args.budget))
        print(number, runs[-1].get("pick"), runs[-1]["wall_s"], runs[-1].get("speedup"), file=sys.stderr)
    os.environ.pop("XDG_CACHE_HOME") if usual is None else os.environ.update(XDG_CACHE_HOME=usual)
    picks = {run["pick"]: run["trial"] for run in runs if run.get("pick")}
    truths = {name: long_run(trial, args.minutes / len(picks)) for name, trial in picks.items()}
    for run in runs:
        truth, said = truths.get(run.get("pick", "")), run.get("speedup") or {}
        run["covers"] = bool(truth and "lo" in said and said["lo"] <= truth["value"] <= said["hi"])
    enough = SHARE * len(runs)
    counts = {
        "in_time": sum(run["wall_s"] <= ANSWER_S for run in runs),
        "narrow": sum(run.get("half_width", 1.0) <= WITHIN for run in runs),
        "cover": sum(run["covers"] for run in runs),
    }
    publish(
        "demo_runs",
        {"counts": counts, "runs": runs, "long_run": truths},
        met=all(n >= enough for n in counts.values()),
    )


if __name__ == "__main__":
    main()
