"""Live work: arrivals beyond service are found within seconds, frames age from their own stamps, drops are rows."""

import re

import numpy as np
import pytest

import edgescope
from camera_work import ENTRY
from edgescope import registry
from edgescope.analysis.run import summary
from edgescope.errors import UsageError
from edgescope.process import said as live
from edgescope.records import QUERY_DROPPED, Absent, Measured, Status, Trial, Window
from edgescope.report import result as card
from edgescope.report import terminal
from edgescope.scenarios import FixedRate, MultiStream, SingleStream
from edgescope.scenarios.stop_rule import Plan
from fake_time import MS, FakeClock, FakeWork, drive, trial

PERIOD = 1e9 / 30
CAMERA = {"scenario": "fixed_rate", "rate": 30.0}


class Stamped(FakeWork):
    """Frames that a camera made `old_ns` before they are due; `drops(query_id)` of them are dropped at once."""

    def __init__(self, clock, service_ns, old_ns=5 * MS, drops=lambda q: False) -> None:
        super().__init__(clock, service_ns)
        self.old_ns, self.drops = old_ns, drops

    def issue(self, query_id, samples, done) -> None:
        created = round(query_id * PERIOD) - self.old_ns + 10**9
        if self.drops(query_id):
            done(query_id, QUERY_DROPPED, 0, created)
            return
        self.clock.t += self.service_ns(query_id)
        done(query_id, 0, 0, created)


def filmed(service_ms, max_s=5.0, **how):
    """A run of a 30 Hz camera from second 1 on, in fake time."""
    t = trial(**CAMERA, max_s=max_s, deadline_s=0.033)
    clock, plan = FakeClock(), Plan(t)
    clock.t = 10**9
    queries = FixedRate(t, plan).drive(Stamped(clock, lambda q: round(service_ms * MS), **how), clock)
    found = summary.metrics(queries, plan.window, "fixed_rate", t.deadline_s)
    said = summary.warnings(queries, plan.window, "fixed_rate", may_drop=True)
    return found, said, queries, plan


def test_arrivals_beyond_service_are_found_in_five_seconds_with_both_rates_and_the_growth():
    found, (first, *_), _, _ = filmed(1e3 / 21.4)
    assert re.match(r"W-LOAD-1: arrivals 30/s > service 21\.4/s: frame age .* 0\.29 s ", str(first))
    assert "--workload-option queue=drop_oldest" in first.fix and "a larger --batch" in first.fix
    assert found["frame_age_growth"].value == pytest.approx(1 - 21.4 / 30, rel=0.01)
    assert found["frame_age_growth"].lo is not None
    assert found["queue_depth_max"].value == pytest.approx(5 * (30 - 21.4) + 1, abs=2)


def test_it_is_found_in_the_first_five_seconds_of_a_longer_run_too():
    _, _, queries, plan = filmed(1e3 / 21.4, max_s=20.0)
    begun = queries.rows(plan.window).columns["scheduled_ns"] < plan.start_ns + 5 * 10**9
    w = plan.window
    early = Window(w.first, w.first + int(begun.sum()), w.start_ns, w.start_ns + 5 * 10**9)
    assert "W-LOAD-1" in [m.code for m in summary.warnings(queries, early, "fixed_rate")]


@pytest.mark.parametrize("in_flight", [1, 8])
def test_whoever_watches_reads_it_while_it_runs(in_flight):
    """At the first look after two seconds, as the rows will say; nothing where the machine keeps up."""
    t, lines = trial(**CAMERA, max_s=5.0, in_flight=in_flight), []
    for service_ms in (1e3 / 21.4, 20.0):
        clock, plan = FakeClock(), Plan(t)
        with live.watching() as line:
            work = FakeWork(clock, lambda q, ms=service_ms: round(ms * MS))
            work.flush = lambda line=line: lines.append(line())
            FixedRate(t, plan).drive(work, clock)
    (told,) = filter(None, lines)
    assert re.match(r"arrivals 30/s > service 21\.4/s: results .* 0\.29 s ", told)


def test_work_without_stamps_says_latency_and_gives_no_age_twice():
    queries, plan = drive(FixedRate, trial(**CAMERA, max_s=5.0), lambda q: round(1e3 / 21.4 * MS))
    first = summary.warnings(queries, plan.window, "fixed_rate")[0]
    assert re.match(r"W-LOAD-1: arrivals 30/s > service 21\.4/s: latency .* 0\.29 s ", str(first))
    assert "drop_oldest" not in str(first)
    found = summary.metrics(queries, plan.window, "fixed_rate")
    assert isinstance(found["frame_age_p99_s"], Absent) and "latency" in found["frame_age_p99_s"].reason
    assert isinstance(found["jitter_s"], Measured) and "deadline_miss_ratio" not in found


