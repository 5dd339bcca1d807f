"""The recommendation: what is judged on which end, the Pareto set, the pick, its price, ties, the infeasible."""

import dataclasses
import math
import re
from types import SimpleNamespace

import pytest

from edgescope.analysis.cells.objective import nondominated, wanted
from edgescope.analysis.cells.replicates import latencies_s
from edgescope.errors import UsageError
from edgescope.records import Absent, Machine, Measured, Status, Trial, Trust, Verdict, Window, Worker
from edgescope.wings.recommend.candidates import choices, load
from edgescope.wings.recommend.recommendation import _beside, recommend
from making import MACHINE, queries, result

FACTORS = (1.0, 0.99, 1.01)


def cell(sps, p99_ms, memory_mb=100, *, factors=FACTORS, extra=None, fields=None, **keys):
    """Replicates of one cell, each `factor` off; the bound of its p99 lies 2 % above."""
    out = []
    for i, factor in enumerate(factors):
        metrics = {
            "throughput_sps": Measured(sps * factor, "samples/s"),
            "latency_p50_s": Measured(p99_ms * 0.8e-3 / factor, "s"),
            "latency_p99_s": Measured(p99_ms * 1e-3 / factor, "s", n=1000),
            "latency_p99_bound_s": Measured(p99_ms * 1.02e-3 / factor, "s", n=1000),
            "peak_rss_bytes": Measured(memory_mb * 1e6, "bytes"),
            "power_w": Absent("no power sensor"),
        }
        trial = Trial(**({"model": "m", "backend": "onnxruntime", "replicate": i} | keys))
        out.append(
            result(
                trial,
                metrics=metrics | (fields or {}),
                queries=None,
                window=None,
                readings=None,
                **(extra or {}),
            )
        )
    return out


def grid():
    return [
        *cell(100, 10),
        *cell(180, 20, batch=4),
        *cell(200, 40, 200, batch=16),
        *cell(90, 12, 300, precision="int8"),
        *cell(199, 41, 200, processes=2),
    ]


def test_the_best_is_picked_and_what_is_as_good_is_named():
    found = recommend(grid(), wanted("throughput"))
    assert found.pick.label == "onnxruntime fp32 b16"
    assert [c.label for c in (*found.ties, *found.undecided)] == ["onnxruntime fp32 b1 P2"]
    assert "onnxruntime fp32 b1 P2" in " ".join(found.reasons)
    labels = {c.label for c in found.front}
    assert "onnxruntime int8 b1" not in labels and "onnxruntime fp32 b1" in labels
    assert found.axes == ("throughput_sps", "p99_s", "peak_rss_bytes")


def test_a_constraint_is_judged_on_the_bound_and_the_price_is_told():
    found = recommend(grid(), wanted("throughput", ["p99<=33ms", "memory<=2GB"]))
    assert found.pick.label == "onnxruntime fp32 b4" and found.best.label == "onnxruntime fp32 b16"
    text = " ".join(found.reasons)
    assert "10 % less throughput than onnxruntime fp32 b16, which breaks p99<=33ms: 41" in text
    assert "p99<=33ms: at most 2" in text and "memory<=2GB: 100 MB" in text
    # the mean is 20 ms; neither the bound within a process nor what lies between processes may be left out
    assert recommend(grid(), wanted("throughput", ["p99<=20.5ms"])).pick.label == "onnxruntime fp32 b1"


def test_the_bound_covers_what_lies_between_processes():
    steady = choices(cell(100, 10, factors=(1, 1, 1)), wanted("throughput"))[0][0]
    (wild,), _ = choices(cell(100, 10, factors=(1, 0.8, 1.25)), wanted("throughput"))
    assert steady["p99_s"].hi == pytest.approx(0.0102)
    assert wild["p99_s"].hi > 0.0125 * 1.02 and wild["throughput_sps"].lo < 80


def test_single_processes_take_the_spread_of_replicated_cells():
    rows, _ = choices(
        [*cell(100, 10, factors=(1.0,)), *cell(200, 20, factors=(1, 0.8, 1.25), batch=4)],
        wanted("throughput"),
    )
    assert rows[0]["p99_s"].hi > 0.0102 * 1.2 and not rows[0].notes
    alone, _ = choices(cell(100, 10, factors=(1.0,)), wanted("throughput"))
    assert alone[0]["p99_s"].hi == pytest.approx(0.0102) and "spread between processes" in alone[0].notes[0]


