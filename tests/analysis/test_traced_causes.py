"""Causes in traces whose truth is known, and in a recorded one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.kernels.account import account, causes, of_trace
from edgescope.cli.main import main
from edgescope.records import SPAN_KINDS, Spans, Trace
from edgescope.wings.trace.imported import read

RECORDED = Path(__file__).parents[1] / "recorded_traces"
US = 1000


def trace(rows) -> Trace:
    """Rows of (kind, name, start us, end us, process, correlation)."""
    names = list(dict.fromkeys(r[1] for r in rows))
    on_gpu = [r[0] in ("kernel", "copy") for r in rows]
    columns = {
        "kind": [SPAN_KINDS.index(r[0]) for r in rows],
        "name": [names.index(r[1]) for r in rows],
        "start_ns": [round(r[2] * US) for r in rows],
        "end_ns": [round(r[3] * US) for r in rows],
        "process": [r[4] for r in rows],
        "thread": [-1 if g else r[4] for g, r in zip(on_gpu, rows, strict=True)],
        "device": [0 if g else -1 for g in on_gpu],
        "correlation": [r[5] for r in rows],
        "stream": [7 if g else -1 for g in on_gpu],
    }
    return Trace(Spans.from_columns(names, {k: np.array(v, "int64") for k, v in columns.items()}), "made")


def program(kernel, gap, *, launches=10, syncs=1, copy=0.0, queries=4):
    """Queries of `launches` kernels of `kernel` us, each launched `gap` us after the one before has ended."""
    rows, at, number = [], 0.0, 0
    for _ in range(queries):
        start = at
        if copy:
            rows += [
                ("api", "cudaMemcpyAsync", at, at + 1, 1, number),
                ("copy", "H2D", at + 1, at + 1 + copy, 1, number),
            ]
            at, number = at + 1 + copy, number + 1
        for k in range(launches):
            begun = at + gap
            rows += [("api", "cudaLaunchKernel", begun - min(gap, 1.0), begun, 1, number)]
            rows += [("kernel", "gemm", begun, begun + kernel, 1, number)]
            at, number = begun + kernel, number + 1
            if syncs > 1 and k % max(1, launches // syncs) == 0:
                rows += [("sync", "cudaStreamSynchronize", at, at + 0.5, 1, 10_000 + number)]
                at += 0.5
        rows += [
            ("sync", "cudaStreamSynchronize", at - kernel, at, 1, 20_000 + number),
            ("range", "infer", start, at, 1, -1),
        ]
    return account(trace(rows))


def named(made):
    return [f.cause for f in of_trace(made, "t").findings]


def test_gaps_that_the_host_leaves_are_launches():
    made = program(2.0, 8.0)
    (first, *_) = of_trace(made, "t").findings
    assert first.cause == "launch-bound" and first.share == pytest.approx(0.7, abs=0.12)
    assert first.remedies[0].gain.value == pytest.approx(1 / (1 - first.share))


def test_kernels_back_to_back_leave_nothing_to_explain():
    said = of_trace(program(20.0, 0.1), "t")
    assert said.cause == "unknown" and said.reason


def test_many_waits_within_an_inference_are_syncs():
    assert named(program(2.0, 8.0, launches=20, syncs=20))[0] == "sync-bound"


def test_copies_beside_no_kernel_are_transfers():
    assert named(program(10.0, 0.1, copy=100.0))[0] == "transfer-bound"


def test_a_trace_without_a_gpu_says_so():
    rows = [("api", "open", 0, 1, 1, -1), ("range", "infer", 0, 2, 1, -1)]
    assert "no activity of a GPU" in of_trace(account(trace(rows)), "t").reason


@pytest.mark.wings
def test_a_recorded_eager_network_is_launch_bound(capsys):
    path = RECORDED / "nsys_2025_resnet50_h200.sqlite"
    assert next(iter(causes(account(read(path))))).cause == "launch-bound"
    assert main(["explain", "--trace", str(path)]) == 0
    text = capsys.readouterr().out
    assert "launch-bound" in text and "CUDA graph" in text
    assert main(["trace", "-v", str(path)]) == 0
    assert "What limits it: launch-bound" in capsys.readouterr().out
