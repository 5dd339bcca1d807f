"""An AUC is said beside that of a guess."""

import pytest

from edgescope.records import Absent, Measured
from edgescope.wings.anomaly.page import chance, over_videos


@pytest.mark.parametrize(
    ("lo", "hi", "said"),
    [
        (0.19, 0.45, "worse than chance"),
        (0.4, 0.6, "not surely"),
        (0.4, 0.5, "not surely"),
        (0.5, 0.7, "not surely"),
    ],
)
def test_a_detector_that_is_no_better_than_a_guess_is_said_to_be(lo, hi, said):
    (line,) = chance(Measured((lo + hi) / 2, "1", lo, hi, 9))
    assert line.startswith(said)


def test_a_detector_that_is_better_or_has_no_interval_is_not_judged():
    assert chance(Measured(0.8, "1", 0.51, 0.9, 9)) == []
    assert chance(Measured(0.2, "1")) == chance(Absent("no video")) == []


def test_a_figure_of_one_video_says_that_it_has_no_interval():
    assert over_videos(Measured(0.9, "1", n=1)) == "0.900 (no interval: one video)"
    assert over_videos(Measured(0.9, "1", 0.8, 0.95, 9)) == "0.900 [0.800, 0.950]"
