"""Screening, selecting and confirming: order, who goes on, what is run again, what the store knows; and the verb."""

import json
import math
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from edgescope.analysis.cells import alternation, variants
from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.run import summary
from edgescope.cli.main import main
from edgescope.errors import EdgescopeError, Message
from edgescope.isolate.fresh import Limits
from edgescope.records import (
    Absent,
    Alternation,
    Measured,
    Status,
    Trial,
    Trust,
    Turn,
    Verdict,
    Verification,
    Window,
)
from edgescope.report import terminal
from edgescope.report.chapter import chapter
from edgescope.report.variants import document
from edgescope.runner.run import UNJUDGED, ExperimentRunner
from edgescope.runner.setup import Setup
from edgescope.search import candidates
from edgescope.search.loop import Loop, Step
from edgescope.store.results import Store
from edgescope.wings.optimize import cli as verb
from edgescope.wings.optimize import racing
from edgescope.wings.optimize.racing import ENOUGH, GRACE, GRACE_S, LEAST, SHORT_S, Budget
from making import MACHINE, queries, result

US = 1_000
#: Ten variants of one model, baseline first, 1000 us to 190 us.
TRIALS = [
    Trial(model="null", backend=backend, precision=precision)
    for backend in ("torch_eager", "torch_compile", "onnxruntime", "openvino", "null")
    for precision in ("fp32", "int8")
]
TRIALS = [replace(t, turn_s=0.1) for t in TRIALS]
SPEEDS = dict(zip([(t.backend, t.precision) for t in TRIALS], range(1000, 100, -90), strict=True))


@cache
def rows(latency):
    """What is measured of fifty queries of so many nanoseconds: derived once, as a stored result has it."""
    own, window = queries(50, latency), Window(10, 50, 10 * latency, 50 * latency)
    found = summary.metrics(own, window) | {"latency_p50_s": Measured(latency * 1e-9, "s", n=40)}
    return {"queries": own, "window": window, "metrics": found}


class Scripted:
    """A runner whose answers depend on backend and precision: statuses in order, microseconds, other fields."""

    def __init__(self, statuses=(), speeds=(), stop_after=None, **fields) -> None:
        self.statuses = {key: list(answers) for key, answers in dict(statuses).items()}
        self.speeds, self.fields = SPEEDS | dict(speeds), fields
        self.ran: list[Trial] = []
        self.paired: list[tuple[str, str, str, int]] = []
        self.stop_after = stop_after

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            raise KeyboardInterrupt
        key = (trial.backend, trial.precision)
        self.ran.append(trial)
        status = self.statuses.get(key, [])
        latency = self.speeds.get(key, 500) * US
        given = {"status": status.pop(0) if status else Status.OK, "readings": None, **rows(latency)}
        extra = {name: field(trial) for name, field in self.fields.items()}
        return result(trial, id_=f"{trial.id}-{len(self.ran)}-{id(self)}", **(given | extra))

    def pair(self, trials, purpose, limits):
        ends = [self.run(trial, limits) for trial in trials]
        if ends[1].status not in (Status.OK, Status.UNSTABLE):
            return replace(ends[0], status=Status.CANCELLED), ends[1]
        self.paired.append((*self.key(trials[1]), purpose, trials[1].replicate))
        took = [self.speeds.get(self.key(t), 500) * 1e-6 for t in trials]
        turns = [tuple(Turn(b, b, b + 1, 1, t * (1 + b / 1000)) for b in range(3)) for t in took]
        sides = zip(ends, reversed(ends), turns, strict=True)
        a, b = (replace(r, alternation=Alternation(o.id, "", purpose, t, 0.0)) for r, o, t in sides)
        return a, b

    @staticmethod
    def key(trial):
        return trial.backend, trial.precision

    def keys(self, stage):
        """(backend, precision) of what ran short, or of candidates that ran in pairs, in order."""
        if stage != "short":
            return [(b, p) for b, p, purpose, _ in self.paired if stage in (purpose, "pair")]
        return [self.key(t) for t in self.ran if t.max_s <= SHORT_S]


def optimised(tmp_path, runner, trials=TRIALS, asked=None, **budget):
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE)
    return raced(trials, cells, wanted=asked or wanted("latency"), budget=Budget(**budget))


def raced(trials, cells, tell=lambda step: None, **how):
    return list(Loop(cells, tell).run(racing.Race(**how).run(trials)))


class Timed(Scripted):
    """Runs that take fake time: building, starting, and the window."""

    def __init__(self, build=1.0, start=3.0, **keys) -> None:
        super().__init__(**keys)
        self.now, self.build, self.start = 0.0, build, start

    def monotonic(self):
        return self.now

    def prepare(self, trial, limits):
        self.now += self.build
        return None

    def pair(self, trials, purpose, limits):
        self.now -= self.start  # they start together
        stamp = datetime.fromtimestamp(self.now, timezone.utc).isoformat()
        a, b = super().pair(trials, purpose, limits)
        return replace(a, started_at=stamp), replace(b, started_at=stamp)

    def run(self, trial, limits):
        self.now += self.start + trial.max_s
        return super().run(trial, limits)


def budgeted(tmp_path, runner, seconds, tell=lambda step: None, trials=TRIALS):
    trials = [replace(t, min_s=1.0, max_s=1.0, turn_s=0.1) for t in trials]
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, clock=runner.monotonic)
    race = racing.Race(wanted("latency"), Budget(seconds, clock=runner.monotonic))
    return race, list(Loop(cells, tell).run(race.run(trials)))


@pytest.mark.slow
def test_a_tail_that_short_runs_cannot_tell_hides_nobody_who_is_fast(tmp_path):
    """Fifty queries have no p99: the fastest go on, and in pairs the constraint is judged."""
    runner = Scripted()
    optimised(tmp_path, runner, asked=wanted("latency", ["p99<=1s"]))
    fastest = sorted(SPEEDS, key=SPEEDS.get)
    assert runner.keys("selecting")[0] == fastest[0]
    assert set(runner.keys("selecting")) <= set(fastest[:5])


