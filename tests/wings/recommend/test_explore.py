"""The search that measures: budget, confirmation in fresh processes, resuming, what is not searched for."""

from dataclasses import replace
from itertools import count

import pytest

from edgescope.analysis.cells.objective import wanted
from edgescope.errors import EdgescopeError
from edgescope.isolate.fresh import Limits
from edgescope.records import Absent, Alternation, Measured, Status, Trial, Turn
from edgescope.runner.run import ExperimentRunner
from edgescope.store.results import Store
from edgescope.wings.recommend.bayes import Search
from edgescope.wings.recommend.explore import Budget, explore
from edgescope.wings.recommend.recommendation import recommend
from making import MACHINE, result

CELLS = [
    Trial(model="null", backend="null", batch=batch, processes=p, sharing=sharing)
    for batch in (1, 2, 4, 8)
    for p in (1, 2, 4)
    for sharing in (("time_slicing", "pinned") if p > 1 else ("time_slicing",))
]


NUMBERS = count()


def speed(t):
    return 100 * t.batch**0.4 * min(t.processes, 2) ** 0.8 * (1.05 if t.sharing == "pinned" else 1)


class Formula:
    """A runner that answers by formula; `lucky` cells shine in their first process only."""

    def __init__(self, lucky=(), failing=None, stop_after=None, power=False, confirms=Status.OK):
        self.lucky, self.failing, self.stop_after, self.power = lucky, failing or {}, stop_after, power
        self.ran, self.confirms = [], confirms

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            raise KeyboardInterrupt
        self.ran.append(trial)
        sps = speed(trial) * (1.6 if trial.label in self.lucky and not trial.replicate else 1)
        seconds = trial.processes * trial.batch / sps
        metrics = {
            "throughput_sps": Measured(sps, "samples/s"),
            "latency_p50_s": Measured(seconds, "s"),
            "latency_p99_s": Measured(1.1 * seconds, "s"),
            "latency_p99_bound_s": Measured(1.2 * seconds, "s"),
            "power_w": Measured(5.0, "W") if self.power else Absent("no power sensor"),
        }
        status = self.failing.get(trial.processes, self.confirms if trial.replicate else Status.OK)
        keys = {
            "metrics": metrics,
            "status": status,
            "reason": "" if status is Status.OK else "E-X-1: by formula.",
        }
        id_ = f"{trial.id}-20260101T000000-{next(NUMBERS):06x}"
        return result(trial, id_=id_, queries=None, window=None, readings=None, **keys)


def explored(tmp_path, runner, asked=None, trials=CELLS, **budget):
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE)
    told = []
    asked = asked or wanted("throughput")
    found = list(
        explore(
            trials, cells, asked, Budget(**({"cells": 7, "confirm": 2} | budget)), cores=2, tell=told.append
        )
    )
    return found, told


def test_the_budget_is_spent_and_the_pick_is_confirmed_in_fresh_processes(tmp_path):
    runner = Formula()
    results, told = explored(tmp_path, runner)
    assert len({t.cell for t in runner.ran}) == 7 and len(runner.ran) == 9
    assert [s.stage for s in told] == ["search"] * 7 + ["confirm"] * 2
    assert [t.replicate for t in runner.ran[-2:]] == [1, 2]
    answer = recommend(results, wanted("throughput"), least=3)
    assert speed(answer.pick.trial) == max(map(speed, CELLS)) and len(answer.pick.replicates) == 3
    assert told[0].eta_s is None and told[-1].eta_s >= 0


