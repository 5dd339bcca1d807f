"""Results of concurrent runs made by hand, for tests of what reads them: a small world whose laws are known.

One process does `rate` samples a second at batch 1 and `rate * batch ** 0.3` at batch b. Time slicing gives P processes
1.2 times that in total, MPS 3.6 times at batch 1. Memory is 100 MB + P x (model + 2 x batch); power saturates at 300 W.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from edgescope.records import (
    Absent,
    Field,
    Machine,
    Measured,
    Meter,
    Result,
    Status,
    Trial,
    Trust,
    Verdict,
)
from edgescope.records.codec import message

GPU = Machine(
    {
        "cpu": {"cpu": "AMD EPYC 9R14", "physical_cores": 8, "logical_cores": 16, "memory_gib": 128},
        "nvidia": {
            "gpus": [{"name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-0", "memory_total_bytes": 85_520_809_984}]
        },
    },
    {"cpu": {"affinity": list(range(16))}},
)
CPU = Machine(
    {"cpu": {"cpu": "Intel Xeon", "physical_cores": 2, "logical_cores": 2}}, {"cpu": {"affinity": [0, 1]}}
)
RATES = {"resnet50": 900.0, "fcn_resnet50": 120.0, "yolov8n_class": 700.0, "squeezenet1_1": 400.0}
FASTER = {"fp32": 1.0, "tf32": 1.3, "fp16": 1.8, "bf16": 1.8, "int8": 2.4}
MODEL_MB = {"fp32": 400.0, "tf32": 400.0, "fp16": 220.0, "bf16": 220.0, "int8": 130.0}


def total(trial: Trial) -> float:
    """Samples a second of all processes of this cell."""
    alone = RATES[trial.model] * FASTER[trial.precision] * trial.batch**0.3
    if trial.processes == 1:
        return alone
    return alone * (1.2 if trial.sharing == "time_slicing" else 1.4 if trial.batch > 1 else 3.6)


def crowd(trial: Trial, **keys: Any) -> Result:
    """One finished run; the noise of a replicate is its number in per mille."""
    rate = total(trial) * (1 + 0.002 * trial.replicate)
    p, gpu = trial.processes, trial.device == "cuda"
    per_mb = MODEL_MB[trial.precision] + 2 * 0.6 * trial.batch
    watts = min(300.0, 80 + 0.05 * rate) + (20 if trial.model.startswith("fcn") else 0)
    none = Absent("no power sensor: unsupported: no powercap zones")
    half = 0.01 * rate
    period = p * trial.batch / rate
    metrics: dict[str, Field] = {
        "throughput_sps": Measured(rate, "samples/s", rate - half, rate + half, 2000),
        "latency_p50_s": Measured(period, "s", period * 0.99, period * 1.01, 2000),
        "latency_p99_s": Measured(period * 1.4, "s", period * 1.3, period * 1.6, 2000),
        "power_w": Measured(watts, "W", watts - 1, watts + 1, 20) if gpu else none,
        "energy_per_sample_j": Measured(watts / rate, "J", watts / rate * 0.98, watts / rate * 1.02, 20)
        if gpu
        else none,
    }
    if trial.multi_process:
        metrics |= {
            "throughput_per_process_sps": Measured(rate / p, "samples/s", n=p),
            "fairness": Measured(0.998, "1", n=p),
            "start_skew_s": Measured(0.0004 if p <= 8 else 0.004, "s", n=p),
            "counter_gap_queries": Measured(1.0, "queries", n=p),
            "memory_rule_bytes": Measured(p * per_mb * 1e6, "bytes"),
        }
    if gpu:
        metrics["gpu_processes_memory_bytes"] = Measured((100 + p * per_mb) * 1e6, "bytes", n=p)
        metrics["gpu_board_memory_bytes"] = Measured((600 + p * per_mb) * 1e6, "bytes", n=20)
    elif trial.multi_process:
        metrics["processes_rss_bytes"] = Measured(p * (60 + per_mb) * 1e6, "bytes", n=p)
        metrics["processes_pss_bytes"] = Measured((40 + p * (10 + per_mb)) * 1e6, "bytes", n=p)
    else:
        metrics["peak_rss_bytes"] = Measured((60 + per_mb) * 1e6, "bytes")
    base: dict[str, Any] = {
        "id": f"{trial.id}-{trial.replicate:06x}",
        "trial": trial,
        "machine": GPU if gpu else CPU,
        "status": Status.OK,
        "verdict": Verdict(Trust.CLEAN, ("steal 0.1 %",)),
        "started_at": f"2026-11-21T08:{trial.replicate:02d}:00.000+00:00",
        "meter": Meter("gpu0", "gpu_board", "trapezoid") if gpu else None,
        "metrics": metrics,
    }
    return Result(**(base | keys))


def gpu_trials(
    models: Iterable[str] = ("resnet50", "fcn_resnet50", "yolov8n_class"),
    precisions: Sequence[str] = ("fp32", "fp16"),
    batches: Sequence[int] = (1, 4, 16),
    processes: Sequence[int] = (1, 2, 4, 8),
    replicates: int = 1,
) -> list[Trial]:
    """The grid of the issue: MPS where P > 1."""
    return [
        Trial(
            model=m,
            device="cuda",
            precision=q,
            batch=b,
            processes=p,
            sharing=s,
            options={"graph": True},
            replicate=r,
        )
        for m, q, b, p in product(models, precisions, batches, processes)
        for s in (("time_slicing", "mps") if p > 1 else ("time_slicing",))
        for r in range(replicates)
    ]


def cpu_trials(precisions: Sequence[str] = ("fp32", "int8"), replicates: int = 1) -> list[Trial]:
    """A small grid of a CPU."""
    return [
        Trial(model="squeezenet1_1", backend="onnxruntime", precision=q, batch=b, processes=p, replicate=r)
        for q, b, p in product(precisions, (1, 4), (1, 2))
        for r in range(replicates)
    ]


def dead(trial: Trial, status: Status = Status.OOM, reason: str = "E-OOM-1: CUDA out of memory.") -> Result:
    """A cell that did not finish."""
    return Result(
        id=f"{trial.id}-dead",
        trial=trial,
        machine=GPU if trial.device == "cuda" else CPU,
        status=status,
        reason=message(reason),
        started_at="2026-11-21T08:30:00.000+00:00",
    )