@pytest.mark.slow
def test_the_budget_is_kept_and_what_it_left_out_is_named(tmp_path):
    runner, told = Timed(build=0.2), []
    race, _ = budgeted(tmp_path, runner, 90.0, lambda step: told.append((runner.now, step.eta_s)))
    assert runner.now <= 90.0 - racing.ANSWERS_S
    assert len(runner.keys("confirming")) > LEAST and race.unreached == []
    assert all(abs((runner.now - at) - eta) <= 90 - runner.now + 10.0 for at, eta in told), told
    hurried = Timed(start=6.0)
    race, _ = budgeted(tmp_path / "hurried", hurried, 60.0)
    assert race.unreached and len(race.screened) + len(race.unreached) == len(TRIALS)
    assert len(hurried.keys("confirming")) >= LEAST
    assert {r.trial.backend for r in race.screened} >= {"torch_eager"}


class SlowToCheck(Timed):
    """A runner whose candidates of some kinds take `longer` seconds more to be checked."""

    def __init__(self, *slow, longer=400.0, **keys) -> None:
        super().__init__(**keys)
        self.slow, self.longer = {*slow}, longer

    def stopped(self, trials, limits):
        """Whether a run of these is stopped at its limit, which takes that long; else what it takes."""
        slow = not self.slow.isdisjoint(map(self.key, trials))
        late = slow and limits.timeout_s < self.longer
        self.now += limits.timeout_s if late else self.longer * slow
        return late

    def run(self, trial, limits):
        late = trial.turn_s is None and self.stopped([trial], limits)
        return self.timeout(trial) if late else super().run(trial, limits)

    def pair(self, trials, purpose, limits):
        if self.stopped(trials, limits):
            return result(trials[0], id_="checked first"), self.timeout(trials[1])
        return super().pair(trials, purpose, limits)

    @staticmethod
    def timeout(trial):
        return result(trial, id_=f"stopped-{trial.id}", status=Status.TIMEOUT)


@pytest.mark.slow
def test_a_candidate_whose_check_takes_minutes_is_stopped_and_named_and_not_kept(tmp_path):
    slow = Scripted.key(racing.in_order(TRIALS, 0)[-1])
    runner = SlowToCheck(slow, build=0.2, start=0.5)
    race, results = budgeted(tmp_path, runner, 90.0)
    assert runner.now <= 90.0 and len(runner.keys("confirming")) >= LEAST
    assert [Scripted.key(t) for t in race.unreached] == [slow]
    assert all(Scripted.key(r.trial) != slow for r in Store(tmp_path).results())
    assert [r.status for r in results if Scripted.key(r.trial) == slow] == [Status.CANCELLED]


def test_before_a_candidate_stands_each_has_half_of_twice_the_budget_and_the_last_the_rest(tmp_path):
    """Without one that stands there is no answer; the baseline has all the time that a trial may take."""
    told, trials = [], TRIALS[:3]
    _, slow, other = racing.in_order(trials, 0)
    runner = SlowToCheck(Scripted.key(slow), build=0.2)
    race, _ = budgeted(tmp_path, runner, 90.0, told.append, trials)
    short = [step.limit_s for step in told if step.stage == "short"]
    assert short[0] == math.inf and 80 < short[1] < GRACE * 90 / 2 and 80 < short[2] < GRACE * 90 - short[1]
    assert [Scripted.key(t) for t in race.unreached] == [Scripted.key(slow)]
    assert runner.keys("confirming") == [Scripted.key(other)] * LEAST and runner.now < GRACE * 90


def test_nothing_is_screened_once_twice_the_budget_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "SMALL_S", 0.0)  # settings by hand come last
    trials, told = [TRIALS[0], TRIALS[4], TRIALS[6]], []
    runner = SlowToCheck(*map(Scripted.key, trials[1:]), build=0.2)
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, clock=runner.monotonic)
    budget = Budget(90.0, clock=runner.monotonic)
    race = racing.Race(wanted("latency"), budget, by_hand=one_thread)
    list(Loop(cells, told.append).run(race.run(trials)))
    assert [step.stage for step in told] == ["short"] * 3 + ["confirming"]
    assert race.unreached == [*trials[1:], *one_thread(trials[0])]


@pytest.mark.parametrize(("seconds", "until"), [(90.0, GRACE * 90), (9.0, GRACE_S), (None, None)])
def test_a_pair_is_stopped_when_twice_the_budget_is_gone_and_the_baseline_runs_alone(
    tmp_path, seconds, until
):
    """Without a budget nothing is stopped."""
    runner = SlowToCheck(Scripted.key(TRIALS[1]), build=0.2)
    race, results = budgeted(tmp_path, runner, seconds, trials=TRIALS[:2])
    kept = [Scripted.key(r.trial) for r in Store(tmp_path).results()]
    if until is None:
        assert runner.now > ENOUGH * 400 and race.unreached == [] and len(kept) == 2 * ENOUGH
        return
    assert until <= runner.now <= until + 10
    assert [Scripted.key(t) for t in race.unreached] == [Scripted.key(TRIALS[1])]
    assert kept == [Scripted.key(TRIALS[0])]
    assert [r.status for r in results] == [Status.CANCELLED, Status.CANCELLED, Status.OK]


def test_pairs_that_take_a_third_of_the_budget_end_with_twice_the_budget(tmp_path):
    """What they say stands, though they are fewer than usual."""
    runner = SlowToCheck(Scripted.key(TRIALS[1]), longer=60.0, build=0.2)
    race, results = budgeted(tmp_path, runner, 90.0, trials=TRIALS[:2])
    assert runner.now <= GRACE * 90 and 0 < len(runner.keys("confirming")) < LEAST
    assert race.unreached == [] and all(r.status is Status.OK for r in results)
    assert variants.table(results).rows[-1].pairs


def test_a_side_alone_is_stopped_where_no_turns_can_be_taken(tmp_path):
    class Alone(SlowToCheck):
        pair = None  # not an Alternates

    trials = [replace(t, turn_s=None) for t in TRIALS[:2]]
    for slow in trials:
        runner = Alone(Scripted.key(slow), build=0.2)
        cells = ExperimentRunner(
            Store(tmp_path / slow.precision), Limits(), runner, MACHINE, say=lambda line: None
        )
        first, second = cells.run_pair(*trials, alternation.CONFIRMING, 30.0)
        ends = {first.trial.id: first.status, second.trial.id: second.status}
        assert ends.pop(slow.id) is Status.CANCELLED and set(ends.values()) == {Status.OK}


def one_thread(trial):
    """The settings to try by hand of the baseline alone."""
    return (
        [replace(trial, options={"threads": 1})]
        if trial.backend == "torch_eager" and not trial.options
        else []
    )


