"""Open loops in fake time: when queries fall due, what a stall costs, what happens to a queue that never ends."""

import itertools
from array import array

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgescope.analysis.run import summary
from edgescope.errors import UsageError
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent
from edgescope.scenarios import Burst, FixedRate, Server, Trace, open_loop
from edgescope.scenarios.open_loop import patience_s, poisson
from edgescope.scenarios.stop_rule import Plan
from edgescope.study import grid
from fake_time import MS, drive, trial

EIGHT = {"burst_size": 8}


def due_s(queries, plan):
    return (queries.rows(plan.window).columns["scheduled_ns"] - plan.start_ns) / 1e9


def numbers(queries, plan, scenario):
    return summary.metrics(queries, plan.window, scenario), summary.warnings(queries, plan.window, scenario)


def server(service_ns, **keys):
    return drive(Server, trial(**({"scenario": "server", "rate": 100.0, "max_s": 10.0} | keys)), service_ns)


def test_server_arrivals_are_poisson_and_the_seeds():
    queries, plan = server(lambda q: MS, rate=200.0)
    due = due_s(queries, plan)
    gaps = np.diff(due)
    assert len(due) == pytest.approx(2000, abs=4 * 2000**0.5)
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.1)  # a constant rate has 0
    assert np.median(gaps) == pytest.approx(np.log(2) / 200, rel=0.1)
    again, other = server(lambda q: MS, rate=200.0), server(lambda q: MS, rate=200.0, seed=7)
    assert np.array_equal(due_s(*again), due)
    assert not np.array_equal(due_s(*other)[:100], due[:100])


def test_a_stall_is_charged_to_every_query_it_delayed():
    """Two seconds of standing still: what had fallen due meanwhile waited, and says for how long."""
    queries, plan = server(lambda q: (2000 if q == 300 else 1) * MS)
    c = queries.rows(plan.window).columns
    stalled = slice(301, 301 + np.count_nonzero(due_s(queries, plan) < c["done_ns"][300] / 1e9) - 301)
    latency = queries.rows(plan.window).latency_ns()
    waited = c["done_ns"][300] - c["scheduled_ns"][stalled]
    assert (latency[stalled] >= waited).all() and (waited > 0).all()
    assert np.count_nonzero(latency > 500 * MS) > 100  # a closed loop would have shown one slow query
    assert (c["done_ns"] - c["issued_ns"] > 2 * MS).sum() == 1  # and from the issue time it is one


def test_an_m_d_1_queue_waits_as_theory_says():
    """Poisson arrivals, constant service: mean wait = rho s / (2 (1 - rho)) (Pollaczek-Khinchine)."""
    rho, s = 0.7, 7 * MS
    queries, plan = server(lambda q: s, max_s=300.0, min_s=300.0)
    wait = queries.rows(plan.window).latency_ns().mean() - s
    assert wait == pytest.approx(rho * s / (2 * (1 - rho)), rel=0.1)
    said, warnings = numbers(queries, plan, "server")
    assert said["offered_rate_qps"].value == pytest.approx(100, rel=0.03)
    assert said["achieved_rate_qps"].value == pytest.approx(said["offered_rate_qps"].value, rel=0.01)
    assert not any(w.code == "W-LOAD-1" for w in warnings)


@pytest.mark.parametrize("seed", range(8))
def test_a_busy_server_that_keeps_up_is_not_accused(seed):
    queries, plan = server(lambda q: 8 * MS, seed=seed)
    assert not any(w.code == "W-LOAD-1" for w in numbers(queries, plan, "server")[1])


@pytest.mark.parametrize("seed", range(4))
def test_a_load_beyond_capacity_is_reported_as_falling_behind(seed):
    """120 queries/s for a server of 100: 20 join the queue every second."""
    queries, plan = server(lambda q: 10 * MS, rate=120.0, seed=seed)
    said, warnings = numbers(queries, plan, "server")
    assert said["offered_rate_qps"].value == pytest.approx(120, rel=0.1)
    assert said["achieved_rate_qps"].value == pytest.approx(100, rel=0.02)
    growth = said["backlog_growth_qps"]
    assert growth.lo < growth.value < growth.hi
    assert growth.value == pytest.approx(said["offered_rate_qps"].value - 100, abs=6)
    assert (
        warnings[0].code == "W-LOAD-1"
        and "no steady state" in str(warnings[0])
        and "% of this load" in str(warnings[0])
    )
    assert not any(w.code == "W-STAT-4" for w in warnings)


