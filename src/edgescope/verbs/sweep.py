"""Measure a grid, resumable: `edgescope.sweep("study.toml")`, `edgescope.sweep({"model": [...], "batch": [1, 4]})`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope import bench, registry
from edgescope.analysis.cells import machines
from edgescope.errors import Message, UsageError
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.records import Json, Machine, Result, Results, Trial
from edgescope.runner import run as runner
from edgescope.runner.isolated import Isolated, ReusingRunner
from edgescope.runner.memory import Exhausted, Forecast, ThisMachine
from edgescope.runner.run import ExperimentRunner, Pruner
from edgescope.runner.setup import Setup, Stored, check_modes, store_of
from edgescope.study import grid
from edgescope.study.grid import Study
from edgescope.telemetry.latest import Sensors
from edgescope.units import seconds

SAMPLER_HZ = 10.0
USUAL: Mapping[str, Json] = {
    "cooldown": 0.0,
    "cooldown_c": None,
    "order_seed": 0,
    "reuse_workers": False,
    "prune": True,
}
"""Default of each key of a study's [sweep], which says how cells are run; timeout and memory_floor have none here."""
Grid = Study | Path | str | Mapping[str, Json] | Iterable[Trial]
Temperatures = Callable[[], Mapping[str, float]]
"""Returns sensor -> degrees Celsius; empty if no temperature can be read."""
STEP_S = 0.5
"""Seconds between two looks at the sensors."""
#: Default of the longest wait, in seconds.
LIMIT_S = 120.0


def sweep(
    cells: Grid,
    *,
    store: Stored = None,
    machine: str = "",
    setup: Setup = Setup(),
    show: Callable[[Result], None] = lambda result: None,
    **manner: Any,
) -> Results:
    """Measure the cells that the store lacks, in shuffled order; return every result of the grid.

    `cells` is a study or its file, the keys of a [trial] table, or Trials. `manner` takes the keys of [sweep]:
    cooldown, cooldown_c, order_seed, timeout, memory_floor, reuse_workers, prune. `show` is called with each new
    result; `machine`, the beginning of an id, is refused if it is not this one. Other machines' results do not count.
    """
    study = planned(cells, setup.tell)
    how = {**USUAL, **(study.sweep or {}), **manner}
    setup = replace(setup, limits=_limits(setup.limits, how))
    check_modes(study.trials, setup.tell)
    _check_manner(how)
    place = store_of(study.store if store is None else store)
    machines.measured_by(bench.here(), machine)
    stored, lost = setup.cells(place), dict[str, Result]()
    with _manner(how, stored, setup) as arguments:
        for result in runner.run(study.trials, stored, tell=setup.tell, **arguments):
            show(result)
            if not stored.holds(result):  # cancelled, for example: there is nothing to store
                lost[result.trial.id] = result.without_rows()
    known = stored.finished() | lost | {r.trial.id: r for r in stored.again()}
    return Results(known[t.id] for t in study.trials if t.id in known)


def planned(cells: Grid, say: Callable[[str], None] = lambda text: None) -> Study:
    """Return the study that `cells` describes, with its files pinned by content; `say` gets its notes."""
    if isinstance(cells, Path | str):
        cells = grid.read(Path(cells), zoo.pin, say)
        for note in cells.notes:
            say(note)
    if isinstance(cells, Study):
        return cells
    trials = grid.grid(cells, say) if isinstance(cells, Mapping) else cells
    return Study(tuple(grid.pinned(trial, zoo.pin) for trial in trials))


def _check_manner(how: Mapping[str, Json]) -> None:
    """Raise UsageError for a manner that a board over ssh does not have."""
    if not os.environ.get(registry.ON):
        return
    if asked := [name for name in ("reuse_workers", "cooldown_c") if how[name]]:
        raise UsageError(
            "E-ON-11",
            f"a board over ssh has no {', '.join(asked)}",
            evidence="each cell starts its own program there, and the sensors of this machine are not the board's",
            effect="Nothing was measured",
            fix="leave out --reuse-workers and --cooldown-c; --cooldown 30s rests between cells",
        )


