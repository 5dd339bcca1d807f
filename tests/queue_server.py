"""A server that answers trials in simulated time: real arrivals, service times from a seed, first come first served."""

import itertools

import numpy as np

from edgescope.records import (
    Absent,
    Channel,
    Machine,
    Measured,
    Queries,
    Readings,
    Status,
    Trial,
    Window,
)
from edgescope.scenarios import FixedRate, Server, Trace
from edgescope.scenarios.stop_rule import Plan
from making import result

WHERE = Machine(
    {"cpu": {"model": "simulated", "cores": 2}},
    {"cpu": {"online_cpus": [0, 1], "affinity": [0, 1], "cgroup_cpu_limit": {"absent": "none"}}},
)
SCHEDULES = {"server": Server, "fixed_rate": FixedRate, "trace": Trace}


class QueueServer:
    """A Runner: one query takes `service_s` (a tenth more or less); `cores_used` of both cores while it runs.

    `ends` gives the statuses of trials by number of clients' rate, in order, before they succeed.
    """

    def __init__(self, service_s=0.005, *, cores_used=1.0, ends=(), stop_after=None, **fields) -> None:
        self.service_s, self.cores_used, self.fields = service_s, cores_used, fields
        self.ends = {rate: list(statuses) for rate, statuses in dict(ends).items()}
        self.stop_after = stop_after
        self.ran: list[Trial] = []

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            raise KeyboardInterrupt
        self.ran.append(trial)
        name = f"{trial.id}-{len(self.ran):06d}"
        rate = (trial.rate or 0.0) * trial.processes
        if statuses := self.ends.get(rate):
            bare = dict.fromkeys(("queries", "window", "readings"))
            return result(
                trial, id_=name, machine=WHERE, status=statuses.pop(0), reason="E-X-1: it ended.", **bare
            )
        queries, window, busy = self._served(trial)
        extra = {key: field(trial) for key, field in self.fields.items()}
        given = {
            "machine": WHERE,
            "status": Status.OK,
            "queries": queries,
            "window": window,
            "readings": readings(window, cpu_busy=busy * self.cores_used, cpu_others=0.0),
            "metrics": {"throughput_sps": Measured(1 / self.service_s, "samples/s", n=9)}
            | {"power_w": Absent("no power sensor"), "peak_rss_bytes": Measured(1e8, "bytes")},
        }
        return result(trial, id_=name, **(given | extra))

    def _served(self, trial):
        parts = [self._worker(trial, number) for number in range(trial.processes)]
        columns = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        last = max(int(columns["done_ns"].max()), round(trial.max_s * 1e9))
        worked = float((columns["done_ns"] - columns["issued_ns"]).sum()) / last / trial.processes
        return Queries(columns), Window(0, len(columns["done_ns"]), 0, last), min(1.0, worked)

    def _worker(self, trial, number):
        rng = np.random.default_rng((trial.seed, number, 7))
        n = 600
        due = None
        if trial.scenario in SCHEDULES:
            from dataclasses import replace

            own = replace(trial, seed=trial.seed + number)
            offsets = SCHEDULES[trial.scenario](own, Plan(own)).offsets()
            due = np.fromiter(itertools.takewhile(lambda t: t < trial.max_s * 1e9, offsets), dtype=np.int64)
            n = len(due)
        service = np.round(self.service_s * 1e9 * rng.uniform(0.9, 1.1, n)).astype(np.int64)
        ends = np.cumsum(service)
        if due is not None:
            ends = ends + np.maximum.accumulate(due - (ends - service))
        return {
            "query_id": np.arange(n, dtype=np.int64),
            "worker": np.full(n, number, np.int16),
            "stream": np.zeros(n, np.int16),
            "source_ns": np.full(n, -1, np.int64),
            "scheduled_ns": np.full(n, -1, np.int64) if due is None else due,
            "issued_ns": ends - service,
            "done_ns": ends,
            "samples": np.full(n, trial.batch, np.int32),
            "status": np.zeros(n, np.int8),
        }


def readings(window, **shares):
    """Ten readings of each named share over the window."""
    t = np.linspace(window.start_ns, window.stop_ns, 11).astype(np.int64)
    names = list(shares)
    channels = tuple(Channel(n, "share", "system", "interval", "simulated") for n in names)
    return Readings(
        channels,
        np.tile(t, len(names)),
        np.repeat(np.arange(len(names), dtype=np.int16), len(t)),
        np.repeat(np.array([shares[n] for n in names], dtype=np.float64), len(t)),
    )