@pytest.mark.slow
def test_a_look_stands_for_the_baselines_short_run_where_building_took_long(tmp_path):
    trials = [replace(t, min_s=1.0, max_s=1.0, turn_s=0.1) for t in TRIALS]
    look = result(trials[0], id_="look", **rows(1000 * US))
    for build_s, looked in ((5.0, False), (30.0, True)):
        runner = Timed(build=0.0, start=0.2)
        runner.now = build_s
        cells = ExperimentRunner(
            Store(tmp_path / str(build_s)), Limits(), runner, MACHINE, clock=runner.monotonic
        )
        budget = Budget(90.0, begun=0.0, clock=runner.monotonic)
        race = racing.Race(wanted("latency"), budget, look=look, by_hand=one_thread)
        results = list(Loop(cells).run(race.run(list(trials))))
        of_baseline = [
            t for t in runner.ran if t.max_s <= SHORT_S and runner.key(t) == ("torch_eager", "fp32")
        ]
        assert of_baseline[-1].options and of_baseline[-1] in runner.ran[:2]  # a small network: at once
        assert (len(of_baseline) == 1) is looked
        stood = [r for r in cells.store.results() if UNJUDGED in r.warnings]
        assert [r.id for r in stood] == [race.screened[0].id] * looked
        assert race.screened[0].trial.label == trials[0].label
        tried = [r.trial.label for r in race.screened if r.trial.backend != "torch_eager"]
        row = variants.pick(variants.table(results)).row
        if looked:  # one candidate whose outputs are right is enough
            assert tried == [row.label] and {t.label for t in race.unreached} >= {"null int8 b1"}
        else:
            assert row.label == "null int8 b1" and row["speedup"].value == pytest.approx(1000 / 190)


@pytest.mark.slow
def test_one_that_goes_on_after_it_was_killed_screens_as_usual(tmp_path):
    """Its budget is partly gone, but not because building took long: it has no look."""
    runner = Timed(build=0.0, start=0.2)
    runner.now = 30.0  # of 90: more than BUILT_BY, less than SCREENED_BY
    trials = [replace(t, min_s=1.0, max_s=1.0, turn_s=0.1) for t in TRIALS]
    race = racing.Race(wanted("latency"), Budget(90.0, begun=0.0, clock=runner.monotonic))
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, clock=runner.monotonic)
    results = list(Loop(cells).run(race.run(list(trials))))
    assert variants.pick(variants.table(results)).row.label == "null int8 b1"
    assert len({r.trial.backend for r in race.screened}) > 2


def test_the_runner_is_told_what_comes_before_anything_is_built(tmp_path):
    """Of a pair, both sides; it gets ready for them while something is built."""
    told = []

    class Told:
        def expect(self, trials):
            told.append(list(trials))

        def prepare(self, trial, limits):
            told.append("built")

        def run(self, trial, limits):
            return result(trial, id_=f"{trial.id}-{len(told)}")

    def steps():
        base, first, second = TRIALS[:3]
        yield Step(stage="short", trial=base, what="", ahead=[first])
        yield Step(
            stage="confirming", trial=first, beside=base, purpose="confirming", what="", ahead=[second]
        )

    list(Loop(ExperimentRunner(Store(tmp_path), Limits(), Told(), MACHINE)).run(steps()))
    base, first, second = TRIALS[:3]
    assert told[0] == [base, first] and told[1] == "built" and [base, first, second] in told


@pytest.mark.slow
def test_a_look_is_kept_where_nothing_is_screened_too_and_once(tmp_path):
    """The pairs may be forked, and a forked process does not show what it takes."""
    trials = [replace(t, min_s=1.0, max_s=1.0, turn_s=0.1) for t in TRIALS[:2]]
    look = result(trials[0], id_="look", **rows(1000 * US))
    kept = []
    for _ in range(2):
        race = racing.Race(wanted("latency"), Budget(90.0), look=look)
        results = list(
            Loop(ExperimentRunner(Store(tmp_path), Limits(), Scripted(), MACHINE)).run(race.run(list(trials)))
        )
        assert results[0].trial == racing.short(trials[0], 0) and UNJUDGED in results[0].warnings
        kept.append(results[0].id)
    assert kept[0] == kept[1] != "look"


def test_a_baseline_that_fails_after_its_look_stops_the_run(tmp_path):
    runner = Scripted(statuses={("torch_eager", "fp32"): [Status.WRONG_OUTPUT]})
    race = racing.Race(wanted("latency"), Budget(90.0, begun=-60.0, clock=lambda: 0.0))
    race.look = result(TRIALS[0], id_="look", **rows(1000 * US))
    with pytest.raises(EdgescopeError, match=r"E-OPTIM-1: .*: torch_eager fp32 b1, wrong_output"):
        list(Loop(ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE)).run(race.run(list(TRIALS))))


def test_a_short_run_is_no_longer_than_the_turns_of_a_process():
    paired, alone = (
        Trial(model="null", turn_s=0.05, min_s=0.4, max_s=0.4),
        Trial(model="null", min_s=0.9, max_s=0.9),
    )
    assert [racing.short(t, 0).max_s for t in (paired, alone)] == [0.4, pytest.approx(0.3)]
    assert racing.short(replace(paired, max_s=30.0), 0).max_s == SHORT_S


@pytest.mark.slow
def test_the_last_pair_leaves_time_to_tell_the_answer(tmp_path):
    for seconds in range(80, 90):  # wherever in a pair the budget ends
        runner = Timed(build=0.2)
        budgeted(tmp_path / str(seconds), runner, float(seconds))
        assert seconds - 15 < runner.now <= seconds - racing.ANSWERS_S


@pytest.mark.slow
def test_a_pair_that_takes_longer_than_those_before_it_keeps_the_budget_too(tmp_path):
    class Slowing(Timed):
        def pair(self, trials, purpose, limits):
            self.start *= racing.LONGER  # of a whole pair it is less
            return super().pair(trials, purpose, limits)

    for seconds in range(80, 90):
        runner = Slowing(build=0.2)
        budgeted(tmp_path / str(seconds), runner, float(seconds))
        assert runner.now <= seconds - racing.ANSWERS_S


