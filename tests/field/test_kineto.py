"""Traces of torch.profiler as its users have them, through the command line: faults that were met in public files.

Sources: traces of PyTorch's own tensorboard plug-in and of HolisticTraceAnalysis (torch 1.8 to 2.x); unescaped names:
kineto#1459, #336, #750 and pytorch#98432; a duration of an unfinished operator: pytorch#150131, kineto#646.
"""

import gzip
import json

import pytest

from edgescope.cli.main import main


def event(cat, name, ts, dur, pid=10, tid=10, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def kernel(name, ts, dur, correlation, cat="kernel"):
    return event(cat, name, ts, dur, 0, 7, device=0, stream=7, correlation=correlation)


def call(name, ts, dur, correlation, cat="cuda_runtime"):
    return event(cat, name, ts, dur, correlation=correlation)


def page(capsys, path, *flags, rc=0):
    """Return the account of the one trace, its notes' codes, and what was left out."""
    assert main(["trace", str(path), "--json", *flags]) == rc
    (one,) = json.loads(capsys.readouterr().out)["traces"].values()
    return one, [n["code"] for n in one["notes"]], one["facts"].get("left_out", {})


def written(tmp_path, events, head="", tail=""):
    path = tmp_path / "t.json"
    rows = ",\n".join(e if isinstance(e, str) else json.dumps(e) for e in events)
    path.write_text(f'{{"schemaVersion": 1, {head}"traceEvents": [\n{rows}\n]{tail}}}\n')
    return path


SINCE_1970 = 1_682_725_898_082_228
STEP = [call("cudaLaunchKernel", 10, 5, 1), kernel("k", 20, 30, 1)]


@pytest.mark.parametrize("fraction", ["", ".000", ".123", ".001", ".999"])
def test_times_since_1970_are_exact_to_the_nanosecond(capsys, tmp_path, fraction):
    at = lambda us: f'"ts": {SINCE_1970 + us}{fraction}'  # noqa: E731
    rows = [json.dumps(call("cudaLaunchKernel", "T", 5, 1)).replace('"ts": "T"', at(0))]
    for i, name in enumerate("abc"):
        rows.append(json.dumps(kernel(name, "T", 3, i + 1)).replace('"ts": "T"', at(5 + 3 * i)))
    one, codes, _ = page(capsys, written(tmp_path, rows))
    (gpu,) = one["gpus"]
    assert (gpu["span_ns"], gpu["busy_ns"], gpu["idle_unknown_ns"]) == (9000, 9000, 0)
    assert one["launches"]["queue"]["total_ns"] == 0 and one["launches"]["gap"]["count"] == 0 and not codes


def test_an_export_of_such_times_keeps_them(capsys, tmp_path):
    rows = [
        json.dumps(kernel("a", "T", 0.001, 1)).replace('"T"', f"{SINCE_1970}.{ns:03d}") for ns in (1, 2, 3)
    ]
    path, again = written(tmp_path, rows), tmp_path / "again.json"
    assert main(["trace", str(path), "--output", str(again)]) == 0
    capsys.readouterr()
    (gpu,) = page(capsys, again)[0]["gpus"]
    assert (gpu["span_ns"], gpu["busy_ns"]) == (3, 3)


def test_the_categories_of_torch_1_8(capsys, tmp_path):
    events = [event("Operator", "aten::add", 1000, 100), call("cudaLaunchKernel", 1010, 10, 1, "Runtime")]
    events += [kernel("k", 1030, 50, 1, "Kernel"), kernel("Memcpy HtoD", 1090, 5, 2, "Memcpy")]
    events += [kernel("Memset", 1096, 1, 3, "Memset")]
    one, codes, _ = page(capsys, written(tmp_path, events))
    assert [(k["name"], k["total_ns"]) for k in one["kernels"]] == [("k", 50_000)] and not codes
    assert [c["name"] for c in one["copies"]] == ["Memcpy HtoD", "Memset"]
    assert [o["name"] for o in one["operators"]] == ["aten::add"]
    assert one["launches"]["queue"]["total_ns"] == 10_000


@pytest.mark.parametrize(
    "cat", ["xpu_runtime", "privateuse1_runtime", "mtia_runtime", "cuda_driver", "new_driver"]
)
def test_calls_of_any_accelerator_launch(capsys, tmp_path, cat):
    one, codes, _ = page(capsys, written(tmp_path, [call("urEnqueueKernelLaunch", 10, 5, 1, cat), STEP[1]]))
    assert one["launches"]["queue"]["total_ns"] == 5_000 and one["launches"]["lone"] == 0 and not codes


@pytest.mark.parametrize(
    "tail", ['"INFO": ["x", "y"]', '"ERROR": [[], []], "INFO": [{"a": [1]}]', '"traceName": "]}"']
)
def test_arrays_after_the_events_are_not_the_end_of_them(capsys, tmp_path, tail):
    one, codes, left = page(capsys, written(tmp_path, STEP, tail=f", {tail}"))
    assert one["spans"] == 2 and not codes and not left


def test_a_head_of_more_than_a_megabyte_and_a_mark_of_the_encoding(capsys, tmp_path):
    path = written(tmp_path, STEP, head=f'"x": "{"y" * (3 << 20)}", ')
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert page(capsys, path)[0]["spans"] == 2


@pytest.mark.parametrize("end", ["]", "", ",\n"])
def test_an_array_of_events_alone_needs_no_end(capsys, tmp_path, end):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(("[\n" + ",\n".join(map(json.dumps, STEP)) + end).encode()))
    one, _, left = page(capsys, path)
    assert one["spans"] == 2 and not left


