"""Ground truth for predictors of training: seconds and joules a minibatch in many resource modes of this machine.

    OMP_NUM_THREADS=1 python benchmarks/training_modes.py --seconds 480 --json training_modes.json
    python benchmarks/training_modes.py --device cuda --seconds 300 --json training_modes.json

No setting of the machine changes; beside a GPU, an operator of the host has one thread. A mode is the number of CPUs
that the run may use (affinity of every thread and of the loader's workers), of loader workers, the batch and, on a
GPU, the share of its multiprocessors (MPS, where its daemon can be started). The file holds `figures`: `workloads`
(what each is), `noise` (how far two rounds of a mode lie apart), `skipped` (what could not be measured, and why) and
`rows`, one for each workload and mode:

    workload    lenet5, resnet18_cifar or mobilenet_v3_large_203class
    cpus        CPUs that the process and its workers may run on
    workers     processes that load minibatches; 0: the training process itself loads
    batch       samples in a minibatch
    sm_share    per cent of the GPU's threads that MPS grants; 100 without MPS; null on a CPU
    step_s      seconds of a minibatch, fetch included: the geometric mean of the rounds
    rounds_s    the same of each round, from windows minutes apart
    step_sem_s  standard error within a window, from the means of ten stretches; the mean of the rounds
    steps       minibatches in all windows
    parts_s     of step_s: fetch (what the device waited for), h2d, forward, backward, optimizer
    load_s      seconds that a worker, or the training process without workers, took to load one minibatch
    power_w     mean watts in the windows by the device's energy counter; null without a sensor
    energy_j    joules a minibatch by the same counter; null without a sensor
    at_s        when each round was measured, in seconds since that call of the script began

A process for each workload and share of the GPU starts at once and waits; then one mode at a time is measured, in
random order over all of them, and again in another order, until the time is over. So a drift of the machine is no
effect of a mode, and each mode's rounds show its noise. `--windows FILE` keeps every window; another call with the
same file, on the same machine, adds its rounds to those.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import IO, Any

from facts import page

from edgescope.wings.training.epochs import PARTS, anatomy

DATA = {
    "lenet5": {"count": 60_000, "width": 28, "height": 28, "packed": True, "grey": True},
    "resnet18_cifar": {"count": 50_000, "width": 32, "height": 32, "packed": True},
    "mobilenet_v3_large_203class": {"count": 2_000},
}
GRIDS: dict[str, dict[str, list[Any]]] = {
    "cpu": {"cpus": [1, 2], "workers": [0, 1, 2], "batch": [2, 4, 8, 16], "sm_share": [None]},
    "cuda": {"cpus": [1, 2, 4, 8], "workers": [0, 1, 2, 4], "batch": [16, 64], "sm_share": [25, 50, 100]},
}
MODES = {"cpu": 24, "cuda": 28}
WINDOW_S = {"cpu": 1.2, "cuda": 0.5}
FEWEST, LEAD, STRETCHES = 8, 2, 10
"""Steps in a window at least, steps before it beyond one a worker, and stretches for the standard error."""
LONGEST = 4.0
"""A window that holds too few steps may take so many times its length."""
START_S = 120.0
"""How long the processes may take to start."""
KNOBS = ("workload", "cpus", "workers", "batch", "sm_share")
Mode = dict[str, Any]


def modes(device: str, limit: int, seed: int) -> list[Mode]:
    """Return the modes of a device that this machine has, at most `limit`, in random order."""
    grid = dict(GRIDS[device])
    here = len(os.sched_getaffinity(0))
    grid["cpus"] = [n for n in grid["cpus"] if n <= here]
    found = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    random.Random(seed).shuffle(found)
    return found[:limit] if limit else found


# -- the process that measures -------------------------------------------------------------------------------


def measure(job: dict[str, Any]) -> None:
    """Print `ready`, then measure each mode that comes on standard input; print one row each as JSON."""
    import torch

    cpus = sorted(os.sched_getaffinity(0))
    print(json.dumps({"ready": _row(job, job["warm"], cpus, 0.0).get("failed", "")}), flush=True)
    for line in sys.stdin:
        row = _row(job, json.loads(line), cpus, WINDOW_S[job["device"]])
        if job["device"] == "cuda":
            torch.cuda.empty_cache()
        print(json.dumps(row), flush=True)


def _row(job: dict[str, Any], mode: Mode, cpus: list[int], seconds: float) -> dict[str, Any]:
    """Return the figures of one mode in one window."""
    import torch

    from edgescope.bench.parts import HERE
    from edgescope.options import read
    from edgescope.records import Trial
    from edgescope.wings.training.loop import Loop
    from edgescope.wings.training.workload import Training

    _confine(cpus[-mode["cpus"] :])
    torch.set_num_threads(mode["cpus"] if job["device"] == "cpu" else 1)
    options = {
        "images": job["images"],
        "num_workers": mode["workers"],
        "persistent_workers": mode["workers"] > 0,
    }
    trial = Trial(
        model=job["workload"],
        workload="training",
        device=job["device"],
        batch=mode["batch"],
        workload_options=options,
        options={"threads": mode["cpus"]} if job["device"] == "cpu" else {},
    )
    row: dict[str, Any] = {"workload": job["workload"], **mode}
    try:
        loop = Loop(HERE.model(trial), trial, read("training", options, Training.OPTIONS))
        try:
            return row | _window(loop, seconds)
        finally:
            loop.close()
    except Exception as error:  # one mode that fails must not lose the others
        return row | {"failed": f"{type(error).__name__}: {error}"[:300]}


def _confine(cpus: Iterable[int]) -> None:
    """Let every thread of this process run on these CPUs alone; threads that run already would keep their own."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


