"""The limits of every cause, on both sides, and the figures of each finding and remedy by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgescope.analysis.finding import (
    Bound,
    Confidence,
    Diagnosis,
    Evidence,
    Finding,
    Remedy,
    _says_why,
    between,
)
from edgescope.analysis.kernels import account as traced
from edgescope.analysis.kernels.gpu_time import GpuTime, Named
from edgescope.analysis.roofline import Ceilings
from edgescope.records import Absent, Machine, Measured, Result, Spans, Status, Window
from edgescope.registry import place
from edgescope.wings.explain import gpu, machine, network, stages, threads
from edgescope.wings.explain.case import (
    FLOW,
    PHASES,
    STAGES,
    Case,
    CostOfBatch,
    Intervention,
    Part,
    cost_of_batch,
    interventions,
    unit_seconds,
)
from edgescope.wings.explain.threads import slowest
from edgescope.wings.explain.verb import FASTER, Check, checked, diagnose, judged
from worlds import MACHINE, S, world

CONFIRMED, LIKELY, POSSIBLE = Confidence.CONFIRMED, Confidence.LIKELY, Confidence.POSSIBLE


def ceilings(device: str, **flops: float) -> Ceilings:
    rates = {name: Measured(rate, "FLOP/s") for name, rate in flops.items()}
    copies = [(1e3, 1e-5), (1e8, 2e-3)] if device == "cuda" else []
    return Ceilings(MACHINE.id, device, rates, [(1e9, 1e10)], 0.0, copies, copies)


def looked(
    of: ModuleType, made: Result, others: Sequence[Result] = (), limits: Ceilings | None = None
) -> dict[str, Finding]:
    return {f.cause: f for f in of.found(Case(made, others, limits))}


def against(finding: Finding) -> list[bool]:
    return [e.against for e in finding.evidence]


# -- a GPU -------------------------------------------------------------------------------------------------------------


def on_gpu(
    enqueue: float = 0.1, compute: float = 8.0, h2d: float = 0.1, d2h: float = 0.1, whole: float = 10.0,
    active: dict[str, float] | None = None, rate: float | None = None, **keys: Any,
) -> Result:  # fmt: skip
    """A GPU of which a unit takes `whole` ms, in phases of so many; `active` are the driver's counters."""
    ms = {"enqueue": enqueue, "gpu_compute": compute, "h2d": h2d, "d2h": d2h, "phased_latency": whole}
    flags = {f"gpu0_{name}_active": value for name, value in (active or {}).items()}
    of = {f"{name}_s": value / 1000 for name, value in ms.items()}
    made = world(rate=rate or 1000 / whole, device="cuda", threads=None, flags=flags, of=of, **keys)
    return replace(made, spans=Spans.of("phase", [(n, 0, 0, 1000) for n in ms if n != "phased_latency"]))


@pytest.mark.parametrize(("enqueue", "found"), [(6.4, True), (6.39, False)])
def test_launching_takes_four_fifths_of_the_devices_time_at_least(enqueue, found):
    assert ("launch-bound" in looked(gpu, on_gpu(enqueue))) is found
    for option in ({"options": {"graph": True}}, {"options": {"graph": "true"}}, {"backend": "tensorrt"}):
        assert "launch-bound" not in looked(gpu, on_gpu(enqueue, **option))
    assert "launch-bound" not in looked(gpu, on_gpu(enqueue, compute=0.0))


def test_launches_cost_what_the_device_was_idle_for_or_a_rank_where_nothing_tells():
    rank = looked(gpu, on_gpu(7.0))["launch-bound"]
    assert (rank.share, rank.guessed, rank.confidence) == (pytest.approx(0.6 * 0.7), True, LIKELY)
    known = looked(gpu, on_gpu(7.0, active={"sm": 0.3}))["launch-bound"]
    rest = 10 - 8 + 3
    assert (known.share, known.guessed) == (pytest.approx(1 - rest / 10), False)
    assert known.remedies[0].gain == Absent(
        "at most 2 times; edgescope trace tells the time of the kernels alone"
    )
    assert against(known) == [False, False] and known.depth == 1
    assert against(looked(gpu, on_gpu(7.0, active={"sm": 0.8}))["launch-bound"]) == [False, False]
    idle = looked(gpu, on_gpu(7.0, active={"sm": 0.0}))["launch-bound"]
    assert (idle.share, idle.guessed) == (rank.share, True), "a counter that saw no kernel says nothing"
    full = looked(gpu, on_gpu(7.0, active={"sm": 0.81}))["launch-bound"]
    assert against(full) == [False, True] and full.guessed, "busy for longer than the device computes"


@pytest.mark.parametrize(
    ("rate", "sure", "no"),
    [(281, CONFIRMED, False), (279, LIKELY, False), (201, LIKELY, False), (199, POSSIBLE, True)],
)
def test_a_larger_batch_tells_how_sure_launches_are(rate, sure, no):
    """Four samples in the time of one would be 400 a second."""
    larger = on_gpu(7.0, rate=rate, batch=4)
    found = looked(gpu, on_gpu(7.0), [larger])["launch-bound"]
    assert (found.confidence, against(found)) == (sure, [False, no])
    each = max(0.0, (4 / rate - 0.01) / 3)
    assert found.share == pytest.approx(1 - (10 - 8 + each * 1000) / 10 if each < 0.008 else 0.42)
    smaller = looked(gpu, on_gpu(7.0, batch=4), [on_gpu(7.0, batch=1)])["launch-bound"]
    assert len(smaller.evidence) == 1, "a smaller batch says nothing of it"


@pytest.mark.parametrize(("rate", "found"), [(110.01, True), (109.9, False)])
def test_a_graph_that_was_tried_gains_a_tenth_or_refutes_launches(rate, found):
    tried = on_gpu(7.0, rate=rate, options={"graph": True})
    said = looked(gpu, on_gpu(7.0), [tried]).get("launch-bound")
    assert (said is not None) is found
    if said:
        assert (said.share, said.confidence, said.guessed) == (
            pytest.approx(1 - 100 / rate),
            CONFIRMED,
            False,
        )
        assert said.remedies[0].gain.value == pytest.approx(rate / 100) and against(said) == [False, False]


@pytest.mark.parametrize(("h2d", "d2h", "found"), [(1.5, 1.0, True), (1.0, 1.5, True), (1.5, 0.99, False)])
def test_copies_take_a_quarter_of_a_unit_at_least(h2d, d2h, found):
    said = looked(gpu, on_gpu(h2d=h2d, d2h=d2h)).get("transfer-bound")
    assert (said is not None) is found
    if said:
        assert (said.share, said.confidence) == (pytest.approx(0.25), LIKELY)
        assert [(r.change, r.bound) for r in said.remedies] == [
            ({"io": "pinned"}, Bound.NONE),
            ({"in_flight": 2}, Bound.MOST),
        ]
        assert said.remedies[1].gain.value == pytest.approx(10 / 7.5)
        assert "transfer-bound" not in looked(gpu, replace(on_gpu(h2d=h2d, d2h=d2h), metrics={}))


@pytest.mark.parametrize(("h2d", "overlap"), [(9.0, True), (9.1, False)])
def test_overlapping_copies_must_gain_a_tenth(h2d, overlap):
    said = looked(gpu, on_gpu(compute=0.2, h2d=h2d, d2h=0.1, io="device"))["transfer-bound"]
    assert len(said.remedies) == overlap


@pytest.mark.parametrize(("rate", "sure", "no"), [(110.01, CONFIRMED, False), (109.9, LIKELY, True)])
@pytest.mark.parametrize("io", ["pinned", "device"])
def test_copies_are_confirmed_by_faster_ones(rate, sure, no, io):
    said = looked(gpu, on_gpu(h2d=3.0), [on_gpu(h2d=3.0, rate=rate, io=io)])["transfer-bound"]
    assert (said.confidence, against(said)) == (sure, [False, no])
    if io == "pinned":
        assert said.remedies[0].gain.value == pytest.approx(rate / 100)


