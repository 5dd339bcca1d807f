"""What is known of one run: its figures by name, the parts of a unit, the cores it had, and what the store tried.

A setting that was changed alone is an experiment: a result of the store that differs from this one in nothing else. It
says more about a cause than any counter does, so a diagnosis is confirmed or refuted by it where the store holds one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from edgescope import registry
from edgescope.analysis import roofline
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.roofline import Ceilings, Limit, Work
from edgescope.analysis.run.usage import Usage, usage
from edgescope.records import UNIT, Absent, Field, Json, Measured, Result, Role, Trial
from edgescope.records.trial import ROLES, TABLES

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
                found.append(Part(name, seconds * self._times(name), threads.get(name, 1), on_cpu))
        return tuple(found)

    def _times(self, name: str) -> float:
        """Return how often a unit goes through a part: an answer through as many as it has tokens."""
        names = self.result.spans.named() if self.result.spans is not None else []
        units = names.count(UNIT)
        return max(1.0, names.count(name) / units) if units else 1.0

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


#: Roles whose fields are no settings of the work: how long it was measured, how it is judged, which repeat it is.
ASIDE = Role.EFFORT | Role.TRACING | Role.JUDGING | Role.REPEAT


FASTER = 1.1
"""A change that gains at least this much counts as one."""


@dataclass(frozen=True)
class Intervention:
    """One setting that was changed, and the throughput afterwards over that before."""

    setting: str
    """A Trial's field, `options.threads`, `workload_options.decode` ..."""
    before: Json
    after: Json
    ratio: Measured
    """Samples per second, after over before."""
    result: Result
    """One of the results with the other setting."""

    @property
    def text(self) -> str:
        """Return `batch 1 -> 8: x 3.1`."""
        name = self.setting.rpartition(".")[2]
        return f"{name} {_word(self.before)} -> {_word(self.after)}: throughput x {self.ratio.value:.2f}"

    @property
    def source(self) -> str:
        """Return the result that it was read from."""
        return f"result {self.result.id.rpartition('-')[2]} of the store"


def _word(value: Json) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def settings(trial: Trial) -> dict[str, Json]:
    """Return every setting of the work by name, the options of each table by `table.option`."""
    plain = trial.to_json()
    flat: dict[str, Json] = {}
    for name in (name for name, role in ROLES.items() if role not in ASIDE):
        value = plain[name]
        flat |= {f"{name}.{key}": v for key, v in value.items()} if name in TABLES else {name: value}
    return flat


def differing(a: Trial, b: Trial) -> dict[str, tuple[Json, Json]]:
    """Return setting -> (its value in `a`, in `b`) where they differ; an option that is not given is None."""
    mine, theirs = settings(a), settings(b)
    names = [*mine, *(name for name in theirs if name not in mine)]
    return {n: (mine.get(n), theirs.get(n)) for n in names if mine.get(n) != theirs.get(n)}


def interventions(result: Result, others: Iterable[Result]) -> tuple[Intervention, ...]:
    """Return every single-setting change that these results hold, replicates of a cell taken together."""
    own: list[float] = []
    cells: dict[str, list[Result]] = {}
    for other in others:
        if other.machine.id != result.machine.id or other.status not in MEASURED:
            continue
        if other.trial.cell == result.trial.cell or not differing(result.trial, other.trial):
            own += _rates([other])
        elif len(differing(result.trial, other.trial)) == 1:
            cells.setdefault(other.trial.cell, []).append(other)
    base = own or _rates([result])
    return tuple(made for cell in cells.values() if base and (made := _made(result, base, cell)) is not None)


def _made(result: Result, base: Sequence[float], cell: Sequence[Result]) -> Intervention | None:
    rates = _rates(cell)
    if not rates:
        return None
    (setting, (before, after)), *_ = differing(result.trial, cell[0].trial).items()
    ratio = math.exp(_mean_log(rates) - _mean_log(base))
    return Intervention(setting, before, after, Measured(ratio, "ratio", n=len(rates)), cell[0])


def _rates(results: Iterable[Result]) -> list[float]:
    found = [r.metrics.get("throughput_sps") for r in results]
    return [f.value for f in found if isinstance(f, Measured) and f.value > 0]


def _mean_log(rates: Sequence[float]) -> float:
    return math.fsum(map(math.log, rates)) / len(rates)


def unit_seconds(result: Result) -> Field:
    """Return the seconds between two finished units of the whole trial: samples of one / throughput."""
    rate = result.metrics.get("throughput_sps")
    if not isinstance(rate, Measured) or rate.value <= 0:
        return rate if isinstance(rate, Absent) else Absent("no throughput was measured")
    tokens = result.metrics.get("output_tokens")  # of a language model, whose samples are tokens
    samples = tokens.value if isinstance(tokens, Measured) else result.trial.batch
    return Measured(samples / rate.value, "s", n=rate.n)


@dataclass(frozen=True)
class CostOfBatch:
    """Seconds of a unit as a + b x batch, from cells that differ in the batch alone."""

    fixed_s: float
    each_s: float
    batches: tuple[int, ...]

    def seconds(self, batch: int) -> float:
        """Return the predicted seconds of a unit of this batch."""
        return self.fixed_s + self.each_s * batch


def cost_of_batch(result: Result, found: Iterable[Intervention]) -> CostOfBatch | None:
    """Return the fit through the smallest and the largest batch, or None if one batch was measured.

    Two points, not all of them: a network that no longer fits a cache bends the line in between.
    """
    points: Mapping[int, float] = {
        r.trial.batch: s.value
        for r in (result, *(i.result for i in found if i.setting == "batch"))
        if isinstance(s := unit_seconds(r), Measured)
    }
    if len(points) < 2 or result.trial.batch not in points:
        return None
    own = result.trial.batch
    far = max(points) if own < max(points) else min(points)
    each = max(0.0, (points[far] - points[own]) / (far - own))
    return CostOfBatch(max(0.0, points[own] - each * own), each, tuple(sorted(points)))
