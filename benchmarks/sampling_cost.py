"""What sampling a board costs: its rails, and everything it has, at 10 Hz; codecarbon and jtop beside it.

The board is a shipped recording's tree of files on tmpfs, read by the real sampler process. Target: <= 0.5 % of one
core for all rails at 10 Hz. A plain file has no I2C behind it: on a board each register read takes about 0.55 ms of bus
time (a user's figure for an AGX Orin), most of it waiting, so the figures here are those of the code alone.

codecarbon (pip, MIT) runs in a venv and a process of its own, at its own rate (every 15 s) and at 10 Hz; it measures
this machine and not the tree, for it takes no root. jtop (pip jetson-stats, AGPL: only run as a program of its own)
is started where it can be installed; what it says where it cannot run is kept.

    python benchmarks/sampling_cost.py [agx_orin]     # 10 minutes; writes published/sampling_cost.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from facts import publish

from edgescope.devices.base import SourceSpec
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.jetson.device import JetsonDevice
from edgescope.devices.replay import format as recording
from edgescope.devices.replay.playback import materialise
from edgescope.telemetry.sampler import Sampler

HZ, SHARE_LIMIT, TMPFS = 10.0, 0.005, "/dev/shm"
CODECARBON = """
import json, sys, time
from codecarbon import OfflineEmissionsTracker
every, seconds = float(sys.argv[1]), float(sys.argv[2])
tracker = OfflineEmissionsTracker(
    country_iso_code="FRA", measure_power_secs=every, save_to_file=False, log_level="error", allow_multiple_runs=True
)
tracker.start()
time.sleep(2)
wall, cpu, done = time.perf_counter(), time.process_time(), tracker._measure_occurrence
time.sleep(seconds)
wall, cpu, done = time.perf_counter() - wall, time.process_time() - cpu, tracker._measure_occurrence - done
tracker.stop()
print(json.dumps({"cpu_share": cpu / wall, "cpu_s": cpu, "wall_s": wall, "measurements": done}))
"""


def share(specs: list[SourceSpec], seconds: float, folder: Path) -> dict[str, Any]:
    """The sampler's cost with these sources, and how many channels and which of them it read."""
    with Sampler(specs, HZ, folder) as sampler:
        time.sleep(seconds)
    cost = sampler.cost()
    if not cost["alive"]:
        raise SystemExit(f"the sampler {cost['end']}: nothing was measured")
    channels = [c for c in sampler.readings().channels if c.name != "sampler_cpu_s"]
    measured = sum(c.status == "measured" for c in channels)
    kept = ("cpu_share", "cpu_s", "wall_s", "ticks", "missed_ticks", "achieved_hz", "slowed")
    return {"sources": len(specs), "channels": len(channels), "measured": measured} | {
        k: cost[k] for k in kept
    }


def ours(board: str, seconds: float, rounds: int, folder: Path) -> dict[str, Any]:
    """Nothing, all rails, and all sources of a board, in turn; the median round of each."""
    root = folder / "board"
    root.mkdir()
    materialise(recording.read(recording.find(board)), root)
    jetson = list(JetsonDevice(root).sources(os.getpid()))
    arms = {
        "sampler_alone": [],
        "all_rails": [s for s in jetson if s.target.endswith(":Rails")],
        "all_sources_of_the_board": jetson,
        "all_sources_and_the_cpus": [*jetson, *CpuDevice(root).sources(os.getpid())],
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name, specs in arms.items():
            found[name].append(share(specs, seconds, folder / f"{name}{turn}"))
            print(f"{name}: {found[name][-1]['cpu_share']:.3%} of one core", file=sys.stderr)
    return {name: middle(each) for name, each in found.items()}


def middle(each: list[dict[str, Any]]) -> dict[str, Any]:
    """The round of median cost, with the cost of every round beside it."""
    shares = [r["cpu_share"] for r in each]
    mid = statistics.median_low(shares)
    return next(r for r in each if r["cpu_share"] == mid) | {"cpu_share_of_each_round": shares}


def installed(package: str, folder: Path) -> Path:
    """The interpreter of a fresh venv with this package; SystemExit with pip's last line where it fails."""
    place = folder / f"venv-{package}"
    venv.create(place, with_pip=True)
    python = place / "bin/python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["pip failed"])[-1][:300])
    return python


def version(python: Path, package: str) -> str:
    """The installed version."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def codecarbon(seconds: float, folder: Path) -> dict[str, Any]:
    """Cost of codecarbon's own process, at its own rate and at ours."""
    try:
        python = installed("codecarbon", folder)
    except RuntimeError as error:
        return {"absent": f"cannot be installed: {error}"}
    out: dict[str, Any] = {"version": version(python, "codecarbon")}
    for name, every in (("every_15_s", 15.0), ("every_0.1_s", 1 / HZ)):
        command = [python, "-c", CODECARBON, str(every), str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        lines = done.stdout.strip().splitlines()
        failed = {"absent": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]}
        out[name] = json.loads(lines[-1]) if not done.returncode and lines else failed
    return out


def jtop(folder: Path) -> dict[str, Any]:
    """What jtop does here: it needs a Jetson and a service of its own, so elsewhere this is its own refusal."""
    try:
        python = installed("jetson-stats", folder)
    except RuntimeError as error:
        return {"absent": f"cannot be installed: {error}"}
    command = [python.parent / "jtop"]
    env = os.environ | {"TERM": "dumb"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=env,
        )
    except subprocess.TimeoutExpired:
        return {"absent": "jtop did not end within 30 s"}
    said = " ".join((done.stdout + done.stderr).split())[-300:]
    return {
        "version": version(python, "jetson-stats"),
        "absent": f"not measured: jtop reads through a service of its own, as root, on a Jetson. It says: {said}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("board", nargs="?", default="agx_orin", help="a shipped recording")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=TMPFS, prefix="edgescope-board-tree-") as name:
        mine = ours(args.board, args.seconds, args.rounds, Path(name))
    with tempfile.TemporaryDirectory() as name:
        others = {"codecarbon": codecarbon(2 * args.seconds, Path(name)), "jtop": jtop(Path(name))}
    met = mine["all_rails"]["cpu_share"] <= SHARE_LIMIT
    figures = {
        "board": f"{args.board}, a constructed recording's tree on tmpfs",
        "hz": HZ,
        "seconds_of_each_round": args.seconds,
        "edgescope": mine,
        **others,
        "limit_of_all_rails": SHARE_LIMIT,
        "load_average": {"before": load, "after": os.getloadavg()},
    }
    publish("sampling_cost", figures, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
