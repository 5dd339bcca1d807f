"""Cells: one result for each trial, pairs in turns or one by one, and what other processes measure is taken."""

import itertools
import math
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.errors import Message
from edgescope.isolate.fresh import Limits
from edgescope.records import Alternation, Machine, Status, Trial
from edgescope.runner import run as module
from edgescope.runner.run import ExperimentRunner, Progress, apart_after, order
from edgescope.store.cell_lock import CellLock, Holder
from edgescope.store.results import Store
from making import MACHINE, result

LIMITS = Limits(timeout_s=9.0)
BASE, CANDIDATE = (Trial(model="null", backend="null", batch=n, turn_s=0.5) for n in (1, 2))
NUMBERS = itertools.count()
SINCE = "2026-01-01T00:00:00.000+00:00"


class Alone:
    """Runs trials one by one: an OK result, or one from `ends`, which takes `seconds` of the clock."""

    def __init__(self, **ends):
        self.asked, self.ends, self.now, self.seconds, self.unbuilt = [], ends, 50.0, 2.0, set()

    def prepare(self, trial, limits):
        return (
            result(trial, status=Status.UNSUPPORTED, reason="E-X-1: no.")
            if trial.batch in self.unbuilt
            else None
        )

    def run(self, trial, limits):
        self.asked.append((trial.batch, limits.timeout_s))
        self.now += self.seconds
        return result(trial, **{"id_": self._new(trial), **self.ends.get(f"b{trial.batch}", {})})

    def _new(self, trial):
        return f"{trial.id}-20260102T000000-{next(NUMBERS):06x}"


class InTurns(Alone):
    """Takes turns as well; `pairs` says how each side ends."""

    pairs = ({}, {})

    def pair(self, trials, purpose, limits):
        self.asked.append((purpose, limits.timeout_s))
        self.now += self.seconds
        ids = [self._new(trial) for trial in trials]
        sides = zip(trials, ids, ids[::-1], ("baseline", "candidate"), self.pairs, strict=True)
        return tuple(
            result(t, **{"id_": mine, "alternation": Alternation(theirs, side, purpose, (), 0.0), **ends})
            for t, mine, theirs, side, ends in sides
        )


def cells(tmp_path, runner, **keys):
    said = []
    made = ExperimentRunner(
        Store(tmp_path), LIMITS, runner, MACHINE, say=said.append, clock=lambda: runner.now, **keys
    )
    made.said = said
    return made


def stored(tmp_path):
    return {r.trial.batch: r for r in Store(tmp_path).results()}


# -- pairs -----------------------------------------------------------------------------------------------------


def test_a_pair_is_run_in_turns_stored_and_found_again_by_its_purpose(tmp_path):
    runner = InTurns()
    made = cells(tmp_path, runner)
    first, second = made.run_pair(BASE, CANDIDATE, "selecting")
    assert (first.trial, second.trial, runner.asked) == (BASE, CANDIDATE, [("selecting", 9.0)])
    assert made.pace.of(CANDIDATE) == 2.0 and not made.said
    again = cells(tmp_path, runner)
    assert [r.id for r in again.stored_pair(BASE, CANDIDATE, "selecting")] == [first.id, second.id]
    assert again.stored_pair(BASE, CANDIDATE, "confirming") is None
    assert again.stored_pair(replace(BASE, batch=7), CANDIDATE, "selecting") is None
    assert again.stored_pair(BASE, replace(CANDIDATE, batch=7), "selecting") is None


def test_a_pair_whose_partner_is_lost_or_was_measured_alone_is_none(tmp_path):
    there, gone = Alternation("nobody", "candidate", "selecting", (), 0.0), None
    for name, alternation in (("there", there), ("gone", gone)):
        Store(tmp_path / name).save(result(CANDIDATE, alternation=alternation))
        assert cells(tmp_path / name, InTurns()).stored_pair(BASE, CANDIDATE, "selecting") is None
    turned = Alternation("nobody", "baseline", "selecting", (), 0.0)
    Store(tmp_path / "b").save(result(CANDIDATE))
    Store(tmp_path / "b").save(result(BASE, alternation=turned))
    assert cells(tmp_path / "b", InTurns()).stored_pair(BASE, CANDIDATE, "selecting") is None


