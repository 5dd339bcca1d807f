"""What a run says of a host that changes its speed, in fake time, with the shipped stop rule and a default trial.

Traces: quiet, correlated (AR(1), rho 0.9, CV 10 %), bursty, and of two speeds (1.08 and 1.72 ms, 1 to 10 s at a time).
Told are the share of runs in which several speeds are found (on the first three: false alarms), the length of a quiet
run, how often the mean's interval within a run is given and holds the long-run mean, what it held before (batch means
of whatever window there was), and how often the interval between five fresh processes holds it.

    python benchmarks/speed_states.py     # three CPU minutes; writes published/speed_states.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from facts import publish

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import traces
from edgescope.analysis.cells.replicates import spread
from edgescope.analysis.run.summary import metrics
from edgescope.records import Measured
from edgescope.scenarios.closed import SingleStream
from edgescope.stats import mean_interval, states
from fake_time import drive, trial

STEADY = {"quiet": traces.quiet, "correlated": traces.correlated, "bursty": traces.bursty}
WINDOWS_S = (1.0, 2.0, 10.0)
SLOWER = 10
"""How many times slower the network of the long windows is, for the simulation's sake."""


def false_alarms(runs: int) -> dict[str, dict[str, float]]:
    """Share of steady windows in which several speeds are found."""
    return {
        name: {
            f"{s:g} s": float(np.mean([states(make(s, i)).several for i in range(runs)])) for s in WINDOWS_S
        }
        for name, make in STEADY.items()
    }


def one(series: np.ndarray[Any, Any], **keys: Any) -> tuple[Measured, Measured, float, bool]:
    """The mean as told, as batch means alone would tell it, the seconds, and whether several speeds were found."""
    queries, plan = drive(
        SingleStream, trial(**({"min_s": 1.0, "max_s": 10.0} | keys)), traces.service(series)
    )
    window = plan.window
    x = queries.rows(window).latency_ns() * 1e-9
    told = metrics(queries, window)["latency_mean_s"]
    assert isinstance(told, Measured)
    return told, mean_interval(x).measured("s"), (window.stop_ns - window.start_ns) * 1e-9, states(x).several


def told(found: list[tuple[Measured, Measured, float, bool]], truth: float) -> dict[str, Any]:
    """How often each interval is given and holds the long-run mean."""
    out: dict[str, Any] = {"runs": len(found), "median_s": float(np.median([f[2] for f in found]))}
    for name, column in (("told", 0), ("batch_means_alone", 1)):
        given = [f[column] for f in found if f[column].lo is not None]  # type: ignore[union-attr]
        held = [f.lo <= truth <= f.hi for f in given]  # type: ignore[union-attr,operator]
        out[name] = {
            "given": len(given) / len(found),
            "held_where_given": float(np.mean(held)) if held else None,
        }
    return out | {"several_found": float(np.mean([f[3] for f in found]))}


def processes(means: list[float], truth: float) -> dict[str, Any]:
    """How often the interval between five fresh processes, met minutes apart, holds the long-run mean."""
    groups = [means[i : i + 5] for i in range(0, len(means) - 4, 5)]
    fields = [spread(group, "s") for group in groups]
    held = [f.lo <= truth <= f.hi for f in fields if isinstance(f, Measured)]  # type: ignore[operator]
    return {"groups": len(groups), "held": float(np.mean(held))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    slow = (SLOWER * traces.FAST_S, SLOWER * traces.SLOW_S)
    truth = traces.TWO_STATE_MEAN_S
    short = [one(traces.two_state(12, i)) for i in range(runs)]
    long = {
        f"{s} s": told(
            [one(traces.two_state(1.2 * s, i, levels_s=slow), min_s=s, max_s=s) for i in range(runs // 3)],
            SLOWER * truth,
        )
        for s in (10, 60, 600)
    }
    calm = {
        "default": told([one(traces.quiet(12, i)) for i in range(runs)], traces.FAST_S),
        "10 s": told([one(traces.quiet(12, i), min_s=10.0) for i in range(runs)], traces.FAST_S),
    }
    figures = {
        "false_alarms": false_alarms(runs),
        "quiet": calm,
        "two_state": {"default": told(short, truth)} | long,
        "five_processes": processes([f[0].value for f in short], truth),
    }
    alarms = max(share for each in figures["false_alarms"].values() for share in each.values())
    held = [each["told"]["held_where_given"] for each in figures["two_state"].values()]
    met = alarms <= 0.05 and calm["default"]["median_s"] <= 2.0 and all(h is None or h >= 0.9 for h in held)
    publish("speed_states", figures, met=met)


if __name__ == "__main__":
    main()
