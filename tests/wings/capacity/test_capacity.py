"""The search for how many clients fit, against a server in simulated time: answer, cost, faults, resumption."""

import json
from dataclasses import replace
from itertools import takewhile

import pytest

from edgescope.errors import UnsupportedError
from edgescope.isolate.fresh import Limits
from edgescope.records import Machine, Measured, Status, Trial, Trust, Verdict
from edgescope.records.codec import to_plain
from edgescope.report.document import Answer
from edgescope.runner.builds import Builds, Pace
from edgescope.runner.run import ExperimentRunner
from edgescope.scenarios.open_loop import Server
from edgescope.scenarios.stop_rule import Plan
from edgescope.search.loop import Loop
from edgescope.store.results import Store
from edgescope.wings.capacity import search as capacity
from edgescope.wings.capacity.page import document, facts, sentence_of
from edgescope.wings.capacity.question import DRAWS, Compliance, Question, client_constraints
from edgescope.wings.capacity.search import Search
from queue_server import WHERE, QueueServer

BASE = Trial(model="null", backend="null", warmup=0.0)


class Quick:
    """Cells that keep nothing: most tests need no disk."""

    def __init__(self, runner) -> None:
        self.runner = runner
        self.builds = Builds(runner, Limits(), Pace())

    def stored(self, trial):
        return None

    def expect(self, trials):
        pass

    def left(self, trials):
        return None

    def run(self, trial, limit_s=None):
        return self.runner.run(trial, Limits())


def done(search, cells, **how):
    """Drive a search to its end; return the loop that did."""
    loop = Loop(cells)
    list(loop.run(search.run(**how)))
    return loop


def a_search(folder, *constraints, rate=15.0, **asked):
    return Search(Question(BASE, rate, client_constraints(constraints or ("p99<40ms",)), **asked), folder)


def searched(folder, runner, *constraints, **asked):
    search = a_search(folder, *constraints, **asked)
    done(search, Quick(runner))
    return search


def stored(folder, runner, **how):
    """A search whose results go to disk, and its loop."""
    search = a_search(folder)
    return search, done(search, ExperimentRunner(Store(folder), Limits(), runner, WHERE, **how))


@pytest.mark.slow
def test_the_answer_is_that_of_trying_every_number_at_a_fraction_of_the_time(tmp_path):
    runner, everything = QueueServer(0.002), QueueServer(0.002)
    found = searched(tmp_path, runner, "p99<20ms").answer()
    full = a_search(tmp_path, "p99<20ms")
    done(full, Quick(everything), exhaustive=True)
    assert abs(found.clients - full.answer().clients) <= 1 and found.clients > 20
    assert found.confirmed.shown and found.confirmed.stage == "confirm" and found.confirmed.seconds >= 30
    assert sum(t.max_s for t in runner.ran) <= 0.25 * sum(t.max_s for t in everything.ran)
    assert found.limit.name == "latency" and "CPU" in found.limit.sentence


@pytest.mark.parametrize("arrivals", ["even", "camera"])
def test_clients_that_do_not_meet_fill_the_server(tmp_path, arrivals):
    runner = QueueServer(0.005)
    found = searched(tmp_path, runner, arrivals=arrivals).answer()
    assert found.clients in (12, 13)  # 200 queries/s at most
    assert found.above is not None and "wait grows" in found.above.why
    assert found.limit.name == "cpu"
    scenario = {"even": "fixed_rate", "camera": "trace"}[arrivals]
    assert {t.scenario for t in runner.ran[1:]} == {scenario}


def test_a_process_for_each_client(tmp_path):
    runner = QueueServer(0.005)
    search = searched(tmp_path, runner, server_processes="per-client", arrivals="camera", max_clients=3)
    assert search.answer().clients == 3
    crowds = [t for t in runner.ran if t.scenario == "fixed_rate"]
    assert crowds and all(t.rate == 15 and t.processes <= 3 for t in crowds)
    assert "--max-clients" in sentence_of(search.answer())


@pytest.mark.slow
def test_processes_begin_with_as_many_as_memory_has_room_for(tmp_path):
    """Each holds 100 MB (queue_server), 1 GB can be had, and 400 MB must remain."""
    facts = dict(WHERE.state["cpu"]) | {"memory_available_bytes": 1_000_000_000}
    small = lambda trial: Machine(WHERE.stable, {**WHERE.state, "cpu": facts})  # noqa: E731
    for runner, begun in ((QueueServer(0.002), 32), (QueueServer(0.002, machine=small), 6)):
        searched(tmp_path, runner, server_processes="per-client", arrivals="even", max_clients=32)
        assert next(t.processes for t in runner.ran if t.scenario == "fixed_rate") == begun
    assert max(t.processes for t in runner.ran) > 6  # and goes on from there


