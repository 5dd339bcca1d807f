"""One session of watching: drives the stages of a pipeline, follows what they score, tells the sinks of alarms.

What is kept is bounded, so a session may last for days: the last scores and alarms, a histogram of ages, counts.
"""

from __future__ import annotations

import math
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgescope.clock import Clock, MonotonicClock
from edgescope.errors import DeviceError
from edgescope.frames import Item
from edgescope.records import QUERY_ERROR, QUERY_OK
from edgescope.wings.video.alarm import Alarm, Alarms, Scored
from edgescope.wings.video.flow import EndOfFilm, Flow
from edgescope.wings.video.sinks import Event, Sink
from edgescope.wings.video.sources.live import shown
from edgescope.wings.video.stages import Decode

RECENT, KEPT = 600, 1000
"""Scores that a view can show, and alarms that a report can."""
FAILURES = 10
"""Units that may fail one after the other before the session ends; a camera that is silent may do so for ever."""
PAUSE_S = 1.0
LOOK_S = 0.5
"""How often it looks whether it is to stop, while no unit is done."""
LAST_S = 30.0
"""How long the units under way at the end are waited for."""


class Ages:
    """Ages of frames in bins that grow by 5 %, from 1 ms to an hour: their quantiles without keeping them."""

    LEAST_S, GROWTH = 1e-3, 1.05

    def __init__(self) -> None:
        self.counts = np.zeros(1 + math.ceil(math.log(3600 / self.LEAST_S, self.GROWTH)), dtype=np.int64)
        self.last_s = math.nan

    def add(self, seconds: float) -> None:
        """Count one age."""
        self.last_s = seconds
        place = math.log(max(seconds, self.LEAST_S) / self.LEAST_S, self.GROWTH)
        self.counts[min(int(place), len(self.counts) - 1)] += 1

    def quantile(self, share: float) -> float | None:
        """Return the upper end of the bin that holds the quantile; None if nothing was counted."""
        if not (total := int(self.counts.sum())):
            return None
        number = int(np.searchsorted(np.cumsum(self.counts), share * total))
        return round(float(self.LEAST_S * self.GROWTH ** (number + 1)), 4)


@dataclass
class Counts:
    """What a session has seen so far."""

    snippets: int = 0
    alarms: int = 0
    failed: int = 0
    """Units that a stage failed on."""
    in_a_row: int = 0
    recent: deque[Scored] = field(default_factory=lambda: deque(maxlen=RECENT))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT))
    """The last alarms; one that is still on is not over."""
    ages: Ages = field(default_factory=Ages)
    time_s: float = 0.0
    """How far the stream has come."""


