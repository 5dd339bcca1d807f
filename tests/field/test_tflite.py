"""TFLite files as other people's converters write them, through the command line.

An open batch, weights in float16, several outputs behind a signature, whole integers from end to end with a zero
point, and operators that LiteRT does not have. The files are made by hand: no converter of TensorFlow's is needed.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("ai_edge_litert")

from edgescope.cli.main import main
from edgescope.data import opening, samples
from edgescope.data.preprocessing import known
from edgescope.models import zoo
from edgescope.models.image import preprocess
from edgescope.records import Trial
from models.tiny_tflite import File, schema, write

SIDE = 8


def reduced(path, dtype, scale, zero):
    """Write a mean over a picture from end to end in integers, without an operator that multiplies."""
    file = File()
    image = file.tensor("image", (1, SIDE, SIDE, 3), dtype, scales=[scale], zeros=[zero])
    axes = file.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    out = file.tensor("mean", (1, 3), dtype, scales=[scale], zeros=[zero])
    file.graph.inputs, file.graph.outputs = [image], [out]
    file.operator("MEAN", [image, axes], [out], schema.ReducerOptionsT())
    return file.save(path)


def several(path):
    """Write two outputs in another order than they are computed, an open batch, and a signature with names."""
    file = File()
    names = ("serving_default_x:0", "StatefulPartitionedCall:0", "StatefulPartitionedCall:1")
    x, a, b = (file.tensor(name, (1, SIDE), "float32", signature=[-1, SIDE]) for name in names)
    file.graph.inputs, file.graph.outputs = [x], [b, a]
    file.operator("LOGISTIC", [x], [a])
    file.operator("TANH", [x], [b])
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = b"serving_default", 0
    signature.inputs = [_mapped(b"features", x)]
    signature.outputs = [_mapped(b"probability", a), _mapped(b"score", b)]
    file.model.signatureDefs = [signature]
    return file.save(path)


def _mapped(name, index):
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name, index
    return made


def custom(path, name):
    """Write one operator that is not built into LiteRT."""
    file = File()
    x, y = (file.tensor(name, (1, SIDE), "float32") for name in "xy")
    file.graph.inputs, file.graph.outputs = [x], [y]
    file.operator("CUSTOM", [x], [y])
    file.model.operatorCodes[-1].customCode = name.encode()
    return file.save(path)


@pytest.fixture
def bench(tmp_path, capsys, trials_here):
    """Measure a file by the command line; return the exit code and the result as JSON."""
    flags = (
        "--threads",
        "1",
        "--warmup",
        "0",
        "--duration",
        "50ms",
        "--store",
        str(tmp_path / "store"),
        "--json",
    )

    def measured(path, *more):
        code = main(["bench", str(path), *flags, *more])
        return code, json.loads(capsys.readouterr().out)

    return measured


@pytest.mark.process
@pytest.mark.parametrize("kind", ["open", "several", "fp16"])
def test_float_files_of_every_make_are_measured_and_compared_with_themselves(tmp_path, bench, kind):
    make = {"open": lambda p: write(p, batch=None), "several": several, "fp16": lambda p: write(p, "fp16")}[
        kind
    ]
    batch = 1 if kind == "fp16" else 3
    code, found = bench(make(tmp_path / f"{kind}.tflite"), "--batch", str(batch))
    assert found["status"] in ("ok", "unstable") and code in (0, 1)
    assert found["effective"]["precision"] == "fp32" and found["verification"]["passed"]
    assert found["metrics"]["latency_p50_s"]["value"] > 0


@pytest.mark.process
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_integers_from_end_to_end_run_as_what_they_are_though_nothing_multiplies(tmp_path, bench, dtype):
    path = reduced(tmp_path / "whole.tflite", dtype, 1 / 127.5, 128 if dtype == "uint8" else 0)
    _, found = bench(path)
    assert found["reason"]["code"] == "E-TFL-3" and found["reason"]["fix"] == "--precision int8"
    _, found = bench(path, "--precision", "int8")
    assert found["status"] in ("ok", "unstable") and found["effective"]["precision"] == "int8"


@pytest.mark.parametrize(
    ("dtype", "scale", "zero", "how", "least", "most"),
    [
        ("int8", 1 / 127.5, 0, "half", -128, 127),
        ("uint8", 1 / 127.5, 128, "half", 0, 255),
        ("int8", 1 / 255, -128, "unit", -128, 127),
        ("uint8", 1 / 127.5, 128, "bytes", 0, 255),
        ("uint8", 1 / 255, 0, "unit", 0, 255),
    ],
)
def test_pictures_become_the_integers_that_stand_for_them(tmp_path, dtype, scale, zero, how, least, most):
    """Rounded to -1, 0 and 1, what a picture is normalised to would be nearly black, and nobody would say so."""
    for i in range(4):
        pixels = np.linspace(0, 255, SIDE * SIDE * 3).reshape(SIDE, SIDE, 3).astype(np.uint8)
        pixels[0, 0] = i
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    model = zoo.get(str(reduced(tmp_path / "net.tflite", dtype, scale, zero)))
    way = known(model, Trial(model="net", preprocess=f"{how},resize=stretch")).preprocess
    assert isinstance(way, preprocess.Preprocess)
    wanted = samples.Wanted(model.inputs, way)
    array = samples.made(opening.read(str(tmp_path)), None, 4, wanted).arrays["image"]
    assert array.dtype == dtype and array.shape == (4, SIDE, SIDE, 3)
    assert array.min() <= least + 3 and array.max() >= most - 3
    assert len(np.unique(array)) > 150


@pytest.mark.process
@pytest.mark.parametrize("name", ["FlexErf", "TFLite_Detection_PostProcess"])
def test_operators_that_are_not_there_are_named(tmp_path, bench, name):
    code, found = bench(custom(tmp_path / "net.tflite", name))
    reason = found["reason"]
    assert code == 1 and (reason["code"], reason["evidence"]) == ("E-TFL-5", name)
    assert "TFLITE_BUILTINS" in reason["fix"]
