"""What `edgescope monitor` costs: a real process on a real pseudo-terminal, by the kernel's own accounting.

The CPU time of all its threads (/proc/PID/task/*/schedstat, nanoseconds) over a minute at 2 Hz, after a start that
is not counted: on this machine's own sensors in two sizes of terminal, and on a shipped recording of a Jetson,
whose playing costs too. The limit is 1 % of one core. Beside it, what one frame costs to compose and write, and
what the same rows cost as a rich table.

    python benchmarks/monitor_cost.py --board orin_nano    # 4 minutes; writes published/monitor_cost.json
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from facts import publish

from edgescope.bench import present
from edgescope.monitor import frame
from edgescope.monitor.live import Monitor, Pace
from edgescope.monitor.screen import painted
from edgescope.records import Json

HZ, LIMIT, START_S, FRAMES = 2.0, 0.01, 5.0, 200
SIZES = {"80x24": (80, 24), "160x50": (160, 50)}


def cpu_s(pid: int) -> float:
    """Seconds that all threads of a process have run."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def share(size: tuple[int, int], seconds: float, flags: list[str]) -> dict[str, Json]:
    """The monitor's CPU time over `seconds` in a terminal of `size`, and the bytes it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    command = [sys.executable, "-m", "edgescope.cli.main", *flags, "monitor", "--hz", str(HZ)]
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
    return {"cpu_s": spent, "wall_s": wall, "cpu_share": spent / wall, "bytes_a_frame": written / (wall * HZ)}


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

    monitor = Monitor(present(), Pace(HZ))
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement")
    parser.add_argument("--board", default="", help="a recording to measure too, e.g. orin_nano")
    args = parser.parse_args()
    costs = {name: share(size, args.seconds, []) for name, size in SIZES.items()}
    if args.board:
        costs[f"recording {args.board} 80x24"] = share(SIZES["80x24"], args.seconds, ["--board", args.board])
    met = all(float(cost["cpu_share"]) <= LIMIT for cost in costs.values())
    publish("monitor_cost", {"hz": HZ, "limit": LIMIT, "cost": costs, "one_frame": frames()}, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
