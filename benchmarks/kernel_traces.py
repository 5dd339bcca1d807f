"""Real kernel traces on a GPU: three networks at P = 1, 2, 4, 8, and one set of counters by three tools.

    python benchmarks/kernel_traces.py --json published/kernel_traces.json --traces out --seconds 360

For each cell: the budget of a query and how much of the measured wall time it sums to, EC and CS, launches, whose work
held up whom, and phase 2 over phase 1. Then SM and tensor activity of one cell by NVML's GPM (live in phase 1), by
Nsight Systems' samples and by Nsight Compute's counters, where those programs are installed. Every stage is guarded;
the page is written after each, so that what is cut off loses its end alone. --device cpu tries the script.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from facts import write

from edgescope.analysis.kernels.account import Account, account
from edgescope.analysis.kernels.growth import growth
from edgescope.records import Measured, Trace, Trial
from edgescope.records.codec import to_plain
from edgescope.tracing import chrome
from edgescope.tracing.read import read
from edgescope.verbs.trace import Traced, trace

NETWORKS = ("resnet50", "fcn_resnet50", "yolov8n_class")
PROCESSES = (1, 2, 4, 8)
MOST_BYTES = 200_000
NCU = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__cycles_active.avg,sm__cycles_elapsed.avg,"
    "sm__inst_issued.avg.pct_of_peak_sustained_active,"
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active,gpu__time_duration.sum"
)
ONE = """
import torch, sys
sys.path[:0] = {path!r}
from edgescope.models import zoo
module = zoo.get("resnet50").module().half().cuda().eval()
x = torch.randn(1, 3, 224, 224, device="cuda").half()
with torch.no_grad():
    for _ in range(10): module(x)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for _ in range({queries}):
        torch.cuda.nvtx.range_push("infer")
        module(x)
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    torch.cuda.cudart().cudaProfilerStop()
"""


class Page:
    """What was found so far, written after each stage."""

    def __init__(self, path: Path | None, deadline: float) -> None:
        self.path, self.deadline, self.found = path, deadline, {"cells": {}, "failed": {}}

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        """Run one stage; its failure is noted, and the page written."""
        if time.monotonic() > self.deadline:
            self.found["failed"][name] = "no time left"
            return
        begin = time.monotonic()
        try:
            found = to_plain(work())
            line = json.dumps(found)[:300]
            self.found["cells"][name] = found
        except Exception:
            self.found["failed"][name] = line = traceback.format_exc()[-800:]
        print(f"{name}: {time.monotonic() - begin:.1f} s", line, flush=True)
        self.save()

    def save(self) -> None:
        """Write the page; a failure is printed, and what was found stays for the next time."""
        try:
            self._write()
        except Exception:
            print("the page is not written:", traceback.format_exc()[-800:], file=sys.stderr, flush=True)

    def _write(self) -> None:
        if self.path is not None:
            sums = [
                c["closure"] for c in self.found["cells"].values() if isinstance(c, dict) and c.get("closure")
            ]
            met = bool(sums) and all(s >= 0.98 for s in sums) and not self.found["failed"]
            written = write(self.path.stem, to_plain(self.found), met=met)
            if written.resolve() != self.path.resolve():
                shutil.copy(written, self.path)


def described(found: Traced) -> dict[str, Any]:
    """Return the figures of a traced cell."""
    _, one = found.accounts[0]
    rate = found.clean.metrics["throughput_sps"] if found.clean else None
    share = found.perturbation
    return {
        "profiler": found.chosen.name if found.chosen else "",
        "perturbation": share.value if isinstance(share, Measured) else share.reason,
        "clean_throughput_sps": rate.value if isinstance(rate, Measured) else None,
        "notes": [str(w) for w in found.warnings],
        "live": live(found),
        **figures(one),
    }


def figures(one: Account) -> dict[str, Any]:
    """Return budget, launches, GPU time and blame of an account."""
    b, page = (
        one.budget,
        {"inferences": len(one.inferences), "spans": len(one.trace.spans), "gpus": list(one.gpus)},
    )
    if b is not None:
        parts = {name: float(np.median(values)) / 1e3 for name, values in b.parts.items()}
        page |= {"closure": b.closure, "parts_median_us": parts, "launches": float(np.median(b.launches))}
        page |= {f"{n}_median_us": b.distribution(n).quantile_ns(0.5) / 1e3 for n in ("ec", "cs", "total")}
        page |= {f"{n}_cdf_us": [q / 1e3 for q in b.distribution(n).quantiles_ns] for n in ("ec", "cs")}
    if one.launches is not None:
        for name in ("api", "queue", "kernel", "gap", "blocked"):
            d = getattr(one.launches, name)
            page[f"{name}_median_us"] = d.quantile_ns(0.5) / 1e3 if d.count else None
        page |= {"graph_launches": one.launches.graph_launches, "short": one.launches.short}
    if one.sharing is not None:
        page["blocked_ms"] = {f"{a} while {b} ran": ns / 1e6 for (a, b), ns in one.sharing.blocked_ns.items()}
        page["turns"] = list(one.sharing.turns)
        page["overlapped_ms"] = one.sharing.overlapped_ns / 1e6
    return page


def live(found: Traced) -> dict[str, float]:
    """Return the GPU's counters that were read while phase 1 ran."""
    if found.clean is None:
        return {}
    words = ("sm_active", "tensor_active", "sm_occupancy", "busy", "dram_active")
    return {
        k: v.value
        for k, v in found.clean.metrics.items()
        if isinstance(v, Measured) and any(w in k for w in words)
    }


