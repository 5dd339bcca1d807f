"""What pairs of processes that take turns say of a speed-up, and what could mislead them.

    python benchmarks/pairs.py COMMAND --help

The commands: how often a difference is seen where there is none (aa), forked processes beside started ones (forks,
kinds), the first turns of a process (first_blocks), the length of a turn (turn_length), and an engine's threads that
still spin in the other's turn (spinning).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import facts
import numpy as np
import peers_turn
from facts import publish

from edgescope import bench, cache
from edgescope.analysis.cells import alternation
from edgescope.bench import SAMPLER_HZ
from edgescope.bench import alternation as turns
from edgescope.bench.worker import WARM_S, until_asleep
from edgescope.devices import manifest
from edgescope.isolate import fresh, warden
from edgescope.isolate.forks import Forks
from edgescope.isolate.persistent import PersistentChild
from edgescope.isolate.worker import Placement, WorkerProcess
from edgescope.models import zoo
from edgescope.records import Result, Trial
from edgescope.stats import Interval, Judgement, judge, paired_log_ratio
from edgescope.stats.alternation import BASE, OURS, Turns, alternation_ratio
from edgescope.wings.optimize import verb as optimize


def judged(pairs: list[Turns]) -> tuple[Interval, Judgement]:
    """Return the ratio of these pairs with its interval, and the judgement on it."""
    sure, likely = (alternation_ratio(pairs, level) for level in (0.95, 0.90))
    return sure, judge(sure, likely, higher_is_better=True)


def aa() -> None:
    """How often does this tool see a difference where there is none, on this machine? 40 real A/A pairs.

    Both arms are the same trial (ONNX Runtime, MobileNetV2, batch 1) in fresh processes, in pairs that take turns.
    Reported: the judgement over all pairs, over each ten of them, and the noise floor (half-width of the ratio's
    interval).

        python benchmarks/pairs.py aa [--pairs 40]
    """
    parser = argparse.ArgumentParser(description=facts.text(aa))
    parser.add_argument("--pairs", type=int, default=40)
    args = parser.parse_args()
    trial = Trial(model="mobilenet_v2", backend="onnxruntime", min_s=1.0, max_s=1.0, turn_s=0.1)
    fresh.prepare(trial)
    found: list[Turns] = []
    with PersistentChild() as leader:
        for number in range(args.pairs):
            a, b = leader.pair((replace(trial, replicate=number),) * 2, alternation.CONFIRMING)
            found.append(alternation.turns(b, a))
            if not found[-1]:
                raise SystemExit(f"{b.status.value}: {a.reason or b.reason}")
            print(number, math.exp(found[-1].ratio), file=sys.stderr, flush=True)
    tens = [judged(found[i : i + 10])[1].value for i in range(0, args.pairs - 9, 10)]
    ratio, verdict = judged(found)
    figures: dict[str, object] = {
        "pairs": args.pairs,
        "ratios": [math.exp(p.ratio) for p in found],
        "judgement": verdict.value,
        "ratio": {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi},
        "judgements_of_ten_pairs": tens,
        "false_verdicts_of_ten_pairs": sum(v in ("FASTER", "SLOWER") for v in tens),
        "noise_floor": (ratio.hi - ratio.lo) / 2,
    }
    publish("pairs/aa", figures, met=verdict.value not in ("FASTER", "SLOWER"))


class Chosen(Forks):
    """Forks the worker of the sides in `forked`, and starts the other's."""

    forked: tuple[int, ...] = ()

    def worker(self, number: int, trial: Trial) -> WorkerProcess:
        """Return the worker of a side."""
        return super().worker(number, trial) if number in self.forked else WorkerProcess(number, Placement())


