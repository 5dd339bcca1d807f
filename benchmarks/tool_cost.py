"""What else of edgescope takes time: a board's rails, the live view, a trace's account.

    python benchmarks/tool_cost.py COMMAND --help

The commands: reading all rails of a board (rails), `edgescope monitor` (monitor), traces of ten million rows (trace).
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import pty
import select
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
import venv
from pathlib import Path
from typing import Any

import facts
from facts import publish, write

from edgescope.bench import present
from edgescope.commandline.screen import painted
from edgescope.devices import recording
from edgescope.devices.base import SourceSpec
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.replay import materialise
from edgescope.records import Json
from edgescope.telemetry.sampler import Sampler
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.monitor import frame
from edgescope.wings.monitor.live import Monitor, Pace
from edgescope.wings.trace.export import write_json
from edgescope.wings.trace.imported import read

RAILS_HZ, SHARE_LIMIT, TMPFS = 10.0, 0.005, "/dev/shm"
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


def rails_share(specs: list[SourceSpec], seconds: float, folder: Path) -> dict[str, Any]:
    """The sampler's cost with these sources, and how many channels and which of them it read."""
    with Sampler(specs, RAILS_HZ, folder) as sampler:
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


def rails_ours(board: str, seconds: float, rounds: int, folder: Path) -> dict[str, Any]:
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
            found[name].append(rails_share(specs, seconds, folder / f"{name}{turn}"))
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
    for name, every in (("every_15_s", 15.0), ("every_0.1_s", 1 / RAILS_HZ)):
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


def rails() -> int:
    """What sampling a board costs: its rails, and everything it has, at 10 Hz; codecarbon and jtop beside it.

    The board is a shipped recording's tree of files on tmpfs, read by the real sampler process. Target: <= 0.5 % of
    one core for all rails at 10 Hz. A plain file has no I2C behind it: on a board each register read takes about 0.55
    ms of bus time (a user's figure for an AGX Orin), most of it waiting, so the figures here are those of the code
    alone.

    codecarbon (pip, MIT) runs in a venv and a process of its own, at its own rate (every 15 s) and at 10 Hz; it
    measures this machine and not the tree, for it takes no root. jtop (pip jetson-stats, AGPL: only run as a program
    of its own) is started where it can be installed; what it says where it cannot run is kept.

        python benchmarks/tool_cost.py rails [agx_orin]     # 10 minutes; writes published/tool_cost.json
    """
    parser = argparse.ArgumentParser(description=facts.text(rails))
    parser.add_argument("board", nargs="?", default="agx_orin", help="a shipped recording")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=TMPFS, prefix="edgescope-board-tree-") as name:
        mine = rails_ours(args.board, args.seconds, args.rounds, Path(name))
    with tempfile.TemporaryDirectory() as name:
        others = {"codecarbon": codecarbon(2 * args.seconds, Path(name)), "jtop": jtop(Path(name))}
    met = mine["all_rails"]["cpu_share"] <= SHARE_LIMIT
    figures = {
        "board": f"{args.board}, a constructed recording's tree on tmpfs",
        "hz": RAILS_HZ,
        "seconds_of_each_round": args.seconds,
        "edgescope": mine,
        **others,
        "limit_of_all_rails": SHARE_LIMIT,
        "load_average": {"before": load, "after": os.getloadavg()},
    }
    publish("tool_cost/rails", figures, met=met)
    return 0 if met else 1


MONITOR_HZ, LIMIT, START_S, FRAMES = 2.0, 0.01, 5.0, 200
SIZES = {"80x24": (80, 24), "160x50": (160, 50)}


