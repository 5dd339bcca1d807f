"""Comparison of two cells: differences, blockers, judgements."""

import math
from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.cells.compare import (
    Compared,
    _apart,
    _blockers,
    _inverse,
    _p99,
    _warnings,
    _with_point,
    compare,
    differences,
)
from edgescope.analysis.cells.replicates import across
from edgescope.errors import Message, UsageError
from edgescope.records import Absent, Machine, Measured, Status, Trial, Verification
from edgescope.report.compare import document
from edgescope.stats import Interval, Judgement
from edgescope.verbs.compare import compare as verb
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


@pytest.mark.slow
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


def words(found):
    return "\n".join(str(part) for part in document(found).parts)


def test_columns_over_more_runs_than_there_are_pairs_say_so(make):
    base, other = make.cell(10 * MS), make.cell(5 * MS, backend="openvino")
    assert compare(base, other).runs == (5, 5) and "over all" not in words(compare(base, other))
    found = compare(base, other[:1])
    assert (found.pairs, found.runs) == (1, (5, 1))
    assert "from 1 pair" in words(found) and "undecided" not in words(found)


def test_pairs_and_columns_that_point_in_opposite_directions_decide_nothing(make):
    fast = make.cell(5 * MS, replicates=3, sd=0.01)
    slow = [r for n in (3, 4, 5, 6) for r in make.cell(40 * MS, replicates=1, replicate=n)]
    found = compare([*fast, *slow], make.cell(10 * MS, backend="openvino", replicates=3))
    lead = found.lead
    assert lead.ratio.lo > 1 and lead.contradicted.value < 0.6
    assert found.judgement is Judgement.AMBIGUOUS and "undecided: 3 pairs" in words(found)


@pytest.mark.parametrize(
    ("old", "new", "ratio", "against"),
    [(4.0, 2.0, 0.7, False), (4.0, 2.0, 1.4, True), (2.0, 4.0, 0.7, True), (4.0, 3.99, 1.4, False)],
)
def test_a_ratio_is_contradicted_by_noticeably_different_columns(old, new, ratio, against):
    fields = (Measured(old, "s"), Measured(new, "s"), Measured(ratio, "1"))
    assert bool(Compared("latency_p50_s", *fields).contradicted) is against
    assert Compared("latency_p50_s", *fields[:2], Absent("x")).contradicted is None


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


@pytest.mark.slow
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


def test_two_cells_of_one_label_are_told_apart_by_their_sides(make):
    same, other = make.cell(10 * MS, seed=1), make.cell(9 * MS, seed=2, batch=2)
    assert ": the candidate is" in document(compare(same, make.cell(10 * MS, seed=3))).title
    assert ": the candidate is" not in document(compare(same, other)).title


def test_clocks_and_load_are_no_settings(make):
    sides = [
        make.cell(
            MS, replicates=1, extra={"state": {"cpu": {"uptime_s": n, "load_average": [n]}, "governor": g}}
        )
        for n, g in ((1, "a"), (2, "b"))
    ]
    assert [d.name for d in compare(*sides).differences] == ["state.governor"]


# -- its parts by hand -------------------------------------------------------------------------------------------------


def figures(values, name="latency_mean_s"):
    """Runs of one cell with these values, by replicate."""
    return {
        n: result(
            Trial(model="null", backend="null", replicate=n), metrics={name: v}, queries=None, window=None
        )
        for n, v in enumerate(values)
    }


