"""List the settings that --mode can enter: power modes by name with cores and clocks, and which need a reboot.

edgescope modes
edgescope bench mobilenet_v2 --mode 15W              set, verified under load, restored
edgescope bench mobilenet_v2 --mode MAXN+jetson_clocks
edgescope modes --install-helper                     print what lets edgescope set them without being root
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgescope.modes.listing import Row

HELP = "the power modes and other settings that can be entered and restored"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("--json", action="store_true")
    text = "print the commands that install the helper as root; run none of them"
    sub.add_argument("--install-helper", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    """Print the table, or the commands."""
    from edgescope.modes.listing import listing

    if args.install_helper:
        return _install()
    from edgescope.bench import present

    rows = listing(present())
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    from edgescope.cli import terminal

    heads = ("mode", "id", "CPUs", "CPU up to", "GPU up to", "memory up to", "change", "")
    terminal.table(heads, [_cells(row) for row in rows])
    return 0


def _cells(row: Row) -> tuple[str, ...]:
    from edgescope.modes.affinity import ranges

    power = row.id is not None
    clocks = [("" if not power else "no cap" if hz is None else f"{hz / 1e6:.0f} MHz") for hz in _clocks(row)]
    marks = [word for word, on in (("now", row.now), ("default", row.default)) if on]
    change = row.change + (f": {row.why}" if power and row.change != "live" else "")
    last = ", ".join(marks) if power else row.why
    return (row.name, str(row.id) if power else "", ranges(row.cores), *clocks, change, last)


def _clocks(row: Row) -> tuple[int | None, ...]:
    return row.cpu_max_hz, row.gpu_max_hz, row.emc_max_hz


def _install() -> int:
    import getpass

    from edgescope.modes import act, helper, listing

    print(listing.install(getpass.getuser(), str(helper.__file__), str(act.HELPER)))
    return 0


def restore() -> int:
    """Put back what a killed process left changed; 0 also where there is nothing to put back."""
    from edgescope.modes.entering import journal

    if not journal().recover():
        print("nothing to restore: no journal was left behind")
    return 0
