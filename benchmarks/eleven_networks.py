"""Where a query of each network's best variants goes on a GPU, kernel by kernel, and what the obvious remedies gain.

The networks are those of the eleven-network table (published/nano_table.json), at batch 1. Beside eager fp32, each
variant is one module, captured in one CUDA graph with its copies, timed without a profiler, by CUDA events around the
graph, and once more under torch's profiler. The account of a clean query is kernels + copies (from the trace) + gaps
between them (what the events add) + host (what the clean time adds): it closes if what kernels and copies leave of the
query is not below zero by more than 2 % of it, and the named kernels sum to the kernels within 2 %. Remedies: batch
norms folded and activations fused (cuDNN), inductor, pools in the other layout, 1x1 convolutions as products, the
input's copy outside of the graph, inputs in 8 bit. Outputs are compared with the fp32 network's. First every network
gets the two variants that mostly win without a compiler, then those below 7x over eager get the compiler, then the
rest, so that what time cuts off is the least. Figures are written after each variant; `summary` has each network's
pick, its ratio and its largest kernels.

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

from edgescope.backends.pytorch import cuda
from edgescope.backends.pytorch.module import folded
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.verify.measures import centred_l2
from edgescope.wings.studies.jetson_nano.table import study

TIMED_S, TRACED, TOP = 0.5, 40, 12
GATE = 8
LIMIT = 0.1
"""The largest centred distance from fp32 that counts as the same network."""
ASKED, CLOSE = 7.0, 0.02
"""The speed-up that was asked for, and the share of a query within which its account must close."""
BASELINE = "eager fp32"
PASSES = ((BASELINE, "half, folded", "half"), ("half, compiled", "half, compiled, 1x1 as products"), ())
"""Labels in the order in which networks get them; the last pass has all that are left."""
COMPILING_S, PLAIN_S = 25.0, 5.0
"""Seconds that a variant may need: it does not begin with less."""
Run = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(row.ours for row in study().rows))
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=280.0, help="no variant begins after these")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # eager fp32 is fp32
    run = Networks(args.models.split(","), args.device, time.monotonic() + args.seconds, args.json)
    for number in range(len(PASSES)):
        for name in sorted(run.names, key=run.ratio):  # those furthest from what was asked come first
            if number == 0 or run.ratio(name) < ASKED:
                run.examine(name, number)
    run.write()


class Networks:
    """The networks, and what was found of each."""

    def __init__(self, names: Sequence[str], device: str, stop: float, path: Path | None) -> None:
        self.names, self.device, self.stop, self.path = names, device, stop, path
        self.found: dict[str, dict[str, Any]] = {name: {} for name in names}
        self._held: dict[str, tuple[Any, list[torch.Tensor], Any]] = {}

    def ratio(self, name: str) -> float:
        """Return the best variant's speed-up over eager fp32; 0 if there is none yet."""
        return float(summary(self.found[name]).get("ratio") or 0.0)

    def examine(self, name: str, number: int) -> None:
        """Measure a network's variants of one pass."""
        try:
            if name not in self._held:
                self._held[name] = _reference(name)
            model, rows, wanted = self._held[name]
            out = self.found[name]
            for label, make in variants(model, rows, self.device):
                if label in out or (PASSES[number] and label not in PASSES[number]):
                    continue
                if label == "half" and "clean_us" in out.get("half, folded", {}):
                    continue  # the same network with more kernels
                if time.monotonic() > self.stop - (COMPILING_S if "compiled" in label else PLAIN_S):
                    continue
                self._variant(name, label, make, rows, wanted)
        except Exception as error:
            traceback.print_exc()
            self.found[name].setdefault("network", {"failed": f"{type(error).__name__}: {error}"[:300]})
        self.write()

    def _variant(self, name: str, label: str, make: Callable[[], Made], rows: Any, wanted: Any) -> None:
        try:
            got = one(make, rows, wanted, self.device)
        except Exception as error:
            got = {"failed": f"{type(error).__name__}: {error}"[:300]}
        self.found[name][label] = got
        text = got.get("failed") or f"{got['clean_us']:8.1f} us  {got['account']}"
        print(f"{name:16} {label:34} {text}"[:220], flush=True)
        if self.device == "cuda":
            torch.compiler.reset()
            torch.cuda.empty_cache()
        self.write()

    def write(self) -> None:
        """Write the page; a failure is printed."""
        table = {name: summary(found) for name, found in self.found.items()}
        page = {"device": self.device, "summary": table, "networks": self.found}
        met = all(row.get("met", False) for row in table.values())
        try:
            if self.path is None:
                facts.write(f"eleven_networks_{self.device}", page, met=met)
            else:
                self.path.write_text(json.dumps(facts.page(page, met=met), indent=1))
        except Exception:
            traceback.print_exc()


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return a network's best variant, its speed-up over eager fp32, and where its query goes."""
    eager = found.get(BASELINE, {}).get("clean_us")
    timed = {k: v for k, v in found.items() if k != BASELINE and v.get("same") and "clean_us" in v}
    if not eager or not timed:
        return {"absent": "no baseline" if not eager else "no variant with the right outputs"}
    label = min(timed, key=lambda k: timed[k]["clean_us"])
    best = timed[label]
    account = best["account"] if isinstance(best["account"], dict) else {}
    ratio = eager / best["clean_us"]
    return {
        "pick": label,
        "eager_us": eager,
        "pick_us": best["clean_us"],
        "ratio": ratio,
        "parts_us": {
            name: account.get(f"{name}_us") for name in ("kernels", "copies", "gaps", "host", "rest")
        },
        "closes": account.get("closes"),
        "largest": [
            {**row, "share": round(row["us"] / best["clean_us"], 4)} for row in account.get("top", ())[:5]
        ],
        "met": ratio >= ASKED or bool(account.get("closes")),
        "tried": sorted(timed),
    }


