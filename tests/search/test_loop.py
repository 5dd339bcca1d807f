"""The loop that gets each step's result: from the store, from a look, or by running; and a step in words."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.records import Trial
from edgescope.search.loop import Loop, Step
from making import result

A, B, C = (Trial(model="null", backend="null", batch=b) for b in (1, 2, 4))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "[short] it"),
        ({"position": 3}, "[short 3] it"),
        ({"position": 3, "total": 14}, "[short 3/14] it"),
        ({"round": 1, "rounds": 2, "position": 3, "total": 14}, "[short round 1/2, 3/14] it"),
        ({"round": 1, "position": 3}, "[short 3] it"),
        ({"eta_s": 40.0, "then": " if it confirms"}, "[short] it, about 40 s left if it confirms"),
    ],
)
def test_a_step_in_words(keys, words):
    assert str(Step(stage="short", trial=A, what="it", **keys)) == words


class Told:
    """The methods of Cells that a loop uses; it notes what it was asked."""

    def __init__(self, stored=()):
        self.asked, self.held = [], {t.id: result(t, id_=f"stored {t.batch}") for t in stored}
        self.builds = SimpleNamespace(build=lambda trials: self.asked.append(("build", list(trials))))

    def stored(self, trial):
        return self.held.get(trial.id)

    def stored_pair(self, baseline, trial, purpose):
        mine, theirs = self.stored(trial), self.stored(baseline)
        return (theirs, mine) if mine and theirs and purpose == "confirming" else None

    def left(self, trials):
        return 10.0 * len(trials)

    def expect(self, trials):
        self.asked.append(("expect", list(trials)))

    def adopt(self, look, trial):
        return replace(look, id="adopted", trial=trial)

    def run(self, trial, limit_s):
        self.asked.append(("run", trial, limit_s))
        return result(trial, id_=f"ran {trial.batch}")

    def run_pair(self, baseline, trial, purpose, limit_s):
        self.asked.append(("pair", baseline, trial, purpose, limit_s))
        return result(baseline, id_="theirs"), result(trial, id_="mine")


def looped(cells, *steps):
    """What the loop yields, what the strategy was sent, the steps as they were told, and the loop."""
    sent, told = [], []

    def strategy():
        for step in steps:
            sent.append([r.id for r in (yield step)])

    loop = Loop(cells, told.append)
    return [r.id for r in loop.run(strategy())], sent, told, loop


def step(trial=A, **keys):
    return Step(**{"stage": "short", "trial": trial, "what": "it"} | keys)


def test_a_run_is_expected_built_and_run_within_its_limit():
    cells = Told()
    found, sent, told, loop = looped(cells, step(ahead=[B, C], limit_s=7.0), step(B))
    assert found == ["ran 1", "ran 2"] and sent == [["ran 1"], ["ran 2"]]
    assert cells.asked[:3] == [("expect", [A, B, C]), ("build", [A, B, C]), ("run", A, 7.0)]
    assert cells.asked[-1] == ("run", B, math.inf)
    assert [s.eta_s for s in told] == [30.0, 10.0] and (loop.runs, loop.stored, loop.note) == (2, 0, "")


def test_an_estimate_of_the_step_itself_stands():
    _, _, told, _ = looped(Told(), step(eta_s=0.0), step(eta_s=5.0))
    assert [s.eta_s for s in told] == [0.0, 5.0]


def test_what_is_stored_is_never_past_its_time():
    _, _, told, loop = looped(Told([A]), step(eta_s=0.0), step(eta_s=5.0), step(eta_s=-1.0, anew=True))
    assert [s.eta_s for s in told] == [None, 5.0, -1.0] and loop.measured
    assert not looped(Told([A]), step(eta_s=0.0))[3].measured


def test_of_a_pair_both_are_expected_and_both_are_sent():
    cells = Told()
    found, sent, _, _ = looped(cells, step(B, beside=A, purpose="confirming", ahead=[C], limit_s=9.0))
    assert found == ["theirs", "mine"] and sent == [["theirs", "mine"]]
    asked = [("expect", [A, B, C]), ("build", [B, C]), ("pair", A, B, "confirming", 9.0)]
    assert cells.asked == asked


def test_what_is_stored_is_not_run_unless_anew():
    cells = Told([A, B])
    pair = step(B, beside=A, purpose="confirming")
    found, _, _, loop = looped(cells, step(), pair, step(A, anew=True), replace(pair, purpose="selecting"))
    assert found == ["stored 1", "stored 1", "stored 2", "ran 1", "theirs", "mine"]
    assert (loop.runs, loop.stored) == (4, 2) and loop.note.startswith("2 of 4 runs are from the store")
    assert loop.known(step(C)) is None


def test_a_look_stands_for_the_run_unless_one_is_stored():
    look = result(A, id_="look")
    cells = Told()
    found, _, _, loop = looped(cells, step(look=look))
    assert found == ["adopted"] and cells.asked == [] and loop.stored == 0
    assert looped(Told([A]), step(look=look))[0] == ["stored 1"]


def test_a_strategy_without_a_step_has_no_results():
    assert looped(Told())[:3] == ([], [], [])
