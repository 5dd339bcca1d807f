"""A plan whose measured phase begins and ends at the same time in all workers.

Each worker warms up by itself, reports when its latencies have settled, and waits. The leader then names a start a
little in the future and a stop, on the clock that all processes of a machine share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgescope.clock import wait_until
from edgescope.records import Trial
from edgescope.scenarios.stop_rule import FOREVER, Latencies, Plan

#: On a busy machine time.sleep may overshoot by this many nanoseconds; a shared start is worth the spinning.
SPIN_NS = 1_000_000
AT_STOP = "the agreed stop"


@dataclass(frozen=True)
class Span:
    """The measured phase that all workers share: monotonic nanoseconds."""

    start_ns: int
    stop_ns: int


Meet = Callable[[], Span]
"""Reports that this worker is ready; returns the span once the leader has named it."""


class Agreed(Plan):
    """Warms up as any plan does; measures from the agreed start to the agreed stop."""

    def __init__(self, trial: Trial, meet: Meet) -> None:
        super().__init__(trial)
        self._meet = meet
        self.span = Span(0, FOREVER)

    def measuring(self) -> Plan:
        """Meet the others, sleep until the start, spin through its last millisecond."""
        self.span = self._meet()
        wait_until(self.span.start_ns, SPIN_NS)
        return super().measuring()

    def begin(self, row: int, now_ns: int) -> None:
        """Note the first row and time of the phase; the end of the measured phase is already known."""
        super().begin(row, now_ns)
        if self._measured:
            self.check_ns = self.span.stop_ns

    @property
    def deadline_ns(self) -> int:
        """Return the agreed stop."""
        return self.span.stop_ns

    def goes_on(self, now_ns: int, rows: int, latencies: Latencies) -> bool:
        """Return whether the phase continues; the measured phase ends at the stop or after the last query."""
        if not self._measured:
            return super().goes_on(now_ns, rows, latencies)
        if rows >= self.limit:
            self.stopped_by = "all queries done"
            return False
        if now_ns >= self.span.stop_ns:
            self.stopped_by = AT_STOP
            return False
        self.check_ns = self.span.stop_ns
        return True
