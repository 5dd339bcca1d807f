"""A generated set whose splits share no footage."""

import numpy as np
import pytest

from edgescope.anomaly import generate
from edgescope.errors import UsageError


def film(frames):
    return np.arange(frames, dtype=np.uint16)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint16)


def test_no_frame_of_a_film_is_in_two_splits():
    found = generate._divided([film(500), film(200)], 48, True)
    frames = {split: [set(part[:, 0, 0, 0].tolist()) for part in found[split].pieces] for split in found}
    for number, whole in enumerate((500, 200)):
        parts = [frames[split][number] for split in ("train", "validation", "test")]
        assert sum(map(len, parts)) == whole and set.union(*parts) == set(range(whole))
    assert [len(found[split].scenes) for split in ("train", "validation", "test")] == [2, 1, 1]


def test_a_film_that_is_too_short_for_a_split_is_named():
    with pytest.raises(UsageError, match="within its share of the split validation"):
        generate._divided([film(300)], 96, True)
    assert generate._divided([film(300)], 96, False)["test"].scenes