class Session:
    """Drives `flow`, whose last stage is Alarms, until the stream ends or somebody stops it."""

    def __init__(
        self,
        flow: Flow,
        source: str,
        sinks: Sequence[Sink] = (),
        *,
        clock: Clock | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.flow, self.source, self.sinks = flow, shown(source), tuple(sinks)
        self.clock: Clock = clock or MonotonicClock()
        self.wall, self.name = wall, uuid.uuid4().hex[:8]
        self.counts, self.lock = Counts(), threading.Lock()
        self.started = self.clock.now()
        self.began = wall()
        self._ended: int | None = None
        """When the watching ended; sinks may take longer to close."""
        self.on_scored: Callable[[Scored], None] = lambda scored: None
        self.on_event: Callable[[Event], None] = lambda event: None
        decode, alarms = flow.stages[0].run, flow.stages[-1].run
        assert isinstance(decode, Decode) and isinstance(alarms, Alarms)
        self.decode, self.alarms = decode, alarms
        self.live = any(each.live for each in decode.sources)
        self._first: dict[int, int] = {}
        flow.seen = self._seen

    # -- driving -------------------------------------------------------------------------------------------------

    def run(self, stop: Callable[[], bool], in_flight: int = 1) -> None:
        """Watch until `stop()` or the end of the film, then end the alarms that are on and close the sinks.

        DeviceError E-WATCH-1 if FAILURES units fail one after the other; a camera that sends nothing is waited for.
        """
        try:
            self._drive(stop, in_flight)
        finally:
            self._ended = self.clock.now()
            for alarm in self.alarms.finish():
                self._tell(alarm)
            for sink in self.sinks:
                sink.close()

    def _drive(self, stop: Callable[[], bool], in_flight: int) -> None:
        free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for _ in range(in_flight):
            free.put(QUERY_OK)
        issued, answered = 0, 0

        def done(query_id: int, status: int, *_: object) -> None:
            free.put(status)

        while not stop():
            try:
                status = free.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            self._answered(status)
            answered += 1
            try:
                issued += 1
                self.flow.issue(issued - 1, 0, done)
            except EndOfFilm:
                break
        for source in self.decode.sources if self.live else ():
            source.close()  # or a camera that is silent would keep its unit
        with suppress(queue.Empty):
            for _ in range(in_flight + issued - answered):
                self._answered(free.get(timeout=LAST_S), ending=True)

    def _answered(self, status: int, *, ending: bool = False) -> None:
        counts = self.counts
        if status != QUERY_ERROR:
            counts.in_a_row = 0
            return
        counts.failed, counts.in_a_row = counts.failed + 1, counts.in_a_row + 1
        problem = self.flow.counts.last_error
        if ending or (self.live and "E-VIDEO-2" in problem):
            return
        if counts.in_a_row >= FAILURES:
            raise DeviceError(
                "E-WATCH-1",
                f"{counts.in_a_row} units failed one after the other",
                evidence=problem,
                effect="Nothing is watched any more",
                fix="edgescope bench with the same network and source says more",
            )
        self.clock.doze_until(self.clock.now() + int(PAUSE_S * 1e9))

    # -- what the stages made ------------------------------------------------------------------------------------

    def _seen(self, item: Item) -> None:
        """Take a unit that has passed every stage."""
        now = self.clock.now()
        times = [self._time(frame.camera, frame.created_ns, frame.time_s) for frame in item.frames]
        for sink in self.sinks:
            sink.frames(item.frames, times)
        with self.lock:
            for scored in item.notes["scored"]:
                self.counts.snippets += 1
                self.counts.recent.append(scored)
                self.counts.time_s = max(self.counts.time_s, scored.snippet.end_s)
                if scored.snippet.created_ns >= 0:
                    self.counts.ages.add((now - scored.snippet.created_ns) * 1e-9)
        for scored in item.notes["scored"]:
            self.on_scored(scored)
            if scored.change is not None:
                self._tell(scored.change)

    def _time(self, camera: int, created_ns: int, time_s: float) -> float:
        if created_ns < 0:
            return time_s
        return (created_ns - self._first.setdefault(camera, created_ns)) * 1e-9

    def _tell(self, alarm: Alarm) -> None:
        known = next((e for e in reversed(self.counts.events) if e.alarm.number == alarm.number), None)
        with self.lock:
            if known is None:
                event = self._event(alarm)
                self.counts.alarms += 1
                self.counts.events.append(event)
            else:
                event = replace(known, alarm=alarm)
                self.counts.events[self.counts.events.index(known)] = event
        for sink in self.sinks:
            sink.told(event)
        self.on_event(event)

    def _event(self, alarm: Alarm) -> Event:
        name = f"{self.name}-{alarm.number}"
        if alarm.created_ns < 0:
            return Event(name, self.source, alarm)
        age_s = (self.clock.now() - alarm.created_ns) * 1e-9
        return Event(name, self.source, alarm, self.wall() - age_s - alarm.delay_s, age_s)

    # -- what it comes to ----------------------------------------------------------------------------------------

    @property
    def facts(self) -> Sequence[Mapping[str, Any]]:
        """Return the facts of each source; those of a camera that cannot be reached are left out."""
        found = []
        for source in self.decode.sources:
            try:
                found.append(source.facts())
            except DeviceError:
                found.append({})
        return found

    def summary(self) -> dict[str, Any]:
        """Return what was watched and what came of it, as JSON values."""
        counts, facts = self.counts, self.facts
        now = self.clock.now() if self._ended is None else self._ended
        seconds = (now - self.started) * 1e-9
        done = self.flow.counts.done
        states = list(self.alarms.cameras.values())
        return {
            "source": self.source,
            "live": self.live,
            "seconds": round(seconds, 3),
            "stream_s": round(counts.time_s, 3),
            "frames": done,
            "fps": round(done / seconds, 3) if seconds > 0 else None,
            "dropped_by_source": sum(int(about.get("dropped") or 0) for about in facts),
            "dropped_by_queues": self.flow.counts.dropped,
            "reconnects": sum(int(about.get("reconnects") or 0) for about in facts),
            "failed_units": counts.failed,
            "first_error": self.flow.counts.first_error,
            "snippets": counts.snippets,
            "unscored_snippets": sum(state.unscored for state in states),
            "alarms": counts.alarms,
            "suppressed": sum(state.suppressed for state in states),
            "frame_age_p50_s": counts.ages.quantile(0.5),
            "frame_age_p99_s": counts.ages.quantile(0.99),
            "rule": str(self.alarms.rule),
            "sinks": [dict(sink.facts()) for sink in self.sinks],
        }