def test_pinned_memory_gains_what_its_rate_says():
    keys = {"h2d": 3.0, "d2h": 0.5, "shapes": {"x": (1, 1000, 1000)}, "precision": "fp32"}
    limits = ceilings("cuda", fp32=1e15)
    case = Case(on_gpu(**keys), (), limits)
    transfer = 1000 * case.limit.transfer_s
    assert 0 < transfer < 3.5
    said = looked(gpu, on_gpu(**keys), (), limits)["transfer-bound"].remedies[0]
    assert said.gain.value == pytest.approx(10 / (10 - 3.5 + transfer))
    slow = replace(limits, h2d=[(1e3, 1.0), (1e8, 1.0)])
    assert looked(gpu, on_gpu(**keys), (), slow)["transfer-bound"].remedies[0].gain.value == pytest.approx(
        1.0
    )
    none = replace(limits, h2d=[], d2h=[])
    assert isinstance(looked(gpu, on_gpu(**keys), (), none)["transfer-bound"].remedies[0].gain, Absent)


@pytest.mark.parametrize(("post", "found"), [(0.002, True), (0.00199, False)])
def test_reading_one_value_after_another_takes_a_fifth_at_least(post, found):
    parts = {"infer": 0.008, "postprocess": post}
    keys = {
        "workload": "video",
        "parts": parts,
        "device": "cuda",
        "io": "device",
        "workload_options": {"postprocess": "elements"},
    }
    made = world(rate=100, **keys)
    said = looked(gpu, made).get("sync-bound")
    assert (said is not None) is found
    if said:
        assert (said.share, said.confidence) == (pytest.approx(0.2), LIKELY)
        assert (said.remedies[0].gain.value, said.remedies[0].bound) == (pytest.approx(1.25), Bound.MOST)
        for rate, sure in ((111, CONFIRMED), (109, LIKELY)):
            other = world(rate=rate, **{**keys, "workload_options": {"postprocess": "device"}})
            tried = looked(gpu, made, [other])["sync-bound"]
            assert tried.confidence is sure and tried.remedies[0].bound is Bound.NONE
            assert tried.remedies[0].gain.value == pytest.approx(rate / 100)
        most = looked(gpu, world(rate=100, **{**keys, "parts": {"infer": 1e-5, "postprocess": 0.1}}))[
            "sync-bound"
        ]
        assert most.remedies[0].gain.value == pytest.approx(50)


ARITHMETIC = {"macs": 4_000_000_000}


@pytest.mark.parametrize(
    ("compute", "active", "cause"),
    [
        (5.0, {"sm": 0.5, "tensor": 0.019}, "no tensor cores"),
        (4.99, {"sm": 0.5, "tensor": 0.019}, None),
        (5.0, {"sm": 0.49, "tensor": 0.019}, None),
        (5.0, {"sm": 0.5, "tensor": 0.021}, "compute-bound"),
        (5.0, {}, "compute-bound"),
    ],
)
def test_arithmetic_is_the_cause_where_the_device_computes_half_of_the_time(compute, active, cause):
    limits = ceilings("cuda", fp32=8e9 / 0.006, tf32=8e9 / 0.003, fp16=8e9 / 0.00501)
    said = looked(gpu, on_gpu(compute=compute, active=active, **ARITHMETIC), (), limits)
    names = {"no tensor cores", "compute-bound"} & set(said)
    assert names == ({cause} if cause else set())
    if cause:
        found = said[cause]
        assert found.share == pytest.approx(0.9 * 0.5 if cause == "no tensor cores" else 0.6)
        assert found.confidence is LIKELY and not any(against(found))
        (remedy,) = (r for r in found.remedies if r.change == {"precision": "tf32"})
        assert "fp16" not in [r.change["precision"] for r in found.remedies], "1.2 times the rate is no gain"
        assert (remedy.gain.lo, remedy.bound) == (pytest.approx(1.0), Bound.NONE)
        assert remedy.gain.hi == pytest.approx(1 / (1 - 0.5 * 0.5))


@pytest.mark.parametrize(
    ("peak_ms", "found", "no"), [(3.0, True, False), (2.99, False, None), (9.9, True, False)]
)
def test_multiplications_take_three_tenths_at_least(peak_ms, found, no):
    limits = ceilings("cuda", fp32=8e9 / (peak_ms / 1000))
    said = looked(gpu, on_gpu(active={"sm": 0.9, "tensor": 0.5}, **ARITHMETIC), (), limits).get(
        "compute-bound"
    )
    assert (said is not None) is found
    if said:
        assert said.share == pytest.approx(min(0.95, peak_ms / 10)) and against(said) == [False, no]


@pytest.mark.parametrize(("peak_ms", "no"), [(2.0, False), (1.99, True)])
def test_few_multiplications_speak_against_arithmetic(peak_ms, no):
    limits = ceilings("cuda", fp32=8e9 / (peak_ms / 1000))
    said = looked(gpu, on_gpu(active={"sm": 0.9, "tensor": 0.0}, **ARITHMETIC), (), limits)["no tensor cores"]
    assert against(said) == [False, no, False] and said.share == pytest.approx(0.72)


@pytest.mark.parametrize(("rate", "sure"), [(111, CONFIRMED), (109, LIKELY)])
def test_a_precision_that_was_tried_has_its_measured_gain(rate, sure):
    tried = on_gpu(rate=rate, precision="fp16")
    said = looked(gpu, on_gpu(active={"sm": 0.9, "tensor": 0.0}), [tried])["no tensor cores"]
    gains = {r.change["precision"]: r.gain for r in said.remedies}
    assert said.confidence is sure and gains["fp16"].value == pytest.approx(rate / 100)
    assert isinstance(gains["tf32"], Absent) and "fp32" not in gains


@pytest.mark.parametrize(
    ("compute", "dram", "found", "no"),
    [(8.0, 0.5, True, False), (8.0, 0.49, False, None), (5.0, 0.5, True, False), (4.9, 0.9, False, None)],
)
def test_memory_is_busy_for_half_of_the_time_at_least(compute, dram, found, no):
    said = looked(gpu, on_gpu(compute=compute, active={"dram": dram})).get("memory-bound")
    assert (said is not None) is found
    if said:
        assert said.share == pytest.approx(dram * compute / 10) and against(said) == [no]
        (remedy,) = said.remedies
        assert remedy.gain.value == pytest.approx(1 / (1 - said.share / 2))


@pytest.mark.parametrize(("dram", "no"), [(0.3, False), (0.29, True)])
def test_weights_that_take_half_of_the_time_are_memory_too(dram, no):
    """20 MB of weights at 10 GB/s are 8 ms; two batches tell what a larger one gains."""
    one, four = (
        on_gpu(rate=b / (0.008 + 0.002 * b), batch=b, params=20_000_000, active={"dram": dram})
        for b in (1, 4)
    )
    said = looked(gpu, one, [four], ceilings("cuda", fp32=1e15))["memory-bound"]
    assert said.share == pytest.approx(0.8 * 0.8) and against(said) == [no, False]
    assert said.remedies[0].change == {"batch": 4}
    assert said.remedies[0].gain.value == pytest.approx(0.010 / (0.016 / 4))
    most = on_gpu(compute=10.0, params=40_000_000)
    assert looked(gpu, most, (), ceilings("cuda", fp32=1e15))["memory-bound"].share == pytest.approx(0.95)


@pytest.mark.parametrize(("alone", "found"), [(91.0, True), (90.8, False), (300.0, True)])
def test_processes_take_turns_unless_they_do_more_together(alone, found):
    one = on_gpu(rate=alone)
    said = looked(gpu, on_gpu(processes=2), [one]).get("contention")
    assert (said is not None) is found
    if said:
        assert said.share == pytest.approx(1 - 1 / (alone / 100 * 2)) and said.confidence is CONFIRMED
        assert said.remedies[0].change == {"processes": 1}
        mps = on_gpu(processes=2, sharing="mps", rate=170)
        better = looked(gpu, on_gpu(processes=2), [one, mps])["contention"].remedies[0]
        assert (better.change, better.gain.value) == ({"sharing": "mps"}, pytest.approx(1.7))
    assert "contention" not in looked(gpu, on_gpu(), [on_gpu(processes=2)])


