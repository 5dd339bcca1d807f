"""How busy a machine was, from channels whose every reading was chosen."""

import re
from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.run.usage import activity, first, gpu_number, mean, of_gpu, usage
from edgescope.records import Absent, Channel, Machine, Measured, Readings, Trial, Window
from making import result

SECOND = 1_000_000_000
WINDOW = Window(0, 1, 10 * SECOND, 20 * SECOND)


def channels(*given):
    """Readings of (name, kind, seconds, values)."""
    names = tuple(Channel(n, "1", "system", k, "t", reason="gone" if not v else "") for n, k, _, v in given)
    t = np.concatenate([np.asarray(s, float) for _, _, s, _ in given] or [[]])
    number = np.concatenate([np.full(len(v), i) for i, (_, _, _, v) in enumerate(given)] or [[]])
    value = np.concatenate([np.asarray(v, float) for *_, v in given] or [[]])
    order = np.argsort(t, kind="stable")
    at = np.round(t * SECOND).astype(np.int64)[order]
    return Readings(names, at, number.astype(np.int16)[order], value[order])


def test_a_gauge_is_averaged_over_the_readings_from_the_first_to_the_last_moment():
    seen = channels(("x", "gauge", [9.99, 10, 15, 20, 20.01], [99, 1, 2, 6, 99]))
    assert mean(seen, WINDOW, "x") == Measured(3.0, "1", n=3)


def test_an_interval_is_weighted_by_the_time_of_it_that_lies_inside():
    """Readings at 8, 12, 18 and 24 s: 2 s of 4, 6 s of 6, 2 s of 6 lie in the window."""
    seen = channels(("x", "interval", [8, 12, 18, 24, 30], [99, 1, 2, 6, 99]))
    found = mean(seen, WINDOW, "x")
    assert (found.value, found.n) == (pytest.approx((2 * 1 + 6 * 2 + 2 * 6) / 10), 3)
    least = channels(("x", "interval", [5, 10 + 1e-9, 30], [99, 7, 99]))
    assert mean(least, WINDOW, "x").n == 2, "a nanosecond counts"
    edge = channels(("x", "interval", [10, 20, 30], [99, 4, 99]))
    assert mean(edge, WINDOW, "x") == Measured(4.0, "1", n=1)


def test_what_was_not_read_is_absent_with_its_reason():
    assert mean(channels(), WINDOW, "x") == Absent("no channel x here")
    assert mean(channels(("x", "gauge", [], [])), WINDOW, "x") == Absent("gone")
    outside = channels(("x", "gauge", [1, 30], [5, 5]))
    assert mean(outside, WINDOW, "x") == Absent("no reading of x fell into the window")
    lone = channels(("x", "interval", [15], [5]))
    assert mean(lone, WINDOW, "x") == Measured(5.0, "1", n=1)


def a_run(*given, online=(0, 1, 2, 3), allowed=(0, 1), limit=None, device="cpu", environment=None, **metrics):
    facts = {"online_cpus": list(online), "affinity": list(allowed), "cgroup_cpu_limit": limit}
    state = {"cpu": facts, "environment": environment or {}}
    trial = Trial(model="null", backend="null", device=device)
    readings = channels(*[(name, "gauge", [15.0], [v] if v is not None else []) for name, v in given])
    return result(trial, machine=Machine({}, state), window=WINDOW, readings=readings, metrics=metrics)


def test_the_share_of_all_cores_becomes_the_share_of_those_that_are_allowed():
    found = usage(a_run(("cpu_busy", 0.5), ("cpu_others", 0.1)))
    assert found.cpu.value == pytest.approx(0.4 * 4 / 2) and found.cores == 2.0
    assert found.cpu_others.value == pytest.approx(0.1 * 4 / 2)
    quota = usage(a_run(("cpu_busy", 0.3), ("cpu_others", 0.1), limit=0.5))
    assert quota.cpu.value == pytest.approx(0.2 * 4 / 0.5) and quota.cores == 0.5
    roomy = usage(a_run(("cpu_busy", 0.3), ("cpu_others", 0.1), limit=8))
    assert roomy.cores == 2.0
    negative = usage(a_run(("cpu_busy", 0.1), ("cpu_others", 0.3)))
    assert negative.cpu.value == 0.0
    full = usage(a_run(("cpu_busy", 1.0), ("cpu_others", 0.9)))
    assert full.cpu_others.value == 1.0
    below = usage(a_run(("cpu_busy", 0.1), ("cpu_others", -0.1)))
    assert below.cpu_others.value == 0.0


def test_without_the_cores_or_the_channels_there_is_no_share():
    assert usage(a_run(("cpu_busy", 0.5))).cpu_others == Absent("no channel cpu_others here")
    assert usage(a_run(("cpu_busy", 0.5))).cores == 0.0
    run = a_run(("cpu_busy", 0.5), ("cpu_others", 0.1))
    for facts in ({}, {"online_cpus": [0]}, {"affinity": [0]}, "?"):
        found = usage(replace(run, machine=Machine({}, {"cpu": facts})))
        assert "which cores" in found.cpu.reason and found.cpu_others.value == 0.1 and found.cores == 0.0
    bare = usage(replace(run, readings=None))
    assert bare.cpu == bare.power == Absent("no sensor was read during this run") and bare.holds == ()
    assert usage(replace(run, window=None)).cpu == bare.cpu


