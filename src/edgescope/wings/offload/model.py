"""The model of an offload question: what each way to answer costs, from measured service times and a network.

    edge   = waiting + service, measured on this board
    cloud  = up + waiting + service measured there + down + round trip + recovery of lost packets    (network.py)
    boards = the same edge, several times: queries take the boards in turn
    split  = the edge takes as much as its constraints allow, the cloud the rest: queries are shared, not layers

The two machines stay apart: each option names the machine that was measured. Everything but the unloaded edge is
*modelled* from measured rows, and says so. The percentiles come from drawn sums, with a 95 % interval over
bootstraps of the rows. Constraints are judged on the worse end of the interval, as everywhere
(analysis.cells.objective).

A service time runs from issued to done of a query in the measured window, so time in the queue is not in it. Draws are
taken from the raw rows, never from percentiles: the sum of two p99 is no p99. Neighbouring rows resemble each other,
so rows are drawn in blocks (moving blocks: Kuensch, Annals of Statistics 17, 1989); replicates are drawn first,
because fresh processes differ by more than the rows within one. Waiting is Lindley's recursion on the draws, one FIFO
server: finish_k = max(arrive_k, finish_(k-1)) + service_k. Several servers are taken in turn. It is monotone: a longer
service or an earlier arrival never ends anything sooner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgescope import metrics
from edgescope.analysis.cells.objective import Wanted
from edgescope.analysis.cells.row import Row
from edgescope.records import QUERY_OK, Absent, Field, Measured, Result
from edgescope.stats import needed, refusal, tau
from edgescope.wings.offload.network import (
    Floats,
    Profile,
    Transit,
    bandwidth,
    draw,
    recovery,
    round_trips,
    serialisation,
)

MOST_UTILISED = 0.95
"""Utilisation of a server or link from which no steady tail can be given: the queue's memory gets too long."""
POINTS, ROWS, DRAWS = 20_000, 32, 3_000
"""Number of draws behind a point; number of bootstraps, and of draws in each, behind an interval."""
MOST_BOARDS = 16
SHARES = 24
"""Halvings in the search for the edge's share."""
QUANTILES = metrics.quantiles()
"""Metrics of a row that the network changes."""


@dataclass(frozen=True)
class Service:
    """The service times of one cell in seconds, an array for each replicate, and its worker slots."""

    replicates: tuple[Floats, ...]
    slots: int = 1
    """Queries that the machine serves at once, as it was measured: processes x in_flight."""

    @property
    def n(self) -> int:
        """Raw rows behind it."""
        return sum(len(r) for r in self.replicates)

    @property
    def mean_s(self) -> float:
        """Mean service time."""
        return float(np.concatenate(self.replicates).mean())


@dataclass(frozen=True)
class Place:
    """One machine, with the cell that was measured on it."""

    row: Row
    service: Service
    machine: str
    machine_id: str
    idle_power_w: Field


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request to both places: payload sizes, load, and the board's cost of sending."""

    up_bytes: float
    """Size of one query: batch x payload."""
    down_bytes: float
    rate: float | None = None
    """Queries per second that arrive; None: one query at a time."""
    poisson: bool = True
    """Whether queries arrive at random; False for a camera's fixed period."""
    servers: int = 1
    """Machines like the remote one that share the load."""
    radio_w: float | None = None
    radio_j_per_mb: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Option:
    """One way to answer; `figures` is its row, with the network included."""

    name: str
    """edge, cloud, boards or split."""
    words: str
    figures: Row
    busy: tuple[tuple[str, float], ...] = ()
    """(name, share of its time in use) for everything with a queue."""
    broken: tuple[str, ...] = ()
    """Constraints that it breaks, or what saturates; empty if it is usable."""
    modelled: bool = True
    boards: int = 1
    share: float = 0.0
    """Share of the queries that go to the cloud."""

    @property
    def fits(self) -> bool:
        """Whether it keeps every constraint."""
        return not self.broken


@dataclass(frozen=True)
class Draws:
    """Random numbers of one sampling plan: (rows, n) each."""

    local: Floats
    remote: Floats
    gaps: Floats
    way: Transit