def test_a_tail_nobody_has_replicated_takes_the_spread_of_the_median():
    short = {
        "latency_p99_s": Absent("n/a: have 60, need 100"),
        "latency_p99_bound_s": Absent("n/a: have 60, need 459"),
    }
    wild = cell(200, 20, factors=(1, 0.8, 1.25), batch=4, fields=short)
    (row, _), _ = choices([*cell(100, 10, factors=(1.0,)), *wild], wanted("throughput"))
    assert row["p99_s"].hi > 0.0102 * 1.2


def test_one_process_is_no_confirmation():
    found = recommend(cell(100, 10, factors=(1.0,)), wanted("throughput"))
    assert any("--confirm-runs 3" in r for r in found.reasons)
    several = [*cell(200, 10, factors=(1.0,)), *cell(100, 10, batch=4)]
    assert recommend(several, wanted("throughput"), least=3).pick.trial.batch == 4
    none = recommend(several, wanted("throughput"), least=4)
    assert (
        none.pick is None
        and none.nearest.trial.batch == 1
        and "over 1 process instead of the requested 4" in none.reasons[0]
    )


def test_infeasible_names_the_nearest_and_what_binds():
    found = recommend(grid(), wanted("throughput", ["p99<=8ms", "memory<=150MB"]))
    assert found.pick is None and found.nearest.label == "onnxruntime fp32 b1"
    assert found.reasons[0].startswith(
        "infeasible: no cell keeps every constraint. The nearest is m onnxruntime fp32 b1 (p99<=8ms: 1"
    )
    assert found.reasons[0].endswith("the binding constraint is p99<=8ms.")


def test_failed_and_wrong_cells_are_never_picked():
    bad = cell(900, 1, backend="openvino", extra={"status": Status.CRASHED, "reason": "E-X-1: signal 11."})
    found = recommend([*grid(), *bad], wanted("throughput"))
    assert found.pick.trial.backend == "onnxruntime"
    assert "crashed" in found.choices[-1].rejected and found.choices[-1] not in found.front
    only = recommend(bad, wanted("throughput"))
    assert only.pick is None and "signal 11" in only.reasons[0]


def test_what_was_not_measured_cannot_be_optimised():
    found = recommend(grid(), wanted("watts"))
    assert found.pick is None and "no power sensor" in found.reasons[0]


def test_watts_take_the_least():
    low, high = ({"power_w": Measured(w, "W")} for w in (4, 9))
    found = recommend([*cell(100, 10, fields=low), *cell(300, 10, fields=high, batch=4)], wanted("watts"))
    assert found.pick.trial.batch == 1 and found.best.cell == found.pick.cell
    found = recommend(
        [*cell(100, 10, fields=low), *cell(300, 10, fields=high, batch=4)],
        wanted("throughput", ["power<=5W"]),
    )
    assert found.pick.trial.batch == 1 and "67 % less throughput" in " ".join(found.reasons)


def test_machines_are_not_mixed():
    other = [dataclasses.replace(r, machine=Machine({"cpu": "else"}, {})) for r in cell(100, 10)]
    with pytest.raises(UsageError, match=f"E-MIX-1.*{MACHINE.id[:8]}"):
        recommend([*grid(), *other], wanted("throughput"))
    with pytest.raises(UsageError, match="E-PICK-2"):
        recommend([], wanted("throughput"))


def test_memory_is_the_hosts_and_gpu_memory_the_processes():
    gpu = {
        "gpu_processes_memory_bytes": Measured(5e9, "bytes"),
        "gpu_board_memory_bytes": Measured(6e9, "bytes"),
    }
    here = {"processes_pss_bytes": Measured(3e8, "bytes"), "processes_rss_bytes": Measured(4e8, "bytes")}
    (row,), _ = choices(cell(100, 10, device="cuda", fields=gpu | here), wanted("throughput"))
    assert row["peak_rss_bytes"].value == 3e8 and row["gpu_memory_bytes"].value == 5e9
    one = {"unified_memory_bytes": Measured(2e9, "bytes")}
    (row,), _ = choices(cell(100, 10, device="cuda", fields=one | here), wanted("throughput"))
    assert row["peak_rss_bytes"].value == 2e9
    (row,), _ = choices(cell(100, 10, processes=2, fields=here), wanted("throughput"))
    assert row["peak_rss_bytes"].value == 3e8


def test_longer_windows_speak_for_a_variant_measured_twice():
    short = cell(500, 10, min_s=0.4, max_s=0.4)
    (row,), _ = choices([*short, *cell(100, 10, min_s=2.0, max_s=2.0)], wanted("throughput"))
    assert row["throughput_sps"].value == pytest.approx(100, rel=0.01)


