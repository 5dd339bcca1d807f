"""List the settings that --mode takes: power modes with their cores and clocks, which of them need a reboot, and other
settings.

edgescope modes
edgescope bench mobilenet_v2 --mode 15W              set, verified under load, restored
edgescope bench mobilenet_v2 --mode MAXN+jetson_clocks
edgescope modes --install-helper                     print the commands that let edgescope set modes without root
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from edgescope.commandline import trial_flags

if TYPE_CHECKING:
    from edgescope.modes.listing import Row


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_json(sub)
    text = "print the commands that install the helper as root, without running them"
    sub.add_argument("--install-helper", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    """Print the table of settings, or the commands that install the helper; return 0."""
    from edgescope.modes.listing import listing, problems, without

    if args.install_helper:
        return _install()
    from edgescope.bench import present
    from edgescope.devices import replay

    devices = present()
    rows = listing(devices)
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    root = replay.root(devices)
    _show(rows, without(devices, root), problems(devices, root))
    return 0


def _show(rows: Sequence[Row], why_none: str, problems: Sequence[str]) -> None:
    """Print the board's power modes with the clocks they cap, then the other settings with what they change."""
    from edgescope.report.render import terminal

    power = [row for row in rows if row.id is not None]
    if power:
        heads = ("mode", "id", "CPUs", "CPU max", "GPU max", "mem max", "change", "")
        terminal.table(heads, [_cells(row) for row in power])
        for row in power:
            if row.change != "live":
                terminal.note(f"{row.name} {row.change}: {row.why}")
    else:
        terminal.note(why_none)
    for text in problems:
        terminal.note(text)
    print()
    terminal.table(("setting", ""), [(row.name, row.why) for row in rows if row.id is None])


def _cells(row: Row) -> tuple[str, ...]:
    from edgescope.units import ranges

    caps = (row.cpu_max_hz, row.gpu_max_hz, row.emc_max_hz)
    clocks = ["no cap" if hz is None else f"{hz / 1e6:.0f} MHz" for hz in caps]
    marks = [word for word, on in (("now", row.now), ("default", row.default)) if on]
    change = row.change.removeprefix("needs a ")
    return (row.name, str(row.id), ranges(row.cores), *clocks, change, ", ".join(marks))


def _install() -> int:
    import getpass

    from edgescope.modes import helper, listing, privileged

    print(listing.install(getpass.getuser(), str(helper.__file__), str(privileged.HELPER)))
    return 0
