"""The study's grid as trials: one setting at a time away from its usual cell, for each of its three networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.papers.paper import Paper, papers
from edgescope.records import Trial

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


def place(trial: Trial) -> tuple[str, int, int, str, str]:
    """Return what tells the cells of a device apart: model, workers, batch, medium, mode."""
    options = trial.workload_options
    return (
        trial.model.partition("#")[0],
        int(options.get("num_workers", 0)),
        trial.batch,
        str(options.get("medium", "as_is")),
        trial.mode,
    )
