"""Sentences on sharing at equal cells: said where it is sure and large, silent otherwise."""

from dataclasses import replace

import pytest

from crowds import CPU, crowd, gpu_trials
from edgescope.analysis.cells.replicates import above, of_fields, quotient
from edgescope.analysis.cells.sharing_gain import remarks, times
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
