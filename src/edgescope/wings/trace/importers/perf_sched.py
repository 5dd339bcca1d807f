"""`perf sched record`, as text of `perf script`: when each thread was on a CPU, and how long it waited for one.

perf sched record -o sched.data -- PROGRAM
perf script -i sched.data -F comm,tid,pid,cpu,time,event,trace --ns > sched.txt
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.records import Trace
from edgescope.tracing import ImportedFile, Importer, Table, indexed

LINE = re.compile(
    r"^\s*(?P<comm>.{1,16}?)\s+(?:(?P<pid>-?\d+)/)?(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]\s+"
    r"(?P<s>\d+)\.(?P<frac>\d+):\s+sched:(?P<event>sched_\w+):\s+(?P<rest>.*)$"
)
SWITCH = re.compile(
    r"(?:prev_comm=)?(?P<comm>.*?)[: ](?:prev_pid=)?(?P<prev>\d+) .*?(?:prev_state=(?P<state>\S+)|\[\d+\] (?P<s2>\S+)) "
    r"==> (?:next_comm=)?(?P<next_comm>.*?)[: ](?:next_pid=)?(?P<next>\d+)(?: .*|$)"
)
WAKE = re.compile(r"(?:comm=)?.*?[: ](?:pid=)?(?P<tid>\d+) .*")


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is text of scheduling events."""
    return b"sched:sched_" in head


def read(path: Path) -> Trace:
    """Return the time on CPUs as `sched`, the time between a wake-up (or a preemption) and running as `ready`."""
    found = ImportedFile("perf sched")
    with path.open(encoding="utf-8", errors="replace") as lines:
        on, ready, odd, process, switches = _spans(lines)
    found.lose(
        "W-PROF-6",
        "lines of scheduling events cannot be read",
        odd,
        effect="They are left out: the time on a CPU is too short, or too long where a thread left it",
    )
    for kind, rows in (("sched", on), ("ready", ready)):
        if rows:
            comm, tid, cpu, start, end = zip(*rows, strict=True)
            names, index = indexed(comm)
            columns: dict[str, Any] = {"name": index, "device": np.array(cpu), "thread": np.array(tid)}
            columns |= {"start_ns": np.array(start), "end_ns": np.array(end)}
            columns["process"] = np.array([process.get(t, t) for t in tid])
            found.tables.append(Table(kind, columns, names))
    found.facts["scheduling"] = {"switches": switches}
    return found.trace(path)


Rows = list[tuple[str, int, int, int, int]]


def _spans(lines: Iterable[str]) -> tuple[Rows, Rows, int, dict[int, int], int]:
    """Return spans on a CPU, spans of waiting for one, lines not understood, thread -> process, and switches."""
    on: Rows = []
    ready: Rows = []
    running: dict[int, tuple[int, int]] = {}  # cpu -> thread, since
    runnable: dict[int, int] = {}  # thread -> since
    process: dict[int, int] = {}
    odd = switches = 0
    for line in lines:
        if not (m := LINE.match(line)):
            odd += bool(line.strip()) and "sched:sched_" in line
            continue
        t = int(m["s"]) * 10**9 + int(m["frac"].ljust(9, "0")[:9])
        if m["pid"]:
            process[int(m["tid"])] = int(m["pid"])
        if m["event"] in ("sched_wakeup", "sched_wakeup_new"):
            if w := WAKE.match(m["rest"]):
                runnable.setdefault(int(w["tid"]), t)
        elif m["event"] == "sched_switch":
            s = SWITCH.match(m["rest"])
            if s is None:
                odd += 1
                continue
            switches += 1
            cpu, prev, following = int(m["cpu"]), int(s["prev"]), int(s["next"])
            if prev and cpu in running and running[cpu][0] == prev:
                on.append((s["comm"].strip(), prev, cpu, running[cpu][1], t))
            if prev and (s["state"] or s["s2"] or "").startswith("R"):
                runnable[prev] = t  # preempted: it could go on
            running[cpu] = (following, t)
            if following in runnable:
                ready.append((s["next_comm"].strip(), following, cpu, runnable.pop(following), t))
    return on, ready, odd, process, switches


IMPORTER = Importer(knows, read)
