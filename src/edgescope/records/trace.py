"""A trace: what a profiler saw, as spans and samples on one clock, with its source and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgescope.errors import Message
from edgescope.records.field import Json
from edgescope.records.rows import Readings
from edgescope.records.spans import Spans

#: How the name of a range begins that holds the queries' clock at its start; it is no work of the program.
CLOCK_MARK = "edgescope clock "


@dataclass(frozen=True)
class Trace:
    """Spans of any profiler's file, and the GPU's metric samples beside them."""

    spans: Spans
    source: str
    """The program and the format that it comes from: `Nsight Systems 2025.3.2, schema 3.20.3`."""
    samples: Readings | None = None
    """Samples over time (SM active, tensor active ...), on the clock of the spans."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """What the file says of the machine: `gpus`, `processes`, `cpu_cores`."""
    clock: str = "its own"
    """`monotonic` if the times are those of the queries; `its own` if they only compare within this trace."""
    timed: bool = True
    """Whether starts mean anything; False for a summary, whose rows are laid end to end."""
    notes: tuple[Message, ...] = ()
    """What is missing, repaired or unknown in the file."""

    def on_monotonic(self, ns: int) -> Trace:
        """Return the trace with `ns` added to every time, which makes its clock that of the queries."""
        samples = self.samples
        if samples is not None:
            samples = replace(samples, t_ns=samples.t_ns + ns)
        return replace(self, spans=self.spans.moved(ns), samples=samples, clock="monotonic")