def cpu_s(pid: int) -> float:
    """Seconds that all threads of a process have run."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def monitor_share(size: tuple[int, int], seconds: float, flags: list[str]) -> dict[str, Json]:
    """The monitor's CPU time over `seconds` in a terminal of `size`, and the bytes it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    command = [sys.executable, "-m", "edgescope.cli.main", *flags, "monitor", "--hz", str(MONITOR_HZ)]
    env = os.environ | {"TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=env)
    drained(master, START_S, until=b"quits")
    drained(master, START_S)
    before, start = cpu_s(process.pid), time.monotonic()
    written = drained(master, seconds)
    spent, wall = cpu_s(process.pid) - before, time.monotonic() - start
    os.write(master, b"q")
    drained(master, 0.5)
    _, errors = process.communicate(timeout=10)
    if process.returncode:
        raise SystemExit(f"the monitor failed: {errors.decode()[-500:]}")
    return {
        "cpu_s": spent,
        "wall_s": wall,
        "cpu_share": spent / wall,
        "bytes_a_frame": written / (wall * MONITOR_HZ),
    }


def drained(master: int, seconds: float, until: bytes = b"") -> int:
    """Read the terminal for `seconds` (six times that, or until a word comes, where one is given); count bytes."""
    end, count = time.monotonic() + seconds * (6 if until else 1), 0
    while (left := end - time.monotonic()) > 0:
        if select.select([master], [], [], left)[0]:
            data = os.read(master, 1 << 16)
            count += len(data)
            if until and until in data:
                break
    return count


def frames() -> dict[str, Json]:
    """Median microseconds of one frame: to compose, to compose and paint, and as a rich table of the same rows."""
    from rich.console import Console
    from rich.table import Table

    monitor = Monitor(present(), Pace(MONITOR_HZ))
    for tick in range(120):
        monitor._tick(tick)
    console = Console(file=io.StringIO(), width=80, force_terminal=True)

    def ours() -> None:
        for row in frame.rows(monitor._view(frame.BLOCKS), 80, 24):
            painted(row, colour=True)

    def rich() -> None:
        grid = Table(box=None)
        for row in frame.rows(monitor._view(frame.BLOCKS), 80, 24):
            grid.add_row("".join(text for text, _ in row))
        console.print(grid)

    timed = {"ours_us": ours, "rich_us": rich}
    return {name: statistics.median(clocked(work) for _ in range(FRAMES)) for name, work in timed.items()}


def clocked(work) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def monitor() -> int:
    """What `edgescope monitor` costs: a real process on a real pseudo-terminal, by the kernel's own accounting.

    The CPU time of all its threads (/proc/PID/task/*/schedstat, nanoseconds) over a minute at 2 Hz, after a start that
    is not counted: on this machine's own sensors in two sizes of terminal, and on a shipped recording of a Jetson,
    whose playing costs too. The limit is 1 % of one core. Beside it, what one frame costs to compose and write, and
    what the same rows cost as a rich table.

        python benchmarks/tool_cost.py monitor --board orin_nano    # 4 minutes; writes published/tool_cost.json
    """
    parser = argparse.ArgumentParser(description=facts.text(monitor))
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement")
    parser.add_argument("--board", default="", help="a recording to measure too, e.g. orin_nano")
    args = parser.parse_args()
    costs = {name: monitor_share(size, args.seconds, []) for name, size in SIZES.items()}
    if args.board:
        costs[f"recording {args.board} 80x24"] = monitor_share(
            SIZES["80x24"], args.seconds, ["--board", args.board]
        )
    met = all(float(cost["cpu_share"]) <= LIMIT for cost in costs.values())
    publish(
        "tool_cost/monitor", {"hz": MONITOR_HZ, "limit": LIMIT, "cost": costs, "one_frame": frames()}, met=met
    )
    return 0 if met else 1


KERNELS_A_QUERY = 342
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
  gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
  localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
  sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
  globalTid INTEGER, textId INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, smCount INTEGER);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3'), ('EXPORT_PRODUCT_VERSION', 'generated');
INSERT INTO TARGET_INFO_GPU VALUES (0, 'generated', 132);
"""
PERIOD_NS, GLOBAL = 16_000, (441 << 24) | 441


def generate(path: Path, rows: int) -> None:
    """Write an export: a kernel every PERIOD_NS with its launch and one other call, a range and a wait a query."""
    kernels = rows // 3
    with sqlite3.connect(path) as base:
        base.executescript("PRAGMA synchronous=off; PRAGMA journal_mode=off;" + SCHEMA)
        names = [(i, f"void network::kernel_{i}<half, {i % 7}>(float const*, float*)") for i in range(40)]
        calls = [(100, "cudaLaunchKernel"), (101, "cuKernelGetName"), (102, "cudaDeviceSynchronize")]
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", names + calls)
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {kernels - 1})"
        at, last = f"i * {PERIOD_NS}", KERNELS_A_QUERY - 1
        base.execute(
            f"{numbers} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT {at} + 9000 + i % 5 * 100,"
            f" {at} + 10800 + i % 17 * 150, 0, 1, 0, 7, 2 * i + 1, {GLOBAL & ~0xFFFFFF}, i % 40, i % 40, i % 40,"
            " 1, 1, 92, 392, 2, 1, 8, 8, 1, 2304, 0, 0, 250871808, i, 102400, NULL, 0 FROM n"
        )
        base.execute(
            f"{numbers} INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT {at} + 1000, {at} + 6000 + i % 13 * 200, 1,"
            f" {GLOBAL}, 2 * i + 1, 100, 0, NULL FROM n"
        )
        base.execute(
            f"{numbers} INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT {at} + CASE WHEN i % {KERNELS_A_QUERY} = {last}"
            f" THEN 9500 ELSE 200 END, {at} + CASE WHEN i % {KERNELS_A_QUERY} = {last} THEN 15000 ELSE 290 END, 1,"
            f" {GLOBAL}, 2 * i + 2, CASE WHEN i % {KERNELS_A_QUERY} = {last} THEN 102 ELSE 101 END, 0, NULL FROM n"
        )
        length = KERNELS_A_QUERY * PERIOD_NS
        queries = [
            (q * length, (q + 1) * length - 800, 59, "infer", GLOBAL)
            for q in range(kernels // KERNELS_A_QUERY)
        ]
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, NULL)", queries)


PLAIN = """
import sqlite3, sys
base = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
names = dict(base.execute("SELECT id, value FROM StringIds"))
kernels, calls = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
for table, name in ((kernels, "demangledName"), (calls, "nameId")):
    base.execute(f"SELECT {name}, count(*), sum(end - start) FROM {table} GROUP BY 1").fetchall()
