"""The leader: keeps worker processes, has them open a trial, names a start and a stop, and collects what they did.

It computes nothing itself and imports no engine. While it waits it hears every worker, so that one that dies ends the
trial at once, and one that hangs ends it after a limit; both say which worker it was and what it last wrote.
"""

from __future__ import annotations

import select
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from edgescope import scratch
from edgescope.isolate.barrier import Span
from edgescope.isolate.counter import Counter, Look
from edgescope.isolate.process import CrewError, Member, Seat, oom_kills
from edgescope.isolate.staff import Staff, available
from edgescope.records import Json, Status, Trial

#: From naming the start to it: every worker must have read the line and gone to sleep by then.
LEAD_NS = 100_000_000
#: Seconds a worker may need after the stop for the query it is at, beside what its first query took.
GRACE_S = 10.0
PATIENCE_S = 600.0

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Driven(Generic[Seen]):
    """What one shift did: the agreed span, two looks at the counters, the workers' words, what the stop showed."""

    span: Span
    looks: tuple[Look, Look]
    ready: list[dict[str, Json]]
    words: list[dict[str, Json]]
    seen: Seen


class Crew:
    """Worker processes that wait for trials; a context manager that ends them."""

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self.grace_s = grace_s
        self._scratch = scratch.folder("crew")
        self.folder = Path(self._scratch.name)
        self.members: list[Member] = []
        self.took = 0.0
        """Bytes that one worker took while it loaded; 0 where none was watched."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker."""
        self.dismiss()
        self._scratch.cleanup()

    def dismiss(self) -> None:
        """End the workers there are; the next shift starts new ones."""
        for member in self.members:
            member.process.kill()
        for member in self.members:
            member.end()
        self.members = []

    def _staff(self, seats: Sequence[Seat]) -> list[Member]:
        """Return one worker a seat, started where there is none yet; other seats need other processes."""
        moved = any(member.seat != seat for member, seat in zip(self.members, seats, strict=False))
        if moved or any(member.process.poll() is not None for member in self.members):
            self.dismiss()
        for number in range(len(self.members), len(seats)):
            self.members.append(Member(number, seats[number], self.folder))
        return self.members[: len(seats)]

    @contextmanager
    def shift(
        self,
        trials: Sequence[Trial],
        seats: Sequence[Seat],
        limit_s: float = PATIENCE_S,
        *,
        staff: Staff = Staff(),  # noqa: B008  (frozen)
    ) -> Iterator[Shift]:
        """Have one worker a trial open it; yield the shift once all have. CrewError where one fails, dies or hangs.

        All of it may take `limit_s`. Where `staff` asks for more workers than the trial needs and memory has room,
        they are started at once and have loaded its model before anything is measured.

        Afterwards no worker holds a session. Workers are ended where anything went wrong, but for a trial that the
        engine cannot run: that harms nobody.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        free = available()
        members = self._staff(seats)
        try:
            with Counter(folder / "counter", len(members)) as counter:
                shift = Shift(self, members, folder, counter, limit_s)
                if staff.workers > len(self.members) and len({*map(repr, seats)}) == 1:
                    self._hire(shift, trials[0], staff, free)
                shift.open(trials)
                yield shift
                shift.say("close")
                shift.gathered("closed", "closed")
        except CrewError as error:
            if error.status is not Status.UNSUPPORTED or not shift.abandoned():
                self.dismiss()
            raise
        except BaseException:
            self.dismiss()
            raise
        finally:
            for member in members:
                member.used = member.loaded = True
            shutil.rmtree(folder, ignore_errors=True)

    def _hire(self, shift: Shift, trial: Trial, staff: Staff, free: int) -> None:
        """Start the workers that later trials need where what this trial's own took leaves room for them.

        `free` bytes could be had before these were started. All load the model now: none may be at it while others
        measure. What goes wrong with the new ones is none of this trial's business.
        """
        if new := [member for member in shift.members if not member.loaded]:
            peaks = self._load(shift, new, trial)
            self.took = max(*peaks, (free - available()) / len(new))
        more = range(len(self.members), staff.workers)
        if not self.took or not staff.fits(len(more), self.took):
            return
        self.members += [Member(number, shift.members[0].seat, self.folder) for number in more]
        try:
            self._load(shift, self.members[more.start :], trial)
        except CrewError:
            for member in self.members[more.start :]:
                member.end()
            del self.members[more.start :]

    @staticmethod
    def _load(shift: Shift, new: Sequence[Member], trial: Trial) -> list[float]:
        """Have new workers load the trial's model; return the largest resident set of each in bytes."""
        words = shift.asked("load", "loaded", new, trial=trial.to_json())
        for member in new:
            member.loaded = True
        return [float(word["peak_bytes"]) for word in words]


