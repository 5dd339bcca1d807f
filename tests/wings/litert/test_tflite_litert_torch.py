"""Conversion to .tflite with stand-ins for litert-torch and ai-edge-quantizer, on files that LiteRT really runs."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")
import torch
from ai_edge_litert import schema_py_generated as schema

from edgescope.errors import ModelError
from edgescope.models.base import Samples, TensorSpec
from models import tiny_tflite

SPECS = (TensorSpec("left", (2,), "float32"), TensorSpec("right", (2,), "float32"))
NAMES = {"file_a": "left", "file_b": "right"}


def adds(path, batch=1, arguments=("args_0", "args_1")):
    """Write a file that adds 1 to the first input and 3 to the second."""
    file, ends = tiny_tflite.File(), ([], [])
    for name, number in (("file_a", 1), ("file_b", 3)):
        given, out = (file.tensor(n, (batch, 2), "float32") for n in (name, f"{name}_out"))
        stored = file.tensor(f"{name}_w", (2,), "float32", data=np.full(2, number, np.float32))
        file.operator("ADD", [given, stored], [out], schema.AddOptionsT())
        for places, place in zip(ends, (given, out), strict=True):
            places.append(place)
    file.graph.inputs, file.graph.outputs = ends
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = b"serving_default", 0
    signature.inputs = [named(a, i) for a, i in zip(arguments, ends[0], strict=True)]
    signature.outputs = [named(f"output_{n}", i) for n, i in enumerate(ends[1])]
    file.model.signatureDefs = [signature]
    return file.save(path)


def named(name, index):
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name.encode(), index
    return made


class Net(torch.nn.Module):
    """Adds numbers to its inputs, 1 and 3 if it is the network of the file."""

    def __init__(self, numbers=(1.0, 3.0), kind=tuple, rows=slice(None)):
        super().__init__()
        self.numbers, self.kind, self.rows = numbers, kind, rows

    def forward(self, left, right):
        if self.training:
            raise AssertionError("not in eval mode")
        return self.kind(
            part[self.rows] + number for part, number in zip((left, right), self.numbers, strict=True)
        )


class Converter:
    """What stands in for litert_torch: it writes the file above, whatever the network."""

    def __init__(self):
        self.given, self.error = None, None

    def convert(self, module, given):
        if self.error:
            raise self.error
        self.given = given
        return SimpleNamespace(export=lambda path: adds(tiny_tflite.Path(path), len(given[0])))


class Quantizer:
    """What stands in for ai_edge_quantizer's: it notes what it is asked for."""

    def __init__(self, source, recipe):
        self.asked = Quantizer.asked = [("made", source, recipe)]

    def update_quantization_recipe(self, which, end, *, algorithm_key):
        self.asked.append((which, end, algorithm_key))

    def calibrate(self, batches, *, num_threads):
        self.asked.append(("calibrate", batches, num_threads))
        return "ranges"

    def quantize(self, ranges, *, enable_progress_report):
        self.asked.append(("quantize", ranges, enable_progress_report))
        return SimpleNamespace(quantized_model=bytearray(b"int8"))


@pytest.fixture
def converter():
    return Converter()


@pytest.fixture
def made(monkeypatch, converter):
    """The module, with its libraries replaced and a clock that goes on by 2.3456 s at each look."""

    def stands_in(name, **attributes):
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)

    names = SimpleNamespace(INPUT="input", OUTPUT="output")
    stands_in("litert_torch", convert=converter.convert)
    stands_in(
        "ai_edge_quantizer",
        qtyping=SimpleNamespace(TFLOperationName=names),
        quantizer=SimpleNamespace(Quantizer=Quantizer),
        recipe=SimpleNamespace(static_wi8_ai8=lambda: "static"),
    )
    stands_in("ai_edge_quantizer.algorithm_manager", AlgorithmName=SimpleNamespace(NO_QUANTIZE="none"))
    name = "edgescope.wings.litert.litert_torch"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    ticks = iter(2.3456 * n for n in range(100))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    yield module
    sys.modules.pop(name, None)


def samples(n=3):
    rows = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    return Samples({"left": rows, "right": rows + 10}, tuple(map(str, range(n))), "")


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_file_that_agrees_says_how_it_was_made(made, converter, tmp_path, kind):
    found = made.convert(Net(kind=kind).train(), SPECS, samples(), tmp_path / "a.tflite", batch=2)
    parity = {"max_rel_error": 0.0, "batches": [2], "against": "torch_eager fp32"}
    assert found == {"build_s": 2.346, "names": NAMES, "parity": parity}
    left, right = (part.tolist() for part in converter.given)
    assert (left, right) == ([[0, 1], [2, 3]], [[10, 11], [12, 13]])


def test_few_inputs_are_repeated_to_fill_the_batch(made, converter, tmp_path):
    made.convert(Net(), SPECS, samples(2), tmp_path / "a.tflite", batch=3)
    assert converter.given[0].tolist() == [[0, 1], [2, 3], [0, 1]]


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        ((1.0, 4.0), 0.25),
        ((0.8, 3.0), 0.25),
        ((1.0, 4.25), None),
        ((2.0, 4.0), None),
        ((float("nan"), 3.0), None),
        ((1.0, float("nan")), None),
    ],
)
def test_the_largest_difference_is_held_against_the_largest_output(
    made, tmp_path, monkeypatch, numbers, error
):
    """The file answers 1 and 3 of zeros; a quarter of what the network answers is allowed."""
    monkeypatch.setattr(made, "TOLERANCE", 0.25 + 1e-6)
    zeros = Samples(dict.fromkeys(("left", "right"), np.zeros((1, 2), np.float32)), ("0",), "")
    if error is not None:
        found = made.convert(Net(numbers), SPECS, zeros, tmp_path / "a.tflite", batch=1)
        assert found["parity"]["max_rel_error"] == pytest.approx(error)
        return
    with pytest.raises(ModelError) as caught:
        made.convert(Net(numbers), SPECS, zeros, tmp_path / "a.tflite", batch=1)
    assert caught.value.code == "E-TFL-8" and "0.25" in caught.value.evidence


