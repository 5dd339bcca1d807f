"""From flags or study.toml to Trials: every key of a Trial, and a list makes an axis.

[store]
path = "results"

[trial]                       # scalars hold for every cell, lists are axes
model = ["mobilenet_v2", "resnet50"]
backend = ["onnxruntime", "openvino"]
precision = ["fp32", "int8"]
batch = [1, 4]
min_s = 2.0
replicates = 3                # fresh processes a cell

[trial.options]
threads = [1, 2]
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope import registry, verify
from edgescope.errors import UsageError
from edgescope.records import Json, Trial

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTIONS = {"store", "trial", "sweep"}


@dataclass(frozen=True)
class Study:
    """The Trials of a sweep, in grid order, and where their results go."""

    trials: tuple[Trial, ...]
    store: Path | None = None
    sweep: Mapping[str, Json] | None = None
    """cooldown, timeout, seed ... as on the command line."""


def grid(keys: Mapping[str, Json]) -> tuple[Trial, ...]:
    """Return one Trial for every combination of the listed values; `replicates` numbers fresh processes."""
    if not isinstance(keys, Mapping) or not isinstance(keys.get("options", {}), Mapping):
        raise UsageError(
            "E-STUDY-8", "[trial] and [trial.options] must be tables of keys", evidence=str(keys)[:80]
        )
    keys = dict(keys)
    replicates = keys.pop("replicates", 1)
    if not isinstance(replicates, int) or replicates < 1:
        raise UsageError("E-STUDY-1", f"replicates must be a whole number of at least 1, not {replicates!r}")
    options = keys.pop("options", {})
    axes = [_axis(name, value) for name, value in keys.items()]
    inner = [_axis(name, value) for name, value in options.items()]
    trials = []
    for cell in itertools.product(*axes):
        for extra in itertools.product(*inner):
            for replicate in range(replicates):
                trials.append(_trial({**dict(cell), "options": dict(extra), "replicate": replicate}))
    distinct = {checked(trial).id: trial for trial in trials}
    return tuple(distinct.values())


def _trial(keys: dict[str, Any]) -> Trial:
    """Return the Trial; one that names no device gets the one its backend usually runs on."""
    backend = keys.get("backend")
    if keys.get("device") is None and isinstance(backend, str) and backend in registry.BACKENDS:
        keys["device"] = registry.home(backend)
    return Trial.from_json({k: v for k, v in keys.items() if (k, v) != ("device", None)})


def checked(trial: Trial) -> Trial:
    """Return the trial when its names exist and its scenario has what it needs; otherwise raise a UsageError."""
    for family, name, word in (
        (registry.BACKENDS, trial.backend, "backend"),
        (registry.WORKLOADS, trial.workload, "workload"),
        (registry.SCENARIOS, trial.scenario, "scenario"),
    ):
        registry.entry(family, name, word)
    able = registry.entry(registry.BACKENDS, trial.backend, "backend").devices
    if trial.device not in able:
        raise UsageError(
            "E-STUDY-9",
            f"{trial.backend} does not run on {trial.device}",
            evidence=f"it runs on {' and '.join(able)}",
            fix=f"--device {able[0]}, or another --backend (edgescope backends)",
        )
    verify.asked(trial.precision, trial.gate)
    if trial.scenario == "fixed_rate" and trial.rate is None:
        raise UsageError(
            "E-STUDY-6", "fixed_rate needs a rate in queries/s", fix="--scenario fixed_rate --rate 30"
        )
    for name, shape in trial.shapes.items():
        if not shape or shape[0] != trial.batch:
            raise UsageError(
                "E-STUDY-7",
                f"the first axis of --shapes {name}={'x'.join(map(str, shape))} is not the batch {trial.batch}",
                fix=f"--batch {shape[0] if shape else 1}, or {trial.batch} as the first axis",
            )
    return trial


def _axis(name: str, value: Json) -> Sequence[tuple[str, Any]]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError("E-STUDY-2", f"the axis {name} is empty", effect="The grid would have no cells")
    return [(name, v) for v in values]


def read(path: Path) -> Study:
    """Read study.toml; UsageError for a file that is missing, not TOML, or has unknown sections."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError("E-STUDY-3", f"{path} cannot be read", evidence=error.strerror or "") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("E-STUDY-4", f"{path} is not TOML", evidence=str(error)) from error
    unknown = sorted(set(data) - SECTIONS)
    if unknown or "trial" not in data:
        raise UsageError(
            "E-STUDY-5",
            f"{path} needs a section [trial] and may have [store] and [sweep]",
            evidence=f"it has {', '.join(data) or 'nothing'}",
        )
    where = data.get("store", {}).get("path")
    return Study(grid(data["trial"]), Path(where) if where else None, data.get("sweep"))
