"""Which TensorRT is taken, and TensorRT-RTX through the backend: a fake of it with its own versions, names and GPUs."""

import importlib
import json
import sys
from types import ModuleType

import pytest
from test_tensorrt import answer, inputs, load, prepare, spec, truth

from edgescope import cache
from edgescope.errors import DeviceError, UnsupportedError, UsageError

RTX, ADA = "1.7.1.116", {"name": "RTX 4090", "capability": "8.9"}


@pytest.fixture
def rtx(board):
    return lambda **gpu: board(RTX, rtx=True, **(gpu or ADA))


def engines():
    return sorted(cache.folder("artifacts").glob("*.engine"))


def test_rtx_counts_its_own_versions_and_has_the_api_of_11(rtx):
    library = rtx().part("library")
    assert ((11, 0), RTX, f"RTX {RTX}") == (library.API, library.OWN_VERSION, library.FULL_VERSION)
    assert library.RUNS_ON == ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")


def test_the_full_library_is_taken_where_both_are_there_and_names_no_gpu(board, monkeypatch):
    board(RTX, rtx=True)
    library = board("10.3.0.30").part("library")
    assert (library.API, library.FULL_VERSION, library.IS_RTX) == ((10, 3), "10.3.0.30", False)
    assert library.RUNS_ON == () and not library.BUILDS_FOR


def test_stubs_of_the_full_library_do_not_hide_rtx(board, rtx, monkeypatch):
    rtx()
    stubs = ModuleType("tensorrt")
    stubs.__path__ = ["somewhere"]
    monkeypatch.setitem(sys.modules, "tensorrt", stubs)
    board.forget()
    assert importlib.import_module("edgescope.wings.tensorrt.library").IS_RTX


def test_where_none_is_installed_the_full_one_is_missed_by_its_name(board, monkeypatch):
    board.forget()
    for name in ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'tensorrt'"):
        importlib.import_module("edgescope.wings.tensorrt.backend")


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_rtx_answers_rightly_and_is_named(rtx, network, precision):
    here, model = rtx(), network()
    session = load(here, model, spec(precision))
    if precision == "fp32":
        assert answer(session, inputs()) == pytest.approx(truth(model, inputs()), abs=1e-5)
    assert session.effective().precision == precision
    assert "TensorRT RTX 1.7.1.116 on RTX 4090" in session.effective().evidence
    assert here.trt.configs[-1]._named == ["SM89"]
    assert set(here.trt.specialised) == {"EAGER"}


def test_the_full_library_is_asked_for_no_gpu_and_no_specialisation(board, network):
    here = board("11.4.1.2")
    load(here, network(), spec())
    assert here.trt.configs[-1]._named == []
    assert here.trt.specialised == [None]


def test_types_of_the_network_speak_where_layers_tell_none(rtx, board, network):
    here, model = rtx(), network()
    here.trt.names_only = True
    effective = load(here, model, spec("fp16")).effective()
    assert effective.precision == "fp16" and "4 fp16 heavy layers" in effective.evidence
    before = board("10.3.0.30")
    before.trt.names_only = True
    assert load(before, model, spec("fp16")).effective().precision == "unknown"


def test_a_gpu_that_rtx_does_not_run_on_is_refused_before_anything_is_exported_or_built(rtx, network):
    here, model = rtx(name="NVIDIA H100", capability="9.0"), network()
    model.onnx = None  # whoever exports calls it
    with pytest.raises(UnsupportedError, match="E-TRT-17") as refused:
        prepare(here, model, spec())
    assert "9.0 (NVIDIA H100)" in refused.value.what and "8.9, 12.0" in refused.value.evidence
    assert here.trt.builds == 0 and not engines()


@pytest.mark.parametrize("given", [8.6, "8.6"])
def test_an_engine_is_built_for_a_named_gpu_without_any(rtx, network, given):
    here, model = rtx(), network()
    here.cuda.failing["cudaGetDevice"] = 35
    asked = spec("fp16", compute_capability=given)
    made = prepare(here, model, asked)
    assert here.trt.configs[-1]._named == ["SM86"]
    told = json.loads(made.path.with_name(f"{made.path.name}.json").read_text())
    assert (told["compute_capability"], told["device"], told["tensorrt"]) == ("8.6", "", f"RTX {RTX}")
    assert told["flags"]["heavy"] == {"fp16": 4}
    with pytest.raises(UnsupportedError, match="E-TRT-19") as refused:
        here.backend.TensorRt().load(made)
    assert made.path.name in refused.value.evidence
    assert prepare(here, model, asked).build_s == made.build_s and here.trt.builds == 1


def test_such_an_engine_runs_on_that_gpu_and_on_no_other(rtx, network):
    here, model = rtx(name="RTX 3090", capability="8.6"), network()
    session = load(here, model, spec(compute_capability="8.6"))
    assert answer(session, inputs()) == pytest.approx(truth(model, inputs()), abs=1e-5)
    with pytest.raises(UnsupportedError, match="E-ENG-1"):
        load(here, model, spec(compute_capability="12.0"))


def test_a_gpu_that_the_library_does_not_name_cannot_be_built_for(rtx, board, network):
    with pytest.raises(UnsupportedError, match="E-TRT-18") as refused:
        prepare(rtx(), network(), spec(compute_capability="8.7"))
    assert "7.5, 8.0" in refused.value.evidence
    with pytest.raises(UnsupportedError, match="E-TRT-18") as refused:
        prepare(board("10.3.0.30"), network(), spec(compute_capability="8.7"))
    assert "the GPU that" in refused.value.evidence


@pytest.mark.parametrize("given", ["sm86", 9, True, "8.6.1"])
def test_a_compute_capability_is_two_numbers(rtx, network, given):
    with pytest.raises(UsageError, match="E-OPT-2"):
        prepare(rtx(), network(), spec(compute_capability=given))


def test_without_a_gpu_and_without_a_named_one_cuda_says_why(rtx, network):
    here, model = rtx(), network()
    made = prepare(here, model, spec())
    here.cuda.failing["cudaGetDevice"] = 35
    for step in (lambda: prepare(here, model, spec()), lambda: here.backend.TensorRt().load(made)):
        with pytest.raises(DeviceError, match="E-CUDART-1"):
            step()


def test_bf16_and_tf32_are_refused_for_a_named_gpu_before_ampere(rtx, network):
    with pytest.raises(UnsupportedError, match="E-PREC-1"):
        prepare(rtx(), network(), spec("tf32", compute_capability="7.5"))


def test_errors_of_a_build_are_read_while_a_session_is_open(board, network):
    """TensorRT writes to the first logger that it was given, as long as anything made with it lives."""
    here = board()
    session = load(here, network(), spec())
    log = here.part("api_types")
    assert session.log is log.fresh_log() is log.only_log()


def test_a_dla_core_that_is_not_there_is_refused_by_the_build_itself(board, network, tmp_path):
    build = board().part("build")
    request = build.Request(onnx=network().onnx(tmp_path), precision="fp16", profile={}, dla=0)
    with pytest.raises(UnsupportedError, match="E-TRT-13"):
        build.build(request)


def test_rtx_keeps_no_kernel_timings(rtx, network):
    made = prepare(rtx(), network(), spec())
    assert made.notes["engine"]["flags"]["timings"] == "off"
    assert not list(cache.folder("tensorrt").glob("*.cache"))
    with pytest.raises(UnsupportedError, match="E-TRT-16"):
        prepare(rtx(), network(), spec(timing_cache=True))
