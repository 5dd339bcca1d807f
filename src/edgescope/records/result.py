"""The Result: what happened when a Trial was run, on which machine, and whether its numbers may be trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from edgescope.errors import Message, UnsupportedError, UsageError, closest_name
from edgescope.records.answers import Absent, Answer, Field, Json, Measured, digest, figure_text, frame, plain
from edgescope.records.rows import Idle, Queries, Readings, Spans, Window
from edgescope.records.trial import Trial


class Status(str, Enum):
    """Whether a trial finished; every status other than `ok` has a reason."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    WRONG_OUTPUT = "wrong_output"
    UNSTABLE = "unstable"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    FAILED = "failed"


class Trust(str, Enum):
    """Whether the numbers may be trusted; every value has evidence."""

    CLEAN = "CLEAN"
    THROTTLED = "THROTTLED"
    DISTURBED = "DISTURBED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Verdict:
    """Whether the numbers of a result may be trusted, with the evidence."""

    trust: Trust
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """Everything about the machine that could explain a difference between two results."""

    stable: Mapping[str, Json]
    """Facts that name the machine: CPU model, cores, memory, GPU, operating system. Their hash is the id."""
    state: Mapping[str, Json]
    """Facts of the moment: clocks, governor, temperatures, load, versions, environment, command line."""

    @property
    def id(self) -> str:
        """Hash of the stable facts, which names the machine's folder in a store."""
        return digest(dict(self.stable))


@dataclass(frozen=True)
class Meter:
    """The meter that a result's watts and joules come from; figures of two scopes are not comparable."""

    name: str
    """Channel name without its suffix: `gpu0`, `cpu_package`, `vdd_in`."""
    scope: str
    """The part of the machine that the meter covers, in the words of Channel.scope."""
    method: str
    """counter, trapezoid or trapezoid of averages."""


@dataclass(frozen=True)
class Verification:
    """The answer of the accuracy gate: whether these are the outputs of the fp32 reference."""

    passed: bool
    method: str
    """`top1_agreement` for trained classifiers, `box_agreement` for trained detectors, `centred_l2` otherwise, `none`
    for the null model."""
    fields: Mapping[str, Field]
    """top1_agreement, centred_l2, rank_agreement, accuracy, reference_accuracy; Absent if one does not apply."""
    threshold: float
    detail: str
    """One sentence with the figures."""
    reference: str = ""
    """What the outputs were compared with."""
    doubt: str = ""
    """Why labels say nothing of what a variant loses, though there are enough of them; '' where they do."""

    def figure(self, method: str = "") -> Field:
        """Return the value of a method, by default that of the one that judged; Absent if there is none."""
        name = method or self.method
        own = "accuracy" if name == self.method else name
        return self.fields.get(name) or self.fields.get(own) or Absent(f"not judged by {name}")


GateOutcome = Verification | Message
"""The answer of the gate, or why the outputs cannot be judged: they are timed, and not verified."""


@dataclass(frozen=True)
class Effective:
    """What the engine reports that it did, read back after the first inference."""

    device: str
    precision: str
    """The precision of the heavy operators."""
    threads: int | None = None
    evidence: str = ""
    """Where this was read, e.g. `OpenVINO runtime model: 52 of 52 convolutions f32`."""
    unwatched: str = ""
    """Why this machine's sensors do not tell of the machine that computed; '' if they do."""


@dataclass(frozen=True)
class ModelInfo:
    """The facts about a model that are known without running it."""

    name: str
    task: str
    """classify or unknown."""
    trained: bool
    """False also if it is not known: no accuracy is claimed then."""
    source: str
    digest: str
    """Hash of the weights and the definition."""
    params: int | None = None
    macs: int | None = None
    """Multiply-accumulates of one sample; FLOPs are twice this."""
    prepared: str = ""
    """How the user's pictures became inputs, and who says so; '' where there are none, or nothing is done to them."""

    @property
    def weights(self) -> str:
        """Return what is known of the weights: of a user's own file nobody knows whether they were trained."""
        if self.task == "unknown":  # `trained` says then that its data judge it
            return "weights not known"
        return "trained weights" if self.trained else "untrained weights"


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One process of a multi-process trial, as the leading process saw it; its rows carry its number."""

    number: int
    """From 0; workers of the trial's own model come first, then one for each colocated model."""
    model: str
    pid: int
    cpus: tuple[int, ...] = ()
    """The CPUs it may run on."""
    start_ns: int = -1
    """When its first measured query was issued; -1 if it issued none."""
    stop_ns: int = -1
    """When its last measured query was done."""
    counted: int | None = None
    """Queries done within the window by the counter that all workers share; None if it was not read."""
    load_s: Field = field(default_factory=lambda: Absent("not measured"))
    peak_rss_bytes: Field = field(default_factory=lambda: Absent("not measured"))
    pss_bytes: Field = field(default_factory=lambda: Absent("not measured"))
    """Its share of resident memory within the window; pages that workers share are divided among them."""
    gpu_memory_bytes: Field = field(default_factory=lambda: Absent("not measured"))
    """GPU memory of this process, as the driver reports it."""


