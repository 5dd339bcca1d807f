"""The paper's claims in a world whose laws are known, and in worlds where one law is another."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from crowds import GPU, cpu_trials, crowd, dead, gpu_trials
from edgescope.analysis.run.usage import activity
from edgescope.records import Channel, Machine, Measured, Readings, Result, Status, Window
from edgescope.wings.studies.claim import Answer, Found, Voice, heard
from edgescope.wings.studies.paper import paper
from edgescope.wings.studies.sweep_table import megabytes, sweep_table, usable_cores

HOLDS, FAILS, UNSURE, UNKNOWN = Answer
GRID = gpu_trials()
SLICED = gpu_trials(precisions=("int8", "fp32"))


def answers(results) -> dict[str, Found]:
    return {c.claim.key: c.found for c in sweep_table(paper("concurrent_inference"), results).claims}


def world(trials, law: Callable[[Result], dict[str, float]] = lambda r: {}):
    """Results of these trials with some metrics as `law` gives them, known within one per cent."""
    out = []
    for r in map(crowd, trials):
        new = {k: Measured(v, r.metrics[k].unit, v * 0.99, v * 1.01, 100) for k, v in law(r).items()}
        out.append(replace(r, metrics={**r.metrics, **new}))
    return out


def only_shared(trials):
    return [t for t in trials if t.sharing == "time_slicing"]


@pytest.fixture(scope="module")
def known():
    return answers(world(GRID))


def test_answers_in_the_known_world(known):
    answers = {key: found.answer for key, found in known.items()}
    assert answers == {
        "cores": FAILS,
        "batch": FAILS,  # under MPS a larger batch gives less there
        "per_process": HOLDS,
        "memory_linear": HOLDS,
        "memory_rule": HOLDS,
        "memory_limit": UNKNOWN,
        "memory_precision": HOLDS,
        "best_precision": UNKNOWN,
        "energy_precision": HOLDS,
        "fallback": UNKNOWN,
        "power_plateau": FAILS,
        "fcn_power": FAILS,
        **dict.fromkeys(("activity", "sm_processes", "issue", "tensor_int8", "launch"), UNKNOWN),
    }
    assert "(one process 6 of 6, time slicing 18 of 18, MPS 0 of 18)" in known["batch"].found
    assert known["per_process"].cells == 126 and len(known["per_process"].evidence) == 36


@pytest.mark.slow
def test_cores_holds_where_latency_stays_to_half_and_grows_beyond():
    def stays(r):
        return {"latency_p50_s": 1e-3 * (1 if r.trial.processes <= 4 else 30)}

    found = answers(world(GRID, stays))["cores"]
    assert found.answer is HOLDS and found.found.startswith(
        "with 8 cores, cores/2 = 4: 36 of 36 series agree"
    )
    flat = answers(world(GRID, lambda r: {"latency_p50_s": 1e-3}))["cores"]
    assert flat.answer is FAILS  # no growth beyond half either
    early = answers(world(GRID, lambda r: {"latency_p50_s": 1e-3 * (r.trial.processes > 1) + 1e-3}))["cores"]
    assert early.answer is FAILS and "latency 2.00x [1.97, 2.03] at P = 2" in early.evidence[0]


def test_two_cores_test_only_the_growth_beyond():
    found = answers(world(cpu_trials()))["cores"]
    assert found.answer is HOLDS and "no P between 2 and that" in found.found


def test_cores_are_the_physical_ones_that_may_be_used():
    assert usable_cores(GPU) == 8 and usable_cores(None) is None
    fewer = Machine(GPU.stable, {"cpu": {"affinity": [0, 1]}})
    assert usable_cores(fewer) == 2 and usable_cores(Machine({}, {})) is None


@pytest.mark.slow
def test_batch_must_rise_and_less_than_in_proportion():
    shared = only_shared(GRID)
    assert answers(world(shared))["batch"].answer is HOLDS
    in_step = answers(world(shared, lambda r: {"throughput_sps": 100.0 * r.trial.batch**1.1}))["batch"]
    assert in_step.answer is FAILS
    falls = answers(world(shared, lambda r: {"throughput_sps": 100.0 / r.trial.batch}))["batch"]
    assert falls.answer is FAILS and "0 of 24 series agree" in falls.found


@pytest.mark.slow
def test_throughput_per_process_that_rises_is_against_the_claim():
    found = answers(world(GRID, lambda r: {"throughput_sps": 100.0 * r.trial.processes**1.2}))["per_process"]
    assert found.answer is FAILS and "0 of 36 series agree" in found.found


@pytest.mark.slow
def test_bent_memory_is_not_linear_and_another_slope_not_the_rule():
    name = "gpu_processes_memory_bytes"
    bent = answers(world(GRID, lambda r: {name: 1e8 * r.trial.processes**2}))["memory_linear"]
    assert bent.answer is FAILS and "36 do not" in bent.found
    twice = answers(world(GRID, lambda r: {name: 2 * r.metrics[name].value}))
    assert twice["memory_linear"].answer is HOLDS and twice["memory_rule"].answer is FAILS
    assert "2.00x" in twice["memory_rule"].found


def test_two_numbers_of_processes_say_nothing_of_a_line():
    found = answers(world(gpu_trials(processes=(1, 2))))["memory_linear"]
    assert found.answer is UNKNOWN and "two points lie on any line" in found.found


@pytest.mark.slow
def test_out_of_memory_is_the_limit():
    found = answers([*world(GRID), dead(replace(GRID[3], batch=64))])["memory_limit"]
    assert found.answer is HOLDS and found.cells == 1 and "batch 64" in found.evidence[0]


@pytest.mark.slow
def test_a_cell_that_was_not_tried_did_not_run_out_of_memory():
    pruned = dead(
        replace(GRID[3], batch=128), Status.SKIPPED, "I-PRUNE-1: not tried: batch 64 ran out of memory"
    )
    found = answers([*world(GRID), dead(replace(GRID[3], batch=64)), pruned])["memory_limit"]
    assert found.cells == 1 and found.found.startswith("1 cell ran")


@pytest.mark.slow
def test_int8_is_best_or_not_or_refused():
    assert answers(world(SLICED))["best_precision"].answer is HOLDS
    slow = answers(world(SLICED, lambda r: {"throughput_sps": 50.0} if r.trial.precision == "int8" else {}))
    assert slow["best_precision"].answer is FAILS and "fastest here: fp32" in slow["best_precision"].found
    no = [dead(t, Status.UNSUPPORTED, "E-TORCH-3: no int8.") for t in SLICED if t.precision == "int8"]
    found = answers([*world([t for t in GRID if t.precision != "int8"]), *no])
    assert found["best_precision"].answer is UNKNOWN
    assert "int8 gave no figure (unsupported: E-TORCH-3: no int8)" in found["best_precision"].found
    assert found["fallback"].answer is FAILS and found["fallback"].cells == len(no)


@pytest.mark.slow
def test_a_plateau_of_power_needs_throughput_that_still_changes():
    cap = answers(world(GRID, lambda r: {"power_w": 300.0}))["power_plateau"]
    assert cap.answer is HOLDS
    rising = answers(world(GRID, lambda r: {"power_w": r.metrics["throughput_sps"].value}))["power_plateau"]
    assert rising.answer is FAILS
    few = answers(world(gpu_trials(processes=(1,))))["power_plateau"]
    assert few.answer is UNKNOWN and "fewer than 4 cells" in few.found


@pytest.mark.slow
def test_fcn_draws_most_or_not_and_needs_another_model():
    most = answers(world(GRID, lambda r: {"power_w": 200.0 if r.trial.model.startswith("fcn") else 100.0}))
    assert most["fcn_power"].answer is HOLDS and "2.00x" in most["fcn_power"].found
    alone = answers(world(gpu_trials(models=("resnet50",))))["fcn_power"]
    assert alone.answer is UNKNOWN and "no FCN-ResNet50" in alone.found


def test_a_cpu_says_which_counter_is_missing():
    found = answers(world(cpu_trials()))
    assert found["power_plateau"].found == "power_w: no power sensor: unsupported: no powercap zones"
    assert found["activity"].found == "gpu_busy: measured on a CPU"
    assert all(found[k].answer is UNKNOWN for k in ("energy_precision", "fcn_power", "launch", "issue"))


def watched(result, busy, sm, tensor):
    """The result with three channels read twice within its window, once before it."""
    names = ("gpu0_busy", "gpu0_sm_active", "gpu0_tensor_active")
    channels = tuple(Channel(n, "share", "gpu_board", "interval", "NVML") for n in names)
    t = np.array([5, 15, 25] * 3, np.int64)
    value = np.concatenate([[9.0, v, v] for v in (busy, sm, tensor)])
    rows = Readings(channels, t, np.repeat(np.arange(3, dtype=np.int16), 3), value)
    return replace(result, readings=rows, window=Window(0, 1, 10, 30))


@pytest.mark.slow
def test_precisions_of_as_many_bits_say_nothing_of_energy():
    found = answers(world(gpu_trials(precisions=("fp16", "bf16"))))["energy_precision"]
    assert found.answer is UNKNOWN and found.found == "only one precision ran"
    assert answers(world(SLICED))["energy_precision"].answer is HOLDS
    same = world(SLICED, lambda r: {"energy_per_sample_j": 0.1})
    assert answers(same)["energy_precision"].answer is UNSURE


@pytest.mark.slow
def test_activity_is_the_mean_within_the_window():
    quiet = answers([watched(r, 1.0, 0.2, 0.1) for r in world(GRID)])
    assert quiet["activity"].answer is HOLDS and "in 126 of 126 cells" in quiet["activity"].found
    assert "medians: SMs 20 %, tensor cores 10 %" in quiet["activity"].found
    assert quiet["sm_processes"].answer is UNSURE  # flat: within the noise
    loud = answers([watched(r, 1.0, 0.1 * r.trial.processes, 0.5) for r in world(GRID)])
    assert loud["activity"].answer is FAILS and loud["sm_processes"].answer is HOLDS
    idle = answers([watched(r, 0.5, 0.2, 0.1) for r in world(GRID)])
    assert "never 90 % busy (at most 50 %)" in idle["activity"].found


def test_activity_is_that_of_the_run_s_own_gpu():
    r = watched(world(GRID[:1])[0], 1.0, 0.2, 0.1)
    names = ("gpu0_busy", "gpu0_decoder_busy", "gpu1_busy")
    channels = tuple(replace(c, name=n) for c, n in zip(r.readings.channels, names, strict=True))
    r = replace(r, readings=replace(r.readings, channels=channels))

    def busy(visible):
        state = {**r.machine.state, "environment": {"CUDA_VISIBLE_DEVICES": visible}}
        return activity([replace(r, machine=Machine(r.machine.stable, state))], "gpu_busy")

    assert busy("").value == 1.0 and busy("1,0").value == pytest.approx(0.1)
    assert "no channel gpu2_busy" in busy("2").reason and "which board" in busy("GPU-3af1").reason


def test_a_counter_that_the_gpu_has_not_is_named():
    r = watched(world(GRID[:1])[0], 1.0, 0.2, 0.1)
    channels = tuple(
        replace(c, status="unsupported", reason="NVML: no GPM metrics") if "sm" in c.name else c
        for c in r.readings.channels
    )
    found = answers([replace(r, readings=replace(r.readings, channels=channels))])
    assert found["activity"].found == "sm_active: gpu0_sm_active: NVML: no GPM metrics"


@pytest.mark.slow
def test_tensor_cores_in_int8():
    use = {"int8": 0.1, "fp16": 0.3, "fp32": 0.0}
    trials = gpu_trials(precisions=("int8", "fp16"))
    found = answers([watched(r, 1.0, 0.5, use[r.trial.precision]) for r in world(trials)])["tensor_int8"]
    assert found.answer is HOLDS and "int8 10 %, fp16 30 %" in found.evidence[0]
    more = answers([watched(r, 1.0, 0.5, 0.4 - use[r.trial.precision]) for r in world(trials)])["tensor_int8"]
    assert more.answer is FAILS


def test_a_claim_holds_only_where_most_series_say_so():
    def answer(*sides: bool | None) -> Answer:
        return heard([Voice(side, "", ()) for side in sides], "series", "none").answer

    assert answer(True, True, None) is HOLDS and answer(True, None) is UNSURE and answer(None) is UNSURE
    assert answer(*[True] * 9, False) is FAILS and answer() is UNKNOWN


def test_memory_that_is_rounded_to_nothing_has_no_sign():
    assert megabytes(Measured(-2e4, "bytes", -3e4, 2e6)) == "0.0 MB [0.0, 2.0]"
