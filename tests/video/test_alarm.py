"""When alarms are raised and end: whatever the scores do, an alarm follows its rule."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.video.alarm import Alarm, Alarms, Hysteresis, Rule
from edgescope.video.frame import Item
from edgescope.video.snippets import Snippet

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
    "text", ["on=x", "onn=0.5", "on=0.3,off=0.4", "min_s=-1", "smooth=0", "on=nan", "smooth=1.5"]
)
def test_a_rule_that_cannot_be_is_refused(text):
    with pytest.raises(UsageError, match="E-ALARM-1"):
        Rule.of(text)


def test_a_low_threshold_brings_the_other_down_with_it():
    assert Rule.of("on=0.3").off == 0.3
