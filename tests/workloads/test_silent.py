"""Outputs that hold no finite number, on the first inputs."""

import numpy as np
import pytest

from edgescope.models.base import Samples
from edgescope.workloads.gate import silent

NAN = np.nan


def samples(n):
    return Samples({"x": np.arange(float(n))[:, None]}, tuple(map(str, range(n))), "made up")


@pytest.mark.parametrize(
    ("n", "batch", "asked"),
    [
        (9, 1, [[0], [1], [2], [3]]),
        (9, 3, [[0, 1, 2], [3, 4, 5]]),
        (9, 4, [[0, 1, 2, 3]]),
        (9, 6, [[0, 1, 2, 3, 4, 5]]),
        (2, 1, [[0], [1]]),
        (2, 3, [[0, 1, 1]]),
    ],
)
def test_four_inputs_are_asked_or_one_batch(n, batch, asked):
    seen = []
    silent(lambda given: [seen.append(given["x"][:, 0].tolist()) or given["x"]], samples(n), batch)
    assert seen == asked


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([[NAN, np.inf], [NAN, -np.inf]], True),
        ([[NAN, NAN], [NAN, 1.0]], False),
        ([[], [NAN]], True),  # what is empty says nothing
        ([[], []], False),
        (["text", "text"], False),
    ],
)
def test_an_output_is_silent_where_every_number_of_it_is_none(answers, found):
    answers = iter(answers)

    def run(given):
        one = next(answers)
        return [one if isinstance(one, str) else np.array(one), np.ones(1)]

    assert silent(run, samples(2), 1) == (found, False)
