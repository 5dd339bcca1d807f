"""Figures that were computed once are shared between tables, pages and plots: none of them may be changed in place."""

import dataclasses
import importlib
import pkgutil

import pytest

from edgescope import analysis, bench, isolate, scenarios, stats, telemetry

MODULES = [
    found.name
    for package in (analysis, bench, isolate, scenarios, stats, telemetry)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if found.name.rpartition(".")[2] not in ("mlperf", "mlperf_system")  # need MLPerf's own library
] + ["edgescope.store.results", "edgescope.records"]
COUNTS_UP = {"StopRule", "OwnUse", "Seen"}


@pytest.mark.parametrize("name", MODULES)
def test_every_dataclass_is_frozen(name):
    module = importlib.import_module(name)
    own = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == name]
    for made in filter(dataclasses.is_dataclass, own):
        blank = object.__new__(made)
        if made.__name__ not in COUNTS_UP:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(blank, dataclasses.fields(made)[0].name, None)
