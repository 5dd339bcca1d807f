"""Times of alarms need the frame rate: without it they are absent, and what needs none is still there."""

from dataclasses import replace

import numpy as np

from edgescope.records import Absent, Measured
from edgescope.wings.anomaly.evaluation import ScoredVideo, alarms


def videos(fps):
    """Return an anomalous video that is found after one snippet, and a normal one with one false alarm."""
    found = np.array([0.1, 0.2, 0.9, 0.8], np.float32)
    return [
        ScoredVideo("a", "freeze", found, 64, ((16, 64),), fps),
        ScoredVideo("b", "normal", np.array([0.1, 0.95, 0.1, 0.1], np.float32), 64, (), fps),
    ]


def test_a_known_frame_rate_gives_hours_and_seconds():
    found = alarms(videos(16.0), 1.0)
    assert isinstance(found["false_alarms_per_hour"], Measured)
    assert found["false_alarms_per_hour"].value == 1 / (128 / 16 / 3600)
    assert found["detection_delay_s"].value == (48 - 16) / 16


def test_an_unknown_one_leaves_both_out_and_names_the_video():
    known = alarms(videos(16.0), 1.0)
    first, second = videos(16.0)
    found = alarms([first, replace(second, fps=None)], 1.0)
    for name in ("false_alarms_per_hour", "detection_delay_s"):
        assert isinstance(found[name], Absent) and found[name].reason.endswith("first b")
    assert found["event_recall"] == known["event_recall"] and found["threshold"] == known["threshold"]