def test_two_that_ran_one_after_the_other_are_a_pair_of_any_purpose(tmp_path):
    for trial in (BASE, CANDIDATE):
        Store(tmp_path).save(result(trial))
    pair = cells(tmp_path, InTurns()).stored_pair(BASE, CANDIDATE, "confirming")
    assert [r.trial for r in pair] == [BASE, CANDIDATE]


def test_a_candidate_that_could_not_be_measured_has_a_cancelled_baseline(tmp_path):
    Store(tmp_path).save(result(CANDIDATE, status=Status.UNSUPPORTED, reason="E-X-1: no."))
    first, second = cells(tmp_path, InTurns()).stored_pair(BASE, CANDIDATE, "confirming")
    assert (first.trial, first.status, second.status) == (BASE, Status.CANCELLED, Status.UNSUPPORTED)


@pytest.mark.parametrize(
    ("end", "apart"),
    [
        ({"status": Status.OOM}, True),
        ({"status": Status.FAILED, "reason": "E-WORKER-1: its own loop."}, True),
        ({"status": Status.FAILED, "reason": "E-X-1: GPU busy or unavailable."}, True),
        ({"status": Status.FAILED, "reason": "E-X-1: no."}, False),
        ({}, False),
    ],
)
def test_sides_that_cannot_be_alive_together_run_one_by_one_and_it_is_said_once(tmp_path, end, apart):
    assert apart_after(result(BASE, **end)) is apart
    for side in (0, 1):
        runner = InTurns()
        runner.pairs = (end, {}) if side == 0 else ({}, end)
        made = cells(tmp_path / f"{side}", runner)
        for _ in range(2):
            first, second = made.run_pair(BASE, CANDIDATE, "selecting")
            assert (first.trial, second.trial) == (BASE, CANDIDATE)
        alone = [asked for asked in runner.asked if asked[0] != "selecting"]
        assert sorted(alone) == ([(1, 9.0), (2, 9.0)] if apart else []), "each alone once for all pairs"
        assert [line.partition(":")[0] for line in made.said] == (["I-PAIR-2"] if apart else [])
        assert (first.alternation is None) is apart


def test_without_turns_a_pair_runs_one_by_one_and_nothing_is_said(tmp_path):
    runner = Alone()
    made = cells(tmp_path, runner)
    first, second = made.run_pair(BASE, CANDIDATE, "selecting", 5.0)
    assert (first.trial, second.trial) == (BASE, CANDIDATE) and sorted(runner.asked) == [(1, 5.0), (2, 5.0)]
    assert made.apart(BASE, CANDIDATE) == "the runner takes no turns" and not made.said
    others = [replace(CANDIDATE, batch=n) for n in range(3, 9)]
    firsts = []
    for other in others:
        runner.asked.clear()
        cells(tmp_path / f"{other.batch}", runner).run_pair(BASE, other, "selecting")
        firsts.append(runner.asked[0][0] == 1)
    assert set(firsts) == {True, False}, "who begins changes from pair to pair"


def test_a_baseline_that_was_measured_alone_serves_every_candidate(tmp_path):
    Store(tmp_path).save(result(BASE))
    runner = Alone()
    made = cells(tmp_path, runner)
    for n in (2, 3):
        made.run_pair(BASE, replace(CANDIDATE, batch=n), "selecting")
    assert [batch for batch, _ in runner.asked] == [2, 3]


@pytest.mark.parametrize(
    ("limit_s", "statuses"), [(8.9, [Status.CANCELLED] * 2), (9.0, [Status.TIMEOUT, Status.OK])]
)
def test_what_a_tighter_limit_stops_is_cancelled_and_not_stored(tmp_path, limit_s, statuses):
    runner = InTurns(b1={"status": Status.TIMEOUT})
    runner.pairs = ({"status": Status.TIMEOUT}, {})
    made = cells(tmp_path, runner)
    assert [r.status for r in made.run_pair(BASE, CANDIDATE, "selecting", limit_s)] == statuses
    assert runner.asked == [("selecting", limit_s)] and len(stored(tmp_path)) == (0 if limit_s < 9 else 2)
    other = cells(tmp_path / "b", runner)
    assert other.run(BASE, limit_s).status is statuses[0] and (other.pace.of(BASE) is None) is (limit_s < 9)
    assert other.run(CANDIDATE, 1.0).status is Status.OK and runner.asked[-1] == (2, 1.0)
    assert list(stored(tmp_path / "b")) == ([2] if limit_s < 9 else [1, 2])


