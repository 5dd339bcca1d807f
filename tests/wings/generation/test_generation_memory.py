"""Memory of a language model by hand, and the context that fits."""

import pytest

from edgescope.wings.generation import shapes
from edgescope.wings.generation.memory import Held

MB = 1e6


def _held(**other):
    a = shapes.find("smollm2-135m").architecture
    return Held(**{"shape": a, "weight_bytes": 538 * MB, "kv_bytes": 2, "runtime_bytes": 300 * MB} | other)


def test_cache_and_prompt_add_to_weights_and_runtime():
    between = 1024 * (3 * 1536 + 2 * 576) * 4
    assert _held().predicted(1024, 128) == pytest.approx(838 * MB + 23_040 * 1152 + between)
    assert _held().predicted(1024, 128, together=4) == pytest.approx(838 * MB + 4 * (23_040 * 1152 + between))


def test_the_longest_context_is_the_most_that_is_predicted_to_fit():
    held, free = _held(), 1000 * MB
    most = held.longest(free)
    assert held.predicted(most, 0) <= free < held.predicted(most + 1, 0)
    assert held.longest(1e12) == 8192
    assert held.longest(800 * MB) == 0
    assert held.longest(free, together=4) == pytest.approx(most / 4, abs=1)
