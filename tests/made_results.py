"""Made-up Results for the tests of the reading half; the only place where a latency is not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgescope.analysis.run.summary import metrics
from edgescope.errors import Message
from edgescope.records import (
    QUERY_DTYPES,
    Absent,
    Channel,
    Effective,
    Field,
    Machine,
    Measured,
    ModelInfo,
    Queries,
    Readings,
    Result,
    Status,
    Trial,
    Trust,
    Verdict,
    Verification,
    Window,
)

NO_RAPL = "unsupported: no powercap zones under /sys/class/powercap"
MACHINE = Machine(
    {
        "cpu": {
            "cpu": "AMD EPYC 9R14",
            "architecture": "x86_64",
            "isa": ["avx2", "avx512f", "avx512_vnni", "avx512_bf16"],
            "logical_cores": 2,
            "physical_cores": 1,
            "memory_gib": 24,
            "board": "KVM guest",
            "os": "Debian GNU/Linux 12 (bookworm)",
        }
    },
    {
        "cpu": {
            "hostname": "bench-01",
            "kernel": "6.1.0-28-amd64",
            "clocks": {"absent": "no cpufreq: a virtual machine, or no frequency driver is loaded"},
            "temperatures_c": {"absent": "no thermal zone and no CPU hwmon sensor"},
            "load_average": [0.31, 0.42, 0.40],
            "memory_available_bytes": 21_474_836_480,
            "affinity": [0, 1],
        },
        "nvidia": {"absent": "no NVIDIA driver is loaded"},
        "packages": {"python": "3.11.7", "torch": "2.13.0", "onnxruntime": "1.31.1", "openvino": "2026.4.1"},
        "environment": {"OMP_NUM_THREADS": {"absent": "not set"}},
        "git": {"commit": "c5bdfdb", "dirty": False},
        "command": ["edgescope", "optimize", "mobilenet_v2"],
    },
)
CHANNELS = (
    Channel("cpu_busy", "share", "system", "interval", "/proc/stat"),
    Channel("cpu_steal", "share", "system", "interval", "/proc/stat"),
    Channel("proc_rss_bytes", "byte", "process", "gauge", "/proc/42/stat"),
    Channel("cpu_freq_hz", "Hz", "system", "gauge", "cpufreq", "unsupported", "no cpufreq"),
    Channel("sampler_cpu_s", "s", "sampler", "counter", "time.process_time"),
)


@dataclass(frozen=True)
class Kind:
    """How one variant behaves in the made-up world."""

    backend: str
    precision: str
    ms: float
    rss_mb: float
    agreement: float = 1.0
    accuracy: float = 0.782
    passed: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = Trust.CLEAN
    power_w: float | None = None


KINDS = (
    Kind("torch_eager", "fp32", 17.8, 612),
    Kind("torch_compile", "fp32", 7.6, 705),
    Kind("onnxruntime", "fp32", 4.6, 214),
    Kind("openvino", "fp32", 4.2, 305, trust=Trust.DISTURBED),
    Kind("openvino", "bf16", 2.6, 288, 0.988, 0.779),
    Kind("onnxruntime", "int8", 1.8, 158, 0.912, 0.751),
    Kind("openvino", "int8", 1.55, 231, 0.604, 0.512, passed=False),
)


def trial(kind: Kind, replicate: int = 0, model: str = "mobilenet_v2") -> Trial:
    """The Trial of one replicate."""
    options = dict(kind.options)
    return Trial(
        model=model, backend=kind.backend, precision=kind.precision, options=options, replicate=replicate
    )


def queries(kind: Kind, start_ns: int, seed: int, seconds: float = 2.0) -> tuple[Queries, Window]:
    """A closed loop with a slow warm-up, correlated noise and a heavy tail."""
    rng = np.random.default_rng(seed)
    n = min(100_000, max(40, int(seconds * 1e3 / kind.ms)))
    noise = np.zeros(n)
    steps = rng.normal(0, 0.012, n)
    for i in range(1, n):
        noise[i] = 0.7 * noise[i - 1] + steps[i]
    tail = np.where(rng.random(n) < 0.02, rng.exponential(0.6, n), 0.0)
    warm = 0.9 * np.exp(-np.arange(n) / 6)
    run = 1 + rng.normal(0, 0.006)
    latency = (kind.ms * 1e6 * run * (1 + warm + np.abs(noise) + tail)).astype(np.int64)
    done = start_ns + np.cumsum(latency + 3000)
    c: dict[str, Any] = {name: np.zeros(n, dtype=d) for name, d in QUERY_DTYPES.items()}
    c["query_id"] = np.arange(n)
    c["scheduled_ns"] = c["source_ns"] = np.full(n, -1, dtype=np.int64)
    c["issued_ns"], c["done_ns"] = done - latency, done
    c["samples"] = np.ones(n, dtype=np.int32)
    return Queries(c), Window(30, n, int(done[29]), int(done[-1]))


def readings(kind: Kind, window: Window, start_ns: int, seed: int) -> Readings:
    """Ten readings a second of three channels."""
    rng = np.random.default_rng(seed + 1)
    t = np.arange(start_ns - 500_000_000, window.stop_ns, 100_000_000)
    busy = np.clip(rng.normal(0.93, 0.03, len(t)), 0, 1)
    steal = np.clip(rng.normal(0.01 if kind.trust is Trust.CLEAN else 0.09, 0.01, len(t)), 0, 1)
    rss = kind.rss_mb * 1e6 * (1 - 0.3 * np.exp(-np.arange(len(t)) / 3))
    value = np.concatenate([busy, steal, rss])
    channel = np.repeat(np.arange(3, dtype=np.int16), len(t))
    return Readings(CHANNELS, np.tile(t, 3), channel, value)


def verification(kind: Kind, n: int = 400, trained: bool = True) -> Verification:
    """The gate's answer for this kind."""
    if not trained:
        fields: dict[str, Field] = {
            "centred_l2": Measured(1 - kind.agreement, "1", n=n),
            "rank_agreement": Measured(kind.agreement, "1", n=n),
            "accuracy": Absent("untrained: no task accuracy"),
            "top1_agreement": Absent("untrained: top-1 agreement proves nothing"),
        }
        return Verification(
            kind.passed, "centred_l2", fields, 0.1, "centred L2 within 0.1", "torch_eager fp32"
        )
    half = 1.96 * (kind.agreement * (1 - kind.agreement) / n) ** 0.5 + 0.002
    low, high = kind.agreement - half, min(1.0, kind.agreement + half)
    need = 0.75 if kind.precision == "int8" else 0.95
    sign = ">=" if kind.passed else "<"
    fields = {
        "top1_agreement": Measured(kind.agreement, "1", low, high, n),
        "accuracy": Measured(kind.accuracy, "1", kind.accuracy - 0.041, kind.accuracy + 0.038, n),
        "reference_accuracy": Measured(0.782, "1", 0.739, 0.82, n),
        "centred_l2": Absent("the model is trained: top-1 agreement is used"),
    }
    detail = f"top-1 agreement {kind.agreement:.1%}, lower bound {low:.1%} {sign} {need:.0%} on {n} images"
    return Verification(kind.passed, "top1_agreement", fields, need, detail, "torch_eager fp32")


