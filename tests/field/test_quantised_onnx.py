"""ONNX files that are quantised, or of 16 bits, before edgescope sees them: measured as they are.

Files like those of public reports (onnxruntime 24518, 17051, NNCF and Model Optimizer), built here. What
is said of each is what its kernels ran; nothing is quantised twice; and nobody says that a file agrees with fp32 where
no fp32 network is left.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402
from onnx import numpy_helper as nh  # noqa: E402
from onnxruntime import quantization as q  # noqa: E402
from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: E402

import edgescope  # noqa: E402
from edgescope.cli.main import main  # noqa: E402
from edgescope.records import Trial  # noqa: E402

RANDOM = np.random.default_rng(0)


def stored(*shape):
    return (RANDOM.standard_normal(shape) * 0.2).astype(np.float32)


def value(name, *shape):
    return h.make_tensor_value_info(name, T.FLOAT, list(shape))


def saved(path, nodes, given, made, tensors, opset=21):
    tensors = [nh.from_array(np.asarray(array), name) for name, array in tensors.items()]
    graph = h.make_graph(nodes, "g", given, made, tensors)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10), path)
    return path


def cnn(path):
    tensors, nodes, source = {}, [], "x"
    for i, channels in enumerate((3, 8, 8)):
        tensors |= {f"w{i}": stored(8, channels, 3, 3), f"b{i}": stored(8)}
        nodes.append(
            h.make_node("Conv", [source, f"w{i}", f"b{i}"], [f"c{i}"], name=f"conv{i}", pads=[1] * 4)
        )
        nodes.append(h.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"relu{i}"))
        source = f"r{i}"
    nodes += [h.make_node("GlobalAveragePool", [source], ["p"]), h.make_node("Flatten", ["p"], ["y"])]
    return saved(path, nodes, [value("x", 1, 3, 16, 16)], [value("y", 1, 8)], tensors)


def mlp(path):
    nodes, source = [], "x"
    for i in range(2):
        nodes.append(h.make_node("MatMul", [source, f"w{i}"], [f"m{i}"], name=f"fc{i}"))
        nodes.append(h.make_node("Relu", [f"m{i}"], [f"r{i}"], name=f"act{i}"))
        source = f"r{i}"
    tensors = {f"w{i}": stored(64, 64) for i in range(2)}
    return saved(path, nodes, [value("x", "N", 64)], [value("r1", "N", 64)], tensors)


class Ranges(q.CalibrationDataReader):
    def __init__(self):
        self.rows = iter([{"x": RANDOM.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(4)])

    def get_next(self):
        return next(self.rows, None)


def packed(path):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    maker = MatMulNBitsQuantizer(onnx.load(str(mlp(path))), block_size=32, is_symmetric=True)
    maker.process()
    maker.model.save_model_to_file(str(path))


def nncf_like(path):
    """Write activations of uint8 with zero point 0, as NNCF does by default after a Relu."""
    nodes = [
        h.make_node("QuantizeLinear", ["x", "s", "z"], ["a"], name="xq"),
        h.make_node("DequantizeLinear", ["a", "s", "z"], ["b"], name="xd"),
        h.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["d"], name="wd", axis=0),
        h.make_node("Conv", ["b", "d"], ["y"], name="conv", pads=[1] * 4),
    ]
    tensors = {"s": np.float32(0.004), "z": np.uint8(0), "ws": np.full(8, 0.002, np.float32)}
    tensors |= {"wq": RANDOM.integers(-127, 127, (8, 3, 3, 3)).astype(np.int8), "wz": np.zeros(8, np.int8)}
    saved(path, nodes, [value("x", 1, 3, 16, 16)], [value("y", 1, 8, 16, 16)], tensors)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("quantised")
    plain = str(cnn(made / "cnn.onnx"))
    int8 = q.QuantType.QInt8
    for name, kind, form in (
        ("u8", q.QuantType.QUInt8, q.QuantFormat.QDQ),
        ("s8", int8, q.QuantFormat.QDQ),
        ("qop", q.QuantType.QUInt8, q.QuantFormat.QOperator),
        ("a16", q.QuantType.QUInt16, q.QuantFormat.QDQ),
    ):
        q.quantize_static(
            plain,
            str(made / f"{name}.onnx"),
            Ranges(),
            quant_format=form,
            activation_type=kind,
            weight_type=int8,
        )
    q.quantize_dynamic(str(mlp(made / "mlp.onnx")), str(made / "dynamic.onnx"))
    packed(made / "int4.onnx")
    onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=True), made / "fp16.onnx")
    nncf_like(made / "nncf.onnx")
    return made


TIMED = ("ok", "unstable")
"""Which of the two it is depends on what else the machine does."""


def bench(path, backend, **keys):
    """Measure in this process: a fresh one for each file would take most of the time."""
    short = {"max_queries": 20, "warmup": 0.0, "options": {"threads": 1}}
    return edgescope.run(Trial(model=str(path), backend=backend, **{**short, **keys}), isolated=False)


def ran(result):
    return result.effective.precision


@pytest.mark.parametrize(
    ("name", "precision"),
    [("u8", "int8"), ("s8", "int8"), ("qop", "int8"), ("nncf", "fp32"), ("fp16", "fp32")],
)
@pytest.mark.slow
def test_it_is_measured_as_it_is_under_what_its_kernels_run(folder, name, precision):
    """ONNX Runtime widens fp16 to fp32, and a product whose output is not quantised runs in fp32: that is said."""
    result = bench(folder / f"{name}.onnx", "onnxruntime")
    assert result.status.value in TIMED and result.trial.precision == "as_is"
    assert ran(result) == precision
    assert "not verified against fp32" in result.verification.detail
    assert "no fp32 network" in result.model.source


@pytest.mark.slow
def test_int4_weights_are_called_int4(folder):
    result = bench(folder / "int4.onnx", "onnxruntime", shapes={"x": (1, 64)})
    assert result.status.value in TIMED and ran(result) == "int4"
    assert "rounded to int8" in result.effective.evidence


@pytest.mark.parametrize("name", ["u8", "s8"])
@pytest.mark.slow
def test_openvino_says_what_its_kernels_ran(folder, name):
    """Signed int8 with a zero point runs in fp32 on some CPUs, though its tensors are int8."""
    pytest.importorskip("openvino")
    import openvino

    result = bench(folder / f"{name}.onnx", "openvino")
    core = openvino.Core()
    graph = core.compile_model(str(folder / f"{name}.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    infos = [node.get_rt_info() for node in graph.get_runtime_model().get_ordered_ops()]
    kernels = [str(i["primitiveType"].value) for i in infos if str(i["layerType"].value) == "Convolution"]
    assert result.status.value in TIMED and kernels
    if all(kernel.endswith("I8") for kernel in kernels):
        assert ran(result) == "int8"
    elif all(kernel.endswith("f32") for kernel in kernels):
        assert ran(result) == "fp32"
    else:
        assert ran(result).startswith("mixed") or ran(result) == "int8"


@pytest.mark.process
def test_int8_asked_for_by_name_runs_the_file_as_it_is(folder):
    result = bench(folder / "u8.onnx", "onnxruntime", precision="int8")
    assert result.status.value in TIMED and ran(result) == "int8"
    assert Path(result.artifact["path"]).name == "u8.onnx"


@pytest.mark.process
def test_it_is_never_quantised_again_nor_lowered(folder):
    result = bench(folder / "u8.onnx", "openvino", precision="int8", options={"qdq": "s8s8"})
    assert result.reason.code == "E-OPT-3" and not result.artifact
    result = bench(folder / "u8.onnx", "onnxruntime", precision="bf16")
    assert result.reason.code in ("E-PREC-4", "E-PREC-1") and result.status.value == "unsupported"


@pytest.mark.slow
def test_16_bit_activations_that_an_engine_drops_are_not_called_int8(folder):
    """OpenVINO leaves the pairs out, and a Relu that was folded into their range: its answers are found wrong."""
    pytest.importorskip("openvino")
    result = bench(folder / "a16.onnx", "openvino")
    assert ran(result) == "fp32"
    assert result.status.value in (*TIMED, "wrong_output")
    result = bench(folder / "a16.onnx", "onnxruntime")
    assert result.status.value in TIMED and ran(result) == "fp32" and "int16" in result.model.source


@pytest.mark.parametrize(("name", "word"), [("u8", "unsigned"), ("nncf", "unsigned"), ("s8", "zero point")])
def test_tensorrt_is_told_what_it_would_misread(folder, name, word):
    """NNCF's uint8 with zero point 0 among them, which TensorRT-RTX takes for int8 without a word."""
    from edgescope.backends.base import Spec
    from edgescope.errors import UnsupportedError
    from edgescope.models import zoo
    from edgescope.wings.tensorrt.about import for_tensorrt

    model = zoo.get(str(folder / f"{name}.onnx"))
    with pytest.raises(UnsupportedError, match="E-QDQ-1") as error:
        for_tensorrt(model, Spec("as_is"), folder)
    assert word in str(error.value)
    half, plain = (zoo.get(str(folder / f"{name}.onnx")) for name in ("fp16", "cnn"))
    assert for_tensorrt(half, Spec("as_is"), folder).precision == "fp16"
    assert for_tensorrt(plain, Spec("int8"), folder).precision == "int8"