@pytest.mark.slow
def test_other_engines_are_tried_before_the_baselines_own_with_other_settings(tmp_path):
    first = Trial(model="null", backend="torch_eager", turn_s=0.1)
    own = [replace(first, precision=p, options={"layout": "channels_last"}) for p in ("fp32", "bf16")]
    others = [replace(first, backend=b, precision=p) for b in ("openvino", "null") for p in ("fp32", "int8")]
    runner = Scripted()
    optimised(tmp_path, runner, [first, *own, *others])
    keys = runner.keys("short")[:7]
    assert [p for _, p in keys] == ["fp32", "int8", "int8", "fp32", "fp32", "bf16", "fp32"]
    assert [b == "torch_eager" for b, _ in keys] == [True, False, False, False, False, True, True]


@pytest.mark.slow
def test_a_first_pair_that_took_long_does_not_keep_later_ones_from_running(tmp_path):
    """What the processes import is imported in the first pairs: the last ones say how long another takes."""

    class Warming(Timed):
        def pair(self, trials, purpose, limits):
            self.speeds[("null", "int8")] = 190 * (1 + 0.2 * (trials[1].replicate % 2))  # never decided
            first = trials[1].replicate == 0 or (purpose == "confirming" and not self.keys("confirming"))
            self.start = 20.0 if first else 3.0
            return super().pair(trials, purpose, limits)

    runner = Warming(build=0.2)
    budgeted(tmp_path, runner, 150.0)
    assert 150 - 12 < runner.now <= 150 - racing.ANSWERS_S


@pytest.mark.slow
def test_a_session_spends_what_earlier_ones_left_and_stored_steps_cost_nothing(tmp_path):
    trials = [replace(t, min_s=1.0, max_s=1.0, turn_s=0.1) for t in TRIALS]

    def go(runner, spent):
        cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, clock=runner.monotonic)
        loop = Loop(cells)
        known = lambda step: loop.known(step) is not None  # noqa: E731
        budget = Budget(90.0, begun=-spent, clock=runner.monotonic, known=known)
        return list(loop.run(racing.Race(wanted("latency"), budget).run(trials)))

    first, again = Timed(), Timed()
    ran = go(first, 0.0)
    assert [r.id for r in go(again, 90.0)] == [r.id for r in ran] and again.ran == []
    longer = Timed()
    assert len(go(longer, 40.0)) > len(ran) and set(longer.keys("pair")) == {("null", "int8")}


@pytest.mark.slow
def test_one_that_goes_on_after_twice_the_budget_starts_no_pair(tmp_path):
    def go(runner, spent):
        loop = Loop(ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE))
        known = lambda step: loop.known(step) is not None  # noqa: E731
        budget = Budget(90.0, begun=-spent, clock=lambda: 0.0, known=known)
        return list(loop.run(racing.Race(wanted("latency"), budget).run(list(TRIALS))))

    with pytest.raises(KeyboardInterrupt):
        go(Scripted(stop_after=len(TRIALS)), 0.0)
    late, longer = Scripted(), Scripted()
    assert len(go(late, GRACE * 90 + 1)) == len(TRIALS) and late.ran == []
    assert go(longer, 89.0) and len(longer.keys("confirming")) == LEAST


@pytest.mark.slow
def test_all_are_screened_and_the_best_are_paired_with_the_baseline(tmp_path):
    runner = Scripted()
    results = optimised(tmp_path, runner)
    assert sorted(runner.keys("short")) == sorted(SPEEDS)
    best = sorted(SPEEDS, key=SPEEDS.get)
    assert set(runner.keys("selecting")) == set(best[:4])  # a third of ten, rounded up
    assert set(runner.keys("confirming")) == {best[0]} and len(runner.keys("confirming")) == ENOUGH
    found = variants.table(results)
    row = variants.pick(found).row
    assert row.label == "null int8 b1" and row.pairs == f"{ENOUGH} pairs in turns"
    assert row["speedup"].value == pytest.approx(1000 / SPEEDS[best[0]])
    assert len(found.screened) == 5


def by_hand(trial):
    return [] if trial.options else [replace(trial, options={"threads": 1})]


@pytest.mark.slow
def test_the_best_and_the_baseline_are_tried_with_what_an_expert_would_set(tmp_path):
    slow = {key: 100 * took for key, took in SPEEDS.items()}  # no small network
    runner = Scripted(speeds=slow)
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE)
    raced(TRIALS, cells, by_hand=by_hand)
    shorts = [(t.backend, t.precision, t.options) for t in runner.ran if t.max_s <= SHORT_S]
    one = {"threads": 1}
    assert shorts[-4:-2] == [("null", "int8", one), ("torch_eager", "fp32", one)] and len(shorts) == 12
    assert {backend for backend, *_ in shorts[-2:]} == {"torch_compile"}


@pytest.mark.parametrize("slower", [1.0, 1.5])
@pytest.mark.slow
def test_of_a_small_network_one_thread_is_tried_at_once_and_where_it_does_not_harm(tmp_path, slower):
    class Threads(Scripted):
        def run(self, trial, limits):
            one = rows(round(self.speeds[self.key(trial)] * (slower if trial.options else 1) * US))
            self.fields = {"metrics": lambda trial: one["metrics"]}
            return super().run(trial, limits)

    runner = Threads()
    raced(TRIALS, ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE), by_hand=by_hand)
    shorts = [(runner.key(t), t.options.get("threads")) for t in runner.ran if t.max_s <= SHORT_S]
    assert shorts[:2] == [(("torch_eager", "fp32"), None), (("torch_eager", "fp32"), 1)]
    assert (shorts[3] == (shorts[2][0], 1)) is (slower == 1.0)
    fastest = min(SPEEDS, key=SPEEDS.get)
    followed = [after == (fastest, 1) for key, after in pairwise(shorts) if key == (fastest, None)]
    assert followed == [slower == 1.0]


class Unlucky(Timed):
    """One thread of `null` is twice as fast in turns; its short run says a tenth of the speed."""

    def took(self, trial, factor):
        one = trial.options.get("threads") == 1 and trial.backend == "null"
        return self.speeds[self.key(trial)] * (factor if one else 1.0)

    def run(self, trial, limits):
        found = rows(round(self.took(trial, 10.0) * US))
        self.fields = {"metrics": lambda trial: found["metrics"]}
        return super().run(trial, limits)

    def pair(self, trials, purpose, limits):
        usual = self.speeds
        self.speeds = usual | {self.key(trials[1]): self.took(trials[1], 0.5)}
        found = super().pair(trials, purpose, limits)
        self.speeds = usual
        return found


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.slow
def test_one_thread_of_a_small_pick_is_held_against_it_in_turns(tmp_path, small):
    speeds = SPEEDS if small else {key: 100 * took for key, took in SPEEDS.items()}
    cells = ExperimentRunner(Store(tmp_path), Limits(), Unlucky(speeds=speeds), MACHINE)
    found = variants.table(raced(TRIALS, cells, by_hand=by_hand))
    picked = variants.pick(found).row
    assert (picked.trial.options == {"threads": 1}) is small