class Timed(Formula):
    """Runs that take fake time: the first build also exports, and a run takes longer with more processes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def prepare(self, trial, limits):
        self.now += 4.0 if self.ran else 12.0

    def run(self, trial, limits):
        self.now += 2.0 + 0.5 * trial.processes + trial.max_s
        return super().run(trial, limits)


class Turns(Formula):
    """A runner that measures in turns, too; there the cell of `batch` is `times` as fast as its formula says."""

    def __init__(self, batch=0, times=1.0, fails=0, **keys):
        super().__init__(**keys)
        self.batch, self.times, self.fails, self.paired = batch, times, fails, []

    def pair(self, trials, purpose, limits):
        self.paired.append([t.batch for t in trials])
        ends = [self.run(t, limits) for t in trials]
        found = []
        for mine, other, name in zip(ends, ends[::-1], ("baseline", "candidate"), strict=True):
            time_s = 1 / speed(mine.trial) / (self.times if mine.trial.batch == self.batch else 1)
            each = round(time_s * mine.trial.batch * 1e9)
            turns = tuple(Turn(b, 0, each * (100 + n), 100, 1.0) for n in range(2) for b in range(2))
            failed = Status.CRASHED if mine.trial.batch == self.fails else Status.CANCELLED
            status = failed if self.fails in self.paired[-1] else Status.OK
            taken = Alternation(other.id, name, purpose, turns, 0.0)
            found.append(replace(mine, alternation=taken, status=status))
        return tuple(found)


ALONE = [t for t in CELLS if t.processes == 1]


def test_the_pick_takes_turns_with_the_runner_up_and_their_ratio_is_told(tmp_path):
    runner = Turns()
    results, told = explored(tmp_path, runner, trials=ALONE, cells=4, confirm=3)
    assert runner.paired == [[4, 8]] * 3 and told[-1].beside.turn_s == told[-1].trial.turn_s == 0.1
    answer = recommend(results, wanted("throughput"), least=4)
    assert answer.pick.trial.batch == 8 and {r.trial.replicate for r in results} == {0, 1, 2, 3}
    said = next(r for r in answer.reasons if "in turns" in r)
    assert said.startswith("1.3") and said.endswith("x the speed of null fp32 b4 (3 pairs in turns)")
    explored(tmp_path, again := Turns(), trials=ALONE, cells=4, confirm=3)
    assert not again.ran


def test_the_runner_up_that_was_faster_in_turns_is_the_pick(tmp_path):
    results, _ = explored(tmp_path, Turns(4, 1.5), trials=ALONE, cells=4, confirm=3)
    answer = recommend(results, wanted("throughput"), least=4)
    assert answer.pick.trial.batch == 4 and answer.best.trial.batch == 4
    assert not any("not confirmed" in r for r in answer.reasons)


def test_a_runner_up_that_fails_makes_room_for_the_next(tmp_path):
    runner = Turns(fails=4)
    explored(tmp_path, runner, trials=ALONE, cells=4, confirm=3)
    assert runner.paired == [[4, 8]] + [[2, 8]] * 3


@pytest.mark.parametrize(
    ("asked", "trials"),
    [
        (wanted("throughput"), [replace(t, processes=2) for t in ALONE]),
        (wanted("watts"), ALONE),
        (wanted("throughput", ["power<=9W"]), ALONE),
    ],
)
def test_what_cannot_take_turns_is_confirmed_alone(tmp_path, asked, trials):
    runner = Turns(power=True)
    explored(tmp_path, runner, asked, trials=trials, cells=4, confirm=2)
    assert not runner.paired and [t.turn_s for t in runner.ran if t.replicate] == [None, None]


@pytest.mark.parametrize(("cells", "confirm", "unknown"), [(7, 2, 2), (0, 4, 1)])
@pytest.mark.slow
def test_the_time_left_of_search_and_confirmation_is_right_within_a_factor_of_two(
    tmp_path, cells, confirm, unknown
):
    """With a search (`--search --confirm-runs 2`), and for stored cells alone (`--confirm-runs 4`)."""
    if not cells:
        explored(tmp_path, Formula(), cells=len(CELLS), confirm=0)
    runner, reported = Timed(), []
    where = ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, clock=lambda: runner.now)
    budget = Budget(cells, confirm)
    list(
        explore(
            [replace(t, max_s=5.0) for t in CELLS] if cells else CELLS,
            where,
            wanted("throughput"),
            budget,
            cores=2,
            tell=lambda step: reported.append((step.stage, runner.now, step.eta_s)),
        )
    )
    assert [stage for stage, _, _ in reported] == ["search"] * cells + ["confirm"] * confirm
    etas = [(runner.now - at, eta) for _, at, eta in reported if eta is not None]
    assert len(etas) >= cells + confirm - unknown
    assert all(left / 2 <= eta <= 2 * left for left, eta in etas), etas


@pytest.mark.slow
def test_a_lucky_first_process_is_not_the_pick(tmp_path):
    lucky = next(t.label for t in CELLS if (t.batch, t.processes) == (4, 2))
    runner = Formula(lucky=[lucky])
    results, _ = explored(tmp_path, runner, cells=len(CELLS))
    answer = recommend(results, wanted("throughput"), least=3)
    assert answer.pick.label != lucky and len(answer.pick.replicates) == 3
    assert any(f"{lucky} measured better in 1 process and was not confirmed" in r for r in answer.reasons)


def test_without_a_confirmed_cell_there_is_no_pick(tmp_path):
    runner = Formula(confirms=Status.SKIPPED)
    results, _ = explored(tmp_path, runner)
    answer = recommend(results, wanted("throughput"), least=3)
    assert answer.pick is None and speed(answer.nearest.trial) == max(map(speed, CELLS))
    assert answer.reasons[0].startswith(
        "not confirmed: no cell stood in 3 processes. The best of the rest is"
    )
    # what was skipped is not had: the same command runs it again
    results, _ = explored(tmp_path, again := Formula())
    assert [t.replicate for t in again.ran] == [1, 2]
    assert speed(recommend(results, wanted("throughput"), least=3).pick.trial) == max(map(speed, CELLS))


def test_an_unstable_process_confirms_too_and_is_not_drawn_again(tmp_path):
    results, _ = explored(tmp_path, runner := Formula(confirms=Status.UNSTABLE))
    assert len(runner.ran) == 9 and [t.replicate for t in runner.ran[-2:]] == [1, 2]
    assert len(recommend(results, wanted("throughput"), least=3).pick.replicates) == 3


def test_a_confirmation_that_fails_is_taught_with_its_own_status(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(
        Search, "fail", lambda search, cell, status, **_: heard.append(status) or _none(search, cell)
    )
    explored(tmp_path, Formula(confirms=Status.OOM))
    assert heard and set(heard) == {Status.OOM}


def _none(search, cell):
    search.rows[cell] = None


def test_a_cell_is_confirmed_over_the_window_that_its_figures_are_from(tmp_path):
    long = replace(max(CELLS, key=speed), min_s=60.0, max_s=60.0)
    Store(tmp_path).save(Formula().run(long, None))
    runner = Formula()
    results, _ = explored(tmp_path, runner, trials=[t for t in CELLS if t.processes < 4])
    assert {t.max_s for t in runner.ran if t.replicate} == {60.0}
    assert recommend(results, wanted("throughput"), least=3).pick.trial.max_s == 60.0


def test_the_same_command_goes_on_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        explored(tmp_path, Formula(stop_after=4))
    runner = Formula()
    results, _ = explored(tmp_path, runner)
    assert len(runner.ran) == 3 + 2 and len(results) == 9
    again = Formula()
    explored(tmp_path, again)
    assert again.ran == []


def test_constraints_hold_for_what_is_confirmed(tmp_path):
    asked = wanted("throughput", ["p99<=30ms"])
    results, _ = explored(tmp_path, Formula(), asked, cells=10)
    pick = recommend(results, asked, least=3).pick
    able = [t for t in CELLS if 1.2 * t.processes * t.batch / speed(t) <= 0.030]
    assert speed(pick.trial) == max(map(speed, able))


def test_failed_cells_cost_no_budget_and_are_no_pick(tmp_path):
    runner = Formula(failing={2: Status.CRASHED})
    results, told = explored(tmp_path, runner)
    assert recommend(results, wanted("throughput"), least=3).pick.trial.processes != 2
    searched = [t for t in runner.ran if not t.replicate]
    assert any(t.processes == 2 for t in searched) and sum(t.processes != 2 for t in searched) == 7
    assert [s.position for s in told if s.stage == "search"][-1] == 7


def test_a_search_in_which_everything_fails_ends_before_the_grid_does(tmp_path):
    runner = Formula(failing=dict.fromkeys((1, 2, 4), Status.CRASHED))
    explored(tmp_path, runner, cells=2)
    assert len(runner.ran) == 6 < len(CELLS)


@pytest.mark.slow
def test_what_the_store_held_before_is_known_and_costs_no_budget(tmp_path):
    for trial in (t for t in CELLS if t.processes == 1):
        Store(tmp_path).save(Formula().run(trial, None))
    stopped = Formula(stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        explored(tmp_path, stopped, cells=5)
    rest = Formula()
    results, _ = explored(tmp_path, rest, cells=5)
    assert len([t for t in stopped.ran + rest.ran if not t.replicate]) == 5
    assert recommend(results, wanted("throughput"), least=3).pick.trial.processes != 1
    explored(tmp_path, again := Formula(), cells=5)
    assert again.ran == []
    explored(tmp_path, more := Formula(), cells=6)  # a larger budget goes on
    assert len([t for t in more.ran if not t.replicate]) == 1


def test_another_question_of_the_same_cells_has_a_budget_of_its_own(tmp_path):
    explored(tmp_path, Formula(), cells=3)
    explored(tmp_path, other := Formula(), wanted("throughput", ["p99<=30ms"]), cells=3)
    assert len([t for t in other.ran if not t.replicate]) == 3


def test_what_cannot_be_measured_is_not_searched_for(tmp_path):
    runner = Formula()
    with pytest.raises(EdgescopeError, match=r"E-PICK-3: .*power sensor"):
        explored(tmp_path, runner, wanted("watts"))
    assert len(runner.ran) == 1


@pytest.mark.slow
def test_replicates_of_a_study_are_one_cell(tmp_path):
    trials = [replace(t, replicate=n) for t in CELLS for n in range(2)]
    runner = Formula()
    explored(tmp_path, runner, trials=trials, cells=len(CELLS))
    assert sum(t.replicate == 0 for t in runner.ran) == len(CELLS)
