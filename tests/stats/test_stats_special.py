"""Special functions against SciPy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from edgescope.stats.special import beta_inc, binomial_cdf, normal_quantile, t_cdf, t_quantile


@given(st.floats(0.5, 2000), st.floats(0.5, 2000), st.floats(0, 1))
def test_beta_inc_equals_scipy(a, b, x):
    assert beta_inc(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-8, abs=1e-12)


def test_beta_inc_holds_at_a_million():
    assert beta_inc(990_000, 10_001, 0.99) == pytest.approx(special.betainc(990_000, 10_001, 0.99), abs=1e-8)


@given(st.integers(1, 5000), st.integers(-1, 5001), st.floats(0.001, 0.999))
def test_binomial_cdf_equals_scipy(n, k, p):
    assert binomial_cdf(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=1e-7, abs=1e-11)


@given(st.floats(0.0005, 0.9995), st.integers(1, 5000))
def test_t_quantile_equals_scipy(p, df):
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-8, abs=1e-8)


@given(st.floats(-50, 50), st.integers(1, 200))
def test_t_cdf_equals_scipy(t, df):
    assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-8, abs=1e-13)


def test_normal_quantile():
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize(
    "call", [lambda: beta_inc(0, 1, 0.5), lambda: beta_inc(1, 1, 1.5), lambda: t_quantile(1.0, 3)]
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError):
        call()


def test_infinite_argument_free():
    assert math.isfinite(t_quantile(0.9999, 1))
