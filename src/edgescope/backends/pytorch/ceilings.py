"""Measures what this machine can do at most: the ceilings that analysis/roofline.py holds networks against.

Through PyTorch: the largest FLOP/s of a matrix product in each precision (int8: integer operations), the bandwidth of
copying and of reading a working set of each size, the time to launch nothing and wait for it (on a GPU, an empty CUDA
graph), and the time to copy to and from the device. Each is the best of many repeats: a ceiling is what is possible,
not what is usual.

    python -m edgescope.backends.pytorch.ceilings cpu|cuda SECONDS        prints the figures as JSON
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from edgescope import registry

ON_HOST, ELSEWHERE = (512, 1024, 2048, 4096), (2048, 4096, 8192)
"""Sides of the matrices whose product is timed."""
KINDS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KINDS |= {"int8": torch.int8}
WORKING_SETS = tuple(2**n for n in range(18, 30))
"""256 KiB to 512 MiB: within every cache to far beyond it."""
COPIES = (4_000, 65_536, 602_112, 4_194_304, 33_554_432)
"""Bytes between host and device; 602,112 is one 3x224x224 image in fp32, 4,000 its 1,000 scores."""
MIN_REPEATS = 5


def measured(device: str, seconds: float) -> dict[str, Any]:
    """Return the ceilings of a device, each figure the best of `seconds`."""
    best = Best(device, seconds)
    with torch.inference_mode():
        flops = {name: peak(best, name) for name in KINDS if best.place.cuda or name != "tf32"}
        return {
            "device": device,
            "flops": believable(flops),
            "bandwidth": [{"bytes": n, "value": bandwidth(best, n)} for n in WORKING_SETS],
            "launch_s": launch(best),
            "h2d": copies(best, to_device=True),
            "d2h": copies(best, to_device=False),
        }


class Best:
    """Times a function as often as the seconds allow and keeps the shortest time."""

    def __init__(self, device: str, seconds: float) -> None:
        self.place, self.seconds = registry.place(device), seconds
        self.device = self.place.called("torch")
        self.synchronize = (
            registry.need(self.place.synchronize, "PyTorch", "") if self.place.synchronize else None
        )

    def of(self, work: Callable[[], object]) -> float:
        """Seconds of the fastest of many calls, device work included."""
        for _ in range(2):
            work()
        self.wait()
        times: list[float] = []
        stop = time.perf_counter() + self.seconds
        while len(times) < MIN_REPEATS or time.perf_counter() < stop:
            start = time.perf_counter()
            work()
            self.wait()
            times.append(time.perf_counter() - start)
        return min(times)

    def many(self, work: Callable[[], object], calls: int) -> float:
        """Seconds of one of `calls` back to back, so that the launch of one hides behind another."""

        def repeated() -> None:
            for _ in range(calls):
                work()

        return self.of(repeated) / calls

    def wait(self) -> None:
        """Return once the device has nothing left to do."""
        if self.synchronize:
            self.synchronize()


def peak(best: Best, name: str) -> dict[str, Any]:
    """Largest FLOP/s over matrix sizes: {value, size, unit} or {absent}.

    Sizes grow until one product takes longer than the seconds of a figure. A CPU without fp16 of its own takes a second
    for the smallest, and would take half an hour for the largest.
    """
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    found: dict[str, Any] = {}
    for n in ON_HOST if best.place.is_host else ELSEWHERE:
        try:
            once = best.of(product(best.device, name, n))
        except (RuntimeError, NotImplementedError) as error:
            return {"absent": f"{name} matrix product: {str(error).splitlines()[0][:160]}"}
        if (rate := 2 * n**3 / once) > found.get("value", 0.0):
            found = {"value": rate, "size": n, "unit": "FLOP/s"}
        if once > best.seconds:
            break
    return found


def believable(flops: dict[str, Any]) -> dict[str, Any]:
    """Leave out an int8 rate below that of 16-bit floats: hardware that has both is never slower in int8.

    PyTorch's int8 product is then not the hardware's, and a bound taken from it would be none.
    """
    wider = max((flops[n].get("value", 0.0) for n in ("fp16", "bf16")), default=0.0)
    rate = flops["int8"].get("value", wider)
    if rate >= wider:
        return flops
    why = f"PyTorch's int8 product reached {rate:.3g} FLOP/s, 16-bit floats {wider:.3g}: it is no ceiling"
    return flops | {"int8": {"absent": why}}


def product(device: str, name: str, n: int) -> Callable[[], object]:
    """An n x n product into memory that is already there."""
    if name == "int8":
        a, b = (torch.randint(-127, 127, (n, n), dtype=torch.int8, device=device) for _ in range(2))
        transposed = b.t()
        return lambda: torch._int_mm(a, transposed)
    a, b = (torch.randn(n, n, device=device, dtype=KINDS[name]) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def bandwidth(best: Best, size: int) -> float:
    """Bytes/s of the better of copying and of reading a working set of `size` bytes."""
    half = torch.ones(size // 8, device=best.device)
    target, whole = torch.empty_like(half), torch.ones(size // 4, device=best.device)
    calls = max(1, min(200, 2**26 // size))
    copied = best.many(lambda: target.copy_(half), calls)
    read = best.many(lambda: torch.dot(whole, whole), calls)
    return size / min(copied, read)


def launch(best: Best) -> float:
    """Seconds of the least a query can cost: an empty graph launched and waited for; without graphs an empty call."""
    if not best.place.cuda:
        return best.many(lambda: None, 1000)
    graph, cell = torch.cuda.CUDAGraph(), torch.zeros(1, device=best.device)
    with torch.cuda.graph(graph):
        cell.add_(0)
    return best.of(graph.replay)


def copies(best: Best, *, to_device: bool) -> list[dict[str, float]]:
    """Seconds of a copy between pinned host memory and the device, by size; none where the host is the device."""
    if not best.place.own_memory:
        return []
    found = []
    for size in COPIES:
        host, device = torch.ones(size // 4).pin_memory(), torch.ones(size // 4, device=best.device)
        target, source = (device, host) if to_device else (host, device)
        seconds = best.many(functools.partial(target.copy_, source, non_blocking=True), 20)
        found.append({"bytes": size, "value": seconds})
    return found


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], float(sys.argv[2]))))
