"""What tells cells of one label apart."""

import pytest

from edgescope.analysis.cells.row import told_apart
from edgescope.records import Trial


def apart(*differing):
    trials = {str(i): ("name", Trial(model="m", **keys)) for i, keys in enumerate(differing)}
    return list(told_apart(trials).values())


@pytest.mark.parametrize(
    ("differing", "words"),
    [
        (({},), [""]),
        (({"max_s": 1.0}, {"min_s": 4.0, "max_s": 4.0}), ["1 s", "4 s"]),
        (({"warmup": 1.0}, {}), ["warm-up 1 s", "warm-up as it needs"]),
        (({"turn_s": 0.05, "max_s": 2.0}, {}), ["in turns", "alone"]),
        (
            ({"turn_s": 0.05, "max_s": 2.0}, {"turn_s": 0.05}, {}),
            ["in turns, 2 s", "in turns, 10 s", "alone, 10 s"],
        ),
        (({"io": "host"}, {"io": "device"}), ["io host", "io device"]),
        (({"seed": 1}, {"seed": 2, "replicate": 3}), ["seed 1", "seed 2"]),
    ],
)
def test_only_what_differs_is_said(differing, words):
    assert apart(*differing) == words


def test_labels_that_stand_once_say_nothing():
    assert told_apart({"a": ("x", Trial(model="m")), "b": ("y", Trial(model="m"))}) == {"a": "", "b": ""}