def test_a_long_run_that_crashed_hides_no_short_ones():
    died = cell(
        1,
        1,
        factors=(1,),
        min_s=60.0,
        max_s=60.0,
        extra={"status": Status.CRASHED, "reason": "E-X-1: signal 9."},
    )
    (row,), _ = choices([*cell(100, 10), *died], wanted("throughput"))
    assert not row.rejected and len(row.replicates) == 3
    wrong = cell(1, 1, factors=(1,), min_s=60.0, max_s=60.0, extra={"status": Status.WRONG_OUTPUT})
    (row,), _ = choices([*cell(100, 10), *wrong], wanted("throughput"))
    assert row.status is Status.WRONG_OUTPUT and row.rejected


def test_memory_is_judged_on_no_less_than_was_held():
    runs = [r for mb in (100, 100, 100, 100, 140) for r in cell(100, 10, mb, factors=(1,))]
    runs = [
        dataclasses.replace(r, trial=dataclasses.replace(r.trial, replicate=n)) for n, r in enumerate(runs)
    ]
    steady = [r for batch in (4, 8, 16, 32) for r in cell(100, 10, batch=batch)]
    row = next(c for c in choices([*runs, *steady], wanted("throughput"))[0] if c.trial.batch == 1)
    assert row["peak_rss_bytes"].hi >= row["peak_rss_bytes"].value == 140e6


def test_the_tail_of_a_crowd_counts_what_fell_due_in_its_window():
    rows = queries(4, 1_000_000)
    rows.columns["done_ns"][1] = 30_000_000  # due in the window, done long after it
    crew = (Worker(number=0, model="null", pid=1),)
    found = result(
        Trial(model="null", processes=1), queries=rows, window=Window(0, 1, 0, 2_500_000), workers=crew
    )
    assert latencies_s(found).max() == pytest.approx(0.029) and len(latencies_s(found)) == 3
    assert len(latencies_s(dataclasses.replace(found, workers=()))) == 1


def test_raw_rows_bound_the_tail_where_each_process_has_too_few(make):
    few = make.cell(1_000_000, replicates=3, n=200)
    (row,), _ = choices(few, wanted("throughput"))
    assert row["p99_s"].hi > row["p99_s"].value and not row.notes  # 600 rows together
    (row,), _ = choices(few[:1], wanted("throughput", ["p99<=1s"]))
    found = re.search(r"slowest of 200 queries \(effective n (\d+), confidence (\d+) %\)", row.notes[0])
    assert found and int(found[1]) < 200 and int(found[2]) < math.floor(100 * (1 - 0.99**200))


def test_only_the_load_that_is_asked_belongs():
    plain = load(Trial(model="m"))
    assert load(Trial(model="m", processes=2, in_flight=4, sharing="pinned")) == plain
    assert load(Trial(model="m", workload="null")) != plain
    assert load(Trial(model="m", colocated="n")) != plain
    assert load(Trial(model="m", scenario="offline")) != plain
    ten = Trial(model="m", scenario="server", rate=10.0)
    assert load(dataclasses.replace(ten, batch=4)) == load(ten)
    for other in (
        {"rate": 100.0},
        {"in_flight": 2},
        {"scenario": "burst", "scenario_options": {"burst_size": 8}},
    ):
        assert load(dataclasses.replace(ten, **other)) != load(ten)


def test_nondominated_keeps_equals_and_drops_the_beaten():
    points = [(1, 3), (3, 1), (2, 2), (2, 2), (3, 3), None]
    assert nondominated(points, lambda p: p) == [(1, 3), (3, 1), (2, 2), (2, 2)]


def test_four_ties_are_named_and_the_others_counted():
    def cell(n):
        return SimpleNamespace(label=f"c{n}", name=f"other c{n}", trial=Trial(model="m", backend="null"))

    (said,) = _beside(cell(0), [cell(n) for n in range(1, 8)], [])
    assert said == "statistically tied with c1, c2, c3, c4 and 3 more"
    (said,) = _beside(cell(0), [], [cell(1)])
    assert said == "undecided against c1: --confirm-runs 5"


def test_a_name_is_said_once():
    def cell(label, batch):
        return SimpleNamespace(label=label, name=label, trial=Trial(model="m", backend="null", batch=batch))

    (said,) = _beside(cell("a", 1), [cell("b", 1), cell("b", 2), cell("c", 1)], [])
    assert said == "statistically tied with b (2 cells), c"


