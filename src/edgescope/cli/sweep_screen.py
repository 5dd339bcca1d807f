"""The screen of a sweep: the running cell, one line for each finished cell (with -v on stdout), then a summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgescope.commandline import context
from edgescope.process import said
from edgescope.report import sweep
from edgescope.report.document import Document
from edgescope.report.render import terminal
from edgescope.units import lasting, remaining

if TYPE_CHECKING:
    from edgescope.records import Result, Trial
    from edgescope.runner.run import Progress

_CLEAR = "\r\x1b[K"


class Screen:
    """Prints the progress of one sweep over `trials`, then its summary."""

    def __init__(self, trials: Sequence[Trial], study: str = "", *, verbose: bool = False) -> None:
        self.study, self.verbose = study, verbose
        """The study file, or '' if flags describe the trials; whether each cell's line goes to stdout."""
        self.trials, self.name = trials, sweep.namer(trials)
        self.wide = min(48, max(len(self.name(t)) for t in trials))
        self.begun = time.monotonic()
        self.at: Progress | None = None
        self.live = sys.stderr.isatty()
        self.new: list[Result] = []

    def tell(self, progress: Progress) -> None:
        """Print which cell runs now; on a terminal, the line of its result replaces it."""
        if self.at is None and (same := sweep.shared(self.trials)):
            context.say(f"all cells: {same}")
        self.at = progress
        eta = remaining(progress.eta_s, progress.spent_s)
        text = f"[{progress.done + 1}/{progress.total}] {self.name(progress.trial)}{eta}"
        if self.live:
            sys.stderr.write(f"{_CLEAR}{said.fitted(text, said.columns() - 5)} ...")
            sys.stderr.flush()
        else:
            context.say(text)

    def show(self, result: Result) -> None:
        """Print the line of one result."""
        if self.live:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
        self.new.append(result)
        done, total = (self.at.done + 1, self.at.total) if self.at else (len(self.new), len(self.trials))
        head = f"[{done:>{len(str(total))}}/{total}] {self.name(result.trial):<{self.wide}} "
        line = sweep.line(result, head)
        if self.verbose:
            terminal.printed([line])
        else:
            context.say(terminal.words(line))

    def close(self, stored: Mapping[str, Result]) -> None:
        """Print the summary of the grid."""
        wanted = {t.id for t in self.trials}
        every = {id_: r for id_, r in stored.items() if id_ in wanted} | {r.trial.id: r for r in self.new}
        results = [every[t.id] for t in self.trials if t.id in every]
        took = f"{len(self.new)} ran in {lasting(time.monotonic() - self.begun)}; "
        steps = sweep.following(results, self.study)
        page: Document = sweep.document(
            results, self.name, steps, ran=took if self.new else "nothing was missing; "
        )
        terminal.show(page, verbose=self.verbose)
