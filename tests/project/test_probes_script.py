"""benchmarks/probes.py distance: what it makes of samples whose distance is known; nothing is measured."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
pytest.importorskip("torch")
import probes

NEAR, APART = 25e-9, 207e-9


def samples(way, count, slower=1.0):
    return [
        {
            "core_to_core_s": way,
            "spin_s": 0.01,
            "memory_s": 0.02,
            "one_thread_s": 0.03,
            "all_threads_s": 0.02 * slower,
        }
    ] * count


def test_a_stretch_is_of_samples_that_follow_each_other_on_one_side():
    found = probes.stretches(
        [*samples(NEAR, 4), *samples(APART, 3, 1.5), *samples(NEAR, 2), *samples(None, 5), *samples(NEAR, 1)]
    )
    assert [(s["samples"], s["apart"]) for s in found] == [(4, False), (3, True), (3, False)]
    assert probes.stretches(samples(APART, 2)) == []


def test_how_many_times_as_long_is_told_only_where_both_were_met():
    near, apart = samples(NEAR, 3), samples(APART, 3, 1.5)
    found = probes.longer(probes.stretches([*near, *apart, *samples(NEAR, 9), *samples(APART, 3, 1.5)]))
    assert found == pytest.approx({"spin_s": 1.0, "memory_s": 1.0, "one_thread_s": 1.0, "all_threads_s": 1.5})
    for alone in (near, apart):
        assert set(probes.longer(probes.stretches(alone)).values()) == {None}
