"""Training in the gaps between queries: a step begins only where no query waits or is overdue."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope import bench
from edgescope.errors import UnsupportedError, UsageError
from edgescope.records import Absent, Measured, Status, Trial, Window
from edgescope.wings.training import workload
from edgescope.wings.training.workload import GAP_S, PAUSE_S, Slices
from edgescope.workloads.base import OpenWorkload

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
    usual["precision_check"] = SimpleNamespace(stop=lambda: None)
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

    precision_check = SimpleNamespace(stop=lambda: stopped.append(True))
    made = turns(lambda query: None, step=step, log=log, line=line, precision_check=precision_check)
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
    monkeypatch.setattr(workload, "WARM_S", 0.05)
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


@pytest.mark.process
def test_a_training_that_cannot_go_on_fails_the_trial(monkeypatch):
    from edgescope.wings.training.loop import Loop

    def full(self):
        raise RuntimeError("the disk of the data set is gone")

    monkeypatch.setattr(Loop, "step", full)
    asked = Trial(model="lenet5", workload="interleaved", scenario="fixed_rate", rate=50.0, warmup=0.1)
    found = bench.run(asked)
    assert found.status is Status.FAILED and "the disk of the data set is gone" in str(found.reason)


@pytest.mark.process
def test_a_scenario_without_gaps_is_refused():
    found = bench.run(Trial(model="lenet5", workload="interleaved", warmup=0.1))
    assert found.status is Status.UNSUPPORTED and "E-SLICE-4" in str(found.reason)


class Clock:
    """Time that passes only as a test says."""

    def __init__(self):
        self.t, self.slept = 100.0, []

    def monotonic(self):
        return self.t

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.t += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(workload, "time", made)
    return made


@pytest.mark.parametrize(
    ("keys", "since", "free"),
    [
        ({"gap_s": 0.25}, PAUSE_S, True),
        ({"gap_s": 0.25}, PAUSE_S * 0.99, False),
        ({"gap_s": 0.25, "waiting": 1}, 0.125, False),
        ({"guard": 1.0, "gap_s": 0.25, "step_s": 0.125}, 0.125, True),  # it just fits
        ({"guard": 1.0, "gap_s": 0.25, "step_s": 0.125}, 0.1251, False),
        ({"guard": 2.0, "gap_s": 0.5, "step_s": 0.125}, 0.25, True),
        ({"guard": 2.0, "gap_s": 0.5, "step_s": 0.125}, 0.26, False),
        ({"guard": 0.0, "gap_s": 0.25, "step_s": 9.0}, 0.2, True),
        ({"guard": 9.0, "gap_s": 0.0, "step_s": 9.0}, 0.2, True),
    ],
)
def test_a_step_begins_where_it_just_fits(keys, since, free):
    guard = keys.pop("guard", 0.0)
    assert slices(guard, ended=0.0, **keys)._free(since) is free


def test_the_pause_after_an_answer_is_half_a_millisecond_and_the_first_gap_four_of_them():
    assert (PAUSE_S, GAP_S) == (0.0005, 0.002)


def test_the_gap_that_is_expected_follows_those_that_were(clock):
    waiting = []

    def answer(query):
        waiting.append(made.waiting)
        clock.t += 0.25

    made = turns(answer)
    for pause_s, begun, gap_s in ((9.0, True, 0.0), (0.5, True, 0.5), (1.0, True, 0.6), (0.1, True, 0.5)):
        made.ended = clock.t if made.ended == float("inf") else made.ended
        clock.t += pause_s
        made.issue(0, 1, None)
        assert made.begin.is_set() is begun and made.gap_s == pytest.approx(gap_s)
        assert made.waiting == 0 and made.ended == clock.t
    assert waiting == [1] * 4


@pytest.mark.parametrize(("gap_s", "begins"), [(0.0019, False), (0.00200001, True), (0.5, True)])
def test_training_begins_with_a_gap_of_two_milliseconds(clock, gap_s, begins):
    made = turns(lambda query: None)
    made.issue(0, 1, None)
    assert not made.begin.is_set()  # the first query follows no other
    clock.t += gap_s
    made.issue(1, 1, None)
    assert made.begin.is_set() is begins and made.gap_s == 0.0


def warmed(clock, *step_s, epoch=99, lasts=99):
    """A warm-up with steps of so many seconds; an epoch has `epoch` of them, the data `lasts`."""
    left, log, stopped = iter(step_s), [{}], []

    def step():
        clock.t += next(left)
        taken.append(1)
        if len(taken) == epoch:
            log.append({})
        return None if len(taken) > lasts else 8

    taken = []
    precision_check = SimpleNamespace(stop=lambda: stopped.append(1))
    made = turns(None, step=step, log=log, precision_check=precision_check)
    made._warm()
    assert stopped == [1]
    return len(taken), made.step_s


def test_training_warms_up_for_an_epoch_or_for_two_seconds_after_its_first_step(clock):
    assert warmed(clock, 9.0, *[0.25] * 20) == (9, 0.25)
    assert warmed(clock, 9.0, *[0.75] * 20) == (4, 0.75)
    assert warmed(clock, *[0.25] * 20, epoch=3) == (3, 0.25)
    assert warmed(clock, 0.5, 0.25, 0.125, lasts=2) == (3, 0.25)  # the last did nothing


def test_a_warm_up_that_is_told_to_stop_does_no_step(clock):
    made = turns(None, step=lambda: 1 / 0, log=[{}])
    made.stop.set()
    made._warm()


def test_the_length_of_a_step_is_that_of_the_last_ones(clock):
    took = iter([1.0, 2.0, 0.2])

    def step():
        clock.t += next(took)

    made, found = turns(None, step=step), []
    for _ in range(3):
        made._step()
        found.append(made.step_s)
    assert found == pytest.approx([1.0, 1.2, 1.0])


def test_between_looks_the_thread_that_trains_sleeps(clock):
    log = []
    made = turns(None, load=lambda: log.append("load"), step=lambda: log.append("step"))
    free = iter([False, True, False])

    def look(now):
        assert made.device.locked() and now == clock.t
        try:
            return next(free)
        except StopIteration:
            made.stop.set()
            return False

    made._free = look
    made.begin.set()
    made._train()
    assert log == ["load", "load", "step", "load", "load"] and clock.slept == [1e-4] * 3
    assert made.warm.is_set() and made.failure is None


def test_training_that_ended_says_why_and_training_that_did_not_begin_that(clock):
    made = turns(None)
    found = made.metrics(WHOLE)
    assert {field.reason for field in found.values()} == {"no gap between queries was long enough"}
    made.begin.set()
    assert isinstance(made.metrics(WHOLE)["trained_sps"], Measured)
    made.failure = ValueError("gone")
    assert {field.reason for field in made.metrics(WHOLE).values()} == {"training: gone"}


def test_what_never_began_is_closed_without_waiting():
    made = turns(None)
    made.close()
    assert made.stop.is_set() and made.begin.is_set() and not made.thread.is_alive() and made.thread.daemon


class Opening:
    """What opening an interleaved trial makes, in order."""

    def __init__(self, monkeypatch):
        self.log = []
        monkeypatch.setattr(workload, "need", lambda *_: self.loop)
        monkeypatch.setattr(workload.Inference, "open", self.served)
        monkeypatch.setattr(Slices, "warm_up", lambda made: self.log.append("warm"))
        monkeypatch.setattr(Slices, "close", lambda made: self.log.append("close"))

    def loop(self, model, trial, options):
        self.log.append((model, trial, options))
        return SimpleNamespace(close=lambda: self.log.append("loop"), between=None)

    @contextmanager
    def served(self, trial, parts):
        self.log.append(dict(trial.workload_options))
        told = Measured(1.0, "s")
        yield OpenWorkload(
            work=SimpleNamespace(),
            model=None,
            effective=None,
            artifact={"a": 1},
            metrics=lambda *_: {"own": told},
        )


SERVED = Trial(model="m", backend="b", workload="interleaved", scenario="fixed_rate", rate=5.0, batch=4)


@pytest.mark.parametrize(
    ("options", "model", "batch", "guard", "workers"),
    [
        ({}, "m", 16, 0.0, -1),
        ({"train": "lenet5", "train_batch": 2, "guard": 1.5, "num_workers": 3}, "lenet5", 2, 1.5, 3),
    ],
)
def test_what_is_trained_beside_the_queries(monkeypatch, options, model, batch, guard, workers):
    opening = Opening(monkeypatch)
    asked = replace(SERVED, workload_options=options, precision="fp16", io="pinned", device="cuda")
    parts = SimpleNamespace(model=lambda trial: f"model {trial.model}")
    with workload.Interleaved().open(asked, parts) as opened:
        (made, trained, given), served, warm = opening.log
        assert (made, served, warm) == (f"model {model}", {}, "warm") and opened.work.guard == guard
        assert (trained.batch, trained.precision, trained.backend) == (batch, "fp32", "torch_eager")
        assert (trained.io, trained.device, trained.workload) == ("host", "cuda", "training")
        assert given["num_workers"] == workers and given["epochs"] == 0
        assert opened.artifact["train"] == model and opened.artifact["a"] == 1
        assert set(opened.metrics(None, WHOLE)) == {"own", "trained_sps", "train_step_s"}
    assert opening.log[3:] == ["close", "loop"]
    assert workload.Interleaved().program(asked, parts) is None


@pytest.mark.parametrize(
    ("keys", "code"),
    [({"in_flight": 2}, "E-SLICE-1"), ({"scenario": "single_stream", "rate": None}, "E-SLICE-4")],
)
def test_what_leaves_no_slices_is_refused(monkeypatch, keys, code):
    opening = Opening(monkeypatch)
    with (
        pytest.raises(UnsupportedError, match=code),
        workload.Interleaved().open(replace(SERVED, **keys), None),
    ):
        pass
    assert opening.log == []


@pytest.mark.parametrize("options", [{"train_batch": 0}, {"guard": -0.1}])
def test_options_have_their_least(options):
    with pytest.raises(UsageError, match="E-OPTION"):
        workload.read("interleaved", options, workload.Interleaved.OPTIONS)
