"""Figures of detectors, against slow definitions and against published ones."""

import csv
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.records import Measured
from edgescope.wings.anomaly import evaluation
from edgescope.wings.anomaly import evaluation as anomaly
from edgescope.wings.anomaly.evaluation import ScoredVideo

scores = st.lists(st.integers(0, 6), min_size=2, max_size=30)


@given(scores, st.data())
@pytest.mark.slow
def test_roc_auc_is_the_chance_that_a_positive_ranks_higher(values, data):
    labels = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    positive = [v for v, label in zip(values, labels, strict=True) if label]
    negative = [v for v, label in zip(values, labels, strict=True) if not label]
    curve = evaluation.curve(values, labels, np.logical_not(labels))
    if not positive or not negative:
        assert np.isnan(curve.roc_auc)
        return
    wanted = np.mean([(p > n) + (p == n) / 2 for p, n in product(positive, negative)])
    assert curve.roc_auc == pytest.approx(wanted)


@given(scores, st.data())
@pytest.mark.slow
def test_counts_are_repeated_rows(values, data):
    size = {"min_size": len(values), "max_size": len(values)}
    positive = data.draw(st.lists(st.integers(0, 3), **size))
    negative = data.draw(st.lists(st.integers(0, 3), **size))
    rows = [(v, 1, 0) for v, p in zip(values, positive, strict=True) for _ in range(p)]
    rows += [(v, 0, 1) for v, n in zip(values, negative, strict=True) for _ in range(n)]
    if sum(positive) and sum(negative):
        counted, repeated = (
            evaluation.curve(values, positive, negative),
            evaluation.curve(*zip(*rows, strict=True)),
        )
        assert counted.roc_auc == pytest.approx(repeated.roc_auc)
        assert counted.pr_auc == pytest.approx(repeated.pr_auc)


def test_pr_auc_of_a_small_case():
    """Scores 3, 2, 1 with labels 1, 0, 1: precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1, and 1 at recall 0."""
    assert evaluation.curve([3, 2, 1], [1, 0, 1], [0, 1, 0]).pr_auc == pytest.approx(
        0.5 + 0.5 * (1 / 2 + 2 / 3) / 2
    )


PUBLISHED = "EDGESCOPE_PUBLISHED_ROC"
"""Names a file of the ROC curve that Sultani et al. published (fpr,tpr); it has no licence to be copied."""


def test_the_published_roc_curve_has_the_published_area():
    if PUBLISHED not in os.environ:
        pytest.skip(f"the curve of Sultani et al. has no licence to be copied; {PUBLISHED} names the file")
    rows = [
        row
        for row in csv.reader(Path(os.environ[PUBLISHED]).read_text().splitlines())
        if not row[0].startswith("#")
    ]
    x, y = np.array(rows, dtype=float).T
    assert evaluation.area(x, y) == pytest.approx(0.754117, abs=5e-7)


def video(name, values, *spans, frames=None, category=None, fps=16.0):
    frames = 16 * len(values) if frames is None else frames
    category = category or ("fight" if spans else "normal")
    return ScoredVideo(name, category, np.array(values, dtype=np.float32), frames, spans, fps)


def test_frames_beyond_the_end_are_normal():
    """Half-open intervals, clipped at the last frame, in ceil(n / 16) x 16 labels: as the published labels count."""
    labels = anomaly.frame_labels(35, [(30, 99)])
    assert len(labels) == 48 and np.flatnonzero(labels).tolist() == list(range(30, 35))


VIDEOS = [
    video("a", [0.1, 0.9, 0.8, 0.2], (16, 48)),
    video("b", [0.3, 0.1, 0.7, 0.6], (32, 64), category="theft"),
    video("c", [0.2, 0.1, 0.4, 0.1]),
    video("d", [0.65, 0.1, 0.65, 0.3]),
]


def test_the_figures_of_a_small_set_are_those_counted_by_hand():
    found = anomaly.evaluate(VIDEOS, recall=1.0, draws=50)
    assert (found.videos, found.frames, found.positive_frames) == (4, 256, 64)
    assert found.figures["auc"].value == pytest.approx(
        46 / 48
    )  # 0.6 lies below two of 0.65; all else is right
    assert found.figures["threshold"].value == pytest.approx(0.7)
    assert found.figures["false_alarms_per_hour"].value == 0
    assert found.figures["event_recall"].value == 1
    assert found.figures["detection_delay_s"].value == pytest.approx(
        1.0
    )  # one snippet of 16 frames at 16 per s
    assert set(found.by_category) == {"fight", "theft"} and found.by_category["fight"].value == 1


def test_false_alarms_are_runs_that_touch_no_anomaly():
    videos = [video("a", [0.5, 0.5, 0.1, 0.5], (0, 16)), video("b", [0.9, 0.9, 0.1, 0.9])]
    found = anomaly.alarms(videos, 1.0)
    assert found["threshold"].value == pytest.approx(0.5)
    hours = 8 * 1.0 / 3600
    assert found["false_alarms_per_hour"].value == pytest.approx(3 / hours)  # one in a, two in b