def test_begin_and_end_are_one_span_and_a_lone_one_is_said(capsys, tmp_path):
    def edge(ph, name, ts):
        return {"ph": ph, "cat": "user_annotation", "name": name, "ts": ts, "pid": 1, "tid": 1}

    events = [edge("B", "step", 0), edge("B", "inner", 5), edge("E", "inner", 7), edge("E", "", 50), STEP[1]]
    one, codes, _ = page(capsys, written(tmp_path, events))
    assert one["spans"] == 3 and one["inferences"]["count"] == 1 and not codes
    one, codes, left = page(
        capsys, written(tmp_path, [*events, edge("B", "open", 60), edge("E", "x", 90), edge("E", "y", 95)])
    )
    assert codes == ["W-PROF-5"] and list(left.values()) == [1]


def test_the_iterations_of_the_profiler_are_the_inferences_whatever_else_is_there(capsys, tmp_path):
    events = []
    for i in range(3):
        t = 100 * i
        events += [event("user_annotation", f"ProfilerStep#{i + 2}", t, 90)]
        events += [event("user_annotation", "nccl:all_reduce", t + j, 1, tid=99) for j in range(0, 50, 5)]
        events += [event("user_annotation", "[param|cuda]", t + 60 + j, 1) for j in range(5)]
        events += [call("cudaLaunchKernel", t + 10, 5, i), kernel("k", t + 20, 30, i)]
        events += [call("cudaDeviceSynchronize", t + 30, 25, 100 + i)]
    path = written(tmp_path, events)
    one, *_ = page(capsys, path)
    assert one["inferences"] == {"count": 3, "how": "ranges called 'ProfilerStep#N'"}
    assert one["budget"]["parts"]["total"]["total_ns"] == 3 * 90_000
    assert [k["inferences"] for k in one["kernels"]] == [3]
    for name, count in (("ProfilerStep", 3), ("ProfilerStep#3", 1), ("nccl:all_reduce", 30)):
        assert page(capsys, path, "--range", name)[0]["inferences"]["count"] == count


@pytest.mark.parametrize(
    "part", ["gloo:broadcast", "rccl:all_gather", "mpi:send", "[memory|x]", "Optimizer.step#SGD.step"]
)
def test_ranges_of_libraries_are_no_inferences(capsys, tmp_path, part):
    events = [event("user_annotation", part, 10 * i, 2) for i in range(9)]
    events += [event("user_annotation", f"step {i}", 200 * i + 100, 90, tid=3) for i in range(2)]
    assert page(capsys, written(tmp_path, events))[0]["inferences"]["how"] == "ranges called 'step N'"


def infer(i):
    return [
        event("user_annotation", "infer", 1000 * i, 500),
        event("cpu_op", "aten::conv2d", 1000 * i + 10, 100),
    ]


@pytest.mark.parametrize("dur", [-1, -0.001, -(2**32) / 1000, 2**64 / 1000, 18446744073709551.615, 1e300])
def test_an_impossible_duration_is_named_and_never_completed(capsys, tmp_path, dur):
    events = [*infer(1), *infer(2), event("cpu_op", "aten::linear", 2700, dur), kernel("k", 1100, dur, 1)]
    one, codes, left = page(capsys, written(tmp_path, events), rc=1)
    assert [o["name"] for o in one["operators"]] == ["aten::conv2d"] and one["gpus"] == []
    assert set(codes) <= {"W-PROF-2", "W-PROF-16"} and sum(left.values()) == 2
    assert any("aten::linear" in n["evidence"] for n in one["notes"])


