"""run.py of a TensorRT pick, run over the stand-ins of both libraries and of the CUDA runtime."""

import ctypes
import sys

import numpy as np
import onnxruntime as ort
import pytest

BATCH = {"image": np.random.default_rng(0).normal(0, 1, (2, 3, 12, 12)).astype("float32")}


@pytest.fixture
def opened(board, network, tmp_path, monkeypatch):
    """Return a function that runs the lines for the network: (namespace, board, expected outputs)."""

    def run(version, precision="fp32", dla=None, *, rtx=False):
        there = board(version, rtx=rtx)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: there.cuda)
        from edgescope.wings.tensorrt import run_lines

        for file in network().onnx(tmp_path).parent.glob("*.onnx"):
            (tmp_path / "model.onnx").write_bytes(file.read_bytes())
        text = f"{run_lines.IMPORTS}\n{run_lines.lines('model.onnx', precision, dla)}"
        names = {"HERE": tmp_path, "BATCH": 2, "INPUTS": {"image": (3, 12, 12)}, "np": np, "sys": sys}
        exec(compile(text, "run.py", "exec"), names)
        session = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
        return names, there, session.run(None, BATCH)

    return run


@pytest.mark.parametrize("version", ["8.5.2.2", "8.6.1.6", "10.3.0.30", "11.4.1.2"])
def test_an_onnx_file_is_built_where_it_runs_and_answered(opened, tmp_path, version):
    names, there, expected = opened(version)
    assert np.allclose(names["run"](BATCH)[0], expected[0], atol=1e-5)
    assert np.allclose(names["run"](BATCH)[0], expected[0], atol=1e-5), "a second call reuses its memory"
    kept = tmp_path / f"model-tensorrt-{version}.engine"
    assert kept.is_file()
    assert len(there.cuda.device) == 2


def test_tensorrt_rtx_specialises_first_and_keeps_its_kernels(opened, tmp_path):
    names, there, expected = opened("1.7.1.116", rtx=True)
    assert np.allclose(names["run"](BATCH)[0], expected[0], atol=1e-5)
    assert there.trt.specialised == ["EAGER"]
    assert (tmp_path / "model-1.7.1.116.kernels").read_bytes() == b"kernels"
    assert there.trt.kernels == []
    _, again, _ = opened("1.7.1.116", rtx=True)
    assert again.trt.kernels == [b"kernels"]


def test_fp16_is_a_flag_until_10_and_refused_after_it(opened):
    names, _, _ = opened("10.3.0.30", "fp16")
    assert np.isfinite(names["run"](BATCH)[0]).all()
    for version, rtx in (("11.4.1.2", False), ("1.7.1.116", True)):
        with pytest.raises(SystemExit, match="types from the file alone"):
            opened(version, "fp16", rtx=rtx)


def test_without_a_library_it_says_what_it_looked_for(opened, monkeypatch):
    names, _, _ = opened("10.3.0.30")
    monkeypatch.setitem(names, "libraries", list)
    with pytest.raises(SystemExit, match="none of tensorrt, tensorrt_rtx"):
        names["opened"]()
