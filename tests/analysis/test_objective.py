"""Constraints: what can be written, what it means, and which end of an interval is judged."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.cells.objective import Compliance, Constraint, least_share, parse, units, wanted
from edgescope.errors import UsageError
from edgescope.metrics import bounded
from edgescope.records import Absent, Measured

NUMBERS = st.floats(0, 1e9, allow_nan=False).map(lambda x: f"{x:.6g}") | st.integers(0, 10**9).map(str)


def figures(**fields):
    absent = dict.fromkeys((m.name for m in bounded().values()), Absent("not measured"))
    return absent | {"reference_accuracy": Absent("no labels")} | fields


@given(st.sampled_from(sorted(bounded())), NUMBERS, st.data(), st.sampled_from(["", " ", "  "]))
@pytest.mark.slow
def test_what_is_written_is_read_back(name, number, data, space):
    known = bounded()[name]
    unit = data.draw(st.sampled_from(sorted(units(known))))
    sense = ">=" if known.higher else "<="
    found = parse(f"{space}{name}{space}{sense}{space}{number}{space}{unit}{space}")
    assert found.limit == pytest.approx(float(number) * units(known)[unit])
    assert found.metric is known and found.name == name and found.relative == (unit == "ref")
    assert parse(found.text) == found


@given(st.text(max_size=30))
@pytest.mark.slow
def test_anything_else_is_refused_in_words(text):
    try:
        found = parse(text)
    except UsageError as error:
        assert error.code == "E-CONS-1" and error.evidence
    else:
        assert math.isfinite(found.limit)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p99>=33ms", "bounded by < or <="),
        ("accuracy<=0.9", "bounded by > or >="),
        ("p99<=33", "written in ms, s, us"),
        ("p98<=33ms", "cannot be bounded"),
        ("p99==33ms", "FIGURE<=VALUE"),
        ("p99<=-1ms", "FIGURE<=VALUE"),
        ("power<=nanW", "FIGURE<=VALUE"),
        ("memory<=1e999GB", "not finite"),
        ("power<=0.9ref", "written in W, mW"),
    ],
)
def test_the_message_says_what_is_wrong(text, why):
    with pytest.raises(UsageError, match="E-CONS-1") as caught:
        parse(text)
    assert why in caught.value.evidence


@given(st.floats(0.001, 1), st.floats(0, 0.5), st.floats(0.001, 1).map(lambda x: float(f"{x:.4g}")))
@pytest.mark.slow
def test_p99_is_judged_on_its_upper_bound(value, half, limit):
    found = figures(p99_s=Measured(value, "s", value - half / 2, value + half, 500))
    broken = parse(f"p99<={limit}s").broken(found)
    assert bool(broken) == (value + half > parse(f"p99<={limit}s").limit)


def test_the_limit_itself_keeps_at_most_and_breaks_less_than():
    at = figures(p999_s=Measured(0.033, "s"), throughput_sps=Measured(30, "samples/s"))
    assert not parse("p99.9<=33ms").broken(at) and parse("p999<33ms").broken(at)
    assert not parse("throughput>=30").broken(at) and parse("throughput>30").broken(at)
    assert parse("p99.9<34ms").metric.name == "p999_s" and not parse("p99.9<34ms").broken(at)


def test_the_figures_are_in_the_sentence():
    found = figures(p99_s=Measured(0.030, "s", 0.028, 0.0412, 500))
    assert parse("p99<=33ms").broken(found) == "p99<=33ms broken: 41.2 ms, the bound of 30"
    assert parse("p99<=33ms").broken(figures(p99_s=Measured(0.030, "s"))) == ""
    assert parse("throughput>=100").broken(figures(throughput_sps=Measured(110, "samples/s", 90, 130)))


def test_what_was_not_measured_keeps_no_constraint():
    text = parse("energy<=50mJ").broken(figures(energy_per_sample_j=Absent("no power sensor")))
    assert text == "energy<=50mJ cannot be judged: no power sensor"
    assert parse("energy<=50mJ").excess(figures()) == math.inf


def test_relative_accuracy_takes_the_labels_or_else_the_agreement():
    asked = parse("accuracy>=0.98ref")
    labelled = {
        "accuracy": Measured(0.85, "1", 0.6, 0.95, 20),
        "reference_accuracy": Measured(0.9, "1", n=20),
    }
    agreeing = Measured(0.99, "1", 0.985, 1.0, 370)
    assert "0.85 of 20, fp32 reaches 0.9" in asked.broken(figures(**labelled, agreement=agreeing))
    assert asked.broken(figures(**labelled | {"accuracy": Measured(0.9, "1", 0.7, 1, 20)})) == ""
    assert asked.broken(figures(agreement=agreeing)) == ""
    assert asked.broken(figures(agreement=Measured(0.99, "1", 0.97, 1.0, 370)))
    assert "cannot be judged" in asked.broken(figures())


def test_hopeless_is_more_than_the_margin_but_accuracy_has_none():
    near = figures(p99_s=Measured(0.035, "s"), agreement=Measured(0.95, "1"))
    assert not wanted("latency", ["p99<=33ms"]).hopeless(near, 0.1)
    assert wanted("latency", ["p99<=33ms"]).hopeless(near, 0.01)
    assert wanted("latency", ["agreement>=0.96"]).hopeless(near, 0.1)


def test_a_figure_that_is_not_there_yet_is_not_hopeless():
    short = figures(p99_s=Absent("n/a: have 40, need 100"))
    asked = wanted("latency", ["p99<=33ms"])
    assert not asked.hopeless(short, 0.1) and asked.broken(short)
    assert wanted("latency", ["p99<=33ms", "agreement>=0.9"]).hopeless(
        figures(p99_s=Absent("n/a"), agreement=Measured(0.5, "1")), 0.1
    )


def test_the_binding_constraint_is_the_one_broken_most():
    asked = wanted("latency", ["p99<=10ms", "memory<=1GB", "power<=10W"])
    found = figures(
        p99_s=Measured(0.011, "s"), peak_rss_bytes=Measured(3e9, "bytes"), power_w=Measured(5, "W")
    )
    assert asked.binding(found) == (pytest.approx(3), "memory<=1GB")
    assert len(asked.broken(found)) == 2


def test_an_unknown_objective_is_refused():
    with pytest.raises(UsageError, match="E-VAR-3"):
        wanted("beauty")


@pytest.mark.parametrize(
    ("text", "value", "lo", "hi", "excess"),
    [
        ("p99<=40ms", 0.03, 0.02, 0.04, 1.0),
        ("p99<=40ms", 0.03, 0.02, 0.05, 1.25),
        ("p99<=40ms", 0.03, None, None, 0.75),
        ("throughput>=30", 40.0, 30.0, 50.0, 1.0),
        ("throughput>=30", 40.0, 20.0, 50.0, 1.5),
        ("memory<=2GB", 1e9, None, None, 0.5),
        ("energy<=50mJ", 0.1, None, None, 2.0),
        ("p50<=100us", 2e-4, None, None, 2.0),
        ("power<=500mW", 1.0, None, None, 2.0),
        ("gpu_memory<=1GiB", 2.0**31, None, None, 2.0),
    ],
)
def test_a_constraint_is_exceeded_by_the_end_that_hurts_over_the_limit(text, value, lo, hi, excess):
    asked = parse(text)
    column = asked.metric.name
    row = {column: Measured(value, "x", lo, hi, 9)}
    assert asked.excess(row) == pytest.approx(excess)
    assert bool(asked.broken(row)) is (excess > 1)
    strict = parse(text.replace("=", ""))
    assert bool(strict.broken(row)) is (excess >= 1)
    assert asked.excess({column: Absent("lost")}) == math.inf
    plain = Constraint(asked.metric, asked.limit)
    assert plain.excess(row) == pytest.approx(excess) and not plain.relative and not plain.strict


@given(
    st.sampled_from(["p99<=40ms", "p99<40ms", "throughput>=30", "throughput>30"]),
    st.floats(0, 60),
    st.floats(0, 60),
)
def test_a_check_is_sure_where_both_ends_agree_and_unsure_between(text, a, b):
    asked = parse(text)
    scale = 1e-3 if asked.at_most else 1.0
    best, worst = sorted((a * scale, b * scale), reverse=not asked.at_most)
    told = asked.check(worst, best)
    assert (told is Compliance.YES) == asked.holds(worst) and (told is Compliance.NO) == (
        not asked.holds(best)
    )
    assert asked.check(None, best) is (Compliance.PERHAPS if asked.holds(best) else Compliance.NO)
    field = {asked.metric.name: Measured(worst, asked.metric.unit)}
    assert asked.holds(worst) == (asked.broken(field) == "")


def test_nothing_may_be_asked_for_and_nothing_may_be_had():
    def excess(quantity, limit, **columns):
        return Constraint(bounded()[quantity], limit).excess(columns)

    zero, some = Measured(0.0, "x"), Measured(2.0, "x")
    assert excess("memory", 0.0, peak_rss_bytes=zero) == 1.0
    assert excess("memory", 0.0, peak_rss_bytes=some) == math.inf
    assert excess("throughput", 5.0, throughput_sps=zero) == math.inf
    assert excess("throughput", 0.0, throughput_sps=zero) == 1.0
    assert excess("throughput", 0.0, throughput_sps=some) == 0.0


@pytest.mark.parametrize(
    ("constraints", "given", "share"),
    [
        (["accuracy>=0.98ref", "top1>=0.95ref", "accuracy>=0.5"], None, 0.95),
        (["accuracy>=0.98ref"], 0.9, 0.9),
        (["accuracy>=1.01ref", "accuracy>=1ref"], None, 1.0),
        (["accuracy>=0.5", "p99<=33ms"], None, None),
        ([], 0.7, 0.7),
        ([], None, None),
    ],
)
def test_the_gate_asks_for_the_least_share_that_a_constraint_names(constraints, given, share):
    assert least_share([parse(text) for text in constraints], given) == share
