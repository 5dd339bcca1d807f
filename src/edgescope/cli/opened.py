"""What several verbs open the same way: the store, the limits, the exit code of a Result."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgescope.isolate.fresh import Limits
    from edgescope.records import Result, Status, Trial
    from edgescope.store.results import Store
    from edgescope.sweep.run import Cells, Progress

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
    "E-ON-",
    "E-SSH-1:",
    "E-MODE-10",
    "E-MODE-1:",
    "E-MODE-7",
    "E-MODE-8",
    "E-MODE-13",
)
REASONS = {**dict.fromkeys(USAGE, 2), "E-MODE-9": 3, "E-MODE-": 4, "E-REC-7": 4, "E-RAN-": 6}


def add_verbose(sub: argparse.ArgumentParser) -> None:
    """Add -v: the answer alone is printed without it."""
    text = "print the evidence too: intervals, what was rejected and why, what to install"
    sub.add_argument("-v", "--verbose", action="store_true", help=text)


def command() -> str:
    """Return the running command, without anything that may be a credential."""
    from edgescope.devices.manifest import masked

    return shlex.join(["edgescope", *masked(sys.argv[1:])])


def store(args: argparse.Namespace) -> Store:
    """Return the store that the flags or the environment name."""
    from edgescope.store.results import Store, default_root

    return Store(Path(args.store) if args.store else default_root())


def machine(named: str) -> str:
    """Return the beginning of a machine's id that --machine means: of `here` all of this machine's."""
    from edgescope.analysis.cells.machines import HERE

    if named != HERE:
        return named
    from edgescope.bench import here

    return here().id


def cells(args: argparse.Namespace, where: Store) -> Cells:
    """Return what runs cells on this machine into the store `where`, each in a process of its own."""
    from edgescope.bench import here
    from edgescope.sweep.run import Cells, Isolated

    return Cells(where, limits(args), Isolated(), here(), retried(args))


def use_board(url: str, trial: Trial) -> None:
    """Have every trial's process drive the board at `url`; an EdgescopeError where it cannot be had."""
    from edgescope.remote import address, run

    where = run.check(url, trial)
    os.environ[address.VARIABLE] = url
    name = where.stable.get("cpu", {}).get("board", "a board")
    print(f"on {name} ({url})", file=sys.stderr, flush=True)


def check_modes(trials: Iterable[Trial]) -> None:
    """Raise UsageError for a mode that this machine has not; say beforehand which need a reboot."""
    names = sorted({t.mode for t in trials} - {"as_is"})
    if not names:
        return
    from edgescope.bench import present
    from edgescope.errors import message
    from edgescope.modes import catalog
    from edgescope.modes.jetson import NvpMode

    devices = present()
    for name in names:
        mode = catalog.find(name, devices)
        change, why = mode.change() if isinstance(mode, NvpMode) else ("live", "")
        if change != "live":
            text = f"{name}: {change} ({why}), so its cells may be refused"
            print(message("W-MODE-1", text, fix="edgescope modes"), file=sys.stderr, flush=True)


def retried(args: argparse.Namespace) -> set[Status]:
    """Return the statuses named by --retry."""
    from edgescope.errors import UsageError, meant
    from edgescope.records import Status

    try:
        return {Status(word) for word in filter(None, (args.retry or "").split(","))}
    except ValueError as error:
        known = [s.value for s in Status]
        close = [c for word in args.retry.split(",") if word not in known and (c := meant(word, known))]
        raise UsageError(
            "E-RETRY-1",
            f"--retry: {error}",
            evidence=f"known: {', '.join(known)}",
            fix=f"--retry {','.join(close)}" if close else "",
        ) from error


def limits(args: argparse.Namespace) -> Limits:
    """Return what stops a trial."""
    from edgescope.isolate.fresh import Limits
    from edgescope.study import ranges

    ranges.limits(args.timeout, args.memory_floor, getattr(args, "soak", None))
    floor = None if args.memory_floor is None else int(args.memory_floor * 1e6)
    return Limits(args.timeout + (getattr(args, "soak", None) or 0.0), floor)  # a soak comes on top


def exit_code(result: Result) -> int:
    """Return the exit code that tells a script what kind of end this was."""
    from edgescope.records import Status

    kind = next((code for prefix, code in REASONS.items() if result.reason.startswith(prefix)), None)
    codes = {Status.OK: 0, Status.UNSUPPORTED: 3, Status.OOM: 5}
    return codes.get(result.status, 1) if kind is None else kind


def refused(reason: str) -> bool:
    """Whether a trial can never run as it was asked for: a wrong flag, or a file that its engine cannot read."""
    return reason.startswith((*USAGE, "E-MODEL-5:", "E-MODEL-6:"))


def asked_wrongly(reason: str) -> bool:
    """Whether a trial failed of what was asked, which trying again does not change."""
    return reason.startswith(USAGE)


def say(text: str) -> None:
    """Print one line on stderr."""
    print(text, file=sys.stderr, flush=True)


def tell(progress: Progress) -> None:
    """Print where a sweep stands on stderr."""
    t = progress.trial
    eta = "" if progress.eta_s is None else f", about {progress.eta_s:.0f} s left"
    again = f" replicate {t.replicate}" if t.replicate else ""
    print(
        f"[{progress.done + 1}/{progress.total}] {t.model} {t.label}{again}{eta}", file=sys.stderr, flush=True
    )
