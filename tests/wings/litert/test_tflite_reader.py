"""What is read of a .tflite: facts of files made by hand, and the words for operators as an interpreter lists them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from ai_edge_litert import schema_py_generated as schema

from edgescope.errors import ModelError
from edgescope.wings.litert import backend as reader
from models import tiny_tflite


def adding(path, *, dtype="float32", shape=(1, 2), signature=None, scales=None, zeros=None, save=True):
    """Write a file whose one operator adds a stored tensor of two numbers to its input."""
    file = tiny_tflite.File()
    how = {"scales": scales, "zeros": zeros}
    image = file.tensor("image", shape, dtype, signature=signature, **how)
    stored = np.ones(2, np.dtype(dtype))
    weight = file.tensor("weight", (2,), dtype, data=stored, scales=scales and scales[:1])
    out = file.tensor("out", shape, dtype, signature=signature, **how)
    if scales is not None and len(scales) > 1:
        for tensor in (image, out):
            file.graph.tensors[tensor].quantization.quantizedDimension = 1
    file.graph.inputs, file.graph.outputs = [image], [out]
    file.operator("ADD", [image, weight], [out], schema.AddOptionsT())
    return file.save(path) if save else file


def test_the_facts_of_a_float_file(tmp_path):
    path = tiny_tflite.write(tmp_path / "a.tflite")
    weights = 8 * 27 + 8 + 10 * 512 + 10
    image = {"name": "image", "dims": [1, 8, 8, 3], "dtype": "float32", "quantised": False, "step": None}
    facts = {"params": weights, "kinds": {"fp32": 2}, "reduced": False, "subgraphs": 1}
    assert reader.describe(path) == {"inputs": [image]} | facts
    assert reader.describe(tiny_tflite.write(tmp_path / "b.tflite", "fp16"))["params"] == weights
    assert reader.describe(tiny_tflite.write(tmp_path / "c.tflite", reduced=True))["reduced"]


def test_other_metadata_lets_nobody_narrow(tmp_path):
    file = adding(tmp_path, save=False)
    file.metadata("min_runtime_version", b"1.5.0")
    assert not reader.describe(file.save(tmp_path / "a.tflite"))["reduced"]
    file.metadata("reduced_precision_support", b"fp16accfp16")
    assert reader.describe(file.save(tmp_path / "b.tflite"))["reduced"]


@pytest.mark.parametrize(
    ("shape", "signature", "dims"),
    [
        ((1, 2), (-1, 2), ["N", 2]),
        ((1, 1, 1, 2), (-1, 7, -1, 2), ["N", 7, "d2", 2]),
        ((1, 2), (1, -1), [1, "d1"]),
        ((3, 2), None, [3, 2]),
        ((0, 2), None, [0, 2]),
    ],
)
def test_open_axes_are_named_by_their_place(tmp_path, shape, signature, dims):
    path = adding(tmp_path / "a.tflite", shape=shape, signature=signature)
    assert reader.describe(path)["inputs"][0]["dims"] == dims


@pytest.mark.parametrize(
    ("dtype", "scales", "zeros", "quantised", "step"),
    [
        ("int8", [0.25], [-3], True, [0.25, -3]),
        ("int8", [0.25, 0.5], [-3, 4], True, None),
        ("float32", [0.25], [-3], True, None),
        ("uint8", [0.5], [128], True, [0.5, 128]),
        ("int32", None, None, False, None),
    ],
)
def test_integers_that_stand_for_numbers_say_in_which_steps(tmp_path, dtype, scales, zeros, quantised, step):
    path = adding(tmp_path / "a.tflite", dtype=dtype, scales=scales, zeros=zeros)
    found = reader.describe(path)["inputs"][0]
    assert (found["dtype"], found["quantised"], found["step"]) == (dtype, quantised, step)


@pytest.mark.parametrize(
    ("dtype", "scales", "params"),
    [("float32", None, 2), ("float16", None, 2), ("int32", None, 0), ("int8", [0.1], 2)],
)
def test_weights_are_floats_or_have_a_scale(tmp_path, dtype, scales, params):
    path = adding(tmp_path / "a.tflite", dtype=dtype, scales=scales, zeros=scales and [0])
    assert reader.describe(path)["params"] == params


def test_an_input_without_axes_cannot_be_fed(tmp_path):
    with pytest.raises(ModelError) as caught:
        reader.describe(adding(tmp_path / "a.tflite", shape=()))
    assert (caught.value.code, caught.value.evidence) == ("E-TFL-2", "type float32, 0 axes")


@pytest.mark.parametrize(("dtype", "refused"), [("S", True), ("c8", True), ("b1", False), ("u1", False)])
def test_an_input_that_is_no_number_cannot_be_fed(tmp_path, dtype, refused):
    steps = {"scales": np.zeros(0), "zero_points": np.zeros(0)}
    given = {"name": "x", "dtype": np.dtype(dtype), "shape": np.array([1, 2]), "shape_signature": np.zeros(0)}
    given["quantization_parameters"] = steps
    if not refused:
        assert reader._input(tmp_path, given)["dims"] == [1, 2]
        return
    with pytest.raises(ModelError) as caught:
        reader._input(tmp_path, given)
    assert caught.value.evidence.endswith("2 axes")


def test_numbers_read_twice_count_once_and_optional_inputs_not_at_all():
    steps = {"scales": np.zeros(0)}
    tensor = {"dtype": np.float32, "quantization_parameters": steps}
    details = {i: tensor | {"shape": np.array(shape)} for i, shape in enumerate([(2,), (2, 3), (5,), (7,)])}
    operators = [
        {"inputs": [0, 1, -1], "outputs": [3]},
        {"inputs": [3, 1, 2, 9], "outputs": [3]},
    ]
    assert reader._params(operators, details | {-1: tensor | {"shape": np.array([11])}}, {0}) == 6 + 5
    assert reader._params([{"inputs": [0], "outputs": [3]}], details, set()) == 2


def test_a_file_that_does_not_fit_its_shapes_is_unsound(tmp_path):
    path = adding(tmp_path / "a.tflite", shape=(1, 2), signature=(-1, 2))
    ready = reader.allocated(path, reader.opened(path), {0: (3, 2)})
    assert ready.get_input_details()[0]["shape"].tolist() == [3, 2]
    assert reader.allocated(path, reader.opened(path)).get_input_details()[0]["shape"].tolist() == [1, 2]
    with pytest.raises(ModelError) as caught:
        reader.allocated(path, reader.opened(path), {0: (1, 5)})  # the second axis is closed
    assert caught.value.code == "E-TFL-1"


@pytest.mark.parametrize("error", [ValueError("a  b\nc"), RuntimeError("x" * 400)])
def test_what_litert_says_is_told_in_one_line(tmp_path, error):
    found = reader.unsound(tmp_path / "a.tflite", error)
    assert found.code == "E-TFL-1"
    assert found.evidence == ("a b c" if len(str(error)) < 10 else "x" * 300)


def custom(path, *names):
    """Write a file with operators of other programs beside LiteRT's own."""
    file = adding(path, save=False)
    for name in names:
        code = schema.OperatorCodeT()
        code.builtinCode, code.customCode = schema.BuiltinOperator.CUSTOM, name
        file.model.operatorCodes.append(code)
    return file.save(path)


