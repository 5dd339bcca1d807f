"""Stored results to the sweep's table: cells, replicates, machines, setups, memory's line, warm against fresh."""

from dataclasses import replace
from functools import partial

import pytest

from crowds import CPU, GPU, cpu_trials, crowd, dead, gpu_trials
from edgescope.analysis.cells.concurrency import cells
from edgescope.errors import UsageError
from edgescope.records import Absent, Measured, Status, Trust, Verdict
from edgescope.wings.studies.paper import paper
from edgescope.wings.studies.sweep_table import sweep_table

PAPER = paper("concurrent_inference")
SMALL = dict(models=("resnet50",), precisions=("fp16",), batches=(1,))


concurrent = partial(sweep_table, PAPER)


def results(trials):
    return [crowd(t) for t in trials]


def reused(result):
    return replace(result, process="reused", id=result.id + "w")


def scaled_total(result, factor):
    field = result.metrics["throughput_sps"]
    new = replace(field, value=field.value * factor, lo=field.lo * factor, hi=field.hi * factor)
    return replace(result, metrics={**result.metrics, "throughput_sps": new})


@pytest.mark.slow
def test_the_grid_of_the_issue_is_126_cells_in_order():
    found = concurrent(reversed(results(gpu_trials())))
    assert len(found.cells) == len(found.measured) == 126 and found.failed == ()
    assert found.setup == "torch_eager cuda graph=true" and found.machine == GPU
    first = [(c.trial.processes, c.trial.sharing) for c in found.cells[:7]]
    assert first == [
        (1, "time_slicing"),
        (2, "time_slicing"),
        (4, "time_slicing"),
        (8, "time_slicing"),
        (2, "mps"),
        (4, "mps"),
        (8, "mps"),
    ]
    assert found.cells[1].place == "fcn_resnet50 fp32 batch 1, P = 2, time slicing"
    assert found.memory == "gpu_processes_memory_bytes" and found.scope == "gpu_board"


def test_throughput_per_process_is_the_total_over_p_with_its_interval():
    cell = next(c for c in concurrent(results(gpu_trials(**SMALL))).cells if c.trial.processes == 8)
    total, each = cell.total, cell["throughput_per_process_sps"]
    assert each.value == total.value / 8 and each.lo == total.lo / 8 and each.hi == total.hi / 8


def test_intervals_say_where_they_come_from():
    by = {n: concurrent(results(gpu_trials(**SMALL, replicates=n))).cells[0] for n in (1, 2, 3)}
    assert by[1].interval == "within one run" and by[1].total.lo is not None
    assert by[2].interval == "2 fresh processes: no interval" and by[2].total.lo is None
    assert by[3].interval == "3 fresh processes" and by[3].total.lo < by[3].total.value < by[3].total.hi


def test_fresh_processes_count_and_warm_ones_are_held_against_them():
    trials = gpu_trials(**SMALL, processes=(8,), replicates=4)
    fresh = [crowd(t) for t in trials if t.replicate]
    warm = [scaled_total(reused(crowd(t)), 1.1) for t in trials if not t.replicate]
    found = concurrent(fresh + warm)
    assert {c.interval for c in found.cells} == {"3 fresh processes"}
    assert [(w.warm, w.fresh) for w in found.warm] == [(1, 3), (1, 3)]
    assert found.warm[0].ratio.value == pytest.approx(1.1 / 1.004, rel=1e-3)
    alone = concurrent(warm)
    assert alone.cells[0].interval == "within one run of warm workers" and alone.warm == ()


def test_one_warm_run_and_two_fresh_ones_are_three_of_which_both_can_be_told():
    trials = gpu_trials(**SMALL, processes=(8,), replicates=3)
    found = concurrent(crowd(t) if t.replicate else reused(crowd(t)) for t in trials)
    assert {c.interval for c in found.cells} == {"3 runs, 2 of fresh processes and 1 of warm workers"}
    assert found.cells[0].total.lo is not None and found.remarks[0].ratio.n == 3
    assert [(w.warm, w.fresh) for w in found.warm] == [(1, 2), (1, 2)]


def test_of_one_trial_run_twice_the_last_counts():
    (trial,) = gpu_trials(**SMALL, processes=(1,))
    later = replace(scaled_total(crowd(trial), 2.0), id="later", started_at="2026-12-01T00:00:00.000+00:00")
    (cell,) = concurrent([later, crowd(trial)]).cells
    assert [r.id for r in cell.runs] == ["later"]