def _window(loop: Any, seconds: float) -> dict[str, Any]:
    """Return the figures of one window of steps."""
    from edgescope.wings.training.loop import LOAD

    for _ in range(LEAD + int(loop.options["num_workers"])):
        loop.step()
    before, start = len(loop.loads), time.monotonic()
    edges = [start]
    while (wall := edges[-1] - start) < seconds or (len(edges) <= FEWEST and wall < LONGEST * seconds):
        if loop.step() is None:
            break
        edges.append(time.monotonic())
    wall, steps = edges[-1] - start, len(edges) - 1
    spent = anatomy(loop.spans(), round(start * 1e9), round(edges[-1] * 1e9)).parts
    lengths = [b - a for a, b in itertools.pairwise(edges)]
    size = max(1, steps // STRETCHES)
    means = [statistics.fmean(lengths[i : i + size]) for i in range(0, steps // size * size, size)]
    begun, ended = (loop.loads[before:, LOAD.index(name)] for name in ("start_ns", "end_ns"))
    return {
        "step_s": wall / steps if steps else None,
        "step_sem_s": statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else None,
        "steps": steps,
        "parts_s": {name: spent[name] / steps for name in PARTS} if steps else {},
        "load_s": float((ended - begun).mean()) * 1e-9 if len(begun) else None,
        "window": [start, edges[-1]],
    }


# -- the energy counter --------------------------------------------------------------------------------------


class Meter:
    """Notes when the GPU's energy counter moves, which it does every few tens of milliseconds."""

    def __init__(self) -> None:
        self.ticks: list[tuple[float, float]] = []
        """Seconds of the monotonic clock, joules."""
        self.absent = ""
        try:
            import pynvml

            pynvml.nvmlInit()
            board = pynvml.nvmlDeviceGetHandleByIndex(0)
            pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
        except Exception as error:  # no NVML, no counter: the rows say null
            self.absent = f"no energy counter: {error}"
            return
        self.read = lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(board) / 1e3
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            now = self.read()
            if not self.ticks or now != self.ticks[-1][1]:
                self.ticks.append((time.monotonic(), now))
            time.sleep(0.002)

    def joules(self, start: float, end: float) -> float | None:
        """Return the joules between two moments, the counter's steps joined by lines."""
        if self.absent:
            return None
        limit = time.monotonic() + 0.5
        while self.ticks[-1][0] < end and time.monotonic() < limit:
            time.sleep(0.005)
        ticks = list(self.ticks)
        return self._at(ticks, end) - self._at(ticks, start)

    @staticmethod
    def _at(ticks: list[tuple[float, float]], moment: float) -> float:
        for (a, low), (b, high) in itertools.pairwise(reversed(ticks)):
            if b <= moment:
                return high + (low - high) * min(1.0, (moment - b) / (a - b))
        return ticks[-1][1]


# -- the script ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def mps(folder: Path, wanted: bool) -> Iterator[dict[str, str] | None]:
    """Start the MPS daemon if it is wanted; yield the environment of its clients, or None without a daemon."""
    pipe = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}
    for name in pipe.values():
        Path(name).mkdir(parents=True, exist_ok=True)
    words, given = "nvidia-cuda-mps-control", os.environ | pipe
    try:
        if not wanted:
            raise OSError("there is no GPU in question")
        subprocess.run([words, "-d"], env=given, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no MPS: {error}", file=sys.stderr)
        yield None
        return
    try:
        yield pipe
    finally:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [words], input="quit\n", text=True, env=given, timeout=20, capture_output=True, check=False
            )


class Child:
    """The process that measures one workload at one share of the GPU."""

    def __init__(self, job: dict[str, Any], client: dict[str, str] | None) -> None:
        given = os.environ | (client or {})
        if client and job["share"] != 100:
            given["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(job["share"])
        words = [sys.executable, __file__, "--job", json.dumps(job)]
        self.process = subprocess.Popen(
            words, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = threading.Event()
        self.refused = ""
        threading.Thread(target=self._begin, daemon=True).start()

    def _begin(self) -> None:
        """Wait until the process can measure."""
        self.refused = self._answer().get("ready", "the process ended")
        self.ready.set()

    def _answer(self) -> dict[str, Any]:
        out: IO[str] | None = self.process.stdout
        assert out is not None
        found = next((line for line in out if line.startswith("{")), "{}")
        answer: dict[str, Any] = json.loads(found)
        return answer

    def row(self, mode: Mode) -> dict[str, Any]:
        """Return the row of a mode; `failed` in it if the process has ended."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(mode) + "\n")
            self.process.stdin.flush()
        except OSError:
            return mode | {"failed": "the process has ended"}
        return self._answer() or mode | {"failed": "the process has ended"}

    def end(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def children(args: argparse.Namespace, folder: Path, client: dict[str, str] | None) -> dict[Any, Child]:
    """Start a process for each workload and share of the GPU; return those that can measure."""
    shares = {mode["sm_share"] for mode in args.chosen}
    found = {}
    for workload, share in itertools.product(args.workloads, sorted(shares, key=str)):
        job = {"workload": workload, "images": str(folder / workload), "device": args.device, "share": share}
        first = next(mode for mode in args.chosen if mode["sm_share"] == share)
        job["warm"] = first | {"workers": 0, "cpus": len(os.sched_getaffinity(0))}
        found[workload, share] = Child(job, client)
    end = time.monotonic() + START_S
    for child in found.values():
        child.ready.wait(max(0.0, end - time.monotonic()))
    return found


def measured(
    args: argparse.Namespace, started: dict[Any, Child], begun: float, earlier: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each window, round after round, until the time is over; a round that was cut short goes on."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > max(mode["cpus"] for mode in args.chosen):
        os.sched_setaffinity(0, cpus[:1])  # the modes take theirs from the other end
    meter = Meter()
    if meter.absent:
        print(meter.absent, file=sys.stderr)
    done = Counter(map(_key, earlier))
    cells = {_key(cell): cell for cell in ({"workload": w} | m for w in args.workloads for m in args.chosen)}
    for number in itertools.count():
        fewest = min(done[key] for key in cells)
        due = sorted((key for key in cells if done[key] == fewest), key=str)
        random.Random(1000 + args.seed + fewest).shuffle(due)
        for key in due:
            done[key] += 1
            workload = cells[key]["workload"]
            mode = {knob: cells[key][knob] for knob in KNOBS[1:]}
            now = time.monotonic()
            if now - begun > args.seconds:
                return
            child = started[workload, mode["sm_share"]]
            if not child.ready.is_set() or child.refused:
                if number == 0:
                    yield {"workload": workload} | mode | {"failed": child.refused or "it did not start"}
                continue
            row = child.row(mode)
            if window := row.pop("window", None):
                joules = meter.joules(*window)
                row["power_w"] = None if joules is None else joules / (window[1] - window[0])
            yield {"workload": workload} | row | {"at_s": round(now - begun, 1)}


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells a workload's mode from every other."""
    return tuple(row[knob] for knob in KNOBS)


def kept(path: Path | None) -> list[dict[str, Any]]:
    """Return the windows that earlier calls kept."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def keep(path: Path | None, row: dict[str, Any]) -> None:
    """Add a window to those that are kept."""
    if path:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def joined(windows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each workload and mode, from all of its windows."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in windows:
        groups.setdefault(_key(row), []).append(row)
    out = []
    for key, rows in groups.items():
        step = statistics.geometric_mean(row["step_s"] for row in rows)
        power = _mean(rows, "power_w")
        out.append(
            dict(zip(KNOBS, key, strict=True))
            | {
                "step_s": step,
                "rounds_s": [row["step_s"] for row in rows],
                "step_sem_s": _mean(rows, "step_sem_s"),
                "steps": sum(row["steps"] for row in rows),
                "parts_s": {p: statistics.fmean(row["parts_s"][p] for row in rows) for p in PARTS},
                "load_s": _mean(rows, "load_s"),
                "power_w": power,
                "rounds_w": [row["power_w"] for row in rows],
                "energy_j": None if power is None else power * step,
                "at_s": [row["at_s"] for row in rows],
            }
        )
    return out


def _mean(rows: list[dict[str, Any]], name: str) -> float | None:
    found = [row[name] for row in rows if row[name] is not None]
    return statistics.fmean(found) if found else None


def noise(rows: list[dict[str, Any]], name: str) -> dict[str, float] | None:
    """Return how far rounds of one mode lie apart; None if no mode has two.

    `sd` is the standard deviation of the logarithm of one round, pooled over the modes; `floor` the mean absolute
    error that the truth itself would have as a prediction of the mean of the rounds, if the noise is normal.
    """
    logs = [[math.log(x) for x in row[name] if x] for row in rows]
    several = [each for each in logs if len(each) > 1]
    if not several:
        return None
    free = sum(len(each) - 1 for each in several)
    sd = math.sqrt(sum((x - statistics.fmean(each)) ** 2 for each in several for x in each) / free)
    gaps = sorted(max(each) - min(each) for each in several)
    floor = math.sqrt(2 / math.pi) * sd * statistics.fmean(len(each) ** -0.5 for each in several)
    return {"modes": len(several), "sd": sd, "median_gap": statistics.median(gaps), "floor": floor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=300.0, help="for everything, the start included")
    parser.add_argument(
        "--modes", type=int, default=0, help="at most so many modes, drawn at random (24, 28)"
    )
    parser.add_argument("--workloads", type=lambda text: text.split(","), default=list(DATA))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--windows", type=Path, default=None, help="keep each window here, and go on from it")
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        measure(json.loads(args.job))
        return
    from edgescope.models.image import photos

    begun = time.monotonic()
    args.page = page({}, met=False)  # the facts are read before anything is measured
    out = args.json or Path(f"{'gpu' if args.device == 'cuda' else 'cpu'}.json")
    windows = kept(args.windows)
    skipped: list[str] = []
    args.chosen = modes(args.device, args.modes or MODES[args.device], args.seed)
    cuda = args.device == "cuda"
    with tempfile.TemporaryDirectory(prefix="edgescope-modes-") as place, mps(Path(place), cuda) as client:
        folder = Path(place)
        with ProcessPoolExecutor() as pool:
            recipes = [photos.Recipe(**DATA[workload]) for workload in args.workloads]
            list(pool.map(photos.write_set, [folder / workload for workload in args.workloads], recipes))
        if cuda and client is None:
            skipped.append("shares of the GPU below 100 %: the MPS daemon did not start")
            args.chosen = [mode for mode in args.chosen if mode["sm_share"] == 100]
        started = children(args, folder, client)
        print(f"{len(started)} processes after {time.monotonic() - begun:.0f} s", file=sys.stderr)
        try:
            for row in measured(args, started, begun, windows):
                print(json.dumps(row), file=sys.stderr)
                if row.get("failed") or not row.get("step_s"):
                    skipped.append(json.dumps(row))
                else:
                    windows.append(row)
                    keep(args.windows, row)
                if len(windows) % 20 == 0:
                    _write(out, args, windows, skipped)
        finally:
            for child in started.values():
                child.end()
            _write(out, args, windows, skipped)
    spent = time.monotonic() - begun
    print(json.dumps({"windows": len(windows), "skipped": len(skipped), "seconds": spent}))


def _write(out: Path, args: argparse.Namespace, windows: list[dict[str, Any]], skipped: list[str]) -> None:
    """Write what has been measured so far."""
    rows = joined(windows)
    figures = {
        "device": args.device,
        "workloads": {name: DATA[name] for name in args.workloads},
        "modes": len({_key(r)[1:] for r in rows}),
        "noise": {
            name: {
                quantity: noise([r for r in rows if r["workload"] == name], key)
                for quantity, key in (("time", "rounds_s"), ("power", "rounds_w"))
            }
            for name in args.workloads
        },
        "rows": rows,
        "skipped": skipped,
    }
    least = 60 if args.device == "cuda" else 24
    known = args.page | {"figures": figures, "met": len(rows) >= least}
    out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
