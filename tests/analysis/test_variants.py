"""The variant table and the pick."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.analysis.cells.objective import goal, wanted
from edgescope.analysis.cells.replicates import LONGER
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import (
    _against,
    _borne_out,
    _chosen,
    _listed,
    _more_pairs,
    _undecided,
    pick,
    rejection,
    show,
    table,
)
from edgescope.errors import UsageError
from edgescope.records import Absent, Measured, Status, Trial, Trust, Verdict
from edgescope.stats import Interval, Judgement
from edgescope.stats.pairs import MIN_PAIRS

MS = 1_000_000


@pytest.fixture
def results(make):
    wrong = {"verification": make.gate(False, "agreement 0.10")}
    absent = make.cell(1, replicates=1, backend="torch_compile")[0].trial
    return [
        *make.cell(10 * MS, seed=1),
        *make.cell(4 * MS, seed=2, backend="onnxruntime"),
        *make.cell(2 * MS, seed=3, backend="onnxruntime", precision="int8"),
        *make.cell(1 * MS, seed=4, backend="openvino", extra=wrong),
        make.result(
            [], trial=absent, status=Status.UNSUPPORTED, reason="E-X-1: no C++ compiler.", verification=None
        ),
    ]


@pytest.mark.slow
def test_rows_hold_the_numbers(results):
    found = table(results)
    assert [r.label for r in found.rows] == [
        "torch_eager fp32 b1",
        "onnxruntime fp32 b1",
        "onnxruntime int8 b1",
        "openvino fp32 b1",
        "torch_compile fp32 b1",
    ]
    row = found.rows[2]
    own = [r.queries.latency_ns() for r in results if r.trial.precision == "int8"]
    medians, tails = ([np.quantile(x, q) for x in own] for q in (0.5, 0.99))
    assert row["p50_s"].value == pytest.approx(np.mean(medians) * 1e-9) and row["p50_s"].n == 2500
    assert row["p99_s"].value == pytest.approx(np.mean(tails) * 1e-9)
    assert row["p50_s"].lo < row["p50_s"].value < row["p50_s"].hi
    assert row["speedup"].value == pytest.approx(5, rel=0.03) and row["speedup"].lo > 4.5
    assert row["peak_rss_bytes"].value == 1e8 + 4
    assert isinstance(row["power_w"], Absent) and isinstance(row["energy_per_sample_j"], Absent)
    assert row["accuracy"].value == 0.9 and row["agreement"].n == 300
    assert found.baseline == found.rows[0].cell and found.rows[0]["speedup"].value == 1.0


@pytest.mark.slow
def test_rejected_rows_keep_their_reason_and_are_never_picked(results):
    found = table(results)
    assert found.rows[3].rejected == "wrong outputs: agreement 0.10"
    assert found.rows[4].rejected == "unsupported: E-X-1: no C++ compiler."
    assert isinstance(found.rows[4]["p50_s"], Absent)
    for objective in ("latency", "throughput"):
        best = pick(found, objective)
        assert best.row.label == "onnxruntime int8 b1" and best.ties == ()
    assert best.row.rejected == ""


@pytest.mark.slow
def test_reason_names_the_figures(results):
    reason = pick(table(results)).reason
    row = table(results).rows[2]
    assert reason.startswith(
        f"onnxruntime int8 b1: lowest median latency, {show(row['p50_s'])}, {show(row['speedup'])}x"
    )
    assert "torch_eager fp32 b1" in reason and "top-1 agreement 0.99" in reason


def test_one_failing_replicate_rejects_the_cell(make):
    good = make.cell(MS, backend="onnxruntime")
    bad = make.result([], trial=good[0].trial, status=Status.CRASHED, reason="E-X-1: signal 11.")
    row = table([*make.cell(9 * MS), *good[1:], bad]).rows[1]
    assert row.rejected == "crashed (1 of 5 replicates): E-X-1: signal 11."


def test_a_skipped_replicate_does_not_reject(make):
    good = make.cell(MS)
    skipped = make.result(
        [], trial=good[0].trial, status=Status.SKIPPED, reason="I-X-1: time.", verification=None
    )
    assert table([*good[1:], skipped]).rows[0].rejected == ""


def test_unverified_is_not_eligible(make):
    found = table(make.cell(MS, extra={"verification": None}))
    assert found.rows[0].rejected == "not verified against the fp32 reference"
    best = pick(found)
    assert best.row is None and "not verified" in best.reason


@pytest.mark.slow
def test_an_indistinguishable_runner_up_is_named(make):
    base = make.cell(10 * MS, seed=1)
    a = make.cell(2 * MS, seed=2, sd=0.03, backend="onnxruntime")
    b = make.cell(2.01 * MS, seed=3, sd=0.03, backend="openvino")
    best = pick(table(base + a + b))
    beside = (*best.ties, *best.undecided)
    assert len(beside) == 1 and {best.row.label, *beside} == {"onnxruntime fp32 b1", "openvino fp32 b1"}
    assert best.reason.endswith(("either will do.", f"use {LONGER}."))
    assert "Not shown to be better than" in best.reason or "Tied with" in best.reason


def test_a_pick_is_so_many_times_better_than_a_rival_also_where_lower_is_better(make):
    best, rival = (table(make.cell(ms * MS, seed=ms)).rows[0] for ms in (2, 3))
    assert _against(best, rival, goal("latency"))[0].value == pytest.approx(1.5, rel=0.02)


@pytest.mark.slow
def test_one_sentence_sums_up_what_is_undecided(make):
    many = [make.cell(10 * MS, seed=i, sd=0.05, backend="onnxruntime", options={"n": i}) for i in range(9)]
    best = pick(table([r for cell in many for r in cell]))
    assert len(best.ties) + len(best.undecided) > 4
    assert best.reason.count("Not shown to be better than") + best.reason.count("Tied with") <= 2
    assert f"more: use {LONGER}" in best.reason and " as good" not in best.reason


def test_energy_needs_energy(make):
    found = table(make.cell(MS))
    assert pick(found, "energy").row is None
    cells = []
    for joules, backend in ((0.5, "torch_eager"), (0.2, "openvino")):
        for r in make.cell(MS, backend=backend):
            fields = {
                **r.metrics,
                "energy_per_sample_j": Measured(joules * (1 + 0.001 * r.trial.replicate), "J"),
            }
            cells.append(make.result([MS] * 300, trial=r.trial, metrics=fields))
    best = pick(table(cells), "energy")
    assert best.row.label == "openvino fp32 b1" and "mJ" in best.reason


def test_a_pick_by_energy_is_not_decided_where_the_meters_bounds_overlap(make):
    cells = []
    for joules, backend in ((0.22, "torch_eager"), (0.2, "openvino")):
        for r in make.cell(MS, backend=backend):
            each, whole = (Measured(x, "J", 0.8 * x, 1.2 * x, 9) for x in (joules, 300 * joules))
            fields = {**r.metrics, "energy_per_sample_j": each, "energy_j": whole}
            cells.append(make.result([MS] * 300, trial=r.trial, metrics=fields))
    best = pick(table(cells), "energy")
    assert best.row.label == "openvino fp32 b1" and best.undecided == ("torch_eager fp32 b1",)


def test_offline_is_judged_by_throughput(make):
    cells = [
        r
        for level, backend in ((10, "torch_eager"), (5, "openvino"))
        for r in make.cell(level * MS, backend=backend, scenario="offline", seed=level, extra={"metrics": {}})
    ]
    found = table(cells)
    assert isinstance(found.rows[1]["p50_s"], Absent) and "offline" in found.rows[1]["p50_s"].reason
    assert found.rows[1]["speedup"].value == pytest.approx(2, rel=0.03)
    assert pick(found).row is None
    assert pick(found, "throughput").row.label == "openvino fp32 b1 offline"


def test_without_raw_rows_percentiles_are_the_same(make):
    bare, whole = (table(make.cell(MS, raw=raw)).rows[0] for raw in (False, True))
    assert isinstance(bare["p50_s"], Measured) and bare["p50_s"] == whole["p50_s"]
    assert isinstance(table(make.cell(MS, raw=False, replicates=1)).rows[0]["p50_s"], Measured)


@pytest.mark.slow
def test_baseline_can_be_named_and_must_exist(results):
    assert table(results, "onnxruntime fp32 b1").rows[0]["speedup"].value == pytest.approx(0.4, rel=0.03)
    with pytest.raises(UsageError, match="E-VAR-2"):
        table(results, "tensorrt fp16 b1")
    with pytest.raises(UsageError, match="E-VAR-1"):
        table([])
    with pytest.raises(UsageError, match="E-VAR-3"):
        pick(table(results), "beauty")


def test_a_rerun_replaces_its_replicate(make):
    first, again = (
        make.cell(c * MS, replicates=1, extra={"started_at": t})[0] for c, t in ((9, "a"), (3, "b"))
    )
    assert table([again, first]).rows[0]["p50_s"].value == pytest.approx(0.003, rel=0.1)


def test_the_worst_verdict_speaks_for_the_cell(make):
    cells = make.cell(MS, replicates=2)
    hot = make.result([MS] * 300, trial=cells[1].trial, verdict=Verdict(Trust.THROTTLED, ("trip at 85 C",)))
    row = table([cells[0], hot]).rows[0]
    assert row.verdict == Verdict(Trust.THROTTLED, ("1 of 2 processes", "trip at 85 C"))
    assert "THROTTLED: 1 of 2 processes; trip at 85 C" in pick(table([cells[0], hot])).reason


SHORT = {"min_s": 0.4, "max_s": 0.4, "warmup": 0.3}


def test_screening_runs_stand_apart_and_are_not_in_the_figures(make):
    full = [*make.cell(10 * MS, seed=1), *make.cell(4 * MS, seed=2, backend="onnxruntime")]
    short = [
        *make.cell(20 * MS, replicates=1, **SHORT),
        *make.cell(1 * MS, replicates=2, backend="onnxruntime", **SHORT),
        *make.cell(8 * MS, replicates=1, backend="openvino", **SHORT),
    ]
    found = table(short + full)
    assert [r.label for r in found.rows] == ["torch_eager fp32 b1", "onnxruntime fp32 b1"]
    assert found.rows[1]["speedup"].value == pytest.approx(2.5, rel=0.03) and found.rows[1]["speedup"].n == 5
    assert found.row(found.baseline).trial.max_s == 10.0
    (out,) = found.screened
    assert out.label == "openvino fp32 b1"
    assert out["speedup"] == Absent(
        "1 pair gives no interval: use more pairs (optimize --budget, sweep --replicates)"
    )
    assert pick(found).row.label == "onnxruntime fp32 b1"


def test_one_that_failed_in_a_short_round_keeps_its_row(make):
    wrong = {"verification": make.gate(False, "agreement 0.10")}
    short = make.cell(MS, replicates=1, backend="openvino", extra=wrong, **SHORT)
    found = table([*make.cell(20 * MS, replicates=1, **SHORT), *short, *make.cell(10 * MS)])
    assert [r.rejected for r in found.rows] == ["wrong outputs: agreement 0.10", ""]
    assert found.rows[0].pairs == "1 of 1 pair" and found.screened == ()


def test_short_runs_alone_are_rows_like_any_other(make):
    found = table([*make.cell(9 * MS, **SHORT), *make.cell(MS, backend="openvino", **SHORT)])
    assert len(found.rows) == 2 and found.screened == ()


@pytest.mark.slow
def test_windows_of_a_second_or_more_are_never_screening(make):
    cells = [
        *make.cell(9 * MS),
        *make.cell(9 * MS, min_s=5.0, max_s=5.0),
        *make.cell(MS, backend="openvino", min_s=5.0, max_s=5.0),
    ]
    assert len(table(cells).rows) == 3


def test_cells_of_one_label_are_told_apart_and_none_is_its_own_baseline(make):
    first, *others = (make.cell(ms * MS, replicates=3, max_s=s) for ms, s in ((3, 1.0), (9, 4.0)))
    found = table([*first, *(r for cell in others for r in cell)])
    assert [r.apart for r in found.rows] == ["1 s", "4 s"] and found.rows[1].label.endswith("b1 (4 s)")
    assert (
        found.rows[1]["speedup"].value == pytest.approx(1 / 3, rel=0.03) and found.rows[1]["speedup"].n == 3
    )


def test_one_pair_of_cells_of_one_label_gives_no_ratio(make):
    found = table([*make.cell(3 * MS, replicates=1, max_s=1.0), *make.cell(9 * MS, replicates=1, max_s=4.0)])
    assert isinstance(found.rows[1]["speedup"], Absent)


def test_a_ratio_over_another_cell_of_the_baseline_says_so(make):
    long = {"max_s": 5.0, "replicates": 3}
    cells = [*make.cell(9 * MS), *make.cell(8 * MS, **long), *make.cell(MS, backend="openvino", **long)]
    row = table(cells).rows[2]
    assert row["speedup"].value == pytest.approx(8, rel=0.03) and "(5 s)" in row.notes[0]


def test_the_baseline_is_pytorch_with_the_fewest_options(make):
    tuned = make.cell(5 * MS, options={"layout": "channels_last"})
    found = table([*tuned, *make.cell(10 * MS)])
    assert found.row(found.baseline).label == "torch_eager fp32 b1"


@pytest.mark.slow
def test_a_broken_constraint_rejects_with_the_figures(results):
    asked = wanted("latency", ["p50<=3ms"])
    found = table(results, wanted=asked)
    broken = {r.label: bool(r.broken) for r in found.rows}
    assert broken["onnxruntime fp32 b1"] and not broken["onnxruntime int8 b1"]
    assert not found.rows[3].broken and found.rows[3].failed  # wrong outputs come first
    assert pick(found).row.label == "onnxruntime int8 b1"
    asked = wanted("latency", ["p50<=1ms"])
    best = pick(table(results, wanted=asked))
    assert best.row is None and best.nearest.label == "onnxruntime int8 b1"
    assert best.reason.startswith(
        "infeasible: no variant keeps every constraint. The nearest is onnxruntime int8"
    )
    assert best.reason.endswith("the binding constraint is p50<=1ms.")


@pytest.mark.slow
def test_pairs_began_within_an_hour_of_each_other(make):
    def at(ms, clock, replicates=3, **keys):
        stamp = {"started_at": f"2026-01-01T{clock}:00.000+00:00"}
        return make.cell(ms * MS, replicates=replicates, extra=stamp, **keys)

    base, other = at(10, "10:00"), {"backend": "onnxruntime"}
    assert table([*base, *at(4, "11:00", **other)]).rows[1]["speedup"].n == 3
    late = table([*base, *at(4, "11:01", **other)])
    assert isinstance(late.rows[1]["speedup"], Absent) and "60 minutes" in late.rows[1]["speedup"].reason
    mixed = [r for r in at(4, "11:01", **other) if r.trial.replicate == 2]
    some = table([*base, *at(4, "10:30", 2, **other), *mixed]).rows[1]
    assert some.pairs == "2 of 3 pairs" and len(some.replicates) == 3
    assert some.notes == (
        "onnxruntime fp32 b1: left out of its pairs: replicate 2: the two runs began more than 60 minutes apart",
    )
    again = at(4, "11:01", seed=1, backend="openvino")
    assert "Not measured together with" in pick(table([*base, *at(4, "10:00", **other), *again])).reason
    unknown = make.cell(4 * MS, replicates=3, extra={"started_at": ""}, **other)
    assert isinstance(table([*base, *unknown]).rows[1]["speedup"], Absent)


def test_a_disturbed_or_unstable_replicate_counts_and_is_told(make):
    base, other = make.cell(10 * MS, seed=1), make.cell(2 * MS, seed=2, backend="openvino")
    bad = make.result(
        [3 * MS] * 500,
        trial=other[2].trial,
        status=Status.UNSTABLE,
        reason="E-STAT-1: latency moved by -30 %.",
    )
    row = table([*base, *other[:2], bad, *other[3:]]).rows[1]
    assert row.pairs == "5 of 5 pairs" and row["speedup"].n == 5 and row.rejected == ""
    assert row["speedup"].value == pytest.approx(5, rel=0.02)
    assert row.notes[0] == "openvino fp32 b1: 1 of 5 replicates unstable; they count"
    assert "(5 of 5 pairs)" in pick(table([*base, *other[:2], bad, *other[3:]])).reason


def test_a_pair_is_left_out_for_a_crash_and_not_in_silence(make):
    base, other = make.cell(10 * MS, seed=1), make.cell(2 * MS, seed=2, backend="openvino")
    crashed = make.result(
        [], trial=base[4].trial, status=Status.CRASHED, reason="E-X-1: signal 11.", verification=None
    )
    row = table([*base[:4], crashed, *other]).rows[1]
    assert row.pairs == "4 of 5 pairs" and row["speedup"].n == 4
    assert row.notes == (
        "openvino fp32 b1: left out of its pairs: replicate 4: crashed (torch_eager fp32 b1)",
    )


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (2, f"2 pairs give no interval: use {LONGER}"),
        (3, "too uncertain"),
    ],
)
def test_a_disturbed_baseline_makes_no_headline(make, rounds, said):
    """One replicate of the baseline stood still: 63 ms where the others took 0.19 ms."""
    base = make.cell(0.19 * MS, replicates=rounds)
    base[-1] = make.result([63 * MS] * 5, trial=base[-1].trial)
    found = table([*base, *make.cell(0.0378 * MS, replicates=rounds, backend="openvino")])
    assert isinstance(found.rows[1]["speedup"], Absent) and said in found.rows[1]["speedup"].reason
    reason = pick(found).reason
    assert "x the speed" not in reason and f"unknown: {said}" in reason


@pytest.mark.slow
def test_medians_that_the_pairs_do_not_bear_out_are_told(make):
    """One replicate is slow: it moves the mean of the medians, and is cut from the pairs."""
    base, other = make.cell(10 * MS, seed=1), make.cell(5 * MS, seed=2, backend="openvino")
    other[0] = make.result([8 * MS] * 9000, trial=other[0].trial)
    row = table([*base, *other]).rows[1]
    assert row["speedup"].value == pytest.approx(2, rel=0.02)
    assert len(row.notes) == 1 and re.match(r"W-PAIR-1: .* 1\.8x", row.notes[0])
    assert table([*base, *make.cell(5 * MS, seed=2, backend="openvino")]).rows[1].notes == ()


def test_a_rival_that_turned_out_ahead_is_told_as_ahead():
    """A disturbed pair chose the pick; since then the rival's own pair looks better."""
    near, ahead = (
        (SimpleNamespace(label=label), Interval(lo, hi, (lo + hi) / 2, 5, 5, True), judged)
        for label, lo, hi, judged in (
            ("near", 0.9, 1.2, Judgement.AMBIGUOUS),
            ("ahead", 0.76, 0.87, Judgement.SLOWER),
        )
    )
    told = _undecided([near, ahead])
    assert told[0].startswith("Not shown to be better than near (")
    assert (
        told[1].startswith("ahead (0.815x [0.76, 0.87] as good") and "did better in earlier pairs" in told[1]
    )
    assert len(told) == 2