@pytest.mark.parametrize(("seconds", "selecting", "held"), [(195.0, 3, True), (90.0, 1, False)])
@pytest.mark.slow
def test_it_is_held_against_it_only_while_confirming_has_its_time(tmp_path, seconds, selecting, held):
    runner = Unlucky(start=10.0)
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, clock=runner.monotonic)
    race = racing.Race(wanted("latency"), Budget(seconds, clock=runner.monotonic), by_hand=by_hand)
    results = list(Loop(cells).run(race.run([replace(t, min_s=1.0, max_s=1.0, turn_s=0.1) for t in TRIALS])))
    assert len(runner.keys("selecting")) == selecting and len(runner.keys("confirming")) >= LEAST
    assert (variants.pick(variants.table(results)).row.trial.options == {"threads": 1}) is held


def test_a_budget_that_ends_early_has_tried_more_than_the_baselines_own_settings(tmp_path):
    runner = Timed(start=6.0)
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, clock=runner.monotonic)
    race = racing.Race(wanted("latency"), Budget(20.0, clock=runner.monotonic), by_hand=by_hand)
    list(Loop(cells).run(race.run(TRIALS)))
    assert {t.backend for t in runner.ran} > {"torch_eager"}


@pytest.mark.slow
def test_the_picks_figure_is_of_pairs_that_did_not_choose_it(tmp_path):
    """The selecting pairs favour one by luck; its speed-up does not contain that."""
    lucky, steady = ("null", "int8"), ("null", "fp32")

    runner = Lucky(lucky, then=225, speeds={lucky: 200, steady: 205})
    found = variants.table(optimised(tmp_path, runner))
    row = variants.pick(found).row
    assert row.label == "null int8 b1" and row["speedup"].value == pytest.approx(1000 / 225)
    assert [key for *key, purpose, _ in runner.paired if purpose == "confirming"] == [[*lucky]] * ENOUGH


class Lucky(Scripted):
    """One variant is fast in the pairs that choose, and takes `then` microseconds in those that confirm."""

    def __init__(self, who, then, **keys):
        super().__init__(**keys)
        self.who, self.then = who, then

    def pair(self, trials, purpose, limits):
        self.speeds[self.who] = 190 if purpose == "selecting" else self.then
        return super().pair(trials, purpose, limits)


class LuckyTimed(Lucky, Timed):
    """The same in fake time."""


LUCKY, STEADY = ("null", "int8"), ("null", "fp32")


def confirmed(runner):
    return [tuple(key) for *key, purpose, _ in runner.paired if purpose == "confirming"]


@pytest.mark.slow
def test_a_rival_that_turns_out_clearly_ahead_is_confirmed_too(tmp_path):
    """Selecting pairs chose a lucky one: LEAST confirming pairs later its rival is a fifth ahead."""
    runner = Lucky(LUCKY, then=250, speeds={LUCKY: 200, STEADY: 205})
    found = optimised(tmp_path, runner)
    assert confirmed(runner) == [LUCKY] * LEAST + [STEADY] * ENOUGH
    assert variants.pick(variants.table(found)).row.label == "null fp32 b1"


@pytest.mark.parametrize(("seconds", "both"), [(70.0, False), (100.0, True)])
@pytest.mark.slow
def test_a_rival_is_confirmed_only_where_there_is_time_for_it(tmp_path, seconds, both):
    runner = LuckyTimed(LUCKY, then=250, speeds={LUCKY: 200, STEADY: 205})
    _, found = budgeted(tmp_path, runner, seconds)
    assert (STEADY in confirmed(runner)) is both and runner.now <= seconds
    label = "null fp32 b1" if both else "null int8 b1"
    assert variants.pick(variants.table(found)).row.label == label


@pytest.mark.slow
def test_of_two_that_were_lucky_the_better_one_by_confirming_pairs_is_the_pick(tmp_path):
    """Each is confirmed once: who was overtaken does not come back for more."""

    class Both(Lucky):
        def pair(self, trials, purpose, limits):
            self.speeds[STEADY] = 205 if purpose == "selecting" else 320
            return super().pair(trials, purpose, limits)

    runner = Both(LUCKY, then=250, speeds={LUCKY: 200, STEADY: 205})
    found = optimised(tmp_path, runner)
    assert confirmed(runner) == [LUCKY] * LEAST + [STEADY] * ENOUGH
    assert variants.pick(variants.table(found)).row.label == "null int8 b1"


@pytest.mark.slow
@pytest.mark.parametrize(("behind", "rounds"), [(1.02, 5), (1.07, 3), (1.15, 2), (1.25, 1)])
def test_a_rival_that_is_clearly_behind_runs_no_more(tmp_path, behind, rounds):
    best, other = ("null", "int8"), ("null", "fp32")
    runner = Scripted(speeds={best: 200, other: round(200 * behind)})
    optimised(tmp_path, runner, exhaustive=True)
    assert runner.keys("selecting").count(other) == rounds
    assert set(runner.keys("confirming")) == {best}


@pytest.mark.slow
def test_pairs_go_on_until_the_interval_is_narrow(tmp_path):
    class Noisy(Timed):
        def pair(self, trials, purpose, limits):
            self.speeds[("null", "int8")] = 190 * (1 + 0.2 * (trials[1].replicate % 2))
            return super().pair(trials, purpose, limits)

    noisy, sure = Noisy(start=1.0), Timed(start=1.0)
    for runner in (noisy, sure):
        budgeted(tmp_path / str(id(runner)), runner, 200.0)
    assert ENOUGH <= len(sure.keys("confirming")) < len(noisy.keys("confirming"))


