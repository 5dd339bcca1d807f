"""The question of a capacity search, and its Trials: N clients, for some seconds, for the n-th time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgescope.analysis.cells.objective import Constraint
from edgescope.errors import UnsupportedError
from edgescope.options import settled
from edgescope.records import Absent, Result, Scalar, Trial
from edgescope.scenarios.open_loop import Trace, poisson
from edgescope.wings.capacity import queueing
from edgescope.wings.capacity.answer import Terms
from edgescope.wings.capacity.constraints import resource, tail
from edgescope.wings.capacity.queueing import Load

CAMERA = "camera"
SCENARIOS = {"poisson": "server", "even": "fixed_rate", CAMERA: "trace"}
PER_CLIENT = "per-client"
#: Seeds among which the one is chosen whose number of arrivals is nearest to the rate's.
DRAWS = 16
#: From this number of arrivals on, any seed's number is within 1 % of the rate's.
MANY = 100_000
#: Smallest distance between the seeds of two attempts: the processes of an attempt have consecutive seeds.
SEEDS = 1000


@dataclass(frozen=True)
class Question:
    """The question how many clients of `rate` queries/s keep all constraints."""

    base: Trial
    """Model, engine, precision, batch, options, in_flight; the search sets its scenario and processes."""
    rate: float
    constraints: tuple[Constraint, ...]
    server_processes: str = "one"
    """one: a single process answers all clients; per-client: each client has its own process."""
    arrivals: str = "poisson"
    confirm_s: float = 30.0
    max_duration_s: float = 600.0
    """The longest run (seconds) that may be made for a bound."""
    max_clients: int = 1024

    @property
    def summary(self) -> Terms:
        """The question as its answer quotes it."""
        base = self.base
        subject = f"{base.model.partition('#')[0]} {base.label}"
        return Terms(
            subject,
            self.rate,
            self.constraints,
            self.server_processes,
            self.arrivals,
            base.in_flight,
            self.confirm_s,
        )

    @property
    def tails(self) -> list[tuple[float, float]]:
        """(quantile, seconds below which it must lie) of every constraint about time."""
        found = (tail(constraint, self.base.deadline_s) for constraint in self.constraints)
        return [one for one in found if one is not None]

    def trial(self, clients: int, seconds: float, attempt: int, store: Path) -> Trial:
        """Return the trial of `clients` clients for `seconds`; each `attempt` has its own seed and replicate."""
        one = self.server_processes == "one"
        scenario, options = SCENARIOS[self.arrivals], dict[str, Scalar]()
        rate: float | None = self.rate * (clients if one else 1)
        seed = self.base.seed + (SEEDS if one else max(SEEDS, DRAWS * self.max_clients)) * attempt
        if self.arrivals == CAMERA and one:
            rate, options = None, self._cameras(clients, seconds, seed, store)
        elif self.arrivals == CAMERA:
            scenario = SCENARIOS["even"]  # each process is a camera with its own phase
        load = {"scenario": scenario, "rate": rate, "scenario_options": options}
        load["processes"] = 1 if one else clients
        window = {"min_s": seconds, "max_s": seconds, "max_queries": None}
        trial = replace(self.base, **load, **window, seed=seed, replicate=self.base.replicate + attempt)  # type: ignore[arg-type]
        return typical(trial) if self.arrivals == "poisson" else trial

    def _cameras(self, clients: int, seconds: float, seed: int, store: Path) -> dict[str, Scalar]:
        """Write the arrivals of cameras with random phases into the store; return the options that replay them."""
        frames = math.ceil(seconds * self.rate) * clients
        times = queueing.arrivals(
            Load(self.rate, self.arrivals), clients, frames, np.random.default_rng((seed, clients))
        )
        name = f"cameras-{clients}x{self.rate:g}-{seconds:g}s-{seed}.txt"
        path = store / "arrivals" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{t:.9f}\n" for t in times))
        return settled({"trace": str(path)}, Trace.OPTIONS)


def typical(trial: Trial) -> Trial:
    """Return the trial with the seed, out of DRAWS, whose number of random arrivals is nearest to the rate's.

    By chance, half a minute at 10/s brings 265 to 335 queries; a load 10 % lighter is another question.
    """
    rate = trial.rate
    assert rate is not None, "random arrivals have a rate"
    wanted = rate * trial.max_s * trial.processes
    if wanted > MANY:
        return trial

    def off(seed: int) -> float:
        return abs(sum(_due(rate, seed + n, trial.max_s) for n in range(trial.processes)) - wanted)

    seeds = range(trial.seed, trial.seed + DRAWS * trial.processes, trial.processes)
    return replace(trial, seed=min(seeds, key=off))


def _due(rate: float, seed: int, seconds: float) -> int:
    """Return how many queries fall due in so many seconds of the server scenario."""
    count, end = 0, round(seconds * 1e9)
    for times in poisson(rate, seed):
        within = int(np.searchsorted(times, end))
        count += within
        if within < len(times):
            break
    return count


def judgeable(constraint: Constraint, result: Result) -> None:
    """Raise UnsupportedError if this machine does not measure the figure that `constraint` bounds."""
    found = resource(constraint, result)
    if isinstance(found, Absent):
        raise UnsupportedError(
            "E-CAP-1",
            f"{constraint.text} cannot be judged here",
            evidence=found.reason,
            effect="The search could not show that any number of clients keeps it",
            fix="leave it out; edgescope doctor --all lists what can be measured",
        )
