"""Each cause in a world in which it is the truth, in one where it is not, and worlds that contradict themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.finding import (
    CAUSES,
    Bound,
    Confidence,
    Evidence,
    Finding,
    Remedy,
    between,
)
from edgescope.analysis.roofline import Ceilings
from edgescope.errors import Message
from edgescope.records import Absent, Measured, Spans, Status
from edgescope.wings.explain.case import cost_of_batch, differing, interventions
from edgescope.wings.explain.machine import all_run
from edgescope.wings.explain.verb import checked, diagnose, judged
from making import queries
from worlds import CORES, MACHINE, readings, world

ALONE = {"cores_used": 1.0, "run_wait_share": 0.01, "kernel_time_share": 0.02, "page_faults_per_s": 5.0}
LIMITS = Ceilings(
    MACHINE.id,
    "cpu",
    {"fp32": Measured(1e11, "FLOP/s"), "bf16": Measured(8e11, "FLOP/s")},
    [(1e9, 1e10)],
    1e-7,
    [],
    [],
)
GPU_LIMITS = replace(
    LIMITS,
    device="cuda",
    flops={
        "fp32": Measured(5e13, "FLOP/s"),
        "tf32": Measured(4e14, "FLOP/s"),
        "fp16": Measured(8e14, "FLOP/s"),
    },
    bandwidth=[(1e9, 3e12)],
    h2d=[(1e3, 1e-5), (1e8, 2e-3)],
    d2h=[(1e3, 1e-5), (1e8, 2e-3)],
)


def video(parts, **keys):
    return world(workload="video", parts=parts, rate=1 / sum(parts.values()), **{"of": ALONE, **keys})


STAGES = {"decode": 0.002, "preprocess": 0.001, "infer": 0.004, "postprocess": 0.001}
SLOW = {
    "decode": "decode-bound",
    "preprocess": "preprocessing-bound",
    "postprocess": "postprocessing-bound",
    "annotate": "stage-bound",
}


def first(result, others=(), limits=None):
    return diagnose(result, others, limits).findings[0]


@pytest.mark.parametrize(("name", "cause"), SLOW.items())
def test_the_stage_that_takes_the_time_is_the_cause(name, cause):
    found = first(video({**STAGES, name: 0.02}))
    assert found.cause == cause and found.confidence is Confidence.LIKELY
    whole = sum({**STAGES, name: 0.02}.values())
    assert found.share == pytest.approx(0.02 / whole)
    cheaper = next(r for r in found.remedies if not r.change)
    assert cheaper.bound is Bound.MOST and cheaper.gain.value == pytest.approx(whole / (whole - 0.02))


def test_stages_cost_what_they_did_in_the_window_on_a_gpu_what_they_do_one_by_one():
    made = video({**STAGES, "annotate": 0.02})
    made = replace(made, metrics={**made.metrics, "annotate_busy_s": Measured(0.008, "s")})
    assert first(made).share == pytest.approx(0.008 / 0.016)
    there = replace(made, trial=replace(made.trial, device="cuda"))
    assert first(there).share == pytest.approx(0.02 / 0.028)


def test_no_stage_is_the_cause_where_the_network_takes_the_time():
    found = diagnose(video({**STAGES, "infer": 0.1}))
    assert found.cause == "unknown" and "what_if=true" in " ".join(found.missing)


def test_a_stub_that_was_measured_confirms_the_stage():
    of = {**ALONE, "decode_free_gain": 3.0, "infer_free_gain": 1.1}
    found = first(video({**STAGES, "decode": 0.02}, of=of))
    assert found.confidence is Confidence.CONFIRMED and found.share == pytest.approx(1 - 1 / 3)


def test_another_way_of_a_stage_is_predicted_from_a_cell_that_has_it():
    slow = {**STAGES, "preprocess": 0.03}
    there = video({**STAGES, "preprocess": 0.004}, workload_options={"preprocess": "host"}, precision="bf16")
    found = first(video(slow), [there])
    remedy = found.remedies[0]
    assert remedy.change["workload_options"] == {"preprocess": "host"}
    assert remedy.gain.value == pytest.approx(sum(slow.values()) / (sum(slow.values()) - 0.026))


def overlapped(parts, rate, cores, late=1e-4, threads=1, **keys):
    of = {**ALONE, "cores_used": cores, "interpreter_wait_s": late}
    made = world(workload="video", parts=parts, rate=rate, in_flight=6, of=of, **keys)
    stages = [{"name": n, "place": "cpu", "threads": threads if n == "convert" else 1} for n in parts]
    return replace(made, artifact={"path": None, "stages": stages})


def test_in_an_overlapped_pipeline_the_slowest_stage_is_the_cause():
    found = first(overlapped({**STAGES, "decode": 0.02}, 49.0, 1.4))
    assert found.cause == "decode-bound" and found.share == pytest.approx(1 - 0.004 * 49, abs=0.01)


def test_without_the_slowest_stage_the_others_have_the_cores_that_they_waited_for():
    made = overlapped({**STAGES, "decode": 0.02, "infer": 0.008}, 49.0, 1.4)
    crowded = replace(
        with_cpu(made, decode=0.012, infer=0.004),
        metrics={
            **with_cpu(made, decode=0.012, infer=0.004).metrics,
            "run_wait_share": Measured(0.3, "share"),
        },
    )
    cheaper = next(r for r in first(crowded).remedies if not r.change)
    asleep = 1 - 0.5 / 0.7
    assert cheaper.bound is Bound.MOST
    assert cheaper.gain.value == pytest.approx(1 / 49 / (0.004 + 0.008 * asleep))
    alone = next(r for r in first(made).remedies if not r.change)
    assert alone.gain.value == pytest.approx(1 / 49 / 0.008)


def test_python_in_several_threads_is_the_interpreter():
    found = first(overlapped({**STAGES, "convert": 0.06}, 45.0, 1.05, late=0.005, threads=3))
    assert found.cause == "GIL-bound" and found.remedies[0].change == {"processes": CORES}
    assert found.remedies[0].gain.value == pytest.approx(CORES / 1.05)
    assert found.remedies[0].bound is Bound.MOST, "no more than all cores can be busy"


def test_a_thread_that_is_late_for_want_of_a_core_says_nothing_of_the_interpreter():
    made = overlapped({**STAGES, "convert": 0.06}, 45.0, 1.05, late=0.005, threads=3)
    crowded = replace(made, metrics={**made.metrics, "run_wait_share": Measured(0.6, "share")})
    assert diagnose(crowded).cause != "GIL-bound"


def test_threads_that_hold_no_interpreter_and_no_core_wait_at_a_lock():
    made = overlapped({**STAGES, "convert": 0.04}, 49.0, 1.6, late=1e-4, threads=2)
    found = first(with_cpu(made, convert=0.02))
    assert (
        found.cause == "lock-bound"
        and found.part == "convert"
        and found.confidence is not Confidence.CONFIRMED
    )
    assert found.remedies[0].gain.value == pytest.approx(2.0), "the threads of the stage at most"
    assert found.remedies[0].bound is Bound.MOST
    assert first(with_cpu(made, convert=0.04)).cause == "stage-bound", "threads that compute all the time"
    assert first(with_cpu(made, convert=0.004)).cause == "stage-bound", "they wait for something outside"


def test_a_lock_is_told_apart_from_a_want_of_cores_where_both_are():
    made = overlapped({**STAGES, "infer": 0.012, "convert": 0.04}, 49.0, 1.6, late=1e-4, threads=2)
    crowded = replace(made, metrics={**made.metrics, "run_wait_share": Measured(0.4, "share")})
    assert first(with_cpu(crowded, convert=0.015)).cause == "lock-bound", "on a CPU or ready for five eighths"
    assert first(with_cpu(crowded, convert=0.022)).cause == "stage-bound", "on a CPU or ready for nine tenths"


def with_cpu(made, **seconds):
    return replace(
        made, metrics={**made.metrics, **{f"{n}_cpu_s": Measured(s, "s") for n, s in seconds.items()}}
    )


def test_a_network_beside_python_threads_does_not_hide_the_interpreter():
    made = overlapped({**STAGES, "convert": 0.06}, 49.0, 1.7, late=0.005, threads=3)
    assert diagnose(made).cause != "GIL-bound", "more than a core is busy, and nothing says with what"
    assert first(with_cpu(made, convert=0.02)).cause == "GIL-bound"


def test_a_stage_that_sleeps_waits_however_small_its_share_of_a_unit_is():
    made = video({**STAGES, "log": 0.006}, of={**ALONE, "cores_used": 0.8})
    assert first(made).cause == "stage-bound"
    found = first(with_cpu(made, log=0.0005))
    assert found.cause == "fetch-stalled" and found.part == "log"
    assert found.evidence[0].text.startswith("for 92% of log's time")


def test_threads_that_keep_all_cores_busy_are_neither():
    found = first(overlapped({**STAGES, "convert": 0.04}, 49.0, 3.9, late=1e-4, threads=2))
    assert found.cause == "stage-bound"


def test_a_stage_that_is_off_the_cpu_waits_for_data():
    found = first(video({**STAGES, "load": 0.03}, of={**ALONE, "cores_used": 0.25, "disk_read_bps": 3e7}))
    assert found.cause == "fetch-stalled" and found.part == "load"
    assert any("30.0 MB/s came from disk" in e.text for e in found.evidence)
    assert any(r.change == {"in_flight": 6} for r in found.remedies)


def test_a_stage_that_was_ready_and_did_not_run_is_not_stalled():
    of = {**ALONE, "cores_used": 0.25, "run_wait_share": 0.74}
    assert first(video({**STAGES, "load": 0.03}, of=of)).cause == "stage-bound"


def test_a_stage_in_the_kernel_allocates():
    of = {**ALONE, "kernel_time_share": 0.6, "page_faults_per_s": 50_000.0}
    found = first(video({**STAGES, "buffer": 0.03}, of=of))
    assert found.cause == "allocation-bound"
    assert found.remedies[0].bound is Bound.MOST and found.remedies[0].gain.value == pytest.approx(1 / 0.4)
    assert (
        first(video({**STAGES, "buffer": 0.03}, of={**of, "page_faults_per_s": 10.0})).cause == "stage-bound"
    )


@pytest.mark.parametrize(("name", "cause"), [("fetch", "fetch-stalled"), ("optimizer", "optimizer-bound")])
def test_phases_of_a_training_step(name, cause):
    parts = {"fetch": 0.001, "forward": 0.01, "backward": 0.02, "optimizer": 0.002, name: 0.05}
    found = first(world(workload="training", parts=parts, rate=12, of=ALONE, batch=1))
    assert found.cause == cause


def test_a_larger_minibatch_pays_the_optimizer_less_often():
    parts = {"fetch": 0.0, "forward": 0.01, "backward": 0.01, "optimizer": 0.06}
    made = world(workload="training", parts=parts, rate=12, of=ALONE, params=20_000_000, macs=10_000_000)
    remedy = first(made).remedies[0]
    assert remedy.change == {"batch": 4} and remedy.bound is Bound.LEAST
    assert remedy.gain.value == pytest.approx(0.08 / (0.015 + 0.02)), "all but the optimizer grows"
    assert remedy.gain.hi == pytest.approx(4), "all but the optimizer stays as it is"
    known = first(made, (), LIMITS).remedies[0]
    assert known.bound is Bound.NONE, "reading weights does not grow, and 80 MB at 10 GB/s are most of it"
    assert known.gain.lo == pytest.approx(4 * 0.08 / (0.06 + 4 * 0.02 - 3 * 0.016)) and known.gain.hi == 4


def test_a_larger_minibatch_computes_no_faster_than_the_machine():
    parts = {"fetch": 0.0, "forward": 0.01, "backward": 0.01, "optimizer": 0.06}
    made = world(workload="training", parts=parts, rate=12, of=ALONE, macs=400_000_000)
    gain = first(made, (), LIMITS).remedies[0].gain
    assert gain.hi == pytest.approx(4 * 0.08 / (0.06 + 4 * 2 * 0.008))


# -- the machine ---------------------------------------------------------------------------------------------


def test_a_load_that_is_served_in_time_limits_itself():
    made = world(scenario="fixed_rate", of={**ALONE, "latency_p50_s": 0.004}, **{"rate": 10.0})
    made = replace(made, trial=replace(made.trial, rate=10.0))
    found = first(made)
    assert found.cause == "offered load" and found.remedies[0].gain.value == pytest.approx(25)
    assert found.remedies[0].bound is Bound.LEAST, "after a pause, a unit takes longer than one of many"
    cold = queries(40, latency_ns=5_000_000)
    warm = replace(made, queries=cold, window=replace(made.window, first=40, stop=50))
    cold.columns["done_ns"][20:] -= 2_500_000  # it settles at 2.5 ms
    remedy = first(warm).remedies[0]
    assert remedy.bound is Bound.NONE and remedy.gain.value == pytest.approx(40)
    several = replace(warm, trial=replace(warm.trial, in_flight=4))
    assert first(several).remedies[0].gain.value == pytest.approx(4 * 0.1 / 0.0025)
    behind = replace(made, warnings=(Message("W-LOAD-1", "a queue grows"),))
    assert diagnose(behind).cause == "unknown"


def test_a_quota_that_stops_it_is_the_cause():
    of = {**ALONE, "cores_used": 0.5, "quota_stopped_share": 0.9}
    found = first(world(mode="quota=0.5", of=of))
    assert found.cause == "quota" and found.remedies[0].change == {"mode": "as_is"}
    assert found.remedies[0].gain.value == pytest.approx(2)
    assert diagnose(world(mode="quota=2", of=ALONE)).cause != "quota"


def test_held_clocks_are_the_cause():
    made = world(threads=4, own=1.0, of=ALONE, flags={"throttled_cpu_thermal": 1.0})
    found = first(made)
    assert found.cause == "throttled" and found.guessed, "no clock was read, so nothing says how much it cost"
    assert "not known" in found.extent and isinstance(found.remedies[0].gain, Absent)


def test_neighbours_take_what_it_was_ready_to_use():
    of = {**ALONE, "run_wait_share": 0.5, "cores_used": 0.5}
    found = first(world(own=0.12, others=0.8, of=of))
    assert found.cause == "contention" and found.share == pytest.approx(0.5)
    assert (
        diagnose(world(own=0.12, others=0.8, of=ALONE)).cause != "contention"
    )  # they took what it did not want


def test_neighbours_cost_a_run_that_mostly_sleeps_little():
    of = {**ALONE, "run_wait_share": 0.9, "cores_used": 0.04}
    found = first(video({**STAGES, "load": 0.05}, own=0.02, others=0.9, of=of))
    assert found.cause == "fetch-stalled"


def test_neighbours_of_a_run_that_fills_the_machine_cost_it_their_share():
    of = {**ALONE, "run_wait_share": 0.7, "cores_used": 2.4}
    found = next(
        f for f in diagnose(world(own=0.6, others=0.4, threads=4, of=of)).findings if f.cause == "contention"
    )
    assert found.share == pytest.approx(0.4) and found.remedies[0].bound is Bound.MOST
    assert found.remedies[0].gain.value == pytest.approx(1 / all_run(4, 0.4))
    assert "4 threads share each operation: all of them run at least" in found.evidence[-1].text
    two = world(own=0.6, others=0.4, threads=2, of=of)
    found = next(f for f in diagnose(two).findings if f.cause == "contention")
    assert found.share == pytest.approx(1 - all_run(2, 0.4)) and found.remedies[0].bound is Bound.NONE


def test_all_threads_of_an_operation_run_together_only_where_no_neighbour_does():
    assert all_run(1, 0.3) == pytest.approx(0.7)
    assert all_run(2, 0.5) == pytest.approx(0.25), "two neighbours, each on its core half of the time"
    assert all_run(2, 1 / 3) == pytest.approx(1 / 3), (
        "one that is always on either of two cores for two thirds"
    )
    assert all_run(4, 0.2) == pytest.approx(0.2), "one that is always on one of four, for four fifths"


@given(st.integers(1, 16), st.floats(0, 0.95))
def test_threads_run_together_at_most_as_long_as_one_of_them_and_lose_no_more_than_all_they_wait(n, waits):
    together = all_run(n, waits)
    assert max(0.02, 1 - n * waits) - 1e-9 <= together <= max(0.02, 1 - waits) + 1e-9


def test_neighbours_of_a_pipeline_hold_up_one_stage_at_a_time():
    of = {**ALONE, "run_wait_share": 0.5, "cores_used": 2.0}
    made = video({**STAGES, "decode": 0.003}, own=0.5, others=0.5, threads=4, of=of)
    found = next(f for f in diagnose(made).findings if f.cause == "contention")
    assert found.share == pytest.approx(0.5) and found.remedies[0].bound is Bound.LEAST


def test_another_model_costs_the_cores_that_it_asks_for_at_least():
    beside = world(threads=4, colocated="net")
    (remedy,) = first(beside).remedies
    assert remedy.bound is Bound.LEAST and remedy.gain.value == pytest.approx(2)
    assert remedy.gain.hi == pytest.approx(1 / all_run(4, 0.5))
    measured = first(beside, [world(threads=4, rate=310)])
    assert measured.confidence is Confidence.CONFIRMED
    assert measured.remedies[0].gain.value == pytest.approx(3.1) and measured.remedies[0].bound is Bound.NONE


def test_a_gain_between_two_bounds_has_them_in_order():
    for ends in ((2.0, 2.2), (2.2, 2.0)):
        gain, bound = between(*ends)
        assert (gain.lo, gain.hi, bound) == (2.0, 2.2, Bound.NONE)


def test_too_many_threads_need_a_sweep_to_be_sure():
    crowded = world(
        threads=16, own=1.0, of={**ALONE, "cores_used": 4.0, "run_wait_share": 0.7}, options={"threads": 16}
    )
    fewer = world(rate=350, threads=4, options={"threads": 4})
    found = first(crowded, [fewer])
    assert found.cause == "oversubscription" and found.confidence is Confidence.CONFIRMED
    assert found.remedies[0].change == {"options": {"threads": 4}}
    assert found.remedies[0].gain.value == pytest.approx(3.5)
    same = world(rate=101, threads=4, options={"threads": 4})
    assert diagnose(crowded, [same]).cause != "oversubscription"


def test_fewer_threads_than_cores_promise_what_further_cores_add():
    of = {**ALONE, "cores_used": 4.0, "run_wait_share": 0.7}
    crowded = world(threads=16, own=1.0, of=of, options={"threads": 16})
    one = first(crowded, [world(rate=300, threads=1, options={"threads": 1})]).remedies[0]
    assert one.change == {"options": {"threads": 4}} and one.bound is Bound.NONE
    assert (one.gain.lo, one.gain.hi) == pytest.approx((3 * 2.8, 3 * 4))
    still = first(crowded, [world(rate=300, threads=8, options={"threads": 8})]).remedies[0]
    assert still.bound is Bound.LEAST and still.gain.value == pytest.approx(3)


def test_as_many_threads_as_cores_in_fewer_processes_tell_what_was_measured_and_promise_no_more():
    of = {**ALONE, "cores_used": 4.0, "run_wait_share": 0.7}
    crowded = world(threads=8, own=1.0, of=of, processes=2, options={"threads": 4})
    one = first(crowded, [world(rate=150, threads=4, options={"threads": 4})]).remedies[0]
    assert one.change == {"options": {"threads": 2}} and one.bound is Bound.NONE
    assert one.gain.value == pytest.approx(1.5) and "as many threads" in one.basis


def test_more_threads_than_cores_alone_cost_no_time_that_was_measured():
    crowded = world(threads=16, own=1.0, of={"cores_used": 4.0}, options={"threads": 16})
    found = diagnose(crowded)
    assert not [f for f in (*found.findings, *found.ruled_out) if f.cause == "oversubscription"]


def test_one_thread_leaves_cores_idle():
    one = world(threads=1, own=0.25, of=ALONE, options={"threads": 1})
    found = first(one)
    assert found.cause == "too few threads" and found.remedies[0].change == {"options": {"threads": CORES}}
    assert found.remedies[0].gain.lo < found.remedies[0].gain.value < found.remedies[0].gain.hi == CORES
    tried = world(rate=102, threads=4, options={"threads": 4})
    assert diagnose(one, [tried]).cause != "too few threads"


# -- the network ---------------------------------------------------------------------------------------------


def batches(fixed, each, *sizes, **keys):
    """Cells of one network whose unit takes fixed + each x batch seconds."""
    return [
        world(
            rate=b / (fixed + each * b),
            batch=b,
            own=1.0,
            threads=CORES,
            **{"of": {**ALONE, "cores_used": 4.0}, **keys},
        )
        for b in sizes
    ]


def test_a_cost_that_does_not_grow_with_the_batch_is_calls():
    one, *others = batches(0.010, 0.0001, 1, 8)
    found = first(one, others, LIMITS)
    assert found.cause == "launch-bound" and found.confidence is Confidence.CONFIRMED
    remedy = next(r for r in found.remedies if "batch" in r.change)
    batch = remedy.change["batch"]
    assert remedy.gain.value == pytest.approx(0.0101 / ((0.010 + 0.0001 * batch) / batch))


def test_the_same_cost_is_weights_where_reading_them_takes_it():
    one, *others = batches(0.010, 0.0001, 1, 8, params=20_000_000)
    found = first(one, others, LIMITS)
    assert found.cause == "memory-bound" and found.confidence is Confidence.CONFIRMED
    assert any(r.change == {"precision": "bf16"} for r in found.remedies)


def test_without_ceilings_calls_and_weights_cannot_be_told_apart():
    one, *others = batches(0.010, 0.0001, 1, 8, params=20_000_000)
    found = diagnose(one, others)
    assert all(f.confidence is Confidence.POSSIBLE for f in found.findings)
    assert "edgescope doctor --roofline cpu" in " ".join(found.missing)


def test_a_cost_that_grows_with_the_batch_and_reaches_the_peak_is_arithmetic():
    one, *others = batches(0.0001, 0.010, 1, 4, macs=400_000_000)
    found = first(one, others, LIMITS)
    assert found.cause == "compute-bound" and found.confidence is Confidence.CONFIRMED
    assert found.remedies[0].change == {"precision": "bf16"}
    assert found.remedies[0].gain.value == pytest.approx(1 / (1 - 0.8 / 1.01 * 7 / 8), rel=0.03)


def test_far_from_every_ceiling_the_cause_is_unknown():
    one, *others = batches(0.0001, 0.010, 1, 4, macs=4_000_000)
    found = diagnose(one, others, LIMITS)
    assert found.cause == "unknown" and found.reason


# -- a GPU ---------------------------------------------------------------------------------------------------


def gpu(rate=500.0, phases=(), sm=0.3, tensor=0.1, dram=0.1, **keys):
    flags = {"gpu0_sm_active": sm, "gpu0_tensor_active": tensor, "gpu0_dram_active": dram, "gpu0_busy": 0.9}
    flags = {name: value for name, value in flags.items() if value is not None}
    of = {**ALONE, **{f"{name}_s": s for name, s in dict(phases).items()}}
    made = world(rate=rate, device="cuda", threads=None, flags=flags, of=of, **keys)
    parts = [name for name in dict(phases) if name != "phased_latency"]

    return replace(made, spans=Spans.of("phase", [(n, 0, 0, 1000) for n in parts]))


EAGER = {"enqueue": 0.0018, "gpu_compute": 0.0019, "h2d": 5e-5, "d2h": 5e-5, "phased_latency": 0.002}


def test_a_host_that_launches_as_long_as_the_device_computes_is_launch_bound():
    found = first(gpu(phases=EAGER))
    assert found.cause == "launch-bound" and found.remedies[0].change["options"] == {"graph": True}
    assert isinstance(found.remedies[0].gain, Absent) and "at most 2.9 times" in found.remedies[0].gain.reason
    graph = gpu(rate=1500.0, phases=EAGER, options={"graph": True})
    confirmed = first(gpu(phases=EAGER), [graph])
    assert confirmed.confidence is Confidence.CONFIRMED and confirmed.remedies[0].gain.value == pytest.approx(
        3
    )
    refuted = gpu(rate=505.0, phases=EAGER, options={"graph": True})
    assert diagnose(gpu(phases=EAGER), [refuted]).cause != "launch-bound"


def test_copies_that_take_the_time_are_the_cause():
    phases = {"enqueue": 1e-4, "gpu_compute": 2e-4, "h2d": 0.006, "d2h": 1e-4, "phased_latency": 0.0064}
    found = first(gpu(rate=150.0, phases=phases))
    assert found.cause == "transfer-bound" and found.remedies[0].change == {"io": "pinned"}
    assert [r.change for r in found.remedies] == [{"io": "pinned"}], (
        "one direction alone is nearly the whole time"
    )
    even = first(
        gpu(rate=150.0, phases={**phases, "gpu_compute": 0.003, "h2d": 0.003, "phased_latency": 0.0062})
    )
    assert even.remedies[1].change == {"in_flight": 2}
    assert even.remedies[1].bound is Bound.MOST
    assert even.remedies[1].gain.value == pytest.approx(0.0062 / 0.0031, rel=0.1)
    pinned = gpu(rate=450.0, phases=phases, io="pinned")
    assert first(gpu(rate=150.0, phases=phases), [pinned]).confidence is Confidence.CONFIRMED


BUSY = {"enqueue": 1e-4, "gpu_compute": 0.0095, "h2d": 1e-4, "d2h": 1e-4, "phased_latency": 0.01}


def test_fp32_arithmetic_without_tensor_cores():
    slow = gpu(rate=100.0, phases=BUSY, sm=0.95, tensor=0.0, macs=150_000_000_000)
    found = first(slow, (), GPU_LIMITS)
    assert found.cause == "no tensor cores" and {r.change["precision"] for r in found.remedies} >= {
        "tf32",
        "fp16",
    }
    assert (
        first(gpu(rate=100.0, phases=BUSY, sm=0.95, tensor=0.6, macs=150_000_000_000), (), GPU_LIMITS).cause
        == "compute-bound"
    )


def test_arithmetic_is_found_by_its_time_and_the_ceiling_where_the_driver_has_no_counters():
    uncounted = {"rate": 100.0, "phases": BUSY, "sm": None, "tensor": None, "dram": None}
    found = first(gpu(**uncounted, macs=150_000_000_000), (), GPU_LIMITS)
    assert found.cause == "compute-bound" and "of a unit" in found.evidence[0].text
    assert diagnose(gpu(**uncounted, macs=1_000_000_000), [], GPU_LIMITS).cause != "compute-bound"


def test_memory_that_is_busy_all_the_time_is_the_cause():
    found = first(gpu(rate=100.0, phases=BUSY, sm=0.3, tensor=0.1, dram=0.9))
    assert found.cause == "memory-bound"


@pytest.mark.parametrize(("io", "cause"), [("device", "sync-bound"), ("host", "postprocessing-bound")])
def test_a_value_at_a_time_from_a_gpu_or_from_the_copy_on_the_host(io, cause):
    parts = {"decode": 0.001, "preprocess": 0.001, "infer": 0.004, "postprocess": 0.05}
    made = world(
        workload="video",
        parts=parts,
        rate=18,
        device="cuda",
        io=io,
        of=ALONE,
        workload_options={"postprocess": "elements"},
    )
    found = first(made)
    assert found.cause == cause and found.remedies[0].change["workload_options"] == {"postprocess": "host"}


def test_processes_that_take_turns_on_one_gpu():
    found = first(gpu(rate=100.0, phases=BUSY, processes=4), [gpu(rate=110.0, phases=BUSY)])
    assert found.cause == "contention" and found.confidence is Confidence.CONFIRMED
    assert found.share == pytest.approx(1 - 25 / 110) and found.extent == "77% of the time"
    assert (
        diagnose(gpu(rate=200.0, phases=BUSY, processes=4), [gpu(rate=110.0, phases=BUSY)]).cause
        != "contention"
    )


# -- judgement -----------------------------------------------------------------------------------------------


def finding(cause, share, sure=Confidence.LIKELY, *, depth=1, part="", against=0, of=2):
    evidence = tuple(Evidence("says so", "somewhere", i < against) for i in range(of))
    return Finding(cause, share, sure, evidence, (), part, depth)


def test_two_causes_that_cannot_both_be_right_are_unknown():
    found = judged(world(), [finding("launch-bound", 0.8), finding("transfer-bound", 0.7)])
    assert found.cause == "unknown" and "launch-bound" in found.reason and "transfer-bound" in found.reason
    decided = judged(
        world(), [finding("launch-bound", 0.8, Confidence.CONFIRMED), finding("transfer-bound", 0.7)]
    )
    assert decided.cause == "launch-bound"


def test_why_a_stage_is_slow_goes_before_which_stage_is():
    found = judged(
        world(),
        [finding("stage-bound", 0.8, depth=0, part="load"), finding("fetch-stalled", 0.7, part="load")],
    )
    assert found.cause == "fetch-stalled"
    small = judged(
        world(),
        [finding("stage-bound", 0.8, depth=0, part="load"), finding("fetch-stalled", 0.2, part="load")],
    )
    assert small.cause == "stage-bound"


def test_waste_goes_before_what_a_machine_naturally_is_bound_by():
    assert (
        judged(world(), [finding("compute-bound", 0.95), finding("too few threads", 0.4)]).cause
        == "too few threads"
    )
    assert (
        judged(world(), [finding("compute-bound", 0.95), finding("too few threads", 0.13)]).cause
        == "compute-bound"
    )


def test_why_a_part_wastes_time_goes_with_the_part_before_what_a_machine_naturally_is_bound_by():
    slow = finding("stage-bound", 0.3, depth=0, part="log")
    why = finding("fetch-stalled", 0.19, part="log")
    names = [f.cause for f in judged(world(), [finding("compute-bound", 0.6), slow, why]).findings]
    assert names == ["fetch-stalled", "stage-bound", "compute-bound"]


def test_what_evidence_speaks_against_is_ruled_out():
    found = judged(world(), [finding("GIL-bound", 0.6, against=2, of=3)])
    assert found.cause == "unknown" and found.ruled_out[0].cause == "GIL-bound"


def test_a_run_that_failed_has_no_cause():
    made = replace(world(), status=Status.OOM, reason=Message("E-MEM-1", "out of memory"))
    assert diagnose(made).cause == "unknown" and "out of memory" in diagnose(made).reason


shares = st.floats(0.0, 0.98)
some = st.builds(
    finding,
    st.sampled_from(sorted(CAUSES)),
    shares,
    st.sampled_from(list(Confidence)),
    depth=st.integers(0, 2),
    part=st.sampled_from(["", "decode", "load"]),
    against=st.integers(0, 2),
)


@given(st.lists(some, max_size=6))
@pytest.mark.slow
def test_a_judgement_invents_nothing_and_loses_nothing(found):
    said = judged(world(), found)
    assert sorted(map(id, (*said.findings, *said.ruled_out))) == sorted(map(id, found))
    assert bool(said.findings) != bool(said.reason)
    assert all(f.weight >= 0.12 for f in said.findings)


@given(
    rate=st.floats(1, 1e4),
    own=st.floats(0, 1),
    others=st.floats(0, 1),
    used=st.floats(0, CORES),
    waits=st.floats(0, 1),
    threads=st.integers(1, 16),
    batch=st.sampled_from([1, 8]),
    params=st.integers(0, 10**8),
)
@pytest.mark.slow
def test_no_world_breaks_it_and_every_share_is_a_share(
    rate, own, others, used, waits, threads, batch, params
):
    of = {**ALONE, "cores_used": used, "run_wait_share": waits}
    made = world(rate=rate, own=own, others=others, threads=threads, batch=batch, params=params, of=of)
    said = diagnose(made, [world(rate=rate * 2, batch=16)], LIMITS)
    for each in (*said.findings, *said.ruled_out):
        assert each.cause in CAUSES and 0 <= each.share <= 1
        for remedy in each.remedies:
            assert isinstance(remedy.gain, Absent) or remedy.gain.value > 0


# -- what the store tried ------------------------------------------------------------------------------------


def test_only_a_single_setting_is_an_experiment():
    base = world(rate=100)
    others = [
        world(rate=250, batch=4),
        world(rate=900, batch=4, precision="bf16"),  # two settings
        world(rate=300, replicate=1, batch=4),
        world(rate=104, replicate=1),  # the cell itself
        replace(world(rate=500, batch=8), status=Status.FAILED),
        replace(world(rate=500, batch=8), machine=replace(MACHINE, stable={"cpu": "another"})),
    ]
    (tried,) = interventions(base, [base, *others])
    assert (tried.setting, tried.before, tried.after) == ("batch", 1, 4)
    assert tried.ratio.value == pytest.approx((250 * 300) ** 0.5 / (100 * 104) ** 0.5) and tried.ratio.n == 2


def test_effort_and_judging_are_no_settings():
    a, b = world(min_s=1.0, max_s=1.0), world(min_s=5.0, max_s=9.0, seed=3, min_accuracy=0.9)
    assert not differing(a.trial, b.trial)
    assert set(differing(a.trial, world(options={"threads": 2}).trial)) == {"options.threads"}


@given(st.floats(1e-5, 1e-1), st.floats(1e-6, 1e-2))
@pytest.mark.slow
def test_the_cost_of_a_batch_is_found(fixed, each):
    one, four = (world(rate=b / (fixed + each * b), batch=b) for b in (1, 4))
    fit = cost_of_batch(one, interventions(one, [four]))
    assert fit.fixed_s == pytest.approx(fixed, rel=1e-3, abs=1e-9) and fit.each_s == pytest.approx(
        each, rel=1e-3
    )
    assert cost_of_batch(one, ()) is None


def test_a_prediction_is_held_against_pairs():
    remedy = Remedy("more", {"batch": 4}, Measured(2.0, "ratio"))
    pairs = [(world(rate=100 + i), world(rate=210 + i)) for i in range(3)]
    good = checked(remedy, pairs)
    assert (
        good.holds and good.realised.value == pytest.approx(2.09, abs=0.02) and "as predicted" in good.words
    )
    bad = checked(remedy, [(a, world(rate=120)) for a, _ in pairs])
    assert bad.holds is False and "not as predicted" in bad.words
    least, most = (replace(remedy, bound=bound) for bound in (Bound.LEAST, Bound.MOST))
    more, less = ([(a, world(rate=rate)) for a, _ in pairs] for rate in (400, 150))
    assert checked(least, more).holds and not checked(least, less).holds
    assert checked(most, less).holds and not checked(most, more).holds
    assert "as predicted (at least 2x)" in checked(least, more).words
    failed = checked(remedy, [(pairs[0][0], replace(world(), status=Status.OOM))])
    assert failed.holds is None and "oom" in failed.words


@given(st.floats(1, 50), st.floats(1, 3))
def test_a_range_is_a_prediction_only_where_its_middle_is_close_to_both_ends(low, wide):
    gain, bound = between(low, low * wide)
    assert gain.lo == low and gain.hi == low * wide
    if bound is Bound.NONE:
        assert abs(gain.value / gain.lo - 1) <= 0.2001 and abs(gain.value / gain.hi - 1) <= 0.2001
    else:
        assert bound is Bound.LEAST and gain.value == low and wide > 1.43


def test_readings_of_a_world_are_what_it_says():
    assert readings(0.5, 0.25).series("cpu_busy")[1][0] == 0.75