def test_a_cell_that_did_not_finish_stays_with_its_reason():
    trials = gpu_trials(**SMALL)
    found = concurrent([*results(trials[:5]), *map(dead, trials[5:])])
    assert [c.status for c in found.failed] == [Status.OOM] * 2 and not found.failed[0].ok
    assert found.failed[0].rejected.startswith("E-OOM-1") and found.failed[0].value("throughput_sps") is None


def test_a_replicate_that_was_lost_is_remembered():
    first, second = gpu_trials(**SMALL, processes=(1,), replicates=2)
    (cell,) = concurrent([crowd(first), dead(second, Status.CRASHED, "E-X-1: signal 11.")]).cells
    assert cell.ok and cell.interval == "within one run" and [r.status for r in cell.lost] == [Status.CRASHED]


def test_the_worst_verdict_of_the_runs_is_the_cells():
    runs = results(gpu_trials(**SMALL, processes=(1,), replicates=2))
    runs[1] = replace(runs[1], verdict=Verdict(Trust.THROTTLED, ("clock",)))
    assert concurrent(runs).cells[0].verdict.trust is Trust.THROTTLED


def test_one_process_of_a_plain_trial_has_the_peak_memory_of_its_own():
    found = concurrent(results(cpu_trials()))
    alone, two = found.cells[0], found.cells[1]
    assert (alone.trial.multi_process, two.trial.multi_process) == (False, True)
    assert alone["processes_rss_bytes"] == Measured(461.2e6, "bytes")
    assert alone["fairness"] == Absent("a single process does not share the device")
    assert found.memory == "processes_rss_bytes"  # the proportional share is not known of a plain trial


def test_two_machines_are_refused():
    both = results([*gpu_trials(**SMALL), *cpu_trials()])
    with pytest.raises(UsageError, match="2 machines"):
        concurrent(both)
    assert concurrent([r for r in both if r.machine == CPU]).machine == CPU


def test_of_several_setups_the_fullest_is_shown_and_others_named():
    few = [replace(t, options={}) for t in gpu_trials(**SMALL, processes=(1,))]
    every = results([*gpu_trials(**SMALL), *few])
    found = concurrent(every)
    assert found.setup == "torch_eager cuda graph=true" and found.others == (("torch_eager cuda", 1),)
    assert (
        len(concurrent(every, of_setup="torch_eager cuda").cells) == 1
    )  # the exact name comes before a part of one
    with pytest.raises(UsageError, match="E-PAPER-2"):
        concurrent(every, of_setup="tensorrt")


def test_other_loads_are_left_out_and_counted():
    trial = gpu_trials(**SMALL)[0]
    others = [replace(trial, scenario="fixed_rate", rate=10.0), replace(trial, colocated="fcn_resnet50")]
    found = concurrent([crowd(trial), *map(crowd, others)])
    assert (len(found.cells), found.left_out) == (1, 2)


def test_nothing_stored_is_an_empty_table():
    found = concurrent([])
    assert (found.cells, found.setup, found.machine, found.remarks) == ((), "", None, ())
    assert {c.found.answer.value for c in found.claims} == {"not measurable here"}
    assert cells([]) == []


def test_the_line_of_memory_is_the_known_law():
    found = concurrent(results(gpu_trials(**SMALL)))
    line = found.lines[0]
    assert line.series.words == "resnet50 fp16 batch 1, time slicing" and line.points == 4
    assert line.slope.value == pytest.approx(221.2e6) and line.start.value == pytest.approx(100e6)
    assert line.linear is True and line.against.value == pytest.approx(1.0)
    two = concurrent(results(gpu_trials(**SMALL, processes=(1, 2)))).lines[0]
    assert (
        two.linear is None and two.slope.lo is None and two.residual == Absent("two points lie on any line")
    )


def test_one_process_begins_the_line_of_every_sharing():
    mps = concurrent(results(gpu_trials(**SMALL))).lines[1]
    assert [c.trial.processes for c in mps.series.cells] == [1, 2, 4, 8]
    assert mps.series.words == "resnet50 fp16 batch 1, MPS"


def test_every_figure_of_the_paper_says_where_it_is_known_from():
    page = paper("concurrent_inference")
    assert {n.known for n in page.numbers} == {"confirmed", "secondary"}
    assert [n.value for n in page.numbers if n.board == "A40"] == [1000.0]
    named = {n.text: n.source for n in page.numbers}
    assert named["about 320 images/s"] == "secondary notes that quote the paper"
    assert len({r.key for r in page.claims}) == len(page.claims) == 17
    assert page.is_of(page.numbers[3], "yolov8n_class")
    assert not page.is_of(page.numbers[0], "fcn_resnet50") and not page.is_of(page.numbers[-1], "resnet50")