def test_operators_of_other_programs_are_named(tmp_path):
    path = custom(tmp_path / "a.tflite", b"FlexMax", b"Crop", b"FlexMax")
    for said in ("Select TensorFlow op(s)", "Encountered unresolved custom op: Crop."):
        found = reader.unsound(path, RuntimeError(said))
        assert (found.code, found.evidence) == ("E-TFL-5", "Crop, FlexMax")


@pytest.mark.parametrize("length", [4, 400])
def test_operators_without_a_name_leave_what_litert_said(tmp_path, length):
    said = "custom op " + "x" * length
    assert reader.unsound(custom(tmp_path / "a.tflite"), ValueError(said)).evidence == said[:300]


def operator(name, given=("float32",), made=("float32",), **more):
    types = {"operand_types": [np.dtype(t) for t in given], "result_types": [np.dtype(t) for t in made]}
    return {"op_name": name} | types | more


def test_the_heavy_operators_tell_the_precision_and_all_others_where_there_is_none():
    cast = operator("CAST", ["float16"])
    adds, labels = operator("ADD"), operator("LABEL", ["int64"], ["int64"])
    assert reader.telling([cast, adds, labels]) == [adds]
    products = [operator("CONV_2D", ["float32", "int8"]), operator("FULLY_CONNECTED")]
    assert reader.telling([cast, adds, *products]) == products
    assert reader.kinds(products) == {"int8": 1, "fp32": 1}
    assert reader.telling([]) == [] and reader.kinds([labels]) == {"unknown": 1}


