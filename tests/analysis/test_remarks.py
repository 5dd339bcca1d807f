"""Sentences on sharing at equal cells: said where it is sure and large, silent otherwise."""

from dataclasses import replace

import pytest

from crowds import CPU, crowd, gpu_trials
from edgescope.analysis.cells import concurrency
from edgescope.analysis.cells.concurrency import cells, remarks, times
from edgescope.analysis.cells.replicates import above, of_fields, quotient
from edgescope.records import Absent, Measured

ONE = dict(models=("resnet50",), precisions=("fp16",), batches=(1,), processes=(1, 8))


def run(replicates=1, **changed):
    return [crowd(t) for t in gpu_trials(**(ONE | changed), replicates=replicates)]


def with_total(result, value, half=1.0):
    new = Measured(value, "samples/s", value - half, value + half, 100)
    return replace(result, metrics={**result.metrics, "throughput_sps": new})


def test_mps_against_time_slicing_is_said_with_its_interval():
    first = remarks(run(replicates=4))[0]
    assert first.subject == "mps" and first.ratio.value == pytest.approx(3.0) and first.ratio.n == 4
    assert str(first).startswith(
        "resnet50 fp16 batch 1, P = 8: MPS gives 3.00x [3.00, 3.00] the total throughput"
    )
    assert "(4 pairs of runs)" in str(first) and len(first.results) == 8


def test_one_run_each_says_where_its_interval_is_from():
    first = remarks(run())[0]
    assert first.ratio.n == 1 and first.ratio.lo < 3.0 < first.ratio.hi
    assert "1 run each, interval from within" in str(first)


def test_what_lies_within_the_noise_is_not_remarked_on():
    alone, shared, mps = run()
    assert (alone.trial.processes, shared.trial.sharing, mps.trial.sharing) == (1, "time_slicing", "mps")
    same = [with_total(shared, 1000.0), with_total(mps, 1030.0)]
    assert remarks(same) == ()  # sure, and within five per cent
    wide = [with_total(shared, 1000.0, 400.0), with_total(mps, 1200.0, 400.0)]
    assert remarks(wide) == ()


def test_a_loss_is_said_too_and_a_mean_where_there_are_several():
    found = run(processes=(2, 8), batches=(1, 4))
    slower = [
        with_total(r, 10.0, 0.1) if (r.trial.sharing, r.trial.batch) == ("mps", 4) else r for r in found
    ]
    said = [str(r) for r in remarks(slower)]
    assert any("at 4 equal cells: more in 2, less in 2" in s for s in said)
    assert said[2].startswith("resnet50 fp16 batch 4") and "MPS gives 0.00" in said[2]
    assert "the largest of 4, so leaning high)" in said[0] and "the least of 4, so leaning low)" in said[2]


def test_cells_of_other_engines_or_machines_are_not_equal():
    alone, shared, mps = run()
    other = replace(mps, trial=replace(mps.trial, options={}))
    assert [r.subject for r in remarks([alone, shared, other])] == ["processes"]
    elsewhere = replace(mps, machine=CPU)
    assert all(r.subject != "mps" for r in remarks([shared, elsewhere]))


def test_more_processes_that_give_nothing_are_said_so():
    alone, shared, _ = run()
    (only,) = remarks([alone, with_total(shared, 1620.0)])
    assert "more processes gave no more in total: at best 1.00x" in str(only)
    assert remarks([]) == () and remarks([alone]) == ()


def test_a_quotient_joins_intervals_on_logs_or_pairs():
    a, b = Measured(4.0, "s", 3.6, 4.4, 50), Measured(2.0, "s", 1.9, 2.1, 50)
    ratio = of_fields(a, b)
    assert ratio.value == 2.0 and ratio.lo < 2 * 0.9 / 1.0 < 2.2 < ratio.hi < 2.25
    assert of_fields(a, Measured(2.0, "s")).lo is None
    assert isinstance(of_fields(a, Absent("no")), Absent) and isinstance(
        of_fields(a, Measured(0.0, "s")), Absent
    )
    three = quotient(run(3)[6:], run(3)[3:6], "throughput_sps")
    assert three.n == 3 and three.lo == pytest.approx(3.0) and three.hi == pytest.approx(3.0)


