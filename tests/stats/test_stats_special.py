"""Special functions against SciPy."""

import math

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from edgescope.stats.intervals import beta_inc, binomial_cdf, normal_quantile, t_cdf, t_quantile


@given(st.floats(0.5, 2000), st.floats(0.5, 2000), st.floats(0, 1))
def test_beta_inc_equals_scipy(a, b, x):
    assert beta_inc(a, b, x) == pytest.approx(scipy.special.betainc(a, b, x), rel=1e-8, abs=1e-12)


def test_beta_inc_holds_at_a_million():
    assert beta_inc(990_000, 10_001, 0.99) == pytest.approx(
        scipy.special.betainc(990_000, 10_001, 0.99), abs=1e-8
    )


@given(st.integers(1, 5000), st.integers(-1, 5001), st.floats(0.001, 0.999))
def test_binomial_cdf_equals_scipy(n, k, p):
    assert binomial_cdf(k, n, p) == pytest.approx(scipy.stats.binom.cdf(k, n, p), rel=1e-7, abs=1e-11)


@given(st.floats(0.0005, 0.9995), st.integers(1, 5000))
def test_t_quantile_equals_scipy(p, df):
    assert t_quantile(p, df) == pytest.approx(scipy.stats.t.ppf(p, df), rel=1e-8, abs=1e-8)


@given(st.floats(-50, 50), st.integers(1, 200))
def test_t_cdf_equals_scipy(t, df):
    assert t_cdf(t, df) == pytest.approx(scipy.stats.t.cdf(t, df), rel=1e-8, abs=1e-13)


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


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.1, 0.5, 0.9, 1.0])
def test_beta_inc_in_closed_form(x):
    assert beta_inc(3, 1, x) == pytest.approx(x**3, rel=1e-13)
    assert beta_inc(1, 4, x) == pytest.approx(1 - (1 - x) ** 4, rel=1e-6 if x < 1e-6 else 1e-13)
    assert beta_inc(2, 2, x) == pytest.approx(x * x * (3 - 2 * x), rel=1e-12)


@given(st.floats(0.01, 500), st.floats(0.01, 500), st.floats(0.001, 0.999))
def test_beta_inc_is_its_own_mirror(a, b, x):
    assert beta_inc(a, b, x) + beta_inc(b, a, 1 - x) == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize("a", [1e-3, 0.5, 0.9, 1.0, 1.5])
def test_beta_inc_of_small_parameters_is_as_exact(a):
    for x in (1e-6, 0.01, 0.3, 0.99):
        assert beta_inc(a, 0.7, x) == pytest.approx(scipy.special.betainc(a, 0.7, x), rel=1e-12)
        assert beta_inc(0.7, a, x) == pytest.approx(scipy.special.betainc(0.7, a, x), rel=1e-12)


def test_deep_tails_keep_their_digits():
    assert beta_inc(200, 3, 0.01) == pytest.approx(scipy.special.betainc(200, 3, 0.01), rel=1e-10)
    assert t_cdf(-40, 7) == pytest.approx(scipy.stats.t.cdf(-40, 7), rel=1e-12)
    assert binomial_cdf(2, 4000, 0.05) == pytest.approx(scipy.stats.binom.cdf(2, 4000, 0.05), rel=1e-10)


@pytest.mark.parametrize(
    "bad", [(0, 1, 0.5), (1, 0, 0.5), (-1, 1, 0.5), (1, -1, 0.5), (1, 1, -0.1), (1, 1, 1.1)]
)
def test_beta_inc_refuses_what_it_is_not_defined_for(bad):
    with pytest.raises(ValueError, match="need a, b > 0 and 0 <= x <= 1, not {}, {}, {}".format(*bad)):
        beta_inc(*bad)


def test_the_binomial_at_its_ends():
    assert (binomial_cdf(-1, 5, 0.3), binomial_cdf(5, 5, 0.3), binomial_cdf(6, 5, 0.3)) == (0.0, 1.0, 1.0)
    assert binomial_cdf(0, 5, 0.3) == pytest.approx(0.7**5) and binomial_cdf(4, 5, 0.3) == pytest.approx(
        1 - 0.3**5
    )


@pytest.mark.parametrize("t", [-30, -1.0000001, -1, -0.9, -0.3, 0, 0.3, 0.9, 1, 1.0000001, 30])
def test_t_of_one_and_two_degrees_in_closed_form(t):
    assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, rel=1e-12)
    assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), rel=1e-11)
    assert t_cdf(t, 5) + t_cdf(-t, 5) == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("p", [1e-4, 0.01, 0.4999, 0.5, 0.5001, 0.7, 0.9, 0.999999])
@pytest.mark.parametrize("df", [0.5, 1, 2, 3.5, 30, 1e4])
def test_the_quantile_is_where_the_distribution_reaches_it(p, df):
    t = t_quantile(p, df)
    assert t_cdf(t, df) == pytest.approx(p, rel=1e-9) and t == pytest.approx(
        scipy.stats.t.ppf(p, df), rel=1e-9, abs=1e-12
    )
    assert t_quantile(0.75, 1) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (-0.1, 3), (1.1, 3), (0.5, 0), (0.5, -1)])
def test_no_quantile_outside_of_0_to_1_or_without_freedom(p, df):
    with pytest.raises(ValueError, match="need 0 < p < 1 and df > 0"):
        t_quantile(p, df)
