"""When to stop warming up, when to stop measuring: decided from the data, within bounds.

A plan has two phases. Warming ends when the newest windows of latencies agree (or after the requested seconds);
measuring ends when the interval of the mean is narrow enough, not before `min_s` and not after `max_s`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from edgescope.errors import UsageError
from edgescope.records import Trial, Window
from edgescope.records.lazy import NDArray, np
from edgescope.stats import StopRule, warm

FOREVER = 2**62
#: A warm-up that has not settled after this many nanoseconds is cut off with a warning.
WARMUP_MAX_NS = 10_000_000_000
WARMUP_LOOK_NS = 50_000_000
"""Nanoseconds between a warm-up's first checks of its latencies; the pause grows, so checks stay cheap."""
GROWTH = 1.3
#: Samples in each of the three windows that must agree; 30 samples are the shortest warm-up.
WARMUP_WINDOW = 5

INPUT_ENDED = "the input has ended"

Latencies: TypeAlias = "Callable[[int], NDArray[np.int64]]"


def _nobody() -> None:
    """Do nothing."""


class Plan:
    """The stopping decisions of one run; afterwards `window` gives the rows that count."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.check_ns, self.limit = 0, FOREVER
        self.pile: int | None = None
        """The number of queries, if it is fixed beforehand (offline)."""
        self.whole = False
        """Whether to measure for all of max_s, however well the mean is known (open loops)."""
        self.phase = 0.0
        """Share of a period after which a periodic load begins; each worker has its own, like separate cameras."""
        self.edge: Callable[[], object] = _nobody
        """Called when the measured phase begins and when it ends."""
        self.settled = True
        self.stopped_by = ""
        self._measured = False
        self._first = self._start_ns = self._stop = self._stop_ns = 0
        self._rule: StopRule | None = None

    def already(self, warmed: bool | None) -> None:
        """Leave the warm-up that the work has done itself, but for one unit of full size, unless one was asked for."""
        if warmed is not None and self.trial.warmup is None:
            self.trial, self.settled = replace(self.trial, warmup=1e-9), warmed

    def warming(self) -> Plan:
        """Enter the warm-up."""
        self._measured = False
        return self

    def measuring(self) -> Plan:
        """Enter the measured phase."""
        self._measured = True
        return self

    def begin(self, row: int, now_ns: int) -> None:
        """Note the first row and time of the phase."""
        self._first, self._start_ns = row, now_ns
        if not self._measured:
            self._begin_warmup(now_ns)
            return
        self.edge()
        t = self.trial
        self.limit = row + (self.pile or t.max_queries or FOREVER)
        open_ended = self.pile is None and t.max_queries is None
        min_ns = round(t.min_s * 1e9) if open_ended and not self.whole else FOREVER
        self._rule = StopRule(
            rel_width=t.rel_width, min_ns=min_ns, max_ns=round(t.max_s * 1e9), start_ns=now_ns
        )
        self.check_ns = self._rule.next_check_ns if open_ended else now_ns + round(t.max_s * 1e9)

    def _begin_warmup(self, now_ns: int) -> None:
        seconds = self.trial.warmup
        pause = WARMUP_LOOK_NS if seconds is None else round(seconds * 1e9)
        self.check_ns, self.limit = now_ns + pause, FOREVER
        if seconds == 0:
            self.limit = self._first

    @property
    def start_ns(self) -> int:
        """Return when the present phase began or will begin; a schedule runs from it."""
        return self._start_ns

    @property
    def deadline_ns(self) -> int:
        """Return the time after which nothing more is offered in the measured phase."""
        return self._start_ns + round(self.trial.max_s * 1e9)

    def goes_on(self, now_ns: int, rows: int, latencies: Latencies) -> bool:
        """Return whether the phase continues; set the time of the next check."""
        if not self._measured:
            return self._warm_up_more(now_ns, latencies)
        if rows >= self.limit:
            self.stopped_by = "all queries done"
            return False
        assert self._rule is not None
        reason = self._rule.decide(now_ns, latencies(self._first))
        self.check_ns = self._rule.next_check_ns
        self.stopped_by = reason or ""
        return reason is None

    def _warm_up_more(self, now_ns: int, latencies: Latencies) -> bool:
        if self.trial.warmup is not None:
            return False
        elapsed = now_ns - self._start_ns
        if warm(latencies(self._first), min_window=WARMUP_WINDOW):
            return False
        if elapsed >= WARMUP_MAX_NS:
            self.settled = False
            return False
        self.check_ns = self._start_ns + round(elapsed * GROWTH)
        return True

    def input_ended(self) -> None:
        """Note that the input has ended; UsageError if nothing was measured before that."""
        if not self._measured:
            raise UsageError(
                "E-WORK-3",
                "the input ended within the warm-up",
                evidence=f"{self.trial.workload} of {self.trial.model}",
                effect="Nothing is left to measure",
                fix="--warmup 0, or a longer input",
            )
        self.stopped_by = INPUT_ENDED

    def end(self, rows: int, now_ns: int) -> None:
        """Note where the measured phase ended."""
        self._stop, self._stop_ns = rows, now_ns
        self.edge()

    @property
    def window(self) -> Window:
        """Return the measured rows and their bounding times."""
        return Window(self._first, self._stop, self._start_ns, self._stop_ns)
