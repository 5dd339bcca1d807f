"""What a stage costs a pipeline, found by stubbing it: stages that sleep for known times."""

import time
from types import SimpleNamespace

import pytest

from edgescope.frames import Frame
from edgescope.wings.video import what_if
from edgescope.wings.video.flow import EndOfFilm, Sequential, Stage, Threaded

pytestmark = pytest.mark.alone  # stages that sleep for milliseconds are late beside other tests


def sleeps(name, ms):
    def run(item):
        time.sleep(ms / 1e3)
        if name == "decode":
            item.frames = [Frame(None, item.query_id)]

    return Stage(name, run)


def test_in_sequence_a_free_stage_saves_its_time():
    stages = [sleeps("decode", 2), sleeps("infer", 6), sleeps("post", 2)]
    found = what_if.measured(stages, Sequential, 1, 0.1)
    gains = {stage.name: stage.gain.value for stage in found.stages}
    assert gains["infer"] == pytest.approx(10 / 4, rel=0.15)
    assert gains["decode"] == pytest.approx(10 / 8, rel=0.15)
    assert {s.name: s.alone_fps for s in found.stages}["infer"] == pytest.approx(1000 / 6, rel=0.15)


def test_overlapped_only_the_slowest_stage_gains():
    stages = [sleeps("decode", 2), sleeps("infer", 6), sleeps("post", 3)]
    found = what_if.measured(stages, Threaded, 6, 0.15)
    gains = {stage.name: stage.gain.value for stage in found.stages}
    assert gains["infer"] == pytest.approx(2.0, rel=0.2)
    assert gains["decode"] == pytest.approx(1.0, rel=0.2) and gains["post"] == pytest.approx(1.0, rel=0.2)


def test_stages_are_timed_one_by_one_and_waited_for():
    waited = []
    stages = [
        sleeps("decode", 1),
        Stage(
            "gpu",
            lambda item: None,
            place="gpu",
            wait=lambda: waited.append(time.sleep(3e-3)),
            device_ns=lambda item: 2_000,
        ),
    ]
    rows = list(what_if.timed(stages, 4))
    assert [number for number, *_ in rows] == [0, 1, 2, 3] and len(waited) == 4
    for _, marks, ((name, start, end),) in rows:
        assert name == "gpu" and end - start == 2_000, "the device's own time, from doing it again"
        assert [name for name, *_ in marks] == ["decode", "gpu"]
        assert marks[0][2] == marks[1][1] and marks[1][2] - marks[1][1] >= 3e6


def test_the_end_of_the_film_ends_the_timing():
    def film(item):
        if item.query_id == 2:
            raise EndOfFilm
        item.frames = [Frame(None, 0)]

    assert len(list(what_if.timed([Stage("decode", film)], 9))) == 2


class Clock:
    """Time that passes only where a stage says so."""

    def __init__(self, monkeypatch):
        self.s = 0.0
        told = SimpleNamespace(monotonic=lambda: self.s, monotonic_ns=lambda: round(self.s * 1e9))
        monkeypatch.setattr(what_if, "time", told)

    def stage(self, name, seconds, frames=1, **keys):
        def run(item):
            self.s += seconds
            if name == "decode":
                item.frames = [Frame(None, k) for k in range(frames)]
            item.notes[name] = item.query_id

        return Stage(name, run, **keys)


@pytest.mark.parametrize(("seconds", "units"), [(0.7, 4), (0.5, 5), (0.01, 9), (5.0, 4)])
def test_of_a_slow_pipeline_fewer_units_are_timed(monkeypatch, seconds, units):
    """Four at least, then as many as begin within two seconds."""
    clock = Clock(monkeypatch)
    stages = [clock.stage("decode", seconds / 4), clock.stage("infer", 3 * seconds / 4)]
    rows = list(what_if.timed(stages, 9))
    assert [number for number, *_ in rows] == list(range(units)) and all(not row[2] for row in rows)
    start = round(1e9 * seconds * (units - 1))
    (_, first, middle), (_, again, end) = rows[-1][1]
    assert (first, middle, end) == pytest.approx(
        (start, start + seconds / 4e-9, start + seconds / 1e-9), abs=9
    )
    assert again == middle


