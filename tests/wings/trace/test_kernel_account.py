"""The account of traces whose truth is known: two processes that take turns, threads that lose the CPU, growth."""

from dataclasses import astuple
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.analysis.finding import Bound
from edgescope.analysis.kernels.account import account, metrics, of_trace, trace_of
from edgescope.errors import UsageError
from edgescope.records import SPAN_KINDS, Spans, Trace
from edgescope.report.document import Table
from edgescope.wings.trace import page as report
from edgescope.wings.trace.verb import Traced, _level, growth

US = 1000
FIELDS = ("kind", "name", "start_ns", "end_ns", "process", "thread", "device", "stream", "correlation")


def trace(*rows, **facts):
    """Rows of (kind, name, start us, end us, process, device, correlation); a thread is its process."""
    names = list(dict.fromkeys(r[1] for r in rows))
    columns = {
        "kind": [SPAN_KINDS.index(r[0]) for r in rows],
        "name": [names.index(r[1]) for r in rows],
        "start_ns": [round(r[2] * US) for r in rows],
        "end_ns": [round(r[3] * US) for r in rows],
        "process": [r[4] for r in rows],
        "thread": [r[4] if r[0] not in ("kernel", "copy") else -1 for r in rows],
        "device": [r[5] for r in rows],
        "correlation": [r[6] for r in rows],
        "stream": [7 if r[0] in ("kernel", "copy") else -1 for r in rows],
    }
    return Trace(
        Spans.from_columns(names, {k: np.array(v, "int64") for k, v in columns.items()}), "made", facts=facts
    )


def query(process, at, kernel, *, ec=10, wait=None, correlation=1):
    """One query: a launch of 4 us after `ec` - 4 us of own work, a kernel (start, end), a wait until its end."""
    end = wait or kernel[1] + 2
    return (
        ("range", "infer", at, end, process, -1, -1),
        ("api", "cudaLaunchKernel", at + ec - 4, at + ec, process, -1, correlation),
        ("kernel", "gemm", *kernel, process, 0, correlation),
        ("sync", "cudaStreamSynchronize", at + ec, end, process, -1, correlation + 10_000),
    )


def test_one_query_alone():
    found = account(trace(*query(1, 0, (12, 30))))
    parts = {k: v.tolist() for k, v in found.budget.parts.items()}
    assert parts == {
        "launch": [4 * US],
        "rescheduled": [0],
        "blocked": [0],
        "compute": [6 * US],
        "wait_compute": [18 * US],
        "wait_blocked": [0],
        "wait_idle": [4 * US],
    }
    assert found.launches.queue.total_ns == 2 * US and found.launches.total.total_ns == 24 * US
    assert found.budget.closure == 1.0


def test_calls_are_counted_in_their_inference():
    first, second = query(1, 0, (12, 30)), query(1, 100, (112, 130), correlation=2)
    more = ("api", "cudaLaunchKernel", 103, 104, 1, -1, 3), ("kernel", "gemm", 131, 132, 1, 0, 3)
    other = ("sync", "cudaStreamSynchronize", 50, 60, 1, -1, 9)  # between both
    found = account(trace(*first, *second, *more, other)).budget
    assert (found.launches.tolist(), found.syncs.tolist()) == ([1, 2], [1, 1])


def test_whose_kernel_held_up_whom():
    one, two = query(1, 0, (12, 30)), query(2, 0, (30, 50))
    found = account(trace(*one, *two))
    assert found.sharing.blocked_ns == {(1, 2): 0, (2, 1): 18 * US}, (
        "2 launched at 10, and 1's work ran from 12 to 30"
    )
    assert [(t.process, t.turns) for t in found.sharing.turns] == [(1, 1), (2, 1)]
    assert found.sharing.overlapped_ns == 0
    second = found.budget.of_process(2)
    assert second.parts["wait_blocked"].tolist() == [18 * US] and second.parts["wait_compute"].tolist() == [
        20 * US
    ]
    assert found.launches.blocked.count == 1 and found.launches.blocked.total_ns == 18 * US
    assert (found.budget.total == found.inferences.end - found.inferences.start).all()


def test_work_that_runs_at_once_is_sharing_and_no_turn_of_time():
    found = account(trace(*query(1, 0, (12, 30)), *query(2, 0, (20, 50))))
    assert found.sharing.overlapped_ns == 10 * US


