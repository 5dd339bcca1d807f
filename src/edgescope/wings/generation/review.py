"""What only the whole Result of a run tells: shares of the ceilings, memory, energy by phase, and crowded threads.

Threads of a language engine share every product, a few hundred of them a token, and wait for each other after each:
they spin, so as to lose no time. Where another program has one of their cores, the others burn theirs until it is
given back: two threads on two busy cores were seen to decode 10 to 40 times more slowly than one. Such a rate is that
of the scheduler, and of no use: the run is `unstable` (E-GEN-7), and no rate of it has an interval.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from edgescope.analysis import roofline
from edgescope.analysis.run.usage import usage
from edgescope.errors import EdgescopeError, Message
from edgescope.process import give_back
from edgescope.records import Field, Measured, Result, Status
from edgescope.store.results import default_root
from edgescope.wings.generation import bounds, memory
from edgescope.wings.generation.memory import Held, Room

OTHERS, WAITS = 0.10, 0.15
"""Share of all cores that other programs may use, and of their own time that the threads may wait for a core."""
RATES = ("decode_tps", "prefill_tps", "output_tps", "throughput_sps")
Energy = Callable[[Result], Mapping[str, Field]]


@dataclass(frozen=True)
class Review:
    """Completes the Result of a run in one process."""

    held: Held | None
    """How the engine holds the model; None if it does not say it."""
    room: Room
    """The memory before the model was loaded."""
    longest: tuple[int, int]
    """Tokens of the largest prompt and of its answer."""
    energy: Energy

    def __call__(self, result: Result) -> Result:
        """Return the Result with these figures, and with what is wrong with it."""
        trial = result.trial
        gc.collect()
        give_back()
        shares = bounds.shares(
            self.held, ceilings(result), result.metrics, device=trial.device, together=trial.in_flight
        )
        more = {
            **memory.figures(self.held, self.room, *self.longest, trial.in_flight),
            "closed_rss_bytes": Measured(memory.resident(), "bytes") if self.held else memory.UNTOLD,
            **shares,
            **self.energy(result),
        }
        found = replace(result, metrics={**result.metrics, **more})
        return crowded(found.warned(*bounds.impossible(shares, trial.device)))


def ceilings(result: Result) -> roofline.Ceilings | None:
    """Return the ceilings of this machine that the store holds; None if it has none that can be read."""
    try:
        return roofline.stored(default_root(), result)
    except EdgescopeError:
        return None


def crowded(result: Result) -> Result:
    """Return the result as unstable if its threads waited for cores that other programs used; else unchanged."""
    others, waits = usage(result).cpu_others, result.metrics.get("run_wait_share")
    threads = result.effective.threads if result.effective else None
    if not result.trial.place.is_host or not isinstance(others, Measured) or not isinstance(waits, Measured):
        return result
    if threads == 1 or others.value < OTHERS or waits.value < WAITS:
        return result
    plain = {
        n: Measured(f.value, f.unit, n=f.n) for n in RATES if isinstance(f := result.metrics.get(n), Measured)
    }
    why = replace(
        CROWDED,
        evidence=f"other programs used {others.value:.0%} of all cores; {threads or 'several'} threads "
        f"were ready and did not run for {waits.value:.0%} of their time",
    )
    return replace(result, metrics={**result.metrics, **plain}).ended(Status.UNSTABLE, why)


CROWDED = Message(
    "E-GEN-7",
    "threads that wait for each other had to share their cores with other programs",
    effect="Its rates are those of the scheduler: with one thread they may be ten times higher",
    fix="--threads 1, or end the other programs (edgescope doctor names them)",
)
