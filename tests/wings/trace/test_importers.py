"""Every importer on what a real profiler wrote: nothing is lost, and sums are those of the file itself."""

import csv
import gzip
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.kernels.account import account
from edgescope.analysis.kernels.rows import Cover
from edgescope.errors import UsageError
from edgescope.records import SPAN_KINDS
from edgescope.wings.trace import export
from edgescope.wings.trace.imported import read

RECORDED = Path(__file__).parents[2] / "recorded_traces"
NSYS = RECORDED / "nsys_2025_resnet50_h200.sqlite"


def kinds(trace):
    found, counts = np.unique(trace.spans.columns["kind"], return_counts=True)
    return {SPAN_KINDS[k]: int(n) for k, n in zip(found, counts, strict=True)}


def total(trace, kind):
    spans = trace.spans.of_kind(kind)
    return int((spans.columns["end_ns"] - spans.columns["start_ns"]).sum())


def test_nsight_systems_rows_and_sums_are_those_that_sql_counts():
    trace = read(NSYS)
    with sqlite3.connect(NSYS) as base:
        one = lambda sql: base.execute(sql).fetchone()[0]  # noqa: E731
        assert kinds(trace)["kernel"] == one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        assert total(trace, "kernel") == one("SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        assert kinds(trace)["api"] + kinds(trace)["sync"] == one(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        )
        samples = one("SELECT count(*) FROM GPU_METRICS")
        tensor = one("SELECT avg(value) FROM GPU_METRICS WHERE metricId = 5")
    assert trace.samples is not None and len(trace.samples.t_ns) == samples
    _, value = trace.samples.series("gpu0_tensor_active")
    assert value.mean() == pytest.approx(tensor / 100)
    assert trace.source == "Nsight Systems 2025.3.2.0, schema 3.20.3" and trace.notes == ()
    assert trace.facts["gpus"]["0"] == {"name": "NVIDIA H200", "multiprocessors": 132}


def test_nsight_computes_raw_page_is_read_below_what_the_tool_says_of_itself():
    trace = read(RECORDED / "ncu_2026_products_h100.csv")
    assert kinds(trace) == {"kernel": 2} and total(trace, "kernel") == 1439616 + 1440032
    _, tensor = trace.samples.series("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")
    assert tensor.tolist() == [93.72, 93.76]
    _, cycles = trace.samples.series("sm__cycles_active.avg")
    assert cycles[0] == 2129447.98  # thousands are set apart by commas
    assert not any(c.name.startswith(("device__", "profiler__")) for c in trace.samples.channels)


def test_a_trace_that_cupti_recorded_on_an_h100_is_read_from_what_was_exported():
    found = account(read(RECORDED / "cupti_2026_resnet50_h100.json.gz"))
    queries = len(found.inferences)
    assert queries >= 2 and found.budget.closure > 0.98 and found.launches.lone == 0
    assert (found.budget.launches >= 300).all() and found.budget.syncs.min() >= 1
    assert not any(c.name.startswith("cudaGetDevice") for c in found.calls), (
        "calls that the account does not need"
    )
    assert found.launches.kernel.count > 300 * queries and found.gpus[0].busy < 0.2


def test_the_budget_of_a_real_query_sums_to_its_wall_time_within_two_per_cent():
    found = account(read(NSYS))
    assert len(found.inferences) == 3 and found.inferences.how == "ranges called 'infer'"
    assert 0.98 <= found.budget.closure <= 1.0
    assert (found.budget.total == found.inferences.end - found.inferences.start).all()
    assert (found.budget.ec + found.budget.cs == found.budget.total).all()
    assert found.budget.launches.tolist() == [345, 345, 345] and found.budget.syncs.tolist() == [1, 1, 1]
    gpu = found.gpus[0]
    assert gpu.busy_ns + gpu.idle_ns == gpu.span_ns
    assert gpu.idle_host_ns + gpu.idle_launch_ns + gpu.idle_unknown_ns == gpu.idle_ns
    assert sum(k.total_ns for k in found.kernels) == gpu.kernel_ns == gpu.busy_ns, (
        "one stream: nothing overlaps"
    )


def test_torch_profiler(tmp_path):
    path = RECORDED / "kineto_cpu_torch_2_13.json"
    trace = read(path)
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cpu_op"]
    assert kinds(trace)["op"] == len(events)
    assert total(trace, "op") == pytest.approx(sum(e["dur"] * 1000 for e in events), abs=2 * len(events))
    operators = {n.name: n for n in account(trace).operators}
    whole = sum(e["dur"] * 1000 for e in events if e["name"] == "aten::conv2d")
    assert operators["aten::conv2d"].total_ns < 0.1 * whole, "its own time, without what it calls"
    ops = trace.spans.of_kind("op").columns
    covered = Cover.of(ops["start_ns"], ops["end_ns"]).total
    assert sum(n.total_ns for n in operators.values()) == pytest.approx(covered, rel=1e-4), (
        "one thread, nested"
    )
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert kinds(read(packed)) == kinds(trace)


def test_onnx_runtime():
    trace = read(RECORDED / "onnxruntime_1_32.json")
    assert kinds(trace)["range"] == 4 and account(trace).inferences.how == "ranges called 'model_run'"
    assert kinds(trace)["op"] % 4 == 0 and any(n.startswith("Conv ") for n in trace.spans.names)
    assert [n.code for n in trace.notes] == ["I-PROF-1"]


def test_openvino_counters(tmp_path):
    path = tmp_path / "counters.csv"
    path.write_text(
        "layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)\n"
        "input;Status.NOT_RUN;Parameter;unknown_f32;0;0\n"
        "/0/Conv;Status.EXECUTED;Convolution;brgconv_avx512_amx_bf16;0.196;0.196\n"
        "11;EXECUTED;FullyConnected;brgemm;0:00:00.000188;0\n"
        "Total;EXECUTED;;;0.4;0.4\n"
    )
    trace = read(path)
    assert [(n.name, n.total_ns) for n in account(trace).operators] == [
        ("Convolution /0/Conv", 196_000),
        ("FullyConnected 11", 188_000),
    ]
    assert not trace.timed and not account(trace).gpus


@pytest.mark.parametrize("cut", [False, True])
def test_openvino_counters_as_json(tmp_path, cut):
    """benchmark_app -json_stats with two requests; cut, the file lacks the layers of the second."""
    path = RECORDED / "openvino_2026_json_stats.json"
    if cut:
        whole, path = path.read_text(), tmp_path / "cut.json"
        path.write_text(whole[: whole.index('"total_real_time"')])
    trace = read(path)
    times = [(n.name, n.count, n.total_ns) for n in account(trace).operators]
    assert times == [
        (name, 1 if cut else 2, us * (1 if cut else 2) * 1000)
        for name, us in (
            ("Convolution /0/Conv/WithoutBiases", 23),
            ("MaxPool /2/MaxPool", 6),
            ("FullyConnected 9", 3),
            ("Reorder /2/MaxPool_acdb_abcd_/3/Flatten", 2),
        )
    ]
    assert not trace.timed
    assert [n.code for n in trace.notes] == ["W-PROF-3"] * cut + ["I-PROF-8", "I-PROF-2"]
    assert bool(trace.facts.get("damaged")) is cut


def test_other_reports_of_benchmark_app(tmp_path):
    """The sorted one is one array; numbers may be numbers. Of averages its first layer alone is written."""
    nodes = json.loads((RECORDED / "openvino_2026_json_stats.json").read_text())["detailed_performance"][0][
        "nodes"
    ]
    path = tmp_path / "report.json"
    numbers = [{**row, "real_time": float(row["real_time"]), "status": row["status"][7:]} for row in nodes]
    for rows in (nodes, numbers):
        path.write_text(json.dumps({"report_type": "sorted", "avg_performance": {"nodes": rows}}))
        assert account(read(path)).operators[0].total_ns == 23_000
    path.write_text(json.dumps({"report_type": "average", "avg_performance": {"nodes": nodes[:1]}}))
    with pytest.raises(UsageError) as error:
        read(path)
    assert error.value.message.code == "E-PROF-1" and "detailed_counters" in error.value.message.fix
    path.write_text(
        json.dumps({"cmd_options": {"-m": "m.onnx"}, "execution_results": {"read model time": "5"}})
    )
    with pytest.raises(UsageError) as error:
        read(path)
    assert error.value.message.code == "E-PROF-3" and "detailed_counters" in error.value.message.fix


def test_trtexec():
    layers = account(read(RECORDED / "trtexec_layers_resnet18.json")).operators
    assert layers[0].name == "/conv1/Conv + /relu/Relu" and layers[0].total_ns == 28_849
    trace = read(RECORDED / "trtexec_times_resnet18.json")
    found = account(trace)
    assert len(found.inferences) == 40 and found.kernels[0].name == "compute" and found.budget is None
    rows = json.loads((RECORDED / "trtexec_times_resnet18.json").read_text())
    assert found.kernels[0].total_ns == pytest.approx(
        sum(r["endComputeMs"] - r["startComputeMs"] for r in rows) * 1e6
    )


@pytest.mark.parametrize(("name", "kind"), [("api", None), ("kernels", "kernel")])
def test_nsys_stats_totals(name, kind):
    path = RECORDED / f"nsys_stats_{name}_orin_nano.csv"
    trace = read(path)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    whole = sum(int(float(r["Total Time (ns)"])) for r in rows)
    length = int((trace.spans.columns["end_ns"] - trace.spans.columns["start_ns"]).sum())
    assert length == pytest.approx(whole, abs=len(trace.spans))
    assert len(trace.spans) == sum(int(r.get("Instances") or r["Num Calls"]) for r in rows)
    assert kind is None or set(kinds(trace)) == {kind}
    assert account(trace).inferences.start.size == 0 and account(trace).budget is None, (
        "it says nothing of order"
    )


def test_nsight_compute_long_and_wide(tmp_path):
    long, wide = tmp_path / "long.csv", tmp_path / "wide.csv"
    head = '==PROF== Connected to process 7\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    metric = "sm__inst_executed_pipe_tensor.sum"
    long.write_text(
        head + '"0","gemm","gpu__time_duration.sum","usecond","1.5"\n'
        f'"0","gemm","{metric}","inst","1,024"\n"1","relu","gpu__time_duration.sum","nsecond","900"\n'
    )
    wide.write_text(
        f'"ID","Kernel Name","gpu__time_duration.sum","{metric}"\n"","","us","inst"\n"0","gemm","1.5","1,024"\n'
    )
    trace = read(long)
    assert [(n.name, n.total_ns) for n in account(trace).kernels] == [("gemm", 1500), ("relu", 900)]
    assert trace.samples.series(metric)[1].tolist() == [1024.0]
    assert read(wide).samples.series(metric)[1].tolist() == [1024.0]
    assert account(read(wide)).kernels[0].total_ns == 1500
    told = '==PROF== Profiling "gemm": 0%....50%....100% - 9 passes\n' * 300
    wide.write_text(told + wide.read_text())
    assert account(read(wide)).kernels[0].total_ns == 1500


def test_perf_sched_totals_match_a_direct_count():
    path = RECORDED / "perf_sched_threads.txt"
    lines = path.read_text().splitlines()
    switches = [line for line in lines if "sched_switch" in line]
    trace = read(path)
    assert trace.facts["scheduling"]["switches"] == len(switches)
    begun = {}
    on = {}
    for line in switches:
        t = round(float(line.split("]")[1].split(":")[0]) * 1e9)
        prev, following = (int(line.split(f"{w}_pid=")[1].split()[0]) for w in ("prev", "next"))
        cpu = line.split("[")[1].split("]")[0]
        if prev and begun.get(cpu, (0,))[0] == prev:
            on[prev] = on.get(prev, 0) + t - begun[cpu][1]
        begun[cpu] = following, t
    found = {s.process: s for s in account(trace).scheduled}
    assert sum(s.on_cpu_ns for s in found.values()) == pytest.approx(sum(on.values()), rel=1e-4)
    assert any(s.run_queue.count for s in found.values()), "wake-ups give the time in the run queue"


@pytest.mark.slow
def test_what_is_written_for_perfetto_has_the_same_account(tmp_path):
    trace = read(NSYS)
    again = tmp_path / "trace.json"
    export.write_json(trace, again)
    one, two = account(trace), account(read(again))
    assert two.gpus == one.gpus and two.launches == one.launches and two.kernels == one.kernels
    assert two.budget.closure == one.budget.closure
    assert {k: v.tolist() for k, v in two.budget.parts.items()} == {
        k: v.tolist() for k, v in one.budget.parts.items()
    }
    events = json.loads(again.read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"X", "M", "C"}


def test_the_table_answers_sql_and_is_parquet(tmp_path):
    trace = read(NSYS)
    assert "1026" in export.query(trace, "SELECT count(*) AS n FROM spans WHERE kind = 'kernel'")
    assert "gpu0_sm_active" in export.query(trace, "SELECT DISTINCT channel FROM samples")
    with pytest.raises(UsageError, match="E-PROF-10"):
        export.query(trace, "SELECT nothing FROM spans")
    export.write_parquet(trace, tmp_path / "spans.parquet")
    import duckdb

    rows = duckdb.sql(f"SELECT count(*), count(DISTINCT name) FROM '{tmp_path}/spans.parquet'").fetchall()
    assert rows == [(len(trace.spans), len(trace.spans.names))]


def test_a_file_of_no_known_format_is_refused(tmp_path):
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"QDSTRM" * 10)
    with pytest.raises(UsageError, match="nsys export --type sqlite"):
        read(path)
    with pytest.raises(UsageError, match="E-PROF-2"):
        read(tmp_path / "missing")