# -- the machine -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("service", "found"), [(0.08, True), (0.0801, False)])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_load_leaves_a_fifth_of_the_time_idle(service, found, in_flight):
    made = world(
        scenario="fixed_rate", rate=10.0, in_flight=in_flight, of={"latency_p50_s": service * in_flight}
    )
    said = looked(machine, replace(made, queries=None)).get("offered load")
    assert (said is not None) is found
    if said:
        assert said.share == pytest.approx(0.2)
        assert (
            said.remedies[0].gain.value == pytest.approx(0.1 / 0.08) and said.remedies[0].bound is Bound.LEAST
        )


@pytest.mark.parametrize(
    ("used", "stopped", "quota", "found"),
    [
        (1.8, 0.0, 2, True),
        (1.79, 0.0, 2, False),
        (0.5, 0.1, 2, True),
        (0.5, 0.09, 2, False),
        (0.5, 0.1, 3.9, False),
        (0.5, 0.1, 3.8, True),
        (1.8, None, 2, True),
    ],
)
def test_a_quota_is_used_up_or_stops_it(used, stopped, quota, found):
    of = {"cores_used": used} | ({} if stopped is None else {"quota_stopped_share": stopped})
    said = looked(machine, world(mode=f"cpus=0-3+quota={quota}", threads=8, of=of)).get("quota")
    assert (said is not None) is found
    if said:
        assert said.share == pytest.approx(1 - quota / 4) and said.remedies[0].change == {"mode": "cpus=0-3"}
        assert said.remedies[0].gain.value == pytest.approx(4 / min(quota, used))
        assert said.confidence is (LIKELY if (stopped or 0) >= 0.1 else POSSIBLE)
        assert len(said.evidence) == 1 + (stopped is not None)


def test_one_stage_at_a_time_wants_one_core_and_a_limit_of_the_group_is_a_quota():
    of = {"cores_used": 0.45, "quota_stopped_share": 0.5}
    made = world(workload="video", parts={"a": 0.01}, threads=4, mode="quota=0.5", of=of)
    said = looked(machine, made)["quota"]
    assert (said.share, said.remedies[0].gain.value) == (pytest.approx(0.5), pytest.approx(1 / 0.45))
    state = {"cpu": {**MACHINE.state["cpu"], "cgroup_cpu_limit": 0.5}}
    grouped = replace(made, trial=replace(made.trial, mode="as_is"), machine=replace(MACHINE, state=state))
    found = looked(machine, grouped)["quota"]
    assert (found.share, found.remedies[0].change) == (pytest.approx(0.5), {})


@pytest.mark.parametrize(
    ("others", "waits", "found"),
    [(0.15, 0.1, True), (0.15, 0.2, True), (0.149, 0.2, False), (0.2, 0.11, True), (0.2, 0.099, False)],
)
def test_neighbours_take_a_share_of_the_cores_and_of_the_time(others, waits, found):
    of = {"cores_used": 0.9, "run_wait_share": waits}
    said = looked(machine, world(own=0.2, others=others, of=of)).get("contention")
    lost = 0.9 * waits / (1 - waits)
    assert (said is not None) is (found and lost >= 0.1)
    if said:
        assert said.share == pytest.approx(lost) and said.remedies[0].gain.value == pytest.approx(
            1 / (1 - lost)
        )
        assert said.remedies[0].bound is Bound.NONE


@pytest.mark.parametrize(("others", "found"), [(0.3, True), (0.29, False)])
def test_threads_in_each_others_way_are_no_neighbours(others, found):
    of = {"cores_used": 3.0, "run_wait_share": 0.5}
    assert ("contention" in looked(machine, world(own=0.6, others=others, threads=5, of=of))) is found
    assert "contention" in looked(machine, world(own=0.6, others=0.29, threads=4, of=of))


@pytest.mark.parametrize(
    ("asked", "beside", "share"), [(4, 1, 0.5), (2, 1, None), (3, 1, 1 - 4 / 6), (4, 2, 2 / 3)]
)
def test_models_beside_it_cost_the_cores_that_all_ask_for(asked, beside, share):
    workers = [type("W", (), {"number": n})() for n in range(1 + beside)]
    made = replace(world(threads=asked, colocated="net"), workers=tuple(workers))
    said = looked(machine, made).get("contention")
    assert (said and said.share) == (share and pytest.approx(share))
    if said:
        gain = said.remedies[0].gain
        assert gain.lo == pytest.approx(1 / (1 - share))
        assert gain.hi == pytest.approx(max(gain.lo, 1 / machine.all_run(min(asked, 4), min(0.95, share))))


def test_held_clocks_cost_what_they_lack_of_the_highest():
    made = world(flags={"throttled_cpu_thermal": 1.0, "cpu_freq_hz": 1e9})
    half = looked(machine, made)["throttled"]
    assert half.guessed and half.share == pytest.approx(0.5), "a clock at its highest tells nothing"
    r = made.readings
    slow = replace(r, value=np.where((r.value == 1e9) & (r.t_ns <= 5 * S), 0.5e9, r.value))
    window = Window(0, 50, 0, 5 * S)
    said = looked(machine, replace(made, readings=slow, window=window))["throttled"]
    assert (said.share, said.guessed) == (pytest.approx(0.5), False)
    assert said.remedies[0].gain.value == pytest.approx(2.0)


# -- the network -------------------------------------------------------------------------------------------------------


def batches(fixed: float, each: float, *sizes: int, **keys: Any) -> list[Result]:
    """Cells of one network whose unit takes fixed + each x batch ms."""
    of = {"cores_used": 4.0}
    return [
        world(rate=1000 * b / (fixed + each * b), batch=b, threads=4, own=1.0, of=of, **keys) for b in sizes
    ]


@pytest.mark.parametrize(("fixed", "found"), [(2.001, True), (1.999, False)])
def test_calls_take_a_fifth_of_a_unit_at_least(fixed, found):
    one, eight = batches(fixed, 10 - fixed, 1, 8, params=0)
    said = looked(network, one, [eight], ceilings("cpu")).get("launch-bound")
    assert (said is not None) is found
    if said:
        assert said.share == pytest.approx(0.2, abs=1e-3)
        batch, compiled = said.remedies
        assert batch.change == {"batch": 8} and compiled.bound is Bound.MOST
        assert batch.gain.value == pytest.approx(10 / ((fixed + 8 * (10 - fixed)) / 8))
        assert compiled.gain.value == pytest.approx(1 / (1 - fixed / 10))
        four = looked(network, one, [batches(fixed, 10 - fixed, 2)[0]], ceilings("cpu"))["launch-bound"]
        assert four.remedies[0].change == {"batch": 4}


def test_calls_take_exactly_a_share(monkeypatch):
    """1 s of one sample and 4 s of five are 0.25 s + 0.75 s a sample, without a rounding."""
    monkeypatch.setattr(network, "SMALL", 0.25)
    one, five = (world(rate=r, batch=b, threads=4, own=1.0, params=0) for r, b in ((1.0, 1), (1.25, 5)))
    assert looked(network, one, [five], ceilings("cpu"))["launch-bound"].share == 0.25


@pytest.mark.parametrize(("rate", "sure", "no"), [(1.101, CONFIRMED, False), (1.099, POSSIBLE, True)])
def test_calls_are_confirmed_by_a_larger_batch(rate, sure, no):
    one = world(rate=100, params=0)
    larger = world(rate=100 * rate, batch=2, params=0)
    smaller = world(rate=10, batch=2, params=0)
    fit = cost_of_batch(one, interventions(one, [larger]))
    found = looked(network, one, [larger], ceilings("cpu")).get("launch-bound")
    assert fit.fixed_s == pytest.approx(0.01 - fit.each_s)
    if fit.fixed_s / 0.01 < 0.2:
        assert found is None
    else:
        assert (found.confidence, against(found)) == (sure, [False, False, no])
    assert "launch-bound" not in looked(network, one, [smaller], ceilings("cpu"))


