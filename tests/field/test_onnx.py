"""ONNX files as other people export them: each is timed, and what its outputs cannot tell is said.

The kinds are those of public reports: detectors that end in NonMaxSuppression (mmdetection 4796, opencv 22473) or in a
plugin of TensorRT (TensorRT 795, onnxruntime 16121), open axes written as -1 (onnxruntime 3242, tensorflow-onnx 2253),
classifiers of scikit-learn with maps as outputs, pictures as uint8 (luxonis modelconverter 222), and files quantised
dynamically, whose answers depend on the rest of their batch.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

import edgescope
from edgescope.cli.main import main
from edgescope.data import opening
from edgescope.records import Status
from edgescope.store.results import Store

vi = h.make_tensor_value_info
BRIEF = {"max_queries": 5, "warmup": 0.0, "min_s": 0.0, "max_s": 0.2}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))


def written(path, nodes, inputs, outputs, stored=(), **domains):
    """A file of these nodes; `stored` are its constants by name, `domains` the versions of further operator sets."""
    tensors = [nh.from_array(np.asarray(value), name) for name, value in dict(stored).items()]
    opsets = [h.make_opsetid("", 17), *(h.make_opsetid(k.replace("_", "."), v) for k, v in domains.items())]
    graph = h.make_graph(nodes, "g", inputs, outputs, tensors)
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


def run(name, **fields):
    return edgescope.run(edgescope.Trial(model=name, **{**BRIEF, **fields}), isolated=False)


def floats(*dims, name="x"):
    return vi(name, T.FLOAT, list(dims))


def elementwise(op, *dims, name="x", to=T.FLOAT):
    return [h.make_node(op, [name], ["y"])], [floats(*dims, name=name)], [vi("y", to, list(dims))]


SEQUENCE = h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, [None, None]))
MAPS = h.make_sequence_type_proto(h.make_map_type_proto(T.INT64, h.make_tensor_type_proto(T.FLOAT, [])))


def nms(path):
    node = h.make_node("NonMaxSuppression", ["boxes", "scores", "m", "i", "s"], ["y"])
    given = [floats(1, 50, 4, name="boxes"), floats(1, 3, 50, name="scores")]
    stored = {"m": np.array([20]), "i": np.array([0.5], np.float32), "s": np.array([0.6], np.float32)}
    return written(path, [node], given, [vi("y", T.INT64, ["k", 3])], stored)


def nonzero(path):
    given = [vi("x", T.BOOL, [1, 8])]
    return written(path, [h.make_node("NonZero", ["x"], ["y"])], given, [vi("y", T.INT64, [2, "k"])])


def sequence(path):
    node = h.make_node("SplitToSequence", ["x"], ["y"], axis=1)
    return written(path, [node], [floats("N", 8)], [h.make_value_info("y", SEQUENCE)])


def zipmap(path):
    classify = h.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "p"],
        domain="ai.onnx.ml",
        coefficients=[0.1] * 12,
        intercepts=[0.0, 0.1, 0.2],
        classlabels_ints=[0, 1, 2],
        post_transform="SOFTMAX",
    )
    zipped = h.make_node("ZipMap", ["p"], ["probs"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    outputs = [vi("label", T.INT64, ["N"]), h.make_value_info("probs", MAPS)]
    return written(path, [classify, zipped], [floats("N", 4)], outputs, ai_onnx_ml=2)


def text(path):
    keys = {"keys_int64s": [0, 1], "values_strings": ["cat", "dog"]}
    node = h.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **keys)
    return written(path, [node], [vi("x", T.INT64, ["N", 1])], [vi("y", T.STRING, ["N", 1])], ai_onnx_ml=2)


def nothing_found(path):
    ends = {"a": np.array([0]), "b": np.array([0]), "c": np.array([1])}
    node = h.make_node("Slice", ["x", "a", "b", "c"], ["y"])
    return written(path, [node], [floats("N", 8)], [floats("N", 0, name="y")], ends)


def not_a_number(path):
    return written(path, *elementwise("Log", "N", 8))


def random(path):
    nodes = [h.make_node("RandomNormalLike", ["x"], ["r"]), h.make_node("Add", ["x", "r"], ["y"])]
    return written(path, nodes, [floats("N", 8)], [floats("N", 8, name="y")])


def of_the_batch(path):
    """The mean over the batch is taken away: no answer is that of one input."""
    nodes = [h.make_node("ReduceMean", ["x"], ["m"], axes=[0]), h.make_node("Sub", ["x", "m"], ["y"])]
    return written(path, nodes, [floats("N", 8)], [floats("N", 8, name="y")])


def dynamic(path):
    """What ONNX Runtime's quantize_dynamic writes: the scale of the activations is that of the whole batch."""
    weight = np.random.default_rng(0).integers(-127, 127, (8, 8)).astype(np.int8)
    nodes = [
        h.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        h.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        h.make_node("Cast", ["i"], ["f"], to=T.FLOAT),
        h.make_node("Mul", ["f", "s"], ["y"]),
    ]
    return written(path, nodes, [floats("N", 8)], [floats("N", 8, name="y")], {"w": weight})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (nms, "shape"),
        (nonzero, "shape"),
        (sequence, "sequence of 8"),
        (zipmap, "output 1 is no tensor"),
        (text, "text"),
        (nothing_found, "empty"),
        (not_a_number, "NaN"),
        (random, "not deterministic"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.slow
def test_what_cannot_be_judged_is_timed_and_says_why(tmp_path, make, said):
    found = run(make(tmp_path / "m.onnx"))
    assert found.status in (Status.OK, Status.UNSTABLE), found.reason
    assert found.value("latency_p50_s") > 0 and found.verification is None
    assert found.unverified.code == "E-GATE-6" and said in str(found.unverified) and found.unverified.fix


@pytest.mark.slow
def test_it_is_said_on_the_card_in_the_store_and_kept_from_the_pick(tmp_path, capsys):
    name, store = nms(tmp_path / "m.onnx"), str(tmp_path / "store")
    code = main(["bench", name, "--max-queries", "5", "--warmup", "0s", "--store", store])
    assert code == 0 and "outputs not verified" in capsys.readouterr().out
    (kept,) = Store(tmp_path / "store").results()
    assert kept.unverified.code == "E-GATE-6" and kept.verification is None
    assert main(["show", "latest", "--store", store]) == 0
    assert "outputs not verified: m.onnx cannot be judged" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("make", [of_the_batch], ids=lambda make: make.__name__)
@pytest.mark.slow
def test_answers_that_depend_on_the_batch_are_compared_one_by_one_or_said_to_depend_on_it(tmp_path, make):
    name = make(tmp_path / "m.onnx")
    alone, together = run(name), run(name, batch=4)
    assert alone.verification.passed and alone.unverified is None
    assert together.verification is None and together.value("latency_p50_s") > 0
    told = together.unverified
    assert told.code == "E-GATE-6" and re.fullmatch(r"m\.onnx .*: .* other inputs .*", told.what)
    assert "deterministic" not in str(told) and told.fix.startswith("--batch 1")


@pytest.mark.parametrize("shape", [(10, 4), (4,), ()], ids=str)
@pytest.mark.slow
def test_what_one_input_gives_is_its_row_whatever_its_shape(tmp_path, shape):
    nodes = [h.make_node("Reshape", ["x", "s"], ["y"])]
    size = int(np.prod(shape))
    stored = {"s": np.array(shape, np.int64)}
    name = written(tmp_path / "m.onnx", nodes, [floats(1, size)], [floats(*shape, name="y")], stored)
    assert run(name).verification.passed


@pytest.mark.parametrize("domain", ["TRT", "trt.plugins", ""])
@pytest.mark.slow
def test_a_plugin_is_refused_by_the_engine_that_lacks_it_alone(tmp_path, domain):
    node = h.make_node("EfficientNMS_TRT", ["b", "s"], ["n", "d"], domain=domain)
    given = [floats(1, 100, 4, name="b"), floats(1, 100, 80, name="s")]
    outputs = [vi("n", T.INT32, [1, 1]), floats(1, 50, 4, name="d")]
    name = written(tmp_path / "m.onnx", [node], given, outputs, **({domain: 1} if domain else {}))
    found = run(name, backend="onnxruntime")
    assert found.reason.code == "E-ONNX-1" and "EfficientNMS_TRT" in str(found.reason)
    elsewhere = run(name, backend="openvino")
    assert elsewhere.reason.code != "E-ONNX-1" and "OpenVINO" in str(elsewhere.reason)


@pytest.mark.parametrize("size", [-1, 0])
@pytest.mark.slow
def test_a_size_below_one_is_an_open_axis(tmp_path, size):
    name = written(tmp_path / "m.onnx", *elementwise("Relu", 1, 3, 8, 8))
    model = onnx.load(name)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = size
    onnx.save(model, name)
    found = run(name, batch=3)
    assert found.verification.passed and found.trial.batch == 3


@pytest.mark.slow
def test_thresholds_that_are_inputs_are_fixed_and_named(tmp_path):
    node = h.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["y"])
    given = [floats(1, 50, 4, name="boxes"), floats(1, 3, 50, name="scores"), vi("most", T.INT64, [])]
    given += [floats(name="iou"), floats(name="score")]
    found = run(written(tmp_path / "m.onnx", [node], given, [vi("y", T.INT64, ["k", 3])]))
    assert found.value("latency_p50_s") > 0 and found.unverified.code == "E-GATE-6"
    assert "iou 0.5, most 100, score 0.5" in found.model.source