class Shift:
    """One trial, open in several workers."""

    def __init__(
        self, crew: Crew, members: Sequence[Member], folder: Path, counter: Counter, limit_s: float
    ) -> None:
        self.crew, self.members, self.folder, self.counter = crew, members, folder, counter
        self.begun, self.limit_s = time.monotonic(), limit_s
        self.opened: list[dict[str, Json]] = []

    def open(self, trials: Sequence[Trial]) -> None:
        """Have every worker open its trial."""
        for member, trial in zip(self.members, trials, strict=True):
            member.kills = oom_kills()
            member.say(
                "open",
                trial=trial.to_json(),
                number=member.number,
                workers=len(self.members),
                folder=str(self.folder),
                again=member.used,
            )
        self.opened = self.gathered("opened", "open")

    def say(self, do: str, **what: Json) -> None:
        """Give every worker the same order."""
        for member in self.members:
            member.say(do, **what)

    def gathered(
        self,
        said: str,
        done: str,
        *,
        limit_s: float | None = None,
        of: Sequence[Member] | None = None,
        until_ns: int | None = None,
        before: Sequence[dict[str, Json] | None] = (),
    ) -> list[dict[str, Json]]:
        """Return what every worker says when it says `said`.

        CrewError where one fails, dies, or is not `done` in time: `limit_s`, or what is left to the shift. With
        `until_ns` it returns then, with an empty word of those that have not said it.
        """
        members = list(self.members if of is None else of)
        words: dict[int, dict[str, Json]] = {m.number: w for m, w in zip(members, before, strict=False) if w}
        by_handle = {member.fileno(): member for member in members}
        ears = select.poll()
        for handle in by_handle:
            ears.register(handle, select.POLLIN)
        started = time.monotonic_ns()
        left_s = max(0.0, self.limit_s - (time.monotonic() - self.begun))
        wait_s = left_s if limit_s is None else min(limit_s, left_s)
        end = started + round(wait_s * 1e9) if until_ns is None else until_ns
        while len(words) < len(members):
            left_ms = (end - time.monotonic_ns()) / 1e6
            if left_ms <= 0:
                if until_ns is not None:
                    break
                late = next(m for m in members if m.number not in words)
                raise late.silent(done, wait_s)
            for handle, _ in ears.poll(left_ms):
                by_handle[handle].listen()
            self._sorted(members, said, words)
        return [words.get(m.number, {}) for m in members]

    def _sorted(self, members: Sequence[Member], said: str, words: dict[int, dict[str, Json]]) -> None:
        """Read the inboxes: what was waited for into `words`; CrewError for a worker that has failed."""
        for member in members:
            while member.inbox:
                word = member.inbox.popleft()
                if word["said"] == "failed":
                    alone = len(self.members) == 1
                    reason = word["reason"] if alone else _of_worker(member.number, word["reason"])
                    raise CrewError(Status(word["status"]), reason)
                if word["said"] == said:
                    words[member.number] = word

    def drive(
        self,
        seconds: float,
        at_stop: Callable[[Sequence[int]], Seen],
        *,
        patience_s: float = 0.0,
        edge: Callable[[], object] = int,
    ) -> Driven[Seen]:
        """Have all warm up, agree on a start and a stop `seconds` later, and collect; `at_stop(pids)` is asked then.

        `edge` is called at the start and at the stop. `patience_s` is what the scenario may take after the stop to
        serve what waits.
        """
        self.say("drive")
        ready = self.gathered("ready", "ready")
        first = self.counter.look()
        start = time.monotonic_ns() + LEAD_NS
        span = Span(start, start + round(seconds * 1e9))
        self.say("start", start_ns=span.start_ns, stop_ns=span.stop_ns)
        time.sleep(max(0, span.start_ns - time.monotonic_ns()) / 1e9)
        edge()
        early = self.gathered("driven", "done", until_ns=span.stop_ns)
        last = self.counter.look()
        edge()
        seen = at_stop([member.pid for member in self.members])
        words = self.gathered("driven", "done", limit_s=self._grace_s() + patience_s, before=early)
        return Driven(span, (first, last), ready, words, seen)

    def _grace_s(self) -> float:
        first = max((w["facts"].get("first_s", {}).get("value", 0.0) for w in self.opened), default=0.0)
        return self.crew.grace_s + 2 * len(self.members) * float(first)

    def asked(self, do: str, said: str, of: Sequence[Member], **what: Json) -> list[dict[str, Json]]:
        """Have some workers do one thing with the open session; return their answers."""
        for member in of:
            member.say(do, **what)
        return self.gathered(said, said, of=of)

    def abandoned(self) -> bool:
        """Have all give the trial up; return whether each has closed what it had opened."""
        try:
            self.say("abandon")
            for member in self.members:
                self._until_closed(member)
        except CrewError:
            return False
        return True

    def _until_closed(self, member: Member) -> None:
        ears = select.poll()
        ears.register(member.fileno(), select.POLLIN)
        end = time.monotonic() + self.crew.grace_s
        while time.monotonic() < end:
            while member.inbox:
                if member.inbox.popleft()["said"] == "closed":
                    return
            if ears.poll(100):
                member.listen()
        raise member.silent("closed", self.crew.grace_s)


def _of_worker(number: int, reason: str) -> str:
    """Return the reason with the worker's number behind its code."""
    code, colon, rest = reason.partition(": ")
    return f"{code}: worker {number}: {rest}" if colon else reason
