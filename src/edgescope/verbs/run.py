"""Measure one trial: `edgescope.run(trial)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgescope.runner.setup import Setup, Stored, store_of

if TYPE_CHECKING:
    from edgescope.records import Result, Trial


def run(trial: Trial, *, isolated: bool = True, store: Stored = None, setup: Setup = Setup()) -> Result:
    """Run one trial and return its Result; a failure is a Result with a status and a reason.

    The trial runs in a fresh process unless `isolated` is False, so this process's memory and history cannot disturb
    the figures, and a model that crashes ends only the fresh process. The result is stored if `store` names a folder.
    Names of files are pinned by their content first, as a sweep does.
    """
    from edgescope.models import zoo
    from edgescope.study import grid

    trial = grid.pinned(trial, zoo.pin)
    if store is not None and isolated:
        return setup.cells(store_of(store)).run(trial)
    if not isolated:
        from edgescope import bench

        result = bench.run(trial)
        if store is not None:
            store_of(store).save(result)
        return result
    from edgescope.runner.isolated import Isolated

    with setup.waiting(f"measuring {trial.model} {trial.label}"):
        failed = Isolated().prepare(trial, setup.limits)
        return Isolated().run(trial, setup.limits) if failed is None else failed.inherited(trial)
