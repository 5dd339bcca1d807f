import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import data_sets
from edgescope.artifacts import int8
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.records import Trial
from edgescope.study import grid


def write(path, dims, op="Relu", domain="", dtype=TensorProto.FLOAT):
    """A one-operator ONNX file with the given input dimensions."""
    node = helper.make_node(op, ["image"], ["y"], domain=domain)
    given = helper.make_tensor_value_info("image", dtype, dims)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 3], np.zeros(6))
    graph = helper.make_graph(
        [node], "g", [given], [helper.make_tensor_value_info("y", dtype, dims)], [weight]
    )
    opsets = [helper.make_opsetid("", 18)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return str(path)


def with_external_weights(path, value, inside=False):
    """A file whose only weights, all `value`, lie in weights.bin beside it; `inside` a Constant node."""
    weight = numpy_helper.from_array(np.full((3, 3), value, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["image", "w"], ["y"])]
    if inside:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=weight))
    axes = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("image", "y")}
    graph = helper.make_graph(nodes, "g", [axes["image"]], [axes["y"]], [] if inside else [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    data = path.parent / "weights.bin"
    data.unlink(missing_ok=True)
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        location=data.name,
        size_threshold=0,
        convert_attribute=inside,
    )
    os.utime(data, ns=(0, int(1e9 * (1 + value))))  # files made within one tick of the clock differ in time
    return str(path)


@pytest.mark.parametrize("inside", [False, True], ids=["initialiser", "constant"])
def test_weights_in_another_file_are_part_of_the_model(tmp_path, inside):
    name = with_external_weights(tmp_path / "net.onnx", 1.0, inside)
    graph, pinned, first = (tmp_path / "net.onnx").read_bytes(), zoo.pin(name), zoo.get(name).info.digest
    assert zoo.get(pinned).info.digest == first
    with_external_weights(tmp_path / "net.onnx", 2.0, inside)
    assert (tmp_path / "net.onnx").read_bytes() == graph
    assert zoo.pin(name) != pinned
    assert zoo.get(name).info.digest != first
    with pytest.raises(ModelError, match="planned"):
        zoo.get(pinned)
    with_external_weights(tmp_path / "net.onnx", 1.0, inside)
    assert zoo.pin(name) == pinned


def test_weights_that_are_missing_are_asked_for(tmp_path):
    name = with_external_weights(tmp_path / "net.onnx", 1.0)
    (tmp_path / "weights.bin").unlink()
    for ask in (zoo.pin, zoo.get):
        with pytest.raises(ModelError, match=r"E-ONNX-9.*weights\.bin: No such file.*Try: put"):
            ask(name)


@pytest.mark.parametrize("place", ["../weights.bin", "/etc/hostname"])
def test_weights_outside_the_folder_are_not_read(tmp_path, place):
    name = with_external_weights(tmp_path / "net.onnx", 1.0)
    model = onnx.load(name, load_external_data=False)
    next(e for e in model.graph.initializer[0].external_data if e.key == "location").value = place
    onnx.save(model, name)
    with pytest.raises(ModelError, match=r"E-ONNX-8: .*outside"):
        zoo.pin(name)


def test_int8_is_made_again_for_other_external_weights(tmp_path, monkeypatch):
    from edgescope.artifacts import int8_onnxruntime

    made = []

    def fake(source, calibration, path, **settings):
        made.append(path.name)
        path.write_bytes(b"int8")
        return {}

    monkeypatch.setattr(int8_onnxruntime, "quantize", fake)
    for value in (1.0, 2.0):
        model = data_sets.untrained(zoo.get(with_external_weights(tmp_path / "net.onnx", value)))
        int8.int8(model, tmp_path / "made")
    assert len(set(made)) == 2


def test_a_file_is_understood(tmp_path):
    name = write(tmp_path / "net.onnx", ["N", 3, 8, 8])
    model = zoo.get(name)
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.inputs] == [("image", (3, 8, 8), "float32")]
    assert model.reference == "onnxruntime"
    assert model.info.params == 6
    assert not model.info.trained
    assert str(model.onnx(tmp_path)) == name
    assert model.samples(Purpose.BENCH, 2).arrays["image"].shape == (2, 3, 8, 8)
    with pytest.raises(UnsupportedError, match="onnxruntime"):
        model.module()


