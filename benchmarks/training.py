"""What training costs to measure, what holds it up, and what it does between queries.

    python benchmarks/training.py COMMAND --help

The commands: what the watch on a loader and its steps costs (watch), planted bottlenecks and the advice on them
(advice), and training in the gaps between queries beside co-location and MPS (gaps).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import facts
import torch
from facts import page, publish
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from edgescope import options as settings
from edgescope.analysis.cells.replicates import value_of
from edgescope.bench.parts import HERE
from edgescope.fit import Step, Task
from edgescope.models.image import photos
from edgescope.records import Absent, Result, Trial
from edgescope.runner.setup import run
from edgescope.stats import paired_log_ratio
from edgescope.stats.intervals import percentile, quantile_interval
from edgescope.wings.training.data_sets import Packed
from edgescope.wings.training.epochs import PARTS
from edgescope.wings.training.interleave import Interleaving, Slice, train_interleave
from edgescope.wings.training.loading import stage
from edgescope.wings.training.loop import Loop
from edgescope.wings.training.workload import Training

COST_CASES = {
    "lenet5": photos.Recipe(20_000, 28, 28, packed=True, grey=True),
    "mobilenet_v3_large_203class": photos.Recipe(400),
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
        loop = Loop(HERE.model(trial), trial, settings.read("training", options, Training.OPTIONS))
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


def watch() -> None:
    """What measuring costs a training run: steps with the watch on the loader and the steps, and without, in turns.

        OMP_NUM_THREADS=1 PYTHONPATH=src:tests python benchmarks/training.py watch --seconds 220 [--device cuda]

    The same task is trained twice in one process, short stretches of steps in turns (with, without, without, with):
    as edgescope does it (timed loading, marks on the time line, costs kept, the page cache looked at between epochs),
    and by a plain loop over the same DataLoader with the same step. Two figures for each workload, both medians over
    pairs of stretches with an interval:

        whole    the ratio of the steps with and without the watch, of the wall time and of this process's CPU time
        watch    the same difference in seconds, with the network left out, so that a neighbour on the machine or a warm
                 core disturbs it less; over the time of a whole step it is the share that measuring costs

    Without loader workers (the default) all that is measured happens in this process. Target: the upper end of the
    share of `watch` is at most 1 % of an epoch.
    """
    parser = argparse.ArgumentParser(description=facts.summary(watch))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=220.0)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(COST_CASES))
    parser.add_argument("--json", type=Path, default=None, help="write the figures here and publish nothing")
    args = parser.parse_args()
    found: dict[str, Any] = {"device": args.device, "workers": args.workers}
    with tempfile.TemporaryDirectory(prefix="edgescope-cost-") as place:
        for name in args.only:
            photos.write_set(Path(place) / name, COST_CASES[name])
            found[name] = cost(name, Path(place) / name, args)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1) + "\n")
    ends = [found[name]["watch"]["cpu"]["share"]["hi"] for name in args.only]
    if not args.json:
        met = all(end is not None and end <= MOST for end in ends)
        publish("training/watch" if args.device == "cpu" else "training/watch_cuda", found, met=met)


ADVICE_WINDOW_S = 3.0
"""Seconds of each run: ten cases then fit into twelve minutes."""
Case = tuple[set[str], str, dict[str, Any]]
#: Case -> the knobs that are right, the model, further keys of the Trial. {jpg} is a folder of large photographs.
ADVICE_CASES: dict[str, Case] = {
    "read": ({"num_workers"}, "training:read", {}),
    "augment": ({"num_workers"}, "training:augment", {}),
    "collate": ({"num_workers"}, "training:collate", {}),
    "restart": ({"persistent_workers"}, "training:restart", {}),
    "bursts": ({"prefetch_factor"}, "training:bursts", {}),
    "small_batch": ({"batch"}, "training:small_batch", {}),
    "few_workers": ({"num_workers"}, "training:few_workers", {}),
    "decode": ({"decode"}, "lenet5", {"batch": 8, "workload_options": {"images": "{jpg}", "num_workers": 2}}),
    "medium": (
        {"preload"},
        "lenet5",
        {
            "batch": 8,
            "workload_options": {
                "images": "{jpg}",
                "decode": "draft",
                "medium": "hdd",
                "page_cache": "cold_epochs",
                "num_workers": 1,
                "persistent_workers": True,
            },
        },
    ),
    "threads": ({"threads"}, "resnet18_cifar", {"batch": 8, "options": {"threads": 16}}),
}


class Items(Dataset[Any]):
    """Samples of which one stage takes long."""

    def __init__(self, count: int, slow: str, seconds: float, every: int = 1) -> None:
        self.count, self.slow, self.seconds, self.every = count, slow, seconds, every

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        for name in ("read", "decode", "augment"):
            with stage(name):
                if name == self.slow and index % self.every == 0:
                    time.sleep(self.seconds)
        return torch.full((4,), index / self.count), index % 3


def _collated(rows: list[Any]) -> Any:
    time.sleep(0.005 * len(rows))
    return default_collate(rows)


def _task(items: Items, *, step_s: float = 0.02, batch: int = 8, fixed: bool = False, **loader: Any) -> Task:
    """Return a task whose step takes `step_s` for eight samples, or, if `fixed`, for any number of them."""
    network = nn.Linear(4, 3)
    made = DataLoader(items, batch_size=batch, shuffle=items.every == 1, **loader)

    def loss(net: nn.Module, rows: Any) -> torch.Tensor:
        time.sleep(step_s if fixed else step_s * len(rows[0]) / 8)
        return nn.functional.cross_entropy(net(rows[0]), rows[1])

    return Task(network, lambda epoch: made, loss, torch.optim.SGD(network.parameters(), lr=0.01))


def read() -> Task:
    """Reading takes longer than the step, and nobody reads ahead."""
    return _task(Items(800, "read", 0.004))


def augment() -> Task:
    """Augmenting takes half as long as the step, and nothing overlaps."""
    return _task(Items(800, "augment", 0.002), step_s=0.03)


def collate() -> Task:
    """Joining samples takes twice as long as the step."""
    return _task(Items(800, "", 0.0), collate_fn=_collated)


def restart() -> Task:
    """Epochs are short and the workers start anew in each."""
    return _task(Items(40, "read", 0.001), num_workers=2)


def bursts() -> Task:
    """One minibatch in eight takes as long as five steps; the worker is not far enough ahead."""
    return _task(
        Items(1600, "read", 0.1, every=64), num_workers=1, persistent_workers=True, prefetch_factor=2
    )


def small_batch() -> Task:
    """The step takes as long for two samples as for eight."""
    return _task(Items(800, "", 0.0), batch=2, fixed=True)


def few_workers() -> Task:
    """One worker loads at a third of the speed of the step."""
    return _task(Items(1600, "decode", 0.008), num_workers=1, persistent_workers=True)


def examined(name: str, folder: Path, verify: bool) -> dict[str, Any]:
    """Return what was advised for a case and what the change brought."""
    from edgescope.wings.training.advise import train_advise

    right, model, keys = ADVICE_CASES[name]
    options = {
        key: value.format(jpg=folder / "jpg") if isinstance(value, str) else value
        for key, value in keys.get("workload_options", {}).items()
    }
    say: Callable[[object], None] = lambda what: print(what, file=sys.stderr)  # noqa: E731
    from edgescope.runner.setup import Setup

    found = train_advise(
        model,
        verify=verify,
        store=folder / "store",
        setup=Setup(tell=say),
        **{
            "options": {"threads": 1},
            "min_s": ADVICE_WINDOW_S,
            "max_s": ADVICE_WINDOW_S,
            **keys,
            "workload_options": options,
        },
    )
    print(found, file=sys.stderr)
    pick, gain = found.pick, getattr(found.realised, "value", None)
    return {
        "case": name,
        "right": sorted(right),
        "bottleneck": found.bottleneck,
        "advised": pick.setting if pick else None,
        "first": bool(pick and pick.knob in right),
        "predicted": pick.gain if pick else None,
        "realised": gain,
        "interval": [getattr(found.realised, "lo", None), getattr(found.realised, "hi", None)],
        "off": gain / pick.gain - 1 if pick and gain else None,
        "others": {change.setting: change.gain for change in found.changes[1:]},
    }


def advice() -> None:
    """Planted bottlenecks of training: whether the right setting is named first, and gains what was predicted.

        PYTHONPATH=src:tests python benchmarks/training.py advice [--only read,decode] [--seconds 660]

    Each case is a task with one thing wrong, which can be run by itself: `cd benchmarks; edgescope train advise
    training:read`. Targets: the right knob first in 7 of 8, the realised gain within 20 % of the predicted.
    """
    parser = argparse.ArgumentParser(description=facts.summary(advice))
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ADVICE_CASES))
    parser.add_argument("--seconds", type=float, default=660.0, help="begin no case after so long")
    parser.add_argument("--no-verify", dest="verify", action="store_false")
    parser.add_argument("--folder", type=Path, default=None, help="keep runs here: the same command goes on")
    parser.add_argument(
        "--keep", action="store_true", help="keep this machine's published rows of other cases"
    )
    args = parser.parse_args()
    from facts import machine_id, publish

    from edgescope.models.image import photos

    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    page = facts.published("training/advice") if args.keep else {}
    kept = page["figures"]["rows"] if page.get("machine_id") == machine_id() else []
    rows: list[dict[str, Any]] = [row for row in kept if row["case"] not in args.only]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edgescope-advice-") as place:
        folder = args.folder or Path(place)
        if not (folder / "jpg").exists():
            photos.write_set(folder / "jpg", photos.Recipe(64, 1280, 960))
        for name in args.only:
            if time.monotonic() - begun > args.seconds:
                break
            try:
                rows.append(examined(name, folder, args.verify))
            except Exception as error:  # one case that fails must not lose the others
                rows.append({"case": name, "first": False, "off": None, "failed": str(error)})
            first = sum(row["first"] for row in rows)
            near = sum(row["off"] is not None and abs(row["off"]) <= 0.2 for row in rows)
            figures = {"cases": len(rows), "right_first": first, "within_20_per_cent": near, "rows": rows}
            publish("training/advice", figures, met=len(rows) >= 8 and min(first, near) >= len(rows) - 1)


BATCHES = {"cpu": (4, 16), "cuda": (16, 64)}
RATE = {"cpu": 20.0, "cuda": 50.0}
BOUND_S = {"cpu": 0.15, "cuda": 0.03}
GAPS_WINDOW_S = {"cpu": 5.0, "cuda": 3.0}
CORES = len(os.sched_getaffinity(0))
Row = dict[str, Any]


def base(args: argparse.Namespace) -> Trial:
    """Return the serving side at its rate."""
    return Trial(
        model=args.serve,
        device=args.device,
        backend="torch_eager",
        scenario="fixed_rate",
        rate=args.rate,
        warmup=0.5,
        min_s=GAPS_WINDOW_S[args.device],
        max_s=GAPS_WINDOW_S[args.device],
        options={"threads": CORES} if args.device == "cpu" else {},
    )


def figures(result: Result) -> Row:
    """Return what one run gave; `failed` in it if it did not finish."""
    found: Row = {"p90_s": value_of(result, "latency_p90_s"), "power_w": value_of(result, "power_w")}
    found["trained_sps"] = value_of(result, "trained_sps") or value_of(result, "colocated_throughput_sps")
    return found if found["p90_s"] else found | {"failed": f"{result.status.value}: {result.reason}"[:300]}


def planned(args: argparse.Namespace, bound: float, store: Path) -> Interleaving:
    """Return the plan of `edgescope train interleave`, with both sides as measured alone."""
    asked = base(args)
    return train_interleave(
        args.serve,
        rate=args.rate,
        constraints=[f"p90<={bound:g}s"],
        train=args.train,
        train_batch=BATCHES[args.device],
        verify=False,
        store=store,
        **{
            name: getattr(asked, name)
            for name in ("device", "backend", "warmup", "min_s", "max_s", "options")
        },
    )


def arms(args: argparse.Namespace, batch: int) -> dict[str, Trial]:
    """Return the trial of each arm."""
    serve = base(args)
    beside = replace(serve, colocated=f"{args.train} workload=training batch={batch}")
    found = {
        "interleaved": replace(
            serve, workload="interleaved", workload_options={"train": args.train, "train_batch": batch}
        ),
        "colocated": beside,
    }
    if args.device == "cuda":
        return found | {"mps": replace(beside, sharing="mps")}
    return found | {"split": replace(beside, options={"threads": max(1, CORES // 2)})}


def summary(rounds: list[dict[str, Row]], bound: float, chosen: Slice) -> dict[str, Any]:
    """Return each arm's figures over the rounds, and its rate of training beside plain co-location."""
    out: dict[str, Any] = {}
    for name in rounds[0] if rounds else ():
        good = [turn[name] for turn in rounds if name in turn and "failed" not in turn[name]]
        row: dict[str, Any] = {"runs": len(good)}
        for figure in ("p90_s", "trained_sps", "power_w"):
            values = [each[figure] for each in good if each[figure]]
            row[figure] = statistics.geometric_mean(values) if values else None
            row[f"{figure}_runs"] = values
        row["kept"] = row["p90_s"] is not None and row["p90_s"] <= bound
        pairs = [
            (turn[name]["trained_sps"], turn["colocated"]["trained_sps"])
            for turn in rounds
            if all(turn.get(arm, {}).get("trained_sps") for arm in (name, "colocated"))
        ]
        if name != "colocated" and pairs:
            found = paired_log_ratio([a for a, _ in pairs], [b for _, b in pairs])
            if math.isfinite(found.hi):  # too few rounds bound nothing
                row["trained_beside_colocated"] = {"ratio": found.value, "lo": found.lo, "hi": found.hi}
        out[name] = row
    turns = out.get("interleaved", {})
    out["planner"] = {
        "train_batch": chosen.trained.batch,
        "latency_s": {"predicted_longest": chosen.latency_s, "measured_p90": turns.get("p90_s")},
        "trained_sps": {"predicted": chosen.trained_sps, "measured": turns.get("trained_sps")},
        "power_w": {"predicted": chosen.watts, "measured": turns.get("power_w")},
    }
    return out


