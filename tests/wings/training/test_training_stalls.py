"""Where an epoch's time goes: parts add up, a planted stall is found where it was planted, hidden work is hidden."""

import time
from functools import partial

import numpy as np
import pytest

import planted_stalls
from edgescope import bench
from edgescope.isolate import fresh
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.wings.training import epochs, medium
from edgescope.wings.training.loop import Loop
from photo_folders import photographs

in_this_process = partial(bench.run, hz=0)
LONG = {"warmup": 0, "min_s": 60, "max_s": 60}


def run(model, batch=1, *, where=in_this_process, **options):
    asked = Trial(
        model=model, workload="training", batch=batch, workload_options={"epochs": 2} | options, **LONG
    )
    result = where(asked)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    return result


def per_step(result, name):
    return result.metrics[name].value


@pytest.mark.parametrize("slow", ["read", "decode", "augment", "item", "collate", "step"])
@pytest.mark.slow
def test_a_planted_stall_is_found_where_it_was_planted_and_nowhere_else(slow):
    result = run(f"planted_stalls:{slow}")
    (_, start, _), (_, _, end) = epochs.bounds(result.spans)
    slept = (
        sum(b - a for a, b in planted_stalls.SLEPT if start <= a < end) * 1e-9 / result.metrics["fetch_s"].n
    )
    where = "forward_s" if slow == "step" else f"stall_{slow}_s"
    found = per_step(result, where)
    if slow == "step":  # the median, as the sums of the step share the machine with its neighbours
        found = float(np.median(result.spans.durations_ns("forward"))) * 1e-9
    assert found == pytest.approx(slept, rel=0.05)
    others = {"forward_s", *(f"stall_{s}_s" for s in epochs.STAGES)} - {where}
    assert all(per_step(result, name) < 0.5 * slept for name in others)


@pytest.mark.slow
def test_the_parts_add_up_to_each_epoch():
    result = run("planted_stalls:step", epochs=5)
    shares = []
    for number, start, end in epochs.bounds(result.spans):
        found = epochs.anatomy(result.spans, start, end)
        shares.append(sum(found.parts[name] for name in epochs.PARTS) / found.wall)
        assert sum(found.stall.values()) == pytest.approx(found.parts["fetch"]) and found.steps == 5
        row = result.artifact["log"][number]
        assert found.wall == pytest.approx((row["end_ns"] - row["start_ns"]) * 1e-9)
    assert np.median(shares) == pytest.approx(1.0, abs=0.02)  # a neighbour may take the core in one of them


@pytest.mark.slow
def test_every_stage_of_photographs_is_timed():
    result = run("lenet5", batch=8, images=str(photographs()))
    assert all(result.metrics[f"{name}_s"].value > 0 for name in ("read", "decode", "augment", "collate"))


@pytest.mark.slow
def test_what_the_loader_does_behind_the_steps_is_hidden():
    shown, hidden = (
        run("planted_stalls:read"),
        run("planted_stalls:hidden", where=fresh.run, prefetch_factor=4),
    )
    assert shown.metrics["loader_hidden_share"].value < 0.05
    assert hidden.metrics["loader_hidden_share"].value > 0.4
    assert per_step(hidden, "read_s") == pytest.approx(per_step(shown, "read_s"), rel=0.2)
    assert per_step(hidden, "stall_read_s") < 0.6 * per_step(shown, "stall_read_s")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "where"), [("spins", in_this_process), ("spins_in_worker", fresh.run)])
def test_the_cpu_time_of_loading_is_that_of_its_items_in_whichever_process(model, where, monkeypatch):
    """A loader with workers runs apart: PyTorch's signal handler raises in whatever the main thread does."""
    monkeypatch.setenv(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # a thread that spins while it waits is CPU time of the step
    result = run(f"planted_stalls:{model}", where=where)
    loader, host = per_step(result, "loader_cpu_s"), per_step(result, "host_cpu_s")
    planted = planted_stalls.SPIN_S * planted_stalls.BATCH  # joining items takes longer beside other work
    assert 0.8 * planted < loader < 2 * planted
    assert (host > 0.5 * planted) == (model == "spins")


@pytest.mark.slow
def test_what_begins_an_epoch_is_no_part_of_the_cpu_time_of_steps(monkeypatch):
    begin = Loop._begin

    def slowly(self):
        time.sleep(0.5)  # as where the page cache is filled
        begin(self)

    monkeypatch.setattr(Loop, "_begin", slowly)
    planted = planted_stalls.SPIN_S * planted_stalls.BATCH
    assert per_step(run("planted_stalls:spins"), "host_cpu_s") > 0.8 * planted


@pytest.mark.slow
def test_minibatches_without_a_loader_are_measured_without_stages():
    result = run("planted_stalls:generator")
    assert isinstance(result.metrics["loader_hidden_share"], Absent) and "read_s" not in result.metrics
    assert isinstance(result.metrics["loader_cpu_s"], Absent)
    assert isinstance(result.metrics["fetch_s"], Measured) and result.metrics["epochs"].value == 2


@pytest.mark.slow
def test_a_cold_page_cache_is_read_from_the_disk_in_the_first_epoch_alone():
    folder = photographs()
    files = sorted(folder.rglob("*.jpg"))
    if medium.residency(files[:1]) is None or not _drops(files):
        pytest.skip("this file system keeps its pages")
    result = run("lenet5", batch=8, images=str(folder), page_cache="cold")
    first, second = result.artifact["log"]
    assert first["page_cache_before"] < 0.1 < 0.9 < second["page_cache_before"]
    assert first["disk_bytes"] >= sum(f.stat().st_size for f in files) > second["disk_bytes"]
    assert result.metrics["medium_read_bytes_s"].value > 1e6


def _drops(files):
    medium.drop(files)
    return medium.residency(files) < 0.1


@pytest.mark.slow
def test_a_slow_medium_is_slow_only_for_what_the_page_cache_lacks():
    options = {"images": str(photographs()), "medium": "hdd", "page_cache": "cold"}
    result = run("lenet5", batch=8, **options)
    first, second = epochs.bounds(result.spans)
    cold, warm = (epochs.anatomy(result.spans, a, b).stall["read"] for _, a, b in (first, second))
    assert cold > 0.9 * 24 * 0.012 and warm < 0.5 * cold  # a busy machine adds to both