@pytest.mark.slow
def test_seeds_of_two_attempts_never_meet(tmp_path):
    question = Question(BASE, 15.0, client_constraints(["p99<40ms"]), "per-client", max_clients=1024)
    first, second = (question.trial(1024, 5.0, attempt, tmp_path).seed for attempt in (0, 1))
    assert first + 1024 <= 16 * 1024 <= second


def test_of_random_arrivals_those_as_many_as_the_rate_says_are_taken(tmp_path):
    def due(trial):
        return sum(1 for _ in takewhile(lambda t: t < 5e9, Server(trial, Plan(trial)).offsets()))

    asked = Question(BASE, 7.0, client_constraints(["p99<40ms"]), "one", "poisson").trial(2, 5.0, 0, tmp_path)
    off = [abs(due(replace(asked, seed=BASE.seed + n)) - 70) for n in range(DRAWS)]
    assert abs(due(asked) - 70) == min(off) < max(off)


def test_one_client_alone_misses(tmp_path):
    search = searched(tmp_path, QueueServer(0.05), "p99<40ms")
    found = search.answer()
    assert found.clients == 0 and found.confirmed is None
    assert found.limit.name == "promise"
    text = sentence_of(found)
    assert text.startswith("Not even one client at 15/s fits: ") and "even one client alone" in text


@pytest.mark.slow
def test_a_run_that_crashes_is_tried_once_more_and_said(tmp_path):
    runner = QueueServer(0.005)
    first = searched(tmp_path / "a", runner).points[0].clients
    flaky = QueueServer(0.005, ends={first * 15.0: [Status.CRASHED]})
    search = searched(tmp_path / "b", flaky)
    whole = searched(tmp_path / "a", QueueServer()).answer()
    assert abs(search.answer().clients - whole.clients) <= 1
    assert any(w.code == "W-CAP-2" and "E-X-1" in w.evidence for w in search.warnings)
    dead = QueueServer(0.005, ends={n * 15.0: [Status.CRASHED] * 9 for n in range(1, 99)})
    found = searched(tmp_path / "c", dead).answer()
    assert found.clients == 0 and found.limit.name == "not known" and "E-X" in found.above.why


def test_memory_that_runs_out_is_the_limit_and_is_not_tried_again(tmp_path):
    ends = {n * 15.0: [Status.OOM] * 3 for n in range(6, 99)}
    runner = QueueServer(0.002, ends=ends)
    found = searched(tmp_path, runner).answer()
    assert found.clients == 5 and found.limit.name == "memory"
    assert len({t.rate for t in runner.ran}) == len([t for t in runner.ran if t.replicate < 100])


def test_what_cannot_run_ends_the_search_at_once(tmp_path):
    runner = QueueServer(ends={0.0: [Status.UNSUPPORTED]})
    search = searched(tmp_path, runner)
    assert not search.points and search.closed.status is Status.UNSUPPORTED
    runner = QueueServer(ends={n * 15.0: [Status.WRONG_OUTPUT] for n in range(1, 99)})
    search = searched(tmp_path / "b", runner)
    assert search.hopeless and len(search.points) == 1


@pytest.mark.slow
def test_an_interrupted_search_resumes_and_repeats_nothing(tmp_path):
    whole = searched(tmp_path, runner := QueueServer(0.005))
    count = len(runner.ran)
    with pytest.raises(KeyboardInterrupt):
        stored(tmp_path, QueueServer(0.005, stop_after=count - 2))
    rest = QueueServer(0.005)
    search, loop = stored(tmp_path, rest)
    assert len(rest.ran) == 2 and (loop.stored, loop.runs) == (count - 2, count)
    assert loop.note.startswith(f"{count - 2} of {count} runs are from the store; --no-cache")
    assert search.answer().clients == whole.answer().clients


def test_too_few_queries_for_a_bound_is_said_and_the_weaker_statement_taken(tmp_path):
    search = searched(tmp_path, QueueServer(0.5), "p99<4s", rate=0.1, max_clients=2)
    found = search.answer()
    assert found.clients == 2 and found.confirmed.weaker and found.confirmed.kept is Compliance.PERHAPS
    assert [w for w in found.warnings if w.code == "W-CAP-1" and " s at 0.2 queries/s" in str(w)]
    assert "too few queries for a bound" in sentence_of(found)


def test_a_confirmation_is_as_long_as_its_bound_needs(tmp_path):
    search = searched(tmp_path, QueueServer(0.005), rate=5.0)
    confirmed = search.answer().confirmed
    assert confirmed.shown and isinstance(confirmed.held[0].bound, Measured)
    assert confirmed.seconds > 31
    assert "not 30: queries that wait together" in sentence_of(search.answer())


