"""Simulate a pipeline: stages in series, each with its servers and a queue before them, fed with frames.

A frame waits in the queue of a stage until one of the stage's servers is free, and so on to the last stage; its age is
the time from its creation to the end of the last stage. Service times are the measured ones, repeated in their order.
A queue may be bounded; its policy says what happens to a frame that finds it full:

    block        the server before keeps the frame and waits; before the first stage, the source waits
    drop_oldest  the frame that has waited longest is dropped
    drop_newest  the frame that comes is dropped

A stage may gather a batch: its server takes `batch` frames at once, or those that are there once the first of them has
waited for `gather_s`. One service time is then that of a whole batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

import numpy as np
from numpy.typing import NDArray

from edgescope.stats.intervals import Floats

POLICIES = ("block", "drop_oldest", "drop_newest")
DROPPED = -1
"""The age of a frame that was dropped."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StageModel:
    """One stage: how long it takes, how many do it at once, and the queue before it."""

    service_s: Floats
    """Seconds of each call, in the order in which they were measured."""
    servers: int = 1
    batch: int = 1
    """The most frames of one call."""
    gather_s: float = 0.0
    """Seconds for which a call waits for a full batch."""
    queue: int | None = None
    """The most frames that wait; None: any number."""
    policy: str = "block"

    def __post_init__(self) -> None:
        """Raise ValueError for a stage that cannot be."""
        problems = (
            (len(self.service_s) > 0 and bool(np.all(np.asarray(self.service_s) >= 0)), "no service times"),
            (self.servers >= 1 and self.batch >= 1 and self.gather_s >= 0, "no servers, or no batch"),
            (self.queue is None or self.queue >= 1, "a queue holds at least one frame"),
            (self.policy in POLICIES, f"a policy is one of {', '.join(POLICIES)}, not {self.policy!r}"),
        )
        if wrong := next((text for fine, text in problems if not fine), ""):
            raise ValueError(wrong)


def frame_ages(arrivals_ns: Ints, stages: Sequence[StageModel]) -> Ints:
    """Return the age in nanoseconds of each frame's result; DROPPED for a frame that has none.

    `arrivals_ns` are the times at which the frames were created, in order.
    """
    return _Simulation(arrivals_ns, stages).run()


class _Stage:
    """The state of one stage while it is simulated."""

    def __init__(self, model: StageModel) -> None:
        self.service = np.round(np.asarray(model.service_s) * 1e9).astype(np.int64).tolist()
        self.batch, self.gather_ns = model.batch, round(model.gather_s * 1e9)
        self.room = model.queue if model.queue is not None else 1 << 62
        self.policy, self.free, self.calls = model.policy, model.servers, 0
        self.queue: deque[tuple[int, int]] = deque()
        """(frame, time at which it came) of those that wait."""
        self.blocked: deque[tuple[_Stage | None, deque[int]]] = deque()
        """Frames that found the queue full, with the stage whose server keeps them; None: the source."""
        self.alarm = -1
        """When the present head of the queue has waited long enough."""


_ARRIVED, _DONE, _GATHERED = range(3)


class _Simulation:
    """Frames on their way through the stages, event by event."""

    def __init__(self, arrivals_ns: Ints, stages: Sequence[StageModel]) -> None:
        self.born = np.asarray(arrivals_ns, dtype=np.int64).tolist()
        self.stages = [_Stage(model) for model in stages]
        self.after = dict(zip(self.stages, [*self.stages[1:], None], strict=True))
        self.ages = [DROPPED] * len(self.born)
        self.numbers = count(len(self.born))
        self.events: list[tuple[int, int, int, _Stage, deque[int]]] = []

    def run(self) -> Ints:
        """Return the ages once every frame is through or dropped."""
        if not self.stages:
            return np.zeros(len(self.born), dtype=np.int64)
        first = self.stages[0]
        self.events = [(t, n, _ARRIVED, first, deque((n,))) for n, t in enumerate(self.born)]
        heapify(self.events)
        while self.events:
            now, _, kind, stage, frames = heappop(self.events)
            if kind == _DONE:
                self._leave(stage, frames, now)
            elif kind == _ARRIVED:
                self._enter(None, stage, frames, now)
            else:
                self._start(stage, now)
        return np.array(self.ages, dtype=np.int64)

    def _leave(self, stage: _Stage, frames: deque[int], now: int) -> None:
        """Pass finished frames on; the server is free once the next stage has taken all of them."""
        following = self.after[stage]
        if following is not None:
            self._enter(stage, following, frames, now)
            return
        for frame in frames:
            self.ages[frame] = now - self.born[frame]
        stage.free += 1
        self._start(stage, now)

    def _enter(self, holder: _Stage | None, stage: _Stage, frames: deque[int], now: int) -> None:
        if stage.policy == "block":
            stage.blocked.append((holder, frames))
            self._start(stage, now)
            return
        for frame in frames:
            if len(stage.queue) < stage.room:
                stage.queue.append((frame, now))
            elif stage.policy == "drop_oldest":
                stage.queue.popleft()
                stage.queue.append((frame, now))
            self._start(stage, now)
        self._release(holder, now)

    def _release(self, holder: _Stage | None, now: int) -> None:
        if holder is not None:
            holder.free += 1
            self._start(holder, now)

    def _start(self, stage: _Stage, now: int) -> None:
        """Begin every call that can begin now, and admit blocked frames where there is room."""
        freed: list[_Stage | None] = []
        while True:
            while stage.blocked and len(stage.queue) < stage.room:
                holder, frames = stage.blocked[0]
                stage.queue.append((frames.popleft(), now))
                if not frames:
                    stage.blocked.popleft()
                    freed.append(holder)
            if not stage.free or not stage.queue or not self._gathered(stage, now):
                break
            taken = deque(stage.queue.popleft()[0] for _ in range(min(stage.batch, len(stage.queue))))
            took = stage.service[stage.calls % len(stage.service)]
            stage.calls, stage.free = stage.calls + 1, stage.free - 1
            self._event(now + took, _DONE, stage, taken)
        for holder in freed:
            self._release(holder, now)

    def _gathered(self, stage: _Stage, now: int) -> bool:
        """Return whether a call may begin; else have the stage looked at when its first frame has waited enough."""
        if len(stage.queue) >= min(stage.batch, stage.room):
            return True
        until = stage.queue[0][1] + stage.gather_ns
        if until > now and stage.alarm != until:
            stage.alarm = until
            self._event(until, _GATHERED, stage, deque())
        return until <= now

    def _event(self, at: int, kind: int, stage: _Stage, frames: deque[int]) -> None:
        heappush(self.events, (at, next(self.numbers), kind, stage, frames))
