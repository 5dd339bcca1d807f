"""When a .tflite is made, from what, and what its sidecar says; the converter is a stand-in that writes a few bytes."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType

import pytest

import data_sets
from edgescope import cache
from edgescope.errors import UnsupportedError
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, TensorSpec
from edgescope.wings.litert.tflite import tflite


class Net:
    """Takes `x` of eight numbers."""

    def __init__(self, digest="d1", known=True):
        self.info = dataclasses.replace(zoo.get("null").info, digest=digest)
        self.inputs, self.known = (TensorSpec("x", (8,), "float32"),), known

    def module(self):
        return "network"

    def samples(self, purpose, n):
        self.asked = purpose, n
        return synthetic.samples(self.inputs, purpose, n) if self.known else None


@pytest.fixture
def asked(monkeypatch):
    """What the converter was asked for."""
    found, module = [], ModuleType("edgescope.wings.litert.litert_torch")

    def convert(network, inputs, samples, path, *, batch):
        found.append(("convert", network, inputs[0].name, len(samples), batch))
        path.write_bytes(b"float")
        return {"build_s": 1.5, "names": {"file_x": "x"}}

    def quantise(source, names, calibration, path, *, batch):
        found.append(("quantise", source.read_bytes(), names, len(calibration), batch))
        path.write_bytes(b"int8")
        return {"build_s": 0.5, "method": "a stand-in's"}

    module.convert, module.quantise = convert, quantise
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def test_each_batch_and_each_network_has_a_file_of_its_own(asked, tmp_path):
    paths = [tflite(Net(d), tmp_path, batch=b) for d, b in (("d1", 1), ("d1", 2), ("d2", 1), ("d1", 1))]
    assert len(set(paths)) == 3 and paths[0] == paths[3]
    assert [row[3:] for row in asked] == [(1, 1), (2, 2), (1, 1)]
    about = cache.notes(paths[1])
    assert (about["model"], about["model_digest"], about["build_s"]) == (Net().info.name, "d1", 1.5)
    assert set(about["made_with"]) == {"torch", "litert-torch", "ai-edge-quantizer"}
    assert "fp32-b2" in paths[1].name and "calibration" not in about


def test_int8_is_made_from_the_float_file_of_the_same_batch(asked, tmp_path):
    path = tflite(data_sets.untrained(Net()), tmp_path, batch=2, int8=True)
    assert [row[0] for row in asked] == ["convert", "quantise"]
    assert asked[1][1:] == (b"float", {"file_x": "x"}, 64, 2)
    about, given = cache.notes(path), Net().samples(Purpose.CALIBRATION, 64)
    assert path.read_bytes() == b"int8" and "int8-b2" in path.name
    assert about["names"] == {"file_x": "x"} and about["method"] == "a stand-in's"
    assert about["source_made"]["build_s"] == 1.5 and about["model_digest"] == "d1"
    assert about["calibration"] == {"n": 64, "origin": given.origin, "digests": list(given.digests)}
    assert tflite(Net(), tmp_path, batch=2) != path and len(asked) == 2


def test_a_network_without_inputs_cannot_be_traced(asked, tmp_path):
    with pytest.raises(UnsupportedError, match="E-TFL-6"):
        tflite(Net(known=False), tmp_path, batch=1)
    assert asked == [] and not list(tmp_path.glob("*.tflite"))
