"""A clock and a Work in which time passes only as a test says: whole benchmarks in no time, exact expectations."""

from __future__ import annotations

import heapq

from edgescope.records import Trial
from edgescope.scenarios.stop_rule import Plan

MS = 1_000_000


class FakeClock:
    """Time passes when work is done or waited for, and by `look_ns` at every look at it."""

    late_ns = 60_000
    """How late a timer wakes who dozes."""

    def __init__(self, look_ns: int = 0) -> None:
        self.t, self.look_ns = 0, look_ns

    def now(self) -> int:
        self.t += self.look_ns
        return self.t

    def sleep_until(self, t_ns: int) -> None:
        self.t = max(self.t, t_ns)

    def doze_until(self, t_ns: int) -> None:
        self.t = max(self.t, t_ns) + self.late_ns


class FakeWork:
    """Takes `service_ns(query_id)` of fake time for each query."""

    def __init__(self, clock: FakeClock, service_ns) -> None:
        self.clock, self.service_ns = clock, service_ns

    def issue(self, query_id, samples, done) -> None:
        self.clock.t += self.service_ns(query_id)
        done(query_id, 0)

    def flush(self) -> None:
        pass


def trial(**keys) -> Trial:
    base = {"model": "null", "backend": "null", "warmup": 0, "min_s": min(1.0, keys.get("max_s", 1.0))}
    return Trial(**(base | {"max_s": 1.0} | keys))


def drive(scenario, t, service_ns, *, plan=Plan):
    clock, plan = FakeClock(), plan(t)
    return scenario(t, plan).drive(FakeWork(clock, service_ns), clock), plan


class ServersClock(FakeClock):
    """A clock for `Servers`: what ends while somebody sleeps ends at its own time."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: Servers | None = None

    def sleep_until(self, t_ns: int) -> None:
        while self.servers and self.servers.pending and self.servers.pending[0][0] <= t_ns:
            self.servers.end_one()
        super().sleep_until(t_ns)


class Servers:
    """As many queries at once as there are slots; time passes when all are taken."""

    def __init__(self, clock: ServersClock, service_ns, slots: int) -> None:
        self.clock, self.service_ns, self.slots = clock, service_ns, slots
        self.pending: list = []
        clock.servers = self

    def issue(self, query_id, samples, done) -> None:
        heapq.heappush(self.pending, (self.clock.t + self.service_ns(query_id), query_id, done))
        if len(self.pending) == self.slots:
            self.end_one()

    def end_one(self) -> None:
        self.clock.t, query_id, done = heapq.heappop(self.pending)
        done(query_id, 0)

    def flush(self) -> None:
        while self.pending:
            self.end_one()


def drive_servers(scenario, t, service_ns):
    """Drive a trial with its in_flight slots."""
    clock, plan = ServersClock(), Plan(t)
    return scenario(t, plan).drive(Servers(clock, service_ns, t.in_flight), clock), plan
