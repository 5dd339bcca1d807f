"""Choose the minibatch with which a device trains between queries: `edgescope.train_interleave(model, rate=20)`.

A query that arrives during a step of training waits for its end, so the longest latency is one step, one inference and
what it queues behind; training gets the time that inference leaves. Both times are those measured alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgescope import registry
from edgescope.analysis.cells.objective import Constraint, judged_end, parse, unreadable
from edgescope.analysis.cells.replicates import MEASURED, value_of
from edgescope.errors import UnavailableError, UsageError
from edgescope.models import zoo
from edgescope.records import Absent, Answer, Field, Json, Measured, Result, Scalar, Trial
from edgescope.records.answers import plain
from edgescope.records.trial import usual_backend
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.search.loop import InOrder
from edgescope.study import grid


@dataclass(frozen=True)
class Side:
    """One of the two, measured alone at one batch."""

    batch: int
    seconds: float
    """Of one inference, or of one step of training: the mean."""
    watts: float | None = None
    tail: float | None = None
    """The percentile of the seconds that a latency bound is about; None: as the mean."""

    @property
    def longest(self) -> float:
        """Return how long a query may have to reckon with."""
        return self.seconds if self.tail is None else self.tail


@dataclass(frozen=True)
class Slice:
    """A pair of minibatches that take turns, and what to expect of it."""

    served: Side
    trained: Side
    latency_s: float
    """The longest latency of a query that queues behind no other."""
    trained_sps: float
    watts: float | None
    """Mean power while both take their turns; None if it was not measured alone."""


def expected(served: Side, trained: Side, rate: float) -> Slice:
    """Return what a pair gives if `rate` queries of the served batch arrive a second."""
    busy = min(1.0, rate * served.seconds)
    known = served.watts is not None and trained.watts is not None
    return Slice(
        served,
        trained,
        served.longest + trained.longest,
        (1 - busy) * trained.batch / trained.seconds,
        busy * (served.watts or 0.0) + (1 - busy) * (trained.watts or 0.0) if known else None,
    )


def plan(
    served: Iterable[Side],
    trained: Iterable[Side],
    samples_s: float,
    *,
    latency_s: float,
    watts: float | None = None,
) -> Slice | None:
    """Return the pair that trains fastest within a latency and a power budget; None if no pair keeps both.

    `samples_s` samples arrive a second to be served; a larger served batch waits until it is full.
    """
    best: Slice | None = None
    steps = list(trained)
    for side in served:
        for step in steps:
            found = expected(side, step, samples_s / side.batch)
            filled = (side.batch - 1) / samples_s
            if found.latency_s + filled > latency_s or samples_s / side.batch * side.seconds >= 1:
                continue
            if watts is not None and (found.watts is None or found.watts > watts):
                continue
            if best is None or found.trained_sps > best.trained_sps:
                best = found
    return best


# -- measured ------------------------------------------------------------------------------------------------


WINDOW_S = 5.0
"""Seconds of each run."""
BATCHES = (4, 16, 64)
"""Minibatches of training that are tried."""


@dataclass(frozen=True, repr=False)
class Interleaving(Answer):
    """How a device serves and trains in turns best, with every minibatch that was compared."""

    latency: Constraint
    watts: Constraint | None
    """The bound of the power; None if none was asked for."""
    slices: tuple[Slice, ...]
    """What each minibatch would give, the fastest training first."""
    pick: Slice | None
    """The one that trains fastest within every bound; None if none keeps them."""
    trial: Trial | None
    """The pick as a trial of the workload `interleaved`."""
    measured: Result | Absent
    """The pick as it was measured, or why it was not."""

    def figure(self, name: str) -> Field:
        """Return a metric of the measured pick."""
        if isinstance(self.measured, Absent):
            return self.measured
        return self.measured.metrics.get(name, Absent(f"the run is {self.measured.status.value}"))

    @property
    def bounds(self) -> tuple[Constraint, ...]:
        """Return what the plan has to keep."""
        return (self.latency,) if self.watts is None else (self.latency, self.watts)

    @property
    def kept(self) -> bool:
        """Return whether the pick kept every bound when it was measured, or, unmeasured, is expected to."""
        return self.pick is not None and not self.broken and not self.missing

    @property
    def broken(self) -> tuple[Constraint, ...]:
        """Return the bounds that the measured pick did not keep."""
        if isinstance(self.measured, Absent):
            return ()
        found = [(each, self.figure(_of(each))) for each in self.bounds]
        return tuple(b for b, f in found if isinstance(f, Measured) and not b.holds(judged_end(f, True)))

    @property
    def missing(self) -> tuple[str, ...]:
        """Return what the run of the pick should tell and does not, each with the reason."""
        if isinstance(self.measured, Absent):
            return ()
        if self.measured.status not in MEASURED:
            return (f"the run in turns is {self.measured.status.value}: {self.measured.reason}",)
        found = {name: self.figure(name) for name in (*map(_of, self.bounds), "trained_sps")}
        return tuple(
            f"{name} was not measured: {field.reason}"
            for name, field in found.items()
            if isinstance(field, Absent)
        )

    def lines(self) -> Iterator[str]:
        """Yield the pick, why it keeps the latency, what was measured, then the other minibatches."""
        if self.pick is None:
            yield self._none()
        else:
            yield f"train with minibatches of {self.pick.trained.batch}"
            yield (
                f"  {self.latency.name} at most {_ms(self.pick.latency_s)}: {_ms(self.pick.served.longest)} of a query"
                f" and {_ms(self.pick.trained.seconds)} of a step{_beside(self.figure(_of(self.latency)), 1e3, ' ms')}"
            )
            yield (
                f"  trains {self.pick.trained_sps:.3g} samples/s beside the queries"
                f"{_beside(self.figure('trained_sps'), 1.0, '')}"
            )
        yield from (f"  {each.text} was not kept when it was measured" for each in self.broken)
        yield from (f"  {each}" for each in self.missing)
        for each in self.slices:
            if each != self.pick:
                yield f"  {each.trained.batch}: {_ms(each.latency_s)}, {each.trained_sps:.3g} samples/s"

    def _none(self) -> str:
        """Return why there is no pick."""
        if not self.slices:
            return "no run of training was measured, so there is nothing to choose from"
        if self.watts is not None and all(each.watts is None for each in self.slices):
            return f"{self.watts.text} cannot be judged: power was not measured here"
        return f"no minibatch keeps {' and '.join(each.text for each in self.bounds)}"

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each minibatch."""
        return [
            {
                "train_batch": each.trained.batch,
                "latency_s": each.latency_s,
                "trained_sps": each.trained_sps,
                "power_w": each.watts,
                "pick": each == self.pick,
                "measured_latency_s": plain(self.figure(_of(self.latency))) if each == self.pick else None,
                "measured_trained_sps": plain(self.figure("trained_sps")) if each == self.pick else None,
            }
            for each in self.slices
        ]


