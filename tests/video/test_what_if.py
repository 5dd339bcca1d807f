"""What a stage costs a pipeline, found by stubbing it: stages that sleep for known times."""

import time

import pytest

from edgescope.video import what_if
from edgescope.video.flow import EndOfFilm, Sequential, Stage, Threaded
from edgescope.video.frame import Frame

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