def test_what_still_waits_after_the_window_is_dropped_but_stays_in_the_rows():
    """Ten times more than can be served: the run ends, and every query that fell due has a row."""
    t = trial(scenario="fixed_rate", rate=1000.0, max_s=2.0)
    queries, plan = drive(FixedRate, t, lambda q: 10 * MS)
    rows = queries.rows(plan.window)
    status = rows.columns["status"]
    assert len(rows) == 2000
    assert np.count_nonzero(status == QUERY_OK) == pytest.approx(300, abs=2)  # 2 s, and a second of grace
    assert (status[300:-1] == QUERY_DROPPED)[1:].all()
    assert (rows.columns["done_ns"][status == QUERY_DROPPED] == -1).all()
    assert plan.window.stop_ns - plan.window.start_ns == pytest.approx(3000 * MS, abs=20 * MS)
    said, warnings = numbers(queries, plan, "fixed_rate")
    assert said["dropped"].value == pytest.approx(1700, abs=2)
    assert any(w.code == "W-LOAD-1" for w in warnings)


def test_the_window_is_fixed_however_well_the_mean_is_known():
    _queries, plan = server(lambda q: 2 * MS, min_s=1.0, max_s=5.0)
    assert plan.stopped_by == "max_s"
    assert plan.window.stop_ns - plan.window.start_ns == pytest.approx(5000 * MS, abs=20 * MS)


def test_a_fixed_rate_offers_exactly_rate_times_duration():
    queries, plan = drive(FixedRate, trial(scenario="fixed_rate", rate=30.0, max_s=2.0), lambda q: MS)
    assert len(queries) == 60
    assert plan.window.stop_ns - plan.window.start_ns == 2000 * MS
    assert summary.throughput(queries, plan.window).value == 30


def test_max_queries_ends_an_open_loop():
    queries, plan = drive(
        FixedRate, trial(scenario="fixed_rate", rate=30.0, max_s=99.0, max_queries=7), lambda q: MS
    )
    assert len(queries) == 7
    assert plan.stopped_by == "all queries done"
    assert plan.window.stop_ns == plan.start_ns + 201 * MS


def test_a_plan_that_is_told_to_stop_ends_an_open_loop_at_once():
    class Told(Plan):
        """Stops after half a second, as a crew whose worker died does."""

        def goes_on(self, now_ns, rows, latencies):
            if not self._measured:
                return super().goes_on(now_ns, rows, latencies)
            return now_ns < self.start_ns + 500 * MS

        def begin(self, row, now_ns):
            super().begin(row, now_ns)
            self.check_ns = now_ns if self._measured else self.check_ns

    queries, _ = drive(
        FixedRate, trial(scenario="fixed_rate", rate=100.0, max_s=60.0), lambda q: MS, plan=Told
    )
    assert len(queries) == pytest.approx(51, abs=1)


def test_a_schedule_begins_when_the_plan_says():
    class Agreed(Plan):
        """Begins two seconds from now, as workers agree to."""

        def begin(self, row, now_ns):
            super().begin(row, now_ns + (2000 * MS if self._measured else 0))

    queries, _plan = drive(
        FixedRate, trial(scenario="fixed_rate", rate=10.0, max_s=1.0), lambda q: MS, plan=Agreed
    )
    assert queries.columns["scheduled_ns"][0] == 2000 * MS == queries.columns["issued_ns"][0]
    assert len(queries) == 10


def test_bursts_come_at_once_and_make_up_the_rate():
    t = trial(scenario="burst", scenario_options=EIGHT, rate=80.0, max_s=1.0)
    queries, plan = drive(Burst, t, lambda q: 2 * MS)
    due = due_s(queries, plan)
    assert len(due) == 80
    assert [len(list(g)) for _, g in itertools.groupby(due)] == [8] * 10
    assert set(np.round(np.diff(np.unique(due)), 9)) == {0.1}
    latency = queries.rows(plan.window).latency_ns()[:8] / MS
    assert list(latency) == [2, 4, 6, 8, 10, 12, 14, 16]
    assert numbers(queries, plan, "burst")[0]["offered_rate_qps"].value == pytest.approx(80)