def test_open_axes_ask_for_a_shape_and_take_one(tmp_path):
    name = write(tmp_path / "net.onnx", ["N", 3, "height", "width"])
    with pytest.raises(UsageError, match=r"'image'.*2 \(height\), 3 \(width\).*--shapes image=Nx3x224x224"):
        zoo.get(name)
    model = zoo.get(name, {"image": (1, 3, 32, 48)})
    assert model.inputs[0].shape == (3, 32, 48)
    assert model.info.digest != zoo.get(name, {"image": (1, 3, 32, 32)}).info.digest


@pytest.mark.parametrize("shapes", [{"image": (1, 4, 8, 8)}, {"image": (1, 3, 8)}, {"img": (1, 3, 8, 8)}])
def test_a_shape_that_does_not_fit_names_the_inputs(tmp_path, shapes):
    name = write(tmp_path / "net.onnx", ["N", 3, "height", "width"])
    with pytest.raises(UsageError, match=r"image=Nx3xheightxwidth"):
        zoo.get(name, shapes)


def test_a_closed_batch_axis_is_checked(tmp_path):
    name = write(tmp_path / "net.onnx", [2, 3, 8, 8])
    assert zoo.get(name, batch=2).closed_batch == 2
    with pytest.raises(UsageError, match=r"E-BATCH-1: .*batch 4: axis 0 .*'image' .* 2 .*--batch 2"):
        zoo.get(name, batch=4)
    assert zoo.get(write(tmp_path / "open.onnx", ["N", 3]), batch=4).closed_batch is None


@pytest.mark.parametrize(
    ("dims", "may_be_one"), [([64, 64], True), ([16000], True), ([3, 32, 32], True), ([2, 3, 8, 8], False)]
)
def test_a_first_axis_that_may_be_no_batch_is_not_called_one(tmp_path, dims, may_be_one):
    with pytest.raises(UsageError) as caught:
        zoo.get(write(tmp_path / "net.onnx", dims), batch=1)
    whole = "x".join(map(str, dims))
    assert caught.value.code == "E-BATCH-1" and f"--batch {dims[0]} if" in caught.value.fix
    assert (f"Nx{whole}" in caught.value.fix) is may_be_one and whole in caught.value.evidence


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        zoo.get(str(tmp_path / "no.onnx"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "a PNG image"),
        (b"PK\x03\x04" + b"\0" * 50, "a zip archive"),
        (b"", "0 bytes"),
        (b"just text", "9 bytes"),
    ],
)
def test_a_foreign_file_is_recognised(tmp_path, data, said):
    path = tmp_path / "x.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=rf"E-ONNX-3: x\.onnx .*\(.*{said}"):
        zoo.get(str(path))


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_truncated_file_is_refused(tmp_path, untrained, artifacts, share):
    data = untrained.onnx(artifacts).read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match="E-ONNX"):
        zoo.get(str(path))


@pytest.mark.parametrize("domain", ["com.acme", "TRT", ""])
def test_an_operator_that_one_engine_lacks_is_refused_by_that_engine_alone(tmp_path, domain):
    from edgescope.backends.base import Spec
    from edgescope.backends.ort.backend import OnnxRuntime

    model = zoo.get(write(tmp_path / "a.onnx", ["N", 3], "Frobnicate", domain))
    assert model.inputs[0].shape == (3,)
    said = rf"E-ONNX-1.*\(Frobnicate of domain {domain or 'ai.onnx'}, opset"
    with pytest.raises(ModelError, match=said):
        OnnxRuntime().prepare(model, Spec(), tmp_path)


def test_a_malformed_file_is_refused_for_all_engines(tmp_path):
    name = write(tmp_path / "a.onnx", ["N", 3])
    model = onnx.load(name)
    model.graph.node[0].input[0] = "nothing_makes_this"
    onnx.save(model, name)
    with pytest.raises(ModelError, match=r"E-ONNX-6.*nothing_makes_this"):
        zoo.get(name)


@pytest.mark.parametrize("size", [-1, 0])
def test_a_size_below_one_is_an_open_axis(tmp_path, size):
    name = write(tmp_path / "a.onnx", [size, 3, size, 8])
    with pytest.raises(UsageError, match=r"E-SHAPE-3.*2 \(axis2\).*image=Nx3xaxis2x8"):
        zoo.get(name)
    model = zoo.get(name, {"image": (1, 3, 16, 8)}, batch=5)
    assert model.closed_batch is None and model.inputs[0].shape == (3, 16, 8)