def forked_measured(
    trial: Trial, source: Chosen, forked: tuple[int, ...]
) -> tuple[tuple[Result, Result], float]:
    """Return a pair of one trial, and the seconds that it took."""
    devices = bench.present()
    machine = manifest.machine(devices)
    source.forked = forked
    begun = time.monotonic()
    ends = turns.measure(
        (Result.begun(trial, machine), Result.begun(trial, machine)), devices, SAMPLER_HZ, forks=source
    )
    took = time.monotonic() - begun
    if any((end.process == "forked") != (side in forked) for side, end in enumerate(ends)):
        raise SystemExit(f"not forked as asked: {ends[0].reason or ends[1].reason or source.pids}")
    return ends, took


def ratio_of(count: int, pair: Callable[[int, tuple[int, ...]], tuple[Result, Result]]) -> dict[str, Any]:
    """Return how many times longer a forked process takes than a started one, from `count` pairs."""
    found: list[Turns] = []
    for number in range(count):
        side = number % 2
        ends = pair(number, (side,))
        found.append(alternation.turns(ends[1 - side], ends[side]))
        print(number, f"{math.exp(found[-1].ratio):.3f}", file=sys.stderr, flush=True)
    ratio = alternation_ratio(found)
    return {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "pairs": count}


def forks() -> None:
    """Measure a forked process against a started one of the same program, in turns, and tell what a fork saves.

    Both sides of a pair are the same trial (batch 1; PyTorch eager unless it is said) and take turns. The process of
    one is started, that of the other forked, and they change places from pair to pair. Reported: the ratio of their
    times with its interval, which should hold 1, and how long pairs of two started and of two forked processes take,
    alternating.

        python benchmarks/pairs.py forks [--pairs 16] [--device cuda] [--model resnet50] [--backend openvino ...]
    """
    parser = argparse.ArgumentParser(description=facts.summary(forks))
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--backend", default="torch_eager")
    parser.add_argument("--precision", default="fp32")
    args = parser.parse_args()
    warden.adopt()
    window = {"turn_s": 0.1, "min_s": 1.0, "max_s": 1.0}
    of = {name: getattr(args, name) for name in ("model", "backend", "device", "precision")}
    trial = Trial(**of, **window)
    if failed := fresh.prepare(trial):
        raise SystemExit(str(failed.reason))
    seconds: dict[str, list[float]] = {"started": [], "forked": []}
    with Chosen() as source:
        forked_measured(trial, source, ())
        forked_measured(trial, source, (0, 1))  # the server has its imports from now on
        ratio = ratio_of(
            args.pairs, lambda n, forked: forked_measured(replace(trial, replicate=n), source, forked)[0]
        )
        for _ in range(max(3, args.pairs // 4)):
            for name, forked in (("started", ()), ("forked", (0, 1))):
                seconds[name].append(forked_measured(trial, source, forked)[1])
    figures = {
        "trial": f"{trial.model} {trial.label}",
        "forked_over_started": ratio,
        "pair_s": seconds,
        "median_pair_s": {name: statistics.median(taken) for name, taken in seconds.items()},
    }
    said = [value for value in (args.backend, args.device) if value not in ("torch_eager", "cpu")]
    publish("_".join(["pairs/forks", *said]), figures, met=ratio["lo"] <= 1 <= ratio["hi"])


CLOSE = 0.01


def time_of(side: Result, *, first: bool) -> float:
    """Return the geometric mean of the times of a side's first block, or of its others."""
    assert side.alternation is not None
    logs = [math.log(turn.time_s) for turn in side.alternation.turns if (turn.block == 0) is first]
    return math.exp(sum(logs) / len(logs))


def first_blocks() -> None:
    """Whether the first turns of a pair tell the same as its later ones: whether the sides are warm by then.

    Pairs of PyTorch eager fp32 and a candidate run as `edgescope optimize` runs them. Reported: the speed-up of a
    pair's first block over that of its other blocks, over pairs, and what that does to a pair's speed-up, which is of
    all blocks. Target: the latter is within CLOSE of 1.

        python benchmarks/pairs.py first_blocks [--pairs 24]     2 minutes
        python benchmarks/pairs.py first_blocks --device cuda --model resnet50 --backend torch_eager --precision fp16
    """
    parser = argparse.ArgumentParser(description=facts.summary(first_blocks))
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="openvino")
    parser.add_argument("--precision", default="int8")
    args = parser.parse_args()
    base = replace(optimize.base(args.model, {"device": args.device}), backend="torch_eager")
    ours = replace(base, backend=args.backend, precision=args.precision)
    for trial in (base, ours):
        if (failed := fresh.prepare(trial)) is not None:
            raise SystemExit(str(failed.reason))
    early, later, blocks = list[float](), list[float](), 0
    with PersistentChild() as leader:
        for number in range(args.pairs):
            sides = replace(base, replicate=number), replace(ours, replicate=number)
            theirs, mine = leader.pair(sides, alternation.CONFIRMING)
            if theirs.alternation is None or mine.alternation is None:
                raise SystemExit(str(theirs.reason or mine.reason))
            early.append(time_of(theirs, first=True) / time_of(mine, first=True))
            later.append(time_of(theirs, first=False) / time_of(mine, first=False))
            blocks += 1 + max(turn.block for turn in mine.alternation.turns)
            print(number, f"{early[-1]:.3f} {later[-1]:.3f}", file=sys.stderr, flush=True)
    ratio, share = paired_log_ratio(early, later), args.pairs / blocks
    figures = {
        "model": args.model,
        "baseline": base.label,
        "candidate": ours.label,
        "warm_s": WARM_S,
        "pairs": args.pairs,
        "blocks": blocks,
        "first_over_later": {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi},
        "on_a_pair": {"value": ratio.value**share, "lo": ratio.lo**share, "hi": ratio.hi**share},
    }
    name = "pairs/first_blocks" + ("" if args.device == "cpu" else f"_{args.device}")
    publish(name, figures, met=abs(math.log(ratio.value)) * share <= CLOSE)


LENGTHS_S = (0.05, 0.1, 0.2)
BASELINE = Trial(model="efficientnet_lite0", backend="torch_eager", min_s=4.0, max_s=4.0)
CANDIDATE = replace(BASELINE, backend="openvino", precision="int8", options={"qdq": "s8s8"})


def error_rate(pair: tuple[Result, Result]) -> float:
    """Return the standard error of the mean of the blocks' log ratios, times the root of the seconds they took."""
    taken = alternation.turns(pair[1], pair[0])
    base, ours = (np.reshape(taken.of(side), (-1, 2)).mean(axis=1) for side in (BASE, OURS))
    logs = list(base - ours)
    turns = [turn for result in pair if result.alternation for turn in result.alternation.turns]
    seconds = (max(t.stop_ns for t in turns) - min(t.start_ns for t in turns)) * 1e-9
    return statistics.stdev(logs) / math.sqrt(len(logs)) * math.sqrt(seconds)


def turn_length() -> None:
    """How long should a turn be? Pairs of long runs with turns of 50, 100 and 200 ms, alternating.

    For each length it gives the standard error that the blocks of a pair leave, times the root of the seconds that
    its turns took with the pauses between them: the smaller it is, the narrower an interval after the same time. What
    differs between processes is not in it.

        python benchmarks/pairs.py turn_length [--rounds 8]
    """
    parser = argparse.ArgumentParser(description=facts.summary(turn_length))
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    for trial in (BASELINE, CANDIDATE):
        if failed := fresh.prepare(trial):
            raise SystemExit(str(failed.reason))
    rates: dict[str, list[float]] = {f"{length:g}": [] for length in LENGTHS_S}
    with PersistentChild() as leader:
        for number in range(args.rounds):
            for length in LENGTHS_S:
                sides = (replace(t, turn_s=length, replicate=number) for t in (BASELINE, CANDIDATE))
                rates[f"{length:g}"].append(error_rate(leader.pair(tuple(sides), alternation.CONFIRMING)))
            print(number, {n: f"{r[-1]:.3f}" for n, r in rates.items()}, file=sys.stderr, flush=True)
    figures = {
        "rates": rates,
        "rms": {name: math.sqrt(statistics.fmean(r * r for r in found)) for name, found in rates.items()},
    }
    publish("pairs/turn_length", figures, met=figures["rms"]["0.05"] <= min(figures["rms"].values()))


KINDS = {
    "forked": {"turn_s": 0.05, "min_s": 0.7, "max_s": 0.7},
    "started": {"turn_s": 0.05, "min_s": 0.7, "max_s": 0.7},
    "long": {"turn_s": 0.1, "min_s": 5.0, "max_s": 5.0},
}


def kinds_pair(leader: PersistentChild, kind: str, number: int) -> Turns:
    """Return the turns of one pair of a kind."""
    sides = (replace(trial, **KINDS[kind], replicate=number) for trial in (BASELINE, CANDIDATE))
    first, second = leader.pair(tuple(sides), alternation.CONFIRMING)
    if first.process != ("forked" if kind == "forked" else "fresh"):
        raise SystemExit(f"{kind}: {first.process} {first.reason or second.reason}")
    return alternation.turns(second, first)


def started(kind: str, number: int) -> Turns:
    """Return the turns of a leader's first pair, whose processes are started."""
    with PersistentChild() as leader:
        return kinds_pair(leader, kind, number)


def kinds_measured(rounds: int, each: int) -> dict[str, list[Turns]]:
    """Return the pairs of every kind, one of each a round, in an order that changes."""
    found: dict[str, list[Turns]] = {kind: [] for kind in KINDS}
    kinds, leader = [*KINDS], PersistentChild()
    for number in range(rounds):
        if number % each == 0:
            leader.close()
            kinds_pair(leader, "started", number)  # tells what to import; counts for nothing
        kinds = [*kinds[1:], kinds[0]]
        for kind in kinds:
            found[kind].append(
                kinds_pair(leader, kind, number) if kind == "forked" else started(kind, number)
            )
        told = {kind: f"{math.exp(pairs[-1].ratio):.2f}" for kind, pairs in found.items()}
        print(number, told, file=sys.stderr, flush=True)
    leader.close()
    return found


def figures(found: dict[str, list[Turns]], each: int) -> dict[str, Any]:
    """Return what is published of the pairs."""
    means = {kind: [p.ratio for p in pairs] for kind, pairs in found.items()}
    logs = {kind: [math.exp(mean) for mean in of] for kind, of in means.items()}
    out: dict[str, Any] = {"servers_of": each, "speedups": logs, "kinds": {}}
    for kind, pairs in found.items():
        ratio = alternation_ratio(pairs)
        groups = [means[kind][i : i + each] for i in range(0, len(pairs), each)]
        within = [statistics.variance(group) for group in groups if len(group) > 1]
        row = {"speedup": {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi}}
        row |= {"sd": statistics.stdev(means[kind]), "sd_within": math.sqrt(statistics.fmean(within))}
        if kind != "started":
            beside = paired_log_ratio(logs[kind], logs["started"])
            row["over_started"] = {"value": beside.value, "lo": beside.lo, "hi": beside.hi}
        out["kinds"][kind] = row
    return out


def kinds() -> None:
    """Does the kind of pair change the speed-up that it gives, or how much pairs differ? Three kinds, alternating.

    `forked`: as `optimize` measures from its second pair on, the baseline's process forked, turns of 0.05 s.
    `started`: the same turns, both processes started. `long`: both started, turns of 0.1 s for 5 s, as demo_runs.py
    once judged answers. The fork server is a new one after every --server rounds. Reported: each kind's speed-up with
    its interval, its ratio to the started kind's, round by round, and the standard deviation of the pairs' log
    ratios: all, and within one server.

        python benchmarks/pairs.py kinds [--rounds 20] [--server 5]
    """
    parser = argparse.ArgumentParser(description=facts.summary(kinds))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--server", type=int, default=5, help="rounds that one fork server serves")
    args = parser.parse_args()
    for trial in (BASELINE, CANDIDATE):
        if failed := fresh.prepare(trial):
            raise SystemExit(str(failed.reason))
    page = figures(kinds_measured(args.rounds, args.server), args.server)
    beside = page["kinds"]["forked"]["over_started"]
    publish("pairs/kinds", page, met=beside["lo"] <= 1 <= beside["hi"])


MODEL, TURN_S, SPIN_WARM_S = "efficientnet_lite0", 0.05, 0.5
ENGINES = ("onnxruntime", "openvino", "torch")


def run_of(arm: str) -> peers_turn.Run:
    """Return one engine's call of the network in fp32."""
    if arm == "torch":
        return peers_turn.network()
    file = str(zoo.get(MODEL).onnx(cache.folder("artifacts")))
    return (
        peers_turn.openvino(file)
        if arm == "openvino"
        else peers_turn.onnxruntime(file, ["CPUExecutionProvider"])
    )


class Side:
    """A process of this script that has its turn when it is told to."""

    def __init__(self, arm: str) -> None:
        command = [sys.executable, __file__, "spinning", "--arm", arm]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.turn(SPIN_WARM_S)

    def turn(self, seconds: float) -> float:
        """Return the mean time of a call in a turn."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        """Let it end."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def spin_pair(engine: str, count: int) -> tuple[Turns, float]:
    """Return PyTorch's turns, unwaited (the baseline) and waited for, and the median wait in seconds."""
    eager, other = Side("torch"), Side(engine)
    waits, order, times = list[float](), list[int](), list[float]()
    for number in range(2 * count):
        waited = number % 4 in (0, 3)
        other.turn(TURN_S)
        if waited:
            waits.append(until_asleep(other.process.pid))
        order.append(OURS if waited else BASE)
        times.append(math.log(eager.turn(TURN_S)))
        until_asleep(eager.process.pid)
    eager.end()
    other.end()
    return Turns(order, times), statistics.median(waits)


def spinning() -> None:
    """What an engine's threads, which spin on after its last answer, cost the other side of a pair that does not wait.

    Two processes take turns: PyTorch eager, and an engine. Before every second turn of PyTorch the engine's threads
    are waited for (edgescope.bench.worker), before the others they are not. `longer` is how many times as long
    PyTorch takes where they are not, with the interval over pairs of processes; `waited_s` is what the wait takes.
    `met` is whether ONNX Runtime's threads surely cost it time.

        python benchmarks/pairs.py spinning [--pairs 5] [--blocks 16]     3 minutes
    """
    parser = argparse.ArgumentParser(description=facts.summary(spinning))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--arm", choices=ENGINES)
    args = parser.parse_args()
    if args.arm:
        run, batch = run_of(args.arm), np.zeros((1, 3, 224, 224), np.float32)
        for line in sys.stdin:
            print(peers_turn.mean_s(run, [batch], float(line)), flush=True)
        return
    figures: dict[str, Any] = {}
    for engine in ENGINES:
        found = [spin_pair(engine, args.blocks) for _ in range(args.pairs)]
        ratio = alternation_ratio([turns for turns, _ in found])
        ends = {"lo": ratio.lo, "hi": ratio.hi} if ratio.reliable else {"absent": ratio.note}
        figures[engine] = {
            "longer": {"value": ratio.value, **ends, "n": ratio.n},
            "waited_s": statistics.median(wait for _, wait in found),
        }
        print(engine, figures[engine], file=sys.stderr, flush=True)
    publish("pairs/spinning", figures, met=figures["onnxruntime"]["longer"].get("lo", 0.0) > 1)


if __name__ == "__main__":
    facts.chosen(aa, forks, first_blocks, turn_length, kinds, spinning)
