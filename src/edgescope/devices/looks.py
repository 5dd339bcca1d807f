"""Two looks at a device's own counters, one before and one after, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from edgescope.devices.base import Throttle

Look = TypeVar("Look")


class Looks(Generic[Look]):
    """Looks on entering and on leaving; `evidence()` compares, or says `missed` where a look is lacking."""

    def __init__(
        self, look: Callable[[], Look], compare: Callable[[Look, Look], Throttle], missed: str
    ) -> None:
        self._look, self._compare, self._missed = look, compare, missed
        self._taken: list[Look] = []

    def __enter__(self) -> Looks[Look]:
        self._taken = [self._look()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken.append(self._look())

    def evidence(self) -> Throttle:
        """Return the events between entering and leaving, and what could not be looked at."""
        if len(self._taken) < 2:
            return Throttle(absent=(self._missed,))
        before, after = self._taken
        return self._compare(before, after)