def test_a_trace_is_replayed_once_or_over_and_over(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("0.1\n0.2\n0.5\n")
    once, plan = drive(
        Trace, trial(scenario="trace", scenario_options={"trace": str(path)}, max_s=2.0), lambda q: MS
    )
    assert list(due_s(once, plan)) == [0.1, 0.2, 0.5]
    assert plan.window.stop_ns == 501 * MS and plan.stopped_by == "the schedule has ended"
    looped = {"trace": str(path), "loop": True}
    many, plan = drive(
        Trace,
        trial(scenario="trace", scenario_options=looped, max_s=2.0),
        lambda q: MS,
    )
    assert list(due_s(many, plan)) == pytest.approx([0.1, 0.2, 0.5, 0.8, 0.9, 1.2, 1.5, 1.6, 1.9])


def test_nothing_due_within_the_window_is_an_error_not_a_number(tmp_path):
    with pytest.raises(UsageError, match="E-SCEN-6: "):
        server(lambda q: MS, rate=0.001, max_s=1.0)
    path = tmp_path / "t"
    path.write_text("30\n31\n")
    with pytest.raises(UsageError, match="E-SCEN-6: "):
        drive(Trace, trial(scenario="trace", scenario_options={"trace": str(path)}, max_s=2.0), lambda q: MS)


def test_closed_loops_have_no_offered_rate():
    from edgescope.scenarios import SingleStream

    queries, plan = drive(SingleStream, trial(), lambda q: MS)
    assert "offered_rate_qps" not in summary.metrics(queries, plan.window)
    burst, plan = drive(
        Burst, trial(scenario="burst", scenario_options=EIGHT, rate=8.0, max_s=0.5), lambda q: MS
    )
    assert isinstance(numbers(burst, plan, "burst")[0]["offered_rate_qps"], Absent)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"scenario": "server"}, "E-SCEN-1"),
        ({"scenario": "burst", "scenario_options": EIGHT}, "E-SCEN-1"),
        ({"scenario": "burst", "rate": 8.0}, "E-SCEN-2"),
        ({"scenario": "idle_gap", "scenario_options": {"gaps_ms": "ten"}}, "E-SCEN-4"),
        (
            {"scenario": "mlperf_server", "rate": 5.0, "scenario_options": {"target_latency_ms": 0}},
            "E-OPTION-2",
        ),
        ({"scenario": "server", "rate": 5.0, "scenario_options": EIGHT}, "E-OPTION-1"),
        ({"scenario": "single_stream", "rate": 5.0}, "E-SCEN-11"),
        ({"scenario": "mlperf_single_stream", "batch": 2}, "E-SCEN-7"),
        ({"scenario": "idle_gap", "in_flight": 2}, "E-SCEN-8"),
        ({"scenario": "mlperf_offline", "processes": 2}, "E-SCEN-10"),
        ({"scenario": "trace", "scenario_options": {"trace": "/nowhere"}}, "E-OPTION-3"),
        ({"scenario": "trace"}, "E-SCEN-3"),
    ],
)
def test_what_a_scenario_lacks_is_said_before_anything_is_measured(keys, says):
    with pytest.raises(UsageError, match=says):
        grid.grid({"model": "null", "backend": "null", **keys})


def test_a_study_pins_a_trace_by_its_content(tmp_path):
    base = {"model": "null", "backend": "null", "scenario": "trace"}
    path = tmp_path / "t"
    path.write_text("0\n1\n")
    (found,) = grid.grid(base | {"scenario_options": {"trace": str(path), "loop": True}})
    assert found.scenario_options["trace"].startswith(f"{path}#") and found.scenario_options["loop"] is True
    path.write_text("0\n1\n2\n")
    (other,) = grid.grid(base | {"scenario_options": dict(found.scenario_options)})
    assert other.id != found.id
    with pytest.raises(UsageError, match="E-OPTION-4"):
        Trace(found, Plan(found))
    with pytest.raises(UsageError, match="E-SCEN-5"):
        grid.grid(base | {"scenario_options": {"trace": str(path)}, "rate": 3.0})


def test_a_list_of_an_option_is_an_axis():
    base = {"model": "null", "backend": "null", "scenario": "burst", "rate": 8.0}
    found = grid.grid(base | {"scenario_options": {"burst_size": [2, 4]}})
    assert [t.scenario_options for t in found] == [{"burst_size": 2}, {"burst_size": 4}]
    assert [t.load for t in found] == ["burst 8/s burst_size=2", "burst 8/s burst_size=4"]


