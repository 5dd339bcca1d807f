"""OpenVINO's counters are means since the graph was compiled: what edgescope reads from them is the time of a query."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.wings.openvino import backend
from edgescope.wings.trace.imported import read


class Request:
    """A request whose node takes the given seconds in one inference after the other, told as a running mean."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds, self.done = seconds, 0

    def infer(self, inputs: object = None) -> None:
        self.done += 1

    def get_profiling_info(self) -> list[SimpleNamespace]:
        mean = sum(self.seconds[: self.done]) / max(1, self.done)
        row = {"node_type": "Convolution", "exec_type": "jit_avx2_I8"}
        return [
            SimpleNamespace(
                node_name="conv", status="Status.EXECUTED", real_time=timedelta(seconds=mean), **row
            ),
            SimpleNamespace(node_name="gone", status="Status.NOT_RUN", real_time=timedelta(0), **row),
        ]


def test_a_slow_first_inference_is_not_in_the_time():
    request = Request([0.5, 0.3] + [0.002] * 10)
    assert backend.means(request, None, 10) == {"conv": pytest.approx(0.002, rel=1e-3)}
    assert request.done == backend.WARM + 10


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 10**6), min_size=4, max_size=30))
def test_two_readings_give_the_mean_of_what_lies_between(micros: list[int]):
    n, w = len(micros), 2
    mean = lambda k: {"a": sum(micros[:k]) / k}  # noqa: E731
    found = backend.between(mean(w), w, mean(n), n)["a"]
    assert found == pytest.approx(sum(micros[w:]) / (n - w), rel=1e-9)


def test_rounded_means_never_give_a_time_below_zero_and_a_new_node_counts_from_the_start():
    assert backend.between({"a": 2e-6}, 2, {"a": 1e-6, "b": 1e-6}, 3) == {"a": 0.0, "b": pytest.approx(3e-6)}


def test_the_engine_tracer_leaves_the_first_inferences_out(tmp_path):
    request, profile = Request([0.5, 0.3] + [0.002] * 8), backend.Profile()
    for _ in range(10):
        request.infer()
        profile.note(request)
    profile.write(request, tmp_path / "engine.csv")
    spans = read(tmp_path / "engine.csv").spans
    assert spans.columns["end_ns"].tolist() == [pytest.approx(2e6, rel=1e-3)]


def test_a_profile_of_less_than_the_warm_up_is_the_mean_of_all(tmp_path):
    request, profile = Request([0.004]), backend.Profile()
    request.infer()
    profile.note(request)
    profile.write(request, tmp_path / "engine.csv")
    assert read(tmp_path / "engine.csv").spans.columns["end_ns"].tolist() == [4_000_000]


@pytest.mark.parametrize(
    ("kind", "tensor", "kernel", "ran"),
    [
        ("Convolution", "i8", "brgconv_avx512_f32", "fp32"),  # signed with a zero point: the kernel is fp32's
        ("Convolution", "u8", "jit_avx2_I8", "int8"),
        ("Convolution", "bf16", "brgconv_avx512_amx_bf16", "bf16"),
        ("FullyConnected", "u4", "brgemm_avx2_f32", "int4"),
        ("FullyConnected", "i8", "brgemm_avx2_f32", "fp32"),
        ("Convert", "u4", "ref_f32", "fp32"),
        ("Convolution", "f32", "", "unknown"),
    ],
)
def test_precision_is_the_kernels(kind, tensor, kernel, ran):
    info = {"layerType": kind, "runtimePrecision": tensor, "primitiveType": kernel}
    assert backend.node_precision(info) == ran
