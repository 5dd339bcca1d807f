"""What the sampler costs: on a CPU, and beside an NVIDIA GPU.

python benchmarks/sampler.py cpu
python benchmarks/sampler.py gpu
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import facts
import numpy as np
import pynvml
from facts import publish, write

from edgescope.analysis.run.energy_window import energies
from edgescope.devices import manifest
from edgescope.devices.base import SourceSpec
from edgescope.devices.cpu.device import CpuDevice
from edgescope.records import Json, Measured
from edgescope.stats import paired_log_ratio
from edgescope.telemetry.sampler import Sampler
from edgescope.wings.nvidia import METRICS, GpmSource, NvidiaDevice

COST_HZ, COST_SHARE_LIMIT, RATIO_LIMIT, FIRST_LOOK = 10.0, 0.005, 0.01, 20


class Workload:
    """One int32 matrix product of about 5 ms: numpy does it in one thread, which BLAS would not."""

    def __init__(self, target_s: float = 0.005) -> None:
        n = 128
        for _ in range(6):
            self.a = np.random.default_rng(0).integers(-9, 9, (n, n), dtype=np.int32)
            self.out = np.empty_like(self.a)
            n = max(64, round(n * (target_s / statistics.median(self.latencies(0.3))) ** (1 / 3)))

    def latencies(self, seconds: float) -> list[float]:
        """Seconds of each product, one after the other, for `seconds`."""
        out, end = [], time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            np.matmul(self.a, self.a, out=self.out)
            out.append(time.perf_counter() - start)
        return out


def specs() -> list:
    """Every source of this machine's processor, and of its GPU where there is one."""
    devices = (CpuDevice(), NvidiaDevice())
    return [spec for d in devices if not d.present() for spec in d.sources(os.getpid())]


def share(seconds: float, workload: Workload | None, folder: Path) -> dict[str, Json]:
    """The sampler's cost over `seconds`, beside the workload or beside sleep."""
    with Sampler(specs(), COST_HZ, folder) as sampler:
        workload.latencies(seconds) if workload else time.sleep(seconds)
    return sampler.cost()


def block(watcher: int, watched: bool, workload: Workload, seconds: float) -> float:
    """The workload's p50 over one block; without means that the watcher is stopped, which costs nothing."""
    os.kill(watcher, signal.SIGCONT if watched else signal.SIGSTOP)
    workload.latencies(seconds / 10)
    return statistics.median(workload.latencies(seconds))


def ratio(workload: Workload, seconds: float, limit_s: float, folder: Path) -> dict[str, Json]:
    """Pairs of blocks until the 90 % interval is inside 1 +- RATIO_LIMIT, or outside, or the time is up."""
    rng, end = random.Random(0), time.monotonic() + limit_s
    with_s: list[float] = []
    without_s: list[float] = []
    look, verdict = FIRST_LOOK, "inconclusive"
    with Sampler(specs(), COST_HZ, folder) as sampler:
        while verdict == "inconclusive" and time.monotonic() < end:
            order = [True, False]
            rng.shuffle(order)
            for watched in order:
                (with_s if watched else without_s).append(block(sampler.pid, watched, workload, seconds))
            if len(with_s) == look:
                look *= 2
                verdict = conclude(with_s, without_s)
                print(f"{len(with_s)} pairs: {verdict}", file=sys.stderr)
        os.kill(sampler.pid, signal.SIGCONT)
    if not sampler.cost()["alive"]:
        raise SystemExit(f"the sampler {sampler.cost()['end']}: nothing was compared")
    got = paired_log_ratio(with_s, without_s, level=0.90)
    return {
        "p50_ratio": {"value": got.value, "lo": got.lo, "hi": got.hi, "n": got.n, "unit": "1", "level": 0.90},
        "verdict": verdict,
        "p50_s": {"with": with_s, "without": without_s},
    }


def conclude(with_s: list[float], without_s: list[float]) -> str:
    """`inside`, `outside` or `inconclusive`."""
    got = paired_log_ratio(with_s, without_s, level=0.90)
    if got.lo > 1 - RATIO_LIMIT and got.hi < 1 + RATIO_LIMIT:
        return "inside"
    return "outside" if got.lo > 1 + RATIO_LIMIT or got.hi < 1 - RATIO_LIMIT else "inconclusive"