def _reference(name: str) -> tuple[Any, list[torch.Tensor], Any]:
    """Return the network, some inputs, and its fp32 answers."""
    model = zoo.get(name)
    samples = model.samples(Purpose.GATE, GATE) or model.samples(Purpose.BENCH, GATE)
    assert samples is not None
    rows = [torch.from_numpy(np.ascontiguousarray(samples.arrays[i.name][:GATE])) for i in model.inputs]
    with torch.inference_mode():
        return model, rows, _first(model.module().eval()(*rows)).float().numpy()


Made = tuple[nn.Module, torch.dtype, str]
"""A module on its device, the type of its inputs, and where the input's copy is: graph, outside; eager has no graph."""


def variants(
    model: Any, rows: Sequence[torch.Tensor], device: str
) -> Iterator[tuple[str, Callable[[], Made]]]:
    """Yield (label, function that makes it)."""
    half = torch.float16 if device == "cuda" else torch.bfloat16
    rank = rows[0].dim()
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank)

    def plain(dtype: torch.dtype, *, layout: bool = True, folds: bool = False) -> nn.Module:
        module = model.module().eval()
        module = folded(module) if folds else module
        module = module.to(device, dtype)
        return module.to(memory_format=last) if layout and last is not None else module

    def compiled(**options: Any) -> nn.Module:
        chosen = {"freezing": True, **options}  # of this variant: a global setting would reach those after it
        return torch.compile(plain(half), dynamic=False, options=chosen)  # type: ignore[return-value]

    yield BASELINE, lambda: (plain(torch.float32, layout=False), torch.float32, "eager")
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
    run, answer, on_gpu = prepared(module, dtype, copy, rows, device)
    got = np.concatenate([answer(i) for i in range(len(rows[0]))])
    error = float(centred_l2(got, wanted))
    clean = clean_s(run)
    found: dict[str, Any] = {"clean_us": clean * 1e6, "error": error, "same": error <= LIMIT}
    found["account"] = (
        account(run, clean, events_us(on_gpu)) if device == "cuda" else "no GPU: nothing to account for"
    )
    return found | {"seconds": round(time.monotonic() - begun, 1)}


