"""Where a query of each network's best variants goes on a GPU, kernel by kernel, and what the obvious remedies gain.

The networks are those of the eleven-network table (published/nano_table_cuda.json), at batch 1. Each variant is one
module, captured in one CUDA graph with its copies, timed without a profiler, then once more under torch's profiler: the
time of a query is split into kernels, copies beside no kernel, and idle, which sum to the traced time; the traced time
stands beside the clean one. Remedies: batch norms folded and activations fused (cuDNN), pools in the other layout,
inductor, 1x1 convolutions as products, the input's copy outside of the graph, inputs in 8 bit. Outputs are compared
with the fp32 network's. Partial figures are written after each variant.

    python benchmarks/eleven_networks.py [--models resnet50,mobilenet_v2] [--seconds 280] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import facts
import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from edgescope.backends.pytorch import cuda, fold
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.verify.closeness import centred_l2

FOUR = "resnet50,mobilenet_v2,squeezenet1_1,alexnet"
TIMED_S, TRACED, TOP = 0.6, 40, 10
GATE = 16
LIMIT = 0.1
"""The largest centred distance from fp32 that counts as the same network."""
Run = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=FOUR)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=280.0, help="no variant begins after these")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    stop, figures = time.monotonic() + args.seconds, dict[str, Any]()
    torch.backends.cudnn.benchmark = True
    for name in args.models.split(","):
        figures[name] = {}
        try:
            examined(name, args.device, figures[name], stop, lambda: _write(args.json, args.device, figures))
        except Exception as error:
            traceback.print_exc()
            figures[name]["failed"] = f"{type(error).__name__}: {error}"[:300]
        _write(args.json, args.device, figures)


def _write(path: Path | None, device: str, figures: dict[str, Any]) -> None:
    page = {"device": device, "networks": figures}
    if path is None:
        facts.write(f"eleven_networks_{device}", page, met=False)
    else:
        path.write_text(json.dumps({"machine_id": facts.machine_id(), "figures": page}, indent=1))


def examined(name: str, device: str, out: dict[str, Any], stop: float, keep: Callable[[], None]) -> None:
    """Measure every variant of one network into `out`."""
    model = zoo.get(name)
    samples = model.samples(Purpose.GATE, GATE) or model.samples(Purpose.BENCH, GATE)
    assert samples is not None
    rows = [torch.from_numpy(np.ascontiguousarray(samples.arrays[i.name][:GATE])) for i in model.inputs]
    with torch.inference_mode():
        wanted = _first(model.module().eval()(*rows)).float().numpy()
    for label, make in variants(model, rows, device):
        if time.monotonic() > stop:
            out[label] = {"failed": "no time was left"}
            continue
        try:
            out[label] = one(make, rows, wanted, device)
        except Exception as error:
            out[label] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        found = out[label]
        text = found.get("failed") or f"{found['clean_us']:8.1f} us  {found['account']}"
        print(f"{name:16} {label:34} {text}"[:220], flush=True)
        keep()


Made = tuple[nn.Module, torch.dtype, str]
"""A module on its device, the type of its inputs, and where the input's copy is: graph or outside."""


def variants(
    model: Any, rows: Sequence[torch.Tensor], device: str
) -> Iterator[tuple[str, Callable[[], Made]]]:
    """Yield (label, function that makes it)."""
    half = torch.float16 if device == "cuda" else torch.bfloat16
    rank = rows[0].dim()
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank)

    def plain(dtype: torch.dtype, *, layout: bool = True, folds: bool = False) -> nn.Module:
        module = model.module().eval()
        module = fold.folded(module) if folds else module
        module = module.to(device, dtype)
        return module.to(memory_format=last) if layout and last is not None else module

    def compiled(**options: Any) -> nn.Module:
        chosen = {"freezing": True, **options}  # of this variant: a global setting would reach those after it
        return torch.compile(plain(half), dynamic=False, options=chosen)  # type: ignore[return-value]

    yield "fp32", lambda: (plain(torch.float32, layout=False), torch.float32, "graph")
    yield "half", lambda: (plain(half), half, "graph")
    yield "half, contiguous", lambda: (plain(half, layout=False), half, "graph")
    if device == "cuda":
        yield "half, folded", lambda: (plain(half, folds=True), half, "graph")
        yield "half, folded, pools in NCHW", lambda: (_pools(plain(half, folds=True), Nchw), half, "graph")
        yield (
            "half, folded, pools by slices",
            lambda: (_pools(plain(half, folds=True), Slices), half, "graph"),
        )
        yield "half, folded, copy outside", lambda: (plain(half, folds=True), half, "outside")
    yield (
        "half, inputs in 8 bit",
        lambda: (Bytes(plain(half), half, rows[0]).to(device), torch.uint8, "graph"),
    )
    yield "half, compiled", lambda: (compiled(), half, "graph")
    yield "half, compiled, 1x1 as products", lambda: (compiled(conv_1x1_as_mm=True), half, "graph")
    yield "half, compiled, copy outside", lambda: (compiled(), half, "outside")


