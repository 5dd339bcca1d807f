"""Results of made-up worlds in which the cause is known, for tests of the diagnosis."""

from __future__ import annotations

import numpy as np

from edgescope.records import (
    Channel,
    Effective,
    Machine,
    Measured,
    ModelInfo,
    Readings,
    Result,
    Spans,
    Trial,
    Window,
)
from making import result

S = 1_000_000_000
CORES = 4
MACHINE = Machine(
    {"cpu": {"model": "test cpu", "logical_cores": CORES}},
    {"cpu": {"online_cpus": list(range(CORES)), "affinity": list(range(CORES))}},
)


def readings(own=0.25, others=0.0, **flags) -> Readings:
    """Ten seconds at 10 Hz: shares of all cores, and channels that hold one value."""
    values = {"cpu_busy": own + others, "cpu_others": others, **flags}
    units = {name: ("share", "interval") for name in ("cpu_busy", "cpu_others")}
    channels = tuple(
        Channel(
            name,
            *([units[name][0], "system", units[name][1]] if name in units else ["1", "gpu_board", "gauge"]),
            "test",
        )
        for name in values
    )
    t = np.arange(0, 10 * S, S // 10, dtype=np.int64)
    rows = [
        (t, np.full(len(t), i, np.int16), np.full(len(t), v, float)) for i, v in enumerate(values.values())
    ]
    return Readings(channels, *(np.concatenate(parts) for parts in zip(*rows, strict=True)))


def world(
    *,
    rate=100.0,
    own=0.25,
    others=0.0,
    parts=None,
    threads=1,
    params=1000,
    macs=None,
    flags=None,
    of=(),
    **trial,
) -> Result:
    """A run of `rate` samples/s; `parts` are seconds of a unit by name, `of` are further metrics by name."""
    keys = {"model": "net", "backend": "torch_eager", **trial}
    asked = Trial(**keys)
    metrics = {"throughput_sps": Measured(rate, "samples/s", n=500)}
    metrics |= {name: Measured(value, "1") for name, value in dict(of).items()}
    spans, artifact = None, {"path": None}
    if parts:
        spans = Spans.of("stage", [(name, 0, 0, round(s * S)) for name, s in parts.items()])
        metrics |= {f"{name}_s": Measured(s, "s") for name, s in parts.items()}
        metrics |= {f"{name}_busy_s": Measured(s, "s", n=100) for name, s in parts.items()}
    return result(
        asked,
        machine=MACHINE,
        metrics=metrics,
        spans=spans,
        artifact=artifact,
        effective=Effective(asked.device, asked.precision, threads, "says so"),
        model=ModelInfo("net", "unknown", False, "made up", "d", params, macs),
        window=Window(0, 50, 0, 10 * S),
        readings=readings(own, others, **(flags or {})),
        warnings=(),
    )
