"""Real kernel traces on a GPU: three networks at P = 1, 2, 4, 8, and one set of counters by three tools.

    python benchmarks/kernel_traces.py --json kernel_traces.json --traces out --seconds 360

For each cell: the budget of a query and how much of the measured wall time it sums to, EC and CS, launches, whose work
held up whom, and phase 2 over phase 1. Starting a process takes longer than measuring, so phase 1 of a network's cells
runs in workers that stay alive; phase 2 is a fresh process for each cell, as in `edgescope trace`. NVML's GPM is read
in phase 1. A cell of large products with a known count of multiplications holds GPM's SM and tensor activity against
the kernels' times; Nsight Systems' samples and, with --ncu, Nsight Compute's counters of two products and of a query
join where those programs are installed. Every stage is guarded and bounded; the page is written after each, so that
what is cut off loses its end alone. --device cpu tries the script.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from facts import write

from edgescope.analysis.kernels.account import Account, account, trace_of
from edgescope.analysis.run.usage import of_gpu
from edgescope.bench import here
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.records import Measured, Result, Status, Trace, Trial
from edgescope.records.codec import to_plain
from edgescope.runner.isolated import Isolated, ReusingRunner
from edgescope.runner.run import ExperimentRunner
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.trace import export
from edgescope.wings.trace.imported import read
from edgescope.wings.trace.trial import choose
from edgescope.wings.trace.verb import Traced, growth

NETWORKS = ("resnet50", "fcn_resnet50", "yolov8n_class")
PROCESSES = (1, 2, 4, 8)
MOST_BYTES = 200_000
KEPT = ("resnet50 P=1", "resnet50 P=4", "yolov8n_class P=1")
"""Cells whose trimmed traces are kept."""
CELL_S, TOOL_S = 75.0, 60.0
"""Seconds that one process of a cell, and one run of another tool, may take."""
EDGE_S = 0.5
"""Seconds of the same load before GPM's first reading: its counters are refreshed every 100 ms."""
SIDE = 8192
"""Rows of the square matrices whose products leave no SM idle."""
TENSOR_MACS = {(8, 0): 1024, (8, 6): 512, (8, 9): 512, (9, 0): 2048}
"""Dense fp16 multiplications of an SM in a cycle, by compute capability (NVIDIA's white papers)."""
NCU = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__cycles_active.avg,sm__cycles_elapsed.avg,"
    "sm__inst_issued.avg.pct_of_peak_sustained_active,"
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed,gpu__time_duration.sum"
)
TWO_PRODUCTS = f"""
import torch
a, b = (torch.randn({SIDE}, {SIDE}, device="cuda").half() for _ in range(2))
for _ in range(20): torch.mm(a, b)
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart()
for _ in range(2): torch.mm(a, b)
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStop()
"""
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


def products(seconds: float = 3.0) -> dict[str, Any]:
    """Return GPM's figures of large products, in the same time in which CUPTI saw each kernel.

    Once the GPU is never left idle, once it sleeps for half of the time. A product's count of multiplications is known,
    so the tensor cores' share of their peak follows from the kernels' times and the SM clock.
    """
    import pynvml
    import torch

    from edgescope.wings.nvidia import GpmSource

    chip = torch.cuda.get_device_properties(0)
    macs = TENSOR_MACS.get((chip.major, chip.minor))
    a, b = (torch.randn(SIDE, SIDE, device="cuda").half() for _ in range(2))
    source, found = GpmSource(0), dict[str, Any]()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for _ in range(20):
        torch.mm(a, b)
    torch.cuda.synchronize()
    for name, sleeps in (("never idle", False), ("half of the time", True)):
        try:
            found[name] = watched_products(a, b, source, handle, seconds, sleeps)
        except Exception as error:  # the other window stands
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            continue
        peak = chip.multi_processor_count * (macs or 0) * found[name]["sm_clock_hz"]
        found[name]["tensor_active_by_arithmetic"] = found[name]["macs_per_s"] / peak if peak else None
    return {"gpu": chip.name, "multiprocessors": chip.multi_processor_count, "windows": found}


