"""A day of a camera in minutes: a clock that moves when somebody waits, frames with planted events, a small scorer.

Everything else is what `edgescope anomaly watch` runs: the stages that cut snippets, the head over a window, the
alarms, the session and its sinks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from edgescope.frames import Frame
from edgescope.models.base import TensorSpec
from edgescope.models.image.preprocess import Preprocess
from edgescope.wings.video.alarm import Alarms, Rule
from edgescope.wings.video.flow import Sequential, Stage
from edgescope.wings.video.session import Session
from edgescope.wings.video.snippets import Cutting, DecodeSnippets, Online, Snippets

WIDE, HIGH, POOL = 32, 24, 8
HOW = Preprocess((HIGH, WIDE), resize="stretch")
CUTTING = Cutting(16)
RULE = Rule(on=0.5, off=0.4, min_s=1.0, cooldown_s=5.0, smooth=2)
WORK_S = 0.2
"""Fake seconds that the network takes for a snippet."""


class FastClock:
    """Time passes only while somebody waits or works."""

    def __init__(self) -> None:
        self.t = 5_000_000_000

    def now(self) -> int:
        return self.t

    def sleep_until(self, t_ns: int) -> None:
        self.t = max(self.t, t_ns)

    doze_until = sleep_until


@dataclass(frozen=True)
class Planted:
    """One event of the scene, in seconds from the first frame."""

    start_s: float
    end_s: float


def planted(hours: float, seed: int = 0, every_s: float = 600.0) -> list[Planted]:
    """Events of 4 to 20 s, one in every `every_s`, at random places; the last ends before the stream does."""
    rng, found = random.Random(seed), []
    for number in range(int(hours * 3600 / every_s)):
        start = number * every_s + rng.uniform(30, every_s - 60)
        found.append(Planted(start, start + rng.uniform(4, 20)))
    return found


class Camera:
    """Frames of a quiet scene that moves violently during an event; frames that are due while nobody reads are lost."""

    live = True

    def __init__(self, clock: FastClock, hours: float, fps: float, events: list[Planted]) -> None:
        self.clock, self.fps, self.count = clock, fps, int(hours * 3600 * fps)
        self.start, self.index, self.dropped, self.place = clock.now(), 0, 0, 0
        self.events = events
        rng = np.random.default_rng(0)
        across = np.linspace(0, 255, WIDE, dtype=np.uint8)[None, :, None]
        quiet = np.broadcast_to(across, (HIGH, WIDE, 3))
        self.quiet = [np.ascontiguousarray(np.roll(quiet, k // 4, axis=1)) for k in range(POOL)]
        self.violent = [rng.integers(0, 256, (HIGH, WIDE, 3), dtype=np.uint8) for _ in range(POOL)]

    def due(self, index: int) -> int:
        return self.start + round(index * 1e9 / self.fps)

    def read(self) -> Frame | None:
        newest = min(self.count, int((self.clock.now() - self.start) * self.fps / 1e9 + 1e-9))
        if newest > self.index + 1:  # two frames are kept, as by a driver's buffers
            self.dropped += newest - 1 - self.index
            self.index = newest - 1
        if self.index >= self.count:
            return None
        index, due = self.index, self.due(self.index)
        self.clock.sleep_until(due)
        self.index += 1
        pool = self.violent if self._eventful(index / self.fps) else self.quiet
        return Frame(pool[index % POOL], index, created_ns=due, time_s=index / self.fps)

    def _eventful(self, seconds: float) -> bool:
        while self.place < len(self.events) and seconds >= self.events[self.place].end_s:
            self.place += 1
        return self.place < len(self.events) and seconds >= self.events[self.place].start_s

    def facts(self):
        return {"width": WIDE, "height": HIGH, "fps": self.fps, "frames": self.index, "dropped": self.dropped}

    def close(self) -> None:
        pass


def session(
    hours: float, fps: float, events: list[Planted], sinks=(), *, wall=None
) -> tuple[Session, Camera]:
    """A session over a simulated camera."""
    clock = FastClock()
    camera = Camera(clock, hours, fps, events)

    def features(item) -> None:
        clips = item.inputs[0]
        moved = np.abs(clips[:, :, 1:] - clips[:, :, :-1]).mean(axis=(2, 3, 4))
        item.outputs = [[moved.astype(np.float32)]]
        clock.sleep_until(clock.now() + int(WORK_S * 1e9))

    def head(batch):
        return [1 / (1 + np.exp(-20 * (batch["input"].mean(axis=-1) - 0.3)))]

    stages = [
        Stage("decode", DecodeSnippets([camera], 1, CUTTING)),
        Stage("preprocess", Snippets(HOW, CUTTING, 1)),
        Stage("infer", features),
        Stage("score", Online(TensorSpec("input", (32, 3), "float32"), head, CUTTING)),
        Stage("alarm", Alarms(RULE)),
    ]
    begun, zero = clock.now(), 1.7e9
    made = Session(
        Sequential(stages),
        "camera:0",
        sinks,
        clock=clock,
        wall=wall or (lambda: zero + (clock.now() - begun) * 1e-9),
    )
    return made, camera


def accounted(events: list[Planted], alarms, fps: float) -> dict[str, list]:
    """Which planted events were alarmed, and which not; which alarms belong to no event; how far starts lie apart."""
    span = CUTTING.span / fps
    found: dict[str, list] = {"alarmed": [], "missed": [], "false": [], "start_error_s": [], "delay_s": []}
    left = list(alarms)
    for event in events:
        mine = [a for a in left if a.start_s < event.end_s + span and a.end_s > event.start_s - span]
        found["alarmed" if mine else "missed"].append(event)
        if mine:
            found["start_error_s"].append(mine[0].start_s - event.start_s)
            found["delay_s"].append(mine[0].raised_s - event.start_s)
        left = [a for a in left if a not in mine]
    found["false"] = left
    return found