@pytest.mark.parametrize(
    ("best_ms", "pick_ms", "price"),
    [
        (10, 10.45, "4.5 % more"),
        (10, 11.1, "11 % more"),
        (10, 22.3, "123 % more"),
        (100, 109.6, "9.6 % more"),
    ],
)
def test_the_price_of_the_constraints_has_two_digits_below_ten_per_cent(best_ms, pick_ms, price):
    large = cell(100, best_ms, 200)
    found = recommend([*large, *cell(100, pick_ms, 100, batch=4)], wanted("latency", ["memory<=150MB"]))
    assert found.pick.trial.batch == 4 and found.best.trial.batch == 1
    (told,) = [r for r in found.reasons if "which breaks" in r]
    assert told.startswith(price) and "onnxruntime fp32 b1, which breaks memory<=150MB: 200 MB" in told
    assert " m onnxruntime" not in told
    other = [dataclasses.replace(r, trial=dataclasses.replace(r.trial, model="n")) for r in large]
    found = recommend([*other, *cell(100, pick_ms, 100, batch=4)], wanted("latency", ["memory<=150MB"]))
    assert any(" n onnxruntime fp32 b1, which breaks" in r for r in found.reasons)


@pytest.mark.parametrize(("gap", "undecided"), [(1.049, 1), (1.053, 0)])
def test_one_process_each_is_worse_from_five_per_cent_on(gap, undecided):
    """exp(0.05) = 1.0513."""
    found = recommend(
        [*cell(100 * gap, 10, factors=(1,)), *cell(100, 10, factors=(1,), batch=4)], wanted("throughput")
    )
    assert (found.pick.trial.batch, len(found.undecided), len(found.ties)) == (1, undecided, 0)
    few = recommend(
        [*cell(100 * gap, 10, factors=(1,)), *cell(100, 10, batch=4)], wanted("throughput"), least=3
    )
    assert few.pick.trial.batch == 4 and few.best.trial.batch == 1 and few.reasons[-1] != found.reasons[-1]
    assert any("b1 measured better in 1 process and was not confirmed" in r for r in few.reasons)


def test_what_a_pick_was_measured_over_is_told():
    (one, three) = (recommend(cell(100, 10, factors=f), wanted("throughput")) for f in ((1.0,), FACTORS))
    assert "over 1 process" in one.reasons[0] and "interval" not in one.reasons[0]
    assert one.reasons[-1].startswith("one process is no confirmation")
    assert "over 3 processes, 95 % prediction interval for a new process [" in three.reasons[0]
    assert len(three.reasons) == 1 and "all that ran" in three.reasons[0]
    hot = cell(100, 10, extra={"verdict": Verdict(Trust.THROTTLED, ("84 C",))})
    (told,) = [r for r in recommend(hot, wanted("throughput")).reasons if "THROTTLED" in r]
    assert told == "measured while THROTTLED: 3 of 3 processes; 84 C"
    kept = recommend(cell(100, 10), wanted("throughput", ["memory<=150MB"]))
    assert "those that keep every constraint" in kept.reasons[0] and kept.axes == (
        "throughput_sps",
        "peak_rss_bytes",
    )


def test_a_window_too_short_for_a_tail_is_told_and_no_other():
    short = {
        "latency_p99_s": Absent("n/a: have 60, need 100"),
        "latency_p99_bound_s": Absent("n/a: have 60, need 459"),
    }
    found = recommend(cell(100, 10, fields=short), wanted("throughput", ["p99<=1ms"]))
    assert found.pick is None and len(found.reasons) == 2 and "too few queries" in found.reasons[1]
    assert len(recommend(cell(100, 10), wanted("throughput", ["p99<=1ms"])).reasons) == 1


def test_the_least_broken_is_the_nearest_and_of_two_as_near_the_better():
    near = [*cell(100, 20, 190), *cell(50, 30, 190, batch=4), *cell(70, 20, 190, batch=2)]
    found = recommend(near, wanted("throughput", ["memory<=100MB"]))
    assert found.nearest.trial.batch == 1 and "constraint is memory<=100MB." in found.reasons[0]
    found = recommend(near, wanted("throughput", ["p99<=19ms", "memory<=188MB"]))
    assert found.nearest.trial.batch == 1 and "constraint is p99<=19ms." in found.reasons[0]


def test_three_reasons_of_those_that_all_failed_are_told():
    failed = [
        r
        for n in range(5)
        for r in cell(
            1, 1, factors=(1,), batch=n + 1, extra={"status": Status.CRASHED, "reason": f"E-X-{n}: died."}
        )
    ]
    (told,) = recommend(failed, wanted("throughput")).reasons
    assert [f"E-X-{n}" in told for n in range(5)] == [True, True, True, False, False]
