"""How long references take beside other work: OpenMP's threads asleep while they wait, against spinning.

`edgescope optimize` prepares a baseline before it measures: pictures are read and fp32 answers computed. Beside one
endless loop for each core, pairs of preparations from an empty cache take turns, with the environment that edgescope
gives them and with the usual one; `asleep_ratio` is of their times, usual over edgescope's. Target: above 1.

    python benchmarks/prepare_busy.py [--pairs 4] [--model efficientnet_lite0]     8 minutes
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from facts import publish

from edgescope.isolate import fresh
from edgescope.records import Trial
from edgescope.stats.pairs import paired_log_ratio

BUSY = "while True: pass"


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep so many processes computing."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def seconds(trial: Trial, env: dict[str, str]) -> float:
    """Return how long one preparation takes from an empty cache, in an environment with `env` added."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"EDGESCOPE_CACHE": folder}),
        mock.patch.object(fresh, "BUILDING", env),
    ):
        begun = time.monotonic()
        if (failed := fresh.prepare(trial)) is not None:
            raise SystemExit(str(failed.reason))
        return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--model", default="efficientnet_lite0")
    args = parser.parse_args()
    trial, cores = Trial(model=args.model), len(os.sched_getaffinity(0))
    usual = {name: value for name, value in fresh.BUILDING.items() if not name.startswith("OMP_")}
    arms = {"usual": usual, "asleep": dict(fresh.BUILDING)}
    took: dict[str, list[float]] = {name: [] for name in arms}
    with neighbours(cores):
        for number in range(args.pairs):
            for name in sorted(arms, reverse=bool(number % 2)):
                took[name].append(seconds(trial, arms[name]))
                print(f"pair {number} {name} {took[name][-1]:.1f} s", file=sys.stderr, flush=True)
    ratio = paired_log_ratio(took["usual"], took["asleep"])
    ends = {"lo": ratio.lo, "hi": ratio.hi} if ratio.reliable else {"absent": ratio.note}
    figures = {"model": args.model, "neighbours": cores, "seconds": took}
    publish(
        "prepare_busy",
        figures | {"asleep_ratio": {"value": ratio.value, "pairs": ratio.n, **ends}},
        met=ratio.reliable and ratio.lo > 1,
    )


if __name__ == "__main__":
    main()
