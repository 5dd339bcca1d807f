"""How a sweep is run, from its flags: what keeps cells from being tried, what is waited for, who stays loaded."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgescope.cli import opened

if TYPE_CHECKING:
    from edgescope.records import Machine
    from edgescope.sweep.cooldown import Cooling
    from edgescope.sweep.run import Cells, Sieve

SAMPLER_HZ = 10.0


@contextmanager
def manner(args: argparse.Namespace, cells: Cells) -> Iterator[dict[str, Any]]:
    """Yield the arguments of sweep.run that these flags set."""
    asked = {
        "seed": int(args.order_seed),
        "cooldown_s": args.cooldown,
        "sieves": _sieves(args, cells) if args.prune else (),
        "reuse": args.reuse_workers,
    }
    if args.cooldown_c is not None:
        asked["rest"] = _cooling(args).wait
    if not args.reuse_workers:
        yield asked
        return
    from edgescope.sweep.reuse import ReusingRunner
    from edgescope.sweep.run import Isolated

    with ReusingRunner(Isolated()) as runner:
        cells.runner = runner
        yield asked


def _sieves(args: argparse.Namespace, cells: Cells) -> tuple[Sieve, ...]:
    """Return what keeps cells from being tried that ran out of memory smaller, or will not fit."""
    from edgescope.sweep.memory import Exhausted, Forecast, ThisMachine

    room = ThisMachine(opened.limits(args), _free_gpu(cells.where), unified="jetson" in cells.where.stable)
    return Exhausted(), Forecast(room)


def _free_gpu(where: Machine) -> float | None:
    """Return the bytes that can be had of the memory of the GPU that CUDA calls 0; None where nobody says."""
    from edgescope.bench.watch import board

    gpus, name = where.stable.get("nvidia", {}).get("gpus", []), board()
    mine = dict(zip((f"gpu{i}" for i in range(len(gpus))), gpus, strict=True)).get(name)
    total = mine.get("memory_total_bytes") if isinstance(mine, Mapping) else None
    if not isinstance(total, int | float):
        return None
    used = _sensors()("byte").get(f"{name}_memory_used_bytes")
    return None if used is None else total - used


def _sensors() -> Callable[[str], dict[str, float]]:
    """Return a function that reads this machine's sensors now: channel -> value of those with this unit."""
    from edgescope.bench import present
    from edgescope.monitor.sensors import Sensors

    specs = [spec for device in present().values() for spec in device.sources(os.getpid())]
    sensors = Sensors(specs, SAMPLER_HZ)

    def read(unit: str) -> dict[str, float]:
        sensors.tick(0)
        mine = {name for name, channel in sensors.channels.items() if channel.unit == unit}
        return {name: value for name, value in sensors.values.items() if name in mine}

    return read


def _cooling(args: argparse.Namespace) -> Cooling:
    """Return what waits for the heat to go; say where no temperature can be read."""
    from edgescope.errors import message
    from edgescope.sweep.cooldown import Cooling

    read = _sensors()
    found = Cooling(lambda: read("degC"), args.cooldown_c, least_s=args.cooldown)
    if not found.target:
        text = "no temperature can be read here, so --cooldown-c waits for nothing"
        opened.say(message("W-SWEEP-1", text, fix="--cooldown 5s"))
    return found
