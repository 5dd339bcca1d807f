"""What several verbs open the same way: the store, the limits, the exit code of a Result."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgescope.isolate import Limits
    from edgescope.records import Result
    from edgescope.store import Store
    from edgescope.sweep import Progress

#: Beginnings of a reason's code that name a kind of end more precisely than the status does.
REASONS = {"E-OPT-": 2, "E-SHAPE-": 2, "E-MODE-": 4, "E-RAN-": 6}


def store(args: argparse.Namespace) -> Store:
    """Return the store that the flags or the environment name."""
    from edgescope.store import Store, default_root

    return Store(Path(args.store) if args.store else default_root())


def limits(args: argparse.Namespace) -> Limits:
    """Return what stops a trial."""
    from edgescope.isolate import Limits

    floor = None if args.memory_floor is None else int(args.memory_floor * 1e6)
    return Limits(args.timeout, floor)


def exit_code(result: Result) -> int:
    """Return the exit code that tells a script what kind of end this was."""
    from edgescope.records import Status

    kind = next((code for prefix, code in REASONS.items() if result.reason.startswith(prefix)), None)
    codes = {Status.OK: 0, Status.UNSUPPORTED: 3, Status.OOM: 5}
    return codes.get(result.status, 1) if kind is None else kind


def tell(progress: Progress) -> None:
    """Print where a sweep stands on stderr."""
    t = progress.trial
    eta = "" if progress.eta_s is None else f", about {progress.eta_s:.0f} s left"
    again = f" replicate {t.replicate}" if t.replicate else ""
    print(
        f"[{progress.done + 1}/{progress.total}] {t.model} {t.label}{again}{eta}", file=sys.stderr, flush=True
    )