class Nchw(nn.Module):
    """A max-pool that runs in NCHW whatever the layout around it."""

    def __init__(self, pool: nn.MaxPool2d) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the pool's output in the layout of its input."""
        out = self.pool(x.contiguous())
        return out.contiguous(memory_format=torch.channels_last)


class Slices(nn.Module):
    """A max-pool as the largest of shifted views: elementwise kernels in any layout."""

    def __init__(self, pool: nn.MaxPool2d) -> None:
        super().__init__()
        self.pool = pool
        side = (pool.kernel_size, pool.stride, pool.padding)
        self.kernel, self.stride, self.padding = (s if isinstance(s, int) else s[0] for s in side)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the pool's output; a pool that rounds up runs as it is."""
        if self.pool.ceil_mode or self.pool.dilation not in (1, (1, 1)):
            return self.pool(x)
        k, s, p = self.kernel, self.stride, self.padding
        x = nn.functional.pad(x, (p, p, p, p), value=float("-inf")) if p else x
        high, wide = (x.shape[2] - k) // s + 1, (x.shape[3] - k) // s + 1
        found = None
        for i in range(k):
            for j in range(k):
                view = x[:, :, i : i + s * (high - 1) + 1 : s, j : j + s * (wide - 1) + 1 : s]
                found = view if found is None else torch.maximum(found, view)
        assert found is not None
        return found


def _pools(module: nn.Module, wrapper: type[nn.Module]) -> nn.Module:
    """Replace every max-pool; an error if there is none."""
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.MaxPool2d):
                setattr(parent, name, wrapper(child))
                count += 1
    if not count:
        raise ValueError("there is no max-pool in it")
    return module


class Bytes(nn.Module):
    """A network whose inputs cross the bus in 8 bit and are scaled on the device."""

    def __init__(self, network: nn.Module, dtype: torch.dtype, example: torch.Tensor) -> None:
        super().__init__()
        self.network, self.dtype = network, dtype
        self.low = float(example.min())
        self.step = (float(example.max()) - self.low) / 255 or 1.0

    def packed(self, x: torch.Tensor) -> torch.Tensor:
        """Return an input as it crosses the bus."""
        return ((x - self.low) / self.step).round().clamp(0, 255).to(torch.uint8)

    def forward(self, x: torch.Tensor) -> Any:
        """Return the network's output for packed inputs."""
        return self.network(x.to(self.dtype) * self.step + self.low)


def _first(out: Any) -> torch.Tensor:
    while not isinstance(out, torch.Tensor):
        out = next(iter(out.values() if isinstance(out, dict) else out))
    return out


def one(make: Callable[[], Made], rows: Sequence[torch.Tensor], wanted: Any, device: str) -> dict[str, Any]:
    """Return a variant's clean time, its account and how far it is from fp32."""
    begun = time.monotonic()
    module, dtype, copy = make()
    run, answer = prepared(module, dtype, copy, rows, device)
    got = np.concatenate([answer(i) for i in range(len(rows[0]))])
    error = float(centred_l2(got, wanted))
    clean = clean_s(run)
    found: dict[str, Any] = {"clean_us": clean * 1e6, "error": error, "same": error <= LIMIT}
    found["account"] = account(run, clean) if device == "cuda" else "no GPU: nothing to account for"
    return found | {"seconds": round(time.monotonic() - begun, 1)}