class Model:
    """Both places and the request, with every random number drawn once: networks are compared on the same draws."""

    def __init__(self, local: Place, remote: Place, request: Request, wanted: Wanted) -> None:
        self.local, self.remote, self.request, self.wanted = local, remote, request, wanted
        rng = np.random.default_rng(request.seed)
        self.points = self._draws(rng, 0, POINTS)
        self.ends = self._draws(rng, ROWS, DRAWS)
        self.known: dict[tuple[float | None, int], Option] = {}
        """The edge's options so far: no network changes them."""

    def _draws(self, rng: np.random.Generator, rows: int, n: int) -> Draws:
        def served(of: Service) -> Floats:
            return bootstrapped(of, rng, rows, n) if rows else plain(of, rng, n)

        shape = (max(1, rows), n)
        gaps = rng.exponential(1.0, shape) if self.request.poisson else np.ones(shape)
        return Draws(served(self.local.service), served(self.remote.service), gaps, draw(rng, *shape))

    def edge_s(self, draws: Draws, rate: float | None, boards: int = 1) -> Floats:
        """Return the latencies at the edge, (rows, n)."""
        if rate is None:
            return draws.local
        arrive = np.cumsum(draws.gaps, axis=1) / rate
        return fifo(arrive, draws.local, boards * self.local.service.slots) - arrive

    def cloud_s(self, draws: Draws, network: Profile, rate: float | None) -> Floats:
        """Return the latencies through the network, (rows, n)."""
        ask, way = self.request, draws.way
        rtt = round_trips(network, way)
        up = serialisation(network, way, "up", ask.up_bytes)
        down = serialisation(network, way, "down", ask.down_bytes)
        lost = recovery(network, way, rtt, ask.up_bytes, 0)
        lost = lost + recovery(network, way, rtt, ask.down_bytes, 1)
        if rate is None:
            return np.asarray(up + draws.remote + down + rtt + lost)
        arrive = np.cumsum(draws.gaps, axis=1) / rate
        there = fifo(fifo(arrive, up), draws.remote, self.remote.service.slots * ask.servers)
        return np.asarray(fifo(there, down) - arrive + rtt + lost)

    def edge_busy(self, rate: float | None, boards: int = 1) -> tuple[tuple[str, float], ...]:
        """Return how busy the boards are."""
        one = self.local.service
        return () if rate is None else (("edge", rate * one.mean_s / one.slots / boards),)

    def cloud_busy(self, network: Profile, rate: float | None) -> tuple[tuple[str, float], ...]:
        """Return how busy both ways of the link and the remote server are."""
        if rate is None:
            return ()
        ask, far = self.request, self.remote.service
        return (
            ("uplink", rate * 8 * ask.up_bytes / bandwidth(network, "up")),
            ("remote server", rate * far.mean_s / far.slots / ask.servers),
            ("downlink", rate * 8 * ask.down_bytes / bandwidth(network, "down")),
        )

    def link_sps(self, network: Profile) -> float:
        """Return the samples per second that the link can carry."""
        ask, batch = self.request, self.remote.row.trial.batch
        ways = (("up", ask.up_bytes), ("down", ask.down_bytes))
        return min(batch * bandwidth(network, way) / (8 * size) if size else np.inf for way, size in ways)


