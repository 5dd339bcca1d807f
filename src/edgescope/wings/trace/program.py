"""What a program left that ran with tracing/inject on its path, as one trace: functions, operators, calls, kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.errors import Message
from edgescope.process import Launch
from edgescope.records import SPAN_KINDS, Spans, Trace
from edgescope.wings.trace import clock_marks
from edgescope.wings.trace.importers import kineto

INJECT = Path(__file__).parent / "inject"
FOLDER, SECONDS = "EDGESCOPE_PROGRAM", "EDGESCOPE_PROGRAM_SECONDS"
#: Two samples further apart than this do not make one span: the program did not run in between.
APART_NS = 50_000_000


def launch(folder: Path, path: str, seconds: float = 0.0) -> Launch:
    """Return the launch of a program whose files go to `folder`; `path` is the PYTHONPATH that it would have."""
    paths = ":".join(filter(None, (str(INJECT), path)))
    return Launch(env={"PYTHONPATH": paths, FOLDER: str(folder), SECONDS: str(seconds)})


def collected(folder: Path) -> Trace:
    """Return what the program and the Python processes that it started left in the folder."""
    parts: list[Spans] = []
    notes: list[Message] = []
    for path in sorted(folder.glob("functions-*.json")):
        left = json.loads(path.read_text(encoding="utf-8"))
        parts.append(_functions(left))
        if left["torch_error"]:
            notes.append(
                Message("W-PROF-11", "torch.profiler could not record", evidence=left["torch_error"])
            )
    for path in sorted(folder.glob("kineto-*.json")):
        trace = clock_marks.aligned(kineto.read(path))
        parts.append(trace.spans)
        notes.extend(trace.notes)
    if not parts:
        notes.append(
            Message(
                "W-PROF-12",
                "the program left no profile",
                evidence="it is not Python, ended by os._exit or a signal, or runs with -I, -E or -S",
                effect="Only what the kernel knows of it is shown: CPU time, waiting, switches",
                fix="nsys profile -t cuda,nvtx,osrt PROGRAM, then edgescope trace of its export",
            )
        )
    return Trace(
        Spans.joined(parts) if parts else Spans.none(), "a program", clock="monotonic", notes=tuple(notes)
    )


def _functions(left: dict[str, Any]) -> Spans:
    """Return the sampled stacks of the main thread as nested `call` spans: runs of samples within one function."""
    open_: list[tuple[str, int]] = []
    rows: list[tuple[str, int, int]] = []
    last = left["begin_ns"]
    for t, index in [*left["samples"], (left["end_ns"], -1)]:
        stack = left["stacks"][index] if index >= 0 else []
        same = 0
        while same < min(len(stack), len(open_)) and open_[same][0] == stack[same] and t - last < APART_NS:
            same += 1
        edge = (t + last) // 2 if t - last < APART_NS else last
        rows += [(name, since, edge) for name, since in open_[same:]]
        open_ = [*open_[:same], *((name, edge if t - last < APART_NS else t) for name in stack[same:])]
        last = t
    names = list(dict.fromkeys(name for name, *_ in rows))
    index_of = {name: i for i, name in enumerate(names)}
    columns = {
        "name": np.array([index_of[name] for name, *_ in rows], "int32"),
        "start_ns": np.array([start for _, start, _ in rows], "int64"),
        "end_ns": np.array([end for *_, end in rows], "int64"),
    }
    fixed = {"kind": SPAN_KINDS.index("call"), "process": int(left["pid"]), "thread": int(left["pid"])}
    return Spans.from_columns(names, {**columns, **fixed})
