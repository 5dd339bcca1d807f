"""The curves of a detector, and its scores over the time of the videos that show what goes wrong."""

import numpy as np
import pytest

from edgescope.wings.anomaly import evaluation as stats
from edgescope.wings.anomaly.evaluation import ScoredVideo, evaluate, telling
from edgescope.wings.anomaly.page import ranking, timelines


def video(name, scores, *, event=None, fps=8.0, frames=None):
    scores = np.array(scores, np.float32)
    return ScoredVideo(
        name,
        "fight" if event else "normal",
        scores,
        frames or 16 * len(scores),
        [event] if event else [],
        fps,
    )


def test_precision_begins_with_one_and_ends_with_the_share_of_positives():
    curve = stats.curve([0.9, 0.8, 0.7], [1, 0, 1], [0, 1, 1])
    assert curve.precision.tolist() == pytest.approx([1, 1, 1 / 2, 2 / 4])
    assert curve.pr_auc == pytest.approx(stats.area(curve.tpr, curve.precision))


FAINT, CLEAR = video("faint", [0.1, 0.3, 0.1], event=(16, 32)), video("clear", [0.1, 0.9], event=(16, 32))
CALM, LOUD = video("calm", [0.1, 0.1]), video("loud", [0.2, 0.8])


@pytest.mark.parametrize(
    ("most", "names"),
    [(6, ["faint", "clear", "loud", "calm"]), (3, ["faint", "clear", "loud"]), (1, ["faint"]), (0, [])],
)
def test_the_faintest_events_and_the_loudest_normal_videos_are_shown(most, names):
    assert [v.name for v in telling([CALM, CLEAR, LOUD, FAINT], most)] == names


def test_what_one_kind_lacks_the_other_fills():
    assert [v.name for v in telling([CALM, LOUD], 2)] == ["loud", "calm"]
    assert [v.name for v in telling([CLEAR, FAINT], 2)] == ["faint", "clear"]


def test_each_detector_has_a_line_in_both_panels_and_a_guess_in_the_first():
    found = evaluate([CALM, CLEAR, LOUD, FAINT], draws=20)
    figure = ranking({"a<b.pt": found, "b.pt": found})
    assert [trace.name for trace in figure.data] == ["a guess", *["a&lt;b.pt"] * 2, *["b.pt"] * 2]
    roc, precision = figure.data[1:3]
    assert (roc.x[0], roc.y[0], roc.x[-1], roc.y[-1]) == (0, 0, 1, 1) and precision.y[0] == 1


def test_scores_hold_for_their_snippet_up_to_the_end_of_the_video():
    cut = video("cut", [0.2, 0.7], event=(8, 400), frames=28)
    unknown = video("unknown", [0.2, 0.7], event=(8, 16), fps=None)
    figure = timelines([cut, unknown], 0.5)
    assert figure.data[0].x.tolist() == [0, 2, 3.5] and figure.data[0].y.tolist() == pytest.approx(
        [0.2, 0.7, 0.7]
    )
    spans = [(s.x0, s.x1) for s in figure.layout.shapes if s.type == "rect"]
    assert spans == [(1, 3.5), (8, 16)]
    assert figure.data[1].x.tolist() == [0, 16, 32] and figure.layout.xaxis2.ticksuffix == " frames"
    assert [s.y0 for s in figure.layout.shapes if s.type == "line"] == [0.5, 0.5]
    assert not [s for s in timelines([cut], None).layout.shapes if s.type == "line"]