@pytest.mark.parametrize(
    ("fixed", "sure", "no"),
    [(5.01, CONFIRMED, False), (4.99, LIKELY, False), (3.01, LIKELY, False), (2.99, POSSIBLE, True)],
)
def test_reading_weights_takes_so_much_that_does_not_grow(fixed, sure, no):
    """11.26 million float32 weights at 10 GB/s are 4.504 ms of 10 ms."""
    one, two = batches(fixed, 10 - fixed, 1, 2, params=11_260_000)
    said = looked(network, one, [two], ceilings("cpu", fp32=1e15))["memory-bound"]
    assert (said.confidence, against(said)) == (sure, [False, no]) and said.share == pytest.approx(0.4504)
    gains = {r.words.split()[1].strip(","): r.gain.value for r in said.remedies}
    assert gains["4"] == pytest.approx(10 / ((fixed + 4 * (10 - fixed)) / 4))
    assert gains["bf16"] == pytest.approx(1 / (1 - 0.4504 * 0.5))
    (less,) = batches(fixed, 10 - fixed, 1, params=11_240_000)
    assert "memory-bound" not in looked(network, less, (), ceilings("cpu", fp32=1e15))
    (more,) = batches(fixed, 10 - fixed, 1, params=40_000_000)
    assert looked(network, more, (), ceilings("cpu", fp32=1e15))["memory-bound"].share == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("fixed", "sure", "no"),
    [(2.99, CONFIRMED, False), (3.01, LIKELY, False), (4.99, LIKELY, False), (5.01, POSSIBLE, True)],
)
def test_arithmetic_takes_so_much_that_grows(fixed, sure, no):
    one, two = batches(fixed, 10 - fixed, 1, 2, macs=45_100_000)
    limits = ceilings("cpu", fp32=2e10, bf16=4e10, fp16=2.39e10)
    said = looked(network, one, [two], limits)["compute-bound"]
    assert (said.confidence, against(said)) == (sure, [False, no]) and said.share == pytest.approx(0.451)
    assert [r.change for r in said.remedies] == [{"precision": "bf16"}]
    assert said.remedies[0].gain.value == pytest.approx(1 / (1 - 0.451 * 0.5))
    (less,) = batches(fixed, 10 - fixed, 1, macs=44_900_000)
    assert "compute-bound" not in looked(network, less, (), limits)
    half = replace(less, metrics={**less.metrics, "cores_used": Measured(2.0, "1")})
    assert "at least 8.98 ms of 10 ms" in looked(network, half, (), limits)["compute-bound"].evidence[0].text
    assert looked(network, half, (), limits)["compute-bound"].share == pytest.approx(0.898), (
        "half of the cores"
    )
    idle = replace(less, metrics={**less.metrics, "cores_used": Measured(0.5, "1")})
    assert looked(network, idle, (), limits)["compute-bound"].share == pytest.approx(0.98), (
        "one core at least"
    )


def test_the_networks_share_of_a_pipeline():
    parts = {"decode": 0.008, "infer": 0.002}
    keys = {"workload": "video", "rate": 100, "macs": 100_000_000, "of": {"cores_used": 4.0}}
    limits = ceilings("cpu", fp32=2e11)
    said = looked(network, world(parts=parts, **keys), (), limits)["compute-bound"]
    assert said.share == pytest.approx(0.2 * 0.5)
    assert not looked(network, world(parts={**parts, "infer": 0.00199}, **keys), (), limits)
    slow = world(parts={"decode": 0.001, "infer": 0.009}, in_flight=4, **keys)
    assert looked(network, slow, (), ceilings("cpu", fp32=4e10))["compute-bound"].share == pytest.approx(0.5)
    assert not looked(network, world(parts=parts, in_flight=4, **keys), (), ceilings("cpu", fp32=4e10))


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "waits", "found"), [(5, 0.15, True), (4, 0.9, False), (5, 0.149, False)])
def test_threads_are_too_many_where_they_are_more_than_cores_and_wait(asked, waits, found):
    of = {"cores_used": 4.0, "run_wait_share": waits}
    said = looked(threads, world(threads=asked, own=1.0, of=of)).get("oversubscription")
    assert (said is not None) is found
    if said:
        assert (said.share, said.confidence) == (pytest.approx(waits / 2), POSSIBLE)
        assert said.remedies[0].change == {"options": {"threads": 4}} and isinstance(
            said.remedies[0].gain, Absent
        )


@pytest.mark.parametrize(
    ("rate", "sure", "share"),
    [(111, CONFIRMED, 1 - 1 / 1.11), (109, POSSIBLE, 1 - 1 / 1.09), (90, POSSIBLE, 0.25)],
)
def test_fewer_threads_that_were_tried_tell(rate, sure, share):
    keys = {"own": 1.0, "of": {"cores_used": 4.0, "run_wait_share": 0.5}}
    made = world(threads=8, options={"threads": 8}, **keys)
    fewer, more = (world(threads=n, rate=r, options={"threads": n}) for n, r in ((4, rate), (12, 500)))
    said = looked(threads, made, [fewer, more])["oversubscription"]
    assert (said.share, said.confidence) == (pytest.approx(share), sure)
    assert len(said.remedies) == (sure is CONFIRMED) and against(said) == [False, False, sure is POSSIBLE]


@pytest.mark.parametrize(
    ("trial", "change"),
    [
        ({"threads": 1, "processes": 8}, {"processes": 4}),
        ({"threads": 2, "in_flight": 4}, {"in_flight": 2}),
        ({"threads": 4, "in_flight": 4}, {"in_flight": 1}),
        ({"threads": 5, "in_flight": 4}, {"options": {"threads": 4}}),
        ({"threads": 2, "processes": 4}, {"options": {"threads": 1}}),
        ({"threads": 3, "processes": 2}, {"options": {"threads": 2}}),
    ],
)
def test_what_leaves_a_thread_a_core(trial, change):
    made = world(own=1.0, of={"cores_used": 4.0, "run_wait_share": 0.5}, **trial)
    assert looked(threads, made)["oversubscription"].remedies[0].change == change


@pytest.mark.parametrize(
    ("n", "used", "others", "found"),
    [
        (3, 2.55, 0.0, True),
        (3, 2.54, 0.0, False),
        (4, 4.0, 0.0, False),
        (2, 2.0, 0.25, True),
        (2, 2.0, 0.26, False),
    ],
)
def test_threads_are_too_few_where_they_are_busy_and_cores_are_free(n, used, others, found):
    said = looked(threads, world(threads=n, own=0.25, others=others, of={"cores_used": used})).get(
        "too few threads"
    )
    assert (said is not None) is found
    if said:
        low, high = (1 + (4 / n - 1) * e for e in (0.6, 1.0))
        gain, bound = between(low, high)
        assert (said.remedies[0].gain, said.remedies[0].bound) == (gain, bound)
        assert said.share == pytest.approx(1 - 1 / gain.value) and said.confidence is LIKELY


def test_the_cores_in_use_are_the_runs_own_count_else_the_samplers():
    for of, own, source in (({"cores_used": 2.6}, 0.25, threads.WINDOW), ({}, 0.65, threads.SAMPLER)):
        said = looked(threads, world(threads=3, own=own, of=of))["too few threads"]
        assert said.evidence[1] == Evidence("2.60 cores were busy with it", source)


@pytest.mark.parametrize(("rate", "found"), [(111, True), (109, False)])
def test_more_threads_that_were_tried_tell(rate, found):
    of = {"cores_used": 2.0}
    made = world(threads=2, options={"threads": 2}, of=of)
    more, fewer = (world(rate=r, options={"threads": n}) for n, r in ((3, rate), (1, 900)))
    said = looked(threads, made, [more, fewer]).get("too few threads")
    assert (said is not None) is found
    if said:
        assert (said.confidence, said.share) == (CONFIRMED, pytest.approx(1 - 100 / rate))


def pipeline(
    n: int = 2, rate: float = 50.0, busy: float = 0.04, cpu: float | None = 0.02, **of: float
) -> Result:
    """A stage of `n` threads that is at work for `busy` s of a unit, and on a CPU for `cpu` s."""
    figures = {"cores_used": 1.0, "interpreter_wait_s": 0.0001, "run_wait_share": 0.0, **of}
    parts = {"work": busy, "infer": 0.004}
    made = world(workload="video", parts=parts, rate=rate, in_flight=6, of=figures)
    figures = {**made.metrics, **({} if cpu is None else {"work_cpu_s": Measured(cpu, "s")})}
    return replace(made, metrics=figures, artifact={"stages": [{"name": "work", "threads": n}]})


