"""What drives the stages: every unit exactly once, whatever the stages do."""

import random
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.analysis.predict.pipeline import POLICIES
from edgescope.records import QUERY_DROPPED, QUERY_END, QUERY_ERROR, QUERY_OK
from edgescope.video.flow import Calls, EndOfFilm, Ledger, Queue, Sequential, Stage, Threaded
from edgescope.video.frame import Frame, Item


class Film:
    """Gives numbered frames, `batch` a unit, until there are `count`."""

    def __init__(self, count, batch=1):
        self.left, self.batch, self.lock = list(range(count))[::-1], batch, threading.Lock()

    def __call__(self, item):
        with self.lock:
            item.frames = [Frame(None, self.left.pop(), 5) for _ in range(min(self.batch, len(self.left)))]
        if not item.frames:
            raise EndOfFilm


def driven(flow, units, in_flight):
    """Return (query, status, samples, source) of all units of a closed loop."""
    seen, free = [], threading.Semaphore(in_flight)

    def done(query_id, status, samples=0, source_ns=-1):
        seen.append((query_id, status, samples, source_ns))
        free.release()

    for number in range(units):
        free.acquire()
        try:
            flow.issue(number, 1, done)
        except EndOfFilm:
            break
    for _ in range(in_flight):
        assert free.acquire(timeout=20), "a unit was never done"
    flow.close()
    return seen


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(0, 30),
    batch=st.integers(1, 4),
    in_flight=st.integers(1, 9),
    threads=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    seed=st.integers(0, 2**16),
)
def test_every_frame_comes_through_once_under_random_delays(count, batch, in_flight, threads, seed):
    rng, out = random.Random(seed), []

    def slow(item):
        time.sleep(rng.random() * 1e-3)

    stages = [Stage("decode", Film(count, batch)), *(Stage(f"s{k}", slow, n) for k, n in enumerate(threads))]
    flow = Sequential(stages) if in_flight == 1 else Threaded(stages, bound=2)
    flow.seen = lambda item: out.extend(frame.index for frame in item.frames)
    seen = driven(flow, count + 5, in_flight)
    assert sorted(out) == list(range(count)) == list(range(flow.counts.done))
    assert sum(samples for _, status, samples, _ in seen if status == QUERY_OK) == count
    assert {status for _, status, *_ in seen} <= {QUERY_OK, QUERY_END}
    assert len({query for query, *_ in seen}) == len(seen)


@pytest.mark.parametrize("in_flight", [1, 6])
@pytest.mark.parametrize("skip", [True, False])
def test_a_stage_that_throws_on_one_frame_in_a_hundred_loses_only_that_frame(in_flight, skip):
    def throws(item):
        if item.frames[0].index % 100 == 7:
            raise ValueError(f"frame {item.frames[0].index}")

    stages = [Stage("decode", Film(300)), Stage("bad", throws), Stage("after", lambda item: None)]
    flow = Sequential(stages, skip=skip) if in_flight == 1 else Threaded(stages, skip=skip)
    seen = driven(flow, 400, in_flight)
    states = [status for _, status, *_ in seen if status != QUERY_END]
    assert flow.counts.done == 297 and states.count(QUERY_OK) == 297
    assert states.count(QUERY_DROPPED if skip else QUERY_ERROR) == 3
    assert flow.counts.skipped == (3 if skip else 0)
    assert flow.counts.first_error == "ValueError: frame 7"


@pytest.mark.parametrize("full", POLICIES)
def test_a_full_queue_waits_or_drops_as_asked_and_every_frame_is_accounted_for(full):
    gate, taken, out = threading.Event(), threading.Event(), []

    def stuck(item):
        taken.set()
        assert gate.wait(20)

    stages = [Stage("decode", Film(20)), Stage("slow", stuck)]
    flow = Threaded(stages, bound=3, full=full)
    flow.seen = lambda item: out.extend(frame.index for frame in item.frames)
    seen = []
    for number in range(20):
        flow.issue(number, 1, lambda *about: seen.append(about))
        assert taken.wait(20)
    until(lambda: len(flow.queues[1].items) == 3 and (full == "block" or flow.counts.dropped == 16))
    gate.set()
    flow.close()
    assert flow.counts.done + flow.counts.dropped == 20 == len(seen)
    expected = {"block": list(range(20)), "drop_oldest": [0, 17, 18, 19], "drop_newest": [0, 1, 2, 3]}
    assert out == expected[full]
    assert all(source == 5 for *_, source in seen)