def test_time_off_the_cpu_is_taken_from_where_it_was_lost():
    on = (("sched", "on a CPU", 0, 2, 1, 0, -1), ("sched", "on a CPU", 5, 32, 1, 1, -1))
    found = account(trace(*query(1, 0, (12, 30)), *on))
    assert found.budget.scheduled and found.budget.parts["rescheduled"].tolist() == [3 * US]
    assert found.budget.parts["compute"].tolist() == [3 * US]
    assert (found.scheduled[0].switches, found.scheduled[0].migrations) == (2, 1)


def test_inferences_are_the_outer_ranges_else_what_lies_between_waits():
    rows = [*query(1, 0, (12, 30)), *query(1, 40, (52, 70), correlation=2)]
    inner = [("range", "layer", at, at + 1, 1, -1, -1) for at in (1, 3, 5, 41, 43)]
    marks = [("range", f"edgescope clock {i}", 80 + i, 80.5 + i, 1, -1, -1) for i in range(5)]
    found = account(trace(*rows, *inner, *marks))
    assert found.inferences.how == "ranges called 'infer'" and len(found.inferences) == 2
    assert len(account(trace(*rows, *inner), "layer").inferences) == 5
    with pytest.raises(UsageError, match="--range 'infer'"):
        account(trace(*rows), "infre")
    bare = account(trace(*(r for r in rows if r[0] != "range")))
    assert bare.inferences.start.tolist() == [32 * US] and bare.inferences.end.tolist() == [72 * US]


def test_growth_finds_the_onset_of_preemption():
    def level(processes, ec):
        rng = np.random.default_rng(processes)
        rows = []
        for p in range(processes):
            for i in range(20):
                at = i * 500
                spent = ec * rng.uniform(0.9, 1.1)
                rows += query(p + 1, at, (at + spent + 2, at + spent + 12), ec=spent, correlation=i)
        return account(trace(*rows, cpu_cores=6))

    series = [(f"p{p}", level(p, ec)) for p, ec in ((4, 60), (1, 10), (2, 11), (8, 200))]
    found = growth(series)
    assert [x.processes for x in found.levels] == [1, 2, 4, 8] and found.onset == 4 and found.cores == 6
    assert growth(series[1:3]).onset is None
    assert {x.off_cpu for x in found.levels} == {None}, "what a trace does not tell is missing, not -1"
    assert series[0][1].operating is None


def test_a_gap_is_the_hosts_or_the_launchs_fault():
    rows = (
        ("api", "cudaLaunchKernel", 0, 4, 1, -1, 1),
        ("kernel", "a", 10, 20, 1, 0, 1),
        ("api", "cudaLaunchKernel", 26, 30, 1, -1, 2),
        ("kernel", "b", 40, 50, 1, 0, 2),
        ("kernel", "c", 60, 70, 1, 0, 99),
    )
    (gpu,) = account(trace(*rows)).gpus
    assert (gpu.idle_host_ns, gpu.idle_launch_ns, gpu.idle_unknown_ns) == (6 * US, 14 * US, 10 * US)
    assert gpu.busy_ns == 30 * US and gpu.span_ns == 60 * US


def test_a_traced_result_has_the_metrics_of_its_window():
    from dataclasses import replace

    from edgescope.records import Absent, Machine, Measured, Trial
    from making import result

    plain = result(Trial(model="null", backend="null"))
    assert metrics(plain) == {} and trace_of(plain) is None
    c = plain.queries.rows(plain.window).columns
    at = int(c["issued_ns"][0]) / US
    spans = trace(*(r for r in query(1, at, (at + 12, at + 30)) if r[0] != "range")).spans
    traced = replace(plain, trial=replace(plain.trial, tracer="cupti"), spans=spans)
    found = metrics(traced)
    assert isinstance(found["ec_s"], Measured) and found["launch_s"].value == pytest.approx(4e-6)
    whole = account(trace_of(traced))
    assert len(whole.inferences) == len(c["issued_ns"]) and whole.trace.clock == "monotonic"
    assert whole.trace.facts == {"cpu_cores": 2}
    early = Spans.joined([spans, spans.moved(-traced.window.stop_ns)])
    assert len(trace_of(replace(traced, spans=early)).spans) == len(whole.trace.spans)
    assert trace_of(replace(traced, machine=Machine({}, {}))).facts == {}
    host_only = replace(traced, spans=spans.of_kind("range"))
    assert isinstance(metrics(host_only)["ec_s"], Absent)


