"""Inputs drawn at random: each sample its own, of the ends that are given, hashed where it lies."""

import numpy as np
import pytest

from edgescope.models import synthetic
from edgescope.models.base import Purpose, TensorSpec
from edgescope.models.image.photos import fingerprint

SPECS = [TensorSpec("picture", (3, 4), "float32"), TensorSpec("words", (5,), "int64")]


def test_the_first_samples_are_the_same_however_many_are_drawn_and_each_purpose_has_its_own():
    few, many = (synthetic.samples(SPECS, Purpose.GATE, n) for n in (2, 5))
    other = synthetic.samples(SPECS, Purpose.BENCH, 5)
    assert many.digests[:2] == few.digests and not set(many.digests) & set(other.digests)
    assert all((many.arrays[name][:2] == array).all() for name, array in few.arrays.items())
    assert {name: (a.shape, a.dtype) for name, a in many.arrays.items()} == {
        "picture": ((5, 3, 4), np.float32),
        "words": ((5, 5), np.int64),
    }
    assert many.digests[4] == fingerprint({name: array[4] for name, array in many.arrays.items()})


@pytest.mark.parametrize("ends", [(3, 3), (0, 1), (-2, 9)])
def test_whole_numbers_reach_both_ends(ends):
    drawn = synthetic.samples(SPECS, Purpose.GATE, 60, ranges={"words": ends}).arrays["words"]
    assert (drawn.min(), drawn.max()) == ends
    assert synthetic.samples(SPECS, Purpose.LABELLED, 3) is None


def test_some_rows_are_drawn_alone_and_are_those_of_the_whole(monkeypatch):
    whole = synthetic.samples(SPECS, Purpose.GATE, 5)
    drawn = []
    monkeypatch.setattr(synthetic, "_fill", lambda one, rng, ends: drawn.append(one.nbytes))
    some = synthetic.samples(SPECS, Purpose.GATE, 5).where(slice(1, 3))
    assert some.digests == whole.digests[1:3] and not drawn
    assert some.arrays["picture"].shape == (2, 3, 4) and len(drawn) == 2 * len(SPECS)
    monkeypatch.undo()
    again = whole.where(slice(1, 4)).first(2)
    assert all((again.arrays[name] == whole.arrays[name][1:3]).all() for name in whole.arrays)
    assert (list(again.arrays), len(again.arrays), len(again)) == (["picture", "words"], 2, 2)