def test_a_machine_that_keeps_up_shows_level_ages_and_no_miss():
    found, said, _, _ = filmed(20.0)
    assert not said and found["frame_age_growth"].lo is None
    assert found["frame_age_p50_s"].value == found["frame_age_p99_s"].value == pytest.approx(0.025)
    assert (found["deadline_miss_ratio"].value, found["deadline_miss_burst"].value) == (0.0, 0.0)
    assert 0 < found["deadline_miss_ratio"].hi < 0.05
    assert isinstance(found["deadline_overrun_worst_s"], Absent)
    assert found["queue_depth_max"].value == 1.0 and found["dropped_share"].value == 0.0


def test_frames_that_the_work_drops_are_misses_but_do_not_mean_that_the_load_fell_behind():
    found, said, queries, plan = filmed(20.0, drops=lambda q: q % 3 == 0)
    assert found["dropped"].value == 50 and found["errors"].value == 0
    assert found["dropped_share"].value == found["deadline_miss_ratio"].value == pytest.approx(1 / 3)
    assert found["deadline_miss_burst"].value == 1.0
    assert [m.code for m in said] == ["W-STAT-5"]
    rows = queries.rows(plan.window)
    assert len(rows.latency_ns()) == 100 and (rows.columns["done_ns"] >= 0).all()
    assert found["throughput_sps"].value == pytest.approx(20.0, rel=0.02)


def test_what_a_closed_loop_drops_does_not_steer_its_stop_rule():
    """A drop takes no time: as a latency of 0 it would widen the interval of the mean."""
    t, clock = trial(min_s=0.1, max_s=5.0), FakeClock()
    plan = Plan(t)
    queries = SingleStream(t, plan).drive(Stamped(clock, lambda q: MS, drops=lambda q: q % 2 == 1), clock)
    assert plan.stopped_by == "rel_width"
    assert set(queries.rows(plan.window).latency_ns()) == {MS}


def test_a_query_of_several_parts_is_as_old_as_its_oldest():
    class Parts(FakeWork):
        def issue(self, query_id, samples, done) -> None:
            self.clock.t += MS
            done(query_id, 0, 0, 100 + 10 * (query_id % 4))

    t, clock = trial(scenario="multi_stream", in_flight=4, max_queries=3), FakeClock()
    plan = Plan(t)
    queries = MultiStream(t, plan).drive(Parts(clock, None), clock)
    assert queries.columns["source_ns"].tolist() == [100] * 3


@pytest.mark.parametrize("scenario", ["single_stream", "multi_stream", "offline"])
def test_a_closed_loop_refuses_a_deadline_unless_its_frames_carry_stamps(scenario, monkeypatch):
    from edgescope.study import grid

    with pytest.raises(UsageError, match="E-SCEN-12: ") as error:
        grid.grid({"model": "null", "backend": "null", "scenario": scenario, "deadline_s": 0.033})
    assert "--scenario fixed_rate" in error.value.message.fix
    monkeypatch.setitem(registry.WORKLOADS._built_in, "camera", ENTRY)
    keys = {"model": "null", "backend": "null", "scenario": scenario, "workload": "camera"}
    assert len(grid.grid({**keys, "deadline_s": 0.033})) == 1


def camera(monkeypatch, **options):
    """A real run of a 60 Hz camera whose frames take 25 ms each."""
    monkeypatch.setitem(registry.WORKLOADS._built_in, "camera", ENTRY)
    t = Trial(
        model="null",
        backend="null",
        workload="camera",
        workload_options={"service_ms": 25.0, **options},
        scenario="fixed_rate",
        rate=60.0,
        in_flight=128,
        deadline_s=0.1,
        warmup=0.0,
        min_s=1.5,
        max_s=1.5,
    )
    return edgescope.run(t, isolated=False)


def test_a_real_pipeline_without_drops_grows_old_and_says_so(monkeypatch, capsys):
    found = camera(monkeypatch)
    assert found.status in (Status.OK, Status.UNSTABLE), found.reason
    assert any("frame age grows" in str(w) for w in found.warnings if w.code == "W-LOAD-1"), found.warnings
    assert found.metrics["deadline_miss_ratio"].value > 0.5 and found.metrics["dropped_share"].value == 0
    terminal.show(card.document(found), verbose=True)
    out = capsys.readouterr().out
    assert "frame age      p50" in out and "deadline       100 ms missed by" in out and "in a row" in out


def test_a_real_pipeline_that_drops_the_oldest_stays_fresh(monkeypatch):
    found = camera(monkeypatch, queue="drop_oldest")
    assert found.status in (Status.OK, Status.UNSTABLE), found.reason
    assert not any(w.code == "W-LOAD-1" for w in found.warnings)
    assert 0.2 < found.metrics["dropped_share"].value < 0.8
    assert found.metrics["frame_age_p50_s"].value < 0.15
    rows = found.queries.rows(found.window)
    assert np.count_nonzero(rows.columns["status"] == QUERY_DROPPED) == found.metrics["dropped"].value
