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
import resource
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

from edgescope.analysis.kernels.account import account
from edgescope.bench import present
from edgescope.commandline.screen import painted
from edgescope.devices.base import SourceSpec
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.replay import format as recording
from edgescope.devices.replay.playback import materialise
from edgescope.records import Json
from edgescope.telemetry.sampler import Sampler
from edgescope.tracing.read import read
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.monitor import frame
from edgescope.wings.monitor.live import Monitor, Pace
from edgescope.wings.trace import chrome

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


def trace_ours(path: Path) -> dict[str, Any]:
    """Return the seconds and figures of reading a file and computing its whole account."""
    start, cpu = time.perf_counter(), time.process_time()
    trace = read(path)
    loaded = time.perf_counter()
    found = account(trace)
    end = time.perf_counter()
    gpu = found.gpus[0]
    return {
        "read_s": loaded - start,
        "account_s": end - loaded,
        "total_s": end - start,
        "cpu_s": time.process_time() - cpu,
        "spans": len(trace.spans),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "busy_ns": gpu.busy_ns,
        "idle_ns": gpu.idle_ns,
        "kernel_sum_ns": sum(k.total_ns for k in found.kernels),
        "closure": found.budget.closure if found.budget else None,
    }


HTA = """
import json, sys, time
start = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
imported, cpu = time.perf_counter(), time.process_time()
t = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
loaded = time.perf_counter()
b = t.get_temporal_breakdown(visualize=False)
k, m = t.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
i = t.get_idle_time_breakdown(ranks=[0], visualize=False)
l = t.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
end = time.perf_counter()
found = {"import_s": imported - start, "read_s": loaded - imported, "account_s": end - loaded}
found |= {"total_s": end - imported, "cpu_s": time.process_time() - cpu}
found |= {"idle_us": float(b["idle_time(us)"].sum()), "kernel_sum_us": float(m["sum (us)"].sum())}
print("RESULT" + json.dumps(found))
"""


def theirs(python: str, path: Path, *, rounding: bool) -> dict[str, Any]:
    """Return the same of HolisticTraceAnalysis, in its own Python."""
    env = {"PATH": "/usr/bin:/bin"} | ({} if rounding else {"HTA_DISABLE_NS_ROUNDING": "1"})
    done = subprocess.run(
        [python, "-c", HTA, str(path)], capture_output=True, text=True, check=False, env=env
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT")), "")
    return json.loads(line[6:]) if line else {"error": done.stderr[-600:]}


def alone(path: Path) -> dict[str, Any]:
    """Return `ours` of a fresh process, so that its peak memory is its own."""
    done = subprocess.run(
        [sys.executable, __file__, "trace", "--only", str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def trace() -> None:
    """How fast a recorded trace becomes its account: of a generated export, and HolisticTraceAnalysis beside us.

        python benchmarks/tool_cost.py trace --rows 10000000
        python benchmarks/tool_cost.py trace --hta /path/to/python/with/HolisticTraceAnalysis

    The export holds `--rows` rows in the proportions of a real one (ResNet50, batch 1, eager, H200): two calls of the
    host for each kernel. The Kineto trace for the comparison holds the same spans as torch.profiler would write them.
    """
    parser = argparse.ArgumentParser(
        description=facts.text(trace), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--kineto-rows", type=int, default=300_000)
    parser.add_argument("--hta", default="", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--smoke", action="store_true", help="show, publish nothing")
    parser.add_argument("--only", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(trace_ours(args.only)))
        return
    found: dict[str, Any] = {"rows": args.rows}
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "generated.sqlite"
        generate(export, args.rows)
        found["nsys"] = {"bytes": export.stat().st_size, **alone(export)}
        print(json.dumps(found["nsys"]), flush=True)
        if args.hta:
            small, kineto = Path(folder) / "small.sqlite", Path(folder) / "kineto.json"
            generate(small, args.kineto_rows)
            chrome.write(read(small), kineto)
            one = {"bytes": kineto.stat().st_size, "rows": args.kineto_rows, "ours": alone(kineto)}
            one["hta"] = theirs(args.hta, kineto, rounding=False)
            one["hta_as_installed"] = theirs(args.hta, kineto, rounding=True)
            if "total_s" in one["hta"]:
                one["times_faster"] = one["hta"]["total_s"] / one["ours"]["total_s"]
                one["times_less_cpu"] = one["hta"]["cpu_s"] / one["ours"]["cpu_s"]
            found["kineto"] = one
            print(json.dumps(one), flush=True)
    if not args.smoke:
        account, kineto = found["nsys"], found.get("kineto", {})
        quick = account["total_s"] <= 20 and account["peak_rss_bytes"] <= 2e9
        write("tool_cost/trace", found, met=quick and kineto.get("times_faster", 0) >= 10)


if __name__ == "__main__":
    facts.chosen(rails, monitor, trace)