def test_a_side_that_ended_because_of_the_other_is_not_stored(tmp_path):
    runner = InTurns()
    runner.pairs = ({"status": Status.CANCELLED}, {"status": Status.FAILED, "reason": "E-X-1: no."})
    first, second = cells(tmp_path, runner).run_pair(BASE, CANDIDATE, "selecting")
    assert (first.status, second.status, list(stored(tmp_path))) == (Status.CANCELLED, Status.FAILED, [2])


@pytest.mark.parametrize(
    ("unbuilt", "statuses"), [(1, ["unsupported"] * 2), (2, ["cancelled", "unsupported"])]
)
def test_a_side_that_cannot_be_built_ends_the_pair_before_it_runs(tmp_path, unbuilt, statuses):
    runner = InTurns()
    runner.unbuilt = {unbuilt}
    first, second = cells(tmp_path, runner).run_pair(BASE, CANDIDATE, "selecting")
    assert [first.status.value, second.status.value] == statuses and not runner.asked
    assert [first.trial.batch, second.trial.batch] == ([1, 1] if unbuilt == 1 else [1, 2])
    assert list(stored(tmp_path)) == [unbuilt]


# -- one cell --------------------------------------------------------------------------------------------------


def test_the_time_of_each_cell_is_what_its_run_took_and_the_rest_is_estimated_by_it(tmp_path):
    runner = Alone()
    made = cells(tmp_path, runner)
    assert made.left([BASE, CANDIDATE]) is None
    made.finished()
    made.run(BASE)
    assert made.pace.of(BASE) == 2.0 and made.left([CANDIDATE], 0.5) == 2.5 and made.left([CANDIDATE]) == 2.0
    again = cells(tmp_path, runner)
    again.pace = made.pace
    assert again.left([BASE, CANDIDATE], 0.5) == 2.5


def test_results_before_a_moment_do_not_count(tmp_path):
    Store(tmp_path).save(result(BASE))
    for since, there in (("", True), (SINCE, True), ("2026-01-01T00:00:00.001+00:00", False)):
        made = cells(tmp_path, Alone(), since=since)
        assert (BASE.id in made.finished()) is there and (made.stored(BASE) is not None) is there
    assert made.stored(CANDIDATE) is None


def test_a_look_is_stored_only_where_it_is_adopted_and_says_what_it_is(tmp_path):
    class Looking(Alone):
        def look(self, trial, limits, meanwhile):
            meanwhile()
            return result(trial, id_="look")

    did = []
    made = cells(tmp_path, Looking())
    look = made.look(BASE, lambda: did.append(1))
    assert look.id == "look" and did == [1] and not stored(tmp_path)
    kept = made.adopt(look, CANDIDATE)
    assert kept.trial == CANDIDATE and kept.id.startswith(CANDIDATE.id)
    assert [w.code for w in kept.warnings] == ["W-TEST-1", "I-LOOK-1"] and list(stored(tmp_path)) == [2]
    assert cells(tmp_path, Alone()).look(BASE) is None


def test_a_wrong_request_is_not_stored_and_a_result_without_a_machine_gets_this_one(tmp_path, monkeypatch):
    made = cells(tmp_path, Alone())
    wrong = result(BASE, status=Status.FAILED, reason=Message("E-MODE-1", "no mode"))
    monkeypatch.setattr(
        module, "is_wrong_request", lambda reason: reason is not None and reason.code == "E-MODE-1"
    )
    assert made.put(wrong) is wrong and not stored(tmp_path)
    nowhere = result(CANDIDATE, machine=Machine({"absent": "it died"}, {}))
    assert made.put(nowhere).machine == MACHINE


# -- other processes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "taken"),
    [
        ({}, True),
        ({"status": Status.CANCELLED}, False),
        ({"machine": Machine(MACHINE.stable, {"packages": 1})}, False),
    ],
)
def test_what_another_process_stored_meanwhile_is_taken_and_said(tmp_path, keys, taken):
    runner = Alone()
    made = cells(tmp_path, runner)
    theirs = result(BASE, id_=f"{BASE.id}-20260105T000000-000001", **keys)
    Store(tmp_path).save(theirs)
    found = made.run(BASE)
    assert (found.id == theirs.id) is taken and (not runner.asked) is taken
    assert [line.partition(":")[0] for line in made.said] == (["I-STORE-2"] if taken else [])
    elsewhere = replace(found, machine=replace(MACHINE, stable={"cpu": {"cpu": "another"}}))
    assert [r.id for r in made.again()] == [found.id] and made.holds(found) and not made.holds(elsewhere)
    made.run(BASE)
    assert len(runner.asked) == (1 if taken else 2), "it is taken once; then the caller wants another"


