"""What drives the stages: every unit exactly once, whatever the stages do."""

import random
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.frames import Frame, Item, joined, parted
from edgescope.records import QUERY_DROPPED, QUERY_END, QUERY_ERROR, QUERY_OK
from edgescope.wings.video import flow as module
from edgescope.wings.video.flow import POLICIES, Calls, EndOfFilm, Ledger, Queue, Sequential, Stage, Threaded


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

    def done(query_id, status, samples=0, source_ns=-1, marks=None):
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
    assert all(source == 5 for _, _, _, source, *_ in seen)


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
        driven(flow, 12, in_flight)
        return time.monotonic() - start

    stages = [Stage("decode", Film(12)), *(Stage(f"s{k}", nap) for k in range(3))]
    sequence = seconds(Sequential(stages), 1)
    stages[0] = Stage("decode", Film(12))
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


class Clocks:
    """The clocks of a flow: work takes time of both only where a stage says so."""

    def __init__(self, monkeypatch):
        self.now = self.cpu = 0
        told = {"monotonic_ns": lambda: self.now, "monotonic": lambda: self.now / 1e9, "sleep": time.sleep}
        used = dict.fromkeys(("process_time_ns", "thread_time_ns"), lambda: self.cpu)
        monkeypatch.setattr(module, "time", SimpleNamespace(**told, **used))

    def stage(self, name, ns, cpu_ns, last=9, **keys):
        def run(item):
            self.now, self.cpu = self.now + ns, self.cpu + cpu_ns
            if item.query_id > last:
                raise EndOfFilm
            if not item.frames:
                item.frames = [Frame(None, item.query_id, 5)] * 2

        return Stage(name, run, **keys)


def test_the_time_of_brief_calls_is_left_to_the_next_long_one(monkeypatch):
    """The clock of CPU time is read after calls of more than 20 us; what brief ones before it took is in it."""
    clocks = Clocks(monkeypatch)
    flow = Sequential(
        [clocks.stage("a", 20_000, 7), clocks.stage("b", 20_001, 5), clocks.stage("c", 30_000, 3)]
    )
    flow.ledger = Ledger()
    driven(flow, 2, 1)
    assert flow.counts.busy_ns == {"a": 40_000, "b": 40_002, "c": 60_000}
    assert flow.counts.cpu_ns == {"a": 0, "b": 24, "c": 6}
    assert flow.ledger.calls(1, 0, 40_001) == Calls(1, 20_001, 12)
    assert (flow.counts.units, flow.counts.done) == (2, 4)


def test_a_thread_counts_its_calls_one_by_one_and_not_the_end_of_the_film(monkeypatch):
    clocks = Clocks(monkeypatch)
    done = threading.Semaphore(0)
    flow = Threaded([clocks.stage("a", 20_001, 5, last=1)])
    flow.ledger = Ledger()
    for number in range(3):
        flow.issue(number, 1, lambda *told: done.release())
        assert done.acquire(timeout=20)
    flow.close()
    assert (flow.counts.busy_ns, flow.counts.cpu_ns) == ({"a": 40_002}, {"a": 10})
    assert flow.ledger.calls(0, 0, 99_999) == Calls(2, 40_002, 10)
    assert (flow.counts.units, flow.counts.done) == (2, 4)


def test_a_thread_leaves_the_time_of_brief_calls_to_the_next_long_one(monkeypatch):
    clocks, lengths = Clocks(monkeypatch), iter([20_000, 20_001])
    done = threading.Semaphore(0)

    def run(item):
        clocks.now, clocks.cpu = clocks.now + next(lengths), clocks.cpu + 7

    flow = Threaded([Stage("a", run)])
    flow.ledger = Ledger()
    for number in range(2):
        flow.issue(number, 1, lambda *told: done.release())
        assert done.acquire(timeout=20)
    flow.close()
    assert (flow.ledger.calls(0, 0, 20_000), flow.counts.cpu_ns) == (Calls(1, 20_000, 0), {"a": 14})


def told_of(flow, act):
    """What a flow tells of the unit that `act` gives it."""
    told = []
    act(flow, lambda *about: told.append(about))
    return told


