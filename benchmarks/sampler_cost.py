"""What watching costs: the sampler's own CPU time, and what it does to the latency it watches.

Two questions. How much of one core does the sampler use at 10 Hz, beside an idle machine and a busy one? And
does a steady workload of about 5 ms get slower with it? Both are pinned to one core, the worst case. Blocks of
half a second, with the sampler running and with it stopped (SIGSTOP), in random order within each pair; the
ratio of their p50 (with / without) with its 90 % interval must lie inside 1 +- 0.01. The interval is looked at
only after 20, 40, 80 ... pairs, so that stopping at a lucky moment stays rare.

    python benchmarks/sampler_cost.py     # 2 to 15 minutes; writes published/sampler_cost.json
    python benchmarks/sampler_cost.py --gpu --out gpu.json     # 4 minutes beside an NVIDIA GPU, see sampler_gpu.py
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.nvidia.device import NvidiaDevice
from edgescope.records import Json
from edgescope.stats import paired_log_ratio
from edgescope.telemetry.sampler import Sampler

HZ, SHARE_LIMIT, RATIO_LIMIT, FIRST_LOOK = 10.0, 0.005, 0.01, 20


class Workload:
    """One int32 matrix product of about 5 ms: numpy does it in one thread, which BLAS would not."""

    def __init__(self, target_s: float = 0.005) -> None:
        n = 128
        for _ in range(6):
            self.a = np.random.default_rng(0).integers(-9, 9, (n, n), dtype=np.int32)
            self.out = np.empty_like(self.a)
            n = max(64, round(n * (target_s / statistics.median(self.latencies(0.3))) ** (1 / 3)))

    def latencies(self, seconds: float) -> list[float]:
        """Seconds of each product, one after the other, for `seconds`."""
        out, end = [], time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            np.matmul(self.a, self.a, out=self.out)
            out.append(time.perf_counter() - start)
        return out


def specs() -> list:
    """Every source of this machine's processor, and of its GPU where there is one."""
    devices = (CpuDevice(), NvidiaDevice())
    return [spec for d in devices if not d.present() for spec in d.sources(os.getpid())]


def share(seconds: float, workload: Workload | None, folder: Path) -> dict[str, Json]:
    """The sampler's cost over `seconds`, beside the workload or beside sleep."""
    with Sampler(specs(), HZ, folder) as sampler:
        workload.latencies(seconds) if workload else time.sleep(seconds)
    return sampler.cost()


def block(watcher: int, watched: bool, workload: Workload, seconds: float) -> float:
    """The workload's p50 over one block; without means that the watcher is stopped, which costs nothing."""
    os.kill(watcher, signal.SIGCONT if watched else signal.SIGSTOP)
    workload.latencies(seconds / 10)
    return statistics.median(workload.latencies(seconds))


def ratio(workload: Workload, seconds: float, limit_s: float, folder: Path) -> dict[str, Json]:
    """Pairs of blocks until the 90 % interval is inside 1 +- RATIO_LIMIT, or outside, or the time is up."""
    rng, end = random.Random(0), time.monotonic() + limit_s
    with_s: list[float] = []
    without_s: list[float] = []
    look, verdict = FIRST_LOOK, "inconclusive"
    with Sampler(specs(), HZ, folder) as sampler:
        while verdict == "inconclusive" and time.monotonic() < end:
            order = [True, False]
            rng.shuffle(order)
            for watched in order:
                (with_s if watched else without_s).append(block(sampler.pid, watched, workload, seconds))
            if len(with_s) == look:
                look *= 2
                verdict = conclude(with_s, without_s)
                print(f"{len(with_s)} pairs: {verdict}", file=sys.stderr)
        os.kill(sampler.pid, signal.SIGCONT)
    if not sampler.cost()["alive"]:
        raise SystemExit(f"the sampler {sampler.cost()['end']}: nothing was compared")
    got = paired_log_ratio(with_s, without_s, level=0.90)
    return {
        "p50_ratio": {"value": got.value, "lo": got.lo, "hi": got.hi, "n": got.n, "unit": "1", "level": 0.90},
        "verdict": verdict,
        "p50_s": {"with": with_s, "without": without_s},
    }


def conclude(with_s: list[float], without_s: list[float]) -> str:
    """`inside`, `outside` or `inconclusive`."""
    got = paired_log_ratio(with_s, without_s, level=0.90)
    if got.lo > 1 - RATIO_LIMIT and got.hi < 1 + RATIO_LIMIT:
        return "inside"
    return "outside" if got.lo > 1 + RATIO_LIMIT or got.hi < 1 - RATIO_LIMIT else "inconclusive"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share-s", type=float, default=40, help="seconds of each cost measurement")
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("--limit-s", type=float, default=780, help="longest the paired part may take")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--gpu", action="store_true", help="what watching an NVIDIA GPU costs, instead")
    parser.add_argument("--out", type=Path, default=Path("sampler_gpu.json"), help="of --gpu")
    args = parser.parse_args()
    if args.gpu:
        import sampler_gpu

        return sampler_gpu.main(args.out)
    from facts import publish

    os.sched_setaffinity(0, {args.core})
    workload = Workload()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = {
            "beside_idle": share(args.share_s, None, folder),
            "beside_load": share(args.share_s, workload, folder),
        }
        pairs = ratio(workload, args.block_s, args.limit_s, folder)
    within = all(c["alive"] and c["cpu_share"] <= SHARE_LIMIT for c in costs.values())
    passed = within and pairs["verdict"] == "inside"
    figures = {
        "hz": HZ,
        "cost": costs,
        **pairs,
        "workload": f"int32 matrix product of order {len(workload.a)}; it and the sampler on one core",
        "limits": {"cpu_share": SHARE_LIMIT, "p50_ratio": [1 - RATIO_LIMIT, 1 + RATIO_LIMIT]},
    }
    publish("sampler_cost", figures, met=passed)
    for place, cost in costs.items():
        print(f"{place}: {cost['cpu_share']:.2%} of one core, {cost['missed_ticks']} ticks missed")
    r = pairs["p50_ratio"]
    print(f"p50 ratio {r['value']:.4f} [{r['lo']:.4f}, {r['hi']:.4f}], {r['n']} pairs: {pairs['verdict']}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
