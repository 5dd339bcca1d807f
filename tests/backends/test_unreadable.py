"""A file an engine cannot load: the message names node, operator, domain and opset."""

import onnx
import pytest
from onnx import TensorProto, helper

from edgescope import registry
from edgescope.artifacts.for_precision import unreadable
from edgescope.backends.base import Artifact, Spec
from edgescope.errors import ModelError
from edgescope.models import zoo


def one_node(path, op, *, domain="", opset=18, name="culprit"):
    """x -> op -> y, and a node before it that is well."""
    axes = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "xy"}
    nodes = [helper.make_node("Relu", ["x"], ["inner"], name="innocent")]
    nodes.append(helper.make_node(op, ["inner"], ["y"], domain=domain, name=name))
    graph = helper.make_graph(nodes, "g", [axes["x"]], [axes["y"]])
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


@pytest.mark.parametrize("name", ["culprit", ""])
@pytest.mark.wings
def test_openvino_names_the_operator_it_lacks(tmp_path, name):
    """Inverse of com.microsoft is sound and known to ONNX Runtime, so the model loads; OpenVINO has it not."""
    path = one_node(tmp_path / "net.onnx", "Inverse", domain="com.microsoft", name=name)
    model = zoo.get(str(path))
    backend = registry.load(registry.BACKENDS, "openvino", "backend")()
    artifact = backend.prepare(model, Spec(), tmp_path)
    assert isinstance(artifact, Artifact)
    said = rf"E-OV-1.*node '{name or 'making y'}' \(Inverse of domain com\.microsoft, opset 1\).*Try: "
    with pytest.raises(ModelError, match=said) as caught:
        backend.load(artifact)
    assert "innocent" not in str(caught.value)


@pytest.mark.parametrize(
    ("op", "domain", "where"),
    [("Frob", "com.acme", "com.acme, opset 1"), ("Frob", "", "ai.onnx, opset 18")],
)
def test_what_onnx_runtime_says_is_looked_up_in_the_file(tmp_path, op, domain, where):
    import onnxruntime

    path = one_node(tmp_path / "net.onnx", op, domain=domain)
    with pytest.raises(Exception, match="Frob") as caught:
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    error = unreadable("E-ONNX-1", "ONNX Runtime", path, caught.value)
    assert f"node 'culprit' (Frob of domain {where})" in str(error)


def test_an_opset_too_late_for_onnx_runtime_is_named(tmp_path):
    import onnxruntime

    path = one_node(tmp_path / "net.onnx", "Exp", opset=99)
    with pytest.raises(Exception, match="opset") as caught:
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    error = unreadable("E-ONNX-1", "ONNX Runtime", path, caught.value)
    assert "written in opset ai.onnx 99" in str(error)


def test_a_node_inside_a_branch_is_found(tmp_path):
    """If's branches are graphs of their own."""
    from edgescope.models.user import onnx_reader

    def branch(op):
        out = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 3])
        return helper.make_graph([helper.make_node(op, ["x"], ["z"], name=f"in_{op}")], op, [], [out])

    axes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "xy"]
    test = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Frob"))
    model = helper.make_model(
        helper.make_graph([node], "g", axes[:1], axes[1:], [test]),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    onnx.save(model, str(tmp_path / "net.onnx"))
    assert onnx_reader.named_in(tmp_path / "net.onnx", "no kernel for Frob(18)") == (
        "node 'in_Frob' (Frob of domain ai.onnx, opset 18)"
    )
