"""Training in the gaps between queries: a step begins only where no query waits or is overdue."""

import threading
import time
from types import SimpleNamespace

import pytest

from edgescope.workloads.interleaved import PAUSE_S, Slices


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


def test_queries_that_are_overdue_are_answered_one_after_another_without_a_step_between_them():
    order, begun = [], threading.Event()

    def step():
        order.append("step")
        begun.set()
        time.sleep(0.01)
        return 1

    work = SimpleNamespace(issue=lambda query, samples, done: order.append(query))
    made = Slices(work, SimpleNamespace(step=step, line=SimpleNamespace(steps=1)), 0.0)
    made.issue(0, 1, None)
    assert begun.wait(10)
    for query in range(1, 200):
        made.issue(query, 1, None)
    made.close()
    burst = order[order.index(1) : order.index(199)]
    assert burst.count("step") <= 2 and made.trained >= 1  # 2: this thread, too, may be stopped for a while


def test_a_step_that_fails_ends_the_training_and_not_the_queries():
    def step():
        raise ValueError("a broken file")

    answered = []
    made = Slices(SimpleNamespace(issue=lambda *a: answered.append(a)), SimpleNamespace(step=step), 0.0)
    for query in range(3):
        made.issue(query, 1, None)
        time.sleep(0.01)
    made.close()
    assert len(answered) == 3 and made.failure == "training: ValueError: a broken file"
    assert "broken file" in made.metrics()["trained_sps"].reason