def test_layers_that_an_engine_gives_no_times_of_are_means_of_an_inference():
    from dataclasses import replace

    from edgescope.records import Trial
    from making import result

    plain = result(Trial(model="null", backend="null", tracer="engine"))
    spans = trace(("op", "Conv a", 0, 30, -1, -1, -1), ("op", "Pool b", 30, 40, -1, -1, -1)).spans
    found = trace_of(replace(plain, spans=spans))
    assert [note.code for note in found.notes] == ["I-PROF-2"]
    one = account(found)
    times = [(n.name, n.count, n.total_ns, n.spread_ns, n.inferences) for n in one.operators]
    assert times == [("Conv a", 1, 30 * US, None, None), ("Pool b", 1, 10 * US, None, None)]
    assert one.operating is None, "what is laid out by hand says nothing of when it ran"
    assert len(one.inferences) == len(plain.queries.rows(plain.window).columns["issued_ns"])
    timed = trace(("op", "Conv a", 7, 30, -1, -1, -1)).spans
    assert not trace_of(replace(plain, spans=timed.moved(plain.window.start_ns))).notes


def test_a_trace_of_copies_alone_or_of_kernels_without_length_has_an_account():
    copies = account(trace(("copy", "H2D", 0, 50, 1, 0, 1)))
    (found,) = of_trace(copies, "copies").findings
    assert found.cause == "transfer-bound" and found.share == 1.0
    assert found.remedies[0].gain.value == pytest.approx(50) and found.remedies[0].bound is Bound.MOST
    assert report.document(Traced((("nothing", account(trace(("kernel", "k", 5, 5, 1, 0, 1)))),)))


def test_inferences_that_overlap_are_not_said_to_leave_a_rest():
    both = account(trace(*query(1, 0, (12, 30)), *query(1, 16, (30, 46), correlation=2)))
    assert both.budget.closure > 1
    (line,) = (x for x in report._lines(both) if "wall time" in x)
    assert line.endswith("they overlap")


def test_an_operator_bears_the_models_layer_where_it_is_known():
    rows = ("op", "Conv relu_nchwc", 0, 30, 1, -1, -1), ("op", "ReorderOutput x", 30, 40, 1, -1, -1)
    found = account(trace(*rows, layers={"Conv relu_nchwc": "features.0"}))
    (table,) = (part for part in report._account(found) if isinstance(part, Table))
    assert [c.title for c in table.columns[:2]] == ["name", "layer"]
    assert [row.cells[1] for row in table.rows] == ["features.0", None]
    assert any("Conv relu_nchwc (features.0)" in line for line in report._lines(found))
    (plain,) = (part for part in report._account(account(trace(*rows))) if isinstance(part, Table))
    assert "layer" not in [c.title for c in plain.columns]


@pytest.mark.parametrize(
    ("launches", "median"),
    [
        (None, None),
        (SimpleNamespace(api=SimpleNamespace(count=0, quantile_ns=lambda q: 7.0)), None),
        (SimpleNamespace(api=SimpleNamespace(count=3, quantile_ns=lambda q: 14.0 * q)), 7.0),
    ],
)
@pytest.mark.parametrize(("scheduled", "off"), [(True, 0.25), (False, None)])
def test_a_level_has_the_medians_of_its_inferences(launches, median, scheduled, off):
    of = SimpleNamespace(
        ec=np.array([10, 20, 50]),
        cs=np.array([1, 2, 6]),
        total=np.array([11, 22, 56]),
        inferences=SimpleNamespace(process=np.array([4, 4, 9])),
        parts={"rescheduled": np.array([5, 5, 10])},
        scheduled=scheduled,
    )
    gpus = (SimpleNamespace(busy=0.2), SimpleNamespace(busy=0.6))
    found = _level("x", SimpleNamespace(launches=launches, gpus=gpus), of)
    assert astuple(found) == ("x", 2, 20.0, 2.0, 22.0, median, off, pytest.approx(0.4))
    assert _level("x", SimpleNamespace(launches=launches, gpus=()), of).busy is None
