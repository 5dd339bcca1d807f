"""The backend over the real TensorRT-RTX, which builds without a GPU: what it takes, refuses and keeps.

Engines are built for a named GPU, and none is run here. `make test-rtx` builds every network of the zoo.
"""

import importlib
import importlib.util
import sys

import onnx
import pytest
from fake_cudart import FakeCudart

from edgescope import cache
from edgescope.backends import cudart
from edgescope.backends.base import Spec
from edgescope.errors import DeviceError, UnsupportedError, UsageError
from edgescope.models import zoo

pytestmark = [
    pytest.mark.rtx,
    pytest.mark.skipif(
        importlib.util.find_spec("tensorrt_rtx") is None,
        reason="TensorRT-RTX is not installed: pip install 'edgescope[rtx]', under NVIDIA's licence",
    ),
]
PRECISIONS = ("fp32", "tf32", "fp16", "int8")


@pytest.fixture
def real(board, monkeypatch, tmp_path):
    """The backend's modules over the real library, as if no other TensorRT were installed."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    board.forget()
    cudart.runtime.cache_clear()
    yield lambda name: importlib.import_module(f"edgescope.wings.tensorrt.{name}")
    board.forget()
    cudart.runtime.cache_clear()


def spec(precision="fp32", batch=1, **options):
    return Spec(precision, batch, options={"compute_capability": "8.6", **options}, device="cuda")


def prepare(real, model, asked):
    return real("backend").TensorRt().prepare(model, asked, cache.folder("artifacts"))


@pytest.fixture
def request_for(real, network, tmp_path):
    """A function that returns a request to build the small network, changed as said."""

    def made(path=None, **changes):
        shapes = tuple((n, 3, 12, 12) for n in (1, 1, 4))
        onnx_file = path or network().onnx(tmp_path)
        usual = {"precision": "fp32", "profile": {"image": shapes}, "compute_capability": "8.6"}
        return real("build").Request(onnx=onnx_file, **usual | changes)

    return made


@pytest.mark.network
@pytest.mark.parametrize("name", ["lenet5", "har_densenet", "light_head"])
def test_a_network_is_built_in_every_precision_with_an_open_batch(real, name):
    model = zoo.get(name, {}, 1)
    for precision in PRECISIONS:
        made = prepare(real, model, spec(precision, profile_max=4))
        facts = real("engine_file").read(made.path)
        assert (facts.compute_capability, facts.tensorrt[:4], facts.bytes > 10_000) == ("8.6", "RTX ", True)
        heavy = facts.flags["heavy"]
        asked = "fp32" if precision == "tf32" else precision
        assert set(heavy) == {asked} or (
            precision == "int8" and heavy["int8"] and set(heavy) == {"int8", "fp32"}
        )


def test_the_library_names_its_gpus_and_no_jetson_or_data_centre(real):
    library = real("library")
    assert library.IS_RTX and library.API >= (11, 0) and f"RTX {library.OWN_VERSION}" == library.FULL_VERSION
    assert {"8.6", "8.9", "12.0"} <= set(library.RUNS_ON)
    assert not {"8.7", "9.0", "NONE"} & set(library.RUNS_ON)


def test_a_gpu_of_a_data_centre_is_refused_before_anything_is_built(real, network, monkeypatch):
    monkeypatch.setattr(cudart, "library", lambda: FakeCudart(name="NVIDIA H100", capability="9.0"))
    with pytest.raises(UnsupportedError, match="E-TRT-17"):
        prepare(real, network(), Spec("fp32", 1, device="cuda"))
    assert not list(cache.folder("artifacts").glob("*.engine"))


@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_it_keeps_no_kernel_timings_and_none_are_claimed(request_for, real, network, tmp_path):
    kept = tmp_path / "kernels.cache"
    assert real("build").build(request_for(timing_cache=kept)).timings == "off"
    assert not kept.exists()
    with pytest.raises(UnsupportedError, match="E-TRT-16"):
        prepare(real, network(), spec(timing_cache=True))


def test_limits_are_kept(request_for, real):
    build = real("build")
    assert build.build(request_for(workspace_mb=256, level=0, timeout_s=60)).plan
    with pytest.raises(DeviceError, match="E-TRT-4") as refused:
        build.build(request_for(workspace_mb=1))
    assert "within workspace limit" in refused.value.evidence
    with pytest.raises(DeviceError, match="E-TRT-5"):
        build.build(request_for(timeout_s=1e-9))


def test_an_unknown_operator_is_named_with_its_node(request_for, real, network, tmp_path):
    model = onnx.load(network().onnx(tmp_path))
    model.graph.node[1].op_type, model.graph.node[1].domain = "Swirl", "mine"
    model.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    onnx.save(model, tmp_path / "swirl.onnx")
    with pytest.raises(UnsupportedError, match="E-TRT-2") as refused:
        real("build").build(request_for(tmp_path / "swirl.onnx"))
    assert "act1 (Swirl)" in refused.value.what


def test_a_file_that_is_no_network_is_refused(request_for, real, tmp_path):
    (tmp_path / "empty.onnx").write_bytes(b"no network")
    with pytest.raises(UnsupportedError, match="E-TRT-2"):
        real("build").build(request_for(tmp_path / "empty.onnx"))


def test_shapes_and_cores_that_are_not_there_are_refused(request_for, real, network, tmp_path):
    closed = network(batch=2).onnx(tmp_path)
    with pytest.raises(UsageError, match="E-TRT-3"):
        real("build").build(request_for(closed))
    with pytest.raises(UnsupportedError, match="E-TRT-13"):
        real("build").build(request_for(dla=0))


def test_every_gpu_that_it_names_can_be_built_for(real, network):
    for capability in real("library").BUILDS_FOR:
        made = prepare(real, network(), spec("fp16", compute_capability=capability))
        assert real("engine_file").read(made.path).flags["heavy"] == {"fp16": 4}


def test_turing_has_no_matrix_product_in_fp32_and_the_error_says_so(request_for, real):
    with pytest.raises(DeviceError, match="E-TRT-4") as refused:
        real("build").build(request_for(compute_capability="7.5"))
    assert "FP32 GEMM is not supported" in refused.value.evidence and "--precision fp16" in refused.value.fix


def test_errors_are_read_while_something_made_earlier_still_lives(request_for, real):
    """The library writes to its first logger as long as anything made with it lives."""
    earlier = real("library").trt.Builder(real("api_types").only_log())
    with pytest.raises(DeviceError, match="FP32 GEMM"):
        real("build").build(request_for(compute_capability="7.5"))
    del earlier


def test_an_engine_for_another_gpu_is_ready_and_not_run(real, network, monkeypatch):
    cuda = FakeCudart()
    cuda.failing["cudaGetDevice"] = 35
    monkeypatch.setattr(cudart, "library", lambda: cuda)
    made = prepare(real, network(), spec())
    with pytest.raises(UnsupportedError, match="E-TRT-19"):
        real("backend").TensorRt().load(made)