@pytest.mark.parametrize("dur", [None, "soon", [], "missing"])
def test_a_missing_duration_is_not_0(capsys, tmp_path, dur):
    odd = event("cpu_op", "aten::relu", 1200, dur)
    if dur == "missing":
        del odd["dur"]
    one, codes, left = page(capsys, written(tmp_path, [*infer(1), odd]), rc=1)
    assert codes == ["W-PROF-16"] and sum(left.values()) == 1 and "event 3" in one["notes"][0]["evidence"]
    assert [(o["name"], o["count"]) for o in one["operators"]] == [("aten::conv2d", 1)]


BAD = [
    '{"ph": "X", "cat": "python_function", "name": "{"device": "cpu"}(12): run", "ts": 1, "dur": 2, "args": {}}',
    '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "args": {"x": [1, 2}}',
    '{"ph": "X", "cat": "cpu_op", "name": "a, "ts": 1, "dur": 2, "args": {}}',
    '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "args": {}',
    '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1 1, "dur": 2}',
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_one_bad_event_costs_itself_and_is_told_with_its_line(capsys, tmp_path, bad, at):
    rows = [*infer(1), *infer(2)]
    rows.insert(at, bad)
    one, codes, left = page(capsys, written(tmp_path, rows), rc=1)
    assert one["spans"] == 4 and codes == ["W-PROF-3"] and left == {"events cannot be read": 1}
    assert f"line {at + 1 + 1}" in one["notes"][0]["evidence"]


@pytest.mark.parametrize(
    "odd",
    [
        '{"ph": "X", "cat": "cpu_op", "name": "torch\\cuda\\__init__.py(219): _lazy_init", "ts": 1, "dur": 2}',
        '{"ph": "X", "cat": "cpu_op", "name": "k", "ts": 1, "dur": 2, "args": {"occupancy": nan, "x": -inf}}',
        '{"ph": "X", "cat": "cpu_op", "name": "k", "ts": 1, "dur": 2, "args": null}',
        '{"ph": "X", "cat": "cpu_op", "name": "k", "ts": "1", "dur": "2.0", "args": []}',
    ],
)
def test_what_is_no_json_but_plain_is_read(capsys, tmp_path, odd):
    one, codes, _ = page(capsys, written(tmp_path, [*infer(1), odd]))
    assert one["spans"] == 3 and not codes


def test_unknown_categories_and_phases_are_named_with_their_count(capsys, tmp_path):
    events = [*infer(1), event("mtia_ccp_events", "x", 5, 1), event("mtia_ccp_events", "y", 7, 1)]
    events += [{"ph": "b", "cat": "async", "name": "z", "ts": 3, "id": 1, "pid": 1}]
    events += [
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": 3, "id": 1},
        event("gpu_user_annotation", "x", 1, 1),
    ]
    one, codes, left = page(capsys, written(tmp_path, events), rc=1)
    assert codes == ["W-PROF-15", "W-PROF-15"] and sorted(left.values()) == [1, 2]
    assert any("mtia_ccp_events" in what for what in left)
    assert sum(one["facts"]["passed_over"].values()) == 2


def test_every_account_has_a_verdict_and_every_row_its_spread(capsys, tmp_path):
    def steps(second):
        rows = []
        for i in range(20):
            dur = 100 if i < 10 else second
            rows += [
                event("user_annotation", "infer", 1000 * i, dur),
                event("cpu_op", "op", 1000 * i, dur / 2),
            ]
        return rows

    one, *_ = page(capsys, written(tmp_path, steps(100)))
    assert one["verdict"]["trust"] == "UNKNOWN"
    for second in (130, 70):
        one, *_ = page(capsys, written(tmp_path, steps(second)))
        assert one["verdict"]["trust"] == "DISTURBED"
    (op,) = one["operators"]
    assert op["spread_ns"] == [35_000, 42_500, 50_000] and op["inferences"] == 20
    assert main(["trace", str(tmp_path / "t.json")]) == 0
    assert "DISTURBED" in capsys.readouterr().out


def test_a_file_that_is_there_is_never_looked_up_as_a_model(capsys, tmp_path):
    path = tmp_path / "resnet50"
    path.write_text("nothing that is known")
    assert main(["trace", str(path)]) == 2
    assert "E-PROF-3" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "missing.json")]) == 2
    assert "E-PROF-2" in capsys.readouterr().err
