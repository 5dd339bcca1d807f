"""A mistyped model, file, factory or input is refused with the name that was probably meant."""

import pytest
import torch

import own_networks
from edgescope.errors import EdgescopeError
from edgescope.models import zoo
from edgescope.models.user import files
from edgescope.records import Trial

pytestmark = pytest.mark.network


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("squezenet1_1", "edgescope bench squeezenet1_1"),
        ("squezenet1_1@w.pth", "edgescope bench squeezenet1_1"),
        ("netwrok.onnx", "network.onnx"),
        ("network", "network.onnx"),
        ("weigths.pt2", "weights.pt2"),
        ("own_networks:two_input", "own_networks:two_inputs"),
        ("own_netwrks:cnn", "own_netwrk5:cnn"),
        ("torchvision:squezenet1_1", "torchvision:squeezenet1_1"),
        ("timm:mobilenetv4_conv_smal", "timm:mobilenetv4_conv_small"),
    ],
)
def test_the_name_that_was_probably_meant(name, close, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("network.onnx", "weights.pt2", "own_netwrk5.py"):
        (tmp_path / file).write_text("")
    with pytest.raises(EdgescopeError) as caught:
        zoo.get(name)
    assert close in caught.value.fix


def test_the_input_that_was_probably_meant():
    with pytest.raises(EdgescopeError, match=r"Try: --shapes image=Nx3x32x32"):
        zoo.get("own_networks:cnn", {"imgae": (1, 3, 32, 32)})
    given = [{"name": n, "dims": ["N", "length"], "dtype": "int64"} for n in ("ids", "mask")]
    with pytest.raises(EdgescopeError, match=r"E-SHAPE-2.*Try: --shapes mask=Nx128$"):
        files.fixed("text", given, {"msk": (1, 16)})
    with pytest.raises(EdgescopeError, match=r"E-SHAPE-3.*Try: --shapes ids=Nx128 --shapes mask=Nx128$"):
        files.fixed("text", given, {})
    assert [spec.shape for spec in files.fixed("text", given, {"ids": (1, 16)})] == [(16,), (16,)]


def test_weights_of_another_size_of_class_choose_the_head(tmp_path):
    state = zoo.get("torchvision:squeezenet1_1").module().state_dict()
    last = [name for name in state if name.startswith("classifier")]
    for name in last:
        state[name] = state[name][:7]
    torch.save({"model_state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "seven.pth")
    model = zoo.get(f"torchvision:squeezenet1_1@{tmp_path / 'seven.pth'}")
    assert model.info.trained
    assert model.module()(torch.zeros(1, 3, 64, 64)).shape == (1, 7)


def test_the_pin_of_a_callable_follows_its_weights(tmp_path):
    path = tmp_path / "w.pth"
    torch.save(own_networks.Cnn().state_dict(), path)
    name = f"own_networks:cnn@{path}"
    pinned = zoo.pin(name)
    assert zoo.get(pinned).module() is not None
    torch.save({k: v + 1 for k, v in own_networks.Cnn().state_dict().items()}, path)
    assert zoo.pin(name) != pinned
    with pytest.raises(EdgescopeError, match="E-MODEL-2"):
        zoo.get(pinned)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("a.onnx#0123456789ab", "onnxruntime"),
        ("A.TFLITE", "litert"),
        ("nets:f@a.pth", "torch_eager"),
        ("a.pt2", "torch_eager"),
        ("m:f", "torch_eager"),
    ],
)
def test_a_model_has_an_engine_of_its_own(name, engine):
    trial = Trial(model=name)
    assert trial.backend == engine
    assert trial.id == Trial(model=name, backend=engine).id
    assert Trial(model=name, backend="openvino").backend == "openvino"


@pytest.mark.parametrize("name", ["squezenet1_1", "something_else"])
def test_what_helps_does_not_stand_behind_all_names(name):
    with pytest.raises(EdgescopeError) as caught:
        zoo.get(name)
    said = str(caught.value)
    assert caught.value.code == "E-MODEL-3" and len(said) < 250 and "edgescope models" in caught.value.fix
    assert sum(known in said for known in zoo.names()) <= 3
