"""The question of a capacity search: its Trials, and the queue that its clients' queries form.

A trial is N clients, for some seconds, for the n-th time. A closed loop shows how long one query takes when nothing
waits. Replaying those times against the arrivals of N clients (Lindley 1952; several servers after Kiefer and
Wolfowitz) shows roughly where the tail exceeds its limit, and how much longer a run must be than its queries suggest:
latencies that queue resemble their neighbours, so a thousand of them may be worth fifty. The search takes its starting
point and the length of its runs from here; no answer rests on it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.cells.objective import Constraint
from edgescope.errors import UnsupportedError
from edgescope.options import settled
from edgescope.records import Absent, Result, Scalar, Trial
from edgescope.scenarios.open_loop import Trace, poisson
from edgescope.stats import needed, percentile, quantile_effective_n, upper_rank
from edgescope.wings.capacity.constraints import resource, tail

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
    def subject(self) -> str:
        """The model, without its digest, and how it runs."""
        return f"{self.base.model.partition('#')[0]} {self.base.label}"

    @property
    def client(self) -> str:
        """The word for one client: camera if each is periodic."""
        return CAMERA if self.arrivals == CAMERA else "client"

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
        times = arrivals(
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


# -- their queries as a queue ---------------------------------------------------------------------------------


Floats = NDArray[np.float64]

#: Queries of one forecast: enough for a p99 of strongly correlated latencies within some 5 %.
QUERIES = 20_000
CONFIDENCE = 0.99
#: A run is planned longer than the forecast by this share, because the next run's tail differs.
SPARE = 2.0
#: Beyond this utilisation a queue takes longer to fill than any run lasts.
FULL = 0.98


@dataclass(frozen=True)
class Load:
    """The load of N clients: the rate of each, the arrival pattern, and the number of servers."""

    rate: float
    """Queries per second of one client."""
    arrivals: str = "poisson"
    """poisson, even (all clients perfectly interleaved) or camera (each periodic, with its own phase)."""
    servers: int = 1


def latencies(service_s: Floats, load: Load, clients: int, *, seed: int = 0, n: int = QUERIES) -> Floats:
    """Return the seconds from due to done of `n` queries; the service times are repeated in their order."""
    rng = np.random.default_rng((seed, clients))
    due = arrivals(load, clients, n, rng)
    service = np.resize(np.roll(service_s, -int(rng.integers(len(service_s)))), n)
    if load.servers > 1:
        return _several(due, service, load.servers)
    before = np.concatenate(([0.0], np.cumsum(service[:-1])))
    return np.asarray(np.maximum.accumulate(due - before) + before + service - due, dtype=np.float64)


def arrivals(load: Load, clients: int, n: int, rng: np.random.Generator) -> Floats:
    """Return the times in seconds, in order, at which `n` queries of all clients are due."""
    total = load.rate * clients
    if load.arrivals == "poisson":
        return np.asarray(np.cumsum(rng.exponential(1 / total, n)), dtype=np.float64)
    if load.arrivals == "even":
        return np.arange(n, dtype=np.float64) / total
    phases = np.sort(rng.uniform(0, 1 / load.rate, clients))
    frames = math.ceil(n / clients)
    return np.asarray((np.arange(frames)[:, None] / load.rate + phases).ravel()[:n], dtype=np.float64)


def _several(due: Floats, service: Floats, servers: int) -> Floats:
    """Serve each query by the first of several servers that is free."""
    free = [0.0] * servers
    out = np.empty(len(due))
    for i, (t, s) in enumerate(zip(due.tolist(), service.tolist(), strict=True)):
        done = max(t, heapq.heappop(free)) + s
        heapq.heappush(free, done)
        out[i] = done - t
    return out


@dataclass(frozen=True)
class Forecast:
    """The expected result of a run of N clients for one quantile."""

    quantile_s: float
    """The quantile itself."""
    seconds: float
    """How long a run must be for its upper bound, at least the requested length."""
    over: float
    """The bound that such a run will give, as a multiple of the quantile."""


def forecast(service_s: Floats, load: Load, clients: int, q: float, at_least_s: float = 0.0) -> Forecast:
    """Return the forecast for one quantile `q`; seconds is inf where the servers cannot keep up."""
    total = load.rate * clients
    if total * float(service_s.mean()) / load.servers >= FULL:
        return Forecast(math.inf, math.inf, 1.0)
    x = latencies(service_s, load, clients, n=max(QUERIES, 20 * needed(q, CONFIDENCE)))
    share = quantile_effective_n(x, q) / len(x)
    seconds = max(at_least_s, SPARE * needed(q, CONFIDENCE) / (share * total))
    worth = share * total * seconds
    rank = upper_rank(math.floor(worth), q, CONFIDENCE)
    assert rank is not None, "twice the queries that a bound needs have one"
    point, bounded = percentile(x, q), percentile(x, rank / worth)
    return Forecast(point, seconds, max(1.0, bounded / point))


def ceiling(service_s: Floats, load: Load) -> int:
    """Return the most clients whose queries the servers can answer at all."""
    return math.floor(load.servers / float(service_s.mean()) / load.rate)


def estimate(service_s: Floats, load: Load, tails: Sequence[tuple[float, float]], confirm_s: float) -> int:
    """Return roughly how many clients fit, at least 1: the most whose forecast bounds keep every limit.

    `tails` are pairs of a quantile of the latency and the seconds below which it must lie.
    """
    most = max(1, ceiling(service_s, load))

    def fits(clients: int) -> bool:
        found = [(limit, forecast(service_s, load, clients, q, confirm_s)) for q, limit in tails]
        return all(f.quantile_s * f.over < limit for limit, f in found)

    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(1, low)