@pytest.mark.parametrize(
    ("old", "new", "counts", "judged"),
    [
        (Measured(2.0, "s", 1.9, 2.1, 9), Measured(1.0, "s", 0.95, 1.05, 9), (3, 3), Judgement.FASTER),
        (Measured(1.0, "s", 0.95, 1.05, 9), Measured(2.0, "s", 1.9, 2.1, 9), (3, 3), Judgement.SLOWER),
        (Measured(2.0, "s", 1.9, 2.1, 9), Measured(1.0, "s", 0.95, 1.05, 9), (2, 3), Judgement.AMBIGUOUS),
        (Measured(2.0, "s", 1.9, 2.1, 9), Measured(1.0, "s", 0.95, 1.05, 9), (3, 2), Judgement.AMBIGUOUS),
        (Measured(2.0, "s", n=9), Measured(1.0, "s", 0.95, 1.05, 9), (3, 3), Judgement.AMBIGUOUS),
        (Absent("x"), Measured(1.0, "s", 0.95, 1.05, 9), (3, 3), Judgement.AMBIGUOUS),
    ],
)
def test_figures_that_stand_apart_are_judged_by_three_runs_a_side_with_intervals(old, new, counts, judged):
    runs = tuple({n: None for n in range(count)} for count in counts)
    ratio, found = _apart(runs, (old, new), "latency_mean_s", False)
    assert found is judged and (isinstance(old, Absent) or ratio.value == new.value / old.value)
    turned = {Judgement.FASTER: Judgement.SLOWER, Judgement.SLOWER: Judgement.FASTER}.get(judged, judged)
    assert _apart(runs, (old, new), "throughput_sps", True)[1] is turned


def test_a_ratio_turned_round_has_its_ends_turned_round():
    found = _inverse(Interval(0.5, 4.0, 2.0, 7, 5))
    assert (found.lo, found.hi, found.value, found.n) == (0.25, 2.0, 0.5, 7)
    open_ = _inverse(Interval(0.0, 4.0, 2.0, 7, 5))
    assert (open_.lo, open_.hi) == (0.25, math.inf)


@pytest.mark.parametrize("reliable", [True, False])
def test_a_ratio_that_pairs_cannot_bound_is_shown_without_an_interval(reliable):
    found = _with_point(Interval(1.9, 2.1, 2.0, 6, 6, reliable, "" if reliable else "few"))
    ends = (1.9, 2.1) if reliable else (None, None)
    assert (found.value, found.lo, found.hi, found.n) == (2.0, *ends, 6)
    for value in (0.0, math.inf, math.nan):
        assert isinstance(_with_point(Interval(0.0, math.inf, value, 1, 1, False, "few")), Absent)


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [
        (Measured(2e-3, "s"), Measured(3e-3, "s"), 1.5),
        (Measured(0.0, "s"), Measured(3e-3, "s"), None),
        (Absent("x"), Measured(3e-3, "s"), None),
        (Measured(2e-3, "s"), Absent("x"), None),
    ],
)
def test_the_ratio_of_two_tails(first, second, ratio):
    old, new = (figures([v], "latency_p99_s") for v in (first, second))
    found = _p99(old, new)
    assert (found.ratio.value if isinstance(found.ratio, Measured) else None) == pytest.approx(ratio)
    assert (found.metric, found.judgement) == ("latency_p99_s", None)


@pytest.mark.parametrize(
    ("pairs", "judgement", "codes"),
    [
        (4, Judgement.AMBIGUOUS, ["W-CMP-2"]),
        (5, Judgement.AMBIGUOUS, []),
        (4, Judgement.FASTER, []),
        (0, Judgement.FASTER, ["not measured together"]),
        (0, Judgement.AMBIGUOUS, ["W-CMP-2", "not measured together"]),
    ],
)
def test_pairs_that_judge_nothing_are_told_below_five(pairs, judgement, codes):
    one = Measured(1.0, "s")
    rows = [Compared("a", one, one, one), Compared("b", one, one, one, judgement)]
    rows += [Compared("c", one, one, one, Judgement.AMBIGUOUS)]
    runs = figures([one])
    assert [w.partition(":")[0] for w in _warnings(runs, runs, rows, pairs)] == codes
    assert _warnings(runs, runs, [], 0) == ()


