"""A search for cells step by step, without results on a disk: steps, failures, who is confirmed and when it ends."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.analysis.cells.objective import wanted
from edgescope.errors import EdgescopeError, StoreError
from edgescope.records import Absent, Alternation, Measured, Status, Trial, Turn
from edgescope.wings.recommend.bayes import Search
from edgescope.wings.recommend.explore import Budget, explore
from making import result

CELLS = [Trial(model="null#1234", backend="null", batch=b) for b in (1, 2, 4, 8)]


class Memory:
    """The methods of Cells that a search uses. Results by hand: `ends` of a batch in order, else its speed."""

    def __init__(self, root, ends=(), held=(), *, speed=lambda trial: 100.0 * trial.batch, together=False):
        self.ends = {batch: list(each) for batch, each in dict(ends).items()}
        self.held, self.speed, self.together, self.ran = held, speed, together, []
        self.store = SimpleNamespace(root=root, full=self.full)
        self.where = SimpleNamespace(id="m", state={})
        self.builds = SimpleNamespace(build=lambda trials: None)

    def full(self, found):
        if found.process == "damaged":
            raise StoreError("E-STORE-1", "damaged")
        return found

    def finished(self):
        return {r.trial.id: r for r in self.held}

    def stored(self, trial):
        return None

    def expect(self, trials):
        pass

    def left(self, trials):
        return None

    def apart(self, a, b):
        return "" if self.together else "no turns"

    def made(self, trial, **keys):
        ends = self.ends.get(trial.batch)
        status = ends.pop(0) if ends else Status.OK
        return self.told(trial, self.speed(trial), status, **keys)

    def told(self, trial, speed, status=Status.OK, **keys):
        figures = {"throughput_sps": Measured(speed, "samples/s"), "power_w": Absent("no sensor")}
        bare = dict.fromkeys(("queries", "window", "readings"))
        id_ = f"{trial.id} {len(self.ran)} {trial.batch}"
        reason = "" if status in (Status.OK, Status.CANCELLED) else "E-X-1: no."
        return result(trial, id_=id_, status=status, metrics=figures, reason=reason, **bare | keys)

    def run(self, trial, limit_s):
        self.ran.append(trial)
        return self.made(trial)

    def run_pair(self, baseline, trial, purpose, limit_s):
        self.ran.append((baseline, trial))
        ends = [self.made(t) for t in (baseline, trial)]
        if any(r.status is Status.CRASHED for r in ends):
            return tuple(
                r if r.status is Status.CRASHED else replace(r, status=Status.CANCELLED) for r in ends
            )
        found = []
        for mine, other, side in zip(ends, ends[::-1], ("baseline", "candidate"), strict=True):
            each = round(1e9 / self.speed(mine.trial) * mine.trial.batch)
            turns = tuple(Turn(b, 0, each * (100 + n), 100, 1.0) for n in range(2) for b in range(2))
            found.append(replace(mine, alternation=Alternation(other.id, side, purpose, turns, 0.0)))
        return tuple(found)


def explored(memory, trials=CELLS, asked=None, **budget):
    """The steps of a search, and its results."""
    told = []
    given = Budget(**{"cells": 3, "confirm": 2} | budget)
    found = list(explore(trials, memory, asked or wanted("throughput"), given, tell=told.append))
    return told, found


def again(trial, *numbers):
    return [replace(trial, replicate=n) for n in numbers]


def test_steps_count_what_was_measured_and_name_what_follows(tmp_path):
    told, found = explored(Memory(tmp_path))
    search, confirm = ([s for s in told if s.stage == stage] for stage in ("search", "confirm"))
    assert [(s.position, s.total, s.anew) for s in search] == [(n, 3, True) for n in (1, 2, 3)]
    measured = []
    for number, step in enumerate(search):
        further = [t for t in CELLS if t not in (*measured, step.trial)]
        assert list(step.ahead) == [*further[: 2 - number], *again(step.trial, 1, 2)]
        measured.append(step.trial)
    best = max(measured, key=lambda t: t.batch)
    assert [s.trial for s in confirm] == again(best, 1, 2)
    assert [(s.position, s.total, list(s.ahead)) for s in confirm] == [(1, 2, again(best, 2)), (2, 2, [])]
    assert {s.what for s in confirm} == {f"null {best.label}"} and len(found) == 5


def test_a_failure_costs_no_budget_and_as_many_as_the_budget_end_the_search(tmp_path):
    grid = [
        Trial(model="null", backend="null", batch=b, precision=p)
        for b in range(1, 11)
        for p in ("fp32", "int8")
    ]

    def tried(cells):
        memory = Memory(tmp_path / str(cells), dict.fromkeys(range(1, 11), [Status.CRASHED] * 9))
        explored(memory, grid, cells=cells)
        return len(memory.ran)

    assert [tried(n) for n in (2, 6, 8)] == [6, 6, 8]
    some = Memory(tmp_path / "some", {1: [Status.CRASHED], 8: [Status.CRASHED]})
    told, _ = explored(some, cells=2)
    positions = [s.position for s in told if s.stage == "search"]
    failed = [t.batch in (1, 8) for t in some.ran[: len(positions)]]
    assert failed.count(False) == 2 and positions == [1 + failed[:n].count(False) for n in range(len(failed))]


def test_without_cells_to_measure_the_stored_ones_are_confirmed(tmp_path):
    memory = Memory(tmp_path)
    memory.held = [memory.told(t, s) for t, s in ((CELLS[0], 9.0), (CELLS[1], 5.0))]
    memory.held.append(memory.told(replace(CELLS[0], batch=64), 99.0))
    memory.held.append(memory.told(CELLS[2], 99.0, process="damaged"))
    told, found = explored(memory, cells=0, confirm=3)
    assert [r.trial.batch for r in found] == [1, 2, 1, 1, 1] and {s.stage for s in told} == {"confirm"}
    assert [s.trial.replicate for s in told] == [1, 2, 3]
    assert explored(Memory(tmp_path, held=memory.held), cells=0, confirm=0)[0] == []
    assert explored(Memory(tmp_path), cells=0) == ([], [])


def test_three_cells_are_confirmed_at_most(tmp_path):
    """Each shines in its first process only, so that the next one overtakes it."""
    lucky = Memory(tmp_path, speed=lambda t: 100.0 - t.batch if not t.replicate else 1.0)
    told, _ = explored(lucky, cells=4, confirm=2)
    confirmed = [s.trial.batch for s in told if s.stage == "confirm"]
    assert confirmed == [1, 1, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("status", "alone"), [(Status.CANCELLED, True), (Status.SKIPPED, True), (Status.CRASHED, False)]
)
def test_a_failure_is_taught_once_and_whether_it_says_something_of_others(
    tmp_path, monkeypatch, status, alone
):
    heard = []
    plain = Search.fail

    def fail(search, cell, status, *, alone=False):
        heard.append((search.trials[cell].batch, status, alone))
        plain(search, cell, status, alone=alone)

    monkeypatch.setattr(Search, "fail", fail)
    explored(Memory(tmp_path, {b: [status] for b in (2, 4, 8)}), cells=1, confirm=0)
    assert len(heard) == len(set(heard)) and {(s, a) for _, s, a in heard} <= {(status, alone)}
    explored(Memory(tmp_path / "b", {b: [status] * 9 for b in (1, 2, 4, 8)}), cells=1, confirm=0)
    assert sorted(b for b, *_ in heard[-4:]) == [1, 2, 4, 8]


def test_an_objective_without_a_figure_ends_it_at_the_first_result_of_its_own(tmp_path):
    memory = Memory(tmp_path)
    memory.held = [memory.told(CELLS[0], 9.0)]
    with pytest.raises(EdgescopeError) as raised:
        explored(memory, asked=wanted("watts"))
    assert raised.value.code == "E-PICK-3" and raised.value.evidence == "no sensor" and len(memory.ran) == 1
    some = Memory(tmp_path / "b", {b: [Status.CRASHED] for b in (1, 2, 4, 8)})
    explored(some, asked=wanted("watts"), cells=2)
    assert len(some.ran) == 4, "what failed says nothing of sensors"


def test_the_pick_takes_turns_with_the_runner_up(tmp_path):
    told, found = explored(Memory(tmp_path, together=True), cells=4, confirm=2)
    pairs = [s for s in told if s.stage == "confirm"]
    assert [(s.beside.batch, s.trial.batch, s.trial.replicate) for s in pairs] == [(4, 8, 1), (4, 8, 2)]
    assert all(s.beside.replicate == s.trial.replicate and s.purpose == "confirming" for s in pairs)
    assert {(s.trial.turn_s, s.beside.turn_s) for s in pairs} == {(0.1, 0.1)} and len(found) == 8
    assert pairs[0].what.endswith(f"in turns with {CELLS[2].label}")
    assert [list(s.ahead) for s in pairs] == [[pairs[1].trial], []]


def test_a_runner_up_that_fails_makes_room_and_its_partners_run_does_not_count(tmp_path):
    memory = Memory(tmp_path, {4: [Status.OK, Status.CRASHED]}, together=True)
    told, found = explored(memory, cells=4, confirm=2)
    pairs = [(s.beside.batch, s.trial.batch) for s in told if s.stage == "confirm"]
    assert pairs == [(4, 8), (2, 8), (2, 8)]
    assert [r.status for r in found[4:6]] == [Status.CRASHED, Status.CANCELLED]


@pytest.mark.parametrize(
    ("changes", "asked", "paired"),
    [
        ({}, wanted("throughput"), True),
        ({4: {"max_s": 9.0, "min_s": 9.0}}, wanted("throughput"), False),
        ({}, wanted("throughput", ["throughput>=500"]), False),
        ({}, wanted("throughput", ["throughput>=300"]), True),
    ],
)
def test_who_is_measured_otherwise_or_breaks_a_constraint_is_no_runner_up(tmp_path, changes, asked, paired):
    trials = [replace(t, **changes.get(t.batch, {})) for t in CELLS]
    memory = Memory(tmp_path, together=True)
    told, _ = explored(memory, trials, asked, cells=4)
    assert any(s.beside for s in told) is paired and [s.stage for s in told].count("confirm") == 2


def test_three_processes_confirm_and_the_seed_is_0_where_nobody_says(tmp_path):
    alike = [replace(CELLS[0], batch=b) for b in range(20, 30)]

    def order(*given):
        memory = Memory(tmp_path / str(given))
        told, wanted_ = [], wanted("throughput")
        list(explore(alike, memory, wanted_, Budget(*given), tell=told.append))
        return [(s.stage, s.trial.batch) for s in told]

    usual = order(2)
    assert usual == order(2, 3, 0) != order(2, 3, 1)
    assert [stage for stage, _ in usual] == ["search"] * 2 + ["confirm"] * 3
