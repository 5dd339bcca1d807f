"""The card of several workers: a line for each, one percentile for all, bars that compare."""

import numpy as np
import pytest

from edgescope.analysis.run.workers import Rows, joined, shares
from edgescope.records import QUERY_DTYPES, Absent, Measured, Trial, Window, Worker
from edgescope.report import result as card
from making import result, show_card

MS = 1_000_000


def rows(n: int, took_ms: int) -> Rows:
    issued = np.arange(n, dtype=np.int64) * took_ms * MS
    columns = {name: np.zeros(n, dtype) for name, dtype in QUERY_DTYPES.items()}
    columns |= {"issued_ns": issued, "done_ns": issued + took_ms * MS, "samples": np.ones(n, np.int32)}
    columns |= {"scheduled_ns": np.full(n, -1), "query_id": np.arange(n)}
    return Rows(columns, 0, n)


@pytest.fixture
def crowded():
    trial = Trial(model="null", backend="null", processes=2, colocated="squeezenet1_1", sharing="pinned")
    queries, window = joined([rows(200, 2), rows(50, 8), rows(100, 4)], 2, 0, 400 * MS)
    names = ("null", "null", "squeezenet1_1")
    workers = tuple(
        Worker(number=n, model=name, pid=n, cpus=(n,), peak_rss_bytes=Measured(1e8, "bytes"))
        for n, name in enumerate(names)
    )
    metrics = {
        "throughput_sps": Measured(625.0, "samples/s"),
        "throughput_per_process_sps": Measured(312.5, "samples/s"),
        "fairness": Measured(0.735, "1"),
        "start_skew_s": Measured(40e-6, "s"),
        "stop_skew_s": Measured(6e-3, "s"),
        "counter_gap_queries": Measured(1.0, "queries"),
        "latency_p99_worst_worker_s": Absent("n/a: have 50, need 100"),
        "processes_rss_bytes": Measured(2e8, "bytes"),
        "memory_rule_bytes": Measured(12e6, "bytes"),
    }
    return result(trial, queries=queries, window=window, workers=workers, metrics=metrics)


def test_every_worker_has_a_line_and_all_the_same_percentile(crowded, capsys):
    show_card(crowded)
    out = capsys.readouterr().out
    flat = " ".join(out.split())
    assert "workers T/P 312 samples/s fairness 0.735" in flat
    assert "started within 40 us stopped within 6 ms counter agrees" in flat
    assert "peak RSS 200 MB in all P x (model + 2 x batch) is 12 MB" in flat
    (table,) = card.each_worker(crowded)
    rows = [dict(zip([c.title for c in table.columns], row.cells, strict=True)) for row in table.rows]
    assert [row["Worker"] for row in rows] == ["W0", "W1", "W2"] and all("p95 latency" in row for row in rows)
    assert [row["CPU"] for row in rows] == ["0", "1", "2"]
    assert [row["Model"] for row in rows] == ["", "", "squeezenet1_1"]
    assert rows[0]["Share"].count("█") == card.WIDTH and rows[1]["Share"].count("█") == card.WIDTH // 4
    assert "█" not in rows[2]["Share"] and "W2" in out


def test_without_rows_there_are_no_lines_of_workers_but_the_totals(crowded, capsys):
    bare = result(crowded.trial, queries=None, workers=crowded.workers, metrics=crowded.metrics)
    assert shares(bare) == [] and shares(result(window=None)) == []
    show_card(bare)
    out = capsys.readouterr().out
    assert "fairness 0.735" in out and "W0" not in out


def test_a_trial_of_one_process_has_none_of_it():
    assert list(card.workers(result())) == [] == list(card.each_worker(result()))


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, ""), (1.0, "█" * 24), (0.5 + 1 / 48, "█" * 12 + "▌"), (2.0, "█" * 48)]
)
def test_a_bar_is_as_long_as_its_share(value, text):
    assert card.bar(value, 1.0).rstrip() == text


def test_a_window_that_nobody_finished_in_has_no_shares_to_compare(crowded):
    late = result(
        crowded.trial,
        queries=crowded.queries,
        window=Window(0, 0, 10**12, 2 * 10**12),
        workers=crowded.workers,
    )
    assert all(isinstance(s.throughput_sps, Absent) for s in shares(late))
    assert list(card.workers(late))
