"""The log grammar of trtexec 8.0 to 11, written out by hand from the sources of its samples."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgescope.wings.tensorrt.trtexec import log

STAMP = "[11/02/2026-10:11:12] "
OLD = f"""&&&& RUNNING TensorRT.trtexec [TensorRT v8001] # /usr/src/tensorrt/bin/trtexec --loadEngine=a.engine
{STAMP}[I] === Device Information ===
{STAMP}[I] Selected Device: NVIDIA Tegra X1
{STAMP}[I] Compute Capability: 5.3
{STAMP}[I] TensorRT version: 8001
{STAMP}[I] [TRT] [MemUsageChange] Init CUDA: CPU +203, GPU +0, now: CPU 232, GPU 2795 (MiB)
{STAMP}[I] Engine loaded in 3.5 sec.
{STAMP}[I] Created input binding for input with dimensions 1x3x64x64
{STAMP}[I] Created output binding for boxes with dimensions 1x84x6
{STAMP}[I] Created output binding for classes with dimensions 1x84x80
{STAMP}[I] Starting inference
{STAMP}[I] Warmup completed 1 queries over 50 ms
{STAMP}[I] Timing trace has 100 queries over 4.07 s
{STAMP}[I] Average on 10 runs - GPU latency: 39.9 ms - Host latency: 40.6 ms (end to end 40.7 ms, enqueue 40.4 ms)
{STAMP}[I] === Performance summary ===
{STAMP}[I] Throughput: 24.5 qps
{STAMP}[I] Latency: min = 40.5 ms, max = 40.9 ms, mean = 40.63 ms, median = 40.6 ms, percentile(99%) = 40.85 ms
{STAMP}[I] End-to-End Host Latency: min = 1 ms, max = 2 ms, mean = 1.5 ms, median = 1.4 ms, percentile(99%) = 1.9 ms
{STAMP}[I] Enqueue Time: min = 40.2 ms, max = 40.6 ms, mean = 40.4 ms, median = 40.4 ms, percentile(99%) = 40.6 ms
{STAMP}[I] H2D Latency: min = 0.48 ms, max = 0.59 ms, mean = 0.54 ms, median = 0.54 ms, percentile(99%) = 0.59 ms
{STAMP}[I] GPU Compute Time: min = 39.8 ms, max = 40.1 ms, mean = 40 ms, median = 39.9 ms, percentile(99%) = 40.1 ms
{STAMP}[I] D2H Latency: min = 0.06 ms, max = 0.15 ms, mean = 0.08 ms, median = 0.07 ms, percentile(99%) = 0.15 ms
{STAMP}[I] Total Host Walltime: 4.07 s
{STAMP}[I] Total GPU Compute Time: 4 s
{STAMP}[W] * Throughput may be bound by Enqueue Time rather than GPU Compute and the GPU may be under-utilized.
{STAMP}[I] 
&&&& PASSED TensorRT.trtexec [TensorRT v8001] # /usr/src/tensorrt/bin/trtexec --loadEngine=a.engine
"""
NEW = f"""&&&& RUNNING TensorRT.trtexec [TensorRT v100300] [b26] # trtexec --onnx=model.onnx
{STAMP}[I] Selected Device: Orin
{STAMP}[I] Compute Capability: 8.7
{STAMP}[I] TensorRT version: 10.3.0
{STAMP}[I] [TRT] Opset version:    17
{STAMP}[I] Engine built in 104.5 sec.
{STAMP}[I] Created engine with size: 231.019 MiB
{STAMP}[I] Engine loaded in 0.25 sec.
{STAMP}[I] Engine deserialized in 0.5 sec.
{STAMP}[I] Input binding for gpu_0/data_0 with dimensions 1x3x224x224 is created.
{STAMP}[I] Output binding for gpu_0/softmax_1 with dimensions 1x1000 is created.
{STAMP}[I] Throughput: 1133.1 qps
{STAMP}[I] Latency: min = 0.87 ms, max = nan ms, mean = 0.88 ms, median = 0.88 ms, percentile(90%) = 0.881 ms, \
percentile(95%) = 0.882 ms, percentile(99%) = 0.89 ms
&&&& PASSED TensorRT.trtexec [TensorRT v100300] [b26] # trtexec --onnx=model.onnx
"""


def test_a_log_of_8_0():
    told = log.read(OLD.splitlines())
    assert (told.version, told.verdict) == ("8.0.1", "PASSED")
    assert (told.device, told.compute_capability) == ("NVIDIA Tegra X1", "5.3")
    assert told.loaded_s == 3.5
    assert told.built_s is None
    assert told.outputs == ("boxes", "classes")
    assert set(told.summary_ms) == {"latency", "end_to_end", "enqueue", "h2d", "gpu_compute", "d2h"}
    assert told.summary_ms["latency"] == {
        "min": 40.5,
        "max": 40.9,
        "mean": 40.63,
        "median": 40.6,
        "p99": 40.85,
    }
    assert told.totals == {"throughput_qps": 24.5, "host_walltime_s": 4.07, "total_gpu_compute_s": 4.0}
    assert len(told.warnings) == 1
    assert told.errors == ()


def test_a_log_of_10_has_a_build_number_three_percentiles_and_loads_in_two_steps():
    told = log.read(NEW.splitlines())
    assert told.version == "10.3.0.26"
    assert told.opset == 17
    assert (told.built_s, told.loaded_s) == (104.5, 0.75)
    assert told.outputs == ("gpu_0/softmax_1",)
    assert {k: told.summary_ms["latency"][k] for k in ("p90", "p95", "p99")} == {
        "p90": 0.881,
        "p95": 0.882,
        "p99": 0.89,
    }


@pytest.mark.parametrize(
    ("digits", "version"),
    [
        ("7103", "7.1.3"),
        ("8001", "8.0.1"),
        ("8205", "8.2.5"),
        ("8510", "8.5.10"),
        ("8602", "8.6.2"),
        ("9200", "9.2.0"),
        ("100300", "10.3.0"),
        ("101300", "10.13.0"),
        ("110201", "11.2.1"),
        ("11.1.0.106", "11.1.0.106"),
        ("", ""),
        ("123", ""),
    ],
)
def test_versions(digits, version):
    assert log.version_of(digits) == version


def test_what_a_dying_library_writes_without_a_tag_is_an_error():
    told = log.read(
        ["LLVM ERROR: out of memory", "terminate called after throwing an instance of 'std::bad_alloc'"]
    )
    assert len(told.errors) == 2
    assert told.verdict == ""


WORDS = st.sampled_from([*OLD.splitlines(), *NEW.splitlines()])
CUT = st.builds(lambda line, n, tail: line[:n] + tail, WORDS, st.integers(0, 120), st.text(max_size=20))


@given(st.lists(st.one_of(WORDS, CUT, st.text(max_size=80)), max_size=30))
@example(["[I] Throughput: 1e qps", "[I] Engine built in e sec", "[I] Opset version: 99999999999999999999"])
@example(["&&&& RUNNING TensorRT.trtexec [TensorRT v...] [b1]"])
@pytest.mark.slow
def test_any_lines_give_a_log(lines):
    told = log.read(lines)
    assert told.verdict in ("", "PASSED", "FAILED")
    assert all(isinstance(v, float) for values in told.summary_ms.values() for v in values.values())
