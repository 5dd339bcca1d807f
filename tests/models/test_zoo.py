import subprocess
import sys

import pytest

from edgescope.errors import ModelError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose

EIGHT = [
    "alexnet",
    "vgg19",
    "resnet50",
    "squeezenet1_1",
    "densenet121",
    "shufflenet_v2_x1_0",
    "mobilenet_v2",
    "resnext50_32x4d",
]
TWO = [f"{name}_2class" for name in EIGHT]
DENSE = ["fcn_resnet50", "yolov8n_class"]
CLIPS = ["har_cnn3d", "har_autoencoder", "har_densenet"]
FEATURES = {
    "i3d_r50_nl": 2048,
    "i3d_r50": 2048,
    "i3d_r50_nl_8x8": 2048,
    "i3d_r50_8x8": 2048,
    "s3d": 1024,
    "motion": 512,
    "frames_lite0": 640,
}
ANOMALY = [*FEATURES, "rtfm", "mil_ranking", "light_head"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in zoo.names() if name != "centerface"])
def test_params_and_macs_are_those_of_the_network(name):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from edgescope.models.image import torch_networks as _networks
    from edgescope.wings.anomaly import torch_networks as anomaly_networks
    from edgescope.wings.training import torch_clips

    entry = zoo.table()[name]
    own = {**dict.fromkeys(CLIPS, torch_clips), **dict.fromkeys(ANOMALY, anomaly_networks)}
    build = own.get(name, _networks).build
    with torch.device("meta"):
        module = build(entry)
        sample = torch.empty(1, *entry["input"])
    with FlopCounterMode(display=False) as counter:
        output = module(sample)
    shapes = {"fcn_resnet50": (1, 21, 224, 224), "yolov8n_class": (1, 84, 8400)}
    shapes |= {name: (1, width) for name, width in FEATURES.items()}
    shapes |= dict.fromkeys(("rtfm", "mil_ranking", "light_head"), (1, 32))
    if name == "ssd300":
        assert output[0].shape == (1, 4, 8732)
        output, shapes[name] = output[1], (1, 81, 8732)
    assert output.shape == shapes.get(name, (1, entry.get("classes", 1000)))
    assert entry["params"] == sum(p.numel() for p in module.parameters())
    assert entry["macs"] * 2 == counter.get_total_flops()


def test_the_zoo_holds_what_it_should():
    assert zoo.names() == (
        "efficientnet_lite0",
        *EIGHT,
        *DENSE,
        "ssd300",
        "centerface",
        *TWO,
        *CLIPS,
        *ANOMALY,
        "lenet5",
        "resnet18_cifar",
        "mobilenet_v3_large_203class",
    )


@pytest.mark.parametrize("name", CLIPS)
def test_networks_for_clips_have_the_studys_size(name):
    entry = zoo.table()[name]
    assert entry["params"] == pytest.approx(entry["study_params"], rel=0.02)
    assert 2 * entry["macs"] == pytest.approx(entry["study_flops"], rel=0.05)


def test_two_classes_are_the_same_network_with_another_head():
    whole, two = (zoo.get(name).module().state_dict() for name in ("mobilenet_v2", "mobilenet_v2_2class"))
    assert whole.keys() == two.keys()
    other = {key for key in whole if whole[key].shape != two[key].shape}
    assert other == {"classifier.1.weight", "classifier.1.bias"}


@pytest.mark.parametrize("name", [*EIGHT, *DENSE, "ssd300", *TWO, *CLIPS, "i3d_r50", "rtfm"])
def test_networks_without_weights_say_so(name):
    info = zoo.get(name).info
    assert not info.trained
    assert "untrained" in info.source
    assert "synthetic" in zoo.get(name).samples(Purpose.BENCH, 1).origin
    assert zoo.get(name).samples(Purpose.LABELLED, 1) is None


def test_the_trained_network_says_so(trained):
    assert trained.info.trained
    assert "ImageNet" in trained.info.source


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet1_1", "squeezenet1_1_2class", "har_densenet", *DENSE, "ssd300"])
def test_random_weights_are_the_same_every_time(name):
    import torch

    torch.manual_seed(5)
    first = zoo.get(name).module().state_dict()
    torch.manual_seed(6)
    second = zoo.get(name).module().state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_no_two_networks_share_a_digest():
    assert len({zoo.get(name).info.digest for name in zoo.names()}) == len(zoo.names())


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UsageError, match="mobilenet_v2"):
        zoo.get("mobilenetv2")


def test_a_shape_that_does_not_fit_is_refused():
    assert zoo.get("resnet50", {"input": (4, 3, 224, 224)}).inputs[0].shape == (3, 224, 224)
    for shapes in ({"input": (1, 3, 300, 300)}, {"x": (1, 3, 224, 224)}):
        with pytest.raises(UsageError, match="input=Nx3x224x224"):
            zoo.get("resnet50", shapes)


def test_a_pin_names_the_content(tmp_path):
    file = tmp_path / "w.pth"
    file.write_bytes(b"one")
    name = f"resnet50@{file}"
    pinned = zoo.pin(name)
    assert pinned.startswith(name + "#")
    assert zoo.pin(pinned) == pinned
    file.write_bytes(b"other")
    assert zoo.pin(name) != pinned
    with pytest.raises(ModelError, match="planned"):
        zoo.get(pinned)


def test_names_without_a_file_are_not_pinned():
    assert zoo.pin("resnet50") == "resnet50"
    assert zoo.pin("null") == "null"


def test_null_has_inputs_and_nothing_else(tmp_path):
    null = zoo.get("null")
    assert len(null.samples(Purpose.BENCH, 3)) == 3
    assert null.info.macs == 0
    with pytest.raises(Exception, match="no network"):
        null.module()


@pytest.mark.slow
def test_listing_and_looking_up_imports_nothing_heavy():
    code = """
import sys
from edgescope.models import zoo
for name in zoo.names():
    assert zoo.get(name).info.params
heavy = {"torch", "torchvision", "timm", "onnx", "onnxruntime", "PIL", "av"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
