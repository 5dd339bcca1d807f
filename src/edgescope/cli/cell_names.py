"""Short names of a grid's cells: what differs from cell to cell; what all share is said once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from edgescope.records import TABLES, Trial, digest

#: Keys of a trial in the order in which a person asks, with how a value is written in a cell's name.
WRITTEN: Mapping[str, Callable[[Any], str]] = {
    "model": lambda v: str(v).partition("#")[0],
    "backend": str,
    "device": str,
    "precision": str,
    "batch": lambda v: f"b{v}",
    "processes": lambda v: f"P{v}",
    "in_flight": lambda v: f"T{v}",
    "sharing": str,
    "colocated": lambda v: f"beside {v}" if v else "alone",
    "scenario": str,
    "rate": lambda v: "no rate" if v is None else f"{v:g}/s",
    "mode": str,
    "workload": str,
    "io": lambda v: f"io={v}",
    "seed": lambda v: f"seed={v}",
    "min_s": lambda v: f"{v:g}s",
}


def axes(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return key -> its different values in grid order, of every key and option whose value differs."""
    return {name: values for name, values in _values(trials).items() if len(values) > 1}


def shared(trials: Sequence[Trial]) -> str:
    """Return what all cells have in common and is worth saying: `torch_eager cuda graph=true`."""
    usual = {
        "device": "cpu",
        "in_flight": 1,
        "processes": 1,
        "sharing": "time_slicing",
        "colocated": "",
        "rate": None,
    }
    usual |= {"mode": "as_is", "workload": Trial.workload, "io": "host", "seed": 0}
    same = {k: v[0] for k, v in _values(trials).items() if len(v) == 1}
    return " ".join(written(k, v) for k, v in same.items() if k not in usual or usual[k] != v)


def namer(trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """Return a function from a trial of this grid to its short name."""
    keys = list(axes(trials)) or ["model"]

    def name(trial: Trial) -> str:
        parts = [written(key, value(trial, key)) for key in keys if value(trial, key) is not None]
        return " ".join(filter(None, [*parts, f"#{trial.replicate}" if trial.replicate else ""]))

    return name


def value(trial: Trial, key: str) -> Any:
    """Return the value of a key, or of an option."""
    if key in WRITTEN:
        return getattr(trial, key)
    return next((table[key] for table in _tables(trial) if key in table), None)


def _tables(trial: Trial) -> list[Mapping[str, Any]]:
    return [getattr(trial, name) for name in TABLES]


def written(key: str, value: Any) -> str:
    """Return a value as a cell's name has it: b4, P2, graph=true."""
    if key in WRITTEN:
        return WRITTEN[key](value)
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"


def _values(trials: Iterable[Trial]) -> dict[str, list[Any]]:
    found: dict[str, dict[str, Any]] = {key: {} for key in WRITTEN}
    trials = list(trials)
    for trial in trials:
        for key in chain(*_tables(trial)):
            found.setdefault(key, {})
    for trial in trials:
        for key, seen in found.items():
            seen.setdefault(digest(value(trial, key)), value(trial, key))
    return {key: list(seen.values()) for key, seen in found.items()}