@pytest.mark.parametrize(
    ("types", "word"),
    [
        (("int8", "float32"), "int8"),
        (("uint8", "float32"), "int8"),
        (("int16", "int32"), "int16"),
        (("float32", "float16"), "fp16"),
        (("float64", "float32"), "fp32"),
        (("float64",), "fp64"),
        (("int32",), "unknown"),
    ],
)
def test_an_operator_computes_in_its_narrowest_tensor(types, word):
    for split in range(len(types) + 1):
        assert reader.kinds([operator("ADD", types[:split], types[split:])]) == {word: 1}


def test_narrow_weights_between_floats_are_narrowed_while_it_runs():
    mixed, whole = operator("CONV_2D", ["float32", "int8"]), operator("CONV_2D", ["int8"], ["int8"])
    assert reader.hybrid([mixed, whole, operator("CONV_2D"), mixed]) == 2
    assert reader.hybrid([operator("CONV_2D", ["int16"], ["float32"])]) == 0
    assert reader.hybrid([operator("CONV_2D", ["int8"], ["float32", "int8"])]) == 1


def linked(index, name, inputs, outputs):
    return {"index": index, "op_name": name, "inputs": inputs, "outputs": outputs}


def test_a_delegate_has_taken_what_lies_between_its_ends():
    operators = [
        linked(0, "ADD", [1, 2], [3]),  # before the delegate
        linked(1, "CONV_2D", [3, -1], [4]),
        linked(2, "RELU", [4], [5]),
        linked(3, "ADD", [5, 4], [6]),
        linked(4, "DELEGATE", [3], [6]),
        linked(5, "SOFTMAX", [6], [7]),
    ]
    assert reader.delegated(operators) == {1, 2, 3}
    assert reader.delegated([row for row in operators if row["op_name"] != "DELEGATE"]) == set()
    two = [*operators, linked(6, "TANH", [7], [8]), linked(7, "DELEGATE", [7], [8])]
    assert reader.delegated(two) == {1, 2, 3, 6}


def test_without_its_delegate_an_interpreter_lists_the_operators_alone(tmp_path):
    path = tiny_tflite.write(tmp_path / "a.tflite")

    def names(**how):
        ready = reader.allocated(path, reader.opened(path, **how))
        return [op["op_name"] for op in ready._get_ops_details()]

    assert names(xnnpack=False) == ["CONV_2D", "FULLY_CONNECTED"]
    assert "DELEGATE" in names() and "DELEGATE" in names(threads=2, xnnpack=True)


def test_an_interpreter_has_one_thread_unless_told_otherwise(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(reader, "Interpreter", lambda path, **how: asked.append(how["num_threads"]))
    for threads in ((), (3,)):
        reader.opened(tmp_path / "a.tflite", *threads)
    assert asked == [1, 3]


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_what_the_interpreter_raises_is_a_model_error(tmp_path, monkeypatch, error):
    def refuses(*given, **how):
        raise error("broken")

    monkeypatch.setattr(reader, "Interpreter", refuses)
    with pytest.raises(ModelError, match="E-TFL-1"):
        reader.opened(tmp_path / "a.tflite")

    class Unready:
        resize_tensor_input = allocate_tensors = refuses

    for shapes in (None, {0: (1,)}):
        with pytest.raises(ModelError, match="E-TFL-1"):
            reader.allocated(tmp_path / "a.tflite", Unready(), shapes)
