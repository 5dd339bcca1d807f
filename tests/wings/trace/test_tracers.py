"""Profilers as tracers: their spans lie within the window on the queries' clock; the ladder says what a step loses."""

import csv
import enum
import importlib
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.backends.base import PROFILE
from edgescope.errors import UnsupportedError, UsageError
from edgescope.records import SPAN_KINDS, Spans, Trace, Trial
from edgescope.wings.trace import cupti, program, tracers
from edgescope.wings.trace import trial as under_profiler
from edgescope.wings.trace.tracers import EngineTracer, KinetoTracer, NsysTracer
from nsys_files import Export, tid

CPU = Trial(model="lenet5", backend="torch_eager")


@pytest.mark.slow
def test_torch_profiler_is_on_the_queries_clock(tmp_path):
    import torch

    with KinetoTracer().window(tmp_path):
        begin = time.monotonic_ns()
        torch.ones(64, 64) @ torch.ones(64, 64)
        end = time.monotonic_ns()
    spans = KinetoTracer().spans(tmp_path)
    (row,) = np.flatnonzero([n == "aten::matmul" for n in spans.named()])
    slack = 5_000_000  # a busy machine delays every mark
    assert begin - slack <= spans.columns["start_ns"][row] <= spans.columns["end_ns"][row] <= end + slack
    assert not any(n.startswith("edgescope clock") for n in spans.named())


