"""When alarms are raised and end: whatever the scores do, an alarm follows its rule."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.frames import Frame, Item
from edgescope.wings.video.alarm import Alarm, Alarms, Hysteresis, Rule
from edgescope.wings.video.snippets import Snippet

SPAN_S = 0.5


def snippet(number: int, camera: int = 0) -> Snippet:
    return Snippet(camera, number * 16, number * 16 + 15, number * SPAN_S, (number + 1) * SPAN_S, -1)


def alarms(rule: Rule, scores) -> tuple[list[Alarm], Hysteresis]:
    """Every alarm of a run of scores, ended; and the state that is left."""
    state, found = Hysteresis(rule), []
    for number, score in enumerate(scores):
        if (change := state(snippet(number), score)) is not None and change.over:
            found.append(change)
    last = state.finish()
    return [*found, *([last] if last else [])], state


rules = st.builds(
    lambda on, gap, min_s, cooldown_s, smooth: Rule(on, on - gap, min_s, cooldown_s, smooth),
    st.floats(0.2, 0.9),
    st.floats(0, 0.2),
    st.floats(0, 3),
    st.floats(0, 5),
    st.integers(1, 4),
)
runs = st.lists(st.floats(0, 1) | st.just(math.nan), max_size=60)


@pytest.mark.slow
@given(rules, runs)
@settings(max_examples=300, deadline=None)
def test_every_alarm_follows_its_rule(rule, scores):
    found, state = alarms(rule, scores)
    for alarm in found:
        assert alarm.peak >= rule.on
        assert alarm.raised_s - alarm.start_s >= rule.min_s
        assert alarm.start_s < alarm.raised_s <= alarm.end_s <= len(scores) * SPAN_S
        assert alarm.start_s <= alarm.peak_s - SPAN_S <= alarm.end_s - SPAN_S
    for before, after in itertools.pairwise(found):
        assert after.start_s >= before.end_s
        assert after.raised_s >= before.end_s + rule.cooldown_s
    assert state.unscored == sum(map(math.isnan, scores))


@given(rules, runs)
@settings(max_examples=300, deadline=None)
@pytest.mark.slow
def test_without_smoothing_and_cooldown_an_alarm_is_a_run_of_high_scores_and_its_tail(rule, scores):
    """A second way to the same answer: look at whole runs of the scores, afterwards."""
    plain = Rule(rule.on, rule.off, rule.min_s, 0.0, 1)
    known = [(k, s) for k, s in enumerate(scores) if not math.isnan(s)]
    expected, at = [], 0
    while at < len(known):
        run = at
        while run < len(known) and known[run][1] >= plain.on:
            run += 1
            if (known[run - 1][0] + 1 - known[at][0]) * SPAN_S >= plain.min_s:
                while run < len(known) and known[run][1] >= plain.off:
                    run += 1
                expected.append((known[at][0] * SPAN_S, (known[run - 1][0] + 1) * SPAN_S))
                break
        at = max(run, at) + 1
    found, _ = alarms(plain, scores)
    assert [(a.start_s, a.end_s) for a in found] == expected


@given(st.lists(st.floats(0, 0.49), max_size=40))
def test_low_scores_raise_nothing(scores):
    assert alarms(Rule(), scores)[0] == []


def test_what_rises_during_a_cooldown_is_counted_once_and_alarms_after_it():
    rule = Rule(on=0.5, off=0.4, cooldown_s=2.0)
    found, state = alarms(rule, [0.9, 0.1, 0.9, 0.9, 0.1, 0.9, 0.9])
    assert state.suppressed == 1
    assert [(a.start_s, a.end_s) for a in found] == [(0.0, 0.5), (2.5, 3.5)]


def test_smoothing_averages_the_last_scores():
    state = Hysteresis(Rule(smooth=3))
    for number, score in enumerate([0.0, 0.0, 0.9]):
        assert state(snippet(number), score) is None
    assert state.smoothed == pytest.approx(0.3)


def test_cameras_have_states_of_their_own_and_one_numbering():
    stage = Alarms(Rule(cooldown_s=0))
    raised = []
    for number, scores in enumerate([(0.9, 0.1), (0.9, 0.9), (0.1, 0.9)]):
        for camera, score in enumerate(scores):
            item = Item(0, notes={"snippets": [snippet(number, camera)], "scores": [score]})
            stage(item)
            raised += [s.change for s in item.notes["scored"] if s.change and not s.change.over]
    assert [(a.number, a.camera) for a in raised] == [(1, 0), (2, 1)]
    assert [a.number for a in stage.finish()] == [2]


@given(rules)
def test_a_rule_reads_what_it_writes(rule):
    again = Rule.of(str(rule))
    assert all(
        math.isclose(a, b, rel_tol=1e-4)
        for a, b in zip(vars(again).values(), vars(rule).values(), strict=True)
    )


@pytest.mark.parametrize(
    "text",
    ["on=x", "onn=0.5", "on=0.3,off=0.4", "min_s=-1", "smooth=0", "on=nan", "smooth=1.5", "on=2", "off=-0.1"],
)
def test_a_rule_that_cannot_be_is_refused(text):
    with pytest.raises(UsageError, match="E-ALARM-1"):
        Rule.of(text)


def test_a_low_threshold_brings_the_other_down_with_it():
    assert Rule.of("on=0.3").off == 0.3


def test_the_rule_that_nobody_wrote():
    assert Rule() == Rule(on=0.5, off=0.4, min_s=0.0, cooldown_s=10.0, smooth=1) == Rule.of("")


def test_each_limit_is_reached_by_equality_and_a_tie_is_no_higher_peak():
    """At `on` it is high, at `min_s` it is raised, at `off` it goes on, at the cooldown's end it rises anew."""
    found, state = alarms(
        Rule(on=0.5, off=0.4, min_s=1.0, cooldown_s=1.0), [0.5, 0.5, 0.4, 0.39, 0.9, 0.9, 0.9]
    )
    assert [(a.start_s, a.raised_s, a.end_s, a.peak, a.peak_s) for a in found] == [
        (0.0, 1.0, 1.5, 0.5, 0.5),
        (2.5, 3.5, 3.5, 0.9, 3.0),
    ]
    assert state.suppressed == 1 and [a.delay_s for a in found] == [1.0, 1.0]


