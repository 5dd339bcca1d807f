"""Figures of detectors, against slow definitions and against published ones."""

import csv
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis import anomaly
from edgescope.analysis.anomaly import ScoredVideo
from edgescope.errors import UsageError
from edgescope.stats import ranking

scores = st.lists(st.integers(0, 6), min_size=2, max_size=30)


@given(scores, st.data())
def test_roc_auc_is_the_chance_that_a_positive_ranks_higher(values, data):
    labels = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    positive = [v for v, label in zip(values, labels, strict=True) if label]
    negative = [v for v, label in zip(values, labels, strict=True) if not label]
    curve = ranking.curve(values, labels, np.logical_not(labels))
    if not positive or not negative:
        assert np.isnan(curve.roc_auc)
        return
    wanted = np.mean([(p > n) + (p == n) / 2 for p, n in product(positive, negative)])
    assert curve.roc_auc == pytest.approx(wanted)


@given(scores, st.data())
def test_counts_are_repeated_rows(values, data):
    size = {"min_size": len(values), "max_size": len(values)}
    positive = data.draw(st.lists(st.integers(0, 3), **size))
    negative = data.draw(st.lists(st.integers(0, 3), **size))
    rows = [(v, 1, 0) for v, p in zip(values, positive, strict=True) for _ in range(p)]
    rows += [(v, 0, 1) for v, n in zip(values, negative, strict=True) for _ in range(n)]
    if sum(positive) and sum(negative):
        counted, repeated = ranking.curve(values, positive, negative), ranking.curve(*zip(*rows, strict=True))
        assert counted.roc_auc == pytest.approx(repeated.roc_auc)
        assert counted.pr_auc == pytest.approx(repeated.pr_auc)


def test_pr_auc_of_a_small_case():
    """Scores 3, 2, 1 with labels 1, 0, 1: precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1, and 1 at recall 0."""
    assert ranking.curve([3, 2, 1], [1, 0, 1], [0, 1, 0]).pr_auc == pytest.approx(
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
    assert ranking.area(x, y) == pytest.approx(0.754117, abs=5e-7)


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
    with pytest.raises(UsageError, match=r"E-ANOMALY-6.*one class only"):
        anomaly.evaluate(VIDEOS[2:])
    with pytest.raises(UsageError, match=r"E-ANOMALY-7: x has 3 scores and 64 frames"):
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