@pytest.mark.parametrize(
    ("of", "cause"),
    [
        ({}, "lock-bound"),
        ({"interpreter_wait_s": 0.0009}, "lock-bound"),
        ({"interpreter_wait_s": 0.001}, None),
        ({"interpreter_wait_s": 0.0019}, None),
        ({"interpreter_wait_s": 0.002}, "GIL-bound"),
        ({"interpreter_wait_s": 0.002, "run_wait_share": 0.34, "cpu": 0.0132}, "GIL-bound"),
        ({"interpreter_wait_s": 0.002, "run_wait_share": 0.35}, None),
        ({"interpreter_wait_s": 0.002, "cpu": None, "cores_used": 1.35}, "GIL-bound"),
        ({"interpreter_wait_s": 0.002, "cpu": None, "cores_used": 1.36}, None),
        ({"n": 1}, None),
        ({"rate": 37.5}, "lock-bound"),
        ({"rate": 37.4}, None),
    ],
)
def test_threads_that_run_in_turns_wait_for_the_interpreter_or_a_lock(of, cause):
    said = looked(threads, pipeline(**of))
    assert set(said) == ({cause} if cause else set())
    if cause == "GIL-bound":
        used = of.get("cores_used", 1.0)
        assert said[cause].remedies[0].gain.value == pytest.approx(4 / max(used, 1.0))


def test_tried_threads_and_processes_speak_of_the_interpreter():
    made = pipeline(interpreter_wait_s=0.002, cpu=None)
    assert looked(threads, made)["GIL-bound"].share == pytest.approx(0.75)

    def tried(rate: float, **trial: Any) -> Result:
        return replace(pipeline(rate=rate), trial=replace(made.trial, **trial))

    for rate, no in ((66, True), (64, False)):
        more = tried(rate, workload_options={"work_threads": 2})
        assert against(looked(threads, made, [more])["GIL-bound"]) == [False, False, no]
    fewer = tried(90, workload_options={"work_threads": 1})
    assert against(looked(threads, made, [fewer])["GIL-bound"]) == [False, False, False]
    for rate, sure in ((56, CONFIRMED), (54, POSSIBLE)):
        said = looked(threads, made, [tried(rate, processes=2)])["GIL-bound"]
        assert (said.confidence, said.remedies[0].bound) == (sure, Bound.NONE)
        assert said.remedies[0].gain.value == pytest.approx(rate / 50)
        assert said.share == pytest.approx(1 - 50 / rate)


# -- stages ------------------------------------------------------------------------------------------------------------


def video(rate: float = 100.0, of: dict[str, float] | None = None, **keys: Any) -> Result:
    parts = keys.pop("parts", {"work": 0.005, "infer": 0.005})
    return world(workload="video", parts=parts, rate=rate, of=of or {}, **keys)


@pytest.mark.parametrize(("work", "found"), [(0.0025, True), (0.00249, False)])
def test_a_stage_takes_a_quarter_at_least(work, found):
    parts = {"work": work, "infer": 0.01 - work}
    said = looked(stages, video(parts=parts))
    assert set(said) == ({"stage-bound"} if found else set())


def test_evidence_says_where_the_time_of_a_stage_comes_from():
    def source(made: Result) -> str:
        return next(iter(looked(stages, made).values())).evidence[0].source

    steps = world(workload="training", parts={"fetch": 0.005, "forward": 0.005}, rate=100)
    assert [source(made) for made in (video(), video(device="cuda"), steps)] == [FLOW, STAGES, PHASES]


@pytest.mark.parametrize(("rate", "found"), [(40.1, True), (39.9, False)])
def test_the_slowest_stage_is_busy_four_fifths_of_the_time(rate, found):
    parts = {"work": 0.02, "infer": 0.01, "other": 0.001}
    made = video(parts=parts, rate=rate, in_flight=4, of={"cores_used": 1.0})
    said = looked(stages, made)
    assert set(said) == ({"stage-bound"} if found else set())
    if found:
        assert said["stage-bound"].share == pytest.approx(1 - 0.01 * rate)
        assert "infer" not in said["stage-bound"].part
    crowded = replace(made, machine=replace(MACHINE, state={"cpu": {"online_cpus": [0], "affinity": [0]}}))
    narrow = looked(stages, crowded)
    assert not narrow or narrow["stage-bound"].share == pytest.approx(1 - 0.011 * rate)


@pytest.mark.parametrize(
    ("used", "waits", "share", "cause"),
    [
        (0.65, 0.0, 0.5, "fetch-stalled"),
        (0.66, 0.0, 0.5, None),
        (0.325, 0.5, 0.5, "fetch-stalled"),
        (0.33, 0.5, 0.5, None),
        (0.6, 0.0, 0.66, "fetch-stalled"),
        (0.6, 0.0, 0.68, None),
    ],
)
def test_a_stage_waits_where_nothing_is_on_a_cpu_for_a_third_of_the_time(used, waits, share, cause):
    parts = {"work": 0.01 * share, "infer": 0.01 * (1 - share)}
    said = looked(stages, video(parts=parts, of={"cores_used": used, "run_wait_share": waits}))
    off = 1 - used / (1 - waits)
    assert ("fetch-stalled" in said) is (cause is not None)
    if cause:
        assert said[cause].share == pytest.approx(min(share, off))
        assert said[cause].remedies[-1].gain.value == pytest.approx(1 / (1 - min(share, off)))


@pytest.mark.parametrize(("cpu", "found"), [(0.002, True), (0.00205, False)])
def test_a_stage_that_sleeps_six_tenths_waits(cpu, found):
    said = looked(stages, video(of={"cores_used": 0.99, "work_cpu_s": cpu}))
    assert ("fetch-stalled" in said) is found
    if found:
        assert said["fetch-stalled"].share == pytest.approx(0.5 * 0.6)


@pytest.mark.parametrize(
    ("kernel", "faults", "disk", "found"),
    [(0.3, 1000, 0, True), (0.29, 1000, 0, False), (0.3, 999, 0, False)],
)
def test_memory_that_is_mapped_afresh(kernel, faults, disk, found):
    of = {"cores_used": 1.0, "kernel_time_share": kernel, "page_faults_per_s": float(faults)}
    said = looked(stages, video(of=of))
    assert ("allocation-bound" in said) is found
    if found:
        assert said["allocation-bound"].remedies[0].gain.value == pytest.approx(1 / 0.7)
        assert (said["allocation-bound"].share, said["allocation-bound"].depth) == (pytest.approx(0.5), 1)


@pytest.mark.parametrize(("read", "lines"), [(1e6, 3), (9.9e5, 2)])
def test_what_came_from_disk_is_told(read, lines):
    said = looked(stages, video(of={"cores_used": 0.5, "disk_read_bps": read}))
    assert len(said["fetch-stalled"].evidence) == lines


def test_overlapping_gains_the_slowest_stage_or_all_time_over_the_cores():
    def gains(parts: dict[str, float], **keys: Any) -> list[float]:
        said = looked(stages, video(parts=parts, **keys))["stage-bound"]
        return [r.gain.value for r in said.remedies if r.change == {"in_flight": 6}]

    assert gains({"work": 0.006, "infer": 0.004}) == [pytest.approx(10 / 6)]
    assert gains({"work": 0.0091, "infer": 0.0009}) == [] and len(gains({"work": 0.009, "infer": 0.001})) == 1
    even = {f"s{i}": 0.001 for i in range(7)}
    assert gains({"work": 0.003, **even}) == [pytest.approx(10 / 3)]
    one = {"machine": replace(MACHINE, state={"cpu": {"online_cpus": [0], "affinity": [0]}})}
    made = replace(video(of={"cores_used": 0.5}, parts={"work": 0.004, "infer": 0.006}), **one)
    said = looked(stages, made)["stage-bound"]
    assert [r.gain.value for r in said.remedies if r.change] == [pytest.approx(10 / 6)]
    tried = video(rate=130, in_flight=2)
    found = looked(stages, video(), [tried])["stage-bound"]
    assert [r.gain.value for r in found.remedies if r.change] == [pytest.approx(1.3)]


