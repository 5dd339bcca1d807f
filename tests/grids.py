"""Grids made by formula, for developing and testing the search: plausible shapes, none of them measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgescope.models import zoo
from edgescope.records import Measured, Trial

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from search_regret import Row

GPU_MODELS = {
    name: float(zoo.table()[name]["macs"]) for name in ("resnet50", "fcn_resnet50", "yolov8n_class")
}
"""Model -> MACs, as the zoo knows them."""


def gpu_cells() -> list[Trial]:
    out = []
    for model in GPU_MODELS:
        for precision in ("fp32", "fp16"):
            for batch in (1, 4, 16):
                for processes in (1, 2, 4, 8):
                    for sharing in ("time_slicing", "mps") if processes > 1 else ("time_slicing",):
                        out.append(
                            Trial(
                                model=model,
                                backend="tensorrt",
                                device="cuda",
                                precision=precision,
                                batch=batch,
                                processes=processes,
                                sharing=sharing,
                            )
                        )
    return out


def gpu(shape: int = 0) -> tuple[list[Trial], list[float]]:
    """A GPU that slices time or shares itself; `shape` draws its constants. Returns cells and samples/s."""
    rng = np.random.default_rng([7, shape])
    flops = 10 ** rng.uniform(13, 14.5)
    launch, gain16 = 10 ** rng.uniform(-4.2, -3.2), rng.uniform(1.3, 3.2)
    fill, slicing = rng.uniform(4, 60), rng.uniform(0.75, 1.05)
    eff = {m: rng.uniform(0.5, 1.5) for m in GPU_MODELS}
    found = []
    for t in gpu_cells():
        peak = flops * eff[t.model] * (gain16 if t.precision == "fp16" else 1)
        work = 2 * GPU_MODELS[t.model] * t.batch
        wide = work / (2 * 4e9)  # how much of the device one query fills
        share = wide / (wide + fill / 8)
        alone = work / (peak * share) + launch
        if t.sharing == "mps":
            busy = min(1.0, share * t.processes * rng.uniform(0.9, 1.0))
            speed = min(t.processes / alone, peak * busy / work)
        else:
            overlap = min(1.0 + 0.5 * launch / alone * min(t.processes - 1, 2), 1.5)
            speed = overlap / alone * (slicing if t.processes > 1 else 1.0)
        found.append(speed * t.batch * np.exp(rng.normal(0, 0.03)))
    return gpu_cells(), found


def cpu_cells() -> list[Trial]:
    out = []
    for backend in ("onnxruntime", "openvino"):
        for precision in ("fp32", "int8"):
            for batch in (1, 2, 4, 8, 16):
                for processes in (1, 2, 4):
                    for threads in (1, 2):
                        out.append(
                            Trial(
                                model="resnet50",
                                backend=backend,
                                precision=precision,
                                batch=batch,
                                processes=processes,
                                options={"threads": threads},
                            )
                        )
    return out + [replace(t, sharing="pinned") for t in out if t.processes == 2]


def cpu(shape: int = 0) -> tuple[list[Trial], list[float]]:
    """Two cores."""
    rng = np.random.default_rng([9, shape])
    base = 10 ** rng.uniform(0.5, 2.0)
    gain8 = {b: rng.uniform(1.2, 3.5) for b in ("onnxruntime", "openvino")}
    level = {b: rng.uniform(0.8, 1.3) for b in gain8}
    scaling, crowd, grow = rng.uniform(0.7, 0.95), rng.uniform(0.85, 1.0), rng.uniform(-0.05, 0.08)
    cache, pin = rng.uniform(0.85, 1.0), rng.uniform(0.97, 1.08)
    found = []
    for t in cpu_cells():
        asked = t.processes * int(t.options["threads"])
        cores = min(2, asked)
        speed = base * level[t.backend] * (gain8[t.backend] if t.precision == "int8" else 1)
        speed *= {1: 1.0, 2: 2 * (scaling if t.processes == 1 else 0.5 + scaling / 2)}[cores]
        speed *= crowd ** max(0, np.log2(asked / 2)) * (1 + grow * np.log2(t.batch))
        speed *= cache if t.batch * t.processes >= 16 else 1.0
        speed *= pin if t.sharing == "pinned" else 1.0
        found.append(speed * np.exp(rng.normal(0, 0.02)))
    return cpu_cells(), found


def rough(shape: int = 0) -> tuple[list[Trial], list[float]]:
    """No physics: random effects of every level and every pair of levels, pairs a third as strong."""
    rng = np.random.default_rng([11, shape])
    cells = cpu_cells()
    keys = [(t.backend, t.precision, t.batch, t.processes, t.options["threads"], t.sharing) for t in cells]
    out = np.zeros(len(cells))
    for a in range(6):
        effect = {k: rng.normal(0, 0.3) for k in sorted({c[a] for c in keys}, key=str)}
        out += [effect[c[a]] for c in keys]
        for b in range(a):
            pair = {k: rng.normal(0, 0.1) for k in sorted({(c[a], c[b]) for c in keys}, key=str)}
            out += [pair[c[a], c[b]] for c in keys]
    return cells, [100 * float(x) for x in np.exp(out)]


def rows(cells: list[Trial], speeds: list[float], seed: int, noise: float = 0.01) -> list[Row]:
    """One measurement of every cell: throughput as given, the rest by Little's law, constant watts and memory."""
    rng = np.random.default_rng([13, seed])
    tail = np.random.default_rng(17)
    out = []
    for t, speed in zip(cells, speeds, strict=True):
        shape = 1.1 + 0.05 * t.processes + 0.2 * tail.random()
        sps = speed * np.exp(rng.normal(0, noise))
        mean = t.processes * t.batch / sps
        watts = (40 + 8 * t.processes + 2 * t.batch) * np.exp(rng.normal(0, noise))
        memory = t.processes * (2e8 + 2 * t.batch * 2e7) * (0.6 if t.precision in ("fp16", "int8") else 1.0)
        p99 = mean * shape * np.exp(rng.normal(0, 3 * noise))
        out.append(
            Row(
                throughput_sps=Measured(sps, "samples/s"),
                p50_s=Measured(mean, "s"),
                p99_s=Measured(p99, "s", hi=p99 * 1.05),
                power_w=Measured(watts, "W"),
                energy_per_sample_j=Measured(watts / sps, "J"),
                peak_rss_bytes=Measured(memory, "bytes"),
            )
        )
    return out
