"""A session that runs for hours: planted events are alarmed, times do not drift, memory stays, faults count."""

import gc
import json
import tracemalloc

import numpy as np
import pytest

from edgescope.errors import DeviceError
from edgescope.wings.video.alarm import Rule
from edgescope.wings.video.session import FAILURES, Ages
from edgescope.wings.video.sinks import Log
from watched_day import CUTTING, RULE, Planted, accounted, planted, session

FPS = 5.0


def never():
    return False


@pytest.mark.slow
def test_every_planted_event_of_two_hours_is_alarmed_at_its_time(tmp_path):
    events = planted(2.0, every_s=300.0)
    log = Log(tmp_path / "alarms.jsonl")
    made, camera = session(2.0, FPS, events, [log])
    made.run(never)
    found = accounted(events, [e.alarm for e in made.counts.events], FPS)
    assert len(found["alarmed"]) == len(events) == 24 and not found["missed"] and not found["false"]
    span = CUTTING.span / FPS
    assert max(map(abs, found["start_error_s"])) <= span
    assert max(found["delay_s"]) <= RULE.min_s + (RULE.smooth + 1) * span
    rows = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert len(rows) == 48 and made.summary()["alarms"] == 24
    for event in made.counts.events:  # no drift between the machine's clock and the stream's
        assert event.at == pytest.approx(made.began + event.alarm.start_s, abs=1e-3)
    assert made.counts.time_s == pytest.approx((camera.count - 1) / FPS)


def test_events_within_a_cooldown_are_accounted_for():
    events = [Planted(60 + k * 12.0, 66 + k * 12.0) for k in range(3)]
    made, _ = session(0.05, FPS, events)
    made.alarms.rule = Rule(on=0.5, off=0.4, cooldown_s=30.0)
    made.run(never)
    summary = made.summary()
    assert summary["alarms"] == 1 and summary["suppressed"] == 2


@pytest.mark.slow
def test_memory_does_not_grow():
    made, _ = session(1.2, FPS, planted(1.2, every_s=300.0))
    seen = {}

    def stop():
        hour = round(made.counts.time_s / 3600, 1)
        if hour in (0.6, 1.1) and hour not in seen:
            gc.collect()  # what waits for the collector is not kept
            seen[hour] = tracemalloc.get_traced_memory()[0]
        return False

    tracemalloc.start()
    made.run(stop)
    tracemalloc.stop()
    pointer = (
        8  # one that is kept of each frame is a leak; the interpreter's own caches come and go by a few kB
    )
    assert seen[1.1] - seen[0.6] < pointer * (1.1 - 0.6) * 3600 * FPS


def test_an_alarm_that_is_on_at_the_end_is_ended():
    made, _ = session(0.02, FPS, [Planted(50.0, 999.0)])
    made.run(never)
    (event,) = made.counts.events
    assert event.alarm.over and event.alarm.end_s == pytest.approx(made.counts.time_s)


@pytest.mark.slow
def test_frames_that_the_camera_dropped_are_reported_and_ages_counted():
    made, camera = session(0.1, 30.0, [])
    made.run(never)
    summary = made.summary()
    assert summary["dropped_by_source"] == camera.dropped > 0
    assert summary["frames"] + summary["dropped_by_source"] == camera.count
    assert 0.2 <= summary["frame_age_p50_s"] <= 0.3 and summary["live"]


def test_features_that_are_no_numbers_are_counted_and_raise_nothing():
    made, _ = session(0.02, FPS, [])
    infer = made.flow.stages[2]
    broken = made.flow.stages[0].run

    def nan(item):
        infer.run(item)
        item.outputs = [[np.full((1, 3), np.nan, dtype=np.float32)]]

    made.flow.stages = tuple(type(s)(s.name, nan if s.name == "infer" else s.run) for s in made.flow.stages)
    made.run(never)
    summary = made.summary()
    assert (
        summary["unscored_snippets"] == summary["snippets"] > 0
        and not summary["alarms"]
        and broken is made.decode
    )


def test_a_stage_that_always_fails_ends_it_and_one_that_fails_at_times_does_not():
    made, _ = session(0.05, FPS, [])
    calls = []

    def faulty(item):
        calls.append(item)
        raise ValueError("the network is broken")

    good = made.flow.stages[2].run

    def at_times(item):
        calls.append(item)
        if len(calls) % 3 == 0:
            raise ValueError("now and then")
        good(item)

    def having(run):
        return tuple(type(s)(s.name, run if s.name == "infer" else s.run) for s in made.flow.stages)

    stages = made.flow.stages
    made.flow.stages = having(at_times)
    made.run(never)
    assert (
        made.summary()["failed_units"] == len(calls) // 3 and "now and then" in made.summary()["first_error"]
    )
    made, _ = session(0.05, FPS, [])
    stages, calls[:] = made.flow.stages, []
    made.flow.stages = having(faulty)
    with pytest.raises(DeviceError, match=r"E-WATCH-1: .*network is broken"):
        made.run(never)
    assert len(calls) == FAILURES and len(stages) == 5


def test_ages_have_quantiles_within_their_bins():
    ages, rng = Ages(), np.random.default_rng(0)
    values = rng.lognormal(-2, 1, 5000)
    for value in values:
        ages.add(value)
    for share in (0.5, 0.9, 0.99):
        assert ages.quantile(share) == pytest.approx(np.quantile(values, share), rel=0.06)
    assert Ages().quantile(0.5) is None