def test_a_run_that_fell_behind_blames_the_load_not_the_warm_up():
    from edgescope import bench
    from edgescope.records import Status
    from edgescope.report.result import load

    keys = {"scenario": "fixed_rate", "rate": 1000.0, "options": {"delay_us": 4000}, "max_s": 0.5}
    made = bench.run(trial(**keys), hz=0, devices={})
    assert made.status is Status.UNSTABLE
    assert "E-STAT-2" in str(made.reason) and "a lower --rate" in str(made.reason)
    (line,) = load(made)
    assert line[0] == "load"
    assert "1000 queries/s offered" in str(line[1])


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(1, 500),
    service_ms=st.floats(0.1, 50),
    stall_ms=st.floats(0.1, 3000),
    kind=st.sampled_from(["fixed_rate", "server", "burst"]),
    seed=st.integers(0, 2**31),
)
def test_every_query_that_falls_due_has_one_row_whatever_the_load(rate, service_ms, stall_ms, kind, seed):
    size = {"burst_size": 4} if kind == "burst" else {}
    t = trial(scenario=kind, rate=rate, seed=seed, max_s=2.0, scenario_options=size)
    scenario = {"fixed_rate": FixedRate, "server": Server, "burst": Burst}[kind]
    expected = list(
        itertools.takewhile(
            lambda ns: ns < 2_000 * MS, itertools.islice(scenario(t, Plan(t)).offsets(), 5000)
        )
    )
    assume(expected)
    queries, plan = drive(scenario, t, lambda q: round((stall_ms if q == 7 else service_ms) * MS))
    c = queries.rows(plan.window).columns
    assert list(c["scheduled_ns"]) == expected
    served = c["status"] == QUERY_OK
    assert (c["issued_ns"][served] >= c["scheduled_ns"][served]).all()
    assert (np.diff(c["done_ns"][served]) > 0).all()  # in order, one at a time
    assert (served == (c["done_ns"] >= 0)).all()
    assert served[: np.count_nonzero(served)].all()  # what is dropped is the end of the queue
    assert summary.metrics(queries, plan.window, kind)["queries"].value == len(expected)


@pytest.mark.slow
def test_a_queue_that_wanders_is_not_called_unstable():
    """Near capacity latency moves by chance; only what is significant at 1 % counts in an open loop."""
    from edgescope.bench.outcome import settled
    from edgescope.records import Status
    from making import result

    unstable = 0
    for seed in range(20):
        queries, plan = server(lambda q: 10 * MS, rate=90.0, seed=seed)
        said, warnings = numbers(queries, plan, "server")
        made = result(trial(scenario="server", rate=90.0), metrics=said, warnings=warnings)
        unstable += settled(made).status is Status.UNSTABLE
    assert unstable <= 2


def test_a_constant_latency_ends_an_open_loop_no_sooner():
    t = trial(scenario="fixed_rate", rate=50.0, min_s=0.5, max_s=5.0)
    queries, plan = drive(FixedRate, t, lambda q: 2 * MS)
    assert len(queries) == 250 and plan.stopped_by == "max_s" and plan.window.stop_ns == 5000 * MS


@pytest.mark.parametrize(("max_s", "longer"), [(2.0, 1.0), (10.0, 1.0), (20.0, 2.0), (50.0, 5.0)])
def test_a_queue_is_served_for_a_tenth_of_the_window_longer(max_s, longer):
    """Two of three queries of half a second each wait when the window ends."""
    t = trial(scenario="fixed_rate", rate=6.0, max_s=max_s)
    assert patience_s(t) == longer
    queries, plan = drive(FixedRate, t, lambda q: 500 * MS)
    assert plan.window.stop_ns == round(
        (max_s + longer + 0.5) * 1e9
    )  # the last began when it was just not over
    served = np.count_nonzero(queries.columns["status"] == QUERY_OK)
    assert served == 2 * (max_s + longer) + 1 and len(queries) == 6 * max_s


def test_queries_come_at_random_by_the_block_and_the_seed_alone():
    t = trial(scenario="server", rate=200.0, seed=-3, max_s=15.0)
    found = list(itertools.islice(Server(t, Plan(t)).offsets(), 2500))
    gaps = np.random.default_rng(3).exponential(1 / 200, 3072)
    assert np.abs(np.array(found) - np.cumsum(gaps)[:2500] * 1e9).max() <= 2  # three blocks of 1024
    assert [len(block) for block in itertools.islice(poisson(5.0, 0), 3)] == [1024] * 3


@pytest.mark.parametrize("phase", [0.0, 0.25])
def test_cameras_have_a_phase_of_their_own(phase):
    t = trial(scenario="fixed_rate", rate=8.0)
    plan = Plan(t)
    plan.phase = phase
    due = list(itertools.islice(FixedRate(t, plan).offsets(), 3))
    assert due == [round((k + phase) * 125_000_000) for k in range(3)]


