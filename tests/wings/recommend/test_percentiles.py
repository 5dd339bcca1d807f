"""A cell's percentiles: one value wherever they are shown, rising along the line."""

from __future__ import annotations

import dataclasses
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from edgescope.analysis.cells import replicates as of
from edgescope.analysis.cells.compare import compare
from edgescope.analysis.cells.concurrency import cells
from edgescope.analysis.cells.objective import FASTEST
from edgescope.analysis.cells.replicates import lacks_rows, percentiles
from edgescope.analysis.cells.variants import table
from edgescope.analysis.run.summary import metrics
from edgescope.records import Absent, Measured, Queries, Trial, Window
from edgescope.wings.recommend.candidates import choices
from making import queries, result


def run(latencies_us: list[int], number: int = 0):
    """A result whose queries took so long one after another, with its metrics as a run stores them."""
    took = np.array(latencies_us, dtype=np.int64) * 1000
    plain = dict(queries(len(took)).columns)
    plain["done_ns"] = np.cumsum(took)
    plain["issued_ns"] = plain["done_ns"] - took
    rows, window = Queries(plain), Window(0, len(took), 0, int(took.sum()))
    trial = Trial(model="m", backend="onnxruntime", replicate=number)
    return result(trial, queries=rows, window=window, metrics=metrics(rows, window))


def rising(found) -> bool:
    values = [f.value for f in found.values() if isinstance(f, Measured)]
    return all(a <= b for a, b in itertools.pairwise(values))


PROCESS = st.lists(st.integers(1, 10**6), min_size=1, max_size=8) | st.integers(1, 10**6).flatmap(
    lambda base: st.integers(100, 140).map(lambda n: [base + 13 * i for i in range(n)])
)


@pytest.mark.slow
@given(st.lists(PROCESS, min_size=1, max_size=4))
def test_percentiles_rise_along_the_line(processes):
    found = percentiles([run(p, i) for i, p in enumerate(processes)])
    assert rising(found)
    for field in found.values():
        if isinstance(field, Measured) and field.hi is not None and field.lo is not None:
            assert field.lo <= field.value <= field.hi


def test_a_pooled_tail_is_not_below_the_mean_of_the_medians():
    fast, slow = run([1000] * 150, 0), run([100_000] * 2, 1)
    found = percentiles([fast, slow])
    assert found["p50_s"].value == pytest.approx(0.0505)
    assert rising(found) and found["p99_s"].value >= 0.0505


def test_each_process_counts_once():
    many, few = run([1000] * 300, 0), run([3000] * 100, 1)
    assert percentiles([many, few])["p50_s"] == Measured(0.002, "s", n=400)
    three = percentiles([many, few, run([2000] * 100, 2)])["p50_s"]
    assert three.value == pytest.approx(0.002) and three.lo < 0.002 < three.hi


def test_one_cell_has_one_value_wherever_it_is_shown():
    results = [run([1000 + 7 * j + 300 * i for j in range(120)], i) for i in range(3)]
    bare = [dataclasses.replace(r, queries=None) for r in results]
    row, sparse = table(results).rows[0], table(bare).rows[0]
    choice = choices(bare, FASTEST)[0][0]
    beside = {r.metric: r.baseline for r in compare(results, results).rows}
    figures = cells(bare)[0].metrics
    for name in ("p50_s", "p99_s"):
        shown = row[name]
        assert isinstance(shown, Measured) and shown == sparse[name]
        assert shown.value == choice[name].value == beside[f"latency_{name}"].value
        assert shown == figures[f"latency_{name}"]
    assert row["throughput_sps"].value == choice["throughput_sps"].value == beside["throughput_sps"].value


def test_what_lacks_rows_is_known_before_they_are_read():
    long, short = [run([1000] * 120, i) for i in range(2)], [run([1000] * 60, i) for i in range(2)]
    assert not lacks_rows(long) and lacks_rows(short) and not lacks_rows(short[:1])
    assert isinstance(percentiles(short)["p99_s"], Measured)  # of both processes' queries
    bare = [dataclasses.replace(r, queries=None) for r in short]
    assert "have 60, need 100" in percentiles(bare)["p99_s"].reason
    assert percentiles([])["p50_s"] == Absent("no replicate finished")
    assert set(of.QUANTILES) == set(percentiles([]))