def watched_products(
    a: Any, b: Any, source: Any, handle: Any, seconds: float, sleeps: bool
) -> dict[str, Any]:
    """Return what GPM and CUPTI say of the same time."""
    import pynvml
    import torch

    from edgescope.wings.trace.cupti import CuptiTracer

    clocks, count, tracer, c = list[float](), 0, CuptiTracer(), torch.empty_like(a)
    with tempfile.TemporaryDirectory() as folder:
        with tracer.window(Path(folder)):
            begun, start = time.monotonic_ns(), 0
            while not start or time.monotonic_ns() - start < seconds * 1e9:
                if not start and time.monotonic_ns() - begun > EDGE_S * 1e9:
                    source.read()
                    start, count, clocks = time.monotonic_ns(), 0, []
                begin = time.monotonic()
                for _ in range(16):
                    torch.mm(a, b, out=c)
                clocks.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) * 1e6)
                torch.cuda.synchronize()
                count += 16
                if sleeps:
                    time.sleep(time.monotonic() - begin)
            end = time.monotonic_ns()
            gpm = {word: value for word, _, value in source.read()}
        spans = tracer.spans(Path(folder)).of_kind("kernel").columns
    inside = (spans["start_ns"] >= start) & (spans["end_ns"] <= end)
    return {
        "gpm": {word: value if isinstance(value, float) else str(value) for word, value in gpm.items()},
        "cupti_busy": int((spans["end_ns"] - spans["start_ns"])[inside].sum()) / (end - start),
        "cupti_kernels": int(inside.sum()),
        "products": count,
        "macs_per_s": count * SIDE**3 / ((end - start) * 1e-9),
        "sm_clock_hz": float(np.mean(clocks)),
    }


class Page:
    """What was found so far, written after each stage."""

    def __init__(self, path: Path | None, deadline: float) -> None:
        self.path, self.deadline = path, deadline
        self.found: dict[str, Any] = {"cells": {}, "failed": {}, "seconds": {}, "absent": {}}

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return self.deadline - time.monotonic()

    def merged(self, path: Path) -> None:
        """Begin with the cells of an earlier page."""
        earlier = json.loads(path.read_text())["figures"]
        for part in ("cells", "failed", "seconds", "absent"):
            self.found[part] = dict(earlier.get(part, {}))
        for name, reason in list(self.found["failed"].items()):
            if "timed out after" in reason:
                self.absent(name, f"{name}: it took longer than {TOOL_S:g} s")

    def absent(self, name: str, reason: str) -> None:
        """Note what this machine has not."""
        self.found["failed"].pop(name, None)
        self.found["absent"][name] = reason

    def stage(self, name: str, work: Callable[[], Any], *, needs_s: float = 0.0) -> None:
        """Run one stage; its failure is noted, and the page written."""
        if self.left < needs_s:
            self.found["failed"].setdefault(name, "no time left")
            return
        begin = time.monotonic()
        try:
            found = to_plain(work())
            line = json.dumps(found)[:300]
            self.found["cells"][name] = found
            self.found["failed"].pop(name, None)
        except Exception as error:
            traceback.print_exc()
            self.found["failed"][name] = line = f"{type(error).__name__}: {error}".strip()[:800]
        self.found["seconds"][name] = round(time.monotonic() - begin, 1)
        print(f"{name}: {self.found['seconds'][name]} s", line, flush=True)
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
            met = bool(sums) and all(0.98 <= s <= 1.02 for s in sums) and not self.found["failed"]
            written = write(self.path.stem, to_plain(self.found), met=met)
            if written.resolve() != self.path.resolve():
                shutil.move(written, self.path)


