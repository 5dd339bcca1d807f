"""Training in the gaps between queries: a step begins only where no query waits or is overdue."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope import bench
from edgescope.records import Absent, Measured, Status, Trial, Window
from edgescope.workloads import interleaved
from edgescope.workloads.interleaved import GAP_S, PAUSE_S, Slices

WHOLE = Window(0, 0, 0, 2**62)


def slices(guard=0.0, *, waiting=0, ended=10.0, step_s=0.02, gap_s=0.05):
    made = Slices(work=None, loop=None, guard=guard)
    made.waiting, made.ended, made.step_s, made.gap_s = waiting, ended, step_s, gap_s
    return made


@pytest.mark.parametrize(
    ("made", "now", "free"),
    [
        (slices(), 10.0 + 2 * PAUSE_S, True),
        (slices(waiting=1), 11.0, False),
        (slices(), 10.0 + PAUSE_S / 2, False),  # the next query may be overdue already
        (slices(guard=1.0), 10.02, True),
        (slices(guard=1.0), 10.04, False),  # 20 ms do not fit into the 10 ms that are left
        (slices(guard=2.0), 10.02, False),
        (slices(guard=1.0, gap_s=0.0), 10.04, True),  # no gap has been seen yet
    ],
)
def test_a_step_begins_only_in_a_gap_that_it_should_fit_into(made, now, free):
    assert made._free(now) is free


def served(step):
    """Slices over a query that takes no time and a step of training; what happened, in order."""
    order = []

    def trains():
        order.append("step")
        return step()

    made = turns(lambda query: order.append(query), step=trains)
    made.warm_up()
    return made, order


def turns(answer, **loop):
    work = SimpleNamespace(issue=lambda query, samples, done: answer(query))
    usual = {"line": SimpleNamespace(steps=1), "log": [{}, {}], "load": lambda: None}  # an epoch has ended
    usual["witness"] = SimpleNamespace(stop=lambda: None)
    usual["between"] = lambda start_ns, stop_ns: SimpleNamespace(sizes=np.array([4, 4, 2]), took_s=0.3)
    return Slices(work, SimpleNamespace(**(usual | loop)), 0.0)


def test_the_thread_that_trains_warms_up_for_an_epoch_before_any_query():
    """A GPU's libraries make their handles for each thread and choose kernels for each size: not while queries wait."""
    by, log, line, stopped = [], [{}], SimpleNamespace(steps=0), []

    def step():
        by.append(threading.get_ident())
        line.steps += 1
        if len(by) == 3:
            log.append({})
        return 1

    witness = SimpleNamespace(stop=lambda: stopped.append(True))
    made = turns(lambda query: None, step=step, log=log, line=line, witness=witness)
    made.warm_up()
    assert len(by) == 3 and stopped  # what looks at each operator would slow the training
    first_gap(made)
    while len(by) < 5:
        time.sleep(0.001)
    made.issue(2, 1, None)
    made.close()
    assert set(by) == {made.thread.ident} != {threading.get_ident()}


def test_the_rate_of_training_is_that_of_the_steps_in_the_window():
    made = turns(lambda query: None)
    made.begin.set()
    asked = []
    made.loop.between = lambda *ends: (
        asked.append(ends) or SimpleNamespace(sizes=np.array([4, 4, 2]), took_s=0.3)
    )
    found = made.metrics(Window(0, 9, 10**9, 3 * 10**9))
    assert asked == [(10**9, 3 * 10**9)]
    assert found["trained_sps"] == Measured(5.0, "samples/s", n=3)
    assert found["train_step_s"] == Measured(pytest.approx(0.1), "s", n=3)
    made.loop.between = lambda *ends: SimpleNamespace(sizes=np.empty(0, int), took_s=0.0)
    found = made.metrics(Window(0, 9, 10**9, 3 * 10**9))
    assert found["trained_sps"].value == 0 and isinstance(found["train_step_s"], Absent)


def test_an_epoch_that_takes_long_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(interleaved, "WARM_S", 0.05)
    taken = []
    made = turns(lambda query: None, step=lambda: time.sleep(0.01) or taken.append(1) or 1, log=[{}])
    made.warm_up()
    made.close()
    assert 2 <= len(taken) <= 7


def test_queries_are_answered_while_a_minibatch_is_loaded():
    """At the end of an epoch a loader starts anew, which takes many times as long as a step."""
    loading, go_on, answered = threading.Event(), threading.Event(), []

    def load():
        loading.set()
        assert go_on.wait(10)

    stepped = []
    made = turns(answered.append, load=load, step=lambda: stepped.append(1) or 1)
    made.warm_up()
    stepped.clear()
    first_gap(made)
    assert loading.wait(10)
    made.issue(2, 1, None)
    assert answered == [0, 1, 2] and not stepped
    go_on.set()
    made.close()
    assert made.failure is None


def test_a_first_step_that_fails_is_raised_before_anything_is_measured():
    def full():
        raise MemoryError("no room for a minibatch")

    made = turns(lambda query: None, step=full, log=[{}])
    with pytest.raises(MemoryError, match="no room"):
        made.warm_up()
    made.close()


def first_gap(made):
    made.issue(0, 1, None)
    time.sleep(2 * GAP_S)
    made.issue(1, 1, None)


def test_queries_that_are_overdue_are_answered_one_after_another_without_a_step_between_them():
    begun = threading.Event()

    def step():
        begun.set()
        time.sleep(0.01)
        return 1

    made, order = served(step)
    first_gap(made)
    assert begun.wait(10)
    for query in range(2, 200):
        made.issue(query, 1, None)
    made.close()
    burst = order[order.index(2) : order.index(199)]
    assert burst.count("step") <= 2 and "step" in order  # 2: this thread, too, may be stopped for a while


def test_queries_without_gaps_leave_nothing_to_train_in():
    made, order = served(lambda: 1)
    made.ended = time.monotonic() + 100  # nothing that follows comes after a gap
    made.issue(0, 1, None)
    assert not made.begin.is_set()
    assert isinstance(made.metrics(WHOLE)["trained_sps"], Absent)
    made.close()
    assert order == [0]


def test_a_step_that_fails_ends_the_run_at_the_next_query():
    def step():
        raise ValueError("a broken file")

    made, order = served(step)
    first_gap(made)
    made.thread.join(10)
    with pytest.raises(ValueError, match="a broken file"):
        made.issue(2, 1, None)
    made.close()
    assert 2 not in order and "a broken file" in made.metrics(WHOLE)["trained_sps"].reason


def test_a_training_that_cannot_go_on_fails_the_trial(monkeypatch):
    from edgescope.backends.pytorch.training import Loop

    def full(self):
        raise RuntimeError("the disk of the data set is gone")

    monkeypatch.setattr(Loop, "step", full)
    asked = Trial(model="lenet5", workload="interleaved", scenario="fixed_rate", rate=50.0, warmup=0.1)
    found = bench.run(asked)
    assert found.status is Status.FAILED and "the disk of the data set is gone" in str(found.reason)


def test_a_scenario_without_gaps_is_refused():
    found = bench.run(Trial(model="lenet5", workload="interleaved", warmup=0.1))
    assert found.status is Status.UNSUPPORTED and "E-SLICE-4" in str(found.reason)
