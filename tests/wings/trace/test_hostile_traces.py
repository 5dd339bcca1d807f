"""Files that are damaged, incomplete or strange: what can be read is read, and the rest is said."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.kernels.account import account
from edgescope.errors import UsageError
from edgescope.wings.trace import tracers
from edgescope.wings.trace.imported import read
from nsys_files import Export, tid

RECORDED = Path(__file__).parents[2] / "recorded_traces"
NSYS = RECORDED / "nsys_2025_resnet50_h200.sqlite"


def codes(trace):
    return [n.code for n in trace.notes]


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.95])
def test_a_truncated_export_gives_what_is_left_or_says_why(tmp_path, share):
    path = tmp_path / "cut.sqlite"
    data = NSYS.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    try:
        trace = read(path)
    except UsageError as error:
        assert error.code == "E-PROF-1"
        return
    assert "W-PROF-3" in codes(trace) and len(trace.spans)


def test_a_locked_export_is_read(tmp_path):
    path = tmp_path / "locked.sqlite"
    shutil.copy(NSYS, path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert len(read(path).spans) == len(read(NSYS).spans)
    other.close()


def test_a_trace_without_kernels(tmp_path):
    path = Export(tmp_path / "a.sqlite").runtime((0, 10, tid(7), 1, 1), (20, 90, tid(7), 2, 2)).done()
    found = account(read(path))
    assert found.gpus == () and found.launches is None and found.kernels == ()
    with pytest.raises(UsageError, match="E-PROF-1"):
        read(Export(tmp_path / "b.sqlite").done())


@pytest.mark.parametrize(
    ("schema", "meta"), [("9.1.0", "META_DATA_EXPORT"), ("", ""), ("soon", "EXPORT_META_DATA")]
)
def test_an_unknown_schema_is_named_and_read_as_far_as_it_goes(tmp_path, schema, meta):
    path = Export(tmp_path / "a.sqlite", schema, meta).kernels((0, 5, 0, 1, 7, 1, tid(7), 3, None)).done()
    trace = read(path)
    (note,) = trace.notes
    assert note.code == "W-PROF-4" and (schema or "unknown") in note.what
    assert account(trace).kernels[0].name == "void gemm<half>(int)"


def test_columns_that_a_version_lacks_are_left_out(tmp_path):
    path = tmp_path / "a.sqlite"
    export = Export(path, "2.9.1", "EXPORT_META_DATA")
    export.table(
        "CUPTI_ACTIVITY_KIND_KERNEL", "start INTEGER, end INTEGER, shortName INTEGER", (0, 8, 3), (9, 12, 99)
    )
    export.table("OSRT_API", "start INTEGER, end INTEGER, nameId INTEGER", (0, 4, 5)).done()
    trace = read(path)
    assert trace.notes == () and set(trace.spans.names) == {
        "void gemm<half>(int)",
        "(string 99)",
        "名前 kernel é😀",
    }
    assert (trace.spans.columns["stream"] == -1).all()


def test_durations_beyond_32_bits_stay_and_what_ends_before_it_begins_is_left_out(tmp_path):
    long = 6_300_325_739  # one kernel of this length is in a real recording
    rows = [(0, long, 0, 1, 7, 1, tid(7), 3, None), (long + 2**32 - 5, long + 3, 0, 1, 7, 2, tid(7), 3, None)]
    rows += [(long * 9, long, 0, 1, 7, 3, tid(7), 3, None)]
    trace = read(Export(tmp_path / "a.sqlite").kernels(*rows).done())
    length = trace.spans.columns["end_ns"] - trace.spans.columns["start_ns"]
    assert length.tolist() == [long] and codes(trace) == ["W-PROF-2"]
    assert sum(trace.facts["left_out"].values()) == 2, "64 bits do not wrap at 32: nothing is completed"


def test_values_that_are_no_numbers_cost_their_row_only(tmp_path):
    rows = [
        (0, 5, 0, 1, 7, 1, tid(7), 3, None),
        ("x", 5, 0, 1, 7, 1, tid(7), 3, None),
        (9, 12, 0, 1, 7, 2, tid(7), 3, 4),
    ]
    trace = read(Export(tmp_path / "a.sqlite").kernels(*rows).done())
    assert len(trace.spans) == 2 and codes(trace) == ["W-PROF-16"]


def test_repeated_correlation_ids_take_the_last_call_before_the_work(tmp_path):
    export = Export(tmp_path / "a.sqlite")
    export.runtime((0, 10, tid(7), 1, 1), (100, 110, tid(7), 1, 1), (200, 210, tid(7), 1, 1))
    export.kernels((15, 20, 0, 1, 7, 1, tid(7), 3, None), (115, 120, 0, 1, 7, 1, tid(7), 3, None))
    found = account(read(export.done())).launches
    assert found.repeated == 2 and found.queue.quantiles_ns[4] == 5 and found.queue.highest_ns == 5


def test_equal_ids_of_two_processes_are_two_calls(tmp_path):
    export = Export(tmp_path / "a.sqlite")
    export.runtime((0, 10, tid(7), 1, 1), (50, 60, tid(8), 1, 1))
    export.kernels((15, 20, 0, 1, 7, 1, tid(7), 3, None), (63, 70, 1, 1, 7, 1, tid(8), 3, None))
    found = account(read(export.done()))
    assert found.launches.repeated == 0 and found.launches.queue.total_ns == 5 + 3
    assert [g.device for g in found.gpus] == [0, 1] and [g.busy_ns for g in found.gpus] == [5, 7]
    assert found.sharing.blocked_ns == {(7, 8): 0, (8, 7): 0}, "they use different GPUs"


def test_a_cuda_graph_is_one_launch_of_many_kernels(tmp_path):
    export = Export(tmp_path / "a.sqlite").runtime((0, 10, tid(7), 1, 4), (12, 90, tid(7), 2, 2))
    kernels = [(20 + 10 * i, 28 + 10 * i, 0, 1, 7, 1, tid(7), 3, i) for i in range(5)]
    found = account(read(export.kernels(*kernels).done())).launches
    assert (found.graph_launches, found.graph_kernels, found.separable) == (1, 5, False)
    assert found.queue.count == 0 and found.api.count == 1


def test_names_of_every_kind_survive_to_the_export_for_perfetto(tmp_path):
    from edgescope.wings.trace import export

    path = Export(tmp_path / "a.sqlite").kernels((0, 5, 0, 1, 7, 1, tid(7), 5, None)).done()
    export.write_json(read(path), tmp_path / "a.json")
    assert read(tmp_path / "a.json").spans.names == ("名前 kernel é😀",)


@pytest.mark.parametrize("share", [0.3, 0.8, 0.999])
def test_a_truncated_kineto_trace_keeps_its_whole_events(tmp_path, share):
    whole = (RECORDED / "kineto_cpu_torch_2_13.json").read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: int(len(whole) * share)])
    found, every = read(path), read(RECORDED / "kineto_cpu_torch_2_13.json")
    assert 0 < len(found.spans) <= len(every.spans) and "W-PROF-3" in codes(found)
    assert (found.spans.columns["start_ns"] == every.spans.columns["start_ns"][: len(found.spans)]).all()


def test_events_that_lack_what_they_should_have(tmp_path):
    path = tmp_path / "odd.json"
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "ts": 1,
            "dur": 2,
            "pid": "Spans",
            "tid": "x",
            "args": {"stream": "a"},
        },
        {"ph": "X", "cat": "kernel", "name": None, "ts": 5, "args": {}},
        {"ph": "f"},
        {"ph": "X", "cat": "cpu_op", "name": "no time"},
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    trace = read(path)
    assert trace.spans.names == ("k",) and codes(trace) == ["W-PROF-16", "W-PROF-16"]
    assert list(trace.facts["left_out"].values()) == [1, 1], "one without a start, one without a length"
    assert trace.facts["passed_over"] == {"events of phase f": 1}


def test_clocks_that_do_not_overlap_are_said_and_marks_join_them(tmp_path):
    export = Export(tmp_path / "a.sqlite").kernels((0, 5, 0, 1, 7, 1, tid(7), 3, None))
    plain = tracers.aligned(read(export.ranges((0, 4, 59, "work", tid(7), None)).done()))
    assert plain.clock == "its own" and codes(plain) == ["W-PROF-8"]
    export = Export(tmp_path / "b.sqlite").kernels((100, 500, 0, 1, 7, 1, tid(7), 3, None))
    marks = [
        (50, 51, 59, "edgescope clock 1000050", tid(7), None),
        (900, 901, 59, "edgescope clock 1100900", tid(7), None),
    ]
    joined = tracers.aligned(read(export.ranges(*marks).done()))
    assert joined.clock == "monotonic" and codes(joined) == ["W-PROF-9"], "100 us of drift"
    assert joined.spans.columns["start_ns"].tolist() == [100 + 1_050_000] and len(joined.spans) == 1


def test_ranges_without_an_end_and_lone_scheduling_events(tmp_path):
    export = Export(tmp_path / "a.sqlite").ranges(
        (0, None, 59, "open", tid(7), None), (0, 4, 59, None, tid(7), 5)
    )
    columns = "start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER"
    events = [
        (5, 0, 0, tid(7)),
        (10, 0, 1, tid(7)),
        (15, 0, 0, tid(7)),
        (20, 1, 1, tid(7)),
        (22, 1, 0, tid(7)),
        (30, 0, 1, tid(7)),
    ]
    trace = read(export.table("SCHED_EVENTS", columns, *events).done())
    assert codes(trace) == ["W-PROF-5", "W-PROF-6"] and trace.facts["left_out"] == {
        "ranges have no end": 1,
        "scheduling events have no partner": 2,
    }
    (one,) = account(trace).scheduled
    assert (one.switches, one.migrations, one.on_cpu_ns) == (2, 1, 7) and one.off_cpu.total_ns == 5
    assert trace.facts["scheduling"] == {"switches_in": 3, "switches_out": 3}
    assert np.array_equal(trace.spans.of_kind("sched").columns["device"], [0, 1])
