"""Every kind of model that a user brings runs on each engine that can take it, and its outputs are those of fp32."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file
from tiny_tflite import write as write_tflite

import edgescope
import own_networks
from edgescope import registry
from edgescope.bench.parts import open_work
from edgescope.data import opening
from edgescope.errors import EdgescopeError, Message, UnavailableError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.records import Machine, Verification
from edgescope.workloads import inference

pytestmark = pytest.mark.network

ENGINES = ("torch_eager", "onnxruntime", "openvino", "litert")


def write_onnx(path, batch):
    """A convolution and a matrix product; `batch` is a size or a name."""
    rng = np.random.default_rng(0)
    weights = {
        "conv": rng.standard_normal((8, 3, 3, 3)),
        "dense": rng.standard_normal((8, 10)),
        "axes": np.array([2, 3]),
    }
    nodes = [
        helper.make_node("Conv", ["image", "conv"], ["seen"], strides=[2, 2]),
        helper.make_node("ReduceMean", ["seen", "axes"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "dense"], ["logits"]),
    ]
    stored = [
        numpy_helper.from_array(a.astype(np.int64 if name == "axes" else np.float32), name)
        for name, a in weights.items()
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *rest])]
        for name, rest in (("image", (3, "height", "width")), ("logits", (10,)))
    ]
    graph = helper.make_graph(nodes, "g", *ends, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return str(path)


def exported(path, network, examples, *, open_batch):
    network = network.eval()
    given = tuple(torch.cat([x, x]) for x in examples) if open_batch else examples
    axis = torch.export.Dim("N", min=1, max=64)
    shapes = tuple({0: axis} for _ in given) if open_batch else None
    torch.export.save(torch.export.export(network, given, dynamic_shapes=shapes), str(path))
    return str(path)


def scripted(path):
    torch.jit.save(torch.jit.script(own_networks.Cnn().eval()), str(path))
    return str(path)


def with_weights(path):
    save_file(own_networks.Cnn().state_dict(), str(path))
    return f"own_networks:cnn@{path}"


IMAGE, PAIR = (own_networks.IMAGE,), (torch.ones(1, 8), torch.ones(1, 4))
SIZES = {"image": (1, 3, 32, 32)}
#: kind -> (a function of a folder that returns the model's name, shapes)
KINDS = {
    "onnx, fixed batch": (lambda to: write_onnx(to / "fixed.onnx", 1), SIZES),
    "onnx, open batch and sizes": (lambda to: write_onnx(to / "open.onnx", "N"), SIZES),
    "tflite": (lambda to: str(write_tflite(to / "net.tflite")), {}),
    "pt2, fixed batch": (lambda to: exported(to / "a.pt2", own_networks.Cnn(), IMAGE, open_batch=False), {}),
    "pt2, open batch": (
        lambda to: exported(to / "b.pt2", own_networks.TwoInputs(), PAIR, open_batch=True),
        {},
    ),
    "TorchScript": (lambda to: scripted(to / "script.pt"), SIZES),
    "callable with weights": (lambda to: with_weights(to / "weights.safetensors"), {}),
    "two inputs": (lambda to: "own_networks:two_inputs", {}),
    "tokens, dictionaries": (lambda to: "own_networks:text", {}),
    "segmenter": (lambda to: "own_networks:segmenter", {}),
    "function": (lambda to: "own_networks:softened", {}),
    "live network": (lambda to: edgescope.live(own_networks.TwoInputs(), PAIR), {}),
    "live dictionary": (lambda to: edgescope.live(own_networks.Text(), {"batch": own_networks.TOKENS}), {}),
    "torchvision": (lambda to: "torchvision:squeezenet1_1", {}),
}


def takers(model):
    kind = model.partition("#")[0].rpartition(".")[2]
    kind = kind if kind in ("onnx", "tflite") else "network"
    return [
        name
        for name in ENGINES
        if kind in registry.about(name).READS and not (kind == "network" and name == "litert")
    ]


def judged(model, backend, shapes=None, **more):
    """Return the gate's verdict on a trial's outputs, and what its engine did: a bench without the measuring."""
    trial = edgescope.Trial(model=zoo.pin(model), shapes=shapes or {}, backend=backend, **more)
    with open_work(trial) as work:
        return work.verify(Machine({"cpu": "here"}, {})), work.effective()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.wings
def test_it_runs_on_each_engine_and_is_verified(kind, tmp_path):
    make, shapes = KINDS[kind]
    model, done = make(tmp_path), []
    for engine in takers(model):
        try:
            registry.load(registry.BACKENDS, engine, "backend")
        except UnavailableError:
            continue
        verdict, effective = judged(model, engine, shapes)
        assert verdict is not None and verdict.passed, (engine, verdict)
        assert effective.precision == "fp32"
        done.append(engine)
    assert done


@pytest.mark.slow
def test_a_live_network_reaches_a_process_that_has_never_seen_its_class():
    class Defined(torch.nn.Module):
        """Only here."""

        def __init__(self):
            super().__init__()
            self.inner = own_networks.TwoInputs()

        def forward(self, left, right):
            return self.inner(left, right) + 1

    examples = (torch.ones(1, 8), torch.ones(1, 4))
    name = edgescope.live(Defined(), examples)
    assert edgescope.live(Defined(), examples) == name
    result = edgescope.run(
        edgescope.Trial(model=name, backend="onnxruntime", warmup=0.0, min_s=0.05, max_s=0.05)
    )
    assert result.verification is not None and result.verification.passed, result.reason
    assert result.model.name == "live:Defined"
    other = Defined()
    other.inner.left.bias.data += 1
    assert edgescope.live(other, examples) != name


@pytest.mark.slow
def test_what_cannot_be_pickled_is_exported(tmp_path):
    network = own_networks.Cnn()
    network.lock = open(tmp_path / "held", "w")  # noqa: SIM115  no pickle can hold it
    name = edgescope.live(network, own_networks.IMAGE)
    model = zoo.get(name)
    assert model.closed_batch is None
    batch = model.samples(Purpose.BENCH, 3).arrays["image"]
    with torch.inference_mode():
        wanted = own_networks.Cnn()(torch.from_numpy(batch))
        assert torch.allclose(model.module()(torch.from_numpy(batch)), wanted, atol=1e-5)


def test_a_live_network_that_was_changed_in_the_cache_is_not_read(tmp_path):
    from edgescope.models.user import networks

    name = edgescope.live(own_networks.Segmenter(), own_networks.IMAGE, name="changed")
    path = networks.facts(name).with_suffix(".pt2")
    torch.save({"network": own_networks.Cnn(), "examples": own_networks.IMAGE}, path)
    with pytest.raises(EdgescopeError, match=r"E-LIVE-3.*changed"):
        zoo.get(name).module()


@pytest.mark.parametrize(
    ("network", "examples", "said"),
    [
        (own_networks.Cnn(), "a picture", "not tensors with a batch axis"),
        (own_networks.TwoInputs(), (torch.ones(1, 8), torch.ones(2, 4)), "differs: left 1, right 2"),
        (own_networks.Cnn(), torch.tensor(1.0), "not tensors with a batch axis: image"),
    ],
)
def test_example_inputs_that_cannot_be_are_explained(network, examples, said):
    with pytest.raises(EdgescopeError, match=rf"E-LIVE-1.*{said}"):
        edgescope.live(network, examples)


def test_a_file_of_pytorch_is_known_by_its_content(tmp_path):
    network = own_networks.Cnn()
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    torch.save(network, tmp_path / "pickled.pt")
    (tmp_path / "text.pt2").write_text("no file of PyTorch's")
    for file, said in (
        ("weights.pt", r"E-TORCH-1.*6 tensors.*module:callable@weights\.pt"),
        ("pickled.pt", r"E-TORCH-2.*was not executed.*torch\.export\.save"),
        ("text.pt2", "E-TORCH-4"),
    ):
        with pytest.raises(EdgescopeError, match=said):
            zoo.get(str(tmp_path / file))


def test_a_torchscript_file_asks_for_shapes_and_finds_the_types(tmp_path):
    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(9, 4)

        def forward(self, ids, scale):
            return self.embed(ids).mean(1) * scale

    path = str(tmp_path / "tokens.pt")
    torch.jit.save(torch.jit.trace(Tokens(), (torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 4))), path)
    with pytest.raises(UsageError, match=r"E-SHAPE-5.*ids, scale.*--shapes ids=N.*--shapes scale=N"):
        zoo.get(path)
    model = zoo.get(path, {"ids": (1, 5), "scale": (1, 4)})
    assert [(s.name, s.dtype) for s in model.inputs] == [("ids", "int64"), ("scale", "float32")]


@pytest.mark.slow
def test_a_fixed_batch_is_said(tmp_path):
    name = KINDS["pt2, fixed batch"][0](tmp_path)
    with pytest.raises(UsageError, match=r"E-BATCH-3: .*batch 1 .*batch 4 .*dynamic_shapes"):
        zoo.get(name, batch=4)


def test_a_shape_with_another_batch_is_refused(tmp_path):
    name = KINDS["onnx, open batch and sizes"][0](tmp_path)
    assert zoo.get(name, {"image": (1, 3, 96, 96)}, batch=4).inputs[0].shape == (3, 96, 96)
    with pytest.raises(
        UsageError, match=r"E-SHAPE-4.*says batch 2, --batch says 4.*image=Nx3x96x96 --batch 2"
    ):
        zoo.get(name, {"image": (2, 3, 96, 96)}, batch=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("torch_eager", r"E-GATE-6.*not deterministic.*by [\d.]+ of what"),
        ("onnxruntime", r"E-EXPORT-3: .*itself differs by [\d.]+ from"),
    ],
)
def test_a_network_that_is_not_deterministic_is_said_with_how_much(engine, said):
    """Its own engine times it and says so; no other engine can be given it."""
    try:
        found, _ = judged("own_networks:restless", engine)
    except EdgescopeError as error:
        found = error.message
    assert isinstance(found, Message) and re.search(said, str(found))


@pytest.mark.wings
@pytest.mark.parametrize(
    ("make", "shapes", "needed"),
    [
        (lambda to: "own_networks:cnn", {}, {"torch_eager", "onnxruntime"}),
        (lambda to: "own_networks:restless", {}, {"torch_eager"}),  # nothing can be compared
        (*KINDS["onnx, open batch and sizes"], {"onnxruntime"}),
        (*KINDS["tflite"], set()),
    ],
    ids=["network", "network of chance", "onnx", "tflite"],
)
def test_nothing_but_nan_is_wrong_on_every_engine(make, shapes, needed, tmp_path, monkeypatch):
    model, real, done = make(tmp_path), inference._answer, set()

    def broken(session, trial):
        return lambda batch: [array * np.float32("nan") for array in real(session, trial)(batch)]

    monkeypatch.setattr(inference, "_answer", broken)
    for engine in takers(model):
        try:
            verdict, _ = judged(model, engine, shapes)
        except EdgescopeError:  # it is not here, or cannot be given what answers by chance
            continue
        assert isinstance(verdict, Verification) and not verdict.passed and "NaN" in verdict.detail, engine
        done.add(engine)
    assert done >= needed


def saturates():
    """Whether ONNX Runtime's int8 products overflow 16 bits here: they do on x86 without VNNI."""
    given = [helper.make_tensor_value_info("x", TensorProto.UINT8, [8, 64])]
    found = [helper.make_tensor_value_info("y", TensorProto.INT32, [8, 64])]
    weights = numpy_helper.from_array(np.full((64, 64), 127, np.int8), "w")
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", given, found, [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": np.full((8, 64), 255, np.uint8)})
    return bool((got != 255 * 127 * 64).any())


@pytest.mark.slow
def test_a_transformer_is_int8_in_three_ways(tmp_path):
    """Its inputs are tokens of its own data: on noise int8 is refused."""
    rng = np.random.default_rng(0)
    tokens = {"ids": rng.integers(0, 50, (96, 12)), "mask": np.ones((96, 12), dtype=np.int64)}
    np.savez(tmp_path / "tokens.npz", **tokens)
    about = {"precision": "int8", "data": opening.pin(str(tmp_path / "tokens.npz"))}
    for options in ({}, {"fallback": True}, {"dynamic": True}):
        verdict, effective = judged("own_networks:text", "onnxruntime", options=options, **about)
        assert isinstance(verdict, Verification) and verdict.passed is not saturates(), options
        assert effective.precision == "int8"
    assert "4 fp32 products of two activations" in effective.evidence


@pytest.mark.slow
def test_dynamic_int8_of_a_network_of_convolutions_is_refused():
    with pytest.raises(EdgescopeError, match=r"E-INT8-15.*0 of 2 operators"):
        judged("own_networks:segmenter", "onnxruntime", precision="int8", options={"dynamic": True})