def test_the_paired_test_knows_a_better_detector():
    rng = np.random.default_rng(0)

    def scored(noise):
        return [
            video(
                str(n),
                rng.normal(size=6) * noise + np.array([0, 0, n % 2 * 2, 0, 0, 0]),
                *([(32, 48)] if n % 2 else []),
            )
            for n in range(30)
        ]

    good, bad = scored(0.3), scored(4.0)
    better, same = anomaly.compared(good, bad, draws=300), anomaly.compared(good, good, draws=300)
    assert better.sure and better.gain.value > 0 and better.p < 0.02
    assert not same.sure and same.gain.value == 0 and same.p == 1


def test_the_interval_covers_the_figure():
    found = anomaly.evaluate(VIDEOS * 3, draws=200).figures["auc"]
    assert found.lo < found.value < found.hi


def test_what_cannot_be_judged_is_named():
    with pytest.raises(UsageError, match=r"E-ANOMALY-6: .*one class"):
        anomaly.evaluate(VIDEOS[2:])
    with pytest.raises(UsageError, match=r"E-ANOMALY-7: x .*\b3 scores .*\b64 frames"):
        anomaly.evaluate([*VIDEOS, video("x", [0.1, 0.2, 0.3], frames=64)])
    with pytest.raises(UsageError, match="E-ANOMALY-5"):
        anomaly.compared(VIDEOS, VIDEOS[:3])


def test_the_videos_that_tell_most_are_two_events_for_each_normal_one():
    def video(name: str, peak: float, *, event: bool) -> ScoredVideo:
        scores = np.array([0.9, peak], np.float32) if event else np.array([0.0, peak], np.float32)
        return ScoredVideo(name, "fall" if event else "normal", scores, 32, ((16, 32),) if event else ())

    events = [video(f"e{k}", 0.1 * k, event=True) for k in range(5)]
    calm = [video(f"n{k}", 0.1 * k, event=False) for k in range(4)]
    told = [v.name for v in anomaly.telling([*events[::-1], *calm], 6)]
    assert told == ["e0", "e1", "e2", "e3", "n3", "n2"]
    assert [v.name for v in anomaly.telling([*events[:1], *calm], 4)] == ["e0", "n3", "n2", "n1"]
    assert [v.name for v in anomaly.telling([*events, *calm[:1]], 6)] == ["e0", "e1", "e2", "e3", "e4", "n0"]


@pytest.mark.parametrize(
    ("interval", "threshold", "delay"),
    [
        ((20, 40), 0.5, 12),
        ((20, 40), 0.8, 20),
        ((0, 16), 0.2, 16),
        ((20, 40), 0.95, None),
        ((33, 40), 0.8, 7),
    ],
)
def test_an_event_is_reported_at_the_end_of_its_first_snippet_that_says_so(interval, threshold, delay):
    video = ScoredVideo("v", "fall", np.array([0.2, 0.6, 0.9], np.float32), 40, (interval,))
    assert anomaly._delay(video, *interval, threshold) == delay


@pytest.mark.parametrize(
    ("scores", "alarms"), [([1, 0, 1, 0, 1], 2), ([1, 1, 1, 0, 0], 0), ([0] * 5, 0), ([1, 0, 0, 1, 1], 2)]
)
def test_a_false_alarm_is_a_run_that_touches_no_event(scores, alarms):
    video = ScoredVideo("v", "fall", np.array(scores, np.float32), 80, ((32, 48),))
    assert anomaly._false_alarms(video, 1.0) == alarms


@pytest.mark.parametrize(
    ("lo", "hi", "sure"),
    [
        (0.1, 0.2, True),
        (-0.2, -0.1, True),
        (0.0, 0.2, False),
        (-0.2, 0.0, False),
        (None, 0.2, False),
        (0.1, None, False),
    ],
)
def test_a_difference_is_sure_where_its_interval_leaves_out_none(lo, hi, sure):
    assert anomaly.Difference(Measured(0.1, "1", lo, hi, 9), 0.1).sure is sure


def test_each_draw_has_as_many_videos_of_either_kind_as_there_are():
    rows = anomaly._Rows([*VIDEOS, video("e", [0.1] * 4)])
    drawn = rows.drawn(40, 3)
    assert len(drawn) == 40 and {(t[:2].sum(), t[2:].sum()) for t in drawn} == {(2.0, 3.0)}
    assert {tuple(t[:2]) for t in drawn} == {(2.0, 0.0), (1.0, 1.0), (0.0, 2.0)}
    assert [t.tolist() for t in rows.drawn(40, 3)] == [t.tolist() for t in drawn]
    assert [t.tolist() for t in rows.drawn(40, 4)] != [t.tolist() for t in drawn]
    assert rows.positives.tolist() == [0, 16, 16, 0, 0, 0, 16, 16, *[0] * 12]
    assert (rows.positives + rows.negatives == 16).all() and rows.of.tolist() == np.repeat(
        range(5), 4
    ).tolist()