def test_a_cell_that_another_process_measures_is_waited_for_and_comes_last(tmp_path, monkeypatch):
    made = cells(tmp_path, Alone())
    holder = Holder(7, socket.gethostname(), "edgescope sweep", "10:00:00")
    answers, slept = [holder, holder, None, None], []
    monkeypatch.setattr(CellLock, "take", lambda self, command="": answers.pop(0))
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append))
    made.run(BASE)
    assert slept == [0.2, 0.2] and len(made.said) == 1 and "tail --pid=7" in made.said[0]
    answers[:] = [holder, None, holder, None]
    trials = [replace(BASE, batch=n) for n in (3, 4, 5, 6)]
    assert [t.batch for t in made.free_first(trials)] == [4, 6, 3, 5]
    assert len(made.said) == 2, "once for each process and reason"
    made._tell(Holder(), "start", "measures")
    assert "tail" not in made.said[2]


def test_whoever_measures_into_the_store_is_told_at_the_start_if_it_is_here(tmp_path, monkeypatch):
    others = [Holder(7, socket.gethostname()), Holder(8, "elsewhere")]
    monkeypatch.setattr(module.cell_lock, "holders", lambda root: others)
    made = cells(tmp_path, Alone())
    assert len(made.said) == 1 and "process 7" in made.said[0]


@pytest.mark.parametrize(
    ("command", "text"), [(["edgescope", "a b"], "edgescope 'a b'"), (None, ""), (["x" * 400], "x" * 300)]
)
def test_a_lock_says_which_command_holds_it(tmp_path, command, text):
    made = cells(tmp_path, Alone())
    made.where = Machine(MACHINE.stable, {"command": command})
    assert made._command() == text


# -- all cells -------------------------------------------------------------------------------------------------


def test_progress_counts_from_one_and_names_a_replicate():
    here = Progress(2, 12, replace(BASE, replicate=2), 40.0)
    assert str(here).startswith("[3/12] null ") and "replicate 2" in str(here) and "40 s" in str(here)
    assert "replicate" not in str(Progress(0, 1, BASE, None))


def test_what_is_stored_is_counted_as_done_and_the_pauses_are_part_of_what_is_left(tmp_path, monkeypatch):
    trials = [replace(BASE, batch=n) for n in range(1, 5)]
    Store(tmp_path).save(result(trials[1]))
    runner, told, slept, added = Alone(), [], [], []
    made = cells(tmp_path, runner)

    def sleep(seconds):
        slept.append(seconds)
        runner.now += 6.0  # it takes longer than it was asked to

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    sieve = SimpleNamespace(add=added.append, reason=lambda trial: None)
    found = list(module.run(trials, made, cooldown_s=3.0, sieves=[sieve], tell=told.append))
    assert len(found) == 3 and slept == [3.0, 3.0]
    assert [(p.done, p.total) for p in told] == [(1, 4), (2, 4), (3, 4)]
    assert [p.eta_s for p in told] == [None, 2 * (2.0 + 3.0), 2.0 + 6.0]
    assert [r.trial.batch for r in added] == [2, *(r.trial.batch for r in found)]


def test_with_reused_workers_all_is_built_ahead_and_without_a_runner_that_cares_nothing_is_expected(tmp_path):
    class Expecting(Alone):
        def __init__(self):
            super().__init__()
            self.expected, self.built = [], []

        def expect(self, trials):
            self.expected.append([t.batch for t in trials])

        def prepare(self, trial, limits):
            self.built.append(trial.batch)

        def run(self, trial, limits):
            assert sorted(self.built) == [1, 2, 3], "before the first one runs"
            return super().run(trial, limits)

    trials, runner = [replace(BASE, batch=n) for n in (1, 2, 3)], Expecting()
    made = cells(tmp_path, runner)
    list(module.run(trials, made, reuse=True))
    assert sorted(runner.expected[0]) == [1, 2, 3] and len(runner.expected) == 1
    assert list(module.run(trials, cells(tmp_path, Alone()), reuse=True)) == []
    assert order([replace(BASE, replicate=1)], 0, reuse=True) == [replace(BASE, replicate=1)]
    assert math.isinf(ExperimentRunner.run.__defaults__[0])
