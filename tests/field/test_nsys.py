"""Exports of Nsight Systems: whole CUDA graphs, marks, ranges that stay open, tables of other versions.

Sources: captures with --cuda-graph-trace=graph; nsys-ai#291 for tables whose names carry a suffix.
"""

import json

import pytest

from edgescope.cli.main import main
from nsys_files import Export, tid

RANGE = "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER"
GRAPH = (
    "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, graphId INTEGER"
)
CALL, KERNEL = (500, 900, tid(7), 9, 1), (1000, 1100, 0, 1, 7, 9, tid(7), 3, None)


def page(capsys, path, rc=0):
    assert main(["trace", str(path), "--json"]) == rc
    (one,) = json.loads(capsys.readouterr().out)["traces"].values()
    return one, [n["code"] for n in one["notes"]], one["facts"].get("left_out", {})


def test_a_graph_recorded_as_a_whole_has_a_launch_and_a_queue_time(capsys, tmp_path):
    export = Export(tmp_path / "a.sqlite").runtime((500, 900, tid(7), 9, 4))
    one, *_ = page(
        capsys,
        export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPH, (1000, 2000, 0, 1, 7, 9, tid(7), 4)).done(),
    )
    launches = one["launches"]
    assert (launches["graph_launches"], launches["queue"]["total_ns"], launches["api"]["total_ns"]) == (
        1,
        100,
        400,
    )
    assert launches["kernel"]["count"] == 0 and one["gpus"][0]["busy_ns"] == 1000


@pytest.mark.parametrize(("marks", "open_"), [(1000, 0), (1, 1), (0, 2)])
def test_a_mark_is_no_range_that_stays_open(capsys, tmp_path, marks, open_):
    rows = [(100, 2000, 59, "infer", tid(7), None)]
    rows += [(150 + i, None, 34, "mark", tid(7), None) for i in range(marks)]
    rows += [(3000 + i, None, 59, "open", tid(7), None) for i in range(open_)]
    one, codes, left = page(capsys, Export(tmp_path / "a.sqlite").kernels(KERNEL).ranges(*rows).done())
    assert left == ({"ranges have no end": open_} if open_ else {}) and codes == ["W-PROF-5"] * bool(open_)
    assert one["facts"].get("passed_over", {}) == (
        {"NVTX marks, which have no length": marks} if marks else {}
    )


@pytest.mark.parametrize(
    ("table", "columns", "rc"),
    [
        ("NVTX_EVENTS_V2", RANGE, 1),
        ("NVTX_EVENTS_V3", RANGE, 1),
        ("MPI_P2P_EVENTS", "start INTEGER, end INTEGER", 0),
    ],
)
def test_a_table_of_spans_that_is_not_read_is_named_with_its_rows(capsys, tmp_path, table, columns, rc):
    rows = [(1, 2, 59, "infer", tid(7), None)[: columns.count("INTEGER") + columns.count("TEXT")]] * 5
    one, codes, left = page(
        capsys, Export(tmp_path / "a.sqlite").kernels(KERNEL).table(table, columns, *rows).done(), rc
    )
    assert codes == ["W-PROF-15"] and list(left.values()) == [5] and table in next(iter(left))
    assert one["kernels"][0]["count"] == 1


def test_an_empty_table_and_one_without_spans_are_not_mentioned(capsys, tmp_path):
    export = Export(tmp_path / "a.sqlite").kernels(KERNEL).table("NVTX_EVENTS_V2", RANGE)
    export.table("THREAD_NAMES", "nameId INTEGER, globalTid INTEGER", (1, 2))
    assert page(capsys, export.done())[1:] == ([], {})


def test_a_row_without_an_end_is_left_out_and_not_0_long(capsys, tmp_path):
    odd = [(2000, None, 0, 1, 7, 10, tid(7), 3, None), (3000, 2000, 0, 1, 7, 11, tid(7), 3, None)]
    one, codes, left = page(capsys, Export(tmp_path / "a.sqlite").kernels(KERNEL, *odd).done(), rc=1)
    assert [(k["count"], k["total_ns"]) for k in one["kernels"]] == [(1, 100)]
    assert codes == ["W-PROF-16", "W-PROF-2"] and list(left.values()) == [1, 1]


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        ("r.nsys-rep", b"\0NVIDIA\0NVIDIA", "nsys export --type sqlite r.nsys-rep"),
        ("r.qdrep", b"anything", "nsys export --type sqlite r.qdrep"),
        ("k.ncu-rep", b"NVR\0", "ncu --import k.ncu-rep --csv"),
        ("perf.data", b"PERFILE2....", "perf script -i perf.data"),
        (
            "nvprof.csv",
            b'==7== Profiling result:\n"Type","Time(%)","Time","Calls","Avg"\n',
            "nvprof --print-gpu-trace",
        ),
        ("old.nvvp", b"SQLite format 3", "nvprof -i old.nvvp"),
        ("resnet50", b"nothing that is known", "docs profiling"),
    ],
)
def test_a_profilers_own_format_says_what_to_do_and_is_no_model(capsys, tmp_path, name, head, words):
    (tmp_path / name).write_bytes(head)
    assert main(["trace", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("E-PROF-3") and words in said and "E-MODEL" not in said
