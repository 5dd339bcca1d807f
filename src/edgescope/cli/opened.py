"""What several verbs open the same way: the store, the limits, the exit code of a Result."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgescope.isolate import Limits
    from edgescope.records import Result, Status
    from edgescope.store import Store
    from edgescope.sweep import Cells, Progress

#: Beginnings of a reason's code that name a kind of end more precisely than the status does.
USAGE = (
    "E-OPT-",
    "E-SHAPE-",
    "E-BATCH-",
    "E-NAME-1",
    "E-LEAK-",
    "E-SCEN-",
    "E-GATE-7",
    "E-TRIAL-1",
    "E-TRIAL-2",
)
REASONS = {**dict.fromkeys(USAGE, 2), "E-RAN-": 6}


def store(args: argparse.Namespace) -> Store:
    """Return the store that the flags or the environment name."""
    from edgescope.store import Store, default_root

    return Store(Path(args.store) if args.store else default_root())


def cells(args: argparse.Namespace, where: Store) -> Cells:
    """Return what runs cells on this machine into the store `where`, each in a process of its own."""
    from edgescope.bench import here
    from edgescope.sweep import Cells, Isolated

    return Cells(where, limits(args), Isolated(), here(), retried(args))


def retried(args: argparse.Namespace) -> set[Status]:
    """Return the statuses named by --retry."""
    from edgescope.errors import UsageError
    from edgescope.records import Status

    try:
        return {Status(word) for word in filter(None, (args.retry or "").split(","))}
    except ValueError as error:
        known = ", ".join(s.value for s in Status)
        raise UsageError("E-RETRY-1", f"--retry: {error}", evidence=f"known: {known}") from error


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