def test_the_engines_own_profile_is_cut_to_the_window(tmp_path):
    assert EngineTracer().launch(tmp_path).env == {PROFILE: str(tmp_path)}
    with EngineTracer().window(tmp_path):
        inside = time.time_ns()
    with pytest.raises(UnsupportedError, match="E-PROF-5"):
        EngineTracer().spans(tmp_path)
    start = inside - 10_000_000
    events = [
        {"cat": "Session", "name": "model_run", "ph": "X", "pid": 1, "tid": 1, "ts": us, "dur": 1, "args": {}}
        for us in ((inside - start) // 1000, 0, 90_000_000)
    ]
    (tmp_path / "engine_1.json").write_text(json.dumps(events))
    (tmp_path / "engine_1.json.start").write_text(str(start))
    window = json.loads((tmp_path / "window.json").read_text())
    window["begin"] = [t - 1_000_000 for t in window["begin"]]
    window["end"] = [t + 1_000_000 for t in window["end"]]
    (tmp_path / "window.json").write_text(json.dumps(window))
    spans = EngineTracer().spans(tmp_path)
    assert len(spans) == 1, "warm-up and what came after are left out"
    assert window["begin"][0] <= spans.columns["start_ns"][0] <= window["end"][0]


class FakeCupti:
    """cupti-python's module as far as the tracer uses it; it delivers its records when it is flushed."""

    names = ("CONCURRENT_KERNEL", "RUNTIME", "MEMCPY", "GRAPH_TRACE", "SYNCHRONIZATION")
    ActivityKind = type("ActivityKind", (), {n: SimpleNamespace(name=n) for n in names})
    CallbackDomain = SimpleNamespace(RUNTIME_API=3, DRIVER_API=2)

    def __init__(self):
        self.enabled, self.records = [], []

    def activity_register_callbacks(self, requested, completed):
        size, number = requested()
        assert cupti.LEAST_BYTES <= size <= cupti.MOST_BYTES and number == 0
        self.completed = completed

    def activity_enable(self, kind):
        self.enabled.append(kind.name)

    def activity_disable(self, kind):
        self.enabled.remove(kind.name)

    def activity_flush_all(self, flag):
        self.completed(self.records)

    def get_timestamp(self):
        return time.monotonic_ns() - 5_000_000_000

    def get_callback_name(self, domain, cbid):
        return {(3, 211): "cudaLaunchKernel_v7000", (3, 131): "cudaStreamSynchronize_v3020"}[domain, cbid]


def test_cuptis_records_become_spans(tmp_path, monkeypatch):
    fake = FakeCupti()
    monkeypatch.setattr(cupti, "_cupti", lambda: fake)
    kind, begin = fake.ActivityKind, time.monotonic_ns()
    with cupti.CuptiTracer().window(tmp_path):
        at = fake.get_timestamp()
        host = {"correlation_id": 9, "thread_id": 2**40 + 7}
        gpu = {
            "correlation_id": 9,
            "device_id": 0,
            "context_id": 1,
            "stream_id": 7,
            "graph_id": 0,
            "graph_node_id": 0,
        }
        fake.records = [
            SimpleNamespace(kind=kind.RUNTIME, cbid=211, start=at, end=at + 10, **host),
            SimpleNamespace(kind=kind.CONCURRENT_KERNEL, name="gemm", start=at + 12, end=at + 20, **gpu),
            SimpleNamespace(kind=kind.MEMCPY, copy_kind=1, bytes=64, start=at + 21, end=at + 25, **gpu),
            SimpleNamespace(kind=kind.RUNTIME, cbid=131, start=at + 11, end=at + 30, **host),
            SimpleNamespace(kind=kind.CONCURRENT_KERNEL, name="never ended", start=at, end=0, **gpu),
        ]
        assert set(fake.names) - set(fake.enabled) == {"SYNCHRONIZATION"}, "nothing reads records of waits"
    assert fake.enabled == []
    spans = cupti.CuptiTracer().spans(tmp_path)
    assert [SPAN_KINDS[k] for k in spans.columns["kind"]] == ["api", "kernel", "copy", "sync"]
    assert spans.named() == ["cudaLaunchKernel_v7000", "gemm", "H2D", "cudaStreamSynchronize_v3020"]
    assert spans.columns["bytes"].tolist() == [-1, -1, 64, -1] and set(spans.columns["correlation"]) == {9}
    assert begin <= spans.columns["start_ns"][0] <= time.monotonic_ns(), "on the queries' clock"


def test_calls_that_the_account_does_not_need_are_not_recorded(tmp_path, monkeypatch):
    fake, off = FakeCupti(), []
    names = [
        "cudaGetDevice_v3020",
        "cudaLaunchKernel_v7000",
        "cudaStreamSynchronize_v3020",
        "cudaMemcpyAsync_v3020",
    ]
    fake.RuntimeApiTraceCbid = enum.IntEnum("RuntimeApiTraceCbid", [*names, "cudaMemGetInfo_v3020", "SIZE"])

    def switch(cbid, enable):
        if cbid == fake.RuntimeApiTraceCbid.SIZE:
            raise ValueError("no such call")
        off.append(fake.RuntimeApiTraceCbid(cbid).name)
        assert enable == 0 and "RUNTIME" in fake.enabled, "a call is switched off once its kind is on"

    fake.activity_enable_runtime_api = switch
    monkeypatch.setattr(cupti, "_cupti", lambda: fake)
    with cupti.CuptiTracer().window(tmp_path):
        assert off == ["cudaGetDevice_v3020", "cudaMemGetInfo_v3020"]


def test_a_buffer_holds_a_window_where_there_is_memory():
    gib = 2**30
    a_second_of_resnet50 = 1000 * 240_000
    assert cupti.buffer_bytes(64 * gib) >= a_second_of_resnet50
    assert cupti.buffer_bytes(8 * gib) == 128 * 2**20, "8 processes of a board take an eighth of its memory"
    assert cupti.buffer_bytes(gib // 4) == cupti.LEAST_BYTES


def test_a_conversion_within_the_window_lets_the_program_go_on(tmp_path, monkeypatch):
    fake, before = FakeCupti(), sys.getswitchinterval()
    monkeypatch.setattr(cupti, "_cupti", lambda: fake)
    with cupti.CuptiTracer().window(tmp_path):
        assert sys.getswitchinterval() < before / 10
    assert sys.getswitchinterval() == before
    assert len(cupti.CuptiTracer().spans(tmp_path)) == 0, "a window without records"


def test_kernels_are_called_by_their_names_and_not_by_symbols():
    assert cupti.demangled("_ZN2at6native6kernelIfLi4EEEvPT_") == "void at::native::kernel<float, 4>(float*)"
    assert cupti.demangled("_Znonsense") == "_Znonsense" and cupti.demangled("gemm") == "gemm"


@pytest.mark.process
def test_nsys_starts_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr("edgescope.wings.trace.nsys_run.shutil.which", lambda name: f"/opt/{name}")
    prefix = NsysTracer().launch(tmp_path).prefix
    assert prefix[:2] == ("/opt/nsys", "profile") and prefix[-2:] == ("-o", str(tmp_path / "report"))


@pytest.mark.parametrize(
    ("trial", "here", "name", "codes"),
    [
        (CPU, ("torch",), "kineto", []),
        (Trial(model="a", backend="onnxruntime"), (), "engine", []),
        (Trial(model="a", backend="litert"), ("torch",), "none", ["W-PROF-10"]),
        (Trial(model="a", backend="tensorrt", device="cuda"), ("cupti", "torch"), "cupti", []),
        (Trial(model="a", backend="tensorrt", device="cuda"), ("torch",), "kineto", ["I-PROF-5"]),
        (
            Trial(model="a", backend="tensorrt", device="cuda"),
            (),
            "none",
            ["I-PROF-5", "I-PROF-5", "W-PROF-10"],
        ),
    ],
)
def test_the_best_profiler_that_is_here(monkeypatch, trial, here, name, codes):
    monkeypatch.setattr(
        under_profiler.importlib.util, "find_spec", lambda package: package if package in here else None
    )
    own = under_profiler.importlib.import_module
    monkeypatch.setattr(
        under_profiler.importlib,
        "import_module",
        lambda name: own(name) if name.startswith("edgescope") else None,
    )
    chosen = under_profiler.choose(trial)
    assert chosen.name == name and [n.code for n in chosen.notes] == codes
    assert all(n.fix for n in chosen.notes)


def test_a_profiler_that_is_installed_and_cannot_be_imported_is_stepped_over(monkeypatch, tmp_path):
    (tmp_path / "cupti").mkdir()
    (tmp_path / "cupti/__init__.py").touch()
    (tmp_path / "cupti/cupti.py").write_text("import a_module_that_pip_was_told_to_leave_out")
    monkeypatch.syspath_prepend(tmp_path)
    chosen = under_profiler.choose(Trial(model="a", backend="torch_eager", device="cuda"))
    assert chosen.name == "kineto" and [note.code for note in chosen.notes] == ["I-PROF-5"]
    assert "a_module_that_pip_was_told_to_leave_out" in chosen.notes[0].evidence
    (tmp_path / "cupti/cupti.py").write_text("")
    importlib.invalidate_caches()
    assert under_profiler.choose(Trial(model="a", backend="torch_eager", device="cuda")).name == "cupti"


def test_a_profiler_that_is_asked_for_is_taken_and_a_wrong_one_refused():
    assert under_profiler.choose(CPU, "nsys").name == "nsys"
    with pytest.raises(UsageError, match="kineto"):
        under_profiler.choose(CPU, "kinetto")


def test_functions_are_runs_of_samples_and_a_gap_ends_them(tmp_path):
    ms = 1_000_000
    left = {"pid": 7, "begin_ns": 0, "end_ns": 300 * ms, "torch_error": "", "sampler_s": 0.0}
    left["stacks"] = [["main", "decode"], ["main", "detect"], ["main"]]
    left["samples"] = [[5 * ms, 0], [10 * ms, 0], [15 * ms, 1], [20 * ms, 2], [270 * ms, 2], [275 * ms, 1]]
    (tmp_path / "functions-7.json").write_text(json.dumps(left))
    spans = program.collected(tmp_path).spans
    rows = sorted(
        zip(spans.named(), spans.columns["start_ns"] / ms, spans.columns["end_ns"] / ms, strict=True)
    )
    assert rows == [
        ("decode", 2.5, 12.5),
        ("detect", 12.5, 17.5),
        ("detect", 272.5, 287.5),
        ("main", 2.5, 20.0),
        ("main", 270.0, 287.5),
    ]


def test_openvinos_counters_are_written_as_its_own_tool_does(tmp_path):
    from datetime import timedelta

    from edgescope.wings.openvino.backend import Profile

    info = SimpleNamespace(
        node_name="conv",
        status="Status.EXECUTED",
        node_type="Convolution",
        exec_type="jit",
        real_time=timedelta(microseconds=47),
    )
    request = SimpleNamespace(get_profiling_info=lambda: [info])
    Profile().write(request, tmp_path / "engine.csv")
    (row,) = csv.DictReader((tmp_path / "engine.csv").open(), delimiter=";")
    assert row["layerName"] == "conv" and float(row["realTime (ms)"]) == 0.047


def test_layers_without_times_of_their_own_lie_end_to_end_from_0_on(tmp_path):
    with EngineTracer().window(tmp_path):
        pass
    rows = (
        "a;Status.EXECUTED;Convolution;jit;1.5",
        "b;Status.NOT_RUN;Const;;0",
        "c;Status.EXECUTED;Pooling;jit;0.5",
    )
    head = "layerName;execStatus;layerType;execType;realTime (ms)"
    (tmp_path / "engine.csv").write_text("\n".join((head, *rows)))
    spans = EngineTracer().spans(tmp_path)
    assert spans.named() == ["Convolution a", "Pooling c"]
    assert spans.columns["start_ns"].tolist() == [0, 1_500_000] and spans.columns["end_ns"][-1] == 2_000_000


def test_nsys_marks_both_ends_of_a_window_and_exports_what_it_wrote(tmp_path, monkeypatch):
    calls = []
    runtime = SimpleNamespace(
        cudaProfilerStart=lambda: calls.append("start"), cudaProfilerStop=lambda: calls.append("stop")
    )
    nvtx = SimpleNamespace(range_push=calls.append, range_pop=lambda: calls.append("pop"))
    fakes = {"torch.cuda": SimpleNamespace(cudart=lambda: runtime), "torch.cuda.nvtx": nvtx}
    monkeypatch.setattr(tracers.importlib, "import_module", fakes.__getitem__)
    monkeypatch.setattr(tracers.nsys_run.shutil, "which", lambda name: f"/bin/{name}")
    with pytest.raises(ZeroDivisionError), tracers.NsysTracer().window(tmp_path):
        calls.append("work")
        raise ZeroDivisionError
    assert (calls[0], calls[-1], calls[11]) == ("start", "stop", "work") and calls.count("pop") == 10
    (tmp_path / "report.txt").touch()
    (tmp_path / "report.nsys-rep").touch()

    def export(command, **how):
        assert how == {"check": True, "capture_output": True}
        assert command[:5] == ["/bin/nsys", "export", "--type", "sqlite", "-o"] and command[6].endswith(
            ".nsys-rep"
        )
        made = Export(Path(command[5])).kernels((100, 500, 0, 1, 7, 1, tid(7), 3, None))
        made.ranges((50, 51, 59, "edgescope clock 1050", tid(7), None)).done()

    monkeypatch.setattr(tracers.subprocess, "run", export)
    assert tracers.NsysTracer().spans(tmp_path).columns["start_ns"].tolist() == [1100]


def test_an_engines_spans_are_those_that_lie_in_the_window(tmp_path, monkeypatch):
    names = {
        "name": np.zeros(4, "int64"),
        "start_ns": np.array([0, 10, 20, 30]),
        "end_ns": np.array([5, 20, 30, 41]),
    }
    trace = Trace(Spans.from_columns(["a"], names), "x")
    monkeypatch.setattr(tracers, "read", lambda path: trace)
    (tmp_path / tracers.WINDOW).write_text(json.dumps({"begin": [1010, 500], "end": [1040, 530]}))
    (tmp_path / "engine-1.json").touch()
    (tmp_path / "engine-1.json.start").write_text("490")  # ten before the window began, by the time of day
    assert tracers.EngineTracer().spans(tmp_path).columns["start_ns"].tolist() == [1010, 1020]
    (tmp_path / "engine-1.json.start").unlink()
    assert len(tracers.EngineTracer().spans(tmp_path)) == 0
    monkeypatch.setattr(tracers, "read", lambda path: replace(trace, timed=False))
    assert len(tracers.EngineTracer().spans(tmp_path)) == 4


KIND = {
    name: SimpleNamespace(name=name)
    for name in ("KERNEL", "DRIVER", "MEMCPY", "MEMSET", "GRAPH_TRACE", "OTHER")
}
PLACES = ("thread", "device", "context", "stream", "correlation", "graph", "bytes")


def recorded(*records, shift=0):
    """Rows of (kind, name, start, end, *PLACES) that a recorder makes of these records."""
    fake = FakeCupti()
    fake.get_callback_name = lambda domain, cbid: {2: "cuLaunchKernel", 3: "cudaMalloc"}[domain]
    recorder = cupti.Recorder(fake)
    recorder.completed(records)
    spans = recorder.spans(shift)
    c = {k: v.tolist() for k, v in spans.columns.items()}
    assert set(c["process"]) <= {os.getpid()}
    kinds = [SPAN_KINDS[k] for k in c["kind"]]
    return list(zip(kinds, spans.named(), c["start_ns"], c["end_ns"], *(c[k] for k in PLACES), strict=True))


def test_a_record_without_a_place_has_none():
    bare = [
        SimpleNamespace(kind=KIND["KERNEL"], name="gemm", start=5, end=9),
        SimpleNamespace(kind=KIND["MEMSET"], start=6, end=6),
        SimpleNamespace(kind=KIND["OTHER"], start=6, end=7),
    ]
    assert recorded(*bare, shift=100) == [
        ("kernel", "gemm", 105, 109, *[-1] * 7),
        ("copy", "memset", 106, 106, *[-1] * 7),
    ]


def test_every_place_of_a_record_is_kept():
    gpu = {"device_id": 1, "context_id": 2, "stream_id": 3, "correlation_id": 4, "start": 5, "end": 9}
    found = recorded(
        SimpleNamespace(kind=KIND["KERNEL"], name="a", graph_node_id=7, graph_id=8, **gpu),
        SimpleNamespace(kind=KIND["GRAPH_TRACE"], graph_id=8, **gpu | {"stream_id": 2**32 - 1}),
        SimpleNamespace(
            kind=KIND["MEMCPY"], copy_kind=2, bytes=64, graph_node_id=0, **gpu | {"stream_id": 2**31}
        ),
        SimpleNamespace(kind=KIND["MEMCPY"], copy_kind=99, bytes=0, **gpu | {"stream_id": 2**31 - 1}),
        SimpleNamespace(kind=KIND["DRIVER"], cbid=1, thread_id=2**31 + 6, correlation_id=4, start=1, end=2),
        SimpleNamespace(kind=KIND["KERNEL"], name="never ended", **gpu | {"end": 4}),
        SimpleNamespace(kind=KIND["KERNEL"], name="never began", **gpu | {"start": 0}),
    )
    assert [row[:4] for row in found] == [
        ("kernel", "a", 5, 9),
        ("graph", "CUDA graph", 5, 9),
        ("copy", "D2H", 5, 9),
        ("copy", "copy of kind 99", 5, 9),
        ("api", "cuLaunchKernel", 1, 2),
    ]
    assert [row[5:] for row in found] == [
        (1, 2, 3, 4, 7, -1),
        (1, 2, -1, 4, 8, -1),
        (1, 2, -1, 4, -1, 64),
        (1, 2, 2**31 - 1, 4, -1, 0),
        (-1, -1, -1, 4, -1, -1),
    ]
    assert found[4][4] == 6


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        *(("cudaLaunchKernel", True), ("cuMemcpyHtoD", True), ("cudaFree", True), ("cudaGraphLaunch", True)),
        *(("cudaEventSynchronize", True), ("cudaMemGetInfo", False), ("cuMemPoolGetAttribute", False)),
        *(("cudaGetDevice", False), ("cuCtxGetCurrent", False)),
    ],
)
def test_which_calls_an_account_needs(name, kept):
    assert cupti.needed(name) is kept


def test_the_tightest_of_twenty_readings_tells_how_far_the_clocks_are_apart(monkeypatch):
    """Each reading takes longer than the last but for the seventh, which takes 10 ns."""
    times, calls = [], []
    for i in range(20):
        took = 10 if i == 6 else 1000 + 20 * i
        times += [10_000 * i, 10_000 * i + took]
    clock = iter(times)
    monkeypatch.setattr(cupti, "time", SimpleNamespace(monotonic_ns=lambda: next(clock)))
    theirs = SimpleNamespace(get_timestamp=lambda: calls.append(0) or 10_000 * (len(calls) - 1) - 400)
    assert repr(cupti._shift(theirs)) == "405" and len(calls) == 20