def test_an_input_that_is_one_number_is_a_constant_and_is_named(tmp_path):
    from edgescope.models.user import onnx_reader

    kinds = {"limit": TensorProto.FLOAT, "most": TensorProto.INT64, "flag": TensorProto.BOOL}
    scalars = [helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()]
    nodes = [helper.make_node("Mul", ["x", "limit"], ["y"])]
    axes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [0, 3, 0]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", [axes[0], *scalars], [axes[1]])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    model = zoo.get(str(path), {"x": (1, 3, 5)}, batch=2)
    assert [spec.name for spec in model.inputs] == ["x"] and model.closed_batch is None
    assert "flag 0, limit 0.5, most 100" in model.info.source
    made = onnx.load(model.onnx(tmp_path / "made"))
    assert [i.name for i in made.graph.input] == ["x"]
    dims = made.graph.input[0].type.tensor_type.shape.dim
    assert [axis.dim_value or axis.dim_param for axis in dims] == ["N", 3, "x_axis2"]
    stored = {tensor.name: numpy_helper.to_array(tensor).item() for tensor in made.graph.initializer}
    assert stored == {"limit": 0.5, "most": 100, "flag": False}
    assert stored == onnx_reader.scalar_constants(onnx.load(path).graph)
    assert model.onnx(tmp_path / "made") == next((tmp_path / "made").glob("net-*.onnx"))


def test_a_file_that_engines_can_be_fed_is_used_itself(tmp_path):
    name = write(tmp_path / "a.onnx", ["N", 3])
    assert str(zoo.get(name).onnx(tmp_path / "made")) == name and not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", ["text", "sequence"])
def test_an_input_that_is_no_tensor_of_numbers_is_named(tmp_path, kind):
    value = helper.make_tensor_value_info("x", TensorProto.STRING, ["N", 1])
    if kind == "sequence":
        inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
        value = helper.make_value_info("x", helper.make_sequence_type_proto(inner))
    out = helper.make_value_info("y", value.type)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [out])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    with pytest.raises(ModelError, match=f"E-ONNX-10.*'x'.*{kind}"):
        zoo.get(str(path))


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.slow
def test_measuring_a_known_file_does_not_import_onnx(tmp_path, external):
    path = tmp_path / "net.onnx"
    name = with_external_weights(path, 1.0) if external else write(path, ["N", 3])
    zoo.get(name)
    name = zoo.pin(name)
    code = f"""
import sys
from edgescope.models import zoo
assert zoo.get({name!r}).inputs[0].shape == (3,)
assert not {{"onnx", "torch", "onnxruntime"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nodes_in_another_order_are_no_fault(tmp_path):
    """ONNX Runtime's fp16 converter appends casts at the end, and every engine sorts; a circle stays a fault."""
    import onnx
    from onnx import helper as h

    from edgescope.errors import ModelError
    from edgescope.models.user import onnx_reader

    def written(*nodes):
        value = [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in "xy"]
        graph = h.make_graph(list(nodes), "g", value[:1], value[1:])
        path = tmp_path / "m.onnx"
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), path)
        return path

    last, middle, first = (
        h.make_node("Relu", [a], [b], name=b) for a, b in (("b", "y"), ("a", "b"), ("x", "a"))
    )
    assert onnx_reader.describe(written(last, middle, first))["inputs"][0]["name"] == "x"
    with pytest.raises(ModelError, match="E-ONNX-6"):
        onnx_reader.describe(written(last, middle, h.make_node("Relu", ["b"], ["a"])))


def test_a_shape_that_the_file_has_itself_makes_no_other_trial(tmp_path):
    closed = Trial(model=write(tmp_path / "closed.onnx", ["N", 3, 8, 8]), backend="onnxruntime")
    same, typo = (replace(closed, shapes={"image": (1, 3, 8, n)}) for n in (8, 9))
    assert grid.pinned(same, zoo.pin).id == grid.pinned(closed, zoo.pin).id
    assert grid.pinned(typo, zoo.pin).shapes == typo.shapes  # whoever opens it refuses it
    some = Trial(model=write(tmp_path / "open.onnx", ["N", 3, "h", "w"]), shapes={"image": (1, 3, 8, 8)})
    assert grid.pinned(some, zoo.pin).shapes == some.shapes
