"""How fast a recorded trace becomes its account: of a generated export, and HolisticTraceAnalysis beside us.

    python benchmarks/trace_speed.py --rows 10000000 --json published/trace_speed.json
    python benchmarks/trace_speed.py --hta /path/to/python/with/HolisticTraceAnalysis

The export holds `--rows` rows in the proportions of a real one (ResNet50, batch 1, eager, H200): two calls of the host
for each kernel. The Kineto trace for the comparison holds the same spans as torch.profiler would write them.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from facts import write

from edgescope.analysis.kernels.account import account
from edgescope.tracing import chrome
from edgescope.tracing.read import read

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


def ours(path: Path) -> dict[str, Any]:
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
        [sys.executable, __file__, "--only", str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--kineto-rows", type=int, default=300_000)
    parser.add_argument("--hta", default="", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--json", type=Path, help="published/NAME.json")
    parser.add_argument("--only", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(ours(args.only)))
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
    if args.json:
        export, kineto = found["nsys"], found.get("kineto", {})
        quick = export["total_s"] <= 20 and export["peak_rss_bytes"] <= 2e9
        write(args.json.stem, found, met=quick and kineto.get("times_faster", 0) >= 10)


if __name__ == "__main__":
    main()
