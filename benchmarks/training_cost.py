"""What measuring costs a training run: epochs with the watch on the loader and the steps, and without, in turns.

    PYTHONPATH=src:tests python benchmarks/training_cost.py [--device cuda] [--rounds 9] [--seconds 120] [--json FILE]

The same task is trained twice in one process, stretches of steps in turns: as edgescope does it (timed stages in the
workers, marks on the time line, costs kept), and by a plain loop over the same DataLoader with the same step. Target:
at most 1 % of an epoch; on a machine with neighbours, of its CPU time (without workers, all of it is this process's).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from facts import publish

from edgescope.backends.pytorch.training import Loop
from edgescope.bench.parts import HERE
from edgescope.models.image import photo_set
from edgescope.options import read
from edgescope.records import Trial
from edgescope.stats import paired_log_ratio
from edgescope.training.step import Step
from edgescope.workloads.training import Training

CASES = {
    "lenet5": photo_set.Recipe(20_000, 28, 28, packed=True, grey=True),
    "mobilenet_v3_large_203class": photo_set.Recipe(400),
}
MOST = 1.01


def plain(loop: Loop) -> Iterator[None]:
    """Take a step at each turn, as a script would."""
    loader = loop.task.batches(0)
    loader = torch.utils.data.DataLoader(
        loader.dataset,  # type: ignore[attr-defined]
        batch_size=loop.trial.batch,
        shuffle=True,
        num_workers=int(loop.options["num_workers"]),
        persistent_workers=bool(loop.options["persistent_workers"]),
    )
    take = Step(loop.task, loop.spec.device, loop.trial.precision)
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


def cost(name: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the ratio of measured to plain steps, over stretches in turns."""
    options = {"images": str(folder), "num_workers": args.workers, "persistent_workers": args.workers > 0}
    trial = Trial(model=name, workload="training", batch=16, device=args.device, workload_options=options)
    trial = trial if args.device == "cuda" else Trial(**{**trial.to_json(), "options": {"threads": 1}})
    loop = Loop(HERE.model(trial), trial, read("training", options, Training.OPTIONS))
    other = plain(loop)
    for _ in range(3):
        loop.step()
        next(other)
    one, _ = timed(lambda: next(other), 3)
    steps = max(3, round(args.seconds / len(args.only) / args.rounds / 2 / one))
    rounds: list[dict[bool, tuple[float, float]]] = []
    for number in range(args.rounds):
        turns: dict[bool, tuple[float, float]] = {}
        for measured in (True, False) if number % 2 else (False, True):
            turns[measured] = timed(loop.step if measured else lambda: next(other), steps)
        rounds.append(turns)
    loop.close()
    found: dict[str, Any] = {"steps": steps, "step_s": one}
    for place, figure in enumerate(("wall", "cpu")):
        pairs = [(turns[True][place], turns[False][place]) for turns in rounds]
        ratio = paired_log_ratio([a for a, _ in pairs], [b for _, b in pairs])
        found[figure] = {"ratio": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "rounds": pairs}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--json", type=Path, default=None, help="write the figures here, too")
    args = parser.parse_args()
    found: dict[str, Any] = {"device": args.device, "workers": args.workers}
    with tempfile.TemporaryDirectory(prefix="edgescope-cost-") as place:
        for name in args.only:
            photo_set.write(Path(place) / name, CASES[name])
            found[name] = cost(name, Path(place) / name, args)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1) + "\n")
    met = all(found[name]["cpu"]["ratio"] <= MOST for name in args.only)
    publish("training_cost" if args.device == "cpu" else "training_cost_cuda", found, met=met)


if __name__ == "__main__":
    main()
