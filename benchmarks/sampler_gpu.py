"""What watching an NVIDIA GPU costs, call by call and as a whole, and whether energy suffers from asking seldom.

Part of `sampler_cost.py --gpu`. Needs numpy, psutil and nvidia-ml-py, and PyTorch with CUDA for the load; eight
minutes. Three questions:

    calls    CPU and wall time of one read of each NVML call, at once after another and after 0.1 s
    share    the sampler's share of one core, in alternation: without a GPU source; with every GPU source at 10 Hz; as
             it was; as it is now, with the dear counter at the edges. Beside a load and beside none
    windows  joules of the same windows by two samplers at once, one that reads the counter at 10 Hz and one that reads
             it about the edges, and how far they lie apart
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from edgescope.analysis.energy.window import energies
from edgescope.devices import manifest
from edgescope.devices.base import SourceSpec
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.nvidia.device import NvidiaDevice
from edgescope.devices.nvidia.gpm import GpmSource
from edgescope.devices.nvidia.nvml import METRICS
from edgescope.records import Json, Measured
from edgescope.telemetry.sampler import Sampler

HZ, SHARE_LIMIT = 10.0, 0.005
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


class Unpaced(Sampler):
    """A sampler that reads each source as often as asked, whatever it costs."""

    MODULE = "sampler_unpaced"


class FirstLook(Sampler):
    """A sampler that settles how often it reads a source by the first reads alone."""

    MODULE = "sampler_first_look"


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


def arms() -> dict[str, tuple[type[Sampler], list[SourceSpec]]]:
    """The samplers to compare, by name."""
    cpu, gpu = (list(device.sources(os.getpid())) for device in (CpuDevice(), NvidiaDevice()))
    rates = {"power": 1, "energy": 1}
    before = [replace(s, every=rates.get(str(s.kwargs.get("part")), 5), edges=False) for s in gpu]
    return {
        "without_gpu": (Sampler, cpu),
        "all_at_10hz": (Unpaced, cpu + [replace(s, every=1, edges=False) for s in gpu]),
        "as_before": (FirstLook, cpu + before),
        "now": (Sampler, cpu + gpu),
    }


def shares(folder: Path) -> dict[str, Json]:
    """Each arm's share of one core, one stretch after another, in turn."""
    found: dict[str, list[dict[str, Json]]] = {name: [] for name in arms()}
    for turn in range(ROUNDS):
        order = list(arms().items())
        for name, (kind, specs) in order if turn % 2 == 0 else reversed(order):
            with kind(specs, HZ, folder / name) as sampler:
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
    often, edges = (kind(specs, HZ, folder / name) for name, (kind, specs) in arms().items() if name in BOTH)
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


def main(out: Path) -> int:
    """Measure all three and write them to `out`; 0 where the sampler keeps to its limit."""
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH", ""))))
    device, began = NvidiaDevice(), time.monotonic()
    if reason := device.present():
        raise SystemExit(f"no GPU to watch: {reason}")
    figures: dict[str, Json] = {"hz": HZ, "limits": {"cpu_share": SHARE_LIMIT}}
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
    met = all(found["now"]["cpu_share"] <= SHARE_LIMIT for found in figures["share"].values())
    machine = manifest.machine({"cpu": CpuDevice(), "nvidia": device})
    page = {
        "figures": figures,
        "met": met,
        "seconds": time.monotonic() - began,
        "command": " ".join(["python", *sys.argv]),
        "commit": manifest.git(here),
        "machine_id": machine.id,
        "machine": dict(machine.stable),
        "driver": machine.state["nvidia"].get("driver"),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(page, indent=1) + "\n")
    _show(figures)
    print(f"written to {out} after {page['seconds']:.0f} s", file=sys.stderr)
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