def test_where_no_turns_can_be_taken_they_run_one_after_the_other(tmp_path):
    class Alone(Scripted):
        pair = None

    said = []
    runner = Scripted()
    trials = [replace(t, turn_s=None) for t in TRIALS[:3]]
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, say=said.append)
    found = variants.table(raced(trials, cells))
    row = variants.pick(found).row
    assert runner.paired == [] and row.pairs == f"{ENOUGH} of {ENOUGH} pairs"
    assert any("I-PAIR-2" in text and "no meter tells" in text for text in said)


@pytest.mark.slow
def test_dear_candidates_are_screened_last(tmp_path):
    runner = Scripted(speeds={("torch_compile", "int8"): 150})
    optimised(tmp_path, runner)
    assert {k[0] for k in runner.keys("short")[-2:]} == {"torch_compile"}
    assert ("torch_compile", "int8") in runner.keys("confirming")


def mixed(trial):
    from dataclasses import replace

    if trial.precision != "int8" or trial.options:
        return None
    return replace(trial, options={"fallback": True})


WRONG = {"status": Status.WRONG_OUTPUT}
UNQUANTISED = {"status": Status.UNSUPPORTED, "reason": Message("E-INT8-3", "the quantiser failed")}


@pytest.mark.slow
@pytest.mark.parametrize("failed", [WRONG, UNQUANTISED], ids=["wrong", "quantiser failed"])
@pytest.mark.parametrize("exhaustive", [False, True])
def test_the_mixture_is_tried_once_where_int8_fails(tmp_path, exhaustive, failed):
    class Mixture(Scripted):
        def run(self, trial, limits):
            if trial.precision == "int8" and trial.backend in ("null", "openvino") and not trial.options:
                self.ran.append(trial)
                return result(trial, **failed)
            return super().run(trial, limits)

    def go(runner):
        cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE)
        return raced(TRIALS, cells, budget=Budget(exhaustive=exhaustive), instead=mixed)

    runner = Mixture()
    found = variants.table(go(runner))
    tried = [(t.backend, t.replicate, t.max_s <= SHORT_S) for t in runner.ran if t.options]
    assert {name for name, *_ in tried} == {"null", "openvino"}
    assert len(set(tried)) == len(tried)
    assert variants.pick(found).row.label == "null int8 b1 fallback=true"
    again = Mixture()
    go(again)
    assert again.ran == []


@pytest.mark.parametrize("failed", [WRONG, UNQUANTISED], ids=["wrong", "quantiser failed"])
def test_the_mixture_of_an_only_candidate_is_tried_too(tmp_path, failed):
    class Mixture(Scripted):
        def run(self, trial, limits):
            wrong = trial.precision == "int8" and not trial.options
            return result(trial, **failed) if wrong else super().run(trial, limits)

    cells = ExperimentRunner(Store(tmp_path), Limits(), Mixture(), MACHINE)
    found = variants.table(raced(TRIALS[:2], cells, instead=mixed))
    assert variants.pick(found).row.label == "torch_eager int8 b1 fallback=true"


@pytest.mark.parametrize("stage", ["short", "pair"])
def test_without_a_baseline_nothing_goes_on(tmp_path, stage):
    base = ("torch_eager", "fp32")
    runner = Scripted({base: [Status.OK] * (stage == "pair") + [Status.CRASHED]})
    said = r"E-OPTIM-1: the baseline failed: torch_eager fp32 b1, crashed.*--retry crashed"
    with pytest.raises(EdgescopeError, match=said) as raised:
        optimised(tmp_path, runner)
    assert raised.value.exit_code == 1
    assert (runner.ran[-2 if stage == "pair" else -1].backend) == base[0]


@pytest.mark.slow
def test_rejected_rows_say_how_to_measure_them_again(tmp_path, capsys):
    ends = {("null", "int8"): [Status.TIMEOUT], ("null", "fp32"): [Status.OOM], ("openvino", "int8"): []}
    ends[("onnxruntime", "int8")] = [Status.WRONG_OUTPUT]
    ends[("openvino", "int8")] = [Status.OK, Status.OK, Status.CRASHED]
    found = chapter(optimised(tmp_path, Scripted(ends)))
    assert verb.again(found.table) == ["timeout", "crashed", "oom"]
    terminal.show(document([found], again=verb.again(found.table)), verbose=True)
    assert capsys.readouterr().out.count("measure again: --retry timeout,crashed,oom\n") == 1
    fine = variants.table(optimised(tmp_path / "fine", Scripted()))
    assert verb.again(fine) == []


@pytest.mark.slow
def test_what_cannot_be_told_from_the_best_goes_on(tmp_path):
    tied = {k: 200 for k in list(SPEEDS)[3:]}
    runner = Scripted(speeds=tied)
    optimised(tmp_path, runner)
    assert set(runner.keys("selecting")) == {*tied}


@pytest.mark.slow
def test_one_that_the_machine_disturbed_is_given_the_benefit_of_the_doubt(tmp_path):
    slow = ("openvino", "int8")
    speeds = {k: 1000 for k in SPEEDS} | {("null", "int8"): 100, slow: 120}
    speeds |= {k: 101 for k in list(SPEEDS)[2:5]}

    def verdict(trial):
        hit = (trial.backend, trial.precision) == slow
        return Verdict(Trust.DISTURBED if hit else Trust.CLEAN, ("other processes used 40 %",))

    plain, patient = Scripted(speeds=speeds), Scripted(speeds=speeds, verdict=verdict)
    for runner in (plain, patient):
        optimised(tmp_path / str(id(runner)), runner)
    assert slow not in plain.keys("pair") and slow in patient.keys("pair")


@pytest.mark.slow
def test_what_fails_leaves_at_once(tmp_path):
    gone = {("null", "int8"): [Status.WRONG_OUTPUT], ("null", "fp32"): [Status.UNSUPPORTED]}
    runner = Scripted(gone)
    optimised(tmp_path, runner)
    assert all([(t.backend, t.precision) for t in runner.ran].count(key) == 1 for key in gone)


@pytest.mark.slow
def test_a_rival_that_fails_leaves_the_pairs(tmp_path):
    runner = Scripted({("null", "int8"): [Status.OK, Status.CRASHED]})
    found = variants.table(optimised(tmp_path, runner))
    assert [t for t in runner.ran if runner.key(t) == ("null", "int8")][2:] == []
    assert variants.pick(found).row.label == "null fp32 b1"


