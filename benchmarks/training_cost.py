"""What measuring costs a training run: steps with the watch on the loader and the steps, and without, in turns.

    OMP_NUM_THREADS=1 PYTHONPATH=src:tests python benchmarks/training_cost.py --seconds 220 [--device cuda]

The same task is trained twice in one process, short stretches of steps in turns (with, without, without, with): as
edgescope does it (timed loading, marks on the time line, costs kept, the page cache looked at between epochs), and by a
plain loop over the same DataLoader with the same step. Two figures for each workload, both medians over pairs of
stretches with an interval:

    whole    the ratio of the steps with and without the watch, of the wall time and of this process's CPU time
    watch    the same difference in seconds, with the network left out, so that a neighbour on the machine or a warm
             core disturbs it less; over the time of a whole step it is the share that measuring costs

Without loader workers (the default) all that is measured happens in this process. Target: the upper end of the share
of `watch` is at most 1 % of an epoch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from facts import publish
from torch.utils.data import DataLoader, Dataset

from edgescope.analysis.run.epochs import PARTS
from edgescope.backends.pytorch.training import Loop
from edgescope.bench.parts import HERE
from edgescope.models.image import photo_set
from edgescope.options import read
from edgescope.records import Absent, Trial
from edgescope.stats.quantiles import percentile, quantile_interval
from edgescope.training.data_sets import Packed
from edgescope.training.step import Step
from edgescope.workloads.training import Training

CASES = {
    "lenet5": photo_set.Recipe(20_000, 28, 28, packed=True, grey=True),
    "mobilenet_v3_large_203class": photo_set.Recipe(400),
}
MOST = 0.01
STRETCH_S = 0.1
"""Seconds of a stretch at least, unless a single step takes longer."""
Take = Callable[..., Any]
LOSS = torch.zeros(())


def nothing(batch: Any, mark: Callable[[str], None] = lambda part: None) -> torch.Tensor:
    """Mark the parts of a step, and compute nothing."""
    for part in PARTS[1:]:
        mark(part)
    return LOSS


class Bare(Dataset[Any]):
    """The same items, made by the same calls, without the marks of their stages."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        one = self.items.__getitem__ if isinstance(self.items, Packed) else self._photograph
        return [one(index) for index in indices]

    def _photograph(self, index: int) -> Any:
        items = self.items
        return items._augmented(items._decoded(items._read(items.files[index]))), items.labels[index]


def plain(loop: Loop, take: Take) -> Iterator[None]:
    """Take a step at each turn, as a script would."""
    loader: Any = loop.task.batches(0)
    loader = DataLoader(
        Bare(loader.dataset),
        batch_size=loop.trial.batch,
        shuffle=True,
        num_workers=int(loop.options["num_workers"]),
        persistent_workers=bool(loop.options["persistent_workers"]),
    )
    while True:
        for batch in loader:
            float(take(batch))
            yield


def timed(step: Callable[[], Any], steps: int) -> tuple[float, float]:
    """Return seconds of a step, and CPU seconds of this process in it."""
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps, (time.process_time() - cpu) / steps


Pairs = list[tuple[tuple[float, float], tuple[float, float]]]
"""(Wall, CPU) seconds of a step with the watch, and without."""


def turns(loop: Loop, take: Take, seconds: float) -> tuple[int, Pairs]:
    """Return the steps of a stretch, and the stretches with and without the watch, by pairs."""
    other = plain(loop, take)
    for _ in range(3):
        loop.step()
        next(other)
    steps = max(1, round(STRETCH_S / timed(lambda: next(other), 3)[0]))
    found: Pairs = []
    end = time.perf_counter() + seconds
    for number in itertools.count():
        if time.perf_counter() > end:
            return steps, found
        pair: dict[bool, tuple[float, float]] = {}
        for watched in (True, False) if number % 2 else (False, True):
            pair[watched] = timed(loop.step if watched else lambda: next(other), steps)
        found.append((pair[True], pair[False]))


def middle(values: list[float]) -> dict[str, Any]:
    """Return the median of these values with its 95 % interval."""
    found = quantile_interval(values, 0.5)
    if isinstance(found, Absent):
        return {"value": percentile(values, 0.5), "absent": found.reason, "lo": None, "hi": None}
    return {"value": found.value, "lo": found.lo, "hi": found.hi}


def cost(name: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return what the watch costs a step of one workload."""
    options = {"images": str(folder), "num_workers": args.workers, "persistent_workers": args.workers > 0}
    trial = Trial(model=name, workload="training", batch=16, device=args.device, workload_options=options)
    trial = trial if args.device == "cuda" else Trial(**{**trial.to_json(), "options": {"threads": 1}})
    each = args.seconds / len(args.only) / 2
    found: dict[str, Any] = {}
    step: list[float] = []
    for part in ("whole", "watch"):
        loop = Loop(HERE.model(trial), trial, read("training", options, Training.OPTIONS))
        if part == "watch":
            loop.take = nothing  # type: ignore[assignment]
        take = nothing if part == "watch" else Step(loop.task, loop.spec.device, loop.trial.precision)
        steps, pairs = turns(loop, take, each)
        loop.close()
        step = step or [percentile([b[place] for _, b in pairs], 0.5) for place in (0, 1)]
        found[part] = {"steps": steps, "pairs": len(pairs)}
        for place, figure in enumerate(("wall", "cpu")):
            gaps = [a[place] - b[place] for a, b in pairs]
            ratios = [a[place] / b[place] for a, b in pairs]
            found[part][figure] = (
                {"step_s": step[place], "ratio": middle(ratios)}
                if part == "whole"
                else {"extra_s": middle(gaps), "share": middle([gap / step[place] for gap in gaps])}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=220.0)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--json", type=Path, default=None, help="write the figures here and publish nothing")
    args = parser.parse_args()
    found: dict[str, Any] = {"device": args.device, "workers": args.workers}
    with tempfile.TemporaryDirectory(prefix="edgescope-cost-") as place:
        for name in args.only:
            photo_set.write(Path(place) / name, CASES[name])
            found[name] = cost(name, Path(place) / name, args)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1) + "\n")
    ends = [found[name]["watch"]["cpu"]["share"]["hi"] for name in args.only]
    if not args.json:
        met = all(end is not None and end <= MOST for end in ends)
        publish("training_cost" if args.device == "cpu" else "training_cost_cuda", found, met=met)


if __name__ == "__main__":
    main()