def cpu() -> int:
    """What watching costs: the sampler's own CPU time, and what it does to the latency it watches.

    Two questions. How much of one core does the sampler use at 10 Hz, beside an idle machine and a busy one? And
    does a steady workload of about 5 ms get slower with it? Both are pinned to one core, the worst case. Blocks of
    half a second, with the sampler running and with it stopped (SIGSTOP), in random order within each pair; the
    ratio of their p50 (with / without) with its 90 % interval must lie inside 1 +- 0.01. The interval is looked at
    only after 20, 40, 80 ... pairs, so that stopping at a lucky moment stays rare.

        python benchmarks/sampler.py cpu     # 2 to 15 minutes; writes published/sampler.json
    """
    parser = argparse.ArgumentParser(description=facts.text(cpu))
    parser.add_argument("--share-s", type=float, default=40, help="seconds of each cost measurement")
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("--limit-s", type=float, default=780, help="longest the paired part may take")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    workload = Workload()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = {
            "beside_idle": share(args.share_s, None, folder),
            "beside_load": share(args.share_s, workload, folder),
        }
        pairs = ratio(workload, args.block_s, args.limit_s, folder)
    within = all(c["alive"] and c["cpu_share"] <= COST_SHARE_LIMIT for c in costs.values())
    passed = within and pairs["verdict"] == "inside"
    figures = {
        "hz": COST_HZ,
        "cost": costs,
        **pairs,
        "workload": f"int32 matrix product of order {len(workload.a)}; it and the sampler on one core",
        "limits": {"cpu_share": COST_SHARE_LIMIT, "p50_ratio": [1 - RATIO_LIMIT, 1 + RATIO_LIMIT]},
    }
    publish("sampler/cpu", figures, met=passed)
    for place, cost in costs.items():
        print(f"{place}: {cost['cpu_share']:.2%} of one core, {cost['missed_ticks']} ticks missed")
    r = pairs["p50_ratio"]
    print(f"p50 ratio {r['value']:.4f} [{r['lo']:.4f}, {r['hi']:.4f}], {r['n']} pairs: {pairs['verdict']}")
    return 0 if passed else 1


GPU_HZ, GPU_SHARE_LIMIT = 10.0, 0.005
STRETCH_S, ROUNDS, WINDOW_S = 20.0, 2, 8.0
BESIDE = (("load", 3), ("idle", 1))
"""How many windows beside a load that pauses now and then, and beside none."""
BOTH = ("all_at_10hz", "now")
SPACED = 25
LOAD = """
import sys, time
import torch
where = "cuda" if torch.cuda.is_available() else "cpu"
n = 4096 if where == "cuda" else 256
a = torch.rand(n, n, device=where)
print(where, flush=True)
while True:
    end = time.monotonic() + 1.3
    while time.monotonic() < end:
        a @ a
        if where == "cuda": torch.cuda.synchronize()
    time.sleep(float(sys.argv[1]))
"""