@pytest.mark.slow
def test_an_unstable_run_is_neither_drawn_again_nor_left_out(tmp_path):
    best = ("null", "int8")
    runner = Scripted({best: [Status.UNSTABLE, Status.OK, Status.UNSTABLE, Status.UNSTABLE]})
    found = optimised(tmp_path, runner)
    assert runner.keys("short").count(best) == 1
    pick = variants.pick(variants.table(found)).row
    assert pick.label == "null int8 b1" and pick.pairs == f"{ENOUGH} pairs in turns"
    assert pick.notes == (f"null int8 b1: 2 of {ENOUGH + 1} replicates unstable; they count",)
    again = Scripted()
    optimised(tmp_path, again)
    assert again.ran == []


def test_few_candidates_are_not_screened(tmp_path):
    runner = Scripted()
    optimised(tmp_path, runner, TRIALS[:2])
    assert runner.keys("short") == [] and len(runner.keys("confirming")) == ENOUGH


def test_a_baseline_whose_only_rival_fails_is_measured_alone(tmp_path):
    runner = Scripted({Scripted.key(TRIALS[1]): [Status.CRASHED]})
    optimised(tmp_path, runner, TRIALS[:2])
    assert [Scripted.key(t) for t in runner.ran[2:]] == [Scripted.key(TRIALS[0])] * LEAST


def test_a_baseline_alone_is_measured_alone(tmp_path):
    runner = Scripted()
    found = optimised(tmp_path, runner, TRIALS[:1])
    assert runner.paired == [] and len(found) == LEAST


@pytest.mark.slow
def test_exhaustive_means_every_candidate_in_pairs(tmp_path):
    runner = Scripted()
    optimised(tmp_path, runner, exhaustive=True)
    assert runner.keys("short") == []
    assert {k for k in SPEEDS if k != ("torch_eager", "fp32")} == set(runner.keys("selecting"))


@pytest.mark.slow
def test_a_second_call_runs_nothing(tmp_path):
    first = optimised(tmp_path, Scripted())
    again = Scripted()
    second = optimised(tmp_path, again)
    assert again.ran == []
    assert [r.id for r in second] == [r.id for r in first]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [0, 7, 10, 12, 18, 19, 24])
def test_a_killed_run_goes_on_where_it_was(tmp_path, stop):
    whole, cut, rest = Scripted(), Scripted(stop_after=stop), Scripted()
    optimised(tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt):
        optimised(tmp_path / "cut", cut)
    optimised(tmp_path / "cut", rest)
    assert rest.ran and cut.paired + rest.paired == whole.paired  # a pair that was cut runs anew


@pytest.mark.slow
def test_one_that_breaks_a_constraint_does_not_take_a_finalists_place(tmp_path):
    def metrics(trial):
        key = (trial.backend, trial.precision)
        big = 5e9 if key == ("null", "int8") else 1e8
        p50 = Measured(SPEEDS[key] * 1e-6, "s", n=40)
        return {"latency_p50_s": p50, "peak_rss_bytes": Measured(big, "bytes")}

    asked = wanted("latency", ["memory<=2GB"])
    runner = Scripted(metrics=metrics)
    found = variants.table(optimised(tmp_path, runner, asked=asked), wanted=asked)
    assert ("null", "int8") not in runner.keys("pair")
    assert variants.pick(found).row.label == "null fp32 b1"
    none = Scripted(metrics=metrics)
    asked = wanted("latency", ["memory<=50MB"])
    found = variants.table(optimised(tmp_path / "none", none, asked=asked), wanted=asked)
    best = variants.pick(found)
    assert none.keys("pair") and best.row is None and best.nearest is not None
    assert str(best.reason).startswith("infeasible: no variant") and "memory<=50MB broken: 100 MB" in str(
        best.reason
    )


def test_without_the_objectives_figure_no_pair_is_run(tmp_path):
    runner = Scripted(metrics=lambda trial: {"energy_per_sample_j": Absent("no sensor")})
    found = variants.table(optimised(tmp_path, runner, asked=wanted("energy")))
    assert len(runner.ran) == len(TRIALS)
    best = variants.pick(found, "energy")
    assert best.row is None and "no sensor" in str(best.reason)


@pytest.mark.slow
def test_progress_counts_rounds(tmp_path):
    steps = []
    cells = ExperimentRunner(Store(tmp_path), Limits(), Scripted(), MACHINE)
    raced(TRIALS, cells, tell=steps.append)
    counts = {("short", 0): 10, ("selecting", 1): 4, ("confirming", 0): ENOUGH}
    assert [(s.stage, s.round) for s in steps] == [key for key, n in counts.items() for _ in range(n)]
    assert steps[0].eta_s is None and all(s.eta_s >= 0 for s in steps[2:])
    totals = [s.total for s in steps if s.stage == "short"]
    assert totals[0] == 0 and totals[-1] == 10, "what the best calls for is known after the settings by hand"
    assert steps[-1].position == ENOUGH


def quick(monkeypatch, runner):
    monkeypatch.setattr(candidates, "installed", dict)  # asking the engines takes seconds
    monkeypatch.setattr(
        Setup, "cells", lambda self, store: ExperimentRunner(store, Limits(), runner, MACHINE)
    )


