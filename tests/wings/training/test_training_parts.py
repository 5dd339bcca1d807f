"""How fast training would be with another loader: the parts of a step by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from edgescope.records import UNIT, Measured, Spans
from edgescope.wings.training import prediction as training
from edgescope.wings.training.prediction import Facts

BASE = Facts(
    samples=16, device=0.01, device_cpu=0.004, work={"read": 0.006, "decode": 0.018}, loader_cpu=0.02,
    from_disk=0.5, workers=2, persistent=True, prefetch=2, cores=4, step=0.02, steps=10, start=0.3, handover=0.001,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "seconds"),
    [
        ({}, 0.0135),  # (24 - 3) / 2 + 3 ms of loading
        ({"workers": 0}, 0.034),
        ({"workers": 1}, 0.024),
        ({"workers": 8}, 0.011),
        ({"workers": 8, "device": 0.001}, 0.006),
        ({"workers": 8, "device": 0.001, "cores": 1}, 0.024),
        ({"workers": 8, "device": 0.001, "cores": 0}, 0.024),
        ({"persistent": False}, 0.0435),
        ({"persistent": False, "steps": 0}, 0.0135),
        ({"work": {"decode": 0.03}}, 0.015),
    ],
)
def test_a_step_takes_as_long_as_the_slowest_of_device_loader_and_cores(change, seconds):
    found = replace(BASE, **change)
    assert found.seconds() == pytest.approx(seconds) and training.rate(found) == pytest.approx(16 / seconds)


def test_what_the_parts_miss_stays_unless_the_change_removes_it():
    after = replace(BASE, workers=8, samples=32)
    missed = (0.02 - 0.0135) * 2
    assert training.gain(BASE, after) == pytest.approx(32 / (0.011 + missed) / (16 / 0.02))
    smooth = replace(after, notes={"smooth": 1.0})
    assert training.gain(BASE, smooth) == pytest.approx(32 / 0.011 / (16 / 0.02))
    quick = replace(BASE, step=0.01)
    assert training.gain(quick, replace(after, step=0.01)) == pytest.approx(32 / 0.011 / (16 / 0.01))


def test_facts_after_a_change():
    assert training.with_workers(BASE, 5) == replace(BASE, workers=5)
    none = replace(BASE, workers=0, persistent=False)
    assert (
        training.with_workers(none, 3).persistent
        and not training.with_workers(replace(BASE, persistent=False), 3).persistent
    )
    decode = training.without(BASE, "decode", 0.25)
    assert (decode.work["decode"], decode.loader_cpu) == pytest.approx((0.0045, 0.02 - 0.0135))
    read = training.without(BASE, "read")
    assert (read.work["read"], read.loader_cpu) == (0.0, 0.02), "reading is no work of a CPU"
    gone = training.without(replace(BASE, loader_cpu=0.001), "decode")
    assert gone.loader_cpu == 0.0 and training.without(BASE, "augment").work["augment"] == 0.0
    moved = training.on_device(BASE, 0.008, 0.004, 32)
    assert (moved.samples, moved.device, moved.device_cpu) == pytest.approx((32, 0.006, 0.002))
    assert moved.work == pytest.approx({"read": 0.012, "decode": 0.036})
    assert (moved.loader_cpu, moved.steps) == (pytest.approx(0.04), 5)
    assert training.on_device(BASE, 0.02, 0.001, 16).device == 1e-9


def spans(*rows: tuple[str, int, int]) -> Spans:
    return Spans.of("phase", [(name, 0, a * 1_000_000, b * 1_000_000) for name, a, b in rows])


STEPS = [(UNIT, 10 * k, 10 * k + 10) for k in range(4)] + [
    ("fetch", 10 * k, 10 * k + n) for k, n in enumerate((8, 2, 2, 4))
]


def run(*rows: tuple[str, int, int], **metrics: float) -> Any:
    figures = {name: Measured(value, "s") for name, value in metrics.items()}
    return SimpleNamespace(spans=spans(*rows), metrics=figures, artifact={})


def test_advice_is_about_the_epochs_after_the_first_or_what_follows_the_first_fetch():
    assert training.steady(run(*STEPS)) == [(8_000_000, 40_000_000)]
    epochs = [("epoch", 0, 20), ("epoch", 20, 40), ("epoch", 40, 60)]
    assert training.steady(run(*STEPS, *epochs)) == [(20_000_000, 40_000_000), (40_000_000, 60_000_000)]
    assert training.steady(run(*STEPS, epochs[0])) == [(8_000_000, 40_000_000)]


def test_the_edges_of_an_epoch_cost_what_its_first_and_last_fetch_take_beyond_the_usual():
    ms = 1_000_000
    found = training._edges(run(*STEPS), [(0, 40 * ms)])
    assert found == pytest.approx((8 - 3) * 1e-3 + 4e-3)
    assert training._edges(run(*STEPS), [(0, 10 * ms)]) == 0.0
    assert training._edges(run(*STEPS), [(0, 20 * ms), (20 * ms, 40 * ms)]) == pytest.approx(
        ((5 + 2) + (0 + 4)) / 2 * 1e-3
    )
    assert training.workers_of(SimpleNamespace(spans=None)) == 0 == training.workers_of(run(*STEPS))


def test_the_share_of_reading_that_waits_for_a_medium():
    rows: list[dict[str, Any]] = [
        {"page_cache_before": 0.25},
        {"page_cache_before": None},
        {"page_cache_before": 0.75},
        {},
    ]
    assert training._from_disk(rows) == pytest.approx(0.5) and training._from_disk([{}]) == 0.0


def test_the_facts_of_a_run_are_means_over_the_steps_that_advice_is_about(monkeypatch):
    """Steps of 10 ms, of which the fetch takes 8, 2, 2 and 4."""
    log = [
        {"end_ns": 1, "batches": 2, "samples": 32, "page_cache_before": 0.0},
        {"end_ns": 2, "batches": 4, "samples": 64, "page_cache_before": 0.25},
        {"end_ns": 0, "batches": 9, "samples": 9},
    ]
    work = [
        (name, 10 * k + 5, 10 * k + 5 + n) for k in range(4) for name, n in (("forward", 1), ("backward", 3))
    ]
    made = run(*STEPS, *work, ("decode", 12, 14), loader_cpu_s=0.002, host_cpu_s=0.005)
    made.artifact = {"log": log, "persistent_workers": True, "prefetch_factor": 3}
    found = training.facts(made, 4)  # from 8 to 40 ms
    assert (found.samples, found.steps, found.workers, found.cores) == (16, 0, 0, 4)
    assert (found.step, found.device, found.start) == pytest.approx((0.032 / 3, (0.032 - 0.008) / 3, 0.004))
    assert (found.device_cpu, found.loader_cpu, found.from_disk) == pytest.approx((0.003, 0.002, 0.75))
    assert found.work == pytest.approx({"decode": 0.002 / 3}) and (found.persistent, found.prefetch) == (
        True,
        3,
    )
    made.spans = spans(*STEPS, *work, ("epoch", 0, 20), ("epoch", 20, 40))
    made.artifact = {"log": log, "loader": {"persistent_workers": False, "prefetch_factor": 0}}
    monkeypatch.setattr(training, "workers_of", lambda _: 2)
    second = training.facts(made, 4)
    assert (second.step, second.device, second.steps) == (pytest.approx(0.01), pytest.approx(0.007), 3)
    assert (second.persistent, second.prefetch, second.device_cpu) == (False, 2, pytest.approx(0.005))
    made.artifact = {"log": log[2:], "loader": {"persistent_workers": True, "prefetch_factor": 5}}
    third = training.facts(made, 4)
    assert (third.samples, third.from_disk, third.prefetch) == (1.0, 0.0, 5), "an epoch that did not end"
    for nothing in (SimpleNamespace(spans=None, artifact={}), run(("fetch", 0, 1))):
        with pytest.raises(ValueError, match="no step"):
            training.facts(nothing, 4)