class Watching:
    """What whoever watches would read: each look at the load, and when it was."""

    def __init__(self, monkeypatch):
        self.looks, self.said = [], []

        def overload(due, done, start_ns, now_ns):
            self.looks.append((len(due), done, start_ns, now_ns))
            return f"look {len(self.looks)}"

        monkeypatch.setattr(open_loop, "overload", overload)
        monkeypatch.setattr(open_loop.said, "tell_watcher", self.said.append)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("start_ns", [0, 70 * MS])
def test_the_load_is_looked_at_after_two_seconds_and_then_every_second(monkeypatch, watched, start_ns):
    class Later(Plan):
        def begin(self, row, now_ns):
            super().begin(row, start_ns if self._measured else now_ns)

    monkeypatch.setattr(open_loop.said, "watched", lambda: watched)
    watching = Watching(monkeypatch)
    drive(FixedRate, trial(scenario="fixed_rate", rate=8.0, max_s=5.0), lambda q: 125 * MS, plan=Later)
    # each query ends when the next is due: the 16th ends at 2 s
    looks = [(n, n, start_ns, start_ns + n * 125 * MS) for n in (16, 24, 32, 40)]
    assert watching.looks == (looks if watched else [])
    assert watching.said == [f"look {n + 1}" for n in range(len(watching.looks))]


@pytest.mark.parametrize(
    ("due_s", "done", "now_s", "says"),
    [
        ((0, 1, 2, 3, 4), 0, 4, ""),  # nothing is known of service
        ((0, 1, 2, 3, 4), 3, 4, "arrivals 1/s > service 0.75/s: results get 0.25 s older per second"),
        ((0, 1, 2, 3, 4), 19, 20, ""),  # 0.95 of what arrives
        ((0, 1, 2, 3, 4), 94, 100, "arrivals 1/s > service 0.94/s: results get 0.06 s older per second"),
        ((0, 0.5, 1, 1.5, 2), 4, 4, "arrivals 2/s > service 1/s: results get 0.5 s older per second"),
        ((0, 0, 0), 1, 4, ""),  # all at once: no rate
        ((0, 1), 1, 0, ""),
    ],
)
@pytest.mark.parametrize("start_s", [0, 7])
def test_service_below_95_of_100_arrivals_is_overload(due_s, done, now_s, says, start_s):
    due = array("q", (round((start_s + s) * 1e9) for s in due_s))
    assert open_loop.overload(due, done, start_s * 10**9, (start_s + now_s) * 10**9) == says


def test_bursts_and_traces_are_due_where_they_were(tmp_path):
    t = trial(scenario="burst", scenario_options={"burst_size": 3}, rate=6.0)
    assert list(itertools.islice(Burst(t, Plan(t)).offsets(), 7)) == [0] * 3 + [500 * MS] * 3 + [1000 * MS]
    path = tmp_path / "t"
    path.write_text("1\n2\n4\n")
    t = trial(scenario="trace", scenario_options={"trace": str(path), "loop": True})
    looped = Trace(t, Plan(t))
    assert looped.period_ns == 5_500 * MS
    assert [ns // MS for ns in itertools.islice(looped.offsets(), 7)] == [
        1000,
        2000,
        4000,
        6500,
        7500,
        9500,
        12000,
    ]
    t = trial(scenario="trace", scenario_options={"trace": str(path)})
    once = Trace(t, Plan(t))
    assert once.period_ns == 0 and [ns // MS for ns in once.offsets()] == [1000, 2000, 4000]


def test_a_plan_that_stops_drops_what_has_not_begun():
    """It says stop at 300 ms, while queries wait: those that fell due by then are dropped, and no other comes."""

    class Told(Plan):
        def goes_on(self, now_ns, rows, latencies):
            if not self._measured:
                return super().goes_on(now_ns, rows, latencies)
            asked.append((now_ns // MS, rows, latencies(0).tolist()))
            return now_ns < 300 * MS

        def begin(self, row, now_ns):
            super().begin(row, now_ns)
            self.check_ns = 0 if self._measured else self.check_ns

    asked = []
    t = trial(scenario="fixed_rate", rate=20.0, max_s=4.0)
    queries, _ = drive(FixedRate, t, lambda q: 100 * MS, plan=Told)
    assert asked == [
        (100, 1, [100 * MS]),
        (200, 2, [100 * MS, 150 * MS]),
        (300, 3, [100 * MS, 150 * MS, 200 * MS]),
    ]
    # the query due at 150 ms began at 300 ms, no later than the stop; those after it are neither served nor due
    assert queries.columns["scheduled_ns"].tolist() == [0, 50 * MS, 100 * MS, 150 * MS, 200 * MS, 250 * MS]
    assert queries.columns["status"].tolist() == [QUERY_OK] * 4 + [QUERY_DROPPED] * 2
