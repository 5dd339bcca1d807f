"""Results and machines made by hand, for tests of what reads them."""

from __future__ import annotations

import numpy as np

from edgescope.records import (
    Absent,
    Channel,
    Effective,
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
from edgescope.records.codec import message

MACHINE = Machine(
    {"cpu": {"model": "test cpu", "cores": 2}}, {"load1": 0.1, "governor": {"absent": "no cpufreq"}}
)


def queries(n: int = 50, latency_ns: int = 1_000_000) -> Queries:
    start = np.arange(n, dtype=np.int64) * latency_ns
    constant = np.full(n, -1, dtype=np.int64)
    return Queries(
        {
            "query_id": np.arange(n, dtype=np.int64),
            "worker": np.zeros(n, np.int16),
            "stream": np.zeros(n, np.int16),
            "source_ns": constant,
            "scheduled_ns": constant,
            "issued_ns": start,
            "done_ns": start + latency_ns,
            "samples": np.ones(n, np.int32),
            "status": np.zeros(n, np.int8),
        }
    )


def messages(keys: dict[str, object]) -> dict[str, object]:
    """A result's keys with its reason and warnings as records, where a test wrote them as lines."""
    made = dict(keys)
    if isinstance(reason := keys.get("reason"), str):
        made["reason"] = message(reason) if reason else None
    if "warnings" in keys:
        made["warnings"] = tuple(message(w) if isinstance(w, str) else w for w in keys["warnings"])
    return made


def result(trial: Trial | None = None, *, id_: str | None = None, **keys) -> Result:
    trial = trial or Trial(model="null", backend="null")
    base = {
        "id": id_ or f"{trial.id}-20260101T000000-{trial.replicate:06x}",
        "trial": trial,
        "machine": MACHINE,
        "status": Status.OK,
        "verdict": Verdict(Trust.CLEAN, ("steal 0.1 %",)),
        "started_at": "2026-01-01T00:00:00.000+00:00",
        "model": ModelInfo("null", "unknown", False, "nothing", "d1", 0, 0),
        "artifact": {"path": None},
        "effective": Effective("cpu", "fp32", 1, "says so"),
        "verification": Verification(
            True, "none", {"accuracy": Absent("no labels")}, 0.0, "nothing to verify"
        ),
        "window": Window(10, 50, 10_000_000, 50_000_000),
        "metrics": {"latency_p50_s": Measured(1e-3, "s", 0.9e-3, 1.1e-3, 40), "power_w": Absent("no sensor")},
        "warnings": ("W-TEST-1: a warning.",),
        "queries": queries(),
        "readings": Readings(
            (Channel("cpu_busy", "1", "system", "interval", "/proc/stat"),),
            np.array([1, 2], np.int64),
            np.array([0, 0], np.int16),
            np.array([0.5, 0.25]),
        ),
    }
    return Result(**messages(base | keys))


def show_card(of: Result) -> None:
    """Print the card of a result with everything that is behind -v."""
    from edgescope.report import terminal
    from edgescope.report.result import document

    terminal.show(document(of), verbose=True)
