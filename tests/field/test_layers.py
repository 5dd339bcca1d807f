"""`layers`: the time of a query by operator, in a file with a loop, with a verdict and a spread.

The loop is that of a public report (onnxruntime 27870: what runs inside If, Loop and Scan is in the profile).
"""

from __future__ import annotations

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402
from onnx import numpy_helper as nh  # noqa: E402

from edgescope.cli.main import main  # noqa: E402

pytestmark = pytest.mark.process

TURNS = 50


def value(name, kind, *shape):
    return h.make_tensor_value_info(name, kind, list(shape))


def looping(path):
    """Write Loop of 50 turns (MatMul, Tanh, Identity), then a MatMul of the same index as the body's, then Relu."""
    inner = [
        h.make_node("MatMul", ["a", "lw"], ["m"], name="product"),
        h.make_node("Tanh", ["m"], ["o"], name="bend"),
        h.make_node("Identity", ["c"], ["d"], name="on"),
    ]
    given = [value("i", T.INT64), value("c", T.BOOL), value("a", T.FLOAT, 64, 64)]
    body = h.make_graph(inner, "body", given, [value("d", T.BOOL), value("o", T.FLOAT, 64, 64)])
    nodes = [
        h.make_node("Loop", ["n", "t", "x"], ["z"], name="turns", body=body),
        h.make_node("MatMul", ["z", "lw"], ["w"], name="after"),
        h.make_node("Relu", ["w"], ["y"], name="end"),
    ]
    tensors = {"n": np.array(TURNS), "t": np.array(True), "lw": np.eye(64, dtype=np.float32)}
    graph = h.make_graph(
        nodes,
        "g",
        [value("x", T.FLOAT, 64, 64)],
        [value("y", T.FLOAT, 64, 64)],
        [nh.from_array(array, name) for name, array in tensors.items()],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    path, out = looping(folder / "loop.onnx"), folder / "out.json"
    flags = ["--batch", "64", "--threads", "1", "--store", str(folder), "--output", str(out)]
    assert main(["layers", str(path), "--backend", "onnxruntime", *flags]) == 0
    (found,) = json.loads(out.read_text())["engines"]
    return found


@pytest.mark.slow
def test_what_runs_in_a_loop_counts_for_every_turn(engine):
    rows = {row["layer"]["name"]: row["layer"] for row in engine["layers"]}
    assert {"turns", "product", "bend", "after", "end"} <= set(rows)
    assert rows["product"]["executions"] == TURNS and rows["after"]["executions"] == 1
    assert rows["product"]["flops"] == TURNS * rows["after"]["flops"] == TURNS * 2 * 64**3
    assert rows["product"]["seconds"] > 5 * rows["after"]["seconds"]


def test_shares_add_up_to_one_though_the_loop_holds_its_body(engine):
    assert sum(row["share"] for row in engine["layers"]) == pytest.approx(1)
    assert all(row["layer"]["seconds"] >= 0 for row in engine["layers"])


def test_it_has_a_verdict_and_every_row_its_runs(engine):
    assert engine["verdict"]["trust"] in ("CLEAN", "DISTURBED", "THROTTLED", "UNKNOWN")
    assert {len(row["layer"]["times"]) for row in engine["layers"]} == {10}