def test_another_thread_of_the_slowest_stage():
    parts = {"preprocess": 0.02, "infer": 0.004}
    made = video(parts=parts, rate=49, in_flight=4, workload_options={"preprocess": "host"})
    (remedy,) = (r for r in looked(stages, made)["preprocessing-bound"].remedies if r.change)
    assert remedy.change["workload_options"]["preprocess_threads"] == 2
    assert remedy.gain.value == pytest.approx(1 / 49 / 0.01)
    for cameras, threads_more in ((1, 0), (2, 1)):
        decode = video(
            parts={"decode": 0.02, "infer": 0.004},
            rate=49,
            in_flight=4,
            workload_options={"cameras": cameras, "decode": "scaled"},
        )
        said = looked(stages, decode)["decode-bound"]
        assert len([r for r in said.remedies if r.change]) == threads_more


# -- judgement ---------------------------------------------------------------------------------------------------------


def finding(
    cause: str,
    share: float,
    sure: Confidence = CONFIRMED,
    *,
    depth: int = 1,
    part: str = "",
    no: int = 0,
    of: int = 2,
) -> Finding:
    return Finding(cause, share, sure, tuple(Evidence("x", "y", i < no) for i in range(of)), (), part, depth)


@pytest.mark.parametrize(
    ("found", "names"),
    [
        ([("a", 0.12)], ["a"]),
        ([("a", 0.119)], []),
        ([("a", 0.12 / 0.85 + 1e-9, LIKELY)], ["a"]),
        ([("a", 0.29, POSSIBLE)], []),
        ([("a", 0.31, POSSIBLE)], ["a"]),
        ([("a", 0.3), ("b", 0.4)], ["b", "a"]),
        ([("compute-bound", 0.9), ("a", 0.17)], ["a", "compute-bound"]),
        ([("compute-bound", 0.9), ("a", 0.169)], ["compute-bound", "a"]),
        ([("compute-bound", 0.9), ("a", 0.5, POSSIBLE)], ["compute-bound", "a"]),
        ([("a", 0.625, LIKELY), ("b", 0.625, LIKELY)], ["a", "b"]),
        ([("a", 0.626, LIKELY), ("b", 0.625, LIKELY)], []),
        ([("a", 0.9, LIKELY), ("b", 0.9, POSSIBLE)], ["a", "b"]),
        ([("a", 0.9, POSSIBLE), ("b", 0.8, POSSIBLE)], []),
        ([("quota", 0.9, LIKELY), ("b", 0.8, LIKELY)], ["quota", "b"]),
        ([("a", 0.9, LIKELY), ("quota", 0.8, LIKELY)], ["a", "quota"]),
    ],
)
def test_findings_are_ordered_by_weight_and_contradict_each_other(found, names):
    said = judged(None, [finding(*f) for f in found])
    assert [f.cause for f in said.findings] == names and bool(said.reason) is not bool(names)


@pytest.mark.parametrize(
    ("special", "general", "first"),
    [
        ({"share": 0.48, "part": "x"}, {"part": "x", "depth": 0}, "special"),
        ({"share": 0.47, "part": "x"}, {"part": "x", "depth": 0}, "general"),
        ({"share": 0.48, "part": "x"}, {"part": "y", "depth": 0}, "special"),
        ({"share": 0.48, "part": "x", "depth": 2}, {"part": "y", "depth": 1}, "general"),
        ({"share": 0.48, "depth": 2}, {"part": "y", "depth": 1}, "special"),
        ({"share": 0.48, "depth": 0}, {"depth": 0}, "general"),
    ],
)
def test_what_is_more_specific_goes_first_where_it_explains_as_much(special, general, first):
    said = judged(None, [finding("general", 0.8, **general), finding("special", **special)])
    assert said.findings[0].cause == first


@pytest.mark.parametrize(("no", "of", "out"), [(1, 2, True), (1, 3, False), (0, 0, False), (2, 3, True)])
def test_as_much_against_it_as_for_it_rules_a_cause_out(no, of, out):
    said = judged(None, [finding("a", 0.5, LIKELY, no=no, of=of)])
    assert bool(said.ruled_out) is out
    assert judged(None, [finding("a", 0.5, CONFIRMED, no=no, of=of)]).cause == "a"


@pytest.mark.parametrize(("seen", "told"), [(10, True), (9, False)])
def test_ten_queries_are_needed_to_predict_a_gain(seen, told):
    made = replace(video(), window=Window(5, 5 + seen, 0, 10 * S))
    gains = [r.gain for f in diagnose(made).findings for r in f.remedies]
    assert gains and any(isinstance(g, Measured) for g in gains) is told


@pytest.mark.parametrize(
    ("predicted", "real", "bound", "holds"),
    [
        (1.2, 1.0, Bound.NONE, True),
        (1.21, 1.0, Bound.NONE, False),
        (0.81, 1.0, Bound.NONE, True),
        (0.79, 1.0, Bound.NONE, False),
        (2.2, 2.0, Bound.LEAST, True),
        (2.21, 2.0, Bound.LEAST, False),
        (2.0, 2.2, Bound.MOST, True),
        (2.0, 2.21, Bound.MOST, False),
    ],
)
def test_a_prediction_holds_within_its_slack(predicted, real, bound, holds):
    remedy = Remedy("x", {}, Measured(predicted, "ratio"), "", bound)
    assert Check(remedy, remedy.gain, Measured(real, "ratio")).holds is holds
    assert Check(remedy, Absent("x"), Measured(real, "ratio")).holds is None
    assert Check(None, Measured(predicted, "ratio"), Measured(1.0, "ratio")).holds is (
        abs(predicted - 1) <= 0.2
    )


@pytest.mark.parametrize(("high", "bound"), [(1.43, Bound.NONE), (1.45, Bound.LEAST)])
def test_a_range_is_a_prediction_up_to_its_slack_either_way(high, bound):
    gain, how = between(1.0, high)
    assert how is bound and gain.value == (pytest.approx(high**0.5) if bound is Bound.NONE else 1.0)


def test_the_cost_of_a_batch_goes_through_its_own_and_the_farthest_one():
    def cell(batch: int, ms: float) -> Result:
        return world(rate=1000 * batch / ms, batch=batch)

    two, four, eight = cell(2, 6), cell(4, 20), cell(8, 24)
    fit = cost_of_batch(two, interventions(two, [four, eight]))
    assert (fit.fixed_s, fit.each_s, fit.batches) == (pytest.approx(0), pytest.approx(0.003), (2, 4, 8))
    last = cost_of_batch(eight, interventions(eight, [four, two]))
    assert (last.fixed_s, last.each_s) == (pytest.approx(0.0), pytest.approx(0.003))
    down = cost_of_batch(two, interventions(two, [cell(8, 3)]))
    assert (down.fixed_s, down.each_s, down.seconds(4)) == (pytest.approx(0.006), 0.0, pytest.approx(0.006))
    assert unit_seconds(cell(4, 20)).value == pytest.approx(0.02)
    assert isinstance(unit_seconds(replace(two, metrics={"throughput_sps": Measured(0.0, "x")})), Absent)
    assert diagnose(replace(two, status=Status.FAILED)).cause == "unknown"


# -- a trace -----------------------------------------------------------------------------------------------------------


def account(
    *, host: int = 0, busy: int = 90, copy: int = 0, syncs: Sequence[int] = (), blocked: int = 0, **parts: Any
) -> Any:
    """A trace of 100 ns of one GPU beside a shorter one, with two kernels and two kinds of copies."""
    gpu = GpuTime(0, 100, busy, busy - copy, copy, host, 100 - busy - host, 0)
    many = np.array(syncs or [0])
    budget = SimpleNamespace(
        syncs=many,
        launches=np.array([3, 9, 4]),
        total=np.array([60, 40]),
        parts={"blocked": np.array([blocked, 0]), "wait_blocked": np.array([0, 5])},
    )
    kernels = (Named("a", 3, 6000, 9), Named("b", 1, None, None))
    copies = (Named("H2D", 2, 40, 9, 80), Named("D2H", 9, 10, 9, 1))
    given = {
        "gpus": (GpuTime(1, 7, 7, 7, 0, 0, 0, 0), gpu),
        "kernels": kernels,
        "copies": copies,
        "budget": budget,
    }
    return SimpleNamespace(**given | parts, trace=SimpleNamespace(source="s"))