@dataclass
class Bench:
    """How the cells run, and what they found."""

    args: argparse.Namespace
    page: Page
    cells: ExperimentRunner
    clean: dict[str, Result] = field(default_factory=dict)
    series: dict[str, list[tuple[str, Account]]] = field(default_factory=dict)

    def trial(self, network: str, processes: int) -> Trial:
        """Return the trial of a cell."""
        cuda, window = self.args.device == "cuda", self.args.window
        asked = Trial(
            model=network,
            backend="torch_eager",
            device=self.args.device,
            precision="fp16" if cuda else "fp32",
            processes=processes,
            warmup=0.5,
            min_s=window,
            max_s=window,
        )
        return grid.pinned(asked, zoo.pin)

    def ran(self, trial: Trial) -> Result:
        """Run a trial within what time is left; an error if it did not end well."""
        limits = Limits(timeout_s=max(5.0, min(CELL_S, self.page.left)))
        self.cells.limits = self.cells.builds.limits = limits
        result = self.cells.run(trial)
        if result.status not in (Status.OK, Status.UNSTABLE):
            raise RuntimeError(f"{result.status.value}: {result.reason}")
        return result

    def phase1(self, network: str, processes: int) -> dict[str, Any]:
        """Measure a cell without a profiler."""
        result = self.clean[f"{network} P={processes}"] = self.ran(self.trial(network, processes))
        rate = result.metrics["throughput_sps"]
        return {
            "clean_throughput_sps": rate.value if isinstance(rate, Measured) else None,
            "process": result.process,
            "live": live(result),
            "window_s": self.args.window,
        }

    def phase2(self, network: str, processes: int) -> dict[str, Any]:
        """Trace a cell; keep a piece of the trace if it is one of KEPT."""
        name = f"{network} P={processes}"
        trial = self.trial(network, processes)
        chosen = choose(trial, self.args.profiler)
        short = replace(trial, tracer=chosen.name, min_s=self.args.traced, max_s=self.args.traced)
        result = self.ran(short)
        trace = trace_of(result)
        if trace is None:
            raise RuntimeError(f"no spans: {[str(w) for w in result.warnings]}")
        one = account(trace)
        self.series.setdefault(network, []).append((f"P = {processes}", one))
        found = described(Traced(((name, one),), self.clean.get(name), result, chosen))
        if self.args.traces and name in KEPT:
            try:
                keep(trace, self.args.traces / f"{name.replace(' P=', '_p')}.json.gz")
            except Exception:  # the figures stand without it
                found["not_kept"] = traceback.format_exc()[-400:]
        return found