def result(
    kind: Kind, replicate: int, start_ns: int, model: str = "mobilenet_v2", trained: bool = True
) -> Result:
    """One finished (or wrongly answering) replicate with its raw rows."""
    seed = replicate * 101 + KINDS.index(kind) if kind in KINDS else replicate
    rows, window = queries(kind, start_ns, seed)
    evidence = ("steal 0.4 % <= 2 %", "other processes 1.1 % of the CPU <= 5 %", "no throttling event")
    if kind.trust is not Trust.CLEAN:
        evidence = ("steal 9.1 % > 2 % of CPU time",)
    seconds = start_ns // 1_000_000_000 % 3600
    asked = trial(kind, replicate, model)
    power: Field = Measured(kind.power_w, "W", n=20) if kind.power_w else Absent(NO_RAPL)
    energy: Field = Measured(kind.power_w * kind.ms * 1e-3, "J", n=20) if kind.power_w else Absent(NO_RAPL)
    extra: dict[str, Field] = {
        "build_s": Measured(4.2 + replicate * 0.1, "s")
        if kind.backend != "torch_eager"
        else Absent("not built"),
        "load_s": Measured(0.11 + 0.01 * replicate, "s"),
        "first_s": Measured(kind.ms * 4e-3, "s"),
        "peak_rss_bytes": Measured(kind.rss_mb * 1e6, "bytes"),
        "power_w": power,
        "energy_per_sample_j": energy,
        "sampler_cpu_share": Measured(0.0031, "1", n=20),
    }
    return Result(
        id=f"{asked.id}-20261121T0801{replicate:02d}-abc123",
        trial=asked,
        machine=MACHINE,
        status=Status.OK if kind.passed else Status.WRONG_OUTPUT,
        reason="" if kind.passed else "E-VERIFY-1: outputs are not those of the fp32 reference",
        verdict=Verdict(kind.trust, evidence),
        started_at=f"2026-11-21T08:{seconds // 60:02d}:{seconds % 60:02d}.000+00:00",
        model=ModelInfo(model, "classify", trained, "zoo", "8f2a1c", 3_504_872, 300_774_272),
        effective=Effective("CPU", kind.precision, 2, "52 of 52 convolutions"),
        verification=verification(kind, trained=trained),
        window=window,
        metrics={**metrics(rows, window), **extra},
        warnings=(Message("W-WARM-1", "warm-up had not settled after 10 s", "last windows differ by 4 %"),)
        if kind.backend == "torch_compile" and replicate == 0
        else (),
        queries=rows,
        readings=readings(kind, window, start_ns, seed),
    )


def study(
    kinds: Sequence[Kind] = KINDS, replicates: int = 5, model: str = "mobilenet_v2", trained: bool = True
) -> list[Result]:
    """Interleaved replicates of each kind."""
    found, now = [], 60_000_000_000
    for i in range(replicates):
        for kind in kinds:
            found.append(result(kind, i, now, model, trained))
            now += 4_000_000_000
    return found


def failed(
    status: Status = Status.CRASHED, reason: str = "E-RUN-2: the process died of SIGSEGV", **of: Any
) -> Result:
    """A result that has nothing but a status and a reason."""
    kind = Kind("torch_compile", "bf16", 5.0, 100)
    asked = trial(kind, 0, of.pop("model", "mobilenet_v2"))
    bare = Result(id=f"{asked.id}-dead", trial=asked, machine=MACHINE, status=status, reason=reason)
    return replace(bare, started_at="2026-11-21T08:09:00.000+00:00", **of)