def of_trace(made: Any) -> dict[str, Finding]:
    return {f.cause: f for f in traced.causes(made)}


@pytest.mark.parametrize(
    ("made", "causes"),
    [
        (account(host=15, busy=80), {"launch-bound": 0.15}),
        (account(host=14, busy=80), {}),
        (account(host=15, busy=80, syncs=[7, 7, 99]), {"launch-bound": 0.15}),
        (account(host=15, busy=85, syncs=[1, 8, 99]), {"sync-bound": 0.15}),
        (account(busy=86, syncs=[8]), {}),
        (account(busy=85, syncs=[8]), {"sync-bound": 0.15}),
        (account(copy=15), {"transfer-bound": 0.15}),
        (account(copy=14), {}),
        (account(blocked=10), {"contention": 0.15}),
        (account(blocked=9), {}),
        (account(blocked=90, budget=None), {}),
        (account(host=15, busy=80, budget=None), {"launch-bound": 0.15}),
        (account(gpus=()), {}),
        (account(gpus=(GpuTime(0, 0, 0, 0, 0, 0, 0, 0),)), {}),
    ],
)
def test_what_a_trace_speaks_for_takes_a_seventh_of_the_time_at_least(made, causes):
    found = of_trace(made)
    assert {name: f.share for name, f in found.items()} == pytest.approx(causes)
    for name, f in found.items():
        assert (f.confidence, f.depth) == (LIKELY, 1)
        if name != "launch-bound":
            assert f.remedies[0].gain.value == pytest.approx(1 / 0.85) and f.remedies[0].bound is Bound.MOST


def test_the_figures_of_a_trace_stand_beside_its_causes():
    late = of_trace(account(host=20, busy=75))["launch-bound"]
    gain, bound = between(1 / 0.8, 100 / 75)
    assert (late.remedies[0].gain, late.remedies[0].bound) == (gain, bound)
    assert [e.text for e in late.evidence[1:]] == [
        "4 kernels of 1.5 us on average",
        "4 launches an inference",
    ]
    rate = of_trace(account(copy=20))["transfer-bound"].evidence[1].text
    assert rate == "H2D: 2 copies at 2.0 GB/s"
    all_of_it = of_trace(account(copy=90))["transfer-bound"].remedies[0].gain
    assert all_of_it.value == pytest.approx(10) and traced._without(0.999).value == pytest.approx(50)


def test_a_larger_batch_is_counted_from_the_batch_of_the_run():
    """Eight samples in the time of two would be 400 a second."""
    for rate, sure in ((281, CONFIRMED), (279, LIKELY), (199, POSSIBLE)):
        larger = on_gpu(7.0, rate=rate, batch=8)
        assert looked(gpu, on_gpu(7.0, batch=2), [larger])["launch-bound"].confidence is sure


@pytest.mark.parametrize(("batch", "larger"), [(1, 16), (2, 16), (5, 20)])
def test_the_weights_are_read_once_for_four_times_the_batch_or_the_largest_measured(batch, larger):
    fit = CostOfBatch(1.0, 0.25, (1, 16))
    case: Any = SimpleNamespace(
        batches=fit, trial=SimpleNamespace(batch=batch, precision="int8"), of=lambda _: []
    )
    (remedy,) = network._fewer_bytes(case, 0.5)
    each, then = ((1 + 0.25 * n) / n for n in (batch, larger))
    assert remedy.change == {"batch": larger} and remedy.gain.value == pytest.approx(each / then)
    none: Any = SimpleNamespace(**(vars(case) | {"batches": CostOfBatch(0.0, 0.0, (1, 16))}))
    assert list(network._fewer_bytes(none, 0.5)) == []


@pytest.mark.parametrize(
    ("missing", "found"), [((), True), (("latency_p50_s",), False), (("throughput_sps",), False)]
)
def test_a_load_is_the_limit_where_both_times_are_known(missing, found):
    made = world(rate=10.0, scenario="server", of={"latency_p50_s": 0.05})
    made = replace(made, trial=replace(made.trial, rate=10.0))
    without = replace(made, metrics={k: v for k, v in made.metrics.items() if k not in missing})
    assert ("offered load" in looked(machine, without)) is found


def waiting(run_wait: float, used: float, share: float = 0.4, **keys: Any) -> Finding | None:
    figures = {"run_wait_share": run_wait}
    of: Any = SimpleNamespace(
        cores_used=used, overlapped=False, trial=SimpleNamespace(place=place("cpu")), figure=figures.get,
        asleep=lambda _: None, result=SimpleNamespace(metrics={}), usage=None, cores=1.0,
    )  # fmt: skip
    return stages._why(of, Part("decode", 0.1, 1), share)


def test_a_part_that_neither_runs_nor_is_ready_to_stalls(monkeypatch):
    monkeypatch.setattr(stages, "_stalled", lambda case, part, share, off, of="": (share, off, of))
    said: Any = waiting
    assert said(0.0, 0.65, 0.35) == (0.35, pytest.approx(0.35), "")
    assert said(0.0, 0.66, 0.35) is None, "a third of the time"
    assert said(0.0, 0.5, 0.8) == (0.5, 0.5, "") and said(0.0, 0.5, 0.9) is None
    assert said(0.5, 0.25) == (0.4, 0.5, "") and said(0.5, 0.5) is None and said(0.5, 0.9) is None
    assert said(1.0, 0.004) == (0.4, pytest.approx(0.6), ""), "at most 99 % of the time is ready to run"


@pytest.mark.parametrize(
    ("predicted", "bound", "holds"),
    [
        (1.2, Bound.NONE, True),
        (1.21, Bound.NONE, False),
        (0.8, Bound.NONE, True),
        (0.79, Bound.NONE, False),
        (FASTER, Bound.LEAST, True),
        (FASTER + 0.001, Bound.LEAST, False),
        (0.1, Bound.LEAST, True),
        (1 / FASTER, Bound.MOST, True),
        (1 / FASTER - 0.001, Bound.MOST, False),
        (9.0, Bound.MOST, True),
    ],
)
def test_a_gain_holds_within_a_fifth_or_its_bound(predicted, bound, holds):
    told = Measured(predicted, "ratio")
    remedy = Remedy("x", {}, told, "y", bound)
    assert Check(remedy, told, Measured(1.0, "ratio")).holds is holds
    assert Check(remedy, told, Absent("x")).holds is None is Check(remedy, Absent("x"), told).holds
    assert Check(None, told, Measured(1.0, "ratio")).holds is (abs(predicted - 1) <= 0.2)


def test_a_device_whose_memory_nobody_read_is_not_found_short_of_it():
    assert "memory-bound" not in looked(gpu, on_gpu(compute=8.0))
    few = on_gpu(compute=8.0, params=12_000_000)  # 48 MB at 10 GB/s are 4.8 of 10 ms
    assert "memory-bound" not in looked(gpu, few, (), ceilings("cuda", fp32=1e15))
    more = on_gpu(compute=8.0, params=12_600_000)
    found = looked(gpu, more, (), ceilings("cuda", fp32=1e15))["memory-bound"]
    assert found.share == pytest.approx(0.504 * 0.8, rel=1e-3) and against(found) == [False]


@pytest.mark.parametrize(
    ("special", "general", "says"),
    [
        (("x", 2, 0.48), ("x", 1, 0.8), True),
        (("x", 2, 0.47), ("x", 1, 0.8), False),
        (("x", 1, 0.9), ("x", 1, 0.8), False),
        (("x", 2, 0.9), ("y", 1, 0.8), False),
        (("", 2, 0.9), ("", 1, 0.8), False),
        (("x", 2, 0.9), ("", 1, 0.8), False),
    ],
)
def test_why_a_part_is_slow_is_said_by_a_deeper_finding_of_its_own(special, general, says):
    one, other = (finding("a", share, part=part, depth=depth) for part, depth, share in (special, general))
    assert _says_why(one, other) is says


def test_each_thread_of_a_stage_is_at_work_for_its_part_of_a_unit():
    case: Any = SimpleNamespace(
        result=SimpleNamespace(metrics={}), overlapped=True, unit_s=0.04, parts=(), cores=4.0,
        alone_s=lambda p: p.seconds,
    )  # fmt: skip
    for count, words in (
        (1, "at work 50% of the time:"),
        (2, "at work 25% of the time in each of 2 threads:"),
    ):
        part = Part("decode", 0.02, count)
        case.parts = (part, Part("infer", 0.03))
        share, (told,), sure = stages._share(case, part)
        assert words in told.text and (share, sure) == (0.0, POSSIBLE)


