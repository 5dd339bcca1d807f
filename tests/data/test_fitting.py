"""A sample's arrays as the network takes them: integers that stand for numbers."""

import numpy as np
import pytest
from PIL import Image

from edgescope.data.fitting import fitted
from edgescope.models.base import TensorSpec
from edgescope.models.image.preprocess import Preprocess


def given(dtype, step, mean):
    """Grey pixels 1, 2, 3 and 9 as a network's input of this type takes them."""
    grey = Image.fromarray(np.array([[1, 2, 3, 9]], dtype=np.uint8))
    how = Preprocess((1, 4), 1.0, (mean,), (1.0,), "stretch", "nearest", divide=1.0)
    (found,) = fitted(grey, "a.png", [TensorSpec("x", (1, 1, 4), dtype, step)], how).values()
    assert found.dtype == dtype
    return found.ravel().tolist()


@pytest.mark.parametrize(
    ("dtype", "step", "mean", "wanted"),
    [
        ("int8", (2.0, -3), 0.0, [-2, -2, -1, 2]),  # halves away from zero: 0.5 is 1, 1.5 is 2, 4.5 is 5
        ("int8", (2.0, -3), 4.0, [-5, -4, -4, 0]),  # -1.5 is -2, -0.5 is -1, 2.5 is 3
        ("int8", (0.04, 0), 0.0, [25, 50, 75, 127]),
        ("uint8", (0.5, 7), 0.0, [1, 2, 3, 9]),  # pixels as they are
        ("uint8", (0.5, 7), 1.0, [7, 9, 11, 23]),
        ("int8", None, 0.5, [0, 2, 2, 8]),  # numbers themselves: halves to the even one
    ],
)
def test_integers_count_in_the_steps_of_the_input(dtype, step, mean, wanted):
    assert given(dtype, step, mean) == wanted
