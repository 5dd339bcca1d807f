"""A SIMULATED board with the power modes of a Jetson AGX Orin: no figure of it was measured on any board.

The grid is real (6 core counts x 14 CPU clocks x 13 GPU clocks x 4 memory clocks = 4,368 modes, those of
PowerTrain's study); time and power are made by the formulas below, so that the truth of every mode is known.
They are not the predictor's formulas: layers are bound one by one, the voltage curve has a knee, memory stalls
the CPU, and leakage grows with heat.

    layer    max(FLOPs / (2 x 2048 x f_gpu x efficiency), bytes / (204.8 GB/s x f_mem / 3.199 GHz), launch /
    f_cpu) + 2 us GPU      the sum over layers
    CPU      (serial + parallel / min(cores - 0.5, workers)) cycles / f_cpu + bytes fetched / memory bandwidth
    time     max(CPU, GPU) + (1 - overlap) x min(CPU, GPU)
    voltage  flat to a knee at 45 % of the highest clock, then rising quadratically to its highest value
    power    [static + cores online x (leakage V + C V^2 f x utilisation) + GPU (leakage V + C V^2 f x (0.25 +
    0.75 utilisation))
             + memory (W at full clock x f + J/byte x bytes/s)] x (1 + 0.0015 per watt above 10)
    noise    log-normal, 1.5 % of time and 1.5 % of power, another one for each run
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

CORES = (2, 4, 6, 8, 10, 12)
CPU_KHZ = (268800, 422400, 576000, 729600, 883200, 1036800, 1190400, 1344000)
CPU_KHZ += (1497600, 1651200, 1804800, 1958400, 2112000, 2201600)
GPU_MHZ = (
    114.75,
    216.75,
    318.75,
    420.75,
    522.75,
    624.75,
    726.75,
    828.75,
    930.75,
    1032.75,
    1134.75,
    1236.75,
    1300.5,
)
MEMORY_MHZ = (204.0, 665.6, 2133.0, 3199.0)
TIME_NOISE = POWER_NOISE = 0.015


@dataclass(frozen=True)
class Load:
    """One minibatch of a training workload."""

    layers: tuple[tuple[float, float], ...]
    """(GFLOP, MB moved) of each kernel."""
    serial: float
    """Millions of CPU cycles of one minibatch that use one core."""
    parallel: float
    """Millions of CPU cycles that the loader's workers share."""
    fetched: float
    """MB that the CPU reads and writes."""
    workers: int = 4
    overlap: float = 0.9
    efficiency: float = 0.35
    launch: float = 25_000.0
    """CPU cycles that one kernel's launch takes."""


def _network(kernels: int, gflop: float, megabytes: float, seed: int) -> tuple[tuple[float, float], ...]:
    rng = np.random.default_rng(seed)
    work, moved = (np.exp(rng.normal(0, 1.0, kernels)) for _ in range(2))
    return tuple(
        zip((work / work.sum() * gflop).tolist(), (moved / moved.sum() * megabytes).tolist(), strict=True)
    )


#: Batch 16, forward and backward; sizes as large as those of the networks that they are named after.
LOADS: Mapping[str, Load] = {
    "resnet18_like": Load(_network(180, 53.0, 900.0, 1), 8.0, 40.0, 12.0),
    "mobilenet_like": Load(_network(420, 21.0, 2200.0, 2), 25.0, 700.0, 90.0),
    "lenet_like": Load(_network(45, 0.04, 6.0, 3), 9.0, 6.0, 0.5),
}


def modes() -> list[dict[str, float]]:
    """Return the knobs of the 4,368 modes."""
    return [
        {"cpu_cores": float(c), "cpu_hz": f * 1e3, "gpu_hz": g * 1e6, "memory_hz": m * 1e6}
        for c, f, g, m in itertools.product(CORES, CPU_KHZ, GPU_MHZ, MEMORY_MHZ)
    ]


def truth(load: Load, mode: Mapping[str, float]) -> tuple[float, float]:
    """Return (seconds of one minibatch, watts) without noise."""
    cpu_hz, bandwidth = mode["cpu_hz"], 204.8e9 * mode["memory_hz"] / 3199e6
    peak = 2 * 2048 * mode["gpu_hz"] * load.efficiency
    work, moved = np.array(load.layers).T * np.array([[1e9], [1e6]])
    gpu = float(np.sum(np.maximum(np.maximum(work / peak, moved / bandwidth), load.launch / cpu_hz) + 2e-6))
    spread = min(mode["cpu_cores"] - 0.5, load.workers)
    cpu = (load.serial + load.parallel / spread) * 1e6 / cpu_hz + load.fetched * 1e6 / bandwidth
    seconds = max(cpu, gpu) + (1 - load.overlap) * min(cpu, gpu)
    busy = float(np.sum(np.maximum(work / peak, moved / bandwidth))) / seconds
    cycles = (load.serial + load.parallel) * 1e6 + load.launch * len(load.layers)
    use = min(1.0, cycles / cpu_hz / seconds / mode["cpu_cores"])
    cpu_v, gpu_v = voltage(cpu_hz / 2201.6e6), voltage(mode["gpu_hz"] / 1300.5e6)
    watts = 6.0 + mode["cpu_cores"] * (0.18 * cpu_v + 1.35 * cpu_v**2 * (cpu_hz / 2.2016e9) * use)
    watts += 2.2 * gpu_v + 24.0 * gpu_v**2 * (mode["gpu_hz"] / 1.3005e9) * (0.25 + 0.75 * busy)
    traffic = (float(moved.sum()) + load.fetched * 1e6) / seconds
    watts += 2.5 * mode["memory_hz"] / 3199e6 + 45e-12 * traffic
    return seconds, watts * (1 + 0.0015 * max(0.0, watts - 10))


def voltage(share: float) -> float:
    """Return the voltage at a share of the highest clock, as a share of the highest voltage."""
    return (
        0.62
        if share < 0.45
        else 0.62 + 0.38 * ((share - 0.45) / 0.55) ** 2 * 0.5 + 0.19 * (share - 0.45) / 0.55
    )


def run(name: str, mode: Mapping[str, float], replicate: int = 0) -> tuple[float, float]:
    """Return (seconds, watts) of one simulated run, with its noise."""
    key = f"{name} {sorted(mode.items())} {replicate}"
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    seconds, watts = truth(LOADS[name], mode)
    return seconds * float(np.exp(rng.normal(0, TIME_NOISE))), watts * float(
        np.exp(rng.normal(0, POWER_NOISE))
    )