Submit = Callable[[], None]
"""Submits a query's work to the GPU, without waiting for it."""


def prepared(
    module: nn.Module, dtype: torch.dtype, copy: str, rows: Sequence[torch.Tensor], device: str
) -> tuple[Run, Callable[[int], Any], tuple[Any, Submit] | None]:
    """Return (a query, the answer to one of the rows, its stream and what submits it or None)."""
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

        return host, host, None

    if copy == "eager":

        def eager(i: int = 0) -> Any:
            with torch.inference_mode():
                return forward([x.to(device) for x in given[i]])[0].cpu().numpy()

        return eager, eager, None
    io = "host" if copy == "graph" else "pinned"
    held = [[t.pin_memory() for t in g] if io == "pinned" else [t.numpy() for t in g] for g in given]
    captured = cuda._Captured(forward, held[0], io, dtype)
    captured.replay(held[0])

    def answer(i: int) -> Any:
        return np.array(captured.replay(held[i])[0])

    def submit() -> None:
        if captured.whole is not None:
            captured.whole.replay()
            return
        captured._upload(held[0])
        captured.compute.replay()
        captured._download(captured.outputs)

    return lambda: captured.replay(held[0]), answer, (captured.stream, submit)


def events_us(on_gpu: tuple[Any, Submit] | None) -> float | None:
    """Return the median microseconds between events before and after a query's work; None without a graph."""
    if on_gpu is None:
        return None
    (stream, submit), times = on_gpu, []
    for _ in range(40):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        with torch.inference_mode(), torch.cuda.stream(stream):
            first.record(stream)
            submit()
            last.record(stream)
        stream.synchronize()
        times.append(first.elapsed_time(last) * 1e3)
    return statistics.median(times[5:])


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


def account(run: Run, clean: float, on_gpu_us: float | None) -> dict[str, Any]:
    """Return where a query's time goes in microseconds: that of a traced query, and that of a clean one."""
    run()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
        for _ in range(TRACED):
            with record_function("query"):
                run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        traced.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    found = of_events(events, clean)
    return (
        found if "failed" in found or on_gpu_us is None else found | of_clean(found, clean * 1e6, on_gpu_us)
    )


def of_clean(found: dict[str, Any], clean_us: float, on_gpu_us: float) -> dict[str, Any]:
    """Return the parts that only the clean query shows, and whether the account of it closes.

    Events around the work cost a few microseconds themselves. Where they see more than the clean query took, gaps and
    host are not separable, and are told together as `rest`.
    """
    rest = clean_us - found["kernels_us"] - found["copies_us"]
    gaps, host = on_gpu_us - found["kernels_us"] - found["copies_us"], clean_us - on_gpu_us
    separable = min(gaps, host) >= -CLOSE * clean_us
    named = abs(found["named_over_kernels"] - 1) <= CLOSE and abs(found["sum_over_traced"] - 1) <= CLOSE
    return {
        "on_gpu_us": round(on_gpu_us, 2),
        "gaps_us": round(gaps, 2) if separable else None,
        "host_us": round(host, 2) if separable else None,
        "rest_us": round(rest, 2),
        "closes": named and rest >= -CLOSE * clean_us,
    }


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
    by_kernels = [row["kernels_us"] for row in rows]
    first, last = queries[0][0], queries[-1][1]
    named = [float(e["dur"]) for e in kernels if first <= e["ts"] < last]
    top = sorted(((name, sum(d) / n, len(d) / n) for name, d in names.items()), key=lambda r: -r[1])[:TOP]
    return {
        **{name: round(value, 2) for name, value in middle.items()},
        "sum_over_traced": round(whole / middle["traced_us"], 4),
        "named_over_kernels": round(sum(named) / sum(by_kernels), 4) if sum(by_kernels) else None,
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
