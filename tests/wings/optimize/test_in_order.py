"""Trials of a plan, one after the other: their places, what is stored, and how long the rest takes, by a fake clock."""

import pytest

from edgescope.isolate.fresh import Limits
from edgescope.records import Machine, Trial
from edgescope.runner.run import ExperimentRunner
from edgescope.search.loop import InOrder
from edgescope.store.results import Store
from making import result

WHERE = Machine({"cpu": {"model": "m"}}, {})
TRIALS = [Trial(model="null", backend="null", batch=n, warmup=0.0, min_s=5.0, max_s=5.0) for n in (1, 2, 4)]


class Timed:
    """Takes the window of a trial and three seconds more."""

    now = 0.0

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        self.now += trial.max_s + 3.0
        return result(trial, machine=WHERE)


@pytest.fixture
def told():
    return []


@pytest.fixture
def stored():
    """The trials that the store holds at the start."""
    return ()


@pytest.fixture
def runs(tmp_path, told, stored):
    for trial in stored:
        Store(tmp_path).save(result(trial, machine=WHERE, id_=f"{trial.id}-20250101T000000-aaaaaa"))
    runner = Timed()
    cells = ExperimentRunner(Store(tmp_path), Limits(), runner, WHERE, clock=lambda: runner.now)
    made = InOrder(cells, lambda step: told.append((runner.now, step)))
    made.runner = runner
    return made


def test_the_rest_is_estimated_from_the_first_run_on(runs, told):
    for n, trial in enumerate(TRIALS, start=1):
        runs.run("trying", trial, TRIALS[n:])
    assert [step.eta_s for _, step in told] == [None, *(runs.runner.now - at for at, _ in told[1:])]
    assert [(step.position, step.total) for _, step in told] == [(1, 3), (2, 3), (3, 3)]


def test_a_number_of_runs_that_is_not_known_yet_is_not_told(runs, told):
    runs.run("as it is", TRIALS[0])
    runs.run("trying", TRIALS[1], TRIALS[2:])
    assert str(told[0][1]).startswith("[as it is 1] ") and "[trying 2/3] " in str(told[1][1])


@pytest.mark.parametrize("stored", [TRIALS[:1]])
def test_what_is_stored_is_not_run_unless_anew(runs, told):
    runs.run("trying", TRIALS[1], ())
    runs.run("trying", TRIALS[0], ())
    assert runs.runner.now == 8.0
    assert told[1][1].eta_s is None, "nothing is left to run, and nothing is said of it"
    runs.run("trying", TRIALS[0], (), anew=True)
    assert runs.runner.now == 2 * 8.0