def test_an_interval_over_videos_is_that_of_the_draws():
    rows = anomaly._Rows(VIDEOS)
    values = [rows.curve(times).roc_auc for times in rows.drawn(60, 1)]
    found = rows.interval(lambda c: c.roc_auc, 60, 1)
    assert (found.lo, found.hi, found.n) == (*np.quantile(values, [0.025, 0.975]), 4)
    assert found.value == pytest.approx(46 / 48)
    three, two = anomaly._Rows(VIDEOS[:3]), anomaly._Rows(VIDEOS[1:3])
    assert three.interval(lambda c: c.roc_auc, 20, 0).lo is not None
    assert two.interval(lambda c: c.roc_auc, 20, 0).lo is None


def test_two_detectors_on_one_video_have_no_interval_and_are_not_surely_apart():
    """The only video drawn anew is itself: each draw gives the same difference."""
    other = video("a", [0.9, 0.1, 0.2, 0.8], (16, 48))
    found = anomaly.compared(VIDEOS[:1], [other])
    assert found.gain.value == 1 and found.gain.lo is found.gain.hi is None
    assert not found.sure and found.p == 1


@pytest.mark.parametrize(("unknown", "bounded"), [(1, True), (2, False)])
def test_an_interval_asks_for_nine_draws_of_ten(unknown, bounded):
    given = iter([*[np.nan] * unknown, *[0.5] * (10 - unknown), 0.5])
    assert (anomaly._Rows(VIDEOS).interval(lambda c: next(given), 10, 0).lo is not None) is bounded


def test_a_difference_is_of_the_same_draws_for_both():
    other = [video(v.name, v.scores[::-1], *v.intervals) for v in VIDEOS]
    a, b = anomaly._Rows(VIDEOS), anomaly._Rows(other)
    gains = np.array([a.curve(t).roc_auc - b.curve(t).roc_auc for t in a.drawn(80, 2)])
    found = anomaly.compared(VIDEOS, other, draws=80, seed=2)
    assert (found.gain.lo, found.gain.hi, found.gain.n) == (*np.quantile(gains, [0.025, 0.975]), 4)
    assert found.gain.value == pytest.approx(a.curve().roc_auc - b.curve().roc_auc)
    turned = min(np.mean(gains <= 0), np.mean(gains >= 0))
    assert found.p == pytest.approx(min(1.0, max(2 * turned, 1 / 80)))
    assert anomaly.compared(other, VIDEOS, draws=80, seed=2).p == found.p


@pytest.mark.parametrize(
    ("recall", "threshold", "found"),
    [
        (0.25, 0.9, 0.25),
        (0.26, 0.7, 0.5),
        (0.5, 0.7, 0.5),
        (0.75, 0.5, 0.75),
        (0.76, 0.3, 1.0),
        (1.0, 0.3, 1.0),
    ],
)
def test_the_threshold_is_the_highest_that_finds_the_share_of_the_events(recall, threshold, found):
    videos = [video(str(p), [0.1, p], (16, 32)) for p in (0.5, 0.9, 0.3, 0.7)]
    told = anomaly.alarms(videos, recall)
    assert told["threshold"].value == pytest.approx(threshold)
    assert (told["event_recall"].value, told["event_recall"].n) == (found, 4)
    assert told["detection_delay_s"].n == round(4 * found)


def test_times_are_of_each_videos_own_frame_rate():
    slow, fast = video("a", [0.9, 0.1], (0, 16), fps=8.0), video("b", [0.1, 0.9, 0.9], fps=32.0)
    told = anomaly.alarms([slow, fast], 1.0)
    assert told["detection_delay_s"].value == 2.0 and told["false_alarms_per_hour"].n == 1
    assert told["false_alarms_per_hour"].value == pytest.approx(3600 / (32 / 8 + 48 / 32))
    dark = anomaly.alarms([slow, video("c", [0.1], fps=None)], 1.0)
    assert "1 videos" in dark["detection_delay_s"].reason and dark["threshold"].value == pytest.approx(0.9)
    none = anomaly.alarms([fast], 1.0)
    assert len(none) == 4 and len({f.reason for f in none.values()}) == 1


def test_an_event_is_what_of_it_lies_in_the_video():
    clipped = video("a", [0.1] * 3, (-5, 10), (30, 99), (40, 50), (-9, 0), frames=40)
    assert anomaly._events(clipped) == [(0, 10), (30, 40)]
    assert [len(anomaly._touching(clipped, *e)) for e in ((0, 16), (0, 17), (16, 32), (15, 33))] == [
        1,
        2,
        1,
        3,
    ]


@pytest.mark.parametrize(
    ("intervals", "marked"),
    [
        ([(0, 2)], [0, 1]),
        ([(-3, 1)], [0]),
        ([(3, 9)], [3, 4]),  # what lies beyond the video is normal
        ([(1, 1), (4, 5)], [4]),
        ([(0, 1), (2, 3)], [0, 2]),
    ],
)
def test_each_frame_of_an_interval_is_marked_and_no_other(intervals, marked):
    labels = anomaly.frame_labels(5, intervals, 4)
    assert len(labels) == 8 and np.flatnonzero(labels).tolist() == marked
    assert len(anomaly.frame_labels(8, intervals, 4)) == 8 and len(anomaly.frame_labels(33, [])) == 48