def test_three_ties_are_named_and_the_others_counted():
    ties = [(SimpleNamespace(label=f"v{n}"), None) for n in range(5)]
    assert _listed(ties) == "v0, v1, v2 and 2 more" and _listed(ties[:3]) == "v0, v1, v2"


@pytest.mark.slow
def test_a_row_as_plain_values_has_each_figure_under_its_name_and_its_trial(results):
    row = table(results).rows[2]
    plain = row.to_json()
    assert plain["trial"] == row.trial.to_json() and plain["label"] == "onnxruntime int8 b1"
    assert plain["p50_s"]["value"] == row["p50_s"].value and plain["cell"] == row.trial.cell
    assert (plain["rejected"], plain["status"]) == ("", "ok")


@pytest.mark.slow
def test_the_baseline_is_once_its_own_speed_without_doubt(results):
    base = table(results).rows[0]["speedup"]
    assert (base.value, base.lo, base.hi, base.n, base.unit) == (1.0, 1.0, 1.0, 5, "1")


def test_a_cell_that_never_ran_has_the_reason_of_its_first_replicate(make):
    trial = make.cell(1, replicates=1)[0].trial
    gone = dict(trial=trial, status=Status.UNSUPPORTED, verification=None)
    assert rejection([make.result([], reason="E-X-1: no.", **gone)]) == (
        Status.UNSUPPORTED,
        "unsupported: E-X-1: no.",
    )
    assert rejection([make.result([], **gone)])[1] == "unsupported: no reason given"
    for why, told in (({}, "did not run"), ({"reason": "E-X-2: later."}, "E-X-2: later.")):
        skipped = make.result([], **(gone | {"status": Status.SKIPPED} | why))
        assert rejection([skipped]) == (Status.SKIPPED, f"skipped: {told}")
    other = make.result(
        [], trial=make.cell(1, replicates=2)[1].trial, status=Status.CRASHED, verification=None
    )
    assert (
        rejection([*make.cell(MS, replicates=1), other])[1] == "crashed (1 of 2 replicates): no reason given"
    )
    assert rejection([other])[1] == "crashed: no reason given"
    assert rejection(make.cell(MS, replicates=2)) == (Status.OK, "")


