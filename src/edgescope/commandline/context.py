"""What several verbs do by their flags: open store and limits, show an answer, count down, name the exit code."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgescope import errors
from edgescope.errors import ExitCode, UsageError, closest_name
from edgescope.process import said

if TYPE_CHECKING:
    from edgescope.errors import Message
    from edgescope.isolate.fresh import Limits
    from edgescope.records import Machine, Result, Status, Trial
    from edgescope.report.document import Document
    from edgescope.runner.setup import Setup
    from edgescope.store.results import Store

#: Message code, or its family -> exit code, where it is more precise than the exit code of the status.
REASONS = {
    **dict.fromkeys(errors.USAGE, ExitCode.USAGE),
    "E-MODE-9": ExitCode.UNAVAILABLE,
    "E-MODE-": ExitCode.SETTING,
    "E-REC-7": ExitCode.SETTING,
    "E-RAN-": ExitCode.RAN_ELSEWHERE,
}


def add_verbose(sub: argparse.ArgumentParser) -> None:
    """Add -v, which prints the evidence besides the answer."""
    text = "also print the evidence: intervals, what was rejected and why, what to install"
    sub.add_argument("-v", "--verbose", action="store_true", help=text)


def command() -> str:
    """Return the running command, with everything masked that may be a credential."""
    from edgescope.devices.manifest import masked

    return shlex.join(["edgescope", *masked(sys.argv[1:])])


def store(args: argparse.Namespace) -> Store:
    """Return the store that --store or the environment names."""
    from edgescope.store.results import Store

    return Store(args.store or None)


def setup(args: argparse.Namespace) -> Setup:
    """Return the Setup that the flags of `trial_flags.add_safety` describe; its progress goes to stderr."""
    from edgescope.runner.setup import Setup

    return Setup(limits(args), retried(args), say, said.waiting)


def use_board(url: str | None, trials: Sequence[Trial] = ()) -> None:
    """Make every trial's process drive the board at `url`; EdgescopeError if it, or one of the trials, cannot be used.

    Without a `url` nothing changes.
    """
    if not url:
        return
    from edgescope import registry
    from edgescope.devices import manifest

    check = registry.need(registry.CHECK_BOARD, "a board over ssh", registry.REINSTALL)
    where: Machine = check(url, trials)
    manifest.drive(where, url)
    name = where.stable.get("cpu", {}).get("board", "a board")
    say(f"on {name} ({url})")


def retried(args: argparse.Namespace) -> set[Status]:
    """Return the statuses that --retry names; UsageError for an unknown one."""
    from edgescope.records import Status

    try:
        return {Status(word) for word in filter(None, (args.retry or "").split(","))}
    except ValueError as error:
        known = [s.value for s in Status]
        close = [
            c for word in args.retry.split(",") if word not in known and (c := closest_name(word, known))
        ]
        raise UsageError(
            "E-RETRY-1",
            f"--retry: {error}",
            evidence=f"known: {', '.join(known)}",
            fix=f"--retry {','.join(close)}" if close else "",
        ) from error


def limits(args: argparse.Namespace) -> Limits:
    """Return the limits of time and memory at which a trial is stopped; UsageError if out of range."""
    from edgescope.isolate.fresh import Limits
    from edgescope.study import rules

    rules.limits(args.timeout, args.memory_floor, getattr(args, "soak", None))
    floor = None if args.memory_floor is None else int(args.memory_floor * 1e6)
    return Limits(args.timeout + (getattr(args, "soak", None) or 0.0), floor)  # --soak extends the time limit


def exit_code(result: Result) -> ExitCode:
    """Return the exit code of a verb that ends with this result."""
    from edgescope.records import Status

    kind = _kind(result.reason)
    codes = {
        Status.OK: ExitCode.OK,
        Status.UNSUPPORTED: ExitCode.UNAVAILABLE,
        Status.OOM: ExitCode.SAFETY,
    }
    return codes.get(result.status, ExitCode.FAILED) if kind is None else kind


def _kind(reason: Message | None) -> ExitCode | None:
    """Return the exit code of a reason's code or family of codes, or None if the status decides."""
    if reason is None:
        return None
    return REASONS.get(reason.code, REASONS.get(reason.family))


def ready(args: argparse.Namespace) -> None:
    """Raise UsageError now, before time is spent, if the file of --output could not be written."""
    if args.output:
        from edgescope.report import RENDERERS, writable

        writable(args.output, RENDERERS)


def show(args: argparse.Namespace, page: Document, *, whole: bool = False) -> None:
    """Write an answer to the file of --output, then print it, as JSON with --json; `whole`: all of its lines."""
    from edgescope.report import data, save, terminal

    if getattr(args, "output", None):
        save(page, args.output)  # before printing, which fails if the reader has closed the pipe
    if args.json:
        print(data.json_text(page))
    else:
        verbose = getattr(args, "verbose", True)
        terminal.show(page, verbose=verbose, limit=None if whole else terminal.LINES)


def show_each(args: argparse.Namespace, pages: Sequence[Document]) -> None:
    """Print several answers one below the other, as one JSON object with --json; --all: all of their lines."""
    from edgescope.report import data, terminal

    if args.json:
        print(data.joined_json("answers", pages))
        return
    for number, page in enumerate(pages):
        print("\n" * (number > 0), end="")
        terminal.show(page, verbose=args.verbose, limit=None if args.all else terminal.LINES)


say = said.say
"""Prints one line on stderr."""


# -- how long the rest of a job of like parts takes, by the pace of those that are done --------------------------

EVERY_S = 5.0
"""Seconds between two lines about a job of many short parts."""


class Countdown:
    """Estimates from the pace since the first report: what comes before it is loading, and happens once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.begun = clock, clock()
        self._first: tuple[float, float] | None = None
        self._said = -EVERY_S

    def left_s(self, done: float, total: float) -> float | None:
        """Return the seconds left once `done` parts are done; None at the first report, which has no pace yet."""
        now = self.clock()
        self._first = self._first or (done, now)
        start, since = self._first
        return (now - since) / (done - start) * (total - done) if done > start else None

    def words(self, done: float, total: float) -> str:
        """Return `, about 40 s left`; the time so far where there is no pace yet, and that of all at the end."""
        from edgescope.units import lasting, remaining  # needs numpy, through records

        left, spent = self.left_s(done, total), self.clock() - self.begun
        return f", {lasting(spent)} in all" if done >= total else remaining(left, spent)

    def due(self, done: float, total: float) -> bool:
        """Return whether to print a line: for the first part and the last, and every EVERY_S seconds."""
        now = self.clock() - self.begun
        due = done >= total or now - self._said >= EVERY_S
        self._said = now if due else self._said
        return due