def agreement() -> dict[str, Any]:
    """Return the figures of the products, measured in a process of their own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--products"]
    done = subprocess.run(command, check=False, timeout=TOOL_S, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-600:])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def described(found: Traced) -> dict[str, Any]:
    """Return the figures of a traced cell."""
    _, one = found.accounts[0]
    share = found.perturbation
    return {
        "profiler": found.chosen.name if found.chosen else "",
        "perturbation": share.value if isinstance(share, Measured) else share.reason,
        "notes": [str(w) for w in found.warnings],
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


def live(result: Result) -> dict[str, Any]:
    """Return the GPU's counters that were read while phase 1 ran: a mean each, or why there is none."""
    found = {
        name: of_gpu(result, name)
        for name in ("busy", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
    }
    return {name: f.value if isinstance(f, Measured) else f.reason for name, f in found.items()}


def keep(found: Trace, path: Path) -> None:
    """Write the middle of a trace, as many queries of it as fit into MOST_BYTES."""
    units = found.spans.of_kind("unit", "range").columns
    start = np.sort(units["start_ns"])
    first, count = start[len(start) // 2], min(len(start) // 2, 64)
    while count:
        last = np.sort(units["end_ns"][units["start_ns"] >= first])[: count + 1][-1]
        inside = (found.spans.columns["start_ns"] >= first) & (found.spans.columns["end_ns"] <= last)
        export.write_json(replace(found, spans=found.spans.where(inside), samples=None), path)
        if path.stat().st_size <= MOST_BYTES:
            return
        count //= 2
    path.unlink(missing_ok=True)


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
    subprocess.run([*command, sys.executable, "-c", script], check=True, timeout=TOOL_S, capture_output=True)
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
    subprocess.run(export, check=True, timeout=TOOL_S, capture_output=True)
    found = account(read(Path(f"{report}.sqlite")))
    return {
        **figures(found),
        "samples": {k: v.value for k, v in found.samples.items() if isinstance(v, Measured)},
    }


def by_ncu(folder: Path, script: str) -> dict[str, Any]:
    """Return Nsight Compute's counters over what a program marks, weighted by each kernel's time; clocks stay free."""
    command = ["ncu", "--csv", "--page", "raw", "--profile-from-start", "off", "--clock-control", "none"]
    command += ["--metrics", NCU]
    done = subprocess.run(
        [*command, sys.executable, "-c", script], timeout=TOOL_S, capture_output=True, text=True, check=True
    )
    path = folder / "ncu.csv"
    path.write_text(done.stdout)
    return counters(path)


def counters(path: Path) -> dict[str, Any]:
    """Return the counters that were asked for, from what Nsight Compute wrote, weighted by each kernel's time."""
    found = read(path)
    length = found.spans.columns["end_ns"] - found.spans.columns["start_ns"]
    out: dict[str, Any] = {"kernels": len(length), "kernel_ns": int(length.sum())}
    for channel in found.samples.channels if found.samples else ():
        if channel.name not in NCU.split(","):  # each comes with .max, .min and .sum beside it
            continue
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
    parser.add_argument("--store", type=Path, help="where the results go (a temporary folder)")
    parser.add_argument("--seconds", type=float, default=360.0, help="no process runs longer than these")
    parser.add_argument("--window", type=float, default=2.5, help="seconds that phase 1 measures")
    parser.add_argument("--traced", type=float, default=0.5, help="seconds that phase 2 measures")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profiler", default="", help="cupti, kineto (the best here)")
    parser.add_argument(
        "--cells",
        default=";".join(f"{n}:{','.join(map(str, PROCESSES))}" for n in NETWORKS),
        help="NETWORK:P,P;...",
    )
    parser.add_argument("--merge", type=Path, help="an earlier page, whose other cells stay")
    parser.add_argument("--ncu", action="store_true", help="run Nsight Compute, too, where it is installed")
    parser.add_argument("--products", action="store_true", help="only measure the products; print them")
    args = parser.parse_args()
    if args.products:
        print(json.dumps(products()))
        return
    page = Page(args.json, time.monotonic() + args.seconds)
    if args.merge:
        page.merged(args.merge)
    if args.traces:
        args.traces.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ReusingRunner(Isolated()) as runner:
        cells = ExperimentRunner(Store(args.store or Path(folder) / "store"), Limits(CELL_S), runner, here())
        every(Bench(args, page, cells), Path(folder))
    page.save()


def every(bench: Bench, folder: Path) -> None:
    """Run every stage, the most needed first."""
    args, page = bench.args, bench.page
    wanted = {
        name: [int(p) for p in counts.split(",")]
        for name, _, counts in (part.partition(":") for part in args.cells.split(";"))
        if name
    }
    page.stage("prepared", lambda: bench.cells.ahead([bench.trial(n, max(c)) for n, c in wanted.items()]))
    if args.device == "cuda":
        page.stage("agreement", agreement, needs_s=20)
    for network, processes in wanted.items():
        for p in sorted(processes):
            page.stage(f"{network} P={p}", lambda n=network, p=p: bench.phase1(n, p), needs_s=15)
        for p in processes:
            page.stage(f"{network} P={p} traced", lambda n=network, p=p: bench.phase2(n, p), needs_s=20)
        if len(processes) > 1:
            page.stage(f"growth {network}", lambda n=network: growth(bench.series.get(n, [])))
    tools(page, folder, args.ncu)


def tools(page: Page, folder: Path, ncu: bool) -> None:
    """Run other tools over a query, where they are installed."""
    query = ONE.format(path=sys.path, queries=1)
    for name, program, work in (
        ("nsys samples", "nsys", by_nsys),
        ("ncu products", "ncu", lambda folder: by_ncu(folder, TWO_PRODUCTS)),
        ("ncu counters", "ncu", lambda folder: by_ncu(folder, query)),
    ):
        if not shutil.which(program):
            page.absent(name, f"{program} is not installed")
        elif program != "ncu" or ncu:
            page.stage(name, lambda w=work: w(folder), needs_s=TOOL_S)


if __name__ == "__main__":
    main()