@pytest.mark.parametrize(
    ("shown", "speedup", "told"),
    [
        (2.0, (2.0, 1.9, 2.1), False),
        (2.12, (2.0, 1.9, 2.1), False),  # a per cent beyond the end
        (2.122, (2.0, 1.9, 2.1), True),
        (1.8815, (2.0, 1.9, 2.1), False),
        (1.881, (2.0, 1.9, 2.1), True),
        (2.019, (2.0, None, None), False),
        (1.979, (2.0, None, None), True),
    ],
)
def test_medians_are_borne_out_within_a_per_cent_of_the_pairs(make, shown, speedup, told):
    row, base = (table(make.cell(ms * MS, replicates=1, sd=0.0)).rows[0] for ms in (1, shown))
    theirs = {0: replace(base.replicates[0], metrics={"latency_p50_s": Measured(shown * 1e-3, "s")})}
    mine = row.having(p50_s=Measured(1e-3, "s"))
    assert bool(_borne_out(mine, Measured(*speedup[:1], "1", *speedup[1:]), theirs)) is told
    assert _borne_out(row.having(p50_s=Absent("x")), Measured(9.0, "1"), theirs) == []


def test_a_single_difference_is_told_with_its_pairs():
    tie = (SimpleNamespace(label="v"), Interval(0.9, 1.2, 1.0, 1, 1, True), Judgement.AMBIGUOUS)
    assert _listed([tie]).endswith(", 1 pair)") and "1x" in _listed([tie])
    several = (tie[0], Interval(0.9, 1.2, 1.0, 2, 2, False, "wide"), tie[2])
    assert _listed([several]) == "v (wide)" and _listed([tie, several]) == "v, v"
    exact = (SimpleNamespace(label="w"), Interval(0.9, 1.0, 0.95, 5, 5, True), Judgement.AMBIGUOUS)
    assert len(_undecided([exact])) == 1 and "Not shown" in _undecided([exact])[0]
    assert "not compared" in _undecided([(tie[0], None, tie[2])])[0]
    assert "either will do" in _undecided([(tie[0], tie[1], Judgement.SAME)])[0]