def gaps() -> None:
    """Serving and training on one device: turns in one process, plain co-location, and MPS on a GPU, in alternation.

        PYTHONPATH=src:tests python benchmarks/training.py gaps --seconds 290 --json interleaved_cpu.json
        PYTHONPATH=src:tests python benchmarks/training.py gaps --device cuda --seconds 150 --json interleaved_gpu.json

    One network answers queries at a fixed rate while another trains. First both are measured alone, the training at
    two minibatches; the planner then chooses the minibatch that trains fastest within the latency bound. Then rounds
    follow, in each every arm once in a fresh process, in another order each time:

        interleaved   a step of training begins only while no query is answered (the planner's minibatch)
        colocated     two processes, shared by the scheduler; on a CPU each has as many threads as there are cores
        split         two processes with half of the threads each (CPU)
        mps           two processes under MPS (GPU)

    For each arm: p90 of the latency, rate of training and, where there is a meter, watts, as the geometric mean over
    the rounds with an interval; `kept` says whether the mean of the p90 lies within the bound. The planner's
    prediction stands beside what was measured, and the ratio of the rates of training beside plain co-location is
    paired by round.
    """
    parser = argparse.ArgumentParser(description=facts.summary(gaps))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no round after so long (290, 150)")
    parser.add_argument("--serve", default="lenet5")
    parser.add_argument("--train", default="resnet18_cifar")
    parser.add_argument("--rate", type=float, default=0.0, help="queries a second (20, 50)")
    parser.add_argument("--latency", type=float, default=0.0, help="bound of the p90 in seconds (0.15, 0.03)")
    parser.add_argument("--json", type=Path, default=Path("gaps.json"))
    args = parser.parse_args()
    args.rate = args.rate or RATE[args.device]
    bound = args.latency or BOUND_S[args.device]
    begun, limit = time.monotonic(), args.seconds or (150.0 if args.device == "cuda" else 290.0)
    known = page({}, met=False)
    with tempfile.TemporaryDirectory(prefix="edgescope-turns-") as place:
        plan = planned(args, bound, Path(place))
        if not plan.slices:
            raise SystemExit(str(plan))
        steps = sorted((each.trained for each in plan.slices), key=lambda side: side.batch)
        smallest = min(plan.slices, key=lambda each: each.trained.batch)
        served, chosen = smallest.served, plan.pick or smallest  # one that breaks the bound is measured, too
        trials = arms(args, chosen.trained.batch)
        rounds: list[dict[str, Row]] = []
        found: dict[str, Any] = {}
        spent = 0.0
        while not rounds or (len(rounds) < 20 and time.monotonic() - begun + spent < limit):
            start, number = time.monotonic(), len(rounds)
            names = list(trials)[number % len(trials) :] + list(trials)[: number % len(trials)]
            turn: dict[str, Row] = {}
            for name in names:
                turn[name] = figures(run(replace(trials[name], replicate=number), store=Path(place)))
                print(name, json.dumps(turn[name]), file=sys.stderr, flush=True)
            rounds.append(turn)
            spent = time.monotonic() - start
            found = {
                "device": args.device,
                "serve": args.serve,
                "train": args.train,
                "rate_qps": args.rate,
                "bound_s": bound,
                "cores": CORES,
                "planned_within_bound": plan.pick is not None,
                "alone": {
                    "serve_mean_s": served.seconds,
                    "serve_p90_s": served.tail,
                    "train": [{"batch": s.batch, "step_s": s.seconds, "power_w": s.watts} for s in steps],
                },
                "arms": summary(rounds, bound, chosen),
                "left_out": [n for n in BATCHES[args.device] if n not in {side.batch for side in steps}],
            }
            met = found["arms"]["interleaved"]["kept"] and len(rounds) > 1
            args.json.write_text(json.dumps(known | {"figures": found, "met": met}, indent=1) + "\n")
    print(json.dumps(found["arms"], indent=1))


if __name__ == "__main__":
    facts.chosen(watch, advice, gaps)
