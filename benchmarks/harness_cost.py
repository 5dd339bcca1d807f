"""What the harness costs: wall time and peak memory a query, over 10^6 queries of the null backend through run().

Target: <= 2.5 us and <= 80 bytes a query, clock readings and recorded columns included. `us_per_query` is the
measured window; `whole_run_us_per_query` is all of run(): machine facts, sampler, probes, statistics. Each run is
a fresh process; memory is the growth of VmHWM against a run of 1,000 queries, which pays for the same imports.

    python benchmarks/harness_cost.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from facts import publish

QUERIES = 1_000_000
ONE_RUN = """
import json, re, sys, time
from pathlib import Path
import edgescope
run = edgescope.run  # loads what it needs: an import is no part of a run
n = int(sys.argv[1])
trial = edgescope.Trial(model="null", backend="null", warmup=0, max_queries=n, max_s=600)
start = time.monotonic()
result = run(trial, isolated=False)
run_s = time.monotonic() - start
assert result.status in ("ok", "unstable"), result.reason  # a millisecond of nothing may drift
w = result.window
assert len(result.queries) == n == w.stop - w.first
hwm = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"wall_s": (w.stop_ns - w.start_ns) / 1e9, "run_s": run_s, "hwm_bytes": hwm}))
"""


def one(n: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", ONE_RUN, str(n)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    runs = [(one(1_000), one(QUERIES)) for _ in range(5)]
    us = [big["wall_s"] / QUERIES * 1e6 for _, big in runs]
    whole = [big["run_s"] / QUERIES * 1e6 for _, big in runs]
    grown = [(big["hwm_bytes"] - small["hwm_bytes"]) / QUERIES for small, big in runs]
    figures = {
        "queries": QUERIES,
        "us_per_query": {"median": statistics.median(us), "min": min(us), "max": max(us), "runs": us},
        "whole_run_us_per_query": {"median": statistics.median(whole), "max": max(whole), "runs": whole},
        "bytes_per_query": {"median": statistics.median(grown), "max": max(grown), "runs": grown},
    }
    publish("harness_cost", figures, met=statistics.median(whole) <= 2.5 and max(grown) <= 80)


if __name__ == "__main__":
    main()
