"""A live source: a thread reads the newest frame, drops the older one, and connects again when the stream ends.

A camera does not wait. What its reader does not take in time is overwritten and counted, so a pipeline that
is too slow shows dropped frames and not a growing delay. A lost connection is tried again after 0.5, 1, 2 ...
up to 8 s; a reader that gets no frame for `stall_s` gets E-VIDEO-2.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from edgescope.clock import Clock, MonotonicClock
from edgescope.errors import DeviceError
from edgescope.frames import Frame
from edgescope.records import Json

STALL_S = 20.0
FIRST_S, LONGEST_S = 0.5, 8.0
"""The first pause before connecting again, and the longest; each pause is twice the one before."""
TICK_S = 0.02
"""How long a pause or a wait lasts before it looks whether the source was closed."""


class Grabbed(NamedTuple):
    """A frame as it came from the connection."""

    picture: Any
    """What `Connection.image` turns into an array, only if somebody takes the frame."""
    created_ns: int
    time_s: float


class Shown(NamedTuple):
    """A frame as an array."""

    image: Any
    sides: tuple[int, int] | None
    """Its width and height before it was scaled, None if it was not."""
    whole: Any = None
    """The frame before it was scaled, if somebody asked for it."""


class Connection:
    """One connection to a camera or a stream; the members of the family derive from it."""

    about: Mapping[str, Json] = {}
    """Facts of the stream: width, height, fps, codec."""

    def grabbed(self) -> Iterator[Grabbed]:
        """Yield frames until the stream ends; raise what the driver or the network raises."""
        raise NotImplementedError

    def image(self, picture: Any) -> Shown:
        """Return a frame as an array."""
        raise NotImplementedError

    def stop(self) -> None:
        """Have `grabbed` end soon, if it can wait longer than a few seconds."""


Connect = Callable[[], AbstractContextManager[Connection]]


def shown(text: str) -> str:
    """Return the text without the user and the password of an address: they stay out of results and messages."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def pause_s(failures: int) -> float:
    """Return the seconds to wait before the next try after so many failures in a row."""
    return float(min(FIRST_S * 2.0 ** min(failures - 1, 30), LONGEST_S))


class Live:
    """The newest frame of a connection that is kept up by a thread; `name` is for messages."""

    live = True

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        errors: tuple[type[Exception], ...] = (OSError,),
        stall_s: float = STALL_S,
        clock: Clock | None = None,
        fix: str = "",
    ) -> None:
        self.name, self.stall_s, self._connect, self._errors = shown(name), stall_s, connect, errors
        self._fix = shown(fix)
        self._clock: Clock = clock or MonotonicClock()
        self._ready = threading.Condition()
        self._slot: tuple[int, Grabbed, Connection] | None = None
        self._grabbed = self._dropped = self._reconnects = 0
        self._about: Mapping[str, Json] = {}
        self._connection: Connection | None = None
        self._problem, self._closed = "it sends nothing", False
        self._crash: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"source {self.name}", daemon=True)
        self._thread.start()

    def read(self) -> Frame | None:
        """Return the newest frame that was not read yet, waiting for it; None after `close`.

        Raises DeviceError E-VIDEO-2 if none comes for `stall_s`.
        """
        with self._ready:
            self._wait(lambda: self._slot is not None)
            if self._slot is None:
                return None
            (index, got, connection), self._slot = self._slot, None
        shown = connection.image(got.picture)
        return Frame(
            shown.image,
            index,
            created_ns=got.created_ns,
            sides=shown.sides,
            time_s=got.time_s,
            whole=shown.whole,
        )

    def facts(self) -> Mapping[str, Json]:
        """Return what the stream is and what was met: `frames`, `dropped`, `reconnects`.

        Waits for the first connection; raises DeviceError E-VIDEO-2 if there is none for `stall_s`.
        """
        with self._ready:
            self._wait(lambda: bool(self._about))
        return {
            "name": self.name,
            **self._about,
            "frames": self._grabbed,
            "dropped": self._dropped,
            "reconnects": self._reconnects,
        }

    def close(self) -> None:
        """End the thread and the connection; a driver that answers nothing is left to its own timeout."""
        with self._ready:
            self._closed, self._slot = True, None
            self._ready.notify_all()
        if self._connection is not None:
            self._connection.stop()
        self._thread.join(timeout=self.stall_s)

    def _wait(self, met: Callable[[], bool]) -> None:
        """Wait until `met()` is true or the source is closed; raise what keeps it from becoming true."""
        begun = self._clock.now()
        while not met() and not self._closed:
            waited_s = (self._clock.now() - begun) / 1e9
            if self._crash is not None:
                raise self._crash
            if waited_s >= self.stall_s:
                raise self._stalled(waited_s)
            self._ready.wait(TICK_S)

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Connect, keep the newest frame, and connect again, until the source is closed."""
        failures = 0
        try:
            while not self._closed:
                before = self._grabbed
                try:
                    with self._connect() as connection:
                        self._connection, self._about = connection, connection.about
                        self._keep_newest(connection)
                    self._problem = "the stream ended"
                except self._errors as error:
                    self._problem = shown(f"{type(error).__name__}: {error}")
                failures = 1 if self._grabbed > before else failures + 1
                self._rest(pause_s(failures))
                self._reconnects += not self._closed
        except Exception as error:  # a mistake, or what no connection mends: the reader raises it
            self._crash = error

    def _keep_newest(self, connection: Connection) -> None:
        for got in connection.grabbed():
            with self._ready:
                if self._closed:
                    return
                self._dropped += self._slot is not None
                self._slot = (self._grabbed, got, connection)
                self._grabbed += 1
                self._ready.notify_all()

    def _rest(self, seconds: float) -> None:
        """Wait before the next try; end early if the source is closed."""
        until = self._clock.now() + int(seconds * 1e9)
        while not self._closed and (now := self._clock.now()) < until:
            self._clock.doze_until(min(until, now + int(TICK_S * 1e9)))

    def _stalled(self, seconds: float) -> DeviceError:
        return DeviceError(
            "E-VIDEO-2",
            f"{self.name} gave no frame for {seconds:.1f} s",
            evidence=f"{self._problem}; {self._reconnects} new connections, {self._grabbed} frames before",
            effect="The pipeline has no more frames",
            fix=self._fix,
        )