def saturated(busy: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """Return a sentence for each part that cannot carry its load."""
    return tuple(
        f"the {what} is saturated: it would be busy {share:.0%} of the time"
        for what, share in busy
        if share > MOST_UTILISED
    )


def quantiles(points: Floats, ends: Floats, rows: int) -> list[Field]:
    """Return the points' quantiles in the order of QUANTILES, with 95 % intervals from the bootstraps."""
    values = np.quantile(points, list(QUANTILES.values()))
    each = np.quantile(ends, list(QUANTILES.values()), axis=1)
    lows, highs = np.quantile(each, (0.025, 0.975), axis=1)
    parts = zip(QUANTILES.values(), values, lows, highs, strict=True)
    return [_told(q, (float(x), float(lo), float(hi)), rows) for q, x, lo, hi in parts]


def _told(q: float, found: tuple[float, float, float], rows: int) -> Field:
    """Return a q-quantile found as (value, lo, hi), as far as `rows` raw rows support it.

    Absent without a raw row beyond the quantile; without an interval if the rows themselves would give none.
    """
    least = max(2, math.ceil(round(1 / (1 - q), 6)))
    if rows < least:
        return refusal(rows, least)
    value, lo, hi = found
    if rows < max(needed(q, 0.975), needed(1 - q, 0.975)):
        return Measured(value, "s", n=rows)
    return Measured(value, "s", min(lo, value), max(hi, value), rows)


def timed(row: Row, points: Floats, ends: Floats, rows: int) -> Row:
    """Return the row with the percentiles of drawn latencies and of their bootstraps."""
    return row.having(**dict(zip(QUANTILES, quantiles(points, ends, rows), strict=True)))


def untimed(row: Row, why: str) -> Row:
    """Return the row with its percentiles Absent for the reason `why`."""
    return row.having(**dict.fromkeys(QUANTILES, Absent(why)))


def edge(model: Model, rate: float | None, boards: int = 1) -> Option:
    """Return the option of answering on one board, or on several that take turns."""
    if (rate, boards) not in model.known:
        model.known[rate, boards] = _edge(model, rate, boards)
    return model.known[rate, boards]


def _edge(model: Model, rate: float | None, boards: int) -> Option:
    row, busy = model.local.row, model.edge_busy(rate, boards)
    if over := saturated(busy):
        row = untimed(row, over[0])
    elif rate is not None:
        points, ends = (model.edge_s(d, rate, boards) for d in (model.points, model.ends))
        row = timed(row, points, ends, model.local.service.n)
    row = row.having(throughput_sps=_times(row["throughput_sps"], boards))
    name = "edge" if boards == 1 else "boards"
    words = f"{boards} board{'s' * (boards > 1)} at the edge" if boards > 1 else "at the edge"
    option = Option(name, words, row, busy, modelled=rate is not None or boards > 1, boards=boards)
    return judged(option, model.wanted, over)


def cloud(model: Model, network: Profile, rate: float | None, *, whole: bool = True) -> Option:
    """Return the option of sending every query; `whole` False judges a part, which need not carry the throughput."""
    busy = model.cloud_busy(network, rate)
    over = saturated(busy)
    row, mean = untimed(model.remote.row, over[0] if over else ""), None
    if not over:
        points, ends = (model.cloud_s(d, network, rate) for d in (model.points, model.ends))
        row, mean = timed(row, points, ends, rows_behind(model, network)), float(points.mean())
    row = row.having(
        throughput_sps=_least(model, network),
        energy_per_sample_j=sending_j(model, network, mean),
        peak_rss_bytes=Absent("sending was not run on the edge board, so its memory is not measured"),
        gpu_memory_bytes=Absent("the edge board's GPU is not used"),
        power_w=Absent("sending was not run on the edge board, so its power is not measured"),
    )
    option = Option("cloud", "in the cloud", row, busy, share=1.0)
    return judged(option, model.wanted if whole else part(model.wanted), over)


def rows_behind(model: Model, network: Profile) -> int:
    """Return the smallest number of raw rows behind a sent query: remote answers, or round trips."""
    rtts = len(network.rtt_samples_s)
    return min(model.remote.service.n, rtts) if rtts else model.remote.service.n


def part(wanted: Wanted) -> Wanted:
    """Return the constraints that each half of a split must keep: all but throughput, which they reach together."""
    return replace(
        wanted, constraints=tuple(c for c in wanted.constraints if c.metric.name != "throughput_sps")
    )


def judged(option: Option, wanted: Wanted, over: Sequence[str] = ()) -> Option:
    """Return the option with its broken limits: saturation first, then every constraint that can still be judged."""
    timeless = tuple(c for c in wanted.constraints if not c.quantile)
    left = replace(wanted, constraints=timeless if over else wanted.constraints)
    return replace(option, broken=(*over, *left.broken(option.figures.metrics)))


def _times(field: Field, factor: int) -> Field:
    if isinstance(field, Absent) or factor == 1:
        return field
    lo, hi = (None if end is None else end * factor for end in (field.lo, field.hi))
    return replace(field, value=field.value * factor, lo=lo, hi=hi)


def _least(model: Model, network: Profile) -> Field:
    """Return the throughput through the network: the lesser of the link's and the servers'."""
    served, link = _times(model.remote.row["throughput_sps"], model.request.servers), model.link_sps(network)
    if isinstance(served, Absent) or served.value <= link:
        return served
    return Measured(link, "samples/s", n=served.n)


def sending_j(model: Model, network: Profile, latency_s: float | None) -> Field:
    """Return the joules that the board spends to send one sample: the radio, and idle power until the answer."""
    ask, batch = model.request, model.local.row.trial.batch
    if ask.radio_w is None and ask.radio_j_per_mb is None:
        return Absent("not measured here: give --radio-power or --radio-energy")
    idle = model.local.idle_power_w
    if isinstance(idle, Absent):
        return Absent("the board's idle power was not measured: edgescope bench --idle 10s")
    if latency_s is None:
        return Absent("no answer would come in time")
    air_s = 8 * ask.up_bytes / bandwidth(network, "up")
    air_s += 8 * ask.down_bytes / bandwidth(network, "down")
    radio = (ask.radio_w or 0.0) * air_s + (ask.radio_j_per_mb or 0.0) * (ask.up_bytes + ask.down_bytes) / 1e6
    return Measured((radio + idle.value * latency_s) / batch, "J", n=1)


# -- how long one machine takes -------------------------------------------------------------------------------


def service(results: Sequence[Result]) -> Service | None:
    """Return the service times of a cell's finished replicates (with raw rows), or None if none has rows."""
    found = tuple(x for x in (_times_s(r) for r in results) if len(x))
    if not found:
        return None
    trial = results[0].trial
    return Service(found, trial.processes * trial.in_flight)


def _times_s(result: Result) -> Floats:
    if result.queries is None or result.window is None:
        return np.zeros(0)
    c = result.queries.rows(result.window).columns
    ok = (c["status"] == QUERY_OK) & (c["worker"] < result.trial.processes)  # colocated models have rows too
    return np.asarray((c["done_ns"] - c["issued_ns"])[ok] * 1e-9, dtype=np.float64)


def plain(of: Service, rng: np.random.Generator, n: int) -> Floats:
    """Return n service times drawn from all rows, (1, n)."""
    return _drawn(of.replicates, rng, n)[None, :]


def bootstrapped(of: Service, rng: np.random.Generator, rows: int, n: int) -> Floats:
    """Return (rows, n) service times; each row is drawn from its own resample of replicates and of their rows."""
    out = np.empty((rows, n))
    for row in out:
        chosen = [of.replicates[i] for i in rng.integers(0, len(of.replicates), len(of.replicates))]
        row[:] = _drawn([x[_blocks(x, rng, len(x))] for x in chosen], rng, n)
    return out


def _drawn(replicates: Sequence[Floats], rng: np.random.Generator, n: int) -> Floats:
    """Return n values, in blocks of one replicate after the other, every row equally likely."""
    whole = np.concatenate(replicates)
    return whole[_blocks(whole, rng, n)]


def _blocks(x: Floats, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Return n indices into x: blocks much longer than its correlation, wrapped at the end."""
    length = max(1, min(len(x) // 8, math.ceil(4 * tau(x)) if len(x) > 1 else 1))
    starts = rng.integers(0, len(x), math.ceil(n / length))
    return np.asarray((starts[:, None] + np.arange(length)).ravel()[:n] % len(x), dtype=np.int64)


def fifo(arrive: Floats, serve: Floats, servers: int = 1) -> Floats:
    """Return when each query is done, (rows, n), in seconds; queries take the servers in turn."""
    out = np.empty(arrive.shape)
    for lane in range(servers):
        mine = serve[:, lane::servers]
        total = np.cumsum(mine, axis=1)
        start = np.maximum.accumulate(arrive[:, lane::servers] - (total - mine), axis=1)
        out[:, lane::servers] = start + total
    return out