def test_what_differs_by_just_the_tolerance_is_kept(made, tmp_path, monkeypatch):
    monkeypatch.setattr(made, "TOLERANCE", 0.25)
    zeros = Samples(dict.fromkeys(("left", "right"), np.zeros((1, 2), np.float32)), ("0",), "")
    found = made.convert(Net((1.0, 4.0)), SPECS, zeros, tmp_path / "a.tflite", batch=1)
    assert found["parity"]["max_rel_error"] == 0.25


def test_outputs_of_zero_are_compared_as_they_are(made, tmp_path):
    given = Samples({"left": -np.ones((1, 2), np.float32), "right": np.zeros((1, 2), np.float32)}, ("0",), "")
    found = made.convert(Net(), SPECS, given, tmp_path / "a.tflite", batch=1)
    assert found["parity"]["max_rel_error"] == 0.0


def test_an_output_of_another_shape_is_no_agreement(made, tmp_path):
    with pytest.raises(ModelError) as caught:
        made.convert(Net(rows=slice(1)), SPECS, samples(), tmp_path / "a.tflite", batch=2)
    assert caught.value.code == "E-TFL-8" and "inf" in caught.value.evidence


@pytest.mark.parametrize("change", [lambda outputs: outputs[:1], lambda outputs: (*outputs, outputs[0])])
def test_an_output_more_or_less_is_no_agreement(made, tmp_path, change):
    class Other(Net):
        def forward(self, left, right):
            return change(super().forward(left, right))

    with pytest.raises(ModelError) as caught:
        made.convert(Other(), SPECS, samples(), tmp_path / "a.tflite", batch=2)
    assert caught.value.code == "E-TFL-8" and "inf" in caught.value.evidence


def test_one_tensor_is_compared_as_an_output(made, tmp_path):
    path = tiny_tflite.write(tmp_path / "a.tflite")
    image = torch.zeros(1, 8, 8, 3)
    biased = torch.from_numpy(np.maximum(tiny_tflite.weights()["bias"], 0)).repeat(64)
    answer = (torch.from_numpy(tiny_tflite.weights()["matrix"]) @ biased)[None]
    assert made._parity(lambda x: answer, (image,), path, {"image": image.numpy()}) < 1e-5


def test_whatever_the_converter_raises_is_told(made, converter, tmp_path):
    converter.error = KeyError("x " * 200 + "\n end")
    with pytest.raises(ModelError) as caught:
        made.convert(Net(), SPECS, samples(), tmp_path / "a.tflite", batch=1)
    assert caught.value.code == "E-TFL-7" and caught.value.evidence.startswith("KeyError: ")
    assert len(caught.value.evidence) == len("KeyError: ") + 300


def test_inputs_of_the_file_are_named_in_the_order_of_its_arguments(made, tmp_path, monkeypatch):
    swapped = adds(tmp_path / "a.tflite", arguments=("args_1", "args_0"))
    assert made._names(swapped, ["left", "right"]) == {"file_b": "left", "file_a": "right"}
    assert made._arguments(swapped) == {"args_1": "file_a", "args_0": "file_b"}
    many = {f"serving_args_{n}": f"t{n}" for n in (10, 2, 1, 0, 3, 4, 5, 6, 7, 8, 9)}
    monkeypatch.setattr(made, "_arguments", lambda path: many)
    wanted = [f"input{n}" for n in range(11)]
    assert made._names(swapped, wanted) == {f"t{n}": f"input{n}" for n in range(11)}
    with pytest.raises(ValueError, match="shorter"):
        made._names(swapped, wanted[:10])


@pytest.mark.parametrize(("n", "batch", "first_rows"), [(4, 2, [0, 4]), (3, 2, [0, 4]), (2, 3, [0])])
def test_int8_is_made_from_all_calibration_inputs(made, tmp_path, n, batch, first_rows):
    source, path = adds(tmp_path / "a.tflite", batch), tmp_path / "int8.tflite"
    found = made.quantise(source, NAMES, samples(n), path, batch=batch)
    assert found == {"build_s": 2.346, "method": made.METHOD}
    assert path.read_bytes() == b"int8"
    first, given, made_of, calibrated, quantized = Quantizer.asked
    assert first == ("made", str(source), "static")
    assert (given, made_of) == ((".*", "input", "none"), (".*", "output", "none"))
    assert calibrated[2] == 1 and quantized == ("quantize", "ranges", False)
    (batches,) = calibrated[1].values()
    assert [b["args_0"][0, 0] for b in batches] == first_rows
    assert all(b["args_0"].shape == (batch, 2) and set(b) == {"args_0", "args_1"} for b in batches)
    assert (batches[-1]["args_1"] - batches[-1]["args_0"] == 10).all()
    assert batches[-1]["args_0"][-1, 0] == (0 if n < batch * len(batches) else 2 * (n - 1))