def keep(found: Trace, path: Path) -> None:
    """Write the middle of a trace, as many queries of it as fit into MOST_BYTES."""
    units = found.spans.of_kind("unit", "range").columns
    start = np.sort(units["start_ns"])
    first, count = start[len(start) // 2], min(len(start) // 2, 64)
    while count:
        last = np.sort(units["end_ns"][units["start_ns"] >= first])[: count + 1][-1]
        inside = (found.spans.columns["start_ns"] >= first) & (found.spans.columns["end_ns"] <= last)
        chrome.write(replace(found, spans=found.spans.where(inside), samples=None), path)
        if path.stat().st_size <= MOST_BYTES:
            return
        count //= 2


def cell(
    args: argparse.Namespace, network: str, processes: int, series: list[tuple[str, Account]]
) -> dict[str, Any]:
    """Trace one cell; keep a piece of the trace."""
    cuda = args.device == "cuda"
    trial = Trial(
        model=network,
        backend="torch_eager",
        device=args.device,
        precision="fp16" if cuda else "fp32",
        processes=processes,
        warmup=0.5,
        min_s=args.window,
        max_s=args.window,
        sharing="time_slicing",
    )
    found = trace(trial, profiler=args.profiler, store=args.store)
    if not found.accounts:
        return {"failed": [str(w) for w in found.warnings]}
    series.append((f"P = {processes}", found.accounts[0][1]))
    if args.traces:
        keep(found.accounts[0][1].trace, args.traces / f"{network}_p{processes}.json.gz")
    return described(found)


def by_nsys(folder: Path, queries: int = 20) -> dict[str, Any]:
    """Return Nsight Systems' samples over one cell."""
    report = folder / "counters"
    command = [
        "nsys",
        "profile",
        "-t",
        "cuda,nvtx",
        "-s",
        "none",
        "--cpuctxsw=none",
        "--gpu-metrics-devices=0",
    ]
    command += [
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--force-overwrite=true",
        "-o",
        str(report),
    ]
    script = ONE.format(path=sys.path, queries=queries)
    subprocess.run([*command, sys.executable, "-c", script], check=True, timeout=90, capture_output=True)
    export = [
        "nsys",
        "export",
        "--type",
        "sqlite",
        "--force-overwrite=true",
        "-o",
        f"{report}.sqlite",
        f"{report}.nsys-rep",
    ]
    subprocess.run(export, check=True, timeout=60, capture_output=True)
    found = account(read(Path(f"{report}.sqlite")))
    return {
        **figures(found),
        "samples": {k: v.value for k, v in found.samples.items() if isinstance(v, Measured)},
    }


def by_ncu(folder: Path) -> dict[str, Any]:
    """Return Nsight Compute's counters over one query, weighted by each kernel's time."""
    script = ONE.format(path=sys.path, queries=1)
    command = ["ncu", "--csv", "--page", "raw", "--profile-from-start", "off", "--metrics", NCU]
    done = subprocess.run(
        [*command, sys.executable, "-c", script], timeout=120, capture_output=True, text=True, check=True
    )
    path = folder / "ncu.csv"
    path.write_text(done.stdout)
    found = read(path)
    length = found.spans.columns["end_ns"] - found.spans.columns["start_ns"]
    out: dict[str, Any] = {"kernels": len(length), "kernel_ns": int(length.sum())}
    for channel in found.samples.channels if found.samples else ():
        t, value = found.samples.series(channel.name)
        weights = length[np.searchsorted(found.spans.columns["start_ns"], t)]
        out[channel.name] = float(np.average(value, weights=weights)) if weights.sum() else None
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="published/NAME.json")
    parser.add_argument("--traces", type=Path, help="folder for trimmed traces")
    parser.add_argument("--store", type=Path, default=Path("kernel-traces-store"))
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--window", type=float, default=0.5, help="seconds that a phase measures")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profiler", default="", help="cupti, kineto (the best here)")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--processes", default=",".join(map(str, PROCESSES)))
    args = parser.parse_args()
    if args.traces:
        args.traces.mkdir(parents=True, exist_ok=True)
    page = Page(args.json, time.monotonic() + args.seconds)
    series: dict[str, list[tuple[str, Account]]] = {n: [] for n in args.networks.split(",")}
    for processes in map(int, args.processes.split(",")):
        for network, rows in series.items():
            page.stage(f"{network} P={processes}", lambda n=network, p=processes, r=rows: cell(args, n, p, r))
    for network, rows in series.items():
        page.stage(f"growth {network}", lambda r=rows: growth(r))
    folder = args.traces or Path()
    for name, program, work in (("nsys samples", "nsys", by_nsys), ("ncu counters", "ncu", by_ncu)):
        if shutil.which(program):
            page.stage(name, lambda w=work: w(folder))
        else:
            page.found["failed"][name] = f"{program} is not installed"
    page.save()


if __name__ == "__main__":
    main()