busy = stop = 0
for start, end in base.execute(f"SELECT start, end FROM {kernels} ORDER BY start"):
    busy, stop = busy + max(end - max(start, stop), 0), max(stop, end)
launched = dict(base.execute(f"SELECT correlationId, end FROM {calls}"))
waits = [s - launched[c] for c, s in base.execute(f"SELECT correlationId, start FROM {kernels}") if c in launched]
print(busy, sum(waits))
"""
"""What somebody writes by hand: sum and count of each name, the union of the kernels, the mean wait in the queue."""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
t.get_temporal_breakdown(visualize=False)
t.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
t.get_idle_time_breakdown(ranks=[0], visualize=False)
t.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
"""
OURS = [sys.executable, "-m", "edgescope", "trace"]


def spent(command: list[str]) -> dict[str, float]:
    """Seconds of CPU and wall time of a whole command, its start included, and its peak memory."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)[:200]} failed: {errors[-500:]}")
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": time.perf_counter() - begun,
        "peak_bytes": used.ru_maxrss * 1024,
    }


def in_turns(ours: list[str], theirs: list[str], rounds: int) -> dict[str, Any]:
    """Both commands in turns; the ratio of their CPU seconds, theirs / ours, as (least, median, most) of the rounds."""
    pairs = [(spent(ours), spent(theirs)) for _ in range(rounds)]
    ratios = sorted(b["cpu_s"] / a["cpu_s"] for a, b in pairs)
    found = {
        side: {key: statistics.median(p[i][key] for p in pairs) for key in ("cpu_s", "wall_s", "peak_bytes")}
        for i, side in enumerate(("ours", "theirs"))
    }
    return {"rounds": rounds, **found, "times_less_cpu": [ratios[0], statistics.median(ratios), ratios[-1]]}


def trace() -> None:
    """What `edgescope trace FILE` costs as a whole command, beside others in turns.

        python benchmarks/tool_cost.py trace --hta /path/to/python/with/HolisticTraceAnalysis

    An Nsight export beside one plain sqlite3 script of the same sums; the same spans as torch.profiler writes them
    beside HolisticTraceAnalysis. The exports are generated in the proportions of a real one (ResNet50, batch 1, eager,
    H200): two calls of the host for each kernel. Goals, in CPU seconds: at most twice the script's at 57,000 rows and
    1.5 times at ten million; a seventh of the other tool's at 216,000 events and a twentieth at a million.
    """
    parser = argparse.ArgumentParser(
        description=facts.text(trace), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[57_000, 1_000_000, 10_000_000])
    parser.add_argument("--events", type=int, nargs="*", default=[216_000, 1_000_000])
    parser.add_argument("--hta", default="", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        export, kineto = Path(folder) / "generated.sqlite", Path(folder) / "kineto.json"
        for rows in args.rows:
            export.unlink(missing_ok=True)
            generate(export, rows)
            plain = [sys.executable, "-c", PLAIN, str(export)]
            found[f"nsys_{rows}"] = {"bytes": export.stat().st_size} | in_turns(
                [*OURS, str(export)], plain, args.rounds
            )
            print(json.dumps(found), flush=True)
        for events in args.events if args.hta else ():
            export.unlink(missing_ok=True)
            generate(export, events)
            write_json(read(export), kineto)
            theirs = [args.hta, "-c", HTA, str(kineto)]
            found[f"kineto_{events}"] = {"bytes": kineto.stat().st_size} | in_turns(
                [*OURS, str(kineto)], theirs, args.rounds
            )
            print(json.dumps(found), flush=True)
    if not args.smoke:
        write("tool_cost/trace", found, met=_met(found))


def _met(found: dict[str, Any]) -> bool:
    goals = {"nsys_57000": 0.5, "nsys_10000000": 1 / 1.5, "kineto_216000": 7, "kineto_1000000": 20}
    return all(found[name]["times_less_cpu"][1] >= goal for name, goal in goals.items() if name in found)


if __name__ == "__main__":
    facts.chosen(rails, monitor, trace)