def drawn(name, **fields):
    """The least and the largest value of each input that a trial of this file is judged on."""
    from edgescope.models import zoo
    from edgescope.models.base import Purpose

    arrays = zoo.get(name).samples(Purpose.GATE, 8)
    return {key: (array.min(), array.max()) for key, array in arrays.arrays.items()}, arrays.origin


@pytest.mark.parametrize(
    ("kind", "name", "dims", "low", "high"),
    [
        (T.UINT8, "image", ["N", 32, 32, 3], 0, 255),
        (T.INT8, "image", ["N", 3, 32, 32], -128, 127),
        (T.UINT16, "depth", ["N", 1, 64, 64], 0, 2**16 - 1),
        (T.INT16, "sound", ["N", 16000], -(2**15), 2**15 - 1),
        (T.INT32, "image", ["N", 3, 32, 32], 0, 255),
        (T.INT64, "input_ids", ["N", 128], 0, 1),
        (T.INT64, "attention_mask", ["N", 128], 1, 1),
        (T.BOOL, "keep", ["N", 128], False, True),
    ],
)
def test_integers_are_drawn_over_what_their_type_is_used_for(tmp_path, kind, name, dims, low, high):
    nodes = [h.make_node("Cast", [name], ["y"], to=T.FLOAT)]
    path = written(tmp_path / "m.onnx", nodes, [vi(name, kind, dims)], [floats(*dims, name="y")])
    found, origin = drawn(path)
    span, room = float(high) - float(low), 0.02 * (float(high) - float(low))
    assert float(found[name][0]) == pytest.approx(float(low), abs=room)
    assert float(found[name][1]) == pytest.approx(float(high), abs=room)
    assert span < 0.5 or kind == T.BOOL or f"{name} {low} to {high}" in origin


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<!DOCTYPE html><html>Sign in</html>", "web page"),
        (b"\n  <html lang='en'>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "Git LFS pointer"),
        (b'{"message": "Not Found"}', "JSON"),
        (b"\x1f\x8b\x08\x00" + b"\0" * 40, "gzip"),
        (b"\x1c\0\0\0TFL3" + b"\0" * 40, "TFLite"),
        (b"", "0 bytes"),
    ],
)
def test_a_file_that_is_no_onnx_is_named(tmp_path, capsys, data, said):
    (tmp_path / "m.onnx").write_bytes(data)
    assert main(["bench", str(tmp_path / "m.onnx"), "--store", str(tmp_path / "s")]) == 1
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_nothing_but_nan_on_inputs_of_ones_own_is_wrong(tmp_path):
    """On random numbers it may be their fault; a network has an answer to what it is made for."""
    name, folder = not_a_number(tmp_path / "m.onnx"), tmp_path / "own.npz"
    np.savez(folder, x=-1 - np.random.default_rng(0).random((32, 8)).astype(np.float32))
    found = run(name, data=opening.pin(str(folder)))
    assert found.status is Status.WRONG_OUTPUT and not found.verification.passed