@contextlib.contextmanager
def load(pause_s: float) -> Iterator[str]:
    """Matrix products in another process, with a pause after each 1.3 s; yields where they run."""
    with subprocess.Popen(
        [sys.executable, "-c", LOAD, str(pause_s)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        where = process.stdout.readline().strip()
        try:
            yield where or f"no load: exit code {process.wait()}"
        finally:
            process.kill()


def timed(call: Callable[[], Any]) -> tuple[float, float, str]:
    """(CPU seconds, wall seconds, what went wrong) of one call."""
    cpu, wall, problem = time.process_time(), time.perf_counter(), ""
    try:
        call()
    except Exception as error:  # an unsupported call has a cost, too
        problem = str(error)
    return time.process_time() - cpu, time.perf_counter() - wall, problem


def all_calls(handle: Any, gpm: GpmSource) -> dict[str, Callable[[], Any]]:
    """Every NVML call that edgescope makes while it watches, and the list of processes."""
    calls: dict[str, Callable[[], Any]] = {
        m.source.partition(":")[0]: _bound(m.call, handle) for m in METRICS
    }
    calls["nvmlDeviceGetComputeRunningProcesses"] = lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(
        handle
    )
    calls["GPM: sample and four metrics"] = gpm.read
    return calls


def _bound(call: Callable[[Any, Any], Any], handle: Any) -> Callable[[], Any]:
    return lambda: call(pynvml, handle)


def per_call() -> dict[str, Json]:
    """Median and largest CPU and wall time (us) of each call, after 0.11 s without one and at once after another."""
    pynvml.nvmlInit()
    calls = all_calls(pynvml.nvmlDeviceGetHandleByIndex(0), GpmSource(0))
    spaced: dict[str, list[tuple[float, float, str]]] = {name: [] for name in calls}
    for _ in range(SPACED):
        time.sleep(0.11)
        for name, call in calls.items():
            spaced[name].append(timed(call))
    out: dict[str, Json] = {}
    for name, call in calls.items():
        again = [timed(call) for _ in range(SPACED)]
        out[name] = {"after_0.11_s": _summed(spaced[name]), "at_once": _summed(again)}
    return out


def _summed(times: Sequence[tuple[float, float, str]]) -> dict[str, Json]:
    cpu, wall = ([1e6 * t[i] for t in times] for i in (0, 1))
    return {
        "cpu_us": statistics.median(cpu),
        "cpu_us_largest": max(cpu),
        "wall_us": statistics.median(wall),
        "problem": times[0][2],
    }


def arms() -> dict[str, list[SourceSpec]]:
    """What the samplers that are compared read, by name."""
    cpu, gpu = (list(device.sources(os.getpid())) for device in (CpuDevice(), NvidiaDevice()))
    return {
        "without_gpu": cpu,
        "all_at_10hz": cpu + [replace(s, every=1, edges=False) for s in gpu],
        "now": cpu + gpu,
    }


def shares(folder: Path) -> dict[str, Json]:
    """Each arm's share of one core, one stretch after another, in turn."""
    found: dict[str, list[dict[str, Json]]] = {name: [] for name in arms()}
    for turn in range(ROUNDS):
        order = list(arms().items())
        for name, specs in order if turn % 2 == 0 else reversed(order):
            with Sampler(specs, GPU_HZ, folder / name) as sampler:
                sampler.mark()
                time.sleep(STRETCH_S)
                sampler.mark()
            cost = sampler.cost()
            found[name].append(
                {k: cost[k] for k in ("cpu_share", "ticks", "missed_ticks", "slowed", "alive")}
            )
    return {
        name: {"cpu_share": statistics.mean(run["cpu_share"] for run in runs), "runs": runs}
        for name, runs in found.items()
    }


def windows(folder: Path) -> list[dict[str, Json]]:
    """The energy of the same windows by a counter read at 10 Hz and by one read about the edges."""
    out = []
    for beside, count in BESIDE:
        with load(0.9) if beside == "load" else contextlib.nullcontext(beside) as where:
            out += [{"beside": where} | _window(folder / f"{beside}{n}") for n in range(count)]
    return out


def _window(folder: Path) -> dict[str, Json]:
    often, edges = (Sampler(specs, GPU_HZ, folder / name) for name, specs in arms().items() if name in BOTH)
    with often, edges:
        time.sleep(1.0)
        start = time.monotonic_ns()
        edges.mark()
        time.sleep(WINDOW_S)
        stop = time.monotonic_ns()
        edges.mark()
        time.sleep(0.5)  # the other one needs a reading after the window, too
    a, b = (_energy(sampler, start, stop) for sampler in (often, edges))
    known = a["joules"] and b["joules"] is not None
    return {
        "at_10hz": a,
        "at_the_edges": b,
        "edges_over_10hz_less_1": b["joules"] / a["joules"] - 1 if known else None,
    }


def _energy(sampler: Sampler, start: int, stop: int) -> dict[str, Json]:
    readings = sampler.readings()
    reads = len(readings.series("gpu0_energy_j")[0])
    for found in energies(readings, start, stop, 0):
        if found.meter == "gpu0" and isinstance(joules := found.energy_j, Measured):
            ends = {"joules": joules.value, "lo": joules.lo, "hi": joules.hi, "updates": joules.n}
            return ends | {
                "method": found.method,
                "warnings": list(map(str, found.warnings)),
                "counter_reads": reads,
            }
    return {"joules": None, "counter_reads": reads}


def gpu() -> int:
    """What watching an NVIDIA GPU costs, call by call and as a whole, and whether energy suffers from asking seldom.

    Part of `sampler.py gpu`. Needs numpy, psutil and nvidia-ml-py, and PyTorch with CUDA for the load; eight
    minutes. Three questions:

        calls    CPU and wall time of one read of each NVML call, at once after another and after 0.1 s
        share    the sampler's share of one core, in alternation: without a GPU source; with every GPU source at 10 Hz;
                 and as it is, with the dear counter at the edges. Beside a load and beside none
        windows  joules of the same windows by two samplers at once, one that reads the counter at 10 Hz and one that
                 reads it about the edges, and how far they lie apart
    """
    device, began = NvidiaDevice(), time.monotonic()
    if reason := device.present():
        raise SystemExit(f"no GPU to watch: {reason}")
    figures: dict[str, Json] = {"hz": GPU_HZ, "limits": {"cpu_share": GPU_SHARE_LIMIT}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures["calls"] = {"beside_idle": per_call()}
        figures["share"] = {"beside_idle": shares(folder)}
        with load(0.0) as where:
            time.sleep(1.0)
            figures["load"] = where
            figures["calls"]["beside_load"] = per_call()
            figures["share"]["beside_load"] = shares(folder)
        figures["windows"] = windows(folder)
    met = all(found["now"]["cpu_share"] <= GPU_SHARE_LIMIT for found in figures["share"].values())
    figures["driver"] = manifest.machine({"nvidia": device}).state["nvidia"].get("driver")
    write("sampler/gpu", figures, met=met)
    _show(figures)
    print(f"after {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0 if met else 1


def _show(figures: dict[str, Json]) -> None:
    for place, calls in figures["calls"].items():
        for name, times in calls.items():
            spaced, again = times["after_0.11_s"], times["at_once"]
            said = f"{spaced['cpu_us']:8.0f} us CPU {spaced['wall_us']:8.0f} us wall; at once {again['cpu_us']:6.0f} us"
            print(f"{place:12} {name:44} {said} {spaced['problem']}")
    for place, found in figures["share"].items():
        print(f"{place:12}", ", ".join(f"{arm} {100 * one['cpu_share']:.2f} %" for arm, one in found.items()))
    for window in figures["windows"]:
        a, b, apart = window["at_10hz"], window["at_the_edges"], window["edges_over_10hz_less_1"]
        print(f"{window['beside']:6} {a} {b}", "no ratio" if apart is None else f"{100 * apart:+.2f} %")


if __name__ == "__main__":
    facts.chosen(cpu, gpu)