def train_interleave(
    model: str,
    *,
    rate: float,
    constraints: Sequence[str],
    train: str = "",
    train_batch: Sequence[int] = BATCHES,
    verify: bool = True,
    store: Stored = None,
    setup: Setup = Setup(),
    **trial: Any,
) -> Interleaving:
    """Return the minibatch that trains `train` fastest while `model` answers `rate` queries a second within bounds.

    Both are measured alone; the pick is then measured in turns, unless not `verify`. `constraints` bound one percentile
    of the latency, and may bound the power: "p99<=150ms", "power<=20W". Further keys are those of a Trial, for the
    serving side. A minibatch whose run fails is left out; UnavailableError if the serving side fails.
    """
    latency, watts = _bounds(constraints)
    runs = InOrder(setup.cells(store_of(store)), setup.tell)
    backend = trial.get("backend") or usual_backend(model)
    given = {name: value for name, value in trial.items() if value is not None}
    window = {} if {"min_s", "max_s"} & set(given) else {"min_s": WINDOW_S, "max_s": WINDOW_S}
    keys = {"warmup": 0.5, **window, **given, "backend": backend}
    keys |= {"device": trial.get("device") or registry.home(backend)}
    options = {**keys.pop("workload_options", {}), **({"train": train} if train else {})}
    options["train"] = zoo.pin(str(options.get("train") or model))
    asked = grid.pinned(Trial(model=model, scenario="fixed_rate", rate=rate, **keys), zoo.pin)
    sides = _Sides(runs, setup, asked, options)
    grid.checked(sides.turns(1))  # what the run in turns would refuse is refused before anything is measured
    follow = [*map(sides.training, train_batch), *([sides.turns(train_batch[0])] if verify else ())]
    served = sides.served(_of(latency), follow)
    sizes = enumerate(train_batch, start=1)
    trained = [side for n, size in sizes if (side := sides.trained(size, follow[n:])) is not None]
    best = plan(
        [served], trained, rate, latency_s=latency.limit, watts=watts.limit if watts is not None else None
    )
    answer = Interleaving(
        latency,
        watts,
        tuple(sorted((expected(served, each, rate) for each in trained), key=lambda each: -each.trained_sps)),
        best,
        sides.turns(best.trained.batch) if best else None,
        Absent("not asked for" if best else "no minibatch keeps the bounds"),
    )
    if not verify or answer.trial is None:
        return answer
    return replace(answer, measured=runs.run("in turns", answer.trial, ()))