def test_above_needs_an_interval_or_a_size():
    assert above(Measured(1.2, "1", 1.1, 1.3)) is True and above(Measured(0.8, "1", 0.7, 0.9)) is False
    assert above(Measured(1.2, "1", 0.9, 1.5)) is None and above(Absent("x")) is None
    assert above(Measured(2.0, "1")) is None  # no interval, nothing sure
    assert (
        above(Measured(1.03, "1", 1.02, 1.04)) is None
    )  # from within runs: other processes differ by as much
    assert above(Measured(1.03, "1", 1.02, 1.04, n=3)) is True
    assert above(Measured(1.04, "1"), exact=True) is None and above(Measured(1.06, "1"), exact=True) is True


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Measured(3.6, "1", 3.5, 3.7), "3.60x [3.50, 3.70]"),
        (Measured(3.6, "1", 3.3, 3.9), "3.6x [3.3, 3.9]"),
        (Measured(0.5, "1"), "0.50x"),
        (Measured(123.0, "1", 100.0, 140.0), "123x [100, 140]"),
    ],
)
def test_ratios_in_print(ratio, text):
    assert times(ratio) == text


@pytest.mark.parametrize(
    ("total", "half", "said"),
    [
        (1702.0, 5.0, "give 1.05x"),  # 1620 alone
        (1710.0, 5.0, "give 1.06x"),
        (1690.0, 5.0, "gave no more"),
        (1620.0, 100.0, "gave no more"),
        (1640.0, 155.0, ""),
        (1500.0, 5.0, "gave no more"),
    ],
)
def test_more_processes_gain_from_five_per_cent_on_and_nothing_where_ten_are_out_of_reach(total, half, said):
    alone, shared, _ = run()
    found = remarks([with_total(alone, 1620.0, 0.01), with_total(shared, total, half)])
    assert [r.subject for r in found] == ["processes"] * bool(said) and all(said in str(r) for r in found)
    assert all(len(r.results) == 2 and "of 2" not in str(r) for r in found)


@pytest.mark.parametrize(("hi", "said"), [(1.1, 1), (1.1001, 0)])
def test_nothing_gained_is_said_where_no_end_is_above_ten_per_cent(hi, said):
    alone, shared, _ = run()
    cells_of = cells([with_total(alone, 1000.0), with_total(shared, 1000.0)])
    ratio = Measured(1.0, "1", 0.9, hi)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrency, "quotient", lambda *_: ratio)
        assert len(concurrency._processes(cells_of)) == said
        patch.setattr(concurrency, "quotient", lambda *_: Measured(1.0, "1", 0.9, None))
        assert concurrency._processes(cells_of) == []


def ratios(monkeypatch, *of):
    """The remarks on MPS at batches 1, 2, 3 ... whose ratios are these."""
    made = [c for c in run(batches=tuple(range(1, len(of) + 1)), processes=(8,))]
    values = {n + 1: r for n, r in enumerate(of)}
    monkeypatch.setattr(
        concurrency,
        "quotient",
        lambda a, _, name: values[a[0].trial.batch] if name == "throughput_sps" else None,
    )
    return concurrency.of_cells(cells(made))


def sure(value, n=3):
    return Measured(value, "1", value * 0.999, value * 1.001, n)


def test_the_largest_gain_the_mean_and_the_largest_loss_in_this_order(monkeypatch):
    found = ratios(monkeypatch, sure(1.2), sure(1.5), sure(0.5), sure(0.8), sure(1.01))
    assert [round(r.ratio.value, 4) for r in found] == [
        1.5,
        round((1.2 * 1.5 * 0.5 * 0.8 * 1.01) ** 0.2, 4),
        0.5,
    ]
    assert str(found[1]).startswith(
        "MPS against time slicing at 5 equal cells: more in 2, less in 2;"
    ) and "0.50x to 1.50x" in str(found[1])
    assert "the largest of 5" in str(found[0]) and "the least of 5" in str(found[2])
    assert [len(r.results) for r in found] == [2, 10, 2]


@pytest.mark.parametrize(
    ("of", "subjects"),
    [
        ((sure(1.05),), 1),
        ((sure(1.049),), 0),
        ((sure(0.95),), 1),
        ((sure(0.951),), 0),
        ((Measured(2.0, "1"),), 0),
        ((Absent("x"),), 0),
        ((sure(1.5), Absent("x")), 1),
        ((sure(1.5), sure(1.0)), 2),
        ((sure(0.5), sure(1.0)), 2),
    ],
)
def test_what_is_sure_and_five_per_cent_is_said(monkeypatch, of, subjects):
    found = ratios(monkeypatch, *of)
    assert len(found) == subjects and {r.subject for r in found} <= {"mps"}
