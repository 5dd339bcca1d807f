"""Shares of bandwidth and arithmetic against sums done by hand for five published shapes."""

import pytest

from edgescope.analysis.roofline import Ceilings
from edgescope.records import Absent, Measured
from edgescope.wings.generation import bounds, shapes
from edgescope.wings.generation.memory import UNTOLD, Held

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


def held(name, **other):
    a = shapes.find(name).architecture
    read = 2.0 * (a.params - (0 if a.tied else a.vocabulary * a.width))
    return Held(
        **{"shape": a, "read_bytes": read, "weight_bytes": read, "kv_bytes": 2, "arithmetic": "bf16"} | other
    )


def figures(**other):
    found = {
        "prompt_tokens": Measured(128.0, "tokens"),
        "output_tokens": Measured(128.0, "tokens"),
        "decode_tps": Measured(20.0, "tokens/s", 19.0, 21.0, 99),
        "prefill_tps": Measured(1024 / 0.5, "tokens/s"),
    }
    return found | other


def shares(name, found, most=H, together=1, **other):
    return bounds.shares(held(name, **other), most, found, device="cpu", together=together)


@pytest.mark.parametrize("name", BY_HAND)
def test_share_of_the_bandwidth_in_decode(name):
    weights, cached, *_ = BY_HAND[name]
    a_token = 2 * weights * 1e6 + 2 * cached * (128 + 64)  # 128 of prompt, and half of an answer of 128
    found = shares(name, figures())["mbu"]
    assert found.value == pytest.approx(20 * a_token / (100 * GB), rel=0.001)
    assert (found.lo, found.hi) == pytest.approx((found.value * 0.95, found.value * 1.05))


@pytest.mark.parametrize("name", BY_HAND)
def test_share_of_the_arithmetic_in_prefill(name):
    _, _, blocks, output, queries = BY_HAND[name]
    pairs = 1024 * 1025 / 2
    flops = 2 * blocks * 1e6 * 1024 + 4 * pairs * queries + 2 * output
    found = shares(name, figures(prompt_tokens=Measured(1024.0, "tokens")))["mfu"]
    assert found.value == pytest.approx(flops / 0.5 / (10 * T), rel=0.001)


def test_answers_together_share_the_weights_and_not_their_caches():
    four = shares("smollm2-135m", figures(), together=4)
    weights, cached, *_ = BY_HAND["smollm2-135m"]
    moved = 20 * (2 * weights * 1e6 + 4 * 2 * cached * 192)
    assert four["mbu"].value == pytest.approx(moved / (100 * GB), rel=0.001)
    assert isinstance(four["mfu"], Absent)


def test_a_share_above_one_beyond_its_uncertainty_is_an_error_that_is_said():
    lo, over = 19.0, figures(decode_tps=Measured(5000.0, "tokens/s", 4900.0, 5100.0))
    found = shares("smollm2-135m", over)
    (said,) = bounds.impossible(found, "cpu")
    assert isinstance(found["mbu"], Absent) and said.code == "E-GEN-6"
    assert "MBU" in said.evidence and said.fix == "edgescope doctor --roofline cpu"
    doubtful = shares("smollm2-135m", figures(decode_tps=Measured(5000.0, "tokens/s", lo, 9000.0)))
    assert doubtful["mbu"].value > 1 and not list(bounds.impossible(doubtful, "cpu"))
    fast = shares("smollm2-135m", figures(prefill_tps=Measured(1e6, "tokens/s")))
    assert [m.code for m in bounds.impossible(fast, "cpu")] == ["E-GEN-6"]


def test_what_was_not_measured_gives_its_reason():
    none = shares("smollm2-135m", figures(), most=None)
    assert set(none.values()) == {bounds.unmeasured("cpu")} and "doctor --roofline cpu" in none["mbu"].reason
    assert set(bounds.shares(None, H, figures(), device="server", together=1).values()) == {UNTOLD}
    lacking = shares("smollm2-135m", figures(decode_tps=Absent("one token")), arithmetic="fp8")
    assert lacking["mbu"] == Absent("one token") and "fp8" in lacking["mfu"].reason
    assert "arithmetic" in shares("smollm2-135m", figures(), arithmetic="")["mfu"].reason