def test_what_becomes_of_a_unit_is_told_with_its_frames_and_their_moment(monkeypatch):
    clocks = Clocks(monkeypatch)
    bare, full = Item(3), Item(4, frames=[Frame(None, 0, 5), Frame(None, 1, 6)])
    for skip, ledger in ((True, Ledger()), (False, Ledger()), (True, None), (False, None)):
        flow = Sequential([Stage("a", print)], skip=skip)
        flow.ledger = ledger
        clocks.now = 50
        assert told_of(flow, lambda f, done: f.finished(bare, done)) == [(3, QUERY_OK, 0, -1, {})]
        assert told_of(flow, lambda f, done: f.finished(full, done)) == [(4, QUERY_OK, 2, 5, {})]
        assert told_of(flow, lambda f, done: f.dropped(bare, done)) == [(3, QUERY_DROPPED, 0, -1)]
        assert told_of(flow, lambda f, done: f.dropped(full, done)) == [(4, QUERY_DROPPED, 2, 5)]
        clocks.now = 60
        lost = [
            told_of(flow, lambda f, done, u=u: f.failed(u, ValueError(u.query_id), done))
            for u in (bare, full)
        ]
        assert lost == (
            [[(3, QUERY_DROPPED, 0)], [(4, QUERY_DROPPED, 2)]]
            if skip
            else [[(3, QUERY_ERROR)], [(4, QUERY_ERROR)]]
        )
        counts = flow.counts
        assert (counts.units, counts.done, counts.dropped, counts.skipped) == (2, 2, 2, 3 if skip else 0)
        assert (counts.first_error, counts.last_error) == ("ValueError: 3", "ValueError: 4")
        if ledger is not None:
            assert [ledger.lost(t, t) for t in (49, 50, 51, 60)] == [
                (0, 0),
                (2, 0),
                (0, 0),
                (0, counts.skipped),
            ]
            assert ledger.lost(50, 60) == (2, counts.skipped)


def unit(number, frames=2):
    return Item(number, frames=[Frame(None, k) for k in range(frames)]), print


@pytest.mark.parametrize(
    ("frames", "taken"),
    [(0, [1]), (1, [1]), (2, [1]), (3, [1]), (4, [1, 2]), (5, [1, 2]), (6, [1, 2, 3]), (9, [1, 2, 3])],
)
def test_a_queue_gives_the_oldest_and_what_fits_beside_it(frames, taken):
    queue = Queue(3, "block", print)
    for number in (1, 2, 3):
        queue.put(unit(number))
    assert [item.query_id for item, _ in queue.get(frames)] == taken
    queue.close()
    rest = [item.query_id for _ in range(3 - len(taken)) for item, _ in queue.get()]
    assert taken + rest == [1, 2, 3] and queue.get() == queue.get(4) == []


def test_a_first_unit_larger_than_a_batch_goes_by_itself():
    queue = Queue(None, "block", print)
    for number in range(9):
        queue.put(unit(number, 5))
    assert [item.query_id for item, _ in queue.get(4)] == [0] and len(queue.items) == 8


@pytest.mark.parametrize(("full", "kept", "lost"), [("drop_oldest", [1, 2], 0), ("drop_newest", [0, 1], 2)])
def test_a_queue_at_its_bound_drops_one_and_a_closed_one_none(full, kept, lost):
    dropped = []
    queue = Queue(2, full, lambda item, done: dropped.append((item.query_id, done)))
    for number in range(3):
        queue.put(unit(number))
    assert dropped == [(lost, print)] and [item.query_id for item, _ in queue.items] == kept
    queue.close()
    queue.put(unit(7))
    assert len(dropped) == 1 and [item.query_id for item, _ in queue.items] == [*kept, 7]


def test_a_batch_that_is_taken_lets_as_many_waiting_stages_go():
    queue, put = Queue(2, "block", print), threading.Semaphore(0)
    queue.put(unit(0)), queue.put(unit(1))
    late = [
        threading.Thread(target=lambda n=n: (queue.put(unit(n)), put.release()), daemon=True) for n in (2, 3)
    ]
    for thread in late:
        thread.start()
    until(lambda: len(queue.emptied._waiters) == 2)
    assert len(queue.get(4)) == 2
    assert put.acquire(timeout=20) and put.acquire(timeout=20) and len(queue.items) == 2


def test_the_queues_hold_the_bound_or_a_batch_and_the_first_one_all():
    stages = [Stage("decode", Film(1)), Stage("a", print, threads=2), Stage("b", print, batch=9)]
    flow = Threaded(stages, full="drop_newest")
    assert [(queue.bound, queue.full) for queue in flow.queues] == [
        (None, "block"),
        (4, "drop_newest"),
        (9, "drop_newest"),
    ]
    assert [thread.name for thread in flow.threads] == ["stage decode", "stage a", "stage a", "stage b"]
    assert all(thread.daemon for thread in flow.threads)
    flow.close()
    assert not any(thread.is_alive() for thread in flow.threads)


@pytest.mark.parametrize(("before", "within"), [(5e-3, 2e-4), (1e-4, 1e-4)])
def test_beside_a_gpu_the_interpreter_is_kept_for_a_fifth_of_a_millisecond_at_most(before, within):
    usual = sys.getswitchinterval()
    sys.setswitchinterval(before)
    try:
        flow = Threaded([Stage("infer", print, place="gpu"), Stage("read", print)])
        assert sys.getswitchinterval() == pytest.approx(within, abs=2e-6)
        flow.close()
        assert sys.getswitchinterval() == pytest.approx(before, abs=2e-6)
    finally:
        sys.setswitchinterval(usual)


# -- units that are joined and parted --------------------------------------------------------------------------


