"""An alarm as the world outside sees it, and the interface of whatever is told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from edgescope.frames.frame import Frame
from edgescope.records import Json
from edgescope.wings.video.alarm import Alarm

RAISED, ENDED = "alarm_raised", "alarm_ended"


@dataclass(frozen=True)
class Event:
    """One alarm of one session."""

    id: str
    """Unique among all sessions: who receives it twice can tell."""
    source: str
    alarm: Alarm
    at: float | None = None
    """When it started, in seconds since 1970; None for a film, whose time is its own."""
    age_s: float | None = None
    """The age of the newest frame when it was raised; None for a film."""

    @property
    def delay_s(self) -> float:
        """Return the seconds from its start until it was raised, the age of the newest frame included."""
        return self.alarm.delay_s + (self.age_s or 0.0)

    def plain(self) -> dict[str, Json]:
        """Return the event as JSON values."""
        alarm = self.alarm
        return {
            "event": ENDED if alarm.over else RAISED,
            "id": self.id,
            "source": self.source,
            "camera": alarm.camera,
            "start_s": round(alarm.start_s, 3),
            "raised_s": round(alarm.raised_s, 3),
            "end_s": round(alarm.end_s, 3) if alarm.over else None,
            "at": None if self.at is None else iso(self.at),
            "delay_s": round(self.delay_s, 3),
            "peak": round(alarm.peak, 4),
            "peak_s": round(alarm.peak_s, 3),
        }


class Sink(Protocol):
    """Something that is told of alarms; none of its methods may raise, or wait for a disk or a network for long."""

    def frames(self, frames: Sequence[Frame], times: Sequence[float]) -> None:
        """Take the frames of the next unit and their seconds; called before the alarm that they raise."""

    def told(self, event: Event) -> None:
        """Take an alarm that was raised, or has ended (`event.alarm.over`)."""

    def file(self, event: Event) -> str:
        """Return the file that it saved of an alarm; '' if none."""

    def facts(self) -> Mapping[str, Json]:
        """Return what it did and what it could not do, as JSON values."""

    def close(self) -> None:
        """Finish what is under way."""


def iso(seconds: float) -> str:
    """Return a time since 1970 as UTC text with milliseconds."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