def test_power_memory_and_decoder_are_told_beside():
    run = a_run(("cpu_busy", 0.5), ("cpu_others", 0.1), ("nvdec_busy", 0.7), power_w=Measured(5.0, "W", n=9))
    found = usage(run)
    assert found.power.value == 5.0 and found.decoder.value == 0.7
    assert found.memory_free == Absent("no reading of mem_available_bytes fell into the window")
    seen = channels(("mem_available_bytes", "gauge", [9, 10, 15, 20, 21], [1, 7, 5, 6, 2]))
    assert usage(replace(run, readings=seen)).memory_free == Measured(5.0, "bytes", n=3)
    assert usage(a_run(("x", 1.0))).decoder == Absent("no decoder in this path")
    second = usage(a_run(("gpu1_decoder_busy", 0.9), environment={"CUDA_VISIBLE_DEVICES": "1"}))
    assert second.decoder.value == 0.9
    for visible in ({}, {"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "GPU-abc"}):
        own = usage(a_run(("gpu1_decoder_busy", 0.9), ("gpu0_decoder_busy", 0.2), environment=visible))
        assert own.decoder.value == 0.2
    jetson = usage(a_run(("nvdec0_clock_hz", 7e8)))
    assert jetson.decoder == Absent("NVDEC was on 100% of the time, its load is not published")
    assert usage(a_run(("x", 1.0))).power == Absent("no power was measured")


def test_only_guards_that_held_the_clocks_are_told():
    found = usage(a_run(("throttled_gpu0_thermal", 1.0), ("throttled_cpu_thermal", 0.0)))
    assert [h.channel for h in found.holds] == ["throttled_gpu0_thermal"]


@pytest.mark.parametrize(
    ("visible", "number"),
    [(None, 0), ("", 0), ("0", 0), ("3", 3), (" 2 , 1", 2), ("GPU-abc", None), ("-1", None)],
)
def test_the_gpu_that_cuda_calls_0_has_nvmls_number(visible, number):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_number({"environment": environment}) == number
    assert gpu_number({}) == 0


def test_a_gpu_channel_is_that_of_the_runs_own_gpu():
    cuda = {"device": "cuda"}
    both = (("gpu0_busy", 0.3), ("gpu2_busy", 0.8), ("gpu_busy", 0.6))
    assert of_gpu(a_run(*both, **cuda), "busy").value == 0.3
    second = a_run(*both, **cuda, environment={"CUDA_VISIBLE_DEVICES": "2"})
    assert of_gpu(second, "busy").value == 0.8
    jetson = a_run(("gpu_busy", 0.6), ("gpu_sm_active", 0.5), **cuda)
    assert of_gpu(jetson, "busy").value == 0.6 and of_gpu(jetson, "sm_active").value == 0.5
    assert of_gpu(a_run(*both), "busy") == Absent("this run used no GPU")
    hidden = a_run(*both, **cuda, environment={"CUDA_VISIBLE_DEVICES": "GPU-abc"})
    assert "which board is this run's is not known" in of_gpu(hidden, "busy").reason
    assert of_gpu(replace(jetson, readings=None), "busy") == Absent("no sensor was read during this run")
    assert of_gpu(replace(jetson, window=None), "busy") == Absent("no sensor was read during this run")
    assert of_gpu(a_run(("gpu0_busy", 0.3), **cuda), "sm_active") == Absent("no channel gpu0_sm_active here")


def test_a_channel_that_the_gpu_refuses_is_absent_with_its_reason():
    run = a_run(("gpu0_busy", 0.3), device="cuda")
    refused = Channel("gpu0_sm_active", "1", "gpu", "gauge", "t", status="unsupported", reason="needs GPM")
    mute = Channel("gpu0_tensor_active", "1", "gpu", "gauge", "t", status="failed", reason="")
    told = replace(run.readings, channels=(*run.readings.channels, refused, mute))
    assert of_gpu(replace(run, readings=told), "sm_active") == Absent("gpu0_sm_active: needs GPM")
    assert re.fullmatch(
        r"gpu0_tensor_active: .* read", of_gpu(replace(run, readings=told), "tensor_active").reason
    )


def test_the_activity_of_several_runs_is_the_mean_of_those_that_have_it():
    one, two = (a_run(("gpu0_busy", v), device="cuda") for v in (0.4, 0.8))
    assert activity([one, two], "gpu_busy").value == pytest.approx(0.6)
    cpu, bare = a_run(("gpu0_busy", 0.4)), replace(one, readings=None)
    assert activity([cpu, one], "gpu_busy").value == 0.4
    assert activity([cpu, bare], "gpu_busy") == Absent("measured on a CPU")
    assert activity([bare, cpu], "gpu_busy") == Absent("no raw readings in the store")
    assert activity([replace(one, window=None)], "gpu_busy") == Absent("no raw readings in the store")
    assert activity([], "gpu_busy") == Absent("no run finished")
    assert activity([one], "sm_active") == Absent("no channel gpu0_sm_active here")


def test_the_first_figure_that_was_measured_is_taken():
    run = a_run(a=Absent("no a"), b=Measured(2.0, "bytes"), c=Measured(3.0, "bytes"))
    assert first(run, ("a", "b", "c")).value == 2.0 and first(run, ("c", "b")).value == 3.0
    assert first(run, ("x", "a")) == Absent("no a") and first(run, ("x",)) == Absent(
        "nothing measures it here"
    )