def test_each_rise_during_a_cooldown_is_counted():
    assert alarms(Rule(), [0.9, 0.1, 0.9, 0.9, 0.1, 0.9, 0.1, 0.9])[1].suppressed == 3


def test_a_rise_that_does_not_last_begins_anew_and_an_alarm_of_a_film_has_no_moment():
    found, _ = alarms(Rule(min_s=1.0), [0.6, 0.49, 0.7, 0.8])
    assert [(a.start_s, a.raised_s, a.peak) for a in found] == [(1.0, 2.0, 0.8)]
    assert found[0].created_ns == -1 and found[0].over and found[0].number == 0


def test_what_is_pending_is_noted_with_the_moment_of_its_last_frame():
    state = Hysteresis(Rule(min_s=1.0), camera=3)
    assert state(Snippet(3, 0, 15, 0.0, 0.5, 70), 0.9) is None and state.pending.created_ns == 70
    raised = state(Snippet(3, 16, 31, 0.5, 1.0, 90), 0.9)
    assert (raised.camera, raised.created_ns, raised.over) == (3, 90, False) and state.pending is None


def test_each_snippet_is_told_with_its_score_and_each_frame_is_of_class_1_from_the_threshold_on():
    stage, snippets = Alarms(Rule(smooth=2)), [snippet(k) for k in range(3)]
    frames = [Frame(np.zeros((4, 6, 3), np.uint8), k) for k in (0, 15, 16, 40)]
    item = Item(0, frames, notes={"snippets": snippets, "scores": [0.4, 0.6, 0.2]})
    stage(item)
    told = item.notes["scored"]
    assert [(s.score, s.alarmed) for s in told] == [(0.4, False), (0.6, True), (0.2, True)]
    assert [s.smoothed for s in told] == pytest.approx([0.4, 0.5, 0.4])
    assert [s.change and s.change.number for s in told] == [None, 1, None]
    assert [int(found.classes[0]) for found in item.found] == [0, 0, 1, 0]
    assert stage.raised == 1 and [a.end_s for a in stage.finish()] == [1.5] and stage.finish() == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("on=0.9", Rule(0.9, 0.4)),
        ("on=0.3,off=0.2", Rule(0.3, 0.2)),
        ("off=0.5,cooldown_s=0", Rule(0.5, 0.5, cooldown_s=0.0)),
        ("smooth=3,,min_s=2.5", Rule(min_s=2.5, smooth=3)),
    ],
)
def test_what_a_rule_leaves_out_keeps_its_default(text, rule):
    assert Rule.of(text) == rule


def test_a_cooldown_below_zero_and_a_limit_without_end_are_refused():
    for keys in ({"cooldown_s": -0.1}, {"on": math.inf}, {"off": 0.51}, {"min_s": -0.1}):
        with pytest.raises(UsageError, match="E-ALARM-1"):
            Rule(**keys)


def test_a_snippet_without_a_score_is_refused():
    with pytest.raises(ValueError, match="shorter"):
        Alarms(Rule())(Item(0, notes={"snippets": [snippet(0), snippet(1)], "scores": [0.1]}))
