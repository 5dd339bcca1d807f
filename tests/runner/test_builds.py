"""Artifacts are built once, several at once."""

import contextlib
import os
import threading
import time
from types import SimpleNamespace

import psutil
import pytest

from edgescope.errors import Message
from edgescope.isolate.fresh import Limits
from edgescope.records import Status, Trial
from edgescope.runner import builds as module
from edgescope.runner.builds import Builds, Pace, at_once, needed
from making import result

TRIALS = [Trial(model="null", backend="null", precision=p) for p in ("fp32", "int8", "fp16", "bf16")]


class Slow:
    """Counts how many builds are under way at once."""

    def __init__(self, seconds=0.05, fails=()):
        self.seconds, self.fails = seconds, fails
        self.lock, self.now, self.most, self.built = threading.Lock(), 0, 0, []

    def prepare(self, trial, limits):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        end = time.monotonic() + self.seconds
        while time.monotonic() < end and not limits.cancelled():
            time.sleep(0.005)
        with self.lock:
            self.now -= 1
            self.built.append(trial.precision)
        if trial.precision in self.fails:
            return result(trial, status=Status.UNSUPPORTED, reason=Message("E-PREC-1", "no"))
        return None


def builds(runner, count=3):
    return Builds(runner, Limits(), Pace(), at_once=lambda: count)


def test_what_comes_next_is_built_beside_the_first_and_nothing_twice():
    runner = Slow()
    made = builds(runner)
    made.build(TRIALS)
    assert runner.most == 3 and set(runner.built) == {"fp32", "int8", "fp16"}
    made.build(TRIALS)  # the first is there: what comes later waits for its turn
    assert len(runner.built) == 3
    made.build(TRIALS[1:])
    assert len(runner.built) == 3
    made.build(TRIALS[3:])
    assert runner.built[3:] == ["bf16"]


def test_what_was_tried_is_not_built_beside_another():
    runner = Slow(0.0, fails=("int8",))
    made = builds(runner)
    made.build(TRIALS[:2])
    made.build([TRIALS[2], *TRIALS[:2], TRIALS[2], TRIALS[3]])
    assert sorted(runner.built) == sorted(t.precision for t in TRIALS)


def test_builds_beside_each_other_share_the_cores_and_one_alone_takes_what_it_likes(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(6))
    given = []

    class Told(Slow):
        def prepare(self, trial, limits):
            given.append(limits.threads)
            return super().prepare(trial, limits)

    made = builds(Told(0.0))
    made.build(TRIALS)
    made.build(TRIALS[3:])
    assert given == [2, 2, 2, None]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(2))
    builds(Told(0.0)).build(TRIALS)
    assert given[4:] == [1, 1, 1]


def test_each_build_is_named_while_one_waits_for_it():
    shown = []

    @contextlib.contextmanager
    def waiting(text):
        shown.append(text)
        yield

    Builds(Slow(), Limits(), Pace(), waiting=waiting, at_once=lambda: 2).build(TRIALS)
    assert shown == [f"building the artifact of null null {p}" for p in ("fp32", "int8")]


def test_one_process_builds_one_after_the_other():
    class Kept(Slow):
        one_by_one = True

    runner = Kept()
    builds(runner).build(TRIALS)
    assert runner.built == ["fp32"]


def test_no_more_at_once_than_there_is_room():
    runner = Slow()
    made = builds(runner, count=2)
    made.build(TRIALS[:1])
    made.build([*TRIALS[1:], TRIALS[1], TRIALS[0]])  # the same may come again later
    assert runner.most == 2 and runner.built[0] == "fp32" and set(runner.built[1:]) == {"int8", "fp16"}


def test_each_is_tried_once_and_its_failure_is_its_own():
    runner = Slow(fails=("int8",))
    made = builds(runner)
    made.build(TRIALS[:1])
    made.build(TRIALS[1:])
    assert made.failure(TRIALS[1]).reason.code == "E-PREC-1"
    assert [made.failure(t) for t in (TRIALS[0], *TRIALS[2:])] == [None] * 3
    assert len(runner.built) == len(TRIALS)


def test_ctrl_c_ends_the_other_builds_at_once():
    class Cut(Slow):
        def prepare(self, trial, limits):
            if trial.precision == "int8":
                raise KeyboardInterrupt
            return super().prepare(trial, limits)

    made = builds(Cut(seconds=120))
    made.pace.builds["anything"] = 1.0
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        made.build(TRIALS[1:])
    assert time.monotonic() - start < 60


def test_this_machine_can_build_one_at_least():
    assert at_once() >= 1


def test_what_only_runs_otherwise_shares_its_build():
    """A number of threads is no other file, and PyTorch builds nothing for a precision or a layout."""

    def trial(backend, precision="fp32", **options):
        return Trial(model="null", backend=backend, precision=precision, options=options)

    runner = Slow(0.0)
    made = builds(runner)
    for each in (
        *(
            trial("torch_eager"),
            trial("torch_eager", threads=1),
            trial("torch_eager", "bf16", layout="channels_last"),
        ),
        *(
            trial("onnxruntime", "int8"),
            trial("onnxruntime", "int8", threads=1),
            trial("onnxruntime", "int8", qdq="s8s8"),
        ),
    ):
        made.build([each])
    assert runner.built == ["fp32", "int8", "int8"]


def test_a_precision_that_is_refused_says_nothing_of_the_others():
    runner = Slow(0.0, fails=("bf16",))
    made = builds(runner)
    first, *rest = (Trial(model="null", backend="torch_eager", precision=p) for p in ("bf16", "fp32"))
    assert made.failure(first) is not None
    assert all(made.failure(each) is None for each in rest)
    assert made.failure(first) is not None and runner.built == ["bf16", "fp32"]


def test_a_build_that_failed_is_no_measure_of_how_long_one_takes():
    made = builds(Slow(0.0, fails=("int8",)))
    assert made.failure(TRIALS[1]) is not None and not made.pace.builds
    assert made.failure(TRIALS[0]) is None and len(made.pace.builds) == 1


@pytest.mark.parametrize(("cpus", "room", "count"), [(8, 3, 3), (2, 3, 2), (3, 3, 3), (8, 0, 1)])
def test_as_many_builds_at_once_as_there_are_cores_and_memory(monkeypatch, cpus, room, count):
    free = SimpleNamespace(available=room * module.BUILD_BYTES + module.BUILD_BYTES - 1)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cpus)) if pid == 0 else set())
    assert at_once() == count


@pytest.mark.parametrize(("builds_", "threads"), [(1, None), (2, 4), (3, 2), (8, 1), (9, 1)])
def test_builds_share_the_cores_out(monkeypatch, builds_, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)) if pid == 0 else set())
    assert module._share(builds_) == threads


def test_the_time_of_builds_beside_each_other_is_shared_and_a_failure_has_none():
    clock, pace = iter([10.0, 16.0, 16.0, 16.0]), Pace()
    made = Builds(Slow(0.0, fails=("int8",)), Limits(), pace, clock=lambda: next(clock), at_once=lambda: 3)
    made.build(TRIALS)
    made.build([])
    assert pace.builds == {needed(TRIALS[0]): 2.0, needed(TRIALS[2]): 2.0}