@dataclass(frozen=True)
class _Sides:
    """Both sides, measured alone."""

    runs: InOrder
    setup: Setup
    asked: Trial
    """The serving side."""
    options: Mapping[str, Scalar]
    """Those of the workload `interleaved`."""

    def served(self, figure: str, ahead: Sequence[Trial]) -> Side:
        """Return how long a query takes, and the worse end of its percentile; a query is one unit, however large."""
        found = self.runs.run("serving", self.asked, ahead)
        ran = found.status in MEASURED
        unknown = Absent(str(found.reason or "not measured"))
        taken = found.metrics.get(figure, unknown) if ran else unknown
        if isinstance(taken, Absent):
            raise UnavailableError(
                "E-SLICE-3",
                "how long a query takes is not known",
                evidence=f"{figure}: {taken.reason}",
                effect="Nothing can be planned",
                fix="a longer --duration, or a lower percentile" if ran else "",
            )
        tail = judged_end(taken, at_most=True)
        return Side(1, value_of(found, "latency_mean_s") or tail, value_of(found, "power_w"), tail)

    def trained(self, batch: int, ahead: Sequence[Trial]) -> Side | None:
        """Return how long a step of training takes; None if its run failed."""
        found = self.runs.run("training", self.training(batch), ahead)
        rate = value_of(found, "throughput_sps") if found.status in MEASURED else None
        if rate is None:
            self.setup.tell(f"  left out: a minibatch of {batch}: {found.reason}")
            return None
        return Side(batch, batch / rate, value_of(found, "power_w"))

    def training(self, batch: int) -> Trial:
        """Return the trial of the training side alone."""
        taken = {name: self.options[name] for name in ("images", "num_workers") if name in self.options}
        threads = self.asked.options.get("threads") if registry.facts(self.asked.backend).TRAINS else None
        alike = ("device", "mode", "seed", "warmup", "min_s", "max_s")
        return Trial(
            model=str(self.options["train"]),
            backend="torch_eager",
            workload="training",
            workload_options=taken,
            options={} if threads is None else {"threads": threads},
            batch=batch,
            **{name: getattr(self.asked, name) for name in alike},
        )

    def turns(self, batch: int) -> Trial:
        """Return the trial that trains between the queries."""
        options = {**self.options, "train_batch": batch}
        return replace(self.asked, **grid.settled({"workload": "interleaved", "workload_options": options}))


def _bounds(constraints: Sequence[str]) -> tuple[Constraint, Constraint | None]:
    """Return the bound of the latency and that of the power, if there is one."""
    every = [parse(text) for text in constraints]
    latency = [each for each in every if each.quantile is not None and each.metric.of]
    power = [each for each in every if each.metric.of == ("power_w",)]
    for each in every:
        if each not in (*latency, *power):
            raise unreadable(each.text, "turns are planned within a percentile of the latency and a power")
    if len(latency) != 1 or len(power) > 1:
        raise UsageError(
            "E-SLICE-2",
            "turns are planned within one percentile of the latency",
            evidence=f"{len(latency)} given",
            effect="Nothing was measured",
            fix='--constraint "p90<=150ms"',
        )
    return latency[0], power[0] if power else None


def _of(bound: Constraint) -> str:
    """Return the metric of a Result that a bound is about."""
    return bound.metric.of[0]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _beside(found: Field, factor: float, unit: str) -> str:
    return f"; measured {found.value * factor:.3g}{unit}" if isinstance(found, Measured) else ""
