"""Where alarms go: lines of JSON at the end of a file, and posts to an address; each is on the disk before it is sent.

An Event is an alarm as the world outside sees it, a Sink whatever is told of it.

The spool is a folder with one file for each event that was not accepted yet. A thread posts the oldest first and
removes its file once the server has answered 2xx. While the server is down it waits 1, 2, 4 ... 60 s between two tries.
What a killed process leaves in the spool the next one sends, so an event may arrive twice, never not at all; its `id`
and `event` tell. An answer of 3xx or 4xx will not change: the file is put aside into `refused`, and counted.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from edgescope.errors import UsageError
from edgescope.frames import Frame
from edgescope.records import Json
from edgescope.store import files
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


class Log:
    """Writes each event to `path`; a disk that is full is counted, and the next event is tried again."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.failed, self.problem = path, 0, 0, ""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()  # a path that cannot be written is found before anything is watched
        self._mended()

    def frames(self, frames: Sequence[Frame], times: Sequence[float]) -> None:
        """Do nothing: frames are not logged."""

    def told(self, event: Event) -> None:
        """Write one line."""
        line = (json.dumps(event.plain()) + "\n").encode()
        try:
            with self.path.open("ab", buffering=0) as file:
                begun = file.tell()
                if file.write(line) != len(line):
                    file.truncate(begun)
                    raise OSError("the disk took a part of a line only")
                os.fsync(file.fileno())
        except OSError as error:
            self.failed, self.problem = self.failed + 1, str(error)
        else:
            self.lines += 1

    def file(self, event: Event) -> str:
        """Return '': it saves no file of one alarm."""
        return ""

    def facts(self) -> Mapping[str, Json]:
        """Return the file, the lines written, and those that could not be."""
        return {"log": str(self.path), "lines": self.lines, "failed": self.failed, "problem": self.problem}

    def close(self) -> None:
        """Do nothing: every line is written already."""

    def _mended(self) -> None:
        """End a line that a killed process left unfinished, so that the next one stands alone."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


# -- posted --------------------------------------------------------------------------------------------------


FIRST_S, LONGEST_S = 1.0, 60.0
"""The first wait after a failure, and the longest."""
TIMEOUT_S = 10.0
AGAIN = (408, 425, 429)
"""Answers of 4xx that another try may change."""
HELD = 10_000
"""Events kept in memory while the disk is full."""
ENDING = "-event.json"


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: a POST that is followed becomes a GET without the event."""

    def redirect_request(self, *given: object, **more: object) -> None:
        """Return None: the answer is an error."""


class Webhook:
    """Posts events to `url`; `spool` holds those that were not accepted yet."""

    def __init__(
        self, url: str, spool: Path, *, first_s: float = FIRST_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UsageError(
                "E-WATCH-2", f"{url!r} is no address to post to", fix="--webhook http://HOST/PATH"
            )
        self.url, self.spool, self.first_s, self.timeout_s = url, spool, first_s, timeout_s
        self.sent = self.tries = self.refused = self.unspooled = 0
        self.problem = ""
        spool.mkdir(parents=True, exist_ok=True)
        (spool / "refused").mkdir(exist_ok=True)
        self._held: list[bytes] = []
        self._opener = urllib.request.build_opener(_Stays)
        self._lock, self._changed, self._closed = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="webhook", daemon=True)
        self._thread.start()

    def frames(self, frames: Sequence[Frame], times: Sequence[float]) -> None:
        """Do nothing: frames are not posted."""

    def told(self, event: Event) -> None:
        """Put the event on the disk; the thread sends it."""
        with self._lock:
            self._held.append(json.dumps(event.plain()).encode())
            if len(self._held) > HELD:
                del self._held[0]
                self.unspooled += 1
            self._spooled()
        self._changed.set()

    def file(self, event: Event) -> str:
        """Return '': it saves no file of one alarm."""
        return ""

    def facts(self) -> Mapping[str, Json]:
        """Return how many events were sent and refused, how many wait, and why."""
        waiting = len(_waiting(self.spool)) + len(self._held)
        return {
            "webhook": _shown(self.url),
            "sent": self.sent,
            "waiting": waiting,
            "refused": self.refused,
            "lost": self.unspooled,
            "problem": self.problem if waiting or self.refused else "",
        }

    def close(self, *, wait_s: float = 5.0) -> None:
        """Try what still waits once more, for `wait_s` at most; the rest stays in the spool."""
        self._closed.set()
        self._changed.set()
        self._thread.join(wait_s)

    def _spooled(self) -> None:
        """Write the events that are held in memory to the spool, oldest first; a full disk leaves them there."""
        try:
            while self._held:
                name = (
                    f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{ENDING}"  # several processes may share it
                )
                with files.written(self.spool / name) as file:
                    file.write(self._held[0])
                del self._held[0]
        except OSError as error:
            self.problem = str(error)

    def _serve(self) -> None:
        failures = 0
        while True:
            with self._lock:
                self._spooled()
            waiting = _waiting(self.spool)
            if not waiting and not self._held:
                if self._closed.is_set():
                    return
                self._changed.wait()
                self._changed.clear()
                continue
            failures = 0 if waiting and self._sent(waiting[0]) else failures + 1
            if failures and self._closed.is_set():
                return
            if failures:
                pause_s = min(self.first_s * 2.0 ** min(failures - 1, 30), LONGEST_S)
                self._closed.wait(pause_s * random.uniform(0.8, 1.2))

    def _sent(self, path: Path) -> bool:
        """Post one file; return whether it is settled."""
        self.tries += 1
        try:
            body = path.read_bytes()
            request = urllib.request.Request(
                self.url, body, {"Content-Type": "application/json"}, method="POST"
            )
            with self._opener.open(request, timeout=self.timeout_s):
                pass
            self.sent += 1
            path.unlink(missing_ok=True)
        except urllib.error.HTTPError as error:
            self.problem = f"the server answered {error.code} {error.reason}"
            if not 300 <= error.code < 500 or error.code in AGAIN:
                return False
            return self._put_aside(path)
        except (
            OSError,
            http.client.HTTPException,
        ) as error:  # refused, timed out, reset in the middle of an answer
            self.problem = str(getattr(error, "reason", error))
            return False
        return True

    def _put_aside(self, path: Path) -> bool:
        """Move an event that the server refuses into `refused`; return whether that was possible."""
        try:
            path.rename(self.spool / "refused" / path.name)
        except OSError as error:
            self.problem = f"{self.problem}; the event cannot be put aside: {error}"
            return False
        self.refused += 1
        return True


def _waiting(spool: Path) -> list[Path]:
    return sorted(path for path in spool.glob(f"*{ENDING}") if not path.name.startswith("."))


def _shown(url: str) -> str:
    """Return the address without a user, a password or a query: they stay out of reports."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
