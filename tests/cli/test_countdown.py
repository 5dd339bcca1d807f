"""How long the rest takes, by a clock that a test sets."""

import pytest

from edgescope.commandline.context import EVERY_S, Countdown


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_loading_before_the_first_part_is_no_pace(clock):
    countdown = Countdown(clock)
    clock.now += 60.0
    assert countdown.left_s(1, 10) is None and countdown.words(1, 10) == ", 60 s so far"
    clock.now += 2.0
    assert countdown.left_s(2, 10) == pytest.approx(8 * 2.0)


@pytest.mark.parametrize("pace", [0.5, 7.0])
def test_of_parts_that_are_alike_the_estimate_is_right(clock, pace):
    countdown, total, told = Countdown(clock), 20, []
    for done in range(1, total + 1):
        clock.now += pace
        told.append((clock.now, countdown.left_s(done, total)))
    assert told[0][1] is None
    assert all(left == pytest.approx(clock.now - at) for at, left in told[1:])


def test_a_pace_that_changes_changes_the_estimate_with_it(clock):
    countdown = Countdown(clock)
    for _ in range(2):
        clock.now += 1.0
    countdown.left_s(2, 12)
    clock.now += 50.0
    assert countdown.left_s(4, 12) == pytest.approx(8 * 25.0)


def test_what_was_done_before_does_not_count_as_fast(clock):
    """A command that goes on with the last ten of a hundred parts."""
    countdown = Countdown(clock)
    countdown.left_s(90, 100)
    clock.now += 30.0
    assert countdown.left_s(91, 100) == pytest.approx(9 * 30.0)


def test_at_the_end_the_time_of_all_is_told(clock):
    countdown = Countdown(clock)
    countdown.words(1, 2)
    clock.now += 30.0
    assert countdown.words(2, 2) == ", 30 s in all"


def test_lines_come_at_the_first_part_at_the_last_and_now_and_then(clock):
    countdown = Countdown(clock)
    due = []
    for done in range(1, 14):
        due.append(countdown.due(done, 13))
        clock.now += EVERY_S / 5
    assert [n for n, yes in enumerate(due, start=1) if yes] == [1, 6, 11, 13]