def _limits(limits: Limits, how: Mapping[str, Json]) -> Limits:
    floor = how.get("memory_floor")
    return Limits(
        _seconds(how["timeout"]) if "timeout" in how else limits.timeout_s,
        limits.floor_bytes if floor is None else int(floor * 1e6),
    )


def _seconds(value: Json) -> float:
    return seconds(str(value))


@contextmanager
def _manner(how: Mapping[str, Json], cells: ExperimentRunner, setup: Setup) -> Iterator[dict[str, Any]]:
    """Yield the arguments of runner.run for these keys of [sweep]."""
    out = {
        "seed": int(how["order_seed"]),
        "cooldown_s": _seconds(how["cooldown"]),
        "sieves": _sieves(cells) if how["prune"] else (),
        "reuse": how["reuse_workers"],
    }
    if how["cooldown_c"] is not None:
        out["rest"] = _cooling(how["cooldown_c"], out["cooldown_s"], setup.tell).wait
    if not how["reuse_workers"]:
        yield out
        return
    with ReusingRunner(Isolated()) as kept:
        cells.runner = cells.builds.runner = kept
        yield out


def _sieves(cells: ExperimentRunner) -> tuple[Pruner, ...]:
    """Return the sieves that skip cells that will not fit, or of which a smaller one ran out of memory."""
    if os.environ.get(registry.ON):
        return (Exhausted(),)  # what fits is known of this machine, not of the board
    room = ThisMachine(cells.limits, _free_gpu(cells.where), unified="jetson" in cells.where.stable)
    return Exhausted(), Forecast(room)


def _free_gpu(where: Machine) -> float | None:
    """Return the free memory in bytes of the GPU that CUDA calls 0, or None if no source reports it."""
    from edgescope.bench.watch import board

    gpus, name = where.stable.get("nvidia", {}).get("gpus", []), board()
    mine = dict(zip((f"gpu{i}" for i in range(len(gpus))), gpus, strict=True)).get(name)
    total = mine.get("memory_total_bytes") if isinstance(mine, Mapping) else None
    if not isinstance(total, int | float):
        return None
    used = _sensors()("byte").get(f"{name}_memory_used_bytes")
    return None if used is None else total - used


def _sensors() -> Callable[[str], dict[str, float]]:
    """Return a function that takes a unit and returns the present value of each channel with that unit, by name."""
    specs = [spec for device in bench.present().values() for spec in device.sources(os.getpid())]
    sensors = Sensors(specs, SAMPLER_HZ)

    def read(unit: str) -> dict[str, float]:
        sensors.tick(0)
        mine = {name for name, channel in sensors.channels.items() if channel.unit == unit}
        return {name: value for name, value in sensors.values.items() if name in mine}

    return read


class Cooling:
    """Waits until each sensor is at most `margin_c` degrees above its value at construction: as cool as at the start.

    A fixed pause is too long after a small cell and too short after a large one.
    """

    def __init__(
        self,
        read: Temperatures,
        margin_c: float,
        *,
        least_s: float = 0.0,
        limit_s: float = LIMIT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.read, self.sleep = read, sleep
        self.least_s, self.limit_s = least_s, max(least_s, limit_s)
        self.target = {name: degrees + margin_c for name, degrees in read().items()}

    def wait(self) -> float:
        """Pause, then wait until the machine is cool; return the seconds spent (the limit if it stayed hot)."""
        self.sleep(self.least_s)
        waited = self.least_s
        while waited < self.limit_s and self._hot():
            self.sleep(STEP_S)
            waited += STEP_S
        return waited

    def _hot(self) -> bool:
        now = self.read()
        return any(now[name] > limit for name, limit in self.target.items() if name in now)


def _cooling(degrees: float, least_s: float, tell: Callable[[object], None]) -> Cooling:
    """Return the rest between cells that waits until the machine is cool; warn if no temperature can be read."""
    read = _sensors()
    found = Cooling(lambda: read("degC"), degrees, least_s=least_s)
    if not found.target:
        text = "no temperature can be read here, so --cooldown-c waits for nothing"
        tell(str(Message("W-SWEEP-1", text, fix="--cooldown 5s")))
    return found