def test_what_was_tried_elsewhere_or_failed_is_passed_over_wherever_it_stands():
    base, more = world(), world(rate=200, batch=2)
    elsewhere = replace(more, machine=Machine({"cpu": "another"}, {}))
    failed = replace(more, status=Status.OOM)
    (tried,) = interventions(base, [elsewhere, failed, more])
    assert (tried.setting, tried.before, tried.after, tried.ratio.value) == ("batch", 1, 2, pytest.approx(2))
    assert not interventions(base, [elsewhere, failed])


def test_the_slowest_stage_is_so_by_its_threads_together():
    parts = (Part("decode", 0.3, threads=4), Part("infer", 0.2), Part("postprocess", 0.1))
    assert slowest(SimpleNamespace(parts=parts)).name == "infer"
    assert slowest(SimpleNamespace(parts=())) is None


@pytest.mark.parametrize(
    ("warm", "in_flight", "busy"), [(0.02, 1, 0.02), (0.09, 1, 0.06), (0.09, 2, 0.09), (0.02, 2, 0.02)]
)
def test_without_a_pause_one_query_at_a_time_takes_no_longer_than_with_one(
    monkeypatch, warm, in_flight, busy
):
    monkeypatch.setattr(Case, "back_to_back_s", warm)
    made = world(scenario="fixed_rate", rate=10.0, in_flight=in_flight, of={"latency_p50_s": 0.06})
    said = looked(machine, made)["offered load"]
    assert said.share == pytest.approx(1 - 0.06 / (0.1 * in_flight))
    assert said.remedies[0].gain.value == pytest.approx(0.1 / busy * in_flight)
    assert said.remedies[0].bound is Bound.NONE and len(said.evidence) == 2


def test_engines_that_the_store_holds_are_remedies_where_they_gain_a_tenth():
    one, two = batches(5.0, 5.0, 1, 2, params=0)
    fast, same = (
        world(rate=rate, backend=name, threads=4, own=1.0, params=0, of={"cores_used": 4.0})
        for rate, name in ((200.0, "openvino"), (109.0, "onnxruntime"))
    )
    said = looked(network, one, [two, fast, same], ceilings("cpu"))["launch-bound"]
    (engine,) = [r for r in said.remedies if r.words == "--backend openvino"]
    assert engine.change == {"backend": "openvino"} and engine.gain.value == pytest.approx(2.0)
    assert not any("onnxruntime" in r.words and r.change for r in said.remedies)


def test_narrower_and_quicker_precisions_that_were_tried_have_their_measured_gain():
    heavy, two = batches(6.0, 4.0, 1, 2, params=20_000_000)
    tried = world(rate=150.0, precision="bf16", threads=4, own=1.0, params=20_000_000, of={"cores_used": 4.0})
    said = looked(network, heavy, [two, tried], ceilings("cpu", fp32=1e15))["memory-bound"]
    (bf16,) = [r for r in said.remedies if r.change == {"precision": "bf16"}]
    assert bf16.gain.value == pytest.approx(1.5) and bf16.basis.startswith("measured: ")
    busy, more = batches(1.0, 9.0, 1, 2, macs=45_100_000)
    other = world(rate=150.0, precision="bf16", threads=4, own=1.0, params=1000, of={"cores_used": 4.0})
    said = looked(network, busy, [more, other], ceilings("cpu", fp32=2e10, bf16=4e10))["compute-bound"]
    (bf16,) = [r for r in said.remedies if r.change == {"precision": "bf16"}]
    assert bf16.gain.value == pytest.approx(1.5) and bf16.basis.startswith("measured: ")


@pytest.mark.parametrize(
    ("precision", "backend", "offered"),
    [
        *(("fp32", "torch_eager", True), ("tf32", "torch_eager", True), ("fp16", "torch_eager", False)),
        *(("bf16", "torch_eager", False), ("fp32", "openvino", False)),
    ],
)
def test_half_of_the_bytes_are_offered_where_the_engine_has_them_and_they_are_not_halved_yet(
    precision, backend, offered
):
    made = on_gpu(active={"dram": 0.6}, precision=precision, backend=backend)
    said = looked(gpu, made)["memory-bound"]
    assert [r.change for r in said.remedies] == [{"precision": "fp16"}] * offered


@pytest.mark.parametrize(
    ("bound", "predicted", "realised", "holds"),
    [
        *((Bound.LEAST, 1.1, 1.0, True), (Bound.LEAST, 1.11, 1.0, False), (Bound.LEAST, 1.0, 3.0, True)),
        *((Bound.MOST, 1.0, 1.09, True), (Bound.MOST, 1.0, 1.12, False), (Bound.MOST, 3.0, 1.0, True)),
        *((Bound.NONE, 1.2, 1.0, True), (Bound.NONE, 1.21, 1.0, False), (Bound.NONE, 0.79, 1.0, False)),
    ],
)
def test_a_gain_is_as_predicted_within_its_bound_and_says_so(bound, predicted, realised, holds):
    remedy = Remedy("more", {"batch": 2}, Measured(predicted, "ratio"), "a model", bound)
    check = Check(remedy, remedy.gain, Measured(realised, "ratio"))
    assert check.holds is holds and ("not as predicted" in check.words) is not holds
    assert Check(remedy, Absent("x"), check.realised).holds is None
    assert Check(None, remedy.gain, check.realised).words.endswith("none was predicted")
    assert Check(remedy, remedy.gain, Absent("it failed")).words == "nothing was checked: it failed"


def pairs_of(*rates: tuple[float, float], **keys: Any) -> list[tuple[Result, Result]]:
    return [
        (world(rate=a, replicate=i), world(rate=b, replicate=i, **keys)) for i, (a, b) in enumerate(rates)
    ]


def test_a_remedy_is_checked_by_pairs_of_runs_with_and_without_it():
    remedy = Remedy("more", {"batch": 2}, Measured(2.0, "ratio"), "a model")
    gain = checked(remedy, pairs_of((100, 200), (100, 210), (100, 190))).realised
    assert isinstance(gain, Measured) and gain.value == pytest.approx(2.0, rel=0.01) and gain.n == 3
    for bad in ([], pairs_of((100, 200), (0, 200)), pairs_of((100, 0))):
        assert checked(remedy, bad).realised == Absent("a run has no throughput")
    ((a, b),) = pairs_of((100, 200))
    failed = checked(remedy, [(a, replace(b, status=Status.OOM))])
    assert isinstance(failed.realised, Absent) and failed.predicted == remedy.gain
    assert b.trial.label in failed.realised.reason and "ended with" in failed.realised.reason


def test_a_diagnosis_is_called_by_its_model_and_variant_or_by_its_trace():
    made = world(model="net#0123456789ab", batch=4)
    assert (
        Diagnosis(made, ()).label == f"net {made.trial.label}"
        and Diagnosis(None, (), trace="a.nsys").label == "a.nsys"
    )
    assert Diagnosis(made, ()).cause == "unknown"
    two = tuple(Finding(name, 0.5, LIKELY, ()) for name in ("quota", "contention"))
    assert Diagnosis(made, two).cause == "quota" and two[0].name == "quota"
    assert replace(two[0], part="annotate").name == "quota (annotate)"
    assert two[0].extent == "50% of the time" and "not known" in replace(two[0], guessed=True).extent


@pytest.mark.parametrize(
    ("setting", "before", "after", "text"),
    [
        ("batch", 1, 8, "batch 1 -> 8: throughput x 3.10"),
        ("workload_options.decode", None, "scaled", "decode unset -> scaled: throughput x 3.10"),
        ("options.graph", False, True, "graph false -> true: throughput x 3.10"),
    ],
)
def test_what_was_tried_in_words(setting, before, after, text):
    tried = Intervention(setting, before, after, Measured(3.1, "ratio"), replace(world(), id="cell-m-0-abc"))
    assert tried.text == text and tried.source == "result abc of the store"
