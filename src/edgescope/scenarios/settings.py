"""What a scenario needs to be told beside its name, checked before anything is built or measured."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from edgescope.errors import UsageError
from edgescope.records import Trial
from edgescope.scenarios import arrivals

RATED = ("fixed_rate", "server", "burst", "mlperf_server")
GAPS_MS = (0.0, 10.0, 33.0, 100.0, 1000.0, 10000.0)
"""Idle gaps unless the trial asks for others: a camera's frame is 33 ms."""
BOUND = re.compile(r"(\d+(?:\.\d+)?)ms")


def checked(trial: Trial) -> Trial:
    """Return the trial when its scenario has what it needs; UsageError otherwise."""
    name = trial.scenario
    if name in RATED:
        rate(trial)
    elif trial.rate is not None and name != "trace":  # a trace says itself why it takes none
        raise UsageError(
            "E-SCEN-11",
            f"{name} takes no rate",
            evidence=f"--rate {trial.rate:g}; queries come at a rate in {', '.join(RATED)}",
            effect="Nothing was measured",
            fix=f"--scenario server --rate {trial.rate:g}, or leave --rate out",
        )
    if name in _ARRIVALS:
        _ARRIVALS[name](trial)
    elif trial.arrivals:
        raise UsageError(
            "E-SCEN-4",
            f"{name} takes no arrivals",
            evidence=f"--arrivals {trial.arrivals}",
            fix=f"--scenario {', '.join(_ARRIVALS)}, or leave --arrivals out",
        )
    _alone(trial)
    return trial


def _alone(trial: Trial) -> None:
    """Raise UsageError where a scenario asks one sample, one query or one process, and the trial has more."""
    name = trial.scenario
    if name in ("mlperf_single_stream", "mlperf_server") and trial.batch != 1:
        raise UsageError(
            "E-SCEN-7",
            f"a query of {name} is one sample",
            evidence=f"batch {trial.batch}",
            fix="--batch 1, or --scenario mlperf_multi_stream or mlperf_offline",
        )
    if name in ("idle_gap", "mlperf_single_stream") and trial.in_flight != 1:
        raise UsageError(
            "E-SCEN-8",
            f"{name} has one query in flight",
            evidence=f"in_flight {trial.in_flight}",
            fix="leave --in-flight at 1",
        )
    if trial.crowded and (name == "idle_gap" or name.startswith("mlperf_")):
        raise UsageError(
            "E-SCEN-10",
            f"{name} is asked of one process that has the device to itself",
            evidence=f"processes {trial.processes}, sharing {trial.sharing}, beside {trial.colocated or 'nothing'}",
            fix="--scenario single_stream, offline or server for several",
        )


def trace(trial: Trial) -> arrivals.Ints:
    """Return the arrivals of the trial's trace in nanoseconds; UsageError where it is none, or has a rate beside."""
    if trial.rate is not None:
        raise UsageError("E-SCEN-5", "a trace brings its own rate", fix="leave --rate out")
    recorded = arrivals.read(str(trial.arrivals))
    if arrivals.looped(str(trial.arrivals)):
        arrivals.period_ns(recorded)
    return recorded


def rate(trial: Trial) -> float:
    """Return the queries offered in a second."""
    if trial.rate is None:
        raise UsageError(
            "E-SCEN-1",
            f"{trial.scenario} needs a rate in queries/s",
            fix=f"--scenario {trial.scenario} --rate 30",
        )
    return trial.rate


def burst(trial: Trial) -> int:
    """Return how many queries come at once."""
    if not re.fullmatch(r"[1-9]\d{0,5}", str(trial.arrivals)):
        raise UsageError(
            "E-SCEN-2",
            "burst needs the number of queries that come at once",
            evidence=f"--arrivals {trial.arrivals!r}",
            fix="--scenario burst --arrivals 8 --rate 80",
        )
    return int(trial.arrivals)


def gaps_ms(trial: Trial) -> tuple[float, ...]:
    """Return the idle gaps to try, in milliseconds, ascending and from 0: the ones named, or GAPS_MS."""
    if not trial.arrivals:
        return GAPS_MS
    try:
        found = sorted({0.0, *(float(part) for part in str(trial.arrivals).split(","))})
    except ValueError:
        found = [-1.0]
    if not (found[0] >= 0 and 0 < found[-1] <= 600_000 and len(found) <= 50):
        raise UsageError(
            "E-SCEN-3",
            "idle_gap needs milliseconds between 0 and 600000",
            evidence=f"--arrivals {trial.arrivals!r}",
            fix="--scenario idle_gap --arrivals 0,10,33,100",
        )
    return tuple(found)


def bound_ns(trial: Trial) -> int | None:
    """Return the latency that LoadGen's server scenario is held to; None for LoadGen's own 100 ms."""
    match = BOUND.fullmatch(str(trial.arrivals)) if trial.arrivals else None
    if trial.arrivals and (match is None or not 0 < float(match[1]) <= 1e6):
        raise UsageError(
            "E-SCEN-3",
            "mlperf_server takes the latency it is held to",
            evidence=f"--arrivals {trial.arrivals!r}",
            fix="--scenario mlperf_server --rate 30 --arrivals 15ms",
        )
    return round(float(match[1]) * 1e6) if match else None


_ARRIVALS: Mapping[str, Callable[[Trial], object]] = {
    "burst": burst,
    "trace": trace,
    "idle_gap": gaps_ms,
    "mlperf_server": bound_ns,
}
"""Scenarios for which `arrivals` means something, and what reads it."""


def pinned(keys: dict[str, Any]) -> dict[str, Any]:
    """Return a Trial's keys with arrivals as text: a trace's file pinned by its content, the usual gaps spelt out."""
    given = keys.get("arrivals", "")
    text = f"{given:g}" if isinstance(given, int | float) and not isinstance(given, bool) else given
    if keys.get("scenario") == "trace" and isinstance(text, str):
        text = arrivals.pin(text)
    if keys.get("scenario") == "idle_gap" and text == "":
        text = ",".join(f"{gap:g}" for gap in GAPS_MS)
    return keys if text == given else keys | {"arrivals": text}
