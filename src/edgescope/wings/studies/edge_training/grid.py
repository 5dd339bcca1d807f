"""The study's grid as trials: one setting at a time away from its usual cell, for each of its three networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from edgescope import cache
from edgescope.records import Role, Trial
from edgescope.wings.studies.paper import Paper, papers

NAME = "training"
REPLICATES = 3
LONGEST_S = 60.0
"""Longest run of a cell; epochs that did not end within it are left out."""


@dataclass(frozen=True)
class Network:
    """One of the study's networks with its data."""

    model: str
    paper: str
    count: int
    side: tuple[int, int]
    packed: bool
    grey: bool
    cpu_samples: int
    """Samples in an epoch on a CPU; a GPU takes them all."""

    @property
    def folder(self) -> Path:
        """Return where its data set lies."""
        return cache.folder("training") / f"{self.model}-{self.count}-{self.side[0]}x{self.side[1]}"


def networks(paper: Paper | None = None) -> list[Network]:
    """Return the study's networks."""
    rows = (paper or papers()[NAME]).page["network"]
    usual = {"packed": False, "grey": False}
    return [Network(**{**usual, **row, "side": tuple(row["side"])}) for row in rows]


def trials(device: str, models: tuple[str, ...] = ()) -> Iterator[Trial]:
    """Yield every trial, all cells once, then again for each further replicate."""
    for number in range(REPLICATES):
        for network in networks():
            if not models or network.model.startswith(models):
                for trial in cells(network, device):
                    yield replace(trial, replicate=number)


def cells(network: Network, device: str) -> list[Trial]:
    """Return the cells of one network: the usual one first."""
    page = papers()[NAME].page
    usual = _usual(network, device, page["protocol"])
    found = [usual]
    for axis in page["axis"]:
        if axis.get("files") and network.packed:
            continue
        base = _with(usual, "num_workers", axis["workers"]) if "workers" in axis else usual
        found += [_with(base, axis["name"], value) for value in axis["values"]]
    return list({trial.id: trial for trial in found}.values())


def _usual(network: Network, device: str, protocol: Mapping[str, Any]) -> Trial:
    options: dict[str, Any] = {
        "images": str(network.folder),
        "epochs": protocol["epochs"],
        "num_workers": protocol["workers"],
        "prefetch_factor": 2,
    }
    if not network.packed:
        options["page_cache"] = protocol["page_cache"]
    if device == "cpu":
        options["epoch_samples"] = network.cpu_samples
    return Trial(
        model=network.model,
        device=device,
        batch=protocol["batch"],
        workload="training",
        workload_options=options,
        warmup=0.0,
        min_s=LONGEST_S,
        max_s=LONGEST_S,
    )


def _with(trial: Trial, name: str, value: Any) -> Trial:
    if name in ("batch", "mode"):
        fields: dict[str, Any] = {name: value}
        return replace(trial, **fields)
    return replace(trial, workload_options={**trial.workload_options, name: value})


class Place(NamedTuple):
    """What tells the study's cells apart; whatever else a trial may differ in makes it another study's."""

    model: str
    workers: int
    batch: int
    medium: str
    mode: str
    device: str


def place(trial: Trial) -> Place:
    """Return the cell of the study that a trial belongs to."""
    options = trial.workload_options
    return Place(
        trial.model.partition("#")[0],
        int(options.get("num_workers", 0)),
        trial.batch,
        str(options.get("medium", "as_is")),
        trial.mode,
        trial.device,
    )


def belongs(trial: Trial) -> bool:
    """Return whether a trial is a cell of the grid, in this mode or another: the same data, engine and protocol.

    The length of the run is free: epochs that did not end within it are left out anyway.
    """
    protocol = papers()[NAME].page["protocol"]
    named = [n for n in networks() if n.model == trial.model.partition("#")[0]]
    return any(_fixed(trial) == _fixed(_usual(network, trial.device, protocol)) for network in named)


ASKED = Role.ARTIFACT | Role.LOAD | Role.CONCURRENCY | Role.SHARING | Role.TRACING
AXES = ("num_workers", "medium")
"""Options of the workload that the grid varies, besides the fields batch and mode."""


def _fixed(trial: Trial) -> tuple[str, dict[str, Any]]:
    """Return all that the grid does not vary; the folder of the pictures by its name, wherever the cache was."""
    options = {name: value for name, value in trial.workload_options.items() if name not in AXES}
    options["images"] = Path(str(options.get("images", ""))).name
    return trial.key(ASKED, but=("model", "workload_options")), options
