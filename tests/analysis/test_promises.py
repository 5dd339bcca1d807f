"""Promises as people write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.analysis.capacity.promises import promises
from edgescope.errors import UsageError


@pytest.mark.parametrize(
    ("text", "name", "limit", "strict", "quantile"),
    [
        ("p99<40ms", "p99", 0.04, True, 0.99),
        (" p50 <= 10 ms ", "p50", 0.01, False, 0.5),
        ("p99.9<0.1s", "p99.9", 0.1, True, 0.999),
        ("p999<100000us", "p999", 0.1, True, 0.999),
        ("memory<=2GB", "memory", 2e9, False, None),
        ("power<10W", "power", 10.0, True, None),
        ("energy<=50mJ", "energy", 0.05, False, None),
        ("p90<33ms", "p90", 0.033, True, 0.9),
    ],
)
def test_what_can_be_promised(text, name, limit, strict, quantile):
    found = promises([text])[0]
    assert (found.name, found.strict, found.quantile) == (name, strict, quantile)
    assert found.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "metric", "title"),
    [
        ("p97<1s", "p97_s", "p97"),
        ("p50<1s", "p50_s", None),  # one that every run has
        ("frame_age_p90<1s", "frame_age_p90_s", "frame_age_p90"),
        ("age<1s", "frame_age_p99_s", "age"),
    ],
)
def test_a_promise_is_of_a_metric_by_its_own_name(text, metric, title):
    found = promises([text])[0].metric
    assert found.name == metric and title in (None, found.title) and found.unit == "s" and not found.higher


def test_the_limit_itself_keeps_a_promise_of_at_most():
    assert promises(["p99<=40ms"])[0].holds(0.04) and not promises(["p99<40ms"])[0].holds(0.04)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p99",
        "p99>40ms",
        "p99<40",
        "p99<0ms",
        "p100<1s",
        "p49<1s",
        "p99.<1s",
        "p5<1s",
        "memory<2W",
        "x<1s",
    ],
)
def test_what_cannot_is_refused_with_what_can(text):
    with pytest.raises(UsageError) as caught:
        promises([text])
    assert caught.value.code == "E-CONS-1" and caught.value.evidence


@pytest.mark.parametrize("text", ["throughput>=30", "accuracy>=0.9", "top1>=0.98ref"])
def test_a_constraint_that_is_no_promise_is_told_so(text):
    with pytest.raises(UsageError, match="is a constraint of recommend and optimize"):
        promises([text])[0]


def test_several_promises_by_commas_or_flags():
    assert [s.text for s in promises(["p99<40ms, p50<10ms", "memory<=1GB"])] == [
        "p99<40ms",
        "p50<10ms",
        "memory<=1GB",
    ]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30) | st.from_regex(r"[a-z0-9.]{1,6}<=?[0-9.e]{1,8}[a-zA-Z]{0,3}", fullmatch=True))
def test_any_text_is_read_or_refused(text):
    try:
        assert all(p.limit > 0 for p in promises([text]))
    except UsageError as error:
        assert error.code == "E-CONS-1"
