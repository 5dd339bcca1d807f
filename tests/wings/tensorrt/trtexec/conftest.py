"""A trtexec of any version as an executable file, and a small ONNX network with two outputs."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def program(folder: Path, version: str, fault: str = "", capability: str = "8.7") -> Path:
    """Write an executable trtexec of that version; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trtexec"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(HERE)!r})\n"
        f"from fake_trtexec import Fake\nsys.exit(Fake({version!r}, {fault!r}, {capability!r}).main(sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def trtexec(tmp_path):
    """Make an executable: trtexec(version, fault='', capability='8.7')."""
    return lambda version, fault="", capability="8.7": program(
        tmp_path / f"{version}{fault}{capability}", version, fault, capability
    )


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """A convolution and a head with two outputs, opset 13, open batch axis."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=(8, 3, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.normal(size=(8, 10)).astype(np.float32), "head"),
        numpy_helper.from_array(rng.normal(size=(8, 4)).astype(np.float32), "side"),
    ]
    steps = [
        ("Conv", ["x", "w"], "a"),
        ("Relu", ["a"], "b"),
        ("GlobalAveragePool", ["b"], "c"),
        ("Flatten", ["c"], "d"),
        ("MatMul", ["d", "head"], "classes"),
        ("MatMul", ["d", "side"], "boxes"),
    ]
    nodes = [helper.make_node(kind, given, [made], name=f"make_{made}") for kind, given, made in steps]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, ["N", 3, 16, 16])],
        [value("classes", TensorProto.FLOAT, ["N", 10]), value("boxes", TensorProto.FLOAT, ["N", 4])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    onnx.save(model, str(path))
    return path
