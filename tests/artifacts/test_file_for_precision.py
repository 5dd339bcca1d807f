"""Which file an engine gets for a precision, which options make one, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgescope.artifacts import for_precision, int8
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import zoo

FOLDER = Path("folder")


class Net:
    """A model whose files are words."""

    def __init__(self, written=""):
        self.info = replace(zoo.get("null").info, name="net")
        if written:
            self.written = written

    def onnx(self, folder, opset=None):
        return f"own {opset}"


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """Let every kind of file be a word."""
    for module, name in (
        (int8, "int8"),
        (int8, "dynamic"),
        (for_precision, "fp16"),
        (int8, "mixture"),
    ):
        monkeypatch.setattr(module, name, lambda model, folder, n=name, **how: (n, folder, how))


@pytest.mark.parametrize(
    ("precision", "options", "found"),
    [
        ("fp32", {}, "own 13"),
        ("tf32", {}, "own 13"),
        ("bf16", {}, "own 13"),
        ("fp16", {}, ("fp16", FOLDER, {"opset": 13})),
        ("int8", {}, ("int8", FOLDER, {"opset": 13})),
        ("int8", {"qdq": "s8s8", "quantizer": "x"}, ("int8", FOLDER, {"opset": 13, "qdq": "s8s8", "quantizer": "x"})),
        ("int8", {"fallback": True, "qdq": "s8s8"}, ("mixture", FOLDER, {"opset": 13, "qdq": "s8s8"})),
        ("int8", {"fallback": False, "dynamic": False}, ("int8", FOLDER, {"opset": 13})),
        ("int8", {"dynamic": True}, ("dynamic", FOLDER, {"opset": 13})),
        ("int8", {"dynamic": True, "fallback": True}, ("dynamic", FOLDER, {"opset": 13})),
        ("fp32", {"dynamic": True}, "own 13"),
        ("fp16", {"fallback": True}, ("fp16", FOLDER, {"opset": 13})),
    ],
)  # fmt: skip
def test_each_precision_has_its_file(precision, options, found):
    assert for_precision.onnx_file(Net(), precision, FOLDER, opset=13, **options) == found


@pytest.mark.parametrize("precision", ["as_is", "int8", "fp32"])
def test_a_file_that_is_no_fp32_network_stays_as_it_is(precision):
    assert for_precision.onnx_file(Net("int8"), precision, FOLDER, opset=13) == "own 13"


@pytest.mark.parametrize(
    ("written", "precision", "options", "code"),
    [
        ("int8", "int8", {"fallback": True}, "E-OPT-3"),
        ("int8", "int8", {"dynamic": True}, "E-OPT-3"),
        ("int8", "int8", {"qdq": "s8s8"}, "E-OPT-3"),
        ("fp16", "int8", {}, "E-PREC-4"),
        ("int8", "fp16", {}, "E-PREC-4"),
        ("int8", "tf32", {"qdq": "s8s8"}, "E-PREC-4"),
    ],
)
def test_it_is_never_made_into_another_one(written, precision, options, code):
    with pytest.raises((UsageError, UnsupportedError)) as caught:
        for_precision.onnx_file(Net(written), precision, FOLDER, **options)
    assert caught.value.code == code
    assert for_precision.onnx_file(Net(written), "as_is", FOLDER, qdq="s8s8") == "own None"


@pytest.mark.parametrize(
    ("written", "precision", "found"),
    [("int8", "as_is", "int8"), ("", "as_is", "fp32"), ("int8", "fp16", "fp16"), ("", "int8", "int8")],
)
def test_as_is_is_what_a_file_is_written_in(written, precision, found):
    assert for_precision.as_written(Net(written), precision) == found


@pytest.mark.parametrize(
    ("options", "precision", "found"),
    [
        ({}, "fp32", {}),
        ({"threads": 2}, "fp32", {}),
        ({"threads": 2, "qdq": "s8s8", "calibration": "photos"}, "int8", {"qdq": "s8s8"}),
        ({"fallback": True}, "int8", {"fallback": True}),
        ({"dynamic": True}, "int8", {"dynamic": True}),
        ({"dynamic": False, "qdq": "u8s8"}, "int8", {"dynamic": False, "qdq": "u8s8"}),
        ({"calibration": "photos"}, "int8", {}),
        ({"qdq": "s8s8"}, "fp16", "E-OPT-3"),
        ({"fallback": "yes"}, "int8", "E-OPT-4"),
        ({"dynamic": 1}, "int8", "E-OPT-4"),
        ({"dynamic": True, "qdq": "s8s8"}, "int8", "E-OPT-3"),
        ({"dynamic": True, "calibration": "photos"}, "int8", "E-OPT-3"),
    ],
)
def test_options_for_making_int8_belong_to_int8(options, precision, found):
    if isinstance(found, dict):
        assert for_precision.int8_options(options, precision) == found
        return
    with pytest.raises(UsageError) as caught:
        for_precision.int8_options(options, precision)
    assert caught.value.code == found


def test_what_stands_beside_dynamic_is_named():
    with pytest.raises(UsageError) as caught:
        for_precision.int8_options({"qdq": "s8s8", "dynamic": True, "fallback": False}, "int8")
    assert caught.value.what.startswith("qdq, fallback: ")


def test_tensorrt_has_one_form_only_and_dynamic_is_for_some():
    assert {*for_precision.INT8_OPTIONS} - {*for_precision.TENSORRT_INT8_OPTIONS} == {"qdq"}
    assert {*for_precision.DYNAMIC_OPTIONS} - {*for_precision.INT8_OPTIONS} == {"dynamic"}


@pytest.mark.parametrize(("node", "said"), [("node 'a'", "node 'a': "), ("", ".* opset 18: ")])
def test_what_an_engine_cannot_load_names_the_node_or_the_opset(monkeypatch, node, said):
    found = {"named_in": lambda path, text: node, "opsets": lambda path: "18"}
    monkeypatch.setattr(for_precision, "need", lambda target, *_: found[target.partition(":")[2]])
    error = for_precision.unreadable("E-X-1", "Engine", Path("a.onnx"), ValueError("b \n c" + "x" * 500))
    assert error.code == "E-X-1" and re.fullmatch(said + "b cx{397}", error.evidence)


def test_a_precision_that_is_not_here_is_refused_with_what_is():
    error = for_precision.refuse("litert", "bf16", "no kernels")
    assert (error.code, error.evidence) == ("E-PREC-1", "no kernels") and "this CPU" in error.what
    assert SimpleNamespace(**vars(error)).fix == "--precision fp32 or int8"
