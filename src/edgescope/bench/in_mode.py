"""`edgescope.in_mode`: hold a board-wide setting around your own code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from edgescope.bench.run import present
from edgescope.devices.base import Device, Mode
from edgescope.errors import UsageError
from edgescope.modes import catalog
from edgescope.modes.enter import entered


@contextmanager
def in_mode(name: str, devices: Mapping[str, Device] | None = None) -> Iterator[Mode]:
    """Hold a board-wide setting while the block runs: `with edgescope.in_mode("15W+jetson_clocks"): ...`.

    The mode is set, read back and probed under load, and restored however the block ends. Settings of a process
    (cpus=, quota=, mps=) cannot be applied to a running process; give them in Trial(mode=...).
    """
    with entered(catalog.find(name, present() if devices is None else devices)) as mode:
        if mode.launch():
            raise UsageError(
                "E-MODE-11",
                f"{name} is a setting of a process, and this one runs already",
                fix=f'Trial(mode="{name}") measured by edgescope.run, or --mode {shlex.quote(name)}',
            )
        yield mode