def until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(1e-3)


def test_closing_with_full_queues_drains_them_and_leaves_no_thread():
    before = threading.active_count()
    stages = [
        Stage("decode", Film(50)),
        Stage("slow", lambda item: time.sleep(2e-3), 2),
        Stage("last", lambda item: None),
    ]
    flow, seen = Threaded(stages, bound=2), []
    for number in range(12):
        flow.issue(number, 1, lambda *about: seen.append(about))
    flow.close()
    assert len(seen) == 12 and threading.active_count() == before


def test_closing_does_not_hang_on_a_stage_that_hangs():
    gate = threading.Event()
    flow = Threaded([Stage("decode", Film(5)), Stage("stuck", lambda item: gate.wait(60))], bound=1)
    for number in range(4):
        flow.issue(number, 1, lambda *about: None)
    start = time.monotonic()
    flow.close(wait_s=0.2)
    assert time.monotonic() - start < 30
    gate.set()


def test_stages_overlap_in_threads_and_not_in_sequence():
    def nap(item):
        time.sleep(0.01)

    def seconds(flow, in_flight):
        start = time.monotonic()
        driven(flow, 30, in_flight)
        return time.monotonic() - start

    stages = [Stage("decode", Film(30)), *(Stage(f"s{k}", nap) for k in range(3))]
    sequence = seconds(Sequential(stages), 1)
    stages[0] = Stage("decode", Film(30))
    assert seconds(Threaded(stages), 8) < 0.7 * sequence


def test_the_time_of_each_stage_is_counted():
    flow = Sequential([Stage("decode", Film(4)), Stage("nap", lambda item: time.sleep(0.01))])
    driven(flow, 9, 1)
    assert flow.counts.busy_ns["nap"] >= 0.04e9 > flow.counts.busy_ns["decode"] > 0


@pytest.mark.parametrize("kind", [Sequential, Threaded])
def test_a_ledger_tells_one_stretch_of_a_run_from_another(kind):
    def fails(item):
        if item.frames[0].index == 2:
            raise ValueError("unreadable")

    flow, done = (
        kind([Stage("decode", Film(7, batch=2)), Stage("fails", fails)], skip=True),
        threading.Semaphore(0),
    )
    flow.ledger = Ledger()

    def drive(units):
        for number in range(units):
            flow.issue(number, 1, lambda *told: done.release())
            assert done.acquire(timeout=20)
        return time.monotonic_ns()

    between = drive(2)
    with pytest.raises(EndOfFilm):
        drive(9)
    end = time.monotonic_ns()
    flow.close()
    early, late = (flow.ledger.calls(0, *when) for when in ((0, between), (between, end)))
    assert (early.units, late.units) == (2, 2)
    assert early.busy_ns + late.busy_ns == flow.counts.busy_ns["decode"]
    assert flow.ledger.lost(0, between) == (0, 2) and flow.ledger.lost(between, end) == (0, 0)


def test_units_that_a_stage_takes_together_share_its_time():
    flow = Sequential([Stage("infer", lambda item: None)])
    flow.ledger = Ledger()
    flow.called(0, 10, 4, 8000, 4000)
    flow.called(0, 20, 1, 2000, 0)
    assert flow.ledger.calls(0, 10, 20) == Calls(5, 10_000, 4000)
    assert flow.ledger.calls(0, 11, 19) == flow.ledger.calls(1, 0, 99) == Calls(0, 0, 0)


def test_what_a_full_queue_drops_is_no_frame_that_a_stage_skipped():
    flow = Sequential([Stage("decode", Film(1))])
    flow.ledger = Ledger()
    flow.dropped(Item(0, frames=[Frame(None, 0, 5)] * 3), lambda *told: None)
    assert flow.ledger.lost(0, 2**62) == (3, 0)


