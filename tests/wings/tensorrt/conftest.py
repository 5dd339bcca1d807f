"""A board with any TensorRT from 8.5 to 11, and a small network for it."""

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType

import fake_tensorrt
import numpy as np
import onnx
import pytest
from fake_cudart import FakeCudart
from onnx import TensorProto, helper

from edgescope.backends import cudart
from edgescope.models import zoo
from edgescope.wings.tensorrt import engine_file

PACKAGE = "edgescope.wings.tensorrt"
KEPT = (f"{PACKAGE}.engine_file", f"{PACKAGE}.trtexec")
"""What imports no TensorRT stays: other tests hold on to it."""


@dataclass
class Board:
    """The backend's module loaded over one fake TensorRT and one fake CUDA."""

    backend: ModuleType
    trt: fake_tensorrt.State
    cuda: FakeCudart

    def part(self, name: str) -> ModuleType:
        return sys.modules[f"{PACKAGE}.{name}"]


def forget() -> None:
    """Unload the backend; `from edgescope.wings.tensorrt import x` looks at the package before sys.modules."""
    package = importlib.import_module(PACKAGE)
    for name in [n for n in sys.modules if n.startswith(f"{PACKAGE}.") and not n.startswith(KEPT)]:
        del sys.modules[name]
        vars(package).pop(name.rpartition(".")[2], None)


@pytest.fixture
def board(monkeypatch, tmp_path):
    """Return a function of a version (and of what the fake CUDA takes) that sets up such a board."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))

    def make(version: str = "10.3.0.30", *, rtx: bool = False, **gpu) -> Board:
        cuda = FakeCudart(**gpu)
        module, state = fake_tensorrt.module(version, cuda, rtx)
        monkeypatch.setitem(sys.modules, "tensorrt", None if rtx else module)  # None: as if not installed
        if rtx:
            monkeypatch.setitem(sys.modules, "tensorrt_rtx", module)
        monkeypatch.setattr(cudart, "library", lambda: cuda)
        monkeypatch.setattr(engine_file, "gpu", lambda name: name)  # whatever board the tests run on
        cudart.runtime.cache_clear()
        forget()
        return Board(importlib.import_module("edgescope.wings.tensorrt.backend"), state, cuda)

    make.forget = forget
    yield make
    forget()
    cudart.runtime.cache_clear()


@pytest.fixture
def network(tmp_path):
    """Return a function that writes a small convolutional network; returns it as a Model."""

    def make(*, opset: int = 13, batch: str | int = "N", relu: str = "Relu"):
        rng = np.random.default_rng(7)

        def weights(name, *shape):
            return onnx.numpy_helper.from_array(rng.normal(0, 0.3, shape).astype("float32"), name)

        nodes = [
            helper.make_node("Conv", ["image", "w1"], ["a"], "conv1", kernel_shape=[3, 3]),
            helper.make_node(relu, ["a"], ["b"], "act1"),
            helper.make_node("Conv", ["b", "w2"], ["c"], "conv2", kernel_shape=[3, 3]),
            helper.make_node("Relu", ["c"], ["d"], "act2"),
            helper.make_node("Conv", ["d", "w3"], ["e"], "conv3", kernel_shape=[3, 3]),
            helper.make_node("GlobalAveragePool", ["e"], ["f"], "pool"),
            helper.make_node("Flatten", ["f"], ["g"], "flat"),
            helper.make_node("Gemm", ["g", "w4"], ["scores"], "head"),
        ]
        stored = [weights("w1", 8, 3, 3, 3), weights("w2", 8, 8, 3, 3), weights("w3", 8, 8, 3, 3)]
        graph = helper.make_graph(
            nodes,
            "small",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 12, 12])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 5])],
            [*stored, weights("w4", 8, 5)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        path = tmp_path / f"small-{opset}-{batch}-{relu}.onnx"
        onnx.save(model, path)
        return zoo.get(str(path), {}, batch if isinstance(batch, int) else 1)

    return make
