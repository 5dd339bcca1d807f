"""Comparison of two cells: differences, blockers, judgements."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.cells.compare import compare, differences
from edgescope.analysis.cells.replicates import across
from edgescope.errors import Message, UsageError
from edgescope.records import Machine, Measured, Status
from edgescope.stats import Judgement
from making import result

MS = 1_000_000


def test_ratio_and_judgement_of_a_clear_speed_up(make):
    found = compare(make.cell(10 * MS, seed=1), make.cell(5 * MS, seed=2, backend="onnxruntime"))
    row = {r.metric: r for r in found.rows}["latency_p50_s"]
    assert found.judgement is Judgement.FASTER and found.pairs == 5
    assert row.ratio.value == pytest.approx(0.5, rel=0.03) and row.ratio.lo < row.ratio.value < row.ratio.hi
    rate = {r.metric: r for r in found.rows}["throughput_sps"]
    assert rate.judgement is Judgement.FASTER and rate.ratio.value == pytest.approx(2, rel=0.03)
    assert [(d.name, d.baseline, d.candidate) for d in found.differences] == [
        ("trial.backend", "torch_eager", "onnxruntime")
    ]


def test_the_same_is_never_faster_and_a_slow_one_is_slower(make):
    base = make.cell(10 * MS, seed=1, replicates=10)
    assert compare(base, make.cell(10 * MS, seed=3, replicates=10)).judgement in (
        Judgement.SAME,
        Judgement.AMBIGUOUS,
    )
    assert compare(base, make.cell(11 * MS, seed=4, replicates=10)).judgement is Judgement.SLOWER


def test_pairing_is_by_replicate_number(make):
    """Machine moods shared by both of a pair cancel; paired wrongly they would not."""
    moods = [1.0, 1.5, 0.8, 1.2, 2.0]
    a, b = [], []
    for i, mood in enumerate(moods):
        a += make.cell(10 * MS * mood, replicates=1, seed=i, sd=0, replicate=i)
        b += make.cell(9 * MS * mood, replicates=1, seed=i + 50, sd=0, backend="openvino", replicate=i)
    found = compare(a, b[::-1])
    assert found.judgement is Judgement.FASTER
    assert found.rows[0].ratio.value == pytest.approx(0.9, rel=0.01)


def test_p99_is_the_mean_of_its_processes_and_not_judged(make):
    a, b = make.cell(10 * MS, seed=1, sd=0.2), make.cell(9 * MS, seed=2, sd=0.2, batch=2)
    row = {r.metric: r for r in compare(a, b).rows}["latency_p99_s"]
    means = np.mean([np.quantile(r.queries.latency_ns(), 0.99) for r in a]) * 1e-9
    assert row.baseline.value == pytest.approx(means)
    assert row.judgement is None


@pytest.mark.parametrize(
    ("word", "kw"),
    [
        ("io", {"io": "pinned"}),
        ("machine", {"extra": {"stable": {"cpu": "y"}}}),
        ("scope of power", {"extra": {"scope": "carrier"}}),
    ],
)
def test_blockers(make, word, kw):
    base = make.cell(10 * MS, extra={"scope": "module"})
    kw = {**kw, "extra": {"scope": "module", **kw.get("extra", {})}}
    other = make.cell(5 * MS, seed=2, **kw)
    found = compare(base, other)
    assert found.judgement is Judgement.NOT_COMPARABLE and found.judgement.value == "NOT-COMPARABLE"
    assert found.rows == () and found.blockers[0].startswith(f"{word} differs: ")
    forced = compare(base, other, force=True)
    assert forced.judgement is Judgement.NOT_COMPARABLE
    assert forced.rows[0].ratio.value == pytest.approx(0.5, rel=0.05)
    assert forced.rows[0].judgement is Judgement.NOT_COMPARABLE


def test_facts_that_vary_within_a_side_are_not_differences(make):
    def with_state(governor, base):
        out = []
        for i in range(3):
            state = {
                "governor": governor,
                "load": base + i,
                "libs": {"ort": governor[0]},
                "pid": {"absent": "x"},
            }
            out += make.cell(MS, replicates=1, seed=i, extra={"state": state}, replicate=i)
        return out

    found = compare(with_state("powersave", 1), with_state("performance", 5))
    assert [d.name for d in found.differences] == ["state.governor"]
    found = compare(with_state("aa", 1), with_state("bb", 5))
    assert [d.name for d in found.differences] == ["state.governor", "state.libs.ort"]


def test_failed_replicates_make_no_pair(make):
    base, other = make.cell(10 * MS), make.cell(5 * MS, seed=2, batch=2)
    other[0] = make.result([], trial=other[0].trial, status=Status.CRASHED, reason="signal 11")
    assert compare(base, other).pairs == 4


def test_no_common_replicate_is_ambiguous_with_a_reason(make):
    a = make.cell(10 * MS, replicates=1, replicate=0)
    b = make.cell(5 * MS, replicates=1, replicate=7, batch=2)
    found = compare(a, b)
    assert found.judgement is Judgement.AMBIGUOUS and found.pairs == 0
    assert any("not measured together" in w for w in found.warnings)


def test_one_pair_bounds_no_ratio(make):
    found = compare(make.cell(10 * MS, replicates=1), make.cell(5 * MS, replicates=1, batch=2))
    assert found.judgement is Judgement.AMBIGUOUS
    ratio = found.rows[0].ratio
    assert isinstance(ratio, Measured) and ratio.value == pytest.approx(0.5, rel=0.05)
    assert (ratio.lo, ratio.hi, ratio.n) == (None, None, 1)
    assert [w.partition(":")[0] for w in found.warnings] == [
        "W-CMP-2"
    ] and "--replicates 5" in found.warnings[0]


def powered(group, watts, off, warnings=()):
    """The group with a power of its own each and a meter that may be off by the share `off`."""
    fields = [
        Measured(w, "W", w * (1 - off), w * (1 + off), 4)
        for w in watts * np.linspace(0.999, 1.001, len(group))
    ]
    return [
        replace(r, metrics=r.metrics | {"power_w": f}, warnings=warnings)
        for r, f in zip(group, fields, strict=True)
    ]


@pytest.mark.parametrize(("off", "judgement"), [(0.001, Judgement.FASTER), (0.2, Judgement.AMBIGUOUS)])
def test_powers_are_not_judged_where_the_meters_bounds_overlap(make, off, judgement):
    short = (Message("W-PWR-3", "a window of 1.0 s holds 4 distinct updates"),)
    a = powered(make.cell(10 * MS), 10.0, off, short)
    b = powered(make.cell(10 * MS, seed=2, batch=2), 8.0, off)
    found = compare(a, b)
    row = {r.metric: r for r in found.rows}["power_w"]
    assert row.judgement is judgement and row.ratio.value == pytest.approx(0.8)
    assert found.warnings == (f"{short[0]} (the baseline)",)
    assert row.baseline.lo <= 10.0 * (1 - off) and row.baseline.hi >= 10.0 * (1 + off)


def test_the_interval_over_replicates_reaches_to_the_meters_bounds(make):
    group = powered(make.cell(10 * MS), 10.0, 0.1)
    each = Measured(0.05, "J", 0.0499, 0.0501, 12)  # over blocks, narrower than the meter's bounds
    whole = Measured(50.0, "J", 45.0, 55.0, 30)
    group = [replace(r, metrics=r.metrics | {"energy_per_sample_j": each, "energy_j": whole}) for r in group]
    assert (across(group, "power_w").lo, across(group, "power_w").hi) == pytest.approx((9.0, 11.0))
    got = across(group, "energy_per_sample_j")
    assert (got.lo, got.hi) == pytest.approx((0.045, 0.055))
    plain = across(group, "latency_mean_s")
    assert plain.hi - plain.lo < 0.05 * plain.value


def test_a_group_is_one_cell(make):
    mixed = make.cell(MS) + make.cell(MS, batch=2)
    with pytest.raises(UsageError, match=r"E-CMP-1.*several cells"):
        compare(mixed, make.cell(MS))
    with pytest.raises(UsageError, match="no result"):
        compare([], make.cell(MS))


def test_how_long_a_machine_has_been_up_is_no_setting():
    sides = [
        [replace(result(), machine=Machine({"cpu": "x"}, {"uptime_s": up, "governor": g}))]
        for up, g in ((10.0, "a"), (99.0, "b"))
    ]
    assert [d.name for d in differences(*sides)] == ["state.governor"]


def test_runs_that_were_not_measured_together_are_no_pairs(make):
    early = {"started_at": "2026-01-01T10:00:00.000+00:00"}
    late = {"started_at": "2026-01-02T10:00:00.000+00:00"}
    old, new = (make.cell(ms * MS, seed=s, extra=e) for ms, s, e in ((10, 1, early), (9, 2, late)))
    found = compare(old, new)
    assert found.pairs == 0 and any("not measured together" in w for w in found.warnings)
    apart = found.rows[0].ratio
    near = compare(old, make.cell(9 * MS, seed=2, extra=early)).rows[0].ratio
    assert apart.value == pytest.approx(near.value, rel=0.02) and apart.lo < near.value < apart.hi
    one = compare(old[:1], new[:1])
    assert (
        one.rows[0].judgement is Judgement.AMBIGUOUS
        and one.rows[0].baseline.value != one.rows[0].candidate.value
    )


def test_clocks_and_load_are_no_settings(make):
    sides = [
        make.cell(
            MS, replicates=1, extra={"state": {"cpu": {"uptime_s": n, "load_average": [n]}, "governor": g}}
        )
        for n, g in ((1, "a"), (2, "b"))
    ]
    assert [d.name for d in compare(*sides).differences] == ["state.governor"]
