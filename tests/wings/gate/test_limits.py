"""What `--limit` reads, and the largest loss that it allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.wings.gate.limits import parse


def test_a_share_of_a_latency_lets_it_rise_and_of_a_rate_lets_it_fall():
    assert parse("latency=5%").most(0.02) == pytest.approx(1.05)
    assert parse("throughput=5%").most(100) == pytest.approx(1 / 0.95)


def test_a_loss_up_to_the_floor_passes_whatever_its_share():
    limit = parse(" latency = 5 %, 0.2ms ")
    assert limit.most(0.001) == pytest.approx(1.2) and limit.most(1.0) == pytest.approx(1.05)
    assert limit.text == "latency=5%,0.2ms"
    assert parse("memory=10%,20MB").floor == 20e6


@given(st.floats(0, 99), st.floats(1e-6, 1e3))
def test_a_larger_share_never_allows_less(share, value):
    for name in ("latency", "throughput"):
        small, large = (parse(f"{name}={s:.3f}%").most(value) for s in (share, share + 0.5))
        assert 1 <= small <= large


@pytest.mark.parametrize(
    "text", ["latency", "latency=5", "latency<=5%", "speed=5%", "latency=5%,2", "latency=5%,2MB", "=5%", ""]
)
def test_what_is_no_limit_is_refused_with_one_that_is(text):
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert refused.value.message.code == "E-JUDGE-1"
    assert "--limit" in refused.value.message.fix


@given(st.text(max_size=30))
def test_any_text_is_a_limit_or_our_own_error(text):
    try:
        assert parse(text).share >= 0
    except UsageError as error:
        assert error.message.code == "E-JUDGE-1"
