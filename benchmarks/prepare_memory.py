"""How long fp32 references take where the C library keeps freed memory, against where it gives it back.

Preparations of a network's baseline from an empty cache take turns in pairs, with the environment that edgescope gives
them and with the C library's own settings; `given_back_ratio` is of their times, own settings over edgescope's.
`faults` are the pages that the system cleared for one preparation, the mean of its runs. Target: above 1.

    python benchmarks/prepare_memory.py [--pairs 6] [--models efficientnet_lite0,resnet50]     6 minutes
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys

from facts import publish
from prepare_busy import seconds

from edgescope.isolate.fresh import BUILDING
from edgescope.records import Json, Trial
from edgescope.stats.pairs import paired_log_ratio

ARMS = {
    "given back": {name: value for name, value in BUILDING.items() if not name.startswith("MALLOC_")},
    "kept": BUILDING,
}


def faults() -> int:
    """Return how many pages the system has cleared or mapped for this process's ended children."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def compared(model: str, pairs: int) -> dict[str, Json]:
    """Return the seconds and page faults of each arm's preparations, and the ratio of the seconds."""
    took: dict[str, list[float]] = {arm: [] for arm in ARMS}
    pages: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for number in range(pairs):
        for arm in sorted(ARMS, reverse=bool(number % 2)):
            before = faults()
            took[arm].append(seconds(Trial(model=model), ARMS[arm]))
            pages[arm].append(faults() - before)
            print(f"{model} pair {number} {arm} {took[arm][-1]:.1f} s", file=sys.stderr, flush=True)
    ratio = paired_log_ratio(took["given back"], took["kept"])
    ends = {"lo": ratio.lo, "hi": ratio.hi} if ratio.reliable else {"absent": ratio.note}
    return {
        "seconds": took,
        "faults": {arm: statistics.fmean(each) for arm, each in pages.items()},
        "given_back_ratio": {"value": ratio.value, "pairs": ratio.n, **ends},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--models", default="efficientnet_lite0,resnet50")
    args = parser.parse_args()
    found = {model: compared(model, args.pairs) for model in args.models.split(",")}
    publish(
        "prepare_memory",
        {"models": found},
        met=all(each["given_back_ratio"].get("lo", 0) > 1 for each in found.values()),
    )


if __name__ == "__main__":
    main()