def test_nothing_to_recommend_exits_1(tmp_path, monkeypatch, capsys):
    wrong = Verification(False, "centred_l2", {}, 0.1, "outputs differ by 3.0")

    class Wrong(Scripted):
        def run(self, trial, limits):
            return result(trial, status=Status.WRONG_OUTPUT, verification=wrong)

    quick(monkeypatch, Wrong())
    assert main(["optimize", "squeezenet1_1", "--budget", "9s", "--store", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "E-OPTIM-1" in said
    assert "outputs differ by 3.0" in said and "--retry wrong_output" in said


@pytest.mark.slow
def test_the_verb_compares_with_its_look_at_the_baseline_where_building_took_long(
    tmp_path, monkeypatch, capsys
):
    class Looking(Scripted):
        def look(self, trial, limits, meanwhile):
            return result(trial, id_="look", **rows(1500 * US))

    runner = Looking()
    quick(monkeypatch, runner)
    monkeypatch.setattr(racing, "BUILT_BY", -1.0)
    flags = ["--budget", "9s", "--store", str(tmp_path), "--backend", "openvino", "--device", "cpu"]
    assert main(["optimize", "squeezenet1_1", *flags, "--precision", "fp32", "--precision", "int8"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    shorts = {(t.backend, t.precision) for t in runner.ran if t.max_s <= SHORT_S and not t.options}
    assert shorts == {("openvino", "int8")}  # the baseline has its own with other threads only
    ratio = 1500 / SPEEDS["openvino", "int8"]
    assert "1.5 ms at first look" in said and f"roughly {ratio:.2g}x" in said


@pytest.mark.slow
def test_a_candidate_that_was_stopped_is_not_tried_and_has_no_row(tmp_path, monkeypatch, capsys):
    class Stopped(Scripted):
        def run(self, trial, limits):
            found = super().run(trial, limits)
            slow = limits.timeout_s < Limits().timeout_s and "qdq" in trial.options
            return replace(found, status=Status.TIMEOUT) if slow else found

    quick(monkeypatch, Stopped())
    flags = ["--budget", "60s", "--store", str(tmp_path), "--device", "cpu", "--json"]
    flags += [
        "--backend",
        "onnxruntime",
        "--backend",
        "openvino",
        "--precision",
        "fp32",
        "--precision",
        "int8",
    ]
    assert main(["optimize", "squeezenet1_1", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["label"] for row in found["rows"]}
    named = {each["label"] for each in found["not_installed"] if "left no time" in each["reason"]}
    assert named == {"openvino int8 b1 qdq=s8s8"} and not named & rows


@pytest.mark.slow
def test_a_constraint_that_nothing_keeps_exits_1_and_names_the_nearest(tmp_path, monkeypatch, capsys):
    quick(monkeypatch, Scripted())
    flags = ["--budget", "9s", "--store", str(tmp_path), "--backend", "openvino", "--device", "cpu", "--json"]
    assert main(["optimize", "squeezenet1_1", *flags, "--constraint", "p50<=1us"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["pick"]["nearest"] in {row["cell"] for row in found["rows"]}
    assert "the binding constraint is p50<=1us" in found["pick"]["reason"]
    assert found["constraints"] == ["p50<=1us"]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--constraint", "p99<=fast"], "E-CONS-1"),
        (["--backend", "openvno"], "Try: --backend openvino"),
        (["--exclude", "precision=fp33"], "E-TRY-1"),
        (["--output", "r.pdf"], "E-REPORT-1"),
        (["--save", "."], "E-DEPLOY-1"),
        (["--save", "mine.txt/deployed"], "E-DEPLOY-7: --save"),
    ],
)
def test_what_cannot_be_understood_is_said_before_anything_runs(tmp_path, monkeypatch, capsys, flags, code):
    (tmp_path / "mine.txt").write_text("not yours")
    monkeypatch.chdir(tmp_path)
    runner = Scripted()
    quick(monkeypatch, runner)
    assert main(["optimize", "squeezenet1_1", "--device", "cpu", *flags]) == 2
    assert code in capsys.readouterr().err and runner.ran == []


NETWORK = """
import torch

def net():
    torch.manual_seed(0)
    widths = [3, 16, 16, 16, 16, 16, 16, 16, 16]
    convolutions = [torch.nn.Conv2d(i, o, 3, padding=1) for i, o in zip(widths, widths[1:])]
    last = torch.nn.Linear(64, 10)
    with torch.no_grad():  # a weight that meets zeros only: int8 rounds the others to nothing
        convolutions[-1].weight[0], convolutions[-1].bias[0], last.weight[:, 0] = 0, -1, 300
    hidden = [part for convolution in convolutions for part in (convolution, torch.nn.ReLU())]
    layers = [*hidden, torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), last]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 3, 32, 32),)
"""


@pytest.mark.slow
def test_optimize_whole_on_real_engines(tmp_path, monkeypatch, capsys):
    (tmp_path / "small_for_optimize.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(racing, "LEAST", 2)
    monkeypatch.setattr(racing, "SMALL_S", 0.0)  # other threads are tried apart, too
    fewer = (
        "backend=torch_compile precision=bf16 backend=litert qdq=s8s8 layout=channels_last"  # tested apart
    )
    seen = np.random.default_rng(0).standard_normal((64, 3, 32, 32), dtype=np.float32)
    np.savez(tmp_path / "seen.npz", input=seen)  # without inputs there is no int8: E-INT8-13
    flags = ["--device", "cpu", "--budget", "9s", "--duration", "300ms"]
    flags += ["--data", "seen.npz", "--preprocess", "unit"]
    flags += [word for values in fewer.split() for word in ("--exclude", values)]
    code = main(
        ["optimize", "small_for_optimize:net", *flags, "--json", "--output", "r.html", "--save", "kept"]
    )
    found = json.loads(capsys.readouterr().out)
    rows = {row["label"]: row for row in found["rows"]}
    assert code == 0
    assert found["pick"]["cell"] in {row["cell"] for row in found["rows"] if not row["rejected"]}
    assert rows["torch_eager fp32 b1"]["speedup"]["value"] == 1
    wrong = [row["label"] for row in found["rows"] if row["rejected"].startswith("wrong outputs")]
    int8 = {
        "onnxruntime int8 b1",
        "openvino int8 b1",
    } & rows.keys()  # a busy machine has time for one of them
    assert int8 and int8 <= set(wrong)  # shown, never picked: see above
    assert (tmp_path / "r.html").stat().st_size > 1_000_000
    card = json.loads((tmp_path / "kept/card.json").read_text())
    assert card["trial"]["backend"] == rows[card["label"]]["trial"]["backend"]


@pytest.mark.slow
def test_the_answer_shows_itself_in_a_notebook(tmp_path, monkeypatch):
    from edgescope.errors import UnavailableError
    from edgescope.wings.optimize.verb import answered

    found = answered(optimised(tmp_path, Scripted()), wanted("latency"))
    page = found._repr_html_()
    assert found.pick.row.label in page and "<table" in page and "<script" not in page and len(page) < 50_000
    assert found.report(tmp_path / "report.html").stat().st_size > len(page)
    monkeypatch.setattr("edgescope.records.answers.FRAMES", ())
    with pytest.raises(UnavailableError, match="pip install pandas"):
        _ = found.table


@pytest.mark.parametrize(("model", "inputs"), [("null", 1), (lambda x: x, None)])
def test_a_name_comes_without_inputs_and_a_network_with_them(model, inputs):
    from edgescope.wings.optimize.verb import named

    with pytest.raises(EdgescopeError, match="E-LIVE-4"):
        named(model, inputs)