def test_a_confirmation_that_fails_steps_down(tmp_path, monkeypatch):
    bracketed = capacity.edge
    monkeypatch.setattr(
        capacity, "edge", lambda tried: replace(bracketed(tried), fits=bracketed(tried).fits + 3)
    )
    search = searched(tmp_path, QueueServer(0.005))
    confirmed = [p for p in search.points if p.stage == "confirm"]
    assert not confirmed[0].shown and confirmed[-1].shown
    assert confirmed[-1].clients < confirmed[0].clients
    assert search.answer().clients == confirmed[-1].clients


def test_a_disturbed_confirmation_is_repeated_and_said(tmp_path):
    noisy = Verdict(Trust.DISTURBED, ("other processes used 60 % of all cores",))
    slow = {"verdict": lambda t: noisy}
    search = searched(tmp_path, QueueServer(0.005, **slow))
    warning = search.answer().warnings[-1]
    assert warning.code == "W-CAP-3" and "60 %" in str(warning)


def test_none_seen_on_a_disturbed_machine_is_no_capacity_that_is_known(tmp_path):
    noisy = Verdict(Trust.DISTURBED, ("other processes used 60 % of all cores",))
    words = []
    for name, how in (("calm", {}), ("disturbed", {"verdict": lambda t: noisy})):
        search = searched(tmp_path / name, QueueServer(0.05, **how), "p99<40ms")
        assert search.answer().clients == 0
        words += [p.word for p in document(search.answer()).parts if isinstance(p, Answer)]
    assert words[0] == "No capacity" and words[1].startswith("None seen")


def test_promises_of_memory_and_power(tmp_path):
    search = searched(tmp_path, QueueServer(0.005), "p99<40ms", "memory<=50MB")
    assert search.answer().clients == 0 and search.answer().above.why.startswith("memory 100 MB > 50 MB")
    runner = QueueServer(0.005)
    with pytest.raises(UnsupportedError, match="E-CAP-1"):
        searched(tmp_path / "b", runner, "power<=5W")
    assert len(runner.ran) == 1


def test_json_holds_every_run(tmp_path):
    search = searched(tmp_path, QueueServer(0.005))
    page = json.loads(json.dumps(to_plain(facts(search.answer()))))
    assert page["clients"] == page["confirmed"]["clients"] and len(page["points"]) == len(search.points)
    assert page["limit"]["name"] == "latency" and page["question"]["constraints"] == ["p99<40ms"]


def test_a_client_that_fares_worse_than_all_together_is_said(tmp_path):
    class Unfair(QueueServer):
        def _worker(self, trial, number):
            rows = super()._worker(trial, number)
            if number == 1 and trial.scenario != "single_stream":
                late = rows["query_id"] % 10 == 0
                rows["done_ns"] = rows["done_ns"] + late * 50_000_000
            return rows

    search = searched(
        tmp_path,
        Unfair(0.005),
        "p95<40ms",
        server_processes="per-client",
        arrivals="even",
        max_clients=12,
        rate=10.0,
    )
    found = search.answer()
    assert found.clients == 12
    worst = [w for w in found.warnings if w.code == "W-CAP-4"]
    assert len(worst) == 1 and "own p95 is 5" in str(worst[0])


class Timed(Quick):
    """Cells on a clock of their own: a run takes its window and 3 s."""

    def __init__(self, runner) -> None:
        super().__init__(runner)
        self.pace, self.now = Pace(), 0.0

    def left(self, trials):
        return self.pace.left(trials)

    def run(self, trial, limit_s=None):
        self.now += trial.max_s + 3.0
        self.pace.add(trial, trial.max_s + 3.0)
        return super().run(trial)


@pytest.mark.parametrize(
    ("service_s", "constraints", "rate"),
    [(0.005, "p99<40ms", 5.0), (0.002, "p99<100ms", 15.0), (0.02, "p99<100ms", 15.0)],
)
@pytest.mark.slow
def test_how_long_the_rest_takes_is_estimated_without_what_nobody_knows_yet(
    tmp_path, service_s, constraints, rate
):
    """How long the confirming run is depends on the answer: its range is told, and the rest never jumps."""
    cells, told = Timed(QueueServer(service_s)), []
    search = a_search(tmp_path, constraints, rate=rate)
    list(Loop(cells, lambda step: told.append((cells.now, step))).run(search.run()))
    (_, first), *rest = told
    assert first.eta_s is None and "30 s to 10 min to confirm" in str(first)
    looks = [(at, step) for at, step in rest if step.stage == "search"]
    begun = next(at for at, step in rest if step.stage == "confirm")
    assert looks and all("30 s to 10 min to confirm" in step.then for _, step in looks)
    for at, step in looks:
        assert 1 / 3 <= step.eta_s / (begun - at) <= 3 or abs(step.eta_s - (begun - at)) <= 30
    for at, step in rest[len(looks) :]:
        ended = next((later for later, _ in told if later > at), cells.now)
        assert step.eta_s == ended - at and step.then == " if it confirms"