def test_the_warnings_of_a_meter_stand_once_where_its_ratio_is_shown():
    short, other = Message("W-PWR-3", "few updates"), Message("W-PWR-1", "else")
    runs = {
        n: replace(r, warnings=(short, other))
        for n, r in figures([Measured(1.0, "W")] * 2, "power_w").items()
    }
    one = Measured(1.0, "1")
    shown = [Compared("power_w", one, one, one, Judgement.SAME)]
    assert _warnings(runs, {}, shown, 5) == (f"{short} (the baseline)",)
    assert _warnings({}, runs, shown, 5) == (f"{short} (the candidate)",)
    for hidden in ([Compared("power_w", one, one, Absent("x"))], [Compared("latency_mean_s", one, one, one)]):
        assert _warnings(runs, runs, hidden, 5) == ()


def test_what_mixes_machines_or_differs_in_io_is_not_comparable():
    here, there = (Machine({"cpu": name}, {}) for name in ("x", "y"))
    a, b = (replace(result(), machine=m) for m in (here, there))
    assert len(_blockers([a, b], [a])) == 2 and "the baseline" in _blockers([a, b], [a])[0]
    assert "the candidate" in _blockers([a], [a, b])[0] and _blockers([a], [a]) == ()
    assert _blockers([a], [b]) == (f"machine differs: {here.id} against {there.id}",)
    device = replace(a, trial=replace(a.trial, io="device"))
    assert _blockers([a], [device]) == ("io differs: host against device",)


def test_facts_that_vary_within_a_side_or_are_momentary_are_no_differences():
    def run(**state):
        return replace(result(), machine=Machine({"cpu": "x"}, state))

    assert [(d.name, d.baseline, d.candidate) for d in differences([run(a={"b": 1})], [run(a={"b": 2})])] == [
        ("state.a.b", 1, 2)
    ]
    assert (
        differences([run(a=1), run(a=2)], [run(a=3)]) == () == differences([run(a=3)], [run(a=1), run(a=2)])
    )
    assert [d.name for d in differences([run(a=1)], [run()])] == ["state.a"]
    for name in ("time", "uptime_s", "load_average", "psi_cpu", "command", "memory_available_bytes"):
        assert differences([run(**{name: 1})], [run(**{name: 2})]) == ()
    assert [d.name for d in differences([run(lifetime=1)], [run(lifetime=2)])] == ["state.lifetime"]
    absent = differences([run(a={"absent": "no"})], [run(a={"absent": "never"})])
    assert [(d.name, d.baseline) for d in absent] == [("state.a", {"absent": "no"})]
    assert [d.name for d in differences([run(a={})], [run(a={"b": 1})])] == ["state.a", "state.a.b"]


def test_what_edgescope_tells_its_processes_is_no_setting():
    sides = [
        [replace(result(), machine=Machine({}, {"environment": {"EDGESCOPE_JOB": n, "OMP_NUM_THREADS": n}}))]
        for n in ("1", "2")
    ]
    assert [d.name for d in differences(*sides)] == ["state.environment.OMP_NUM_THREADS"]


def test_two_models_are_named_and_one_is_not():
    a, b = ([replace(result(), trial=replace(result().trial, model=name))] for name in ("one#1", "two"))
    found = compare(a, b)
    assert found.baseline.split()[0] == "one" and found.candidate.split()[0] == "two"
    assert compare(a, a).baseline == a[0].trial.label


def test_wrong_outputs_are_said_first_with_how():
    check = Verification(False, "centred_l2", {}, 0.1, "outputs differ by 3.0")
    bad = [replace(result(), status=Status.WRONG_OUTPUT, verification=check)]
    found = compare([result()], bad)
    assert "outputs differ by 3.0" in next(found.lines()) and "candidate" in found.wrong[0]
    assert compare([result()], [result()]).wrong == ()


def test_a_result_is_not_compared_with_itself():
    run = result()
    with pytest.raises(UsageError, match="E-CMP-5"):
        verb([run], [run, replace(run, id="other")])
