"""One run against its promises: kept, broken, perhaps; whether the machine keeps up; what binds."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.run.usage import usage
from edgescope.records import (
    QUERY_DROPPED,
    Absent,
    Measured,
    Queries,
    Status,
    Trial,
    Window,
    Worker,
)
from edgescope.wings.capacity.answer import binding
from edgescope.wings.capacity.keeping_up import measured_rows
from edgescope.wings.capacity.question import Compliance, Held, client_constraints, judge, words
from making import queries, result
from queue_server import WHERE, readings

SLO = client_constraints(["p99<40ms"])
SECOND = 1_000_000_000


def rows(latency_s, *, rate=100.0, wait_s=0.0, dropped=0):
    """Queries due at `rate` whose latencies are given, of which `wait_s` passed before they were begun."""
    n = len(latency_s)
    base = dict(queries(n).columns)
    due = np.round(np.arange(n) * SECOND / rate).astype(np.int64)
    issued = due + np.round(np.broadcast_to(wait_s, n) * SECOND).astype(np.int64)
    base |= {
        "scheduled_ns": due,
        "issued_ns": issued,
        "done_ns": due + np.round(latency_s * SECOND).astype(np.int64),
    }
    if dropped:
        status = np.zeros(n, np.int8)
        status[-dropped:] = QUERY_DROPPED
        late = status == QUERY_DROPPED
        base |= {"status": status, "issued_ns": np.where(late, -1, issued)}
        base["done_ns"] = np.where(late, -1, base["done_ns"])
    return Queries(base)


def point(
    latency_s,
    *,
    constraints=SLO,
    clients=7,
    device="cpu",
    status=Status.OK,
    shares=None,
    metrics=None,
    **given,
):
    made = rows(np.asarray(latency_s, dtype=np.float64), **given)
    window = Window(0, len(made), 0, max(int(made.columns["done_ns"].max()), 1))
    shares = {"cpu_busy": 0.5, "cpu_others": 0.0} if shares is None else shares
    trial = Trial(model="null", backend="null", scenario="fixed_rate", rate=100.0, device=device)
    run = result(
        trial,
        machine=WHERE,
        status=status,
        queries=made,
        window=window,
        readings=readings(window, **shares),
        metrics=metrics or {},
    )
    return judge(run, clients, constraints, offered=100.0)


QUICK = np.random.default_rng(0).uniform(0.008, 0.012, 1000)


def test_a_bound_within_the_limit_keeps_the_promise():
    found = point(QUICK)
    assert found.kept is Compliance.YES and found.fits and found.shown and found.why == ""
    assert words(found.held[0]).endswith("< 40 ms") and "bound" in words(found.held[0])
    assert found.busy.value == pytest.approx(1.0, abs=0.02)  # 100/s of 10 ms


def test_too_few_for_a_bound_is_perhaps_and_the_guide_decides_what_is_likely():
    few = QUICK[:200]
    assert point(few).kept is Compliance.PERHAPS and point(few).fits and not point(few).shown
    run = point(few).result
    unlikely = judge(run, 7, SLO, offered=100.0, guide=3.4)
    assert unlikely.kept is Compliance.PERHAPS and not unlikely.fits
    assert "a bound of some 40" in unlikely.why
    assert point(QUICK[:20]).held[0].whole is False


def test_a_figure_passes_for_a_bound_only_where_there_is_none():
    latency = np.random.default_rng(0).permutation(np.linspace(0.010, 0.0402, 1000))
    tight = replace(point(latency), weaker=True)
    (held,) = tight.held
    assert held.found.value < 0.040 < held.bound.value and tight.fits
    assert not tight.shown and not tight.by_figure
    short = replace(point(np.full(50, 0.010)), weaker=True)
    assert short.by_figure and short.shown and short.kept is Compliance.PERHAPS
    assert not replace(point(np.full(1000, 0.010)), weaker=True).by_figure  # shown by its bound


def test_a_tail_clearly_beyond_the_limit_breaks_it():
    slow = np.where(np.arange(1000) % 20 == 0, 0.1, 0.01)
    found = point(slow)
    assert found.kept is Compliance.NO and found.clear and "> 40 ms" in found.why


def test_a_wait_that_grows_does_not_fit_though_every_promise_is_kept():
    wait = np.arange(1000) / 100 * 0.05  # 50 ms a second
    found = point(wait + 0.01, wait_s=wait, constraints=client_constraints(["p50<10s"]))
    assert found.kept is Compliance.NO and found.clear
    assert "the wait grows by 50 ms each second" in found.why and "service 95.24/s" in found.why


def test_queries_that_were_dropped_do_not_fit():
    assert "5 of 1000 queries still waited" in point(QUICK, dropped=5).why


def test_a_run_that_failed_is_no_fit_and_memory_is_final():
    for status, clear in ((Status.CRASHED, False), (Status.OOM, True)):
        run = result(status=status, reason="E-X-1: gone.", queries=None, window=None)
        found = judge(run, 3, SLO, offered=45.0)
        assert not found.fits and found.clear is clear and found.why == "E-X-1: gone."


def test_what_a_crew_did_after_its_stop_is_part_of_the_tail():
    made = rows(QUICK)
    cut = Window(100, 900, 0, 9 * SECOND)
    crew = tuple(Worker(number=n, model="null", pid=n) for n in range(2))
    run = result(Trial(model="null", processes=2), queries=made, window=cut, workers=crew)
    assert len(measured_rows(run)) == 900  # due before the stop, whenever done


def test_a_promise_that_could_not_be_judged_names_no_limit():
    asked = client_constraints(["p99<40ms", "memory<=1GB"])
    found = point(np.full(1000, 0.1), constraints=asked)  # no figure of memory
    assert binding(found, None).name != "memory"
    held = point(
        np.full(1000, 0.1),
        constraints=client_constraints(["memory<1GB"]),
        metrics={"peak_rss_bytes": Measured(1e9, "bytes")},
    )
    assert binding(held, None).name == "memory"


LATE = np.random.default_rng(1).uniform(0.03, 0.1, 1000)


@pytest.mark.parametrize(
    ("shares", "device", "name", "text"),
    [
        ({"cpu_busy": 0.97, "cpu_others": 0.0}, "cpu", "cpu", "CPU busy 97%"),
        ({"cpu_busy": 0.2, "cpu_others": 0.0, "gpu0_busy": 0.96}, "cuda", "gpu", "GPU busy 96%"),
        ({"cpu_busy": 0.97, "cpu_others": 0.0, "gpu0_busy": 0.96}, "cuda", "not known", "conflict"),
        ({"cpu_busy": 0.3, "cpu_others": 0.0}, "cpu", "servers", "--in-flight"),
        ({"cpu_busy": 0.99, "cpu_others": 0.5}, "cpu", "cpu", "50% of it with other programs"),
        ({"nvdec0_busy": 0.97, "cpu_busy": 0.1, "cpu_others": 0.0}, "cpu", "decoder", "decoder"),
        ({}, "cpu", "not known", "no channel cpu_busy"),
    ],
)
def test_a_server_that_is_always_busy_is_short_of_what_is_busy(shares, device, name, text):
    above = point(LATE, shares=shares, device=device)
    found = binding(above, point(QUICK, clients=6))
    assert found.name == name and text in found.sentence


def test_a_tail_beyond_the_limit_with_room_to_spare_is_latency():
    above = point(LATE, rate=10, wait_s=LATE - 0.03, shares={"cpu_busy": 0.3, "cpu_others": 0.0})
    found = binding(above, point(QUICK, clients=6))
    assert found.name == "latency" and "30% utilisation" in found.sentence and "the CPU" in found.sentence


def test_a_wait_that_grows_is_throughput_before_the_servers_are_busy_all_the_time():
    wait = np.arange(1000) / 100 * 0.05
    above = point(wait + 0.009, wait_s=wait, shares={"cpu_busy": 0.9, "cpu_others": 0.0})
    assert not above.sustained and above.busy.value < 0.95
    assert binding(above, point(QUICK, clients=6)).name == "cpu"


def test_processes_that_fill_the_cores_between_them_are_short_of_the_cpu():
    from dataclasses import replace

    above = point(LATE, rate=10, wait_s=LATE - 0.03, shares={"cpu_busy": 0.98, "cpu_others": 0.0})
    assert binding(above, point(QUICK, clients=6)).name == "latency"
    crowd = replace(above.result, trial=replace(above.result.trial, processes=4))
    assert binding(replace(above, result=crowd), point(QUICK, clients=6)).name == "cpu"


@pytest.mark.parametrize(("cause", "name"), [("sw_cap_power", "power"), ("hw_thermal", "heat")])
def test_a_guard_that_holds_the_clocks_is_the_limit(cause, name):
    above = point(LATE, shares={f"throttled_gpu0_{cause}": 1.0, "cpu_busy": 1.0, "cpu_others": 0.0})
    assert binding(above, point(QUICK, clients=6)).name == name


def test_memory_power_and_one_client_alone():
    full = judge(
        result(status=Status.OOM, reason="E-MEM-1: x.", queries=None, window=None), 9, SLO, offered=9
    )
    assert binding(full, point(QUICK)).name == "memory"
    hungry = point(
        QUICK,
        constraints=client_constraints(["power<=5W"]),
        metrics={"power_w": Measured(4.0, "W", 3.0, 6.0)},
    )
    assert hungry.kept is Compliance.NO and binding(hungry, None).name == "power"
    assert binding(point(LATE, clients=1), None).name == "promise"
    assert binding(None, point(QUICK)).name == "untried"


def test_usage_is_of_the_cores_that_are_allowed():
    run = point(QUICK, shares={"cpu_busy": 0.5, "cpu_others": 0.1}).result
    state = {"cpu": {"online_cpus": [0, 1, 2, 3], "affinity": [0, 1], "cgroup_cpu_limit": {"absent": "x"}}}
    from dataclasses import replace

    found = usage(replace(run, machine=replace(WHERE, state=state)))
    assert found.cpu.value == pytest.approx(0.8) and found.cores == 2
    assert found.cpu_others.value == pytest.approx(0.2)  # at most: all of theirs may have been there
    shares = {"cpu_busy": 0.5, "cpu_others": 0.1, "cpu_allowed_busy": 0.82, "cpu_allowed_others": 0.02}
    run = point(QUICK, shares=shares).result
    found = usage(replace(run, machine=replace(WHERE, state=state)))
    assert found.cpu.value == pytest.approx(0.8) and found.cpu_others.value == pytest.approx(0.02)
    assert isinstance(usage(replace(run, readings=None)).cpu, Absent)


def judged_latency(x, text="p99<40ms", guide=1.0):
    from edgescope.wings.capacity.question import _latency

    asked = client_constraints([text])[0]
    return _latency(asked, np.asarray(x, dtype=float), asked.quantile, guide)


@pytest.mark.parametrize(
    ("n", "text", "whole"),
    [
        (100, "p99<40ms", True),
        (99, "p99<40ms", False),
        (2, "p50<40ms", True),
        (1, "p50<40ms", False),
        (10, "p90<40ms", True),
    ],
)
def test_a_quantile_needs_one_query_beyond_it_and_before_that_the_slowest_stands_for_it(n, text, whole):
    x = np.random.default_rng(0).permutation(np.linspace(0.01, 0.02, n))
    found = judged_latency(x, text)
    assert found.whole is whole and found.found.n == n
    q = client_constraints([text])[0].quantile
    assert found.found.value == pytest.approx(np.quantile(x, q) if whole else x.max())


def test_a_point_far_beyond_its_limit_needs_no_bound():
    few = np.full(20, 0.0599)
    assert judged_latency(few).kept is Compliance.PERHAPS  # one and a half times the limit is 60 ms
    assert judged_latency(few * 0.0600 / 0.0599).kept is Compliance.NO
    assert judged_latency(np.full(20, 0.06), "p99<=40ms").kept is Compliance.PERHAPS


def test_an_interval_wholly_beyond_the_limit_breaks_a_promise_that_its_point_would_leave_open():
    x = np.random.default_rng(0).permutation(np.linspace(0.045, 0.055, 2000))
    broken = judged_latency(x, "p50<45ms")
    assert broken.kept is Compliance.NO and broken.found.lo > 0.045 and broken.found.value < 1.5 * 0.045
    assert judged_latency(x, "p50<50.05ms").kept is Compliance.PERHAPS
    assert judged_latency(x, "p50<52ms").kept is Compliance.YES


def test_what_a_longer_run_may_be_expected_to_show_decides_between_likely_and_clear():
    few = np.full(20, 0.030)
    for guide, likely, clear in (
        (0.5, True, False),
        (1.33, True, False),
        (1.34, False, False),
        (1.67, False, True),
    ):
        found = judged_latency(few, guide=guide)
        assert (found.kept, found.likely, found.clear) == (Compliance.PERHAPS, likely, clear)
        assert found.expected == pytest.approx(0.030 * max(1.0, guide))
    nothing = judged_latency([])
    assert nothing.kept is Compliance.NO and nothing.found == nothing.bound == Absent("no query succeeded")


def test_several_promises_make_one_answer():
    from edgescope.wings.capacity.question import Held, _together

    def one(kept, clear=True):
        return Held(SLO[0], Absent("x"), Absent("x"), kept, clear)

    yes, no, perhaps = one(Compliance.YES), one(Compliance.NO), one(Compliance.PERHAPS)
    assert _together([yes, yes], False) == (Compliance.YES, True) == _together([], False)
    assert _together([yes, yes], True) == (Compliance.NO, True)
    assert _together([yes, no, perhaps], False) == (Compliance.NO, True)
    assert _together([one(Compliance.NO, False), yes], False) == (Compliance.NO, False)
    assert _together([one(Compliance.NO, False)], True) == (Compliance.NO, True)
    assert _together([one(Compliance.NO, False), no], False) == (Compliance.NO, True)
    assert _together([yes, perhaps], False) == (Compliance.PERHAPS, True)
    assert _together([perhaps, one(Compliance.PERHAPS, False)], False) == (Compliance.PERHAPS, False)


def test_a_resource_is_judged_on_the_end_that_hurts():
    def power(value, hi=None):
        metrics = {"power_w": Measured(value, "W", None if hi is None else 1.0, hi, 5)}
        return point(QUICK, constraints=client_constraints(["power<=5W"]), metrics=metrics).held[0]

    assert power(4.0).kept is Compliance.YES and power(4.0, 5.0).kept is Compliance.YES
    assert power(4.0, 5.1).kept is Compliance.NO and power(4.0, 5.1).bound == Measured(5.1, "W", n=5)
    lost = point(
        QUICK, constraints=client_constraints(["power<=5W"]), metrics={"power_w": Absent("no sensor")}
    ).held[0]
    assert lost.kept is Compliance.NO and lost.found == Absent("no sensor")


def test_a_run_is_as_long_as_its_window():
    found = point(QUICK)
    window = found.result.window
    assert found.seconds == pytest.approx((window.stop_ns - window.start_ns) / SECOND) and found.seconds > 9.9
    assert (found.clients, found.offered, found.stage) == (7, 100.0, "search")


def test_a_promise_that_says_no_more_is_kept_clearly():
    held = Held(SLO[0], Absent("x"), Absent("x"), Compliance.YES)
    assert (held.clear, held.likely, held.whole, held.expected) == (True, True, True, 0.0)
