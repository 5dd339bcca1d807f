"""The card of several workers: a line for each, one percentile for all, bars that compare."""

import numpy as np
import pytest

from edgescope.analysis.run.workers import Rows, joined, shares
from edgescope.cli import card, crowd_view
from edgescope.records import QUERY_DTYPES, Absent, Measured, Trial, Window, Worker
from making import result

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
    card.show(crowded)
    out = capsys.readouterr().out
    together = next(line for line in out.splitlines() if "together" in line)
    assert "T/P 312 samples/s   fairness 0.735" in together
    assert "started within 40 us   stopped within 6 ms   counter agrees" in together
    lines = [line for line in out.splitlines() if " W" in line and "samples/s" in line]
    assert [line.split()[-1] for line in lines] == ["0", "1", "squeezenet1_1"]
    assert lines[0].count("█") == crowd_view.WIDTH and lines[1].count("█") == crowd_view.WIDTH // 4
    assert "█" not in lines[2] and all("p95 " in line for line in lines)
    assert "peak RSS 200 MB in all   P x (model + 2 x batch) is 12 MB" in out


def test_without_rows_there_are_no_lines_of_workers_but_the_totals(crowded, capsys):
    bare = result(crowded.trial, queries=None, workers=crowded.workers, metrics=crowded.metrics)
    assert shares(bare) == [] and shares(result(window=None)) == []
    card.show(bare)
    out = capsys.readouterr().out
    assert "fairness 0.735" in out and "W0" not in out


def test_a_trial_of_one_process_has_none_of_it():
    assert crowd_view.lines(result()) == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, ""), (1.0, "█" * 24), (0.5 + 1 / 48, "█" * 12 + "▌"), (2.0, "█" * 48)]
)
def test_a_bar_is_as_long_as_its_share(value, text):
    assert crowd_view.bar(value, 1.0).rstrip() == text


def test_a_window_that_nobody_finished_in_has_no_shares_to_compare(crowded):
    late = result(
        crowded.trial,
        queries=crowded.queries,
        window=Window(0, 0, 10**12, 2 * 10**12),
        workers=crowded.workers,
    )
    assert all(isinstance(s.throughput_sps, Absent) for s in shares(late))
    assert crowd_view.lines(late)
