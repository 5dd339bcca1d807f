"""A search for clients step by step: its runs judged by hand, its forecasts given; and the trials of its question."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.analysis.cells.objective import Compliance
from edgescope.errors import UnsupportedError
from edgescope.records import Absent, Measured, Queries, Status, Trial, Trust, Verdict, Window
from edgescope.scenarios.open_loop import DRAWN, poisson
from edgescope.wings.capacity import question as capacity_question
from edgescope.wings.capacity import search as capacity
from edgescope.wings.capacity.question import Forecast, Held, Point, Question, client_constraints, typical
from edgescope.wings.capacity.search import Search
from making import queries, result

BASE = Trial(model="null", backend="null", warmup=0.0)
NO = Absent("not measured")


def point(clients, stage="search", kept=Compliance.YES, status=Status.OK, trust=Trust.CLEAN, **keys):
    told = result(BASE, status=status, verdict=Verdict(trust, ()))
    given = {"clear": True, "held": (), "seconds": 5.0, "why": ""} | keys
    return Point(clients, stage, told, offered=0.0, achieved=NO, busy=NO, growth=NO, kept=kept, **given)


class Played:
    """A search whose runs are judged by `fits`, by `ends` in order, or as misses; its steps, and its points."""

    def __init__(
        self, monkeypatch, folder, fits=10, ends=(), *, start=8, seconds=30.0, closed=Status.OK, **asked
    ):
        self.fits, self.ends = fits, {key: list(found) for key, found in dict(ends).items()}
        self.steps, self.guides, self.offered = [], [], []
        question = {"rate": 15.0, "constraints": client_constraints(["p99<40ms"])} | asked
        monkeypatch.setattr(capacity, "judge", self.judge)
        monkeypatch.setattr(capacity, "estimate", lambda *given: self.estimated(given, start))
        monkeypatch.setattr(capacity, "forecast", self.forecast)
        self.seconds, self.closed = seconds, closed
        self.search = Search(Question(BASE, **question), folder)

    def estimated(self, given, start):
        self.estimate = given
        return start

    def forecast(self, service_s, load, clients, q, at_least_s):
        return Forecast(
            0.01, self.seconds(clients) if callable(self.seconds) else self.seconds, 1 + clients / 10
        )

    def judge(self, told, clients, constraints, *, offered, stage, guide):
        self.guides.append(guide)
        self.offered.append(offered)
        ends = self.ends.get((stage, clients)) or self.ends.get(stage)
        given = ends.pop(0) if ends else {"kept": Compliance.YES if clients <= self.fits else Compliance.NO}
        return point(clients, stage, **given)

    def play(self, **how):
        strategy, sent = self.search.run(**how), None
        try:
            while True:
                step = strategy.send(sent)
                self.steps.append(step)
                status = self.closed if step.stage == "closed loop" else Status.OK
                throughput = {"throughput_sps": Measured(200.0, "samples/s", 100.0, None, 9)}
                sent = (result(step.trial, status=status, metrics=throughput),)
        except StopIteration:
            return self

    def clients(self, stage):
        """The numbers of clients of a stage in order."""
        return [p.clients for p in self.search.points if p.stage == stage]

    def of(self, stage):
        return [s for s in self.steps if s.stage == stage]


@pytest.fixture
def played(monkeypatch, tmp_path):
    return lambda *given, **keys: Played(monkeypatch, tmp_path, *given, **keys)


def test_it_begins_with_the_estimate_finds_the_edge_and_confirms_it(played):
    found = played().play()
    assert [s.stage for s in found.steps] == ["closed loop", *["search"] * 5, "confirm"]
    assert found.clients("search") == [8, 9, 10, 12, 11] and found.clients("confirm") == [10]
    assert [s.trial.rate for s in found.steps[1:]] == [15.0 * n for n in (8, 9, 10, 12, 11, 10)]
    assert found.offered == [15.0 * n for n in (8, 9, 10, 12, 11, 10)]
    assert [s.trial.replicate for s in found.steps] == [0] * 6 + [100]
    assert found.guides == [pytest.approx(1 + n / 10) for n in (8, 9, 10, 12, 11)] + [1.0]
    _, load, tails, confirm_s = found.estimate
    assert (load.rate, load.arrivals, load.servers, tails, confirm_s) == (
        15.0,
        "poisson",
        1,
        [(0.99, 0.04)],
        30.0,
    )


def test_a_run_says_how_many_clients_for_how_long_and_what_follows(played):
    found = played(seconds=lambda clients: 40.5).play()
    assert (
        found.of("search")[0].what == "8 clients, 5 s" and found.of("confirm")[0].what == "10 clients, 41 s"
    )
    assert found.of("confirm")[0].then == " if it confirms"
    assert found.of("search")[0].then == found.of("closed loop")[0].then == ", then 30 s to 10 min to confirm"
    same = played(confirm_s=60.0, max_duration_s=60.0).play()
    assert same.of("search")[0].then == ", then 60 s to confirm"
    every = played(2, max_clients=3).play(exhaustive=True)
    assert every.steps[-1].then == " for this number"


def test_no_more_than_the_most_clients_are_tried_and_no_more_processes_than_memory_holds(played, monkeypatch):
    most = played(99, start=50, max_clients=20).play()
    assert most.clients("search") == [20] and most.clients("confirm") == [20]
    asked = []
    monkeypatch.setattr(capacity, "fitting", lambda *given: asked.append(given) or 6)
    own = played(99, start=50, max_clients=6, server_processes="per-client").play()
    assert own.clients("search") == [6] and asked[0][2] == 6
    assert [s.trial.processes for s in own.of("search")] == [6]
    small = played(99, start=3, max_clients=20, server_processes="per-client").play()
    assert small.clients("search")[0] == 3


@pytest.mark.parametrize(
    ("run", "again"),
    [
        ({"clear": False}, True),
        ({"trust": Trust.DISTURBED}, True),
        ({}, False),
        ({"trust": Trust.THROTTLED}, False),
    ],
)
def test_a_miss_that_is_not_clear_is_looked_at_again_with_another_replicate(played, run, again):
    miss = {"kept": Compliance.NO} | run
    found = played(ends={("search", 9): [miss, {"kept": Compliance.NO}]}).play()
    assert found.clients("search").count(9) == 1 + again
    assert [s.trial.replicate for s in found.of("search") if s.trial.rate == 135.0] == [0, 1][: 1 + again]
    if again:
        assert found.of("search")[-1].what == "9 clients, 5 s, again"


def test_what_cannot_run_ends_it(played):
    for status in (Status.UNSUPPORTED, Status.WRONG_OUTPUT):
        found = played(ends={"search": [{"status": status, "kept": Compliance.NO}]}).play()
        assert found.search.hopeless and len(found.search.points) == 1
        confirmed = played(ends={"confirm": [{"status": status, "kept": Compliance.NO}]}).play()
        assert confirmed.clients("confirm") == [10]
    assert len(played(closed=Status.UNSUPPORTED).play().steps) == 1
    every = played(9, {"confirm": [{"status": Status.WRONG_OUTPUT, "kept": Compliance.NO}] * 2}).play(
        exhaustive=True
    )
    assert [s.trial.replicate for s in every.of("confirm")] == [100, 110]
    first = [{"status": Status.WRONG_OUTPUT}]
    assert len(played(9, {"confirm": first}).play(exhaustive=True).of("confirm")) == 1
    assert not played().search.hopeless


def test_a_run_that_crashed_is_repeated_once_under_another_number(played):
    found = played(ends={("search", 8): [{"status": Status.CRASHED, "kept": Compliance.NO}]}).play()
    first, again = found.of("search")[:2]
    assert (first.trial.replicate, again.trial.replicate) == (0, 50)
    assert again.what == "8 clients, 5 s, again: crashed" and again.ahead == first.ahead
    (warning,) = found.search.warnings
    assert warning.code == "W-CAP-2" and warning.what.startswith("8 clients: ") and "crashed" in warning.what
    memory = played(ends={("search", 8): [{"status": Status.OOM, "kept": Compliance.NO}]}).play()
    assert memory.clients("search").count(8) == 1 and not memory.search.warnings


@pytest.mark.parametrize(
    ("start", "tried"),
    [(100, [100, 99, 98, 94, 90, 86, 82]), (10, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]), (42, [42, 41, 40, 38])],
)
@pytest.mark.slow
def test_confirming_steps_down_by_one_and_after_three_failures_by_a_twentieth(played, start, tried):
    found = played(start, {"confirm": [{"kept": Compliance.NO}] * 99}, start=start).play()
    assert found.clients("confirm")[: len(tried)] == tried and found.clients("confirm")[-1] == 1


def test_every_number_is_confirmed_until_one_fails_twice(played):
    found = played(3, max_clients=9).play(exhaustive=True)
    assert found.clients("confirm") == [1, 2, 3, 4, 4] and found.clients("search") == []
    assert [s.trial.replicate for s in found.of("confirm")] == [100] * 4 + [110]
    lucky = {("confirm", 4): [{"kept": Compliance.NO}, {}]}
    assert played(3, lucky, max_clients=9).play(exhaustive=True).clients("confirm") == [1, 2, 3, 4, 4, 5, 5]
    assert played(9, max_clients=3).play(exhaustive=True).clients("confirm") == [1, 2, 3]


def test_the_closed_loop_is_one_process_for_three_seconds_without_what_an_open_loop_has(played):
    search = played(max_clients=5).search
    search.question = replace(search.question, base=replace(BASE, in_flight=2, deadline_s=0.1))
    step = next(search.run())
    t = step.trial
    assert (t.scenario, t.processes, t.min_s, t.max_s, t.in_flight) == ("single_stream", 1, 3.0, 3.0, 2)
    assert (t.deadline_s, t.rate, t.colocated, t.sharing) == (None, None, "", "time_slicing")
    assert step.what == "one query after the other, 3 s"
    assert list(step.ahead) == [replace(search.question.base, min_s=5.0, max_s=5.0)] * 3


@pytest.mark.parametrize(("most", "looks"), [(1, 1), (2, 2), (7, 3), (8, 4), (63, 6), (1024, 6), (0, 1)])
def test_as_many_looks_follow_as_halving_takes_six_at_most(played, most, looks):
    assert len(next(played(max_clients=most).search.run()).ahead) == looks


def test_looks_ahead_halve_what_lies_between_hit_and_miss(played):
    """Before a miss, twice a twentieth on either side."""
    found = played(100, start=100).play()
    ahead = {s.trial.rate / 15: len(s.ahead) for s in found.of("search")}
    assert ahead[100.0] == 4, "ten lie between"
    assert found.clients("search") == [100, 105, 102, 101] and [ahead[n] for n in (102.0, 101.0)] == [3, 2]
    assert {t.max_s for s in found.of("search") for t in s.ahead} == {5.0}
    assert len(played(9, start=9).play().of("search")[0].ahead) == 2, "two lie between"


def test_a_power_that_is_not_measured_here_is_refused_after_the_closed_loop(played):
    found = played(constraints=client_constraints(["power<=5W"]))
    with pytest.raises(UnsupportedError) as raised:
        found.play()
    assert raised.value.code == "E-CAP-1" and len(found.steps) == 1
    failed = played(constraints=client_constraints(["power<=5W"]), closed=Status.CRASHED).play()
    assert len(failed.steps) == 1


def test_queries_a_second_are_samples_over_the_batch(played):
    search = played().play().search
    search.question = replace(search.question, base=replace(BASE, batch=4))
    assert search.throughput == Measured(50.0, "queries/s", 25.0, None, 9)
    search.closed = replace(search.closed, metrics={"throughput_sps": Absent("too short")})
    assert search.throughput == Absent("too short")
    search.closed = None
    assert isinstance(search.throughput, Absent)


@pytest.mark.parametrize(
    ("cpu", "device", "processes", "servers"),
    [
        (0.25, "cpu", "per-client", 8),
        (0.7, "cpu", "per-client", 2),
        (0.6, "cpu", "per-client", 4),
        (2.5, "cpu", "per-client", 2),
        (0.001, "cpu", "per-client", 200),
        (None, "cpu", "per-client", 2),
        (0.25, "cuda", "per-client", 2),
        (0.25, "cpu", "one", 2),
    ],
)
def test_processes_of_their_own_serve_as_many_at_once_as_cores_have_room(
    played, monkeypatch, cpu, device, processes, servers
):
    search = played(server_processes=processes).search
    search.question = replace(search.question, base=replace(BASE, in_flight=2, device=device))
    assert search.load.servers == 2
    search.closed = result(BASE)
    told = NO if cpu is None else Measured(cpu, "share")
    monkeypatch.setattr(capacity, "usage", lambda closed: SimpleNamespace(cpu=told))
    assert search.load.servers == servers


# -- confirming ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "notes"),
    [
        ({}, [""]),
        ({"kept": Compliance.NO}, [""]),
        ({"kept": Compliance.PERHAPS}, ["", "disturbed"]),
        ({"kept": Compliance.NO, "trust": Trust.DISTURBED}, ["", "disturbed"]),
        ({"kept": Compliance.NO, "status": Status.CRASHED}, ["", "disturbed"]),
        ({"kept": Compliance.NO, "status": Status.OOM}, [""]),
        ({"kept": Compliance.NO, "status": Status.WRONG_OUTPUT}, [""]),
        ({"trust": Trust.DISTURBED}, [""]),
    ],
)
def test_a_confirmation_that_may_be_bad_luck_is_repeated_once(played, first, notes):
    found = played(10, {("confirm", 10): [first, {"kept": Compliance.NO}]}).play()
    mine = [s for s in found.of("confirm") if s.trial.rate == 150.0]
    assert [s.what for s in mine] == ["10 clients, 30 s" + (f", {note}" if note else "") for note in notes]
    assert [s.trial.replicate for s in mine] == [100, 101][: len(notes)]


@pytest.mark.parametrize(("longer", "seconds"), [(44.0, 44.0), (20.0, 30.0), (600.0, 600.0)])
def test_one_that_was_too_short_is_repeated_for_as_long_as_its_bound_needs(
    played, monkeypatch, longer, seconds
):
    monkeypatch.setattr(Search, "_longer", lambda search, point: longer)
    found = played(10, {("confirm", 10): [{"kept": Compliance.PERHAPS}, {}]}).play()
    first, second = found.of("confirm")
    assert second.what == f"10 clients, {seconds:g} s, too short" and second.trial.max_s == seconds
    assert (first.trial.replicate, second.trial.replicate) == (100, 101) and not found.search.warnings


def test_one_that_would_need_longer_than_allowed_counts_without_a_bound(played, monkeypatch):
    monkeypatch.setattr(Search, "_longer", lambda search, point: 601.0)
    found = played(10, {("confirm", 10): [{"kept": Compliance.PERHAPS}]}).play()
    assert len(found.of("confirm")) == 1 and found.search.points[-1].weaker
    (warning,) = found.search.warnings
    assert warning.code == "W-CAP-1" and warning.fix == "--max-duration 11min"
    assert warning.evidence == "--max-duration 600s" and "601 s at 150 queries/s" in warning.what


@pytest.mark.parametrize(
    ("need", "seconds", "weaker"),
    [
        (10.0, 30.0, False),
        (30.2, 31.0, False),
        (600.0, 600.0, False),
        (600.1, 30.0, True),
        (math.inf, 30.0, False),
    ],
)
def test_a_confirmation_is_as_long_as_every_bound_needs_if_that_is_allowed(played, need, seconds, weaker):
    """Where the servers cannot keep up there is no length that helps."""
    search = played(seconds=need).play().search
    search.warnings.clear()
    assert search.sustained_s(4) == (seconds, weaker)
    assert [w.code for w in search.warnings] == ["W-CAP-1"] * weaker
    if weaker:
        assert search.points[-1].weaker


@pytest.mark.parametrize(
    ("constraints", "clients", "rate", "confirm_s", "seconds"),
    [
        ("p99<40ms", 1, 15.0, 60.0, 40.0),
        ("p99<40ms", 1, 15.0, 30.0, 30.0),
        ("p99<40ms", 10, 15.0, 30.0, 5.0),
        ("p99<40ms", 7, 15.0, 30.0, 6.0),
        ("p50<40ms", 1, 1.0, 30.0, 12.0),
        ("p50<40ms,p90<50ms", 2, 4.0, 30.0, 8.0),
        ("memory<2GB", 1, 1.0, 30.0, 5.0),
        ("p99<40ms", 1, 1.0, 2.0, 5.0),
    ],
)
def test_a_short_run_has_six_queries_beyond_the_quantile(
    played, constraints, clients, rate, confirm_s, seconds
):
    search = played(constraints=client_constraints([constraints]), rate=rate, confirm_s=confirm_s).search
    assert search.short_s(clients) == seconds


def held(text="p99<40ms", *, kept=Compliance.PERHAPS, bound=NO):
    (constraint,) = client_constraints([text])
    return Held(constraint, Measured(0.03, "s"), bound, kept, likely=True)


BOUND = Measured(0.05, "s")


@pytest.mark.parametrize(
    ("each", "kept", "seconds"),
    [
        ([held()], Compliance.PERHAPS, 92.0),
        ([held(bound=BOUND)], Compliance.PERHAPS, 0.0),
        ([held(kept=Compliance.YES)], Compliance.YES, 0.0),
        ([held("memory<2GB")], Compliance.PERHAPS, 0.0),
        ([held("misses<1%", bound=BOUND)], Compliance.PERHAPS, 92.0),
        ([held("p90<40ms")], Compliance.PERHAPS, 9.0),
        ([held("p90<40ms"), held()], Compliance.PERHAPS, 92.0),
        ([held(), held("p90<40ms")], Compliance.PERHAPS, 92.0),
        ([held("memory<2GB"), held("p90<40ms", kept=Compliance.YES), held()], Compliance.PERHAPS, 92.0),
        ([held()], Compliance.NO, 0.0),
    ],
)
def test_a_missing_bound_needs_twice_what_the_queries_so_far_are_short_of(
    played, monkeypatch, each, kept, seconds
):
    """Of 10 s with a hundred queries that are worth a hundred: a bound of the p99 needs 459, of the p90 44."""
    search = played(10).search
    search.question = replace(search.question, base=replace(BASE, deadline_s=0.04))
    monkeypatch.setattr(capacity, "measured_rows", lambda told: told.queries)
    monkeypatch.setattr(capacity, "timed", lambda constraint, rows: np.zeros(100))
    monkeypatch.setattr(capacity, "quantile_effective_n", lambda x, q: float(len(x)))
    mine = point(10, "confirm", kept, held=tuple(each), seconds=10.0)
    assert search._longer(mine) == seconds


def test_few_queries_are_worth_one_at_least(played, monkeypatch):
    search = played(10).search
    monkeypatch.setattr(capacity, "timed", lambda constraint, rows: np.zeros(0))
    monkeypatch.setattr(capacity, "measured_rows", lambda told: told.queries)
    monkeypatch.setattr(capacity, "quantile_effective_n", lambda x, q: 0.0)
    assert search._longer(point(10, "confirm", Compliance.PERHAPS, held=(held(),), seconds=1.0)) == 2 * 459


def test_service_times_are_those_of_the_nearest_measured_run(played):
    """A query that never began or never ended has none."""
    found = played(constraints=client_constraints(["p99<40ms"]))
    search, rows = found.search, queries(4, 1000).columns
    rows["issued_ns"][3], rows["done_ns"][2] = -1, -1
    search.closed = result(BASE, queries=Queries(rows), window=Window(0, 4, 0, 10_000))
    assert search._service(3).tolist() == pytest.approx([1e-6, 1e-6])

    def ran(clients, ns, **keys):
        told = result(BASE, queries=queries(3, ns), window=Window(0, 3, 0, 10 * ns))
        one = point(clients, **{"held": (held(),)} | keys)
        return replace(one, result=replace(told, status=one.result.status))

    search.points = [ran(2, 2000), ran(9, 9000), ran(4, 4000, status=Status.CRASHED), ran(4, 5000, held=())]
    assert [search._service(n)[0] for n in (1, 5, 6, 20)] == pytest.approx([2e-6, 2e-6, 9e-6, 9e-6])


def test_the_worst_promise_says_how_far_a_bound_lies_beyond_its_figure(played, monkeypatch):
    search = played(constraints=client_constraints(["p99<40ms", "p90<9ms"])).play().search
    over = {0.99: 1.2, 0.9: 1.7}
    monkeypatch.setattr(capacity, "forecast", lambda s, load, n, q, least: Forecast(0.01, 1.0, over[q]))
    assert search._guide(3) == 1.7
    search.question = replace(search.question, constraints=client_constraints(["memory<2GB"]))
    assert search._guide(3) == 1.0 and search.sustained_s(3) == (30.0, False)


# -- the question -------------------------------------------------------------------------------------------


def asked(processes="one", arrivals="even", **keys):
    return Question(
        replace(BASE, seed=7, replicate=3),
        15.0,
        client_constraints(["p99<40ms"]),
        processes,
        arrivals,
        **keys,
    )


@pytest.mark.parametrize(
    ("question", "scenario", "rate", "processes", "seed"),
    [
        (asked(), "fixed_rate", 60.0, 1, 2007),
        (asked("per-client"), "fixed_rate", 15.0, 4, 2 * 16 * 1024 + 7),
        (asked("per-client", max_clients=10), "fixed_rate", 15.0, 4, 2007),
        (asked("per-client", "camera", max_clients=10), "fixed_rate", 15.0, 4, 2007),
        (asked("one", "camera"), "trace", None, 1, 2007),
    ],
)
@pytest.mark.slow
def test_the_trial_of_four_clients(tmp_path, question, scenario, rate, processes, seed):
    found = question.trial(4, 5.5, 2, tmp_path)
    assert (found.scenario, found.rate, found.processes, found.seed) == (scenario, rate, processes, seed)
    assert (found.min_s, found.max_s, found.max_queries, found.replicate) == (5.5, 5.5, None, 5)
    assert bool(found.scenario_options) is (scenario == "trace")
    if scenario == "trace":
        (written,) = (tmp_path / "arrivals").iterdir()
        times = [float(t) for t in written.read_text().split()]
        assert len(times) == 4 * math.ceil(5.5 * 15) and times == sorted(times) and times[-1] < 5.6


def test_a_question_in_words_names_the_model_without_its_digest():
    asks = replace(asked(), base=replace(BASE, model="m.onnx#0123", in_flight=2))
    assert asks.subject.startswith("m.onnx null") and (asks.client, asks.confirm_s) == ("client", 30.0)


def random(**keys):
    return replace(
        BASE, **{"scenario": "server", "rate": 10.0, "min_s": 5.0, "max_s": 5.0, "seed": 100} | keys
    )


def arrived(trial, seed):
    return sum(
        int((next(poisson(trial.rate, seed + n)) < trial.max_s * 1e9).sum()) for n in range(trial.processes)
    )


@pytest.mark.parametrize("processes", [1, 3])
def test_of_sixteen_seeds_the_one_whose_arrivals_are_nearest_to_the_rate_is_taken(processes):
    trial = random(processes=processes)
    off = {s: abs(arrived(trial, s) - 50 * processes) for s in range(100, 100 + 16 * processes, processes)}
    assert len(off) == 16 and typical(trial).seed == min(off, key=off.get)
    assert typical(trial) == replace(trial, seed=typical(trial).seed)


def test_of_very_many_arrivals_any_seed_will_do(monkeypatch):
    monkeypatch.setattr(capacity_question, "MANY", 50)
    assert typical(random(rate=10.2)) == random(rate=10.2)
    trial = random(seed=101)
    off = [abs(arrived(trial, s) - 50) for s in range(101, 117)]
    assert off[0] > min(off) and typical(trial).seed != 101, "as many as that are still looked at"


def test_arrivals_are_counted_beyond_what_is_drawn_at_once():
    rate = 2.0 * DRAWN
    found = capacity_question._due(rate, 3, 1.0)
    times = poisson(rate, 3)
    several = np.concatenate([next(times) for _ in range(4)])
    assert found == int((several < 1e9).sum()) > DRAWN
