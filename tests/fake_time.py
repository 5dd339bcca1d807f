"""A clock and a Work in which time passes only as a test says: whole benchmarks in no time, exact expectations."""

from __future__ import annotations

from edgescope.plan import Plan
from edgescope.records import Trial

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
