"""From scores to alarms: smoothing, and a threshold with hysteresis, a least duration and a cooldown.

An alarm is raised once the smoothed score has stayed at `on` or above for `min_s`, and ends when it falls below `off`.
For `cooldown_s` after its end no other is raised; what would have been one is counted as suppressed.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, fields, replace

from edgescope.errors import UsageError, closest_name
from edgescope.frames import Item
from edgescope.wings.video.snippets import Snippet, found_in


@dataclass(frozen=True)
class Rule:
    """When an alarm is raised and when it ends; written `on=0.6,off=0.4,min_s=1`."""

    on: float = 0.5
    off: float = 0.4
    min_s: float = 0.0
    """Seconds that the score must stay at `on` or above, from the first such snippet's start to the last one's end."""
    cooldown_s: float = 10.0
    smooth: int = 1
    """The number of scores that are averaged."""

    def __post_init__(self) -> None:
        """Raise UsageError E-ALARM-1 for a rule that no score can follow."""
        for fits, problem in (
            (
                all(math.isfinite(value) for value in vars(self).values()),
                "every value must be a finite number",
            ),
            (self.off <= self.on, f"off={self.off:g} is above on={self.on:g}"),
            (self.off >= 0 and self.on <= 1, f"scores lie in 0..1, not on={self.on:g}, off={self.off:g}"),
            (self.min_s >= 0 and self.cooldown_s >= 0, "min_s and cooldown_s must not be negative"),
            (self.smooth >= 1, "smooth must be at least 1"),
        ):
            if not fits:
                raise UsageError("E-ALARM-1", f"no alarm can follow this rule: {problem}", fix=str(Rule()))

    @classmethod
    def of(cls, text: str) -> Rule:
        """Return the rule that a text such as `on=0.6,off=0.4` writes; what it leaves out keeps its default."""
        known = {field.name: int if field.name == "smooth" else float for field in fields(cls)}
        found: dict[str, float] = {}
        for word in filter(None, text.split(",")):
            name, _, value = word.partition("=")
            try:
                found[name] = known[name](value)
            except (KeyError, ValueError) as error:
                raise UsageError(
                    "E-ALARM-1",
                    f"the rule of the alarm has no {word!r}",
                    evidence=f"it has {cls()}",
                    fix=closest_name(name, known),
                ) from error
        if "on" in found and "off" not in found:
            found["off"] = min(cls.off, found["on"])
        return cls(**found)  # type: ignore[arg-type]

    def __str__(self) -> str:
        """Return the text that `of` reads."""
        return ",".join(f"{name}={value:g}" for name, value in vars(self).items())


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm, in seconds from the first frame of its source."""

    number: int
    """Its number among all cameras' alarms, from 1."""
    camera: int
    start_s: float
    """When the first snippet begins whose score reached the threshold."""
    raised_s: float
    """When the snippet ends with which it was raised."""
    end_s: float
    """When the last snippet ends whose score had not fallen below `off`."""
    peak: float
    """The highest smoothed score so far."""
    peak_s: float
    """When the snippet with that score ends."""
    created_ns: int = -1
    """When the last frame was created before it was raised, on the monotonic clock; -1 for a file."""
    over: bool = False

    @property
    def delay_s(self) -> float:
        """Return the seconds of the stream from its start until it was raised."""
        return self.raised_s - self.start_s


class Hysteresis:
    """One camera's state: quiet, pending, in alarm, or cooling down."""

    def __init__(self, rule: Rule, camera: int = 0) -> None:
        self.rule, self.camera = rule, camera
        self.recent: deque[float] = deque(maxlen=rule.smooth)
        self.pending: Alarm | None = None
        self.active: Alarm | None = None
        self.quiet_until = -math.inf
        self.suppressed = 0
        """Times that the score rose to the threshold during a cooldown."""
        self.unscored = 0
        """Snippets without a finite score; they change nothing."""
        self._held_back = False
        self.smoothed = math.nan

    def __call__(self, snippet: Snippet, score: float) -> Alarm | None:
        """Take the next score; return the alarm that it raised or (`over`) ended, or None."""
        if not math.isfinite(score):
            self.unscored += 1
            return None
        self.recent.append(score)
        self.smoothed = level = math.fsum(self.recent) / len(self.recent)
        if self.active is not None:
            return self._active(self.active, snippet, level)
        if level < self.rule.on:
            self.pending, self._held_back = None, False
            return None
        if snippet.end_s < self.quiet_until:
            self.suppressed += not self._held_back
            self._held_back = True
            return None
        return self._rising(snippet, level)

    def finish(self) -> Alarm | None:
        """Return the alarm that the end of the stream ended, or None."""
        ended, self.active = self.active, None
        return None if ended is None else replace(ended, over=True)

    def _rising(self, snippet: Snippet, level: float) -> Alarm | None:
        seen = self.pending or Alarm(0, self.camera, snippet.start_s, 0.0, 0.0, -math.inf, 0.0)
        seen = replace(_higher(seen, snippet, level), raised_s=snippet.end_s, created_ns=snippet.created_ns)
        if seen.delay_s < self.rule.min_s:
            self.pending = seen
            return None
        self.pending, self.active, self._held_back = None, seen, False
        return seen

    def _active(self, alarm: Alarm, snippet: Snippet, level: float) -> Alarm | None:
        if level >= self.rule.off:
            self.active = _higher(alarm, snippet, level)
            return None
        self.active = None
        self.quiet_until = snippet.end_s + self.rule.cooldown_s
        return replace(alarm, over=True)


def _higher(alarm: Alarm, snippet: Snippet, level: float) -> Alarm:
    """Return the alarm, prolonged by a snippet, with its peak."""
    if level > alarm.peak:
        alarm = replace(alarm, peak=level, peak_s=snippet.end_s)
    return replace(alarm, end_s=snippet.end_s)


@dataclass(frozen=True, slots=True)
class Scored:
    """One snippet with its score and what the score did."""

    snippet: Snippet
    score: float
    smoothed: float
    alarmed: bool
    """Whether an alarm is on after it."""
    change: Alarm | None
    """The alarm that it raised or ended."""


class Alarms:
    """The last stage: smooths each camera's scores and raises alarms."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.cameras, self.raised = rule, dict[int, Hysteresis](), 0

    def __call__(self, item: Item) -> None:
        """Set `item.notes["scored"]`, one entry for each snippet, and class 1 of each frame with a high score."""
        found = []
        for snippet, score in zip(item.notes["snippets"], item.notes["scores"], strict=True):
            state = self.cameras.setdefault(snippet.camera, Hysteresis(self.rule, snippet.camera))
            change = state(snippet, score)
            if change is not None and not change.over:
                self.raised += 1
                change = state.active = replace(change, number=self.raised)
            found.append(Scored(snippet, score, state.smoothed, state.active is not None, change))
        item.notes["scored"] = found
        high = [int(scored.smoothed >= self.rule.on) for scored in found]
        item.found = found_in(item.frames, item.notes["snippets"], high)

    def finish(self) -> list[Alarm]:
        """Return the alarms that were on when the stream ended."""
        return [ended for state in self.cameras.values() if (ended := state.finish()) is not None]