@pytest.mark.slow
def test_a_float_file_stays_fp32(folder):
    result = bench(folder / "cnn.onnx", "onnxruntime")
    assert result.trial.precision == "fp32" and ran(result) == "fp32"
    assert "fp32" in result.verification.reference and "quantised" not in result.model.source


def test_optimize_tries_it_as_it_is_in_every_engine(folder):
    """The first one is the baseline. That one measures well is shown above; whole searches take a minute."""
    from edgescope.search.candidates import propose

    found = propose(Trial(model=str(folder / "u8.onnx"))).trials
    assert {t.precision for t in found} == {"as_is"} and found[0].backend == "onnxruntime"
    assert {"onnxruntime", "openvino"} <= {t.backend for t in found}
    assert len({(t.backend, str(t.options)) for t in found}) == len(found)
    assert {t.precision for t in propose(Trial(model=str(folder / "cnn.onnx"))).trials} > {"fp32", "int8"}


@pytest.mark.slow
def test_layers_joins_its_nodes_to_the_models_own(folder, tmp_path, capsys):
    pytest.importorskip("openvino")
    flags = ["--backend", "onnxruntime,openvino", "--threads", "1", "--store", str(tmp_path), "--json"]
    assert main(["layers", str(folder / "u8.onnx"), *flags]) == 0
    engines = json.loads(capsys.readouterr().out)["engines"]
    for engine in engines:
        rows = {row["layer"]["name"]: row["layer"] for row in engine["layers"]}
        assert {"conv0", "conv1", "conv2"} <= set(rows)
        assert rows["conv1"]["flops"] == 2 * 16 * 16 * 8 * 8 * 9
    assert "int8" in engines[0]["engine"] and {r["precision"] for r in _rows(engines[0], "conv")} == {"int8"}


def _rows(engine, start):
    return [row["layer"] for row in engine["layers"] if row["layer"]["name"].startswith(start)]
