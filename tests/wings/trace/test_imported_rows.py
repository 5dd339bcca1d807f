"""Small files of each format with every column of every row written down: what is read is that, and nothing else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.records import SPAN_DTYPES, SPAN_KINDS, Spans, Trace
from edgescope.wings.trace import export as trace_export
from edgescope.wings.trace import imported as base
from edgescope.wings.trace.imported import (
    ImportedFile,
    Salvage,
    clean,
    exact_ns,
    examples,
    indexed,
    kind_of_call,
    read,
)
from edgescope.wings.trace.importers import engines, kineto, nsys, printed
from nsys_files import Export, tid


def rows(trace: Trace, *columns: str) -> list[tuple[Any, ...]]:
    """Kind, name, start, end and further columns of each span."""
    c = {k: trace.spans.columns[k].tolist() for k in SPAN_DTYPES}
    return [
        (
            SPAN_KINDS[c["kind"][i]],
            trace.spans.names[c["name"][i]],
            *(c[k][i] for k in ("start_ns", "end_ns", *columns)),
        )
        for i in range(len(trace.spans))
    ]


def notes(trace: Trace) -> list[tuple[str, str]]:
    return [(note.code, note.what) for note in trace.notes]


# -- what all importers share ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            ("cudaDeviceSynchronize", "sync"),
            ("cuStreamSynchronize_v2_ptsz", "sync"),
            ("hipEventSynchronize", "sync"),
        ),
        *(("cudaMemcpy_v3020", "sync"), ("cudaMemcpyAsync_v3020", "api"), ("urQueueFinish", "sync")),
        *(("zeFenceHostSynchronize", "sync"), ("cudaLaunchKernel", "api"), ("cudaStreamSynchronizeX", "api")),
    ],
)
def test_calls_that_wait_are_told_apart(name, kind):
    assert kind_of_call(name) == kind


@pytest.mark.parametrize(
    ("value", "unit", "ns"),
    [
        *((1, 1000, 1000), ("1.5", 1000, 1500), (1.25, 1000, 1250), ("0.0004", 1000, 0), ("0.0006", 1000, 1)),
        *((True, 1, None), (None, 1, None), ("x", 1, None), ("nan", 1, None), ([], 1, None)),
        *((2**62, 1, None), (2**62 - 1, 1, 2**62 - 1), (-(2**62), 1, None), (" 7 ", 1, 7)),
    ],
)
def test_a_time_is_exact_or_none(value, unit, ns):
    assert exact_ns(value, unit) == ns


def test_numbers_names_and_examples():
    assert [clean(x) for x in ("7", 7.9, None, "x", float("inf"))] == [7, 7, -1, -1, -1]
    assert clean("x", 5) == 5
    names, index = indexed(["b", "a", "b"])
    assert names == ["b", "a"] and index.tolist() == [0, 1, 0]
    assert examples(["a", "b", "a"]) == "a (2), b"
    assert examples(list("abc")) == "a, b, c" and examples(list("abcd")) == "a, b, c and 1 more names"
    assert examples(["x" * 61]) == "x" * 60
    assert examples({"a": 1, "b": 2}) == "b (2), a"


def made(*spans: tuple[int, int], timed: bool = True) -> Trace:
    found = ImportedFile("x")
    start, end = (np.array(column, "int64") for column in zip(*spans, strict=True))
    found.tables.append(base.Table("op", {"start_ns": start, "end_ns": end, "name": 0}, ["a"]))
    return found.trace(Path("x"), timed=timed)


def test_spans_that_cannot_be_are_left_out_and_counted():
    year = 366 * 86_400 * 10**9
    found = made((5, 5), (5, 4), (0, year), (0, year + 1), (-(2**62), 2**62 + 5), (3, 9))
    assert [r[2:] for r in rows(found)] == [(5, 5), (0, year), (3, 9)]
    assert found.facts == {
        "damaged": True,
        "left_out": {"spans end before they begin": 1, "spans last for years": 2},
    }
    assert len(made((5, -1), (0, 1), timed=False).spans) == 2, "a length that is not known"
    assert len(made((5, -1), (0, 1)).spans) == 1


def test_what_is_lost_is_counted_and_said_once():
    found = ImportedFile("x")
    found.lose("W", "rows", 0)
    found.pass_over("marks", 0)
    assert (found.notes, found.facts) == ([], {})
    found.lose("W", "rows", 2, damage=False)
    found.lose("W", "rows", 2, damage=False)
    found.pass_over("marks", 1)
    found.pass_over("marks", 2)
    assert found.facts == {"left_out": {"rows": 4}, "passed_over": {"marks": 3}} and len(found.notes) == 1
    found.lose("W", "rows", 1)
    assert found.facts["damaged"] is True and found.facts["left_out"] == {"rows": 5}


# -- Nsight Systems ----------------------------------------------------------------------------------------------------


def test_every_column_of_an_export_of_nsight_systems(tmp_path):
    export = Export(tmp_path / "a.sqlite").runtime(
        (10, 20, tid(7, 9), 100, 1),
        (30, 45, tid(7), 101, 2),
        (50, -1, tid(7), 102, 1),
        (60, 61, -5, 103, 77),
    )
    export.kernels(
        (12, 18, 0, 1, 7, 100, tid(7), 3, None),
        (40, 44, 1, 2**31, 2**31 - 1, 101, tid(7), 5, 6),
        (50, 51, 0, 1, 7, 1, 0, 9, 0),
    )
    where = (
        "start INTEGER, end INTEGER, deviceId INTEGER, bytes INTEGER, copyKind INTEGER, graphNodeId INTEGER"
    )
    export.table(
        "CUPTI_ACTIVITY_KIND_MEMCPY", where, (1, 2, 0, 64, 1, 0), (2, 4, 0, 65, 13, 3), (4, 8, 0, 66, 14, 0)
    )
    export.table("CUPTI_ACTIVITY_KIND_MEMSET", "start INTEGER, end INTEGER, bytes INTEGER", (5, 6, 9))
    export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start INTEGER, end INTEGER, graphId INTEGER", (5, 7, 8))
    export.table(
        "OSRT_API", "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER", (70, 71, tid(8), 1)
    )
    export.table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "start INTEGER, end INTEGER", (1, 2))
    trace = nsys.read(export.done())
    got = rows(trace, "process", "thread", "device", "context", "stream", "correlation", "graph", "bytes")
    none = -1
    assert got == [
        ("api", "cudaLaunchKernel_v7000", 10, 20, 7, 9, none, none, none, 100, none, none),
        ("sync", "cudaStreamSynchronize_v3020", 30, 45, 7, 7, none, none, none, 101, none, none),
        ("api", "(string 77)", 60, 61, none, none, none, none, none, 103, none, none),
        ("kernel", "void gemm<half>(int)", 12, 18, 7, none, 0, 1, 7, 100, none, none),
        ("kernel", "名前 kernel é\U0001f600", 40, 44, 7, none, 1, none, 2**31 - 1, 101, 6, none),
        ("kernel", "(string 9)", 50, 51, 0, none, 0, 1, 7, 1, 0, none),
        ("copy", "H2D", 1, 2, none, none, 0, none, none, none, 0, 64),
        ("copy", "unified D2D", 2, 4, none, none, 0, none, none, none, 3, 65),
        ("copy", "copy of kind 14", 4, 8, none, none, 0, none, none, none, 0, 66),
        ("copy", "memset", 5, 6, none, none, none, none, none, none, none, 9),
        ("graph", "CUDA graph", 5, 7, none, none, none, none, none, none, 8, none),
        ("call", "cudaLaunchKernel_v7000", 70, 71, 8, 8, none, none, none, none, none, none),
    ]
    assert trace.facts["left_out"] == {"rows of CUPTI_ACTIVITY_KIND_RUNTIME have no start or no end": 1}
    assert trace.source == "Nsight Systems of unknown version, schema 3.20.3"


@pytest.mark.parametrize(("schema", "known"), [("1.9", 0), ("2.0", 1), ("3", 1), ("4.1", 0), ("x.1", 0)])
def test_the_schemas_that_are_known(tmp_path, schema, known):
    trace = nsys.read(Export(tmp_path / "a.sqlite", schema).runtime((1, 2, tid(7), 1, 1)).done())
    assert [n.code for n in trace.notes] == ["W-PROF-4"] * (not known)
    assert known or trace.notes[0].evidence == "versions 2 to 3 are known"


def test_all_kinds_of_copies_have_a_name(tmp_path):
    plain = ("H2D", "D2H", "H2A", "A2H", "A2A", "A2D", "D2A", "D2D", "H2H", "P2P")
    names = (*plain, "unified H2D", "unified D2H", "unified D2D")
    copies = [(k, k + 1, k) for k in range(1, 14)]
    export = Export(tmp_path / "a.sqlite").table(
        "CUPTI_ACTIVITY_KIND_MEMCPY", "start INTEGER, end INTEGER, copyKind INTEGER", *copies
    )
    assert [r[1] for r in rows(nsys.read(export.done()))] == list(names)


@pytest.mark.parametrize("cut", [40, 80])
def test_a_packed_trace_that_was_cut_is_read_as_far_as_it_goes(tmp_path, cut):
    path = kineto_file(tmp_path, *(event("cpu_op", f"n{i}", i, 1) for i in range(2000)), packed=True)
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) * cut // 100])
    trace = kineto.read(path)
    assert 0 < len(trace.spans) < 2000 and trace.facts["damaged"] is True
    assert {n.code for n in trace.notes} == {"W-PROF-3"}


def test_ranges_marks_and_ranges_without_an_end(tmp_path):
    export = Export(tmp_path / "a.sqlite").ranges(
        *((1, 5, kind, f"r{kind}", tid(7), None) for kind in (59, 60, 70, 71)),
        (6, 9, 59, None, None, 3),
        (7, None, 60, "open", tid(7), None),
        (None, 9, 60, "odd", tid(7), None),
        (8, None, 34, "mark", tid(7), None),
        (9, None, 34, "mark", tid(7), None),
        (9, 10, 75, "other", tid(7), None),
        (10, 11, 59, None, tid(8), 99),
    )
    trace = nsys.read(export.done())
    wanted = [("range", f"r{kind}", 1, 5, 7) for kind in (59, 60, 70, 71)]
    assert rows(trace, "process") == [
        *wanted,
        ("range", "void gemm<half>(int)", 6, 9, -1),
        ("range", "", 10, 11, 8),
    ]
    assert trace.facts["left_out"] == {"ranges have no end": 1} and "damaged" not in trace.facts
    assert trace.facts["passed_over"] == {"NVTX marks, which have no length": 2}


def test_a_thread_is_on_a_cpu_from_coming_in_to_going_out(tmp_path):
    """Out sorts after in at one moment; two threads, an end without a beginning and a beginning without an end."""
    sched = "start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER"
    export = Export(tmp_path / "a.sqlite").table(
        *("SCHED_EVENTS", sched),
        *((5, 2, 0, tid(8)), (1, 2, 1, tid(8)), (5, 2, 1, tid(8)), (9, 2, 0, tid(8))),
        *((2, 3, 0, tid(7)), (3, 4, 1, tid(7)), (4, 4, 0, tid(7)), (6, 5, 1, tid(7))),
    )
    trace = nsys.read(export.done())
    assert rows(trace, "device", "process", "thread") == [
        ("sched", "on a CPU", 3, 4, 4, 7, 7),
        ("sched", "on a CPU", 5, 5, 2, 8, 8),
    ]
    assert trace.facts["scheduling"] == {"switches_in": 4, "switches_out": 4}
    assert trace.facts["left_out"] == {"scheduling events have no partner": 4}
    assert trace.notes[0].evidence == "of 8"


def test_waits_are_taken_from_their_own_table_where_no_calls_were_recorded(tmp_path):
    waits = "start INTEGER, end INTEGER, deviceId INTEGER"
    export = Export(tmp_path / "a.sqlite").table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", waits, (3, 9, 1))
    assert rows(nsys.read(export.done()), "device") == [("sync", "synchronisation", 3, 9, 1)]


def test_tables_that_are_not_read_are_said(tmp_path):
    export = Export(tmp_path / "a.sqlite").runtime((1, 2, tid(7), 1, 1))
    export.table("CUPTI_ACTIVITY_KIND_KERNEL_V9", "x INTEGER", (1,), (2,))
    export.table("OTHER_SPANS", "start INTEGER, end INTEGER", (1, 2))
    export.table("NO_SPANS", "start INTEGER", (1,))
    export.table("EMPTY_SPANS", "start INTEGER, end INTEGER")
    trace = nsys.read(export.done())
    assert trace.facts["left_out"] == {
        "rows are in the table CUPTI_ACTIVITY_KIND_KERNEL_V9, which is not read": 2,
        "rows are in the table OTHER_SPANS, which is not read": 1,
    }
    known, other = trace.notes
    assert (
        "CUPTI_ACTIVITY_KIND_KERNEL" in known.evidence and "all of CUPTI_ACTIVITY_KIND_KERNEL" in known.effect
    )
    assert (
        other.evidence == "" and "CUPTI" not in other.effect and other.effect.startswith("The account lacks ")
    )
    assert trace.facts["damaged"] is True


def test_facts_and_samples_of_an_export(tmp_path):
    export = Export(tmp_path / "a.sqlite").runtime((1, 2, tid(7), 1, 1))
    export.table(
        "TARGET_INFO_GPU", "id INTEGER, name TEXT, smCount INTEGER", (0, "H200", 132), (1, "H100", 114)
    )
    export.table("PROCESSES", "pid INTEGER, name TEXT", (7, "python"), (8, "other"), (7, None))
    export.table("TARGET_INFO_SESSION_START_TIME", "utcEpochNs INTEGER", (1234567,))
    export.table(
        "TARGET_INFO_GPU_METRICS",
        "typeId INTEGER, metricId INTEGER, metricName TEXT",
        *(
            (256 + gpu, m, name)
            for gpu in (0, 1)
            for m, name in enumerate(
                ("SMs Active [Throughput %]", "GPC Clock Frequency [MHz]", "PCIe Read [Bytes/s]", "Odd Thing")
            )
        ),
    )
    export.table(
        "GPU_METRICS", "timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER",
        (20, 256, 0, 50), (10, 257, 0, 30), (10, 256, 1, 1980), (20, 256, 2, 7), (30, 256, 3, 8), (30, 256, 9, 1),
    )  # fmt: skip
    trace = nsys.read(export.done())
    gpus = {"0": {"name": "H200", "multiprocessors": 132}, "1": {"name": "H100", "multiprocessors": 114}}
    assert trace.facts == {"gpus": gpus, "processes": {"7": "python"}, "utc_start_ns": 1234567}
    series = {c.name: (c.unit, *map(list, trace.samples.series(c.name))) for c in trace.samples.channels}
    assert series == {
        "gpu0_sm_active": ("share", [20], [0.5]),
        "gpu0_gpc_clock": ("Hz", [10], [1980.0]),
        "gpu0_pcie_read_bytes_s": ("Bytes/s", [20], [7.0]),
        "gpu0_odd_thing": ("", [30], [8.0]),
        "gpu0_metric_9": ("", [30], [1.0]),
        "gpu1_sm_active": ("share", [10], [0.3]),
    }
    assert trace.samples.t_ns.tolist() == [10, 10, 20, 20, 30, 30]


@pytest.mark.parametrize(
    "ids", [[3, 1, 3], [0, 1 << 22, 0], [-2, 5, -2], [(1 << 22) - 1, 0, (1 << 22) - 1], []]
)
def test_different_ids_are_found_whether_small_or_not(ids):
    different, index = nsys._unique(np.array(ids, "int64"))
    assert different.tolist() == sorted(set(ids)) and different[index].tolist() == ids


def test_an_export_with_cells_that_are_no_numbers_loses_their_rows(tmp_path):
    export = Export(tmp_path / "a.sqlite").table(
        *("CUPTI_ACTIVITY_KIND_MEMSET", "start INTEGER, end INTEGER, bytes INTEGER"),
        *((1, 2, 3), (4, "x", 6), (7, 8, 9), (1, 2.5, 3)),
    )
    trace = nsys.read(export.done())
    assert [(r[2], r[3], r[4]) for r in rows(trace, "bytes")] == [(1, 2, 3), (7, 8, 9)]
    assert trace.facts["left_out"] == {
        "rows of CUPTI_ACTIVITY_KIND_MEMSET hold something else than numbers": 2
    }


# -- torch.profiler ----------------------------------------------------------------------------------------------------


def kineto_file(tmp_path: Path, *events: dict[str, Any], packed: bool = False, **head: Any) -> Path:
    text = json.dumps({**head, "traceEvents": events})
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


def event(
    cat: str, name: str, ts: Any, dur: Any = 1, ph: str = "X", pid: Any = 7, t: Any = 9, **args: Any
) -> dict[str, Any]:
    found = {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": t, "ts": ts, "args": args}
    return found if dur is None else {**found, "dur": dur}


@pytest.mark.parametrize("packed", [False, True])
def test_every_column_of_a_trace_of_torch(tmp_path, packed):
    path = kineto_file(
        tmp_path,
        event("cpu_op", "aten::mm", 10, 2.5),
        event("cuda_runtime", "cudaLaunchKernel", 11, 1, correlation=5),
        event("CUDA_DRIVER", "cuStreamSynchronize", 12.001, 1, correlation=6),
        event("kernel", "gemm", 20, 3, pid=1, t=4, device=1, context=2, stream=7, correlation=5),
        event("gpu_memcpy", "HtoD", 30, 1, pid=1, bytes=64, device=1, **{"graph node id": 0, "graph id": 8}),
        event("gpu_memset", "set", 31, 1, pid=1, **{"graph node id": 4, "graph id": 8}),
        event("user_annotation", "infer", 1, 50, t=2**31 + 3, query_id=2, process=11),
        event("python_function", "f", 2, 1, pid="x", t="y"),
        event("ac2g", "arrow", 2, None, ph="s"),
        event("gpu_user_annotation", "infer", 1, 50),
        deviceProperties=[{"id": 1, "name": "H100", "numSms": 132}, {"name": "A", "multiProcessorCount": 5}],
        packed=packed,
    )
    trace = kineto.read(path)
    got = rows(
        trace, "process", "thread", "device", "context", "stream", "correlation", "graph", "bytes", "query_id"
    )
    n = -1
    assert got == [
        ("op", "aten::mm", 10_000, 12_500, 7, 9, n, n, n, n, n, n, n),
        ("api", "cudaLaunchKernel", 11_000, 12_000, 7, 9, n, n, n, 5, n, n, n),
        ("sync", "cuStreamSynchronize", 12_001, 13_001, 7, 9, n, n, n, 6, n, n, n),
        ("kernel", "gemm", 20_000, 23_000, 7, n, 1, 2, 7, 5, n, n, n),
        ("copy", "HtoD", 30_000, 31_000, 7, n, 1, n, n, n, 8, 64, n),
        ("copy", "set", 31_000, 32_000, 7, n, 1, n, n, n, 4, n, n),
        ("range", "infer", 1000, 51_000, 11, 3, n, n, n, n, n, n, 2),
        ("call", "f", 2000, 3000, n, n, n, n, n, n, n, n, n),
    ]
    wanted = {"1": {"name": "H100", "multiprocessors": 132}, "0": {"name": "A", "multiprocessors": 5}}
    assert trace.facts["gpus"] == wanted and trace.notes == ()
    over = {"events of category gpu_user_annotation": 1, "events of phase s": 1}
    assert trace.facts["passed_over"] == over and trace.source == "torch.profiler (Kineto)"


def test_what_begins_and_ends_in_two_events_is_one_span_of_the_innermost(tmp_path):
    def of(ph: str, name: str, ts: int, t: int = 9) -> dict[str, Any]:
        return event("cpu_op", name, ts, None, ph=ph, t=t)

    first = of("B", "a", 1), of("B", "b", 2), of("E", "b", 5), of("B", "c", 3, 8)
    trace = kineto.read(kineto_file(tmp_path, *first, of("E", "a", 9), of("E", "", 10), of("B", "d", 11)))
    assert rows(trace, "thread") == [("op", "a", 1000, 9000, 9), ("op", "b", 2000, 5000, 9)]
    assert trace.facts["left_out"] == {"events begin or end a span without a partner": 3}
    assert "damaged" not in trace.facts and trace.notes[0].evidence == "2 have one"


def test_events_that_are_not_read_are_counted_by_what_they_lack(tmp_path):
    trace = kineto.read(
        kineto_file(
            tmp_path,
            event("cpu_op", "a", 1),
            *(event("strange", name, 1) for name in ("s9", "s3", "s3", "s2", "s1")),
            event("cpu_op", "q", 1, ph="Q"),
            event("cpu_op", "late", None),
            event("cpu_op", "endless", 1, None),
            event("cpu_op", "endless", "x", None, ph="B"),
        )
    )
    assert trace.facts["left_out"] == {
        "events have the phase 'Q', which is not read": 1,
        "events have the category 'strange', which is not read": 5,
        "events have no start that can be read": 2,
        "events have no duration that can be read": 1,
    }
    told = [(note.what.split()[0], note.evidence.removeprefix("the first is ")) for note in trace.notes]
    assert ("5", "s3 (2), s1, s2 and 1 more names") in told
    assert ("2", "event 8; late") in told
    assert ("1", "event 9; endless") in told


def test_an_array_alone_and_what_is_long_is_read_to_the_nanosecond(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('\n [{"ph":"X","cat":"cpu_op","name":"a","ts":1777888800123456.789,"dur":0.001}]')
    trace = kineto.read(path)
    assert rows(trace) == [("op", "a", 1777888800123456789, 1777888800123456790)]
    assert trace.source == "a Chrome trace"


@pytest.mark.parametrize(("size", "chunk"), [(7, 64), (40, 97), (300, 1000)])
def test_a_trace_longer_than_a_piece_is_read_whole(tmp_path, monkeypatch, size, chunk):
    monkeypatch.setattr(kineto, "CHUNK", chunk)
    monkeypatch.setattr(kineto, "TAIL", 150)
    events = [event("cpu_op", f"n{i}", 1000.5 + i, 1) for i in range(size)]
    path = tmp_path / "t.json"
    rest = {"INFO": [{"a": [1]}], "deviceProperties": [{"id": 3, "name": "B", "numSms": 6}]}
    path.write_text(json.dumps({"schemaVersion": 1, "x": "y" * 200, "traceEvents": events, **rest}))
    trace = kineto.read(path)
    assert [r[1:3] for r in rows(trace)] == [(f"n{i}", 1_000_500 + 1000 * i) for i in range(size)]
    assert trace.notes == ()


# -- engines -----------------------------------------------------------------------------------------------------------


def test_every_column_of_onnx_runtime(tmp_path):
    def of(cat: str, name: str, ts: Any, dur: Any = 2, **args: Any) -> dict[str, Any]:
        return {
            "cat": cat,
            "pid": 7,
            "tid": 2**31 + 5,
            "dur": dur,
            "ts": ts,
            "ph": "X",
            "name": name,
            "args": args,
        }

    path = tmp_path / "ort.json"
    events = [
        of("Session", "session_initialization", 0),
        of("Session", "model_run", 1, 9),
        of("Node", "n0_kernel_time", 2, op_name="Conv", output_size="64", provider="CPU"),
        of("Node", "n0_fence_before", 2),
        of("Kernel", "gemm", 3, provider="CUDA"),
        of("Node", "n1_kernel_time", "x", op_name="Add"),
        {**of("Node", "m_kernel_time", 4), "ph": "M"},
        {**of("Node", "b_kernel_time", 4), "args": 5, "pid": None},
    ]
    path.write_text(json.dumps(events))
    trace = engines.read_ort(path)
    assert rows(trace, "process", "thread", "bytes") == [
        ("range", "model_run", 1000, 10_000, 7, 5, -1),
        ("op", "Conv n0", 2000, 4000, 7, 5, 64),
        ("kernel", "gemm", 3000, 5000, 7, 5, -1),
        ("op", "b", 4000, 6000, -1, 5, -1),
    ]
    assert trace.facts["providers"] == ["CPU", "CUDA"]
    assert trace.facts["left_out"] == {"events have no start or no duration that can be read": 1}


HEAD = "layerName;execStatus;layerType;execType;realTime{};cpuTime (ms)\n"


@pytest.mark.parametrize(
    ("unit", "text", "ns"),
    [
        *((" (ms)", "0.25", 250_000), (" (us)", "0,25", 250), (" [ns]", "25", 25), (" (s)", "2", 2 * 10**9)),
        *(
            ("", "0.25", 250_000),
            (" (µs)", "3", 3000),
            (" (μs)", "3", 3000),
            (" (ms)", "0:00:00.001250", 1_250_000),
        ),
        *(
            (" (ms)", "1:02:03", 3723 * 10**9),
            (" (ms)", "1.2.3", None),
            (" (ms)", "1,2.3", None),
            (" (ms)", "1:2:3:4", None),
            (" (ms)", "", None),
        ),
        *((" (ms)", "0:x:1", None), (" (ms)", "1:2", 3720 * 10**9)),
    ],
)
def test_times_of_openvinos_counters(tmp_path, unit, text, ns):
    path = tmp_path / "c.csv"
    path.write_text(
        HEAD.format(unit) + f"a;EXECUTED;Conv;x;{text};0\nb;NOT_RUN;Add;x;5;0\nc;EXECUTED;;x;1;0\n"
    )
    trace = engines.read_openvino(path)
    found = [(r[1], r[3] - r[2]) for r in rows(trace)]
    assert found[:-1] == ([] if ns is None else [("Conv a", ns)]) and found[-1][0] == "c"
    assert (trace.facts.get("left_out") == {"layers have no time that can be read": 1}) is (ns is None)
    assert trace.spans.columns["start_ns"][-1] == (ns or 0) and not trace.timed
    assert [n.evidence for n in trace.notes if n.code == "W-PROF-16"] == ["Conv a"] * (ns is None)


def test_a_report_of_openvino_may_be_repeated_and_its_unit_is_known(tmp_path):
    path = tmp_path / "c.csv"
    head = HEAD.format(" (ms)").replace(";", "\t")
    path.write_text(
        "x\n"
        + head
        + "a\tEXECUTED\tConv\tx\t1\t0\n"
        + head
        + "a\tEXECUTED\tConv\tx\t2\t0\nTotal\tEXECUTED\t\t\t3\t3\n"
    )
    assert [r[2:] for r in rows(engines.read_openvino(path))] == [(0, 10**6), (10**6, 3 * 10**6)]
    for text in (HEAD.format(" (h)") + "a;EXECUTED;Conv;x;1;0\n", HEAD.format("") + "a;NOT_RUN;Conv;x;1;0\n"):
        path.write_text(text)
        with pytest.raises(UsageError) as refused:
            engines.read_openvino(path)
        assert refused.value.code == "E-PROF-1"


def test_every_column_of_trtexecs_times(tmp_path):
    def row(*ms: float | None) -> dict[str, Any]:
        names = (
            "startEnqMs",
            "endEnqMs",
            "startH2dMs",
            "endH2dMs",
            "startComputeMs",
            "endComputeMs",
            "startD2hMs",
            "endD2hMs",
        )
        return {name: x for name, x in zip(names, ms, strict=True) if x is not None}

    path = tmp_path / "times.json"
    one, two = row(0, 1, 2, 3, 4, 6, 6, 7), row(10, 11, 12, 13, 14, 16, 16, None)
    path.write_text(json.dumps([one, two]) + json.dumps([one]))
    trace = engines.read_trtexec(path)
    ms = 10**6
    got = [
        (k, n, a / ms, b / ms, *rest)
        for k, n, a, b, *rest in rows(trace, "query_id", "device", "correlation", "process")
    ]
    assert got == [
        *(("api", "enqueue", a, a + 1, q, 0, q, 0) for q, a in enumerate((0, 10, 16))),
        *(("copy", "H2D", a, a + 1, q, 0, -1, 0) for q, a in enumerate((2, 12, 18))),
        *(("graph", "compute", a, a + 2, q, 0, q, 0) for q, a in enumerate((4, 14, 20))),
        *(("copy", "D2H", a, a + 1, q, 0, -1, 0) for q, a in ((0, 6), (2, 22))),
        *(("unit", "inference", a, a + 5, q, -1, -1, 0) for q, a in ((0, 2), (2, 18))),
    ]
    assert trace.facts["left_out"] == {
        "inferences have no times of D2H": 1,
        "inferences have no times of inference": 1,
    }
    assert [n.code for n in trace.notes] == ["W-PROF-16", "W-PROF-16", "I-PROF-7", "I-PROF-3"]


def test_layers_of_trtexec_lie_end_to_end_and_runs_are_counted(tmp_path):
    path = tmp_path / "layers.json"
    run = [{"count": 40}, {"name": "a", "averageMs": 0.5}, {"name": "b", "averageMs": 0.25}]
    path.write_text(json.dumps(run))
    one = engines.read_trtexec(path)
    assert rows(one) == [("op", "a", 0, 500_000), ("op", "b", 500_000, 750_000)]
    assert one.facts == {"inferences": 40, "averaged": True} and [n.code for n in one.notes] == ["I-PROF-2"]
    path.write_text(json.dumps(run) + json.dumps([{"count": 2}, {"name": "a", "averageMs": "x"}]))
    two = engines.read_trtexec(path)
    assert two.facts["inferences"] == 42 and len(two.spans) == 2
    assert [n.code for n in two.notes] == ["W-PROF-16", "I-PROF-7", "I-PROF-2"]


def test_every_column_of_perf_sched(tmp_path):
    def line(comm: str, thread: str, cpu: int, t: str, rest: str) -> str:
        return f"{comm:>16} {thread} [{cpu:03d}] {t}: sched:{rest}"

    switch = "sched_switch: {}:{} [120] {} ==> {}:{} [120]"
    path = tmp_path / "s.txt"
    path.write_text(
        "\n".join(
            [
                line("w", "3/3", 1, "9.5", "sched_wakeup: a b:12 [120] success=1 CPU:001"),
                line("swapper", "0/0", 1, "10.000001", switch.format("swapper", 0, "R", "a b", 12)),
                line("a b", "11/12", 1, "10.000003000", switch.format("a b", 12, "S", "c", 13)),
                line("c", "13/13", 1, "10.000004", switch.format("c", 13, "R+", "swapper", 0)),
                line("swapper", "0/0", 2, "10.000006", switch.format("swapper", 0, "R", "c", 13)),
                line("x", "14/14", 1, "10.000007", switch.format("x", 14, "S", "y", 15)),
                line("y", "15", 1, "10.000009", switch.format("y", 15, "D", "swapper", 0)),
                line("w", "3/3", 1, "11.0", "sched_switch: nothing that is known"),
                "sched:sched_wakeup and no line",
                "",
                "something else",
            ]
        )
    )
    trace = printed.read_sched(path)
    s = 10**10
    assert rows(trace, "device", "thread", "process") == [
        ("sched", "a b", s + 1000, s + 3000, 1, 12, 11),
        ("sched", "c", s + 3000, s + 4000, 1, 13, 13),
        ("sched", "y", s + 7000, s + 9000, 1, 15, 15),
        ("ready", "a b", 9_500_000_000, s + 1000, 1, 12, 11),
        ("ready", "c", s + 4000, s + 6000, 2, 13, 13),
    ]
    assert trace.facts["scheduling"] == {"switches": 6}
    assert trace.facts["left_out"] == {"lines of scheduling events cannot be read": 2}


# -- damaged arrays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found", "lost", "first", "ended"),
    [
        ('[{"a":1},{"a":2}]', [1, 2], 0, "", True),
        ('[{"a":1},{"a":2}', [1, 2], 0, "", False),
        ('[{"a":1},\n{"a":x},\n{"a":3}]', [1, 3], 1, 'the first in line 2: {"a":x},', True),
        ('[{"a":1},{"a":x, {"a":y, {"a":3}]', [1, 3], 2, 'the first in line 1: {"a":x, {"a":y,', True),
        ('[{"a":1},{"b":2},{"a":3}]', [1, 3], 1, 'the first in line 1: {"b":2},', True),
        ('[{"a":1}][{"a":2}]', [1, 2], 0, "", True),
        ('[{"a":nan},{"a":-inf},{"a":"\\q"}]', [None, None, "\\q"], 0, "", True),
        ('[{"a":1.25}]', ["1.25"], 0, "", True),
        ('[{"a":"x\\"y"},{"a":"\\u0041\\\\"}]', ['x"y', "A\\"], 0, "", True),
        ('[{"a":1},{"a":2', [1], 1, 'the first in line 1: {"a":2', False),
        ("[]", [], 0, "", True),
        ('[{"a":1}],"b":[2]}', [1], 0, "", True),
        ('[{"a":1},{"a":x],"b":[2]}', [1], 1, 'the first in line 1: {"a":x', True),
    ],
)
def test_rows_of_a_damaged_array(text, found, lost, first, ended):
    array = Salvage(text, ("a",))
    assert [row["a"] for row in array.rows(text.find("[") + 1)] == found
    assert (array.lost, array.first, array.ended) == (lost, first, ended)
    assert array.runs == ([0, 1] if "][" in text else [0])


# -- formats, and the way out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"SQLite format 3\x00", "nsys"),
        (b'{"traceEvents": [', "kineto"),
        (b'\xef\xbb\xbf [{"ph": "X", "ts": 1}]', "kineto"),
        (b'[{"ph": "X"}]', ""),
        (b'[{"cat" : "Session", "ph": "X", "ts": 1}]', "onnxruntime"),
        (b'{"x": 1}', ""),
        (gzip.compress(b'{"schemaVersion": 1}', mtime=0), "kineto"),
        (b"\x1f\x8bno", ""),
        (b"layerName;execStatus", "openvino"),
        (b"layerName;", ""),
        (b'{"nodes": [{"node_type": 1}]}', "openvino"),
        (b'{"nodes": 1}', ""),
        (b'[{"startEnqMs": 1}]', "trtexec"),
        (b'[{"averageMs": 1}]', "trtexec"),
        (b'[{"count": 1}]', ""),
        (b'{"averageMs": 1}', ""),
        (b"x sched:sched_switch y", "perf_sched"),
    ],
)
def test_each_format_is_known_by_its_beginning_alone(tmp_path, head, name):
    own = {m.__name__.rpartition(".")[2]: m.IMPORTER for m in (nsys, kineto)}
    own |= {"onnxruntime": engines.ONNXRUNTIME, "openvino": engines.OPENVINO, "trtexec": engines.TRTEXEC}
    own["perf_sched"] = printed.PERF_SCHED
    assert [n for n, one in own.items() if one.knows(tmp_path, head)] == ([name] if name else [])


def test_what_is_written_for_perfetto_is_read_back_and_has_its_tracks(tmp_path):
    columns = {
        "kind": [
            SPAN_KINDS.index(k) for k in ("api", "kernel", "copy", "graph", "sched", "ready", "op", "sync")
        ],
        "name": [0, 1, 0, 1, 0, 1, 0, 1],
        "start_ns": [1, 1999, -1500, 1_777_888_800_123_456_789, 5, 6, 7, 8],
        "end_ns": [4, 2000, -500, 1_777_888_800_123_456_999, 9, 9, 6, 9],
        "process": [7, 7, -1, 7, 7, 7, 7, 7],
        "thread": [9, -1, -1, -1, 9, 9, 9, 9],
        "device": [-1, 1, -1, 0, 3, 4, -1, -1],
        "stream": [-1, 6, 5, 7, -1, -1, -1, -1],
        "graph": [-1, 0, 8, -1, -1, -1, -1, -1],
    }
    spans = Spans.from_columns(["a", "b"], {k: np.array(v, "int64") for k, v in columns.items()})
    facts = {"processes": {"7": "python"}, "gpus": {"1": {"name": "H100", "multiprocessors": 132}}}
    path = tmp_path / "t.json.gz"
    trace_export.write_json(Trace(spans, "x", facts=facts, timed=False), path)
    page = json.loads(gzip.decompress(path.read_bytes()), parse_float=str)
    assert page["deviceProperties"] == [{"id": 1, "name": "H100", "numSms": 132}]
    told = page["traceEvents"]
    assert [(e["pid"], e["args"]["name"]) for e in told[:3]] == [
        (7, "python"),
        (2**23 + 1, "GPU 1 H100"),
        (2**24, "CPUs"),
    ]
    events = told[3:]
    assert [(e["cat"], e["pid"], e["tid"]) for e in events] == [
        *(("cuda_runtime", 7, 9), ("kernel", 2**23 + 1, 6), ("gpu_memcpy", 2**23, 5), ("graph", 2**23, 7)),
        *(("sched", 2**24, 3), ("ready", 2**24, 4), ("cpu_op", 7, 9), ("cuda_runtime", 7, 9)),
    ]
    assert [e["ts"] for e in events[:4]] == ["0.001", "1.999", "-1.500", "1777888800123456.789"]
    assert [e.get("dur") for e in events] == [
        "0.003",
        "0.001",
        "1.000",
        "0.210",
        "0.004",
        "0.003",
        None,
        "0.001",
    ]
    assert events[1]["args"] == {"device": 1, "stream": 6, "process": 7, "graph id": 0}
    assert events[2]["args"] == {"stream": 5, "graph id": 8}
    assert [r[:4] for r in rows(read(path))][1] == ("kernel", "b", 1999, 2000)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        *(("1.25", 1_250), ("1,25", 1_250), ("1.234,5", None), ("1,234,567", None), ("", None), (None, None)),
        *(("0:00:00.001250", 1_250_000), ("1:02:03", 3_723 * 10**9), ("1:02:x", None), ("1:2:3:4:5", None)),
    ],
)
def test_a_time_of_a_report_of_openvino(text, ns):
    assert engines._reported_ns(text, 1000) == ns


def test_a_packed_file_whose_check_fails_is_damaged_though_all_of_it_is_there(tmp_path):
    whole = gzip.compress(b"[1, 2]")
    for name, packed, damaged in (("whole", whole, False), ("off", whole[:-8] + bytes(8), True)):
        found, to = ImportedFile("x"), tmp_path / name
        (tmp_path / f"{name}.gz").write_bytes(packed)
        kineto._unpack(tmp_path / f"{name}.gz", to, found)
        assert to.read_bytes() == b"[1, 2]" and found.facts == ({"damaged": True} if damaged else {})
        assert [note.code for note in found.notes] == ["W-PROF-3"] * damaged


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b'{"traceEvents": [{"a": 1}], "b": 2}', 26),
        (b'{"traceEvents": [{"a": 1}]}', 26),
        (b'{"traceEvents": [{"a": [{"x": 1}], "c": 1}], "INFO": [{"x": 1}], "z": 1}', 43),
        (b'{"traceEvents": [{"a": 1}], "b": 2', 34),  # cut: the rest is no rest of an object
        (b'[{"a": 1}]', 10),
    ],
)
def test_the_array_of_events_ends_where_the_rest_is_the_rest_of_its_object(tmp_path, text, end):
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with path.open("rb") as file:
        assert kineto._array_end(file, text.index(b"[") + 1, len(text)) == end


def test_process_and_thread_0_are_numbers_and_below_0_none(tmp_path):
    export = Export(tmp_path / "a.sqlite").runtime(
        (1, 2, 0, 100, 1), (3, 4, -1, 101, 1), (5, 6, tid(7, 9), 102, 1)
    )
    assert [r[4:] for r in rows(nsys.read(export.done()), "process", "thread")] == [(0, 0), (-1, -1), (7, 9)]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        *((0, "0.000"), (1, "0.001"), (999, "0.999"), (1000, "1.000"), (-1, "-0.001"), (-1500, "-1.500")),
        (2**62, "4611686018427387.904"),
    ],
)
def test_a_time_for_perfetto_is_microseconds_to_the_last_digit(ns, text):
    assert trace_export._text({"ph": "C"}, ts=ns) == f'{{"ph": "C", "ts": {text}}}'


@pytest.mark.parametrize(("source", "said"), [("torch.profiler (Kineto)", True), ("another tool", False)])
@pytest.mark.parametrize(
    ("text", "whole"), [('[{"ph": "X", "name": "a"}]', True), ('[{"ph": "X", "name": "a"}', False)]
)
def test_an_array_without_its_end_was_cut_unless_another_tool_leaves_it_out(
    tmp_path, source, said, text, whole
):
    path, events = tmp_path / "a.json", tmp_path / "events.json"
    events.write_text(text)
    found = ImportedFile(kineto.KINETO if said else source)
    kineto._salvaged(path, events, found)
    assert [n.code for n in found.notes] == ["W-PROF-3"] * (said and not whole)
    assert found.facts.get("damaged", False) is (said and not whole)


@pytest.mark.parametrize("ended", [True, False])
def test_an_array_that_lost_rows_was_cut_where_it_has_no_end_whatever_wrote_it(tmp_path, ended):
    events = tmp_path / "events.json"
    events.write_text('[{"ph": "X", "name": "a"}, {"ph": "X", "name": "b" oops}' + "]" * ended)
    found = ImportedFile("another tool")
    kineto._salvaged(tmp_path / "a.json", events, found)
    assert len(found.notes) == 1 + (not ended) and found.facts["damaged"] is True
