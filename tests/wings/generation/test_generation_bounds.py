"""Shares of bandwidth and arithmetic against sums done by hand for five published shapes."""

import pytest

from edgescope.analysis.roofline import Ceilings
from edgescope.records import Absent, Measured
from edgescope.wings.generation import bounds, shapes
from edgescope.wings.generation.bounds import Traffic

GB, T = 1e9, 1e12
H = Ceilings(
    "m", "cpu", {"bf16": Measured(10 * T, "FLOP/s")}, [(1e6, 900 * GB), (1e9, 100 * GB)], 0.0, (), ()
)

#: Shape -> weights read for a token (millions, its card's), numbers in the cache a token, weights of the blocks
#: (millions) and of the output layer, numbers in queries over all layers: from each model's config, by hand.
BY_HAND = {
    "smollm2-135m": (134.515, 2 * 30 * 3 * 64, 106.168, 49152 * 576, 30 * 576),
    "qwen2.5-0.5b": (494.033, 2 * 24 * 2 * 64, 357.826, 151936 * 896, 24 * 896),
    "qwen3-0.6b": (596.050, 2 * 28 * 8 * 128, 440.402, 151936 * 1024, 28 * 2048),
    "tinyllama-1.1b": (1100.048 - 32000 * 2048 / 1e6, 2 * 22 * 4 * 64, 968.884, 32000 * 2048, 22 * 2048),
    "llama-3.2-1b": (1235.814, 2 * 16 * 8 * 64, 973.079, 128256 * 2048, 16 * 2048),
}


def _traffic(name):
    a = shapes.find(name).architecture
    return Traffic(a, 2.0 * a.params, 2.0 * a.vocabulary * a.width, 2)


@pytest.mark.parametrize("name", BY_HAND)
def test_share_of_the_bandwidth_in_decode(name):
    weights, cached, *_ = BY_HAND[name]
    a_token = 2 * weights * 1e6 + 2 * cached * (128 + 64)  # 128 of prompt, and half of an answer of 128
    found = bounds.mbu(_traffic(name), 20.0, H, prompt=128, output=128)
    width = 100 * GB if 2 * weights * 1e6 > 1e6 else 900 * GB
    assert found.value == pytest.approx(20 * a_token / width, rel=0.001)


@pytest.mark.parametrize("name", BY_HAND)
def test_share_of_the_arithmetic_in_prefill(name):
    _, _, blocks, output, queries = BY_HAND[name]
    pairs = 1024 * 1025 / 2
    flops = 2 * blocks * 1e6 * 1024 + 4 * pairs * queries + 2 * output
    found = bounds.mfu(shapes.find(name).architecture, 1024, 0.5, "bf16", H)
    assert found.value == pytest.approx(flops / 0.5 / (10 * T), rel=0.001)


def test_answers_together_share_the_weights_and_not_their_caches():
    traffic = _traffic("smollm2-135m")
    alone, four = traffic.token_bytes(100), traffic.token_bytes(100, together=4)
    cache = 23_040 * 100
    assert (alone - cache) / 4 == pytest.approx(four - cache)


def test_a_share_above_one_is_told_and_not_given():
    found = bounds.mbu(_traffic("smollm2-135m"), 5000.0, H, prompt=128, output=128)
    assert isinstance(found, Absent) and "cannot be" in found.reason
    found = bounds.mfu(_traffic("smollm2-135m").shape, 1024, 1e-3, "bf16", H)
    assert isinstance(found, Absent) and "cannot be" in found.reason


def test_what_was_not_measured_gives_its_reason():
    traffic = _traffic("smollm2-135m")
    given = {"prompt": 8, "output": 8, "precision": "bf16", "prefill_s": Measured(1.0, "s")}
    none = bounds.shares(traffic, None, tokens_s=Measured(1.0, "tokens/s"), **given)
    assert set(none.values()) == {bounds.UNMEASURED}
    lacking = bounds.shares(traffic, H, tokens_s=Absent("one token"), **given | {"precision": "fp8"})
    assert lacking["mbu"] == Absent("one token") and "fp8" in lacking["mfu"].reason