@dataclass(frozen=True)
class Turn:
    """What counts of one turn of an alternation: its first milliseconds do not."""

    block: int
    """Number of the ABBA block that it belongs to, from 0."""
    start_ns: int
    stop_ns: int
    queries: int
    time_s: float
    """Median latency of its queries; seconds a sample where only throughput counts."""


@dataclass(frozen=True)
class Alternation:
    """How a Result was measured in turns with another, both processes alive all the time and one of them idle."""

    partner: str
    """Id of the Result that had the other turns."""
    side: str
    """baseline or candidate."""
    purpose: str
    """selecting or confirming: whether the pair helped to choose the candidate, or ran after it was chosen."""
    turns: tuple[Turn, ...]
    idle_share: float
    """Share of one core that this process took while the other had its turns."""


SAID = ("latency_p50_s", "latency_p99_s", "throughput_sps", "power_w", "peak_rss_bytes")
"""The metrics that printing a Result shows."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Answer):
    """What happened when a Trial was run: facts, raw rows, a status and a verdict."""

    id: str
    trial: Trial
    machine: Machine
    status: Status
    reason: Message | None = None
    verdict: Verdict = field(default_factory=lambda: Verdict(Trust.UNKNOWN, ("nothing was measured",)))
    started_at: str = ""
    """UTC, ISO 8601."""
    driver: str = "edgescope"
    """`external` if a program owns its loop (trtexec, LoadGen), `agent` if it did so on a board."""
    process: str = "fresh"
    """`reused` if the workers had run other trials before; only fresh replicates show what that hides.

    `forked` if a fresh process began with its imports done.
    """
    model: ModelInfo | None = None
    artifact: Mapping[str, Json] = field(default_factory=dict)
    """Path, digest, and how the artifact was built."""
    effective: Effective | None = None
    verification: Verification | None = None
    unverified: Message | None = None
    """Why the outputs of a trial that was measured could not be judged; None if they were, or if nobody asked."""
    window: Window | None = None
    workers: tuple[Worker, ...] = ()
    """The processes of a multi-process trial; empty if one process did the work."""
    alternation: Alternation | None = None
    """The turns that it took with another variant; None if it was measured alone."""
    idle: tuple[Idle, ...] = ()
    """The idle stretches that were watched; empty if the trial's idle_s is 0."""
    meter: Meter | None = None
    """The meter behind power_w and the energies in `metrics`; None if no meter answered."""
    metrics: Mapping[str, Field] = field(default_factory=dict)
    """Derived from the raw rows by analysis.run.summary; recomputable."""
    warnings: tuple[Message, ...] = ()
    queries: Queries | None = None
    readings: Readings | None = None
    spans: Spans | None = None
    """Where the time of a few units went, from separate runs after the window; None if nothing reports it."""

    @classmethod
    def begun(
        cls,
        trial: Trial,
        machine: Machine,
        status: Status = Status.FAILED,
        reason: Message | None = None,
        *,
        at: datetime | None = None,
    ) -> Result:
        """Return the Result of a trial that has only started, now unless it is said, or that could not start."""
        moment = at or datetime.now(timezone.utc)
        name = f"{trial.id}-{moment:%Y%m%dT%H%M%S}-{digest(os.urandom(8).hex())[:6]}"
        stamp = moment.isoformat(timespec="milliseconds")
        return cls(id=name, trial=trial, machine=machine, status=status, reason=reason, started_at=stamp)

    def inherited(self, trial: Trial) -> Result:
        """Return it as the Result of another trial, begun now, that shares its fate."""
        own = Result.begun(trial, self.machine)
        return replace(self, id=own.id, trial=trial, started_at=own.started_at)

    def without_rows(self) -> Result:
        """Return it without its raw rows, as a store lists it: thousands of results then fit into memory."""
        return replace(self, queries=None, readings=None, spans=None)

    def ended(self, status: Status, reason: Message | None = None) -> Result:
        """Return it with this status; it keeps its reason unless there is another."""
        return replace(self, status=status, reason=reason or self.reason)

    def warned(self, *more: Message) -> Result:
        """Return it with further warnings."""
        return replace(self, warnings=(*self.warnings, *more)) if more else self

    def spoiled(self, why: Message) -> Result:
        """Return it as failed for what came out after it had run; one that had failed has a further warning.

        Nothing vouches for its numbers any more: no verdict on them is CLEAN.
        """
        found = self
        if self.verdict is not None and self.verdict.trust is Trust.CLEAN:
            found = replace(self, verdict=Verdict(Trust.UNKNOWN, (str(why), *self.verdict.evidence)))
        ran = self.status in (Status.OK, Status.UNSTABLE)
        return found.ended(Status.FAILED, why) if ran else found.warned(why)

    @property
    def label(self) -> str:
        """The variant's name; a file that is run as it is bears the precision that ran."""
        label = self.trial.label
        return label.replace(" as_is b", f" {self.effective.precision} b", 1) if self.effective else label

    def value(self, metric: str) -> float:
        """Return the value of a metric, in the unit that its name ends in; the error says why there is none."""
        found = self.metrics.get(metric)
        if isinstance(found, Measured):
            return found.value
        if found is not None:
            raise UnsupportedError("E-VALUE-1", f"{metric} was not measured", evidence=found.reason)
        close = closest_name(metric, self.metrics)
        raise UsageError(
            "E-VALUE-2",
            f"this result has no metric {metric!r}",
            evidence=str(self.reason or "") or f"it has {', '.join(self.metrics)}",
            fix=f"value({close!r})" if close else "",
        )

    def lines(self) -> Iterator[str]:
        """Yield the trial, its status, and the main metrics."""
        yield f"Result {self.id}: {self.trial.model.partition('#')[0]} {self.trial.label}"
        trust = f", {self.verdict.trust.value}" if self.queries is not None or self.metrics else ""
        yield f"  {self.status.value}{trust}{f': {self.reason}' if self.reason else ''}"
        yield from (f"  {figure_text(name, self.metrics[name])}" for name in SAID if name in self.metrics)

    def row(self) -> dict[str, Json]:
        """Return the result as one row: its trial, its status, and the value of every metric."""
        end = {"id": self.id, "status": self.status.value, "verdict": self.verdict.trust.value}
        return (
            end
            | {"started_at": self.started_at}
            | {k: v for k, v in self.trial.to_json().items() if not isinstance(v, dict)}
            | {name: plain(field) for name, field in self.metrics.items()}
        )

    def frame(self) -> Any:
        """Return the measured queries as a data frame, one row per query, times in nanoseconds of one clock."""
        if self.queries is None:
            raise UsageError(
                "E-FRAME-2",
                f"the result {self.id} holds no queries",
                evidence=str(self.reason or "") or "it was listed without its raw rows",
                fix="store.full(result).frame()",
            )
        return frame(self.queries.columns)


class Results(Answer, tuple[Result, ...]):
    """Results in the order in which they were requested."""

    __slots__ = ()

    def lines(self) -> Iterator[str]:
        """Yield the number of results by status, then one line per result."""
        ends = [r.status.value for r in self]
        counts = ", ".join(f"{ends.count(word)} {word}" for word in dict.fromkeys(ends))
        yield f"{len(self)} result{'s' * (len(self) != 1)}{': ' * bool(counts)}{counts}"
        for r in self:
            timed = r.metrics.get("latency_p50_s")
            tail = f"  {figure_text('p50', timed)}" if isinstance(timed, Measured) else ""
            yield f"  {r.trial.model.partition('#')[0]} {r.trial.label}: {r.status.value}{tail}"

    def records(self) -> list[dict[str, Json]]:
        """Return one row per result."""
        return [r.row() for r in self]
