"""Check the ranges of a Trial's numbers and of its limits, each with the reason.

New trials are checked, stored ones are not: results of any range stay readable.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgescope.errors import UsageError
from edgescope.records import Trial

#: A load generator's clock resolves a microsecond; each arrival is stored as a row of 50 bytes.
MOST_RATE, MOST_ROWS = 1e6, 1e8
MOST_PROCESSES, MOST_IN_FLIGHT, MOST_THREADS = 256, 1024, 1024
SHORTEST_S, LONGEST_S = 0.001, 7 * 86400.0
#: A shorter soak cannot distinguish burst from sustained performance (analysis.run.sustained).
SHORTEST_SOAK_S = 60.0


def checked(trial: Trial) -> Trial:
    """Return the trial if its numbers are in range; UsageError with the flag, the range and the reason otherwise."""
    for ok, what, why in _rules(trial):
        if not ok:
            raise _outside(what, why)
    return trial


def _rules(t: Trial) -> Iterator[tuple[bool, str, str]]:
    """Yield (whether the rule holds, the rule, its reason)."""
    yield (
        SHORTEST_S <= t.max_s <= LONGEST_S,
        f"the window (--duration, max_s) must last 1ms to 7 days, not {t.max_s:g} s",
        "a shorter window holds no query",
    )
    rows = 0.0 if t.rate is None else t.rate * t.max_s
    yield (
        t.rate is None or t.rate <= MOST_RATE,
        f"rate must be at most {MOST_RATE:g} queries/s, not {t.rate or 0:g}",
        "the clock resolves no shorter time between two queries",
    )
    yield (
        rows <= MOST_ROWS,
        f"rate {t.rate or 0:g}/s over {t.max_s:g} s is {rows:.0e} queries, more than {MOST_ROWS:.0e}",
        "each query is stored as a row",
    )
    yield (
        t.processes <= MOST_PROCESSES,
        f"processes must be at most {MOST_PROCESSES}, not {t.processes}",
        "each process holds an engine and a copy of the model",
    )
    yield (
        t.in_flight <= MOST_IN_FLIGHT,
        f"in_flight must be at most {MOST_IN_FLIGHT}, not {t.in_flight}",
        "each query in flight is a thread",
    )
    threads = t.options.get("threads", 1)
    yield (
        not isinstance(threads, int | float) or 0 <= threads <= MOST_THREADS,
        f"threads must lie between 0 and {MOST_THREADS}, not {threads}",
        "more threads than cores only wait for each other",
    )


def limits(timeout_s: float, floor_mb: float | None, soak_s: float | None) -> None:
    """Raise UsageError for limits under which no trial can succeed."""
    rules = (
        (timeout_s > 0, f"--timeout must be above 0, not {timeout_s:g}s", "every trial would be stopped"),
        (
            floor_mb is None or 0 <= floor_mb < float("inf"),
            f"--memory-floor must be 0 MB or more, not {floor_mb or 0:g}",
            "free memory is never negative; leave the flag out for the default floor",
        ),
        (
            soak_s is None or soak_s >= SHORTEST_SOAK_S,
            f"--soak must be at least {SHORTEST_SOAK_S:g}s, not {soak_s or 0:g}s",
            "a shorter window cannot settle; --duration sets a shorter window",
        ),
    )
    for ok, what, why in rules:
        if not ok:
            raise _outside(what, why)


def _outside(what: str, why: str) -> UsageError:
    return UsageError("E-RANGE-1", what, evidence=why, effect="Nothing was measured")
