"""From exported times to queries on our clock: arithmetic on made-up and on real rows."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import DeviceError
from edgescope.records import Absent
from edgescope.stats import quantile_metric
from edgescope.wings.tensorrt.trtexec import exports
from edgescope.wings.tensorrt.trtexec import trace as tracing
from edgescope.wings.tensorrt.trtexec.log import Log
from edgescope.wings.tensorrt.trtexec.program import Ran

DATA = Path(__file__).parent / "data"


def ran(start_ns=1_000_000_000, stop_ns=2_000_000_000, *, begins=True):
    lines = [(stop_ns, "[I] Timing trace has 3 queries over 1 s")]
    return Ran(("trtexec",), 0, tuple([(start_ns, "[I] Starting inference")] * begins + lines), None, 1.0)


def times(n=10, *, h2d=1.0, compute=5.0, d2h=0.5, enqueue=0.2, gap=0.1):
    """Rows of a closed loop: enqueue, copy in, compute, copy out, then the next."""
    start = np.arange(n) * (h2d + compute + d2h + gap)
    moments = {
        "start_enq": start + 0.05,
        "end_enq": start + 0.05 + enqueue,
        "start_h2d": start,
        "end_h2d": start + h2d,
        "start_compute": start + h2d,
        "end_compute": start + h2d + compute,
        "start_d2h": start + h2d + compute,
        "end_d2h": start + h2d + compute + d2h,
    }
    sizes = {"h2d": h2d, "compute": compute, "d2h": d2h, "latency": h2d + compute + d2h}
    return {name: np.asarray(column, float) for name, column in moments.items()} | {
        name: np.full(n, size) for name, size in sizes.items()
    }


def trace(given=None, *, transfers=True, **keys):
    given = times() if given is None else given
    return tracing.aligned(ran(**keys), given, warmup_ms=0.0, batch=4, transfers=transfers)


def test_rows_and_window():
    found = tracing.aligned(ran(), times(), warmup_ms=7.0, batch=4)
    c = found.queries.columns
    assert len(found.queries) == 10
    assert (c["samples"] == 4).all()
    assert (c["scheduled_ns"] == -1).all()
    assert (found.window.first, found.window.stop) == (1, 10)  # the second compute starts at 7.6 ms
    assert found.queries.latency_ns() == pytest.approx([6_500_000] * 10, abs=1)
    assert found.window.stop_ns - found.window.start_ns == pytest.approx((8 * 6.6 + 6.5) * 1e6, abs=2)
    assert len(found.measured["compute"]) == 9


@given(st.integers(0, 10**15), st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_true_start_lies_within_the_uncertainty(zero_ns, before_ns, after_ns):
    """The loop starts some time after the first line arrived and ends some time before the last did."""
    given = times()
    last_ns = round(float(given["end_d2h"].max()) * 1e6)
    found = tracing.aligned(
        ran(zero_ns - before_ns, zero_ns + last_ns + after_ns), given, warmup_ms=0.0, batch=1
    )
    assert abs(found.offset_ns - zero_ns) <= found.uncertainty_ns + 1
    assert found.uncertainty_ns <= (before_ns + after_ns) // 2 + 1


def test_a_log_without_its_two_lines_cannot_be_aligned():
    with pytest.raises(DeviceError, match="E-TRTX-12"):
        trace(begins=False)


def test_a_run_that_was_all_warm_up():
    with pytest.raises(DeviceError, match="all within"):
        tracing.aligned(ran(), times(), warmup_ms=1e6, batch=1)


def test_phases_are_medians_in_seconds_with_intervals():
    found = tracing.phases(trace(times(200)), serial=True)
    assert found["gpu_compute_s"].value == pytest.approx(0.005)
    assert found["gpu_compute_s"].lo is not None
    assert found["enqueue_s"].value == pytest.approx(0.0002)
    assert found["device_latency_s"].value == pytest.approx(0.0065)
    assert isinstance(found["phased_latency_s"], Absent)  # a host time, which trtexec does not give
    left_out = tracing.phases(trace(times(200), transfers=False), serial=False)
    assert isinstance(left_out["h2d_s"], Absent)
    assert isinstance(left_out["d2h_s"], Absent)


@pytest.mark.parametrize("transfers", [True, False])
def test_a_phase_of_the_marks_is_that_of_the_exported_lengths(transfers):
    """Real rows: their moments are printed to 0.01 ms, and the marks of a phase keep the digits of its length."""
    given = exports.times(DATA / "times_10.json")
    found = tracing.aligned(ran(), given, warmup_ms=0.0, batch=1, transfers=transfers)
    lengths = {"enqueue": given["end_enq"] - given["start_enq"], "gpu_compute": given["compute"]}
    lengths |= {"h2d": given["h2d"], "d2h": given["d2h"]} if transfers else {}
    rows = found.queries.rows(found.window)
    assert set(rows.marks) == {f"{name}_{at}" for name in lengths for at in ("begin", "end")}
    phases = tracing.phases(found, serial=False)
    for name, ms in lengths.items():
        kept = ms[found.window.first :]
        took = rows.marks[f"{name}_end"] - rows.marks[f"{name}_begin"]
        assert took == pytest.approx(kept * 1e6, abs=0.51)
        before = quantile_metric(kept / 1e3, 0.5)
        assert phases[f"{name}_s"].n == before.n
        assert phases[f"{name}_s"].value == pytest.approx(before.value, abs=1e-9)
    starts = (rows.marks["gpu_compute_begin"] - found.offset_ns) / 1e6
    assert starts == pytest.approx(given["start_compute"][found.window.first :])


def test_the_period_has_the_hosts_work_in_it_where_queries_do_not_overlap():
    """Half a millisecond between one query's end and the next one's start is in no latency."""
    given = trace(times(200, gap=0.5))
    assert np.median(given.queries.latency_ns()) == pytest.approx(6_500_000, abs=1)
    found = tracing.phases(given, serial=True)
    assert found["query_period_s"].value == pytest.approx(0.007)
    assert isinstance(tracing.phases(given, serial=False)["query_period_s"], Absent)


def codes(given, *, transfers=True, qps=None):
    found = trace(given)
    lasted = given["end_d2h"][-1] - given["start_h2d"][0]
    told = Log(totals={"throughput_qps": qps or len(given["compute"]) / lasted * 1e3})
    said = tracing.warnings(found, told, transfers=transfers, graph=False)
    return [text.code for text in said]


def test_a_quiet_run_gives_no_warning():
    assert codes(times()) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"enqueue": 4.1}, "W-TRTX-1"),
        ({"h2d": 5.0}, "W-TRTX-2"),
        ({"d2h": 5.0}, "W-TRTX-2"),
    ],
)
def test_trtexecs_self_checks_at_their_thresholds(changes, code):
    assert codes(times(**changes)) == [code]
    just_below = {name: value * 0.97 for name, value in changes.items()}
    assert codes(times(**just_below)) == []


def test_transfers_that_were_left_out_bind_nothing():
    assert codes(times(h2d=5.0), transfers=False) == []


def test_an_unstable_clock():
    given = times()
    given["compute"] = given["compute"] * (1 + 0.03 * (-1.0) ** np.arange(10))
    assert codes(given) == ["W-TRTX-3"]
    given["compute"] = 5.0 * (1 + 0.02 * (-1.0) ** np.arange(10))
    assert codes(given) == []


def test_another_throughput_than_the_printed_one():
    assert codes(times(), qps=100.0) == ["W-TRTX-5"]


def test_real_rows_a_query_waits_for_the_one_before_it():
    """TensorRT 10 by its own defaults: it runs ahead, so issue to done is longer than its printed latency."""
    given = exports.times(DATA / "times_10.json")
    found = tracing.aligned(ran(), given, warmup_ms=0.0, batch=1)
    ours = np.median(found.queries.latency_ns()) / 1e6
    assert np.median(given["latency"]) == pytest.approx(0.277, abs=0.002)
    assert ours > 1.4 * np.median(given["latency"])
    assert found.resolution_ms == pytest.approx(0.01)
    said = tracing.warnings(found, Log(totals={"throughput_qps": 3580.0}), transfers=False, graph=True)
    assert [text.code for text in said] == ["W-TRTX-4"]