def test_the_pairs_that_would_decide_the_hardest_are_told_where_all_are_known():
    few, fewer = (
        (SimpleNamespace(label=str(n)), Interval(0.9, 1.2, 1.0, n, n, False, "few"), Judgement.AMBIGUOUS)
        for n in (1, 2)
    )
    assert _more_pairs([few]) == MIN_PAIRS - 1 and _more_pairs([fewer, few]) == MIN_PAIRS - 1
    assert _more_pairs([few, (few[0], None, few[2])]) is None and _more_pairs([]) is None


def in_turns(backend, speedup, purpose="confirming"):
    """A row whose pairs took turns for this purpose; None: it has no speed-up."""
    figure = Absent("not resolved") if speedup is None else Measured(speedup, "ratio")
    took = SimpleNamespace(alternation=purpose and SimpleNamespace(purpose=purpose))
    return Row(
        trial=Trial(model="m", backend=backend),
        status=Status.OK,
        verdict=Verdict(Trust.CLEAN),
        metrics={"speedup": figure},
        turns=((took, took),),
    )


BASE = in_turns("torch_eager", 1.0, None)


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([in_turns("openvino", 3.0, "selecting"), in_turns("onnxruntime", 2.0)], 1),
        ([in_turns("openvino", 2.0), in_turns("onnxruntime", 3.0), BASE], 1),
        ([in_turns("openvino", None), in_turns("onnxruntime", 1.0), BASE], 1),
        ([in_turns("openvino", 0.99), in_turns("onnxruntime", 0.98), BASE], 2),
        ([in_turns("openvino", 0.99)], 0),  # the baseline is not among them
        ([in_turns("openvino", None), BASE], 0),
        ([in_turns("openvino", 3.0, None), BASE], 0),
    ],
)
def test_the_fastest_of_the_confirmed_is_chosen_unless_the_baseline_is_faster(rows, chosen):
    found = SimpleNamespace(baseline=BASE.cell)
    assert _chosen(rows, found, goal("latency")) is rows[chosen]
    assert _chosen(rows, found, goal("energy")) is rows[0], "turns compare speed alone"