@pytest.mark.parametrize(("seconds", "units"), [(0.7, 3), (0.5, 5), (0.0, 8), (9.0, 3)])
def test_of_a_slow_pipeline_fewer_units_are_kept_for_stubs(monkeypatch, seconds, units):
    clock = Clock(monkeypatch)
    stages = [clock.stage("decode", seconds), clock.stage("infer", 0.0, batch=4, wait=print, device_ns=id)]
    seen = what_if._after_each(stages)
    assert [item.query_id for item in seen["infer"]] == list(range(units))
    assert [item.notes for item in seen["decode"]] == [{"decode": k} for k in range(units)]
    assert [item.notes for item in seen["infer"]] == [{"decode": k, "infer": k} for k in range(units)]
    before = clock.s
    lone = what_if.alone(stages, "decode")
    assert lone[0] is stages[0] and (lone[1].wait, lone[1].batch, lone[1].device_ns) == (None, 0, None)
    free = what_if.without(stages, {"decode"})
    assert (
        free[1] is stages[1]
        and isinstance(free[0].run, what_if.Stub)
        and clock.s == pytest.approx(3 * before)
    )


@pytest.mark.parametrize(
    ("seconds", "in_flight", "units", "rate"),
    [
        (10.0, 1, 5 + 10, 2.0),
        (0.0, 1, 2, 2.0),
        (3.0, 2, 3 + 3, 2.0),
        (6.0, 3, 6 + 6, 2.0),
        (20.0, 3, 7 + 20, 2.0),
    ],
)
def test_throughput_counts_what_comes_after_the_first_units(monkeypatch, seconds, in_flight, units, rate):
    """A unit takes a second: four and those in flight come first, or fewer where the time is up."""
    clock = Clock(monkeypatch)
    flow = Sequential([clock.stage("decode", 1.0, frames=2)])
    assert what_if.throughput(flow, in_flight, seconds) == pytest.approx(rate)
    assert flow.counts.units == max(units, 0 if seconds else in_flight + 1)


def test_a_loop_goes_on_for_some_units_or_until_the_film_ends():
    def film(item):
        if item.query_id == 4:
            raise EndOfFilm
        item.frames = [Frame(None, k) for k in range(3)]

    flow = Sequential([Stage("decode", film)])
    assert what_if.driven(flow, 2, 3) == 9 and flow.counts.units == 3
    flow = Sequential([Stage("decode", film)])
    assert what_if.driven(flow, 2, 9) == 12 and flow.counts.units == 4


@pytest.mark.parametrize(("step_s", "rounds"), [(0.0, 5), (1.0, 4), (1.2, 3), (9.0, 3)])
def test_every_variant_runs_in_each_round_and_the_order_turns(monkeypatch, step_s, rounds):
    """Five variants a round; more than 15 s after the first no other begins, but three do in any case."""
    clock, ran = Clock(monkeypatch), []
    stages = [clock.stage("decode", 0.0), clock.stage("infer", 0.0)]
    fps = {"": 10.0, "decode": 12.0, "infer": 30.0}  # of two stages one is alone where the other is free

    def built(some):
        stubbed = [s.name for s in some if isinstance(s.run, what_if.Stub)]
        return SimpleNamespace(stubbed=stubbed, close=lambda: ran.append("closed"))

    def rate(flow, in_flight, seconds):
        assert (in_flight, seconds) == (7, 0.1)
        clock.s += step_s
        ran.append("+".join(flow.stubbed))
        return fps[ran[-1]] * (1 + len(ran) // 10)  # faster from round to round

    monkeypatch.setattr(what_if, "throughput", rate)
    found = what_if.measured(stages, built, 7, 0.1)
    names = [name for name in ran if name != "closed"]
    assert len(names) == 5 * rounds and ran[1::2] == ["closed"] * len(names)
    one = ["", "decode", "infer", "infer", "decode"]
    assert names == [name for k in range(rounds) for name in (one if k % 2 else one[::-1])]
    middle = 1 + rounds // 2
    assert found.fps == 10.0 * middle
    assert [(s.name, round(s.gain.value, 6), round(s.ceiling.value, 6)) for s in found.stages] == [
        ("decode", 1.2, 3.0),
        ("infer", 3.0, 1.2),
    ]
    assert [s.alone_fps for s in found.stages] == [30.0 * middle, 12.0 * middle]
