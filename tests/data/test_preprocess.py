"""Every way of saying how a picture is prepared says the same."""

import json

import numpy as np
import pytest
from PIL import Image

from edgescope.errors import UsageError
from edgescope.models.image.preprocess import NAMED, Preprocess, of_config, read, upright

SHAPE = (3, 224, 224)
TIMM = {"crop_pct": 0.95, "interpolation": "bilinear", "mean": [0.1, 0.2, 0.3], "std": [1, 1, 1]}
EXPECTED = Preprocess(224, 0.95, (0.1, 0.2, 0.3), (1.0, 1.0, 1.0), interpolation="bilinear")


@pytest.mark.parametrize(
    "data",
    [
        TIMM,
        {"pretrained_cfg": TIMM},
        {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1], "crop_pct": 0.95, "resample": 2},
        {"mean": [0.1, 0.2, 0.3], "std": 1.0, "crop": 0.95, "interpolation": "bilinear"},
    ],
)
def test_configs_of_three_packages(tmp_path, data):
    (tmp_path / "p.json").write_text(json.dumps(data))
    assert read(str(tmp_path / "p.json"), SHAPE) == EXPECTED


def test_flags():
    assert read("size=224,crop=0.95,mean=0.1,0.2,0.3,std=1,interpolation=bilinear", SHAPE) == EXPECTED
    assert read("imagenet", SHAPE).mean == NAMED["imagenet"]["mean"]
    assert read("half,resize=stretch,label_offset=1", (200, 100, 3)).sides == (200, 100)
    assert read("imagenet", (1, 8, 8)).mean == (pytest.approx(0.449, abs=1e-3),)


def test_transformers_of_a_vit_stretches_and_of_a_convnext_cuts():
    vit = {
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"height": 224, "width": 224},
    }
    assert of_config(vit, SHAPE).resize == "stretch"
    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    cut = {**half, "size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": True}
    assert of_config(cut, SHAPE).crop == 0.875 and of_config(cut, SHAPE).placed(512, 256).width == 512
    raw = of_config({"image_mean": [0.5] * 3, "do_normalize": False, "do_rescale": False}, SHAPE)
    assert raw.divide == 1 and raw.mean == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("imagnet", "neither a name nor a file.*--preprocess imagenet"),
        ("half,resise=crop", "--preprocess resize=crop"),
        ("size=300,mean=0.5", "the input is"),
        ("mean=a", "could not convert"),
        ("mean=0.5,0.5", "2 means for 3 channels"),
        ("std=0", "std holds 0"),
        ("half,resize=squeeze", "none of crop, stretch, letterbox"),
    ],
)
def test_what_cannot_be_meant_is_told(text, said):
    with pytest.raises(UsageError, match=said) as error:
        read(text, SHAPE)
    assert error.value.code == "E-PREPROCESS-1"


def test_an_input_that_is_no_picture():
    with pytest.raises(UsageError, match="is no picture"):
        read("half", (128,))


@pytest.mark.parametrize("resize", ["crop", "stretch", "letterbox"])
def test_boxes_lie_where_their_pixels_come_to_lie(resize):
    pixels = np.zeros((60, 120, 3), dtype=np.uint8)
    pixels[20:40, 50:80] = 255
    way = Preprocess((90, 90), 1.0, (0.0,) * 3, (1.0,) * 3, resize, "nearest")
    out = way(Image.fromarray(pixels))[0] > 0.9
    rows, columns = np.nonzero(out)
    box = way.boxes(np.array([[50, 20, 80, 40, 3]], dtype=np.float32), 120, 60)[0]
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert np.abs(box[:4] - found).max() <= 1 and box[4] == 3


@pytest.mark.parametrize("size", [(2000, 3), (3, 2000)])
def test_a_picture_of_extreme_form_keeps_a_line_in_its_letterbox(size):
    way = Preprocess((90, 90), 1.0, (0.0,) * 3, (1.0,) * 3, "letterbox", "nearest")
    out = way(Image.new("RGB", size, (255, 255, 255)))[0] > 0.9
    assert sorted((int(out.any(axis=0).sum()), int(out.any(axis=1).sum()))) == [1, 90]


def test_a_box_that_is_cut_off_is_left_out():
    way = Preprocess(10, 1.0, resize="crop")
    assert len(way.boxes(np.array([[0, 0, 2, 2, 0]], dtype=np.float32), 40, 10)) == 0


def test_bgr_and_bytes():
    image = Image.new("RGB", (4, 4), (200, 100, 50))
    assert read("bytes,order=bgr", (3, 4, 4))(image)[:, 0, 0].tolist() == [50, 100, 200]


def test_sixteen_bits_are_brought_to_eight():
    assert np.asarray(upright(Image.fromarray(np.full((2, 2), 65535, dtype=np.uint16)))).max() == 255