def prepared(
    module: nn.Module, dtype: torch.dtype, copy: str, rows: Sequence[torch.Tensor], device: str
) -> tuple[Run, Callable[[int], Any]]:
    """Return (a query, the answer to one of the rows)."""
    packed = module.packed if isinstance(module, Bytes) else lambda x: x.to(dtype)
    given = [[packed(r[i : i + 1]) for r in rows] for i in range(len(rows[0]))]

    def forward(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        last = {4: torch.channels_last, 5: torch.channels_last_3d}
        shaped = [
            x.contiguous(memory_format=last[x.dim()]) if x.dim() in last and dtype != torch.float32 else x
            for x in inputs
        ]
        return (_first(module(*shaped)).float(),)

    if device == "cpu":
        with torch.inference_mode():
            forward(given[0])

        def host(i: int = 0) -> Any:
            with torch.inference_mode():
                return forward(given[i])[0].numpy()

        return host, host
    io = "host" if copy == "graph" else "pinned"
    held = [[t.pin_memory() for t in g] if io == "pinned" else [t.numpy() for t in g] for g in given]
    captured = cuda._Captured(forward, held[0], io, dtype)
    captured.replay(held[0])

    def answer(i: int) -> Any:
        return np.array(captured.replay(held[i])[0])

    return lambda: captured.replay(held[0]), answer


def clean_s(run: Run) -> float:
    """Return the median seconds of a query without a profiler."""
    for _ in range(20):
        run()
    times, stop = [], time.perf_counter() + TIMED_S
    while time.perf_counter() < stop or len(times) < 10:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def account(run: Run, clean: float) -> dict[str, Any]:
    """Return what a traced query's time goes to, in microseconds; the parts sum to the traced query."""
    run()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
        for _ in range(TRACED):
            with record_function("query"):
                run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        traced.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return of_events(events, clean)


def of_events(events: Sequence[dict[str, Any]], clean: float) -> dict[str, Any]:
    """Return the account of the queries in a Kineto trace."""
    queries = sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("name") == "query" and e.get("cat") == "user_annotation"
    )[2:]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    copies = [e for e in events if e.get("cat") in ("gpu_memcpy", "gpu_memset")]
    if not queries or not kernels:
        return {"failed": f"{len(queries)} queries and {len(kernels)} kernels in the trace"}
    rows = [_of_query(q, kernels, copies) for q in queries]
    middle = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    whole = middle["kernels_us"] + middle["copies_us"] + middle["idle_us"]
    names: dict[str, list[float]] = defaultdict(list)
    for e in (*kernels, *copies):
        names[str(e["name"])].append(float(e["dur"]))
    n = len(queries) + 2
    top = sorted(((name, sum(d) / n, len(d) / n) for name, d in names.items()), key=lambda r: -r[1])[:TOP]
    return {
        **{name: round(value, 2) for name, value in middle.items()},
        "sum_over_traced": round(whole / middle["traced_us"], 4),
        "traced_over_clean": round(middle["traced_us"] / (clean * 1e6), 3),
        "top": [{"name": name[:120], "us": round(us, 2), "a_query": round(c, 2)} for name, us, c in top],
    }


def _of_query(query: tuple[float, float], kernels: Sequence[Any], copies: Sequence[Any]) -> dict[str, float]:
    start, end = query
    inside = [(e["ts"], e["ts"] + e["dur"]) for e in kernels if start <= e["ts"] < end]
    moved = [(e["ts"], e["ts"] + e["dur"]) for e in copies if start <= e["ts"] < end]
    busy, by_kernels = _covered([*inside, *moved]), _covered(inside)
    return {
        "traced_us": end - start,
        "kernels_us": by_kernels,
        "copies_us": busy - by_kernels,
        "idle_us": (end - start) - busy,
        "before_us": min((s for s, _ in (*inside, *moved)), default=end) - start,
        "after_us": end - max((e for _, e in (*inside, *moved)), default=start),
        "launches": float(len(inside)),
    }


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


if __name__ == "__main__":
    main()