def filled(number, frames, rows=4):
    """A unit of a batch of `rows`, the last ones of which only fill it: two inputs, two networks, two outputs each."""
    values = np.arange(rows)[:, None] + 10.0 * number
    ids = [10 * number + k for k in range(frames)]
    return Item(
        number,
        frames=[Frame(None, k) for k in ids],
        inputs=[values, values + 0.5],
        fits=[f"fit {k}" for k in ids],
        outputs=[[values * 2, values * 3], [values * 4]],
        found=[f"found {k}" for k in ids],
        classes=[(k,) for k in ids],
        notes={"unit": number, f"only {number}": 1},
    )


@pytest.mark.parametrize("kind", [np.asarray, "torch"])
def test_units_are_joined_without_the_rows_that_fill_them(kind):
    if kind == "torch":
        kind = pytest.importorskip("torch").as_tensor
    items = [filled(1, 2), filled(2, 3)]
    for item in items:
        item.inputs = [kind(given) for given in item.inputs]
        item.outputs = [[kind(output) for output in outputs] for outputs in item.outputs]
    whole = joined(items)
    ids = [10, 11, 20, 21, 22]
    assert whole.query_id == 1 and [frame.index for frame in whole.frames] == ids
    assert [given[:, 0].tolist() for given in whole.inputs] == [ids, [k + 0.5 for k in ids]]
    assert [[out[:, 0].tolist() for out in outs] for outs in whole.outputs] == [
        [[2 * k for k in ids], [3 * k for k in ids]],
        [[4 * k for k in ids]],
    ]
    assert whole.classes == [(k,) for k in ids] and whole.found[2] == "found 20" and whole.fits[4] == "fit 22"
    assert whole.notes == {"unit": 2, "only 1": 1, "only 2": 1}


def test_parted_units_get_their_own_rows_and_what_was_noted_of_all():
    items = [filled(1, 2), filled(2, 3)]
    whole = joined(items)
    whole.notes["made"] = "together"
    whole.classes = [(k, k) for k in range(5)]
    parted(whole, items)
    assert [item.classes for item in items] == [[(0, 0), (1, 1)], [(2, 2), (3, 3), (4, 4)]]
    assert [[out[:, 0].tolist() for out in item.outputs[0]] for item in items] == [
        [[20, 22], [30, 33]],
        [[40, 42, 44], [60, 63, 66]],
    ]
    assert [item.inputs[1][:, 0].tolist() for item in items] == [[10.5, 11.5], [20.5, 21.5, 22.5]]
    assert [item.notes for item in items] == [
        {"unit": 1, "only 1": 1, "made": "together"},
        {"unit": 2, "only 2": 1, "made": "together"},
    ]
    assert [[f.index for f in item.frames] for item in items] == [[10, 11], [20, 21, 22]]


def test_a_frame_is_shown_as_it_was_decoded_and_measured_by_that():
    small, large = np.zeros((4, 6, 3), np.uint8), np.ones((8, 12, 3), np.uint8)
    frame = Frame(small, 3)
    assert (frame.created_ns, frame.camera, frame.sides, frame.whole) == (-1, 0, None, None)
    assert np.isnan(frame.time_s) and frame.size == (6, 4) and frame.shown is small and frame.pixels is small
    scaled = Frame(small, 3, sides=(12, 8), whole=large)
    assert scaled.size == (12, 8) and scaled.shown is large and scaled.pixels is small
    torch = pytest.importorskip("torch")
    on_device = Frame(torch.as_tensor(small), 0, whole=torch.as_tensor(large))
    assert (on_device.pixels == small).all() and (on_device.shown == large).all()
    assert isinstance(on_device.pixels, np.ndarray)


def test_units_of_different_networks_are_not_joined():
    one, other = filled(1, 2), filled(2, 2)
    for lacking in ("inputs", "outputs"):
        changed = filled(2, 2)
        setattr(changed, lacking, getattr(other, lacking)[:1])
        with pytest.raises(ValueError, match="shorter"):
            joined([one, changed])
    changed = filled(2, 2)
    changed.outputs[0] = changed.outputs[0][:1]
    with pytest.raises(ValueError, match="shorter"):
        joined([one, changed])


@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_unit_tells_when_each_stage_began_and_ended_with_it(in_flight):
    """A stage of 1 ms each, in one thread: stages follow one another, and so do the units in a stage."""
    stages = [
        Stage("decode", Film(9)),
        Stage("slow", lambda item: time.sleep(1e-3)),
        Stage("last", lambda item: None),
    ]
    flow, told = Sequential(stages) if in_flight == 1 else Threaded(stages), {}
    free = threading.Semaphore(in_flight)

    def done(query_id, status, samples=0, source_ns=-1, marks=None):
        told[query_id] = marks
        free.release()

    for number in range(9):
        free.acquire()
        flow.issue(number, 1, done)
    flow.close()
    order = [f"{stage.name}_{at}" for stage in stages for at in ("begin", "end")]
    for marks in told.values():
        assert list(marks) == order and [*marks.values()] == sorted(marks.values())
        assert marks["slow_end"] - marks["slow_begin"] >= 1e6
    assert all(told[k + 1]["slow_begin"] >= told[k]["slow_end"] for k in range(8))
    busy = sum(marks["slow_end"] - marks["slow_begin"] for marks in told.values())
    assert busy == flow.counts.busy_ns["slow"]