def compute(item):
    end = time.process_time() + 0.004
    while time.process_time() < end:
        sum(range(500))


@pytest.mark.parametrize("kind", [Sequential, Threaded])
def test_the_time_on_a_cpu_is_read_after_long_calls_only(kind):
    """A stage that sleeps is at work and hardly on a CPU; of one with brief calls nothing is read, and none told."""
    naps = Stage("nap", lambda item: time.sleep(0.01))
    flow = kind([Stage("decode", Film(6)), naps, Stage("compute", compute), Stage("pass", lambda item: None)])
    driven(flow, 9, 1)
    busy, cpu = flow.counts.busy_ns, flow.counts.cpu_ns
    assert cpu["nap"] < 0.3 * busy["nap"] and busy["nap"] > 0.05e9
    assert cpu["compute"] > 6 * 0.003e9
    assert cpu["pass"] < 0.01e9


@pytest.mark.parametrize(("place", "shorter"), [("cpu", False), ("gpu", True)])
def test_the_interpreter_is_handed_on_sooner_only_beside_a_gpu_and_until_it_is_closed(place, shorter):
    """On a CPU it would hide from `interpreter_wait_s` that threads wait for each other."""
    before = sys.getswitchinterval()
    flow = Threaded([Stage("decode", Film(1)), Stage("infer", lambda item: None, place=place)])
    assert (sys.getswitchinterval() < before) is shorter
    driven(flow, 2, 1)
    assert sys.getswitchinterval() == before


def test_a_queue_that_is_closed_lets_a_waiting_stage_go():
    queue = Queue(1, "block", lambda item, done: None)
    queue.put((Item(0), print))
    late = threading.Thread(target=queue.put, args=((Item(1), print),))
    late.start()
    queue.close()
    late.join(5)
    assert not late.is_alive() and queue.get()[0][0].query_id == 0


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(0, 40),
    unit=st.integers(1, 3),
    frames=st.integers(1, 9),
    bad=st.sets(st.integers(0, 40)),
)
def test_a_stage_with_a_batch_joins_units_that_wait_and_parts_them_again(count, unit, frames, bad):
    """Order is kept, the end flushes, a frame that fails takes only its own unit with it."""
    calls, out = [], []

    def prepared(item):
        item.inputs = [np.array([[frame.index] for frame in item.frames] + [[-1]])]  # a row that only fills

    def network(item):
        calls.append([frame.index for frame in item.frames])
        if bad & set(calls[-1]):
            raise ValueError("a bad frame")
        item.outputs = [[item.inputs[0] * 10]]
        time.sleep(1e-4)

    def read(item):
        out.append(
            (
                item.query_id,
                [(f.index, int(row[0])) for f, row in zip(item.frames, item.outputs[0][0], strict=False)],
            )
        )

    stages = [Stage("decode", Film(count, unit)), Stage("prepare", prepared)]
    stages += [Stage("infer", network, batch=frames), Stage("read", read)]
    flow = Threaded(stages, bound=4, skip=True)
    seen = driven(flow, count + 5, 8)
    assert all(len(call) <= max(frames, unit) for call in calls)
    found = [pair for _, rows in out for pair in rows]
    assert found == sorted(found) and all(made == 10 * index for index, made in found)
    units = [range(first, min(first + unit, count)) for first in range(0, count, unit)]
    lost = {index for mine in units if bad & set(mine) for index in mine}
    assert {index for index, _ in found} == set(range(count)) - lost
    assert flow.counts.done == count - len(lost) and flow.counts.skipped == len(lost)
    assert len({query for query, *_ in seen}) == len(seen)


def test_a_batch_fills_up_while_the_stage_before_it_is_ahead():
    calls = []

    def slow(item):
        calls.append(len(item.frames))
        time.sleep(5e-3)

    flow = Threaded([Stage("decode", Film(64)), Stage("infer", slow, batch=8)], bound=4)
    driven(flow, 64, 32)
    assert max(calls) == 8 and sum(calls) == 64 and len(calls) < 30
