"""Which pieces of work have their CPU time read, and what those say of all."""

import random

from edgescope.wings.training.loading import Looks, scaled


def test_the_first_piece_is_looked_at_and_the_next_looks_follow_no_pattern():
    looks, now, gaps = Looks(), 0, []
    for _ in range(50):
        assert looks.due(now)
        gap = next(ms for ms in range(1, 100) if looks.due(now + ms * 1_000_000))
        now, gaps = now + gap * 1_000_000 + 10**9, [*gaps, gap]
    assert len(set(gaps)) > 20 and 25 <= min(gaps) < 35 and 65 < max(gaps) <= 75


def test_a_part_that_was_looked_at_stands_for_the_whole_and_none_for_nothing():
    assert scaled(2.0, 4.0, 10.0) == 5.0
    assert scaled(0.0, 0.0, 10.0) is None


def test_the_first_gap_is_one_of_25_to_75_ms_by_a_seed_of_its_own():
    looks = Looks()
    first = 25_000_000 + int(50e6 * random.Random(0).random())
    assert looks.due(0) and not looks.due(first - 1) and looks.due(first)
