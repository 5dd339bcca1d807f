"""verify_board: every check in a process of its own, within its time; whatever it changed, put back; one answer.

A keeper (keeper.py) stands beside this process: it restores the settings if this one is killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import edgescope
from edgescope import errors
from edgescope.devices import manifest
from edgescope.errors import EdgescopeError
from edgescope.isolate.fresh import GuardedProcess, Limits, environment
from edgescope.modes.enter import journal, left_behind, stoppable
from edgescope.process import Process, scratch_folder
from edgescope.wings.record.lends import Names
from edgescope.wings.verify_board.board_file import BoardFile, Verified
from edgescope.wings.verify_board.check import Check, Outcome, Status, chosen
from edgescope.wings.verify_board.one import ERROR, IDENTITY

BUDGET_S = 1200.0
"""Seconds that all checks may take: none begins later, and the one that runs then is stopped."""
Tell = Callable[[Check, Outcome | None], None]


def verify_board(
    on: str = "",
    *,
    only: Sequence[str] = (),
    budget_s: float = BUDGET_S,
    tell: Tell = lambda check, outcome: None,
) -> BoardFile:
    """Verify this machine, or the board at the ssh address `on`: run each check of checks.toml, or those of `only`.

    `tell` is called with each check before it runs, and again with its outcome. What a check changes is put back
    however it ends, and however this process ends. EdgescopeError if the board cannot be reached at all.
    """
    wanted = chosen([IDENTITY, *only] if only else ())
    kit = _Kit(on, time.monotonic() + budget_s)
    begun = time.monotonic()
    with stoppable(), kept():
        journal().recover()
        done = tuple(kit.verified(check, tell) for check in wanted)
    state = done[0].outcome.evidence
    return BoardFile(
        edgescope.__version__,
        manifest.git(Path(edgescope.__file__).parent).get("commit", "not known"),
        time.strftime("%Y-%m-%d", time.gmtime()),
        kit.reached,
        str(state.get("title", "a board that does not say what it is")),
        time.monotonic() - begun,
        done,
        tuple(kit.restored),
        tuple(left_behind()),
        kit.names,
    )


class _Kit:
    """The board at an address, and what is known of it so far."""

    def __init__(self, url: str, until_s: float) -> None:
        self.url, self.until_s = url, until_s
        self.names, self.reached = Names(), "here"
        self.restored: list[str] = []

    def verified(self, check: Check, tell: Tell) -> Verified:
        """Run a check if there is time for it, and put back what it left."""
        tell(check, None)
        begun = time.monotonic()
        limit_s = min(check.limit_s, self.until_s - begun)
        if limit_s <= 0:
            outcome = Outcome(Status.NOT_RUN, "the time was up before it began")
        else:
            outcome = self._run(check, limit_s)
        tell(check, outcome)
        return Verified(check, outcome, time.monotonic() - begun)

    def _run(self, check: Check, limit_s: float) -> Outcome:
        with scratch_folder("verify") as folder:
            program = [sys.executable, "-m", f"{__package__}.one", check.name, *filter(None, [self.url])]
            child = GuardedProcess(program, Path(folder), environment(Limits(limit_s), folder), talks=True)
            try:
                answer = child.pipe.receive(limit_s)
            except TimeoutError:
                return _late(check, limit_s)
            except EOFError:
                child.wait(1.0)
                last = " | ".join(child.tail()[-2:])[-300:]
                return Outcome(Status.FAILS, f"its process {child.ending()}: {last or 'it wrote nothing'}")
            finally:
                child.end()
                self._restore()
        return self._answered(check, answer)

    def _answered(self, check: Check, answer: Mapping[str, Any]) -> Outcome:
        if ERROR in answer:
            name, *parts = answer[ERROR]
            error = rebuilt(name, parts)
            if check.name == IDENTITY:
                raise error
            return Outcome(Status.FAILS, str(error.message))
        if check.name == IDENTITY:
            self.names, self.reached = Names(dict(answer["words"])), str(answer["reached"])
        return Outcome.of(answer["outcome"])

    def _restore(self) -> None:
        """Put back what a check that was ended has left changed."""
        behind = left_behind()
        if behind:
            journal().recover()
            self.restored += behind


def _late(check: Check, limit_s: float) -> Outcome:
    if limit_s < check.limit_s:
        return Outcome(Status.NOT_RUN, f"the time was up after {limit_s:.0f} s of it, and it was stopped")
    return Outcome(Status.FAILS, f"it did not end within {limit_s:g} s and was stopped")


def rebuilt(name: str, parts: Sequence[str]) -> EdgescopeError:
    """Return the error that a check's process said, of its own class."""
    kind = getattr(errors, name, EdgescopeError)
    code, what, evidence, effect, fix = map(str, parts)
    made: EdgescopeError = kind(code, what, evidence=evidence, effect=effect, fix=fix)
    return made


@contextmanager
def kept() -> Iterator[None]:
    """Have a process beside this one that restores the settings if this one is killed within the block."""
    keeper = Process([sys.executable, "-m", f"{__package__}.keeper"], session=True)
    try:
        yield
        keeper.pipe.send(done=True)
    finally:
        keeper.pipe.hang_up()  # without `done`, it restores
        keeper.wait(1.0)
        keeper.end() if keeper.code is not None else None
