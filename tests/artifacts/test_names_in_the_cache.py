"""What an earlier release made is found again: a name in the cache changes only when what lies there would differ.

Whoever raises a VERSION on purpose changes the name here, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgescope import cache
from edgescope.artifacts import for_precision, int8, onnx_export
from edgescope.models import zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.wings.litert import tflite

SPECS = (TensorSpec("x", (2,), "float32"),)


class Net:
    """A network of two numbers, of which nothing changes."""

    info = replace(zoo.get("null").info, name="net", digest="d1", trained=True)
    inputs = SPECS

    def onnx(self, folder, opset=None):
        path = folder / "own.onnx"
        path.write_bytes(b"network")
        return path

    def samples(self, purpose, n):
        first = 100 if purpose is Purpose.GATE else 0
        rows = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        return Samples({"x": rows}, tuple(f"d{i + first}" for i in range(n)), "here")


KINDS = {
    "fp32": lambda folder: onnx_export.onnx_file(Net.info, SPECS, object, folder),
    "fp16": lambda folder: for_precision.fp16(Net(), folder),
    "int8": lambda folder: int8.int8(Net(), folder),
    "dynamic": lambda folder: int8.dynamic(Net(), folder),
    "mixed": lambda folder: int8.mixture(Net(), folder),
    "tflite": lambda folder: tflite.tflite(Net(), folder, batch=1),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("fp32", "net-fp32-ae1bc90aba5d8154.onnx"),
        ("fp16", "net-fp16-45a8baf35337b648.onnx"),
        ("int8", "net-int8-d8b7bbf1a4a3bd32.onnx"),
        ("dynamic", "net-dynamic-8a903bd4e6b07ff2.onnx"),
        ("mixed", "net-mixed-66da7e3395bd92cb.onnx"),
        ("tflite", "net-fp32-b1-3416ce30f7bed31f.tflite"),
    ],
)
def test_a_file_keeps_its_name(tmp_path, monkeypatch, kind, name):
    class Made(Exception):
        """Carries the path that would be made."""

    def made(path, make):
        raise Made(path.name)

    monkeypatch.setattr(cache, "versions", lambda packages: dict.fromkeys(packages, "1"))
    monkeypatch.setattr(cache, "made_once", made)
    monkeypatch.setattr(int8, "disjoint", lambda *given: None)
    with pytest.raises(Made) as caught:
        KINDS[kind](tmp_path)
    assert str(caught.value) == name
