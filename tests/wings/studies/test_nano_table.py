"""Stored results to the study's table: every number by hand from chosen latencies."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.roofline import Ceilings
from edgescope.analysis.run.summary import metrics
from edgescope.errors import UsageError
from edgescope.records import Absent, Measured, ModelInfo, Status, Trial
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.jetson_nano.study import content
from edgescope.wings.studies.jetson_nano.table import SCREENED, WARM_QUERIES, nano_table, picked, wanted
from edgescope.wings.studies.paper import papers

MS = 1_000_000
FAST = {"backend": "openvino", "precision": "fp16"}
INFO = ModelInfo("squeezenet1_1", "classify", False, "zoo", "0", 1_235_496, 349_151_936)
CEILINGS = Ceilings("", "cpu", {"fp16": Measured(1e12, "FLOP/s")}, [(1e9, 1e12)], 0.0, [], [])


@pytest.fixture
def study_of(make):
    """(model, before ms, after ms, replicates) -> results with warm-up rows three times as slow."""

    def one(ms, replicate, load_s, **keys):
        trial = Trial(**({"model": "squeezenet1_1", "replicate": replicate, "min_s": 1, "max_s": 2.5} | keys))
        level = ms * (1 + 0.01 * replicate)
        latency = np.r_[np.full(WARM_QUERIES, 3 * level), np.full(5, 2 * level), np.full(100, level)]
        rows, window = make.rows((latency * MS).astype(np.int64), warmup=15)
        extra = {"load_s": Measured(load_s, "s"), "first_s": Measured(0.1 * (1 + replicate), "s")}
        done = make.result(np.full(5, MS), trial=trial, model=replace(INFO, name=trial.model))
        values = metrics(rows, window) | extra
        return replace(
            done, queries=rows, window=window, metrics=values, started_at=f"2026-01-01T{replicate:02d}"
        )

    def study(before=20.0, after=4.0, replicates=4, **keys):
        out = []
        for i in range(replicates):
            out += [one(before, i, 0.5, **keys), one(after, i, 0.2, **(FAST | keys))]
        return out

    study.one = one
    return study


def only(results, **keys):
    return nano_table(results, ["squeezenet1_1"], **keys).rows[0]


def test_the_four_times_and_the_speed_up(study_of):
    row = only(study_of())
    assert row.variant == "openvino fp16 b1"
    assert row.before.cold_s.value == pytest.approx(0.5 + 0.1 * 2.5)
    assert row.before.first_s.value == pytest.approx(0.25)
    assert row.before.warm_s.value == pytest.approx(3 * 0.020 * 1.015, rel=1e-3)
    assert row.before.steady_s.value == pytest.approx(0.020 * 1.015, rel=0.01)
    assert row.after.steady_s.value == pytest.approx(0.004 * 1.015, rel=0.01)
    assert row.speedup.value == pytest.approx(5.0) and row.speedup.n == 4
    cold = [0.5 + 0.1 * (1 + i) for i in range(4)]
    warm = [3 * 0.004 * (1 + 0.01 * i) for i in range(4)]
    assert row.claimed.value == pytest.approx(np.exp(np.mean(np.log(np.divide(cold, warm)))), rel=1e-3)
    assert (row.params.value, row.macs.value, row.flops.value) == (1_235_496, 349_151_936, 2 * 349_151_936)


def test_a_wrong_answer_is_never_the_pick_and_is_named(study_of, make):
    wrong = [
        replace(
            study_of.one(1.0, i, 0.2, backend="onnxruntime", precision="int8"),
            status=Status.WRONG_OUTPUT,
            verification=make.gate(passed=False),
        )
        for i in range(4)
    ]
    row = only([*study_of(), *wrong])
    assert row.variant == "openvino fp16 b1"
    assert "onnxruntime int8 b1 wrong_output" in row.notes


def test_other_questions_do_not_enter(study_of):
    noise = [
        study_of.one(0.1, 0, 0.2, **FAST, **{k: v})
        for k, v in (
            ("batch", 8),
            ("io", "pinned"),
            ("device", "cuda"),
            ("scenario", "offline"),
            ("in_flight", 4),
        )
    ]
    assert only([*study_of(), *noise]).speedup == only(study_of()).speedup
    assert not any(wanted(r.trial, ("squeezenet1_1",)) for r in noise)
    assert not wanted(Trial(model="resnet18"))


def test_screening_runs_and_other_seeds_are_not_paired_with_the_study(study_of):
    short = study_of(40.0, 1.0, replicates=9, min_s=0.4, max_s=0.4)
    other = study_of(40.0, 1.0, replicates=2, seed=7)
    assert only([*short, *study_of(), *other]).speedup.value == pytest.approx(5.0)
    assert picked([*short, *study_of()], "squeezenet1_1") == Trial(
        model="squeezenet1_1", **FAST, min_s=1, max_s=2.5, replicate=0
    )


def test_without_results_a_row_says_so_and_keeps_the_studys_figures(study_of):
    found = nano_table(study_of())
    assert len(found.rows) == 11 and [r.model for r in found.measured] == ["squeezenet1_1"]
    empty = next(r for r in found.rows if r.model == "vgg19")
    assert isinstance(empty.speedup, Absent) and "vgg19" in empty.speedup.reason
    assert empty.params == Measured(143_667_240.0, "1")
    assert found.geometric.value == pytest.approx(5.0) and found.geometric.n == 1


def test_a_variant_alone_has_no_speed_up(study_of):
    after = [r for r in study_of() if r.trial.backend == "openvino"]
    assert isinstance(only(after).speedup, Absent)


def test_the_baseline_may_be_the_best(study_of):
    row = only([r for r in study_of() if r.trial.backend == "torch_eager"])
    assert row.variant == "torch_eager fp32 b1" and row.speedup == Measured(1.0, "1", n=4)


def test_without_warm_up_rows_warm_is_absent_not_zero(study_of):
    bare = [replace(r, queries=None) for r in study_of()]
    assert isinstance(only(bare).before.warm_s, Absent) and isinstance(only(bare).claimed, Absent)


def test_the_limit_is_given_for_this_machine_and_device_only(study_of):
    results = study_of()
    here = replace(CEILINGS, machine_id=results[0].machine.id)
    row = only(results, ceilings=here)
    moved = (1_235_496 + 150_528 + 1000) * 2
    assert row.limit_s.value == pytest.approx(max(2 * 349_151_936 / 1e12, moved / 1e12))
    assert row.of_limit.value == pytest.approx(row.limit_s.value / row.after.steady_s.value)
    assert row.of_limit.lo < row.of_limit.value < row.of_limit.hi and row.bound_by == "compute"
    assert isinstance(only(results, ceilings=CEILINGS).of_limit, Absent)
    assert isinstance(only(results, ceilings=replace(here, device="cuda")).of_limit, Absent)


def test_unknown_models_and_several_machines_are_refused(study_of, make):
    with pytest.raises(UsageError, match="E-NANO-1"):
        nano_table([], ["resnet18"])
    other = replace(study_of()[0], machine=replace(study_of()[0].machine, stable={"cpu": "y"}))
    with pytest.raises(UsageError, match="E-MIX-1"):
        nano_table([*study_of(), other])


def test_a_two_class_twin_is_a_row_of_its_own(study_of):
    found = nano_table(study_of(model="alexnet_2class"), ["alexnet_2class"])
    assert found.rows[0].study.ours == "alexnet" and found.rows[0].speedup.value == pytest.approx(5.0)


def on(results, day, packages=None):
    """The same results, begun on another day of January, with these packages."""
    moved = []
    for r in results:
        machine = replace(r.machine, state={"packages": packages} if packages else {})
        moved.append(
            replace(r, started_at=r.started_at.replace("2026-01-01", f"2026-01-{day:02d}"), machine=machine)
        )
    return moved


def test_a_fresh_study_counts_before_an_older_one_with_more_rounds(study_of):
    old, fresh = on(study_of(replicates=8, max_s=3), 1), on(study_of(20.0, 10.0, replicates=5), 2)
    for order in ([*old, *fresh], [*fresh, *old]):
        row = only(order)
        assert row.speedup.value == pytest.approx(2.0) and row.speedup.n == 5


def test_package_versions_are_never_mixed(study_of):
    old = on(study_of(), 1, {"torch": "1"})
    new = [r for r in on(study_of(8.0), 1, {"torch": "2"}) if r.trial.backend == "torch_eager"]
    upgraded = [replace(r, started_at=f"{r.started_at}:30") for r in new]  # half an hour later
    row = only([*old, *upgraded])
    assert row.variant == "torch_eager fp32 b1" and row.before.steady_s.value == pytest.approx(
        0.00812, rel=0.01
    )


def test_runs_of_another_day_are_no_pairs(study_of):
    results = study_of()
    late = on([r for r in results if r.trial.backend == "openvino"], 3)
    row = only([*(r for r in results if r.trial.backend == "torch_eager"), *late])
    assert row.variant == "openvino fp16 b1"
    assert isinstance(row.speedup, Absent) and "60 minutes" in row.speedup.reason
    assert isinstance(row.claimed, Absent)


def test_a_study_that_only_screened_has_no_figures(study_of):
    row = only(study_of(min_s=0.4, max_s=0.4))
    assert SCREENED in row.notes and row.speedup == Absent(SCREENED) and row.variant == ""
    assert isinstance(row.before.steady_s, Absent)
    assert picked(study_of(min_s=0.4, max_s=0.4), "squeezenet1_1") is None


def test_the_limit_is_that_of_the_fastest_precision_that_passed(study_of, make):
    before = [r for r in study_of() if r.trial.backend == "torch_eager"]
    half = [study_of.one(30.0, i, 0.2, **FAST, min_s=0.4, max_s=0.4) for i in range(2)]  # screened out
    flops = {p: Measured(f, "FLOP/s") for p, f in (("fp32", 1e11), ("fp16", 1e12))}
    here = replace(CEILINGS, machine_id=before[0].machine.id, flops=flops)
    row = only([*before, *half], ceilings=here)
    assert row.variant == "torch_eager fp32 b1" and row.limit_precision == "fp16"
    assert row.limit_s.value == pytest.approx(2 * 349_151_936 / 1e12)
    assert "limit: at fp16, bound by compute" in row.notes
    wrong = replace(half[1], status=Status.WRONG_OUTPUT, verification=make.gate(passed=False))
    alone = only([*before, half[0], wrong], ceilings=here)
    assert alone.limit_precision == "fp32" and alone.limit_s.value == pytest.approx(2 * 349_151_936 / 1e11)


def test_a_precision_that_passed_without_a_ceiling_is_named(study_of):
    results = study_of()
    row = only(results, ceilings=replace(CEILINGS, machine_id=results[0].machine.id))
    assert "limit: at fp16, bound by compute; fp32 passed the gate too but has no ceiling" in row.notes


# -- claims and boards ---------------------------------------------------------------------------------------

MACS = {"alexnet": 7e8, "vgg19": 2e10, "squeezenet1_1": 3.5e8}


def gaining(study_of, after):
    """Networks that take 20 ms before, and so many after."""
    every = []
    for model, ms in after.items():
        info = replace(INFO, name=model, macs=int(MACS[model]))
        every += [replace(r, model=info) for r in study_of(20.0, ms, model=model)]
    return every


def answers(results):
    told = content(papers()["nano_table"], results, models=tuple(MACS))
    return {each.claim.key: each.found for each in told.claims}


def test_fewer_operations_are_held_against_larger_speed_ups(study_of):
    as_told = answers(gaining(study_of, {"squeezenet1_1": 2.0, "alexnet": 4.0, "vgg19": 10.0}))
    assert as_told["fewer_flops"].answer is as_told["faster"].answer is Answer.HOLDS
    assert as_told["fewer_flops"].agree == "3 of 3"
    but_one = answers(gaining(study_of, {"squeezenet1_1": 3.0, "alexnet": 2.0, "vgg19": 10.0}))
    assert but_one["fewer_flops"].answer is Answer.HOLDS and but_one["fewer_flops"].agree == "2 of 3"
    otherwise = answers(gaining(study_of, {"squeezenet1_1": 10.0, "alexnet": 4.0, "vgg19": 2.0}))
    assert otherwise["fewer_flops"].answer is Answer.FAILS
    slower = answers(gaining(study_of, {"squeezenet1_1": 25.0, "alexnet": 4.0}))
    assert slower["faster"].answer is not Answer.HOLDS
    assert answers([])["fewer_flops"].answer is Answer.UNKNOWN


def test_each_network_stands_beside_the_boards_printed_one(study_of):
    told = content(papers()["nano_table"], study_of(), models=("squeezenet1_1",))
    (entry,) = told.entries
    assert entry["speedup"].value == pytest.approx(5.0) and entry.how == "openvino fp16 b1"
    ((board, printed),) = told.printed
    assert board == "Nano" and printed["latency_p50_s"].value == 0.1663
    assert "runs" not in told.data["rows"][0]
