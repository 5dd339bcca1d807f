"""A sweep as it runs: a line for each cell as it ends, then what became of all of them and what to do next."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from edgescope.cli import card, cell_names
from edgescope.errors import Message, asked_wrongly
from edgescope.records import Result, Status, Trust
from edgescope.report import terminal

if TYPE_CHECKING:
    from edgescope.records import Trial
    from edgescope.runner.run import Progress

GOOD = (Status.OK, Status.UNSUPPORTED, Status.SKIPPED)
STYLE = {Status.OK: "green", Status.SKIPPED: "dim", Status.UNSUPPORTED: "dim", Status.UNSTABLE: "yellow"}
_CLEAR = "\r\x1b[K"


class View:
    """The screen of one sweep over these trials."""

    def __init__(self, trials: Sequence[Trial], study: str = "") -> None:
        self.study = study
        """The file that the trials came from, '' where flags described them."""
        self.trials, self.name = trials, cell_names.namer(trials)
        self.wide = min(48, max(len(self.name(t)) for t in trials))
        self.out, self.begun = terminal.console(), time.monotonic()
        self.at: Progress | None = None
        self.live = sys.stderr.isatty()
        self.new: list[Result] = []

    def tell(self, progress: Progress) -> None:
        """Say which cell runs now: on a terminal in a line that its result replaces."""
        if not self.new and (same := cell_names.shared(self.trials)):
            self.out.print(Text(f"all cells: {same}", style="dim"))
        self.at = progress
        eta = "" if progress.eta_s is None else f", about {duration(progress.eta_s)} left"
        text = f"[{progress.done + 1}/{progress.total}] {self.name(progress.trial)}{eta}"
        if self.live:
            sys.stderr.write(f"{_CLEAR}{text} ...")
            sys.stderr.flush()
        else:
            print(text, file=sys.stderr, flush=True)

    def show(self, result: Result) -> None:
        """Print the line of one result."""
        if self.live:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
        self.new.append(result)
        done, total = (self.at.done + 1, self.at.total) if self.at else (len(self.new), len(self.trials))
        width = len(str(total))
        head = f"[{done:>{width}}/{total}] {self.name(result.trial):<{self.wide}} "
        self.out.print(Text.assemble(head, self._status(result), " ", *_figures(result)), soft_wrap=True)

    def _status(self, result: Result) -> Text:
        return Text(f"{result.status.value:<11}", style=STYLE.get(result.status, "red"))

    def close(self, stored: Mapping[str, Result]) -> None:
        """Print what became of the grid: counts by status, reasons grouped, what to do next."""
        asked = {t.id for t in self.trials}
        every = {id_: r for id_, r in stored.items() if id_ in asked} | {r.trial.id: r for r in self.new}
        results = [every[t.id] for t in self.trials if t.id in every]
        took = f"{len(self.new)} ran in {duration(time.monotonic() - self.begun)}; " if self.new else ""
        before = "" if self.new else "nothing was missing; "
        self.out.print()
        self.out.print(Text(f"{took}{before}{_counts(results)}", style="bold"), soft_wrap=True)
        for text in grouped(results, self.name):
            self.out.print(text, soft_wrap=True)
        for line in following(results, self.study):
            self.out.print(Text(f"  next  {line}"), soft_wrap=True)


def _figures(result: Result) -> list[str | Text]:
    """Return throughput, p99 and verdict of a measured cell, the reason of another."""
    m = result.metrics.get
    if result.status not in (Status.OK, Status.UNSTABLE, Status.WRONG_OUTPUT):
        return [said(result.reason)[1]]
    trust = result.verdict.trust
    rate = terminal.show(m("throughput_sps"), interval=False)
    tail = terminal.show(m("latency_p99_s"), interval=False)
    verdict = Text(trust.value, style=card.TRUST_STYLE[trust])
    why = "" if result.status is Status.OK else f"  {said(result.reason)[1]}"
    return [f"{rate:>16}  p99 {tail:>8}  ", verdict, why]


def duration(seconds: float) -> str:
    """Return `40 s`, `12 min` or `3 h 5 min`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def said(reason: Message | None) -> tuple[str, str]:
    """Return (code, what happened) of a message, without its evidence and advice."""
    return (reason.code, reason.what) if reason else ("", "")


def _counts(results: Sequence[Result]) -> str:
    """Return `120 ok (9 DISTURBED), 4 oom, 12 skipped`."""
    parts = []
    for status in Status:
        mine = [r for r in results if r.status is status]
        if mine:
            bad = [
                r.verdict.trust.value
                for r in mine
                if status is Status.OK and r.verdict.trust is not Trust.CLEAN
            ]
            trust = ", ".join(f"{bad.count(word)} {word}" for word in sorted(set(bad)))
            parts.append(f"{len(mine)} {status.value}{f' ({trust})' if trust else ''}")
    return ", ".join(parts) or "no cells"


def grouped(results: Iterable[Result], name: object) -> list[Text]:
    """Return a line for each reason that cells did not end well, the most frequent first, with one of the cells."""
    groups: dict[tuple[Status, str], list[Result]] = {}
    for r in results:
        if r.status is not Status.OK:
            groups.setdefault((r.status, said(r.reason)[0]), []).append(r)
    lines = []
    for (status, _), mine in sorted(groups.items(), key=lambda item: -len(item[1])):
        cell = name(mine[0].trial) if callable(name) else ""
        code, what = said(mine[0].reason)
        text = Text(f"  {len(mine):>3} {f'{status.value} ':<12}", style=STYLE.get(status, "red"))
        lines.append(text + Text(f"{code}{': ' if code else ''}{what}") + Text(f"  e.g. {cell}", style="dim"))
    return lines


def _fixes(results: Sequence[Result]) -> list[str]:
    """Return what the reasons of wrongly asked cells say to type instead."""
    wrong = (r.reason.fix for r in results if r.reason and asked_wrongly(r.reason))
    return list(dict.fromkeys(filter(None, wrong)))


def following(results: Sequence[Result], study: str = "") -> list[str]:
    """Return what to type next, for what these results leave open."""
    from edgescope.cli.main import VERBS

    statuses = {r.status for r in results if not asked_wrongly(r.reason)}
    lines = [f"{fix}   for cells that were asked for wrongly" for fix in _fixes(results)]
    again = [
        s.value for s in (Status.UNSTABLE, Status.TIMEOUT, Status.CRASHED, Status.FAILED) if s in statuses
    ]
    if again:
        longer = " --timeout 30min" if Status.TIMEOUT in statuses else ""
        lines.append(f"the same command with --retry {','.join(again)}{longer}   measures those again")
    if Status.SKIPPED in statuses:
        lines.append("the same command with --no-prune --retry skipped   tries what was not tried")
    if Status.CANCELLED in statuses:
        lines.append("the same command   runs what was cancelled")
    if any(r.status is Status.OK and r.verdict.trust is not Trust.CLEAN for r in results):
        lines.append("edgescope doctor   says what disturbs this machine")
    if any(r.status is Status.OK for r in results):
        if "recommend" in VERBS:
            asked = f" --study {shlex.quote(study)}" if study else ""
            lines.append(f"edgescope recommend{asked}   picks one under your constraints")
        lines.append("edgescope report -o report.html   shows every cell")
    return lines
