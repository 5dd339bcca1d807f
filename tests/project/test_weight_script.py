"""weight.py: which phase a look at the processes falls into, and what a figure of several rounds is."""

import importlib
import os
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def weight():
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("weight")
    finally:
        sys.path.remove(str(SCRIPTS))


def test_a_run_goes_through_its_phases(weight):
    measure, held = {"parent": 2e7, "measure": 1e8}, {"probes": 7e7}
    looks = [
        ({"parent": 2e7}, False, "parent alone"),
        ({"parent": 2e7, "prepare": 9e7}, False, "prepare"),
        (measure | {"probes": 6e6, "sampler": 9e6}, False, "load"),
        (measure | held, False, "first probes"),
        (measure | held, True, "window"),
        (measure, True, "window"),
        (measure | held, False, "second probes"),
        (measure, False, "gate"),
        ({"parent": 2e7}, False, "parent alone"),
    ]
    now = ""
    for seen, sampled, expected in looks:
        now = weight.phase(seen, sampled, now)
        assert now == expected


def test_this_process_is_seen_with_its_memory(weight):
    found, sampled = weight.look(os.getpid())
    assert found["parent"] > 5e6 and not sampled


def test_a_ratio_is_ours_over_theirs(weight):
    mine, theirs = [{"x": 3.0}, {"x": 3.0}, {"x": 3.0}], [{"x": 2.0}, {"x": 2.0}, {"x": 2.0}]
    assert weight.ratio(mine, theirs, "x")[0] == pytest.approx(1.5)
    assert weight.median([{"a": {"b": 1.0}}, {"a": {}}, {"a": {"b": 3.0}}], "a", "b") == 1.0
