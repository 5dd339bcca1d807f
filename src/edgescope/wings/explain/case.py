"""What is known of one run: its figures by name, the parts of a unit, the cores it had, and what the store tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from edgescope import registry
from edgescope.analysis import roofline
from edgescope.analysis.roofline import Ceilings, Limit, Work
from edgescope.analysis.run.usage import Usage, usage
from edgescope.records import UNIT, Absent, Field, Json, Measured, Result
from edgescope.wings.explain.interventions import (
    CostOfBatch,
    Intervention,
    cost_of_batch,
    interventions,
    unit_seconds,
)

STAGES, PHASES = (
    "times of units that went through the stages one by one",
    "units timed by part after the window",
)
FLOW = "time that each stage computed while the pipeline ran"
WINDOW = "the process's own counters within the window"
SAMPLER = "the sampler's readings within the window"
ROOFLINE = "work of the network / this machine's measured ceilings"


@dataclass(frozen=True)
class Part:
    """One part of a unit: a stage of a pipeline, a phase of a step or of an inference."""

    name: str
    seconds: float
    """Of one unit."""
    threads: int = 1
    on_cpu: float | None = None
    """Share of its time that it is on a CPU: of each of its threads; None if it was not measured."""


class Case:
    """One result with everything that a cause may ask about it."""

    def __init__(
        self, result: Result, others: Sequence[Result] = (), ceilings: Ceilings | None = None
    ) -> None:
        self.result, self.trial = result, result.trial
        self.made_of = registry.made_of(result.trial.workload)
        """What a unit is made of: phases, parts or stages."""
        self.ceilings = ceilings
        self.tried = interventions(result, others)
        self.others = others

    def figure(self, name: str) -> float | None:
        """Return a metric's value, or None if it was not measured."""
        found = self.result.metrics.get(name)
        return found.value if isinstance(found, Measured) else None

    @cached_property
    def unit_s(self) -> float | None:
        """Return the seconds between two finished units of the trial."""
        found = unit_seconds(self.result)
        return found.value if isinstance(found, Measured) else None

    @cached_property
    def usage(self) -> Usage:
        """Return how busy the machine was."""
        return usage(self.result)

    @cached_property
    def cores(self) -> float:
        """Return the cores that the run might use; 1 if it is not known."""
        return self.usage.cores or float(logical_cores(self.result.machine.stable))

    @cached_property
    def cores_used(self) -> float | None:
        """Return the cores that the run kept busy, from its own counters, else from the sampler's."""
        own = self.figure("cores_used")
        if own is not None:
            return own
        share = self.usage.cpu
        return share.value * self.cores if isinstance(share, Measured) else None

    @cached_property
    def threads(self) -> int | None:
        """Return the threads that all processes of the engine compute with, or None if it does not tell."""
        effective = self.result.effective
        given = self.trial.options.get("threads")
        one = given if isinstance(given, int) else effective.threads if effective else None
        return None if one is None else one * self.trial.processes

    @property
    def asked(self) -> int | None:
        """Return the threads that may be ready to compute at once, or None if the engine does not tell."""
        at_once = self.trial.in_flight if self.made_of == "phases" else 1
        return None if self.threads is None else self.threads * at_once

    @property
    def overlapped(self) -> bool:
        """Return whether several units are under way at once."""
        return self.trial.in_flight > 1

    @property
    def open_loop(self) -> bool:
        """Return whether queries come at a rate of their own."""
        return registry.scenario(self.trial.scenario).open_loop

    @property
    def while_it_ran(self) -> bool:
        """Return whether the times of the parts are those of the window; else a few units went one by one after it.

        On a GPU, where units follow each other, a stage waits for what an earlier one left on the device. Only one by
        one each has its own time.
        """
        return self.made_of == "stages" and (self.overlapped or self.trial.place.is_host)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts of a unit."""
        spans = self.result.spans
        names = [n for n in spans.names if n != UNIT] if spans is not None else []
        threads = {str(s["name"]): int(s["threads"]) for s in _stages(self.result.artifact)}
        found = []
        for name in names:
            busy = self.result.metrics.get(f"{name}_busy_s")
            cpu = self.figure(f"{name}_cpu_s")
            on_cpu = (
                cpu / busy.value if cpu is not None and isinstance(busy, Measured) and busy.value else None
            )
            if self.while_it_ran and isinstance(busy, Measured):
                found.append(Part(name, busy.value, threads.get(name, 1), on_cpu))
            elif (seconds := self.figure(f"{name}_s")) is not None:
                found.append(Part(name, seconds, threads.get(name, 1), on_cpu))
        return tuple(found)

    def part(self, name: str) -> Part | None:
        """Return one part by name."""
        return next((p for p in self.parts if p.name == name), None)

    def asleep(self, part: Part) -> float | None:
        """Return the share of a part's time in which it is neither on a CPU nor ready to be; None if not known."""
        if part.on_cpu is None:
            return None
        waits = min(0.99, self.figure("run_wait_share") or 0.0)
        return max(0.0, 1 - part.on_cpu / (1 - waits))

    def alone_s(self, part: Part) -> float:
        """Return a part's seconds of a unit less those in which it was ready and other parts had the cores."""
        asleep = self.asleep(part)
        if part.on_cpu is None or asleep is None:
            return part.seconds
        return part.seconds * min(1.0, part.on_cpu + asleep)

    @cached_property
    def whole_s(self) -> float:
        """Return the seconds of a unit that goes through its parts one after the other."""
        return sum(p.seconds for p in self.parts)

    @cached_property
    def back_to_back_s(self) -> float | None:
        """Return the median seconds of a unit in the later half of the warm-up, where no pause is between units."""
        queries, window = self.result.queries, self.result.window
        if queries is None or window is None:
            return None
        warm = queries.rows(replace(window, first=window.first // 2, stop=window.first)).latency_ns()
        return float(np.median(warm)) * 1e-9 if len(warm) else None

    @cached_property
    def batches(self) -> CostOfBatch | None:
        """Return what a unit costs by its batch, if the store holds two batches."""
        return cost_of_batch(self.result, self.tried)

    def of(self, setting: str) -> tuple[Intervention, ...]:
        """Return what was tried of one setting, the best first."""
        found = [i for i in self.tried if i.setting == setting]
        return tuple(sorted(found, key=lambda i: -i.ratio.value))

    @cached_property
    def limit(self) -> Limit | Absent:
        """Return the least time of the network on this machine (roofline), or why there is none."""
        model, ceilings = self.result.model, self.ceilings
        if ceilings is None:
            return Absent("this machine's ceilings were not measured")
        if model is None or model.params is None:
            return Absent("the size of this model is not known")
        if ceilings.device != self.trial.device:
            return Absent(f"the ceilings are those of {ceilings.device}")
        work = Work(
            (model.macs or 0) * self.trial.batch, model.params, _inputs(self.result), 0, self.trial.precision
        )
        return roofline.limit(work, ceilings)

    def runs(self, precision: str) -> bool:
        """Return whether the trial's engine computes in a precision on the trial's device."""
        return precision in registry.about(self.trial.backend).PRECISIONS.get(self.trial.device, ())


def logical_cores(stable: Mapping[str, Json]) -> int:
    """Return the logical cores of a machine by its stable facts; 1 if they do not tell."""
    cpu = stable.get("cpu")
    found = cpu.get("logical_cores") if isinstance(cpu, Mapping) else None
    return found if isinstance(found, int) and found > 0 else 1


def _stages(artifact: Mapping[str, Json]) -> Sequence[Mapping[str, Json]]:
    found = artifact.get("stages")
    return found if isinstance(found, list) else ()


def _inputs(result: Result) -> int:
    """Return the values of one unit's inputs that the trial tells; 0 if it tells none: they add little."""
    total = 0
    for shape in result.trial.shapes.values():
        size = 1
        for n in shape[1:]:
            size *= n
        total += size * result.trial.batch
    return total


def known(field: Field) -> float | None:
    """Return the value of a figure, or None if it was not measured."""
    return field.value if isinstance(field, Measured) else None
