"""Facts and pictures of a user's data, from records made by hand."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from edgescope import cache
from edgescope.data import dataset_model
from edgescope.data.base import Found, Record
from edgescope.data.preprocessing import Known
from edgescope.models.base import Samples
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import Trial
from edgescope.report import chapter

WAY = Preprocess(2, 1.0, (0.5,) * 3, (0.25,) * 3, "stretch", "nearest")
GREY = Preprocess(2, 1.0, (0.0,), (1.0,), "stretch", "nearest", divide=1.0)


def record(i, label=None, content=None):
    return Record(f"r{i}", lambda: f"{i if content is None else content:03d}", dict, label)


def given(n=3, **truth):
    return Samples({"x": np.zeros((n, 1, 2, 2), np.float32)}, tuple("abcdefghijkl"[:n]), "here", **truth)


def facts(records, notes=(), trial=None):
    trial = trial or Trial(model="net", data="photos#0123456789ab")
    return dict(dataset_model._facts(trial, Found(records, notes=notes, name="photos"), given()))


def test_the_facts_of_plain_data():
    assert facts([record(i) for i in range(8)]) == {
        "data": "photos (8 records)",
        "inputs": "8 different ones, 0 with labels; 2 set the ranges of int8",
        "judged on": "3; here",
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([record(8, content=0)], "1 copy"),
        ([record(8, content=0), record(9, content=1)], "2 copies"),
        ([record(8, 1, 20), record(9, 2, 20)], "1 input under two labels"),
        (
            [record(7, 1, 20), record(8, 2, 20), record(9, 1, 21), record(9, 2, 21), record(8, content=0)],
            "1 copy, 2 inputs under two labels",
        ),
    ],
)
def test_what_was_left_out_is_a_fact(more, said):
    found = facts([*(record(i, 1 if i > 4 else None) for i in range(8)), *more], ("one", "two"))
    assert found["left out"] == said and found["remarks"] == "one; two"
    assert found["inputs"].startswith("8 different ones, 3 with labels; 2 set")


def test_other_data_may_set_the_ranges():
    trial = Trial(model="net", data="photos", options={"calibration": "others#0123456789ab"})
    assert facts([record(i) for i in range(8)], trial=trial)["inputs"].endswith(
        "; others set the ranges of int8"
    )


@pytest.mark.parametrize(
    ("truth", "captions"),
    [
        ({}, ["", ""]),
        ({"labels": np.array([1, 0])}, ["1 dog", "0 cat"]),
        ({"labels": np.array([2, -1])}, ["2", "-1"]),
        ({"labels": np.zeros((2, 2, 2), int)}, ["", ""]),
        ({"boxes": (np.zeros((1, 5)), np.zeros((3, 5)))}, ["1 box", "3 boxes"]),
    ],
)
def test_a_picture_is_called_by_what_is_right_for_it(truth, captions):
    of = Found([], ("cat", "dog"))
    assert [dataset_model._caption(of, given(2, **truth), i) for i in range(2)] == captions


def test_the_first_eight_pictures_are_shown():
    found = dataset_model._pictures(Found([]), Known(GREY, "x"), given(12))
    assert len(found) == 8 and all(one["png"].startswith("data:image/png;base64,") for one in found)
    assert dataset_model._pictures(Found([]), None, given(2)) == []


@pytest.mark.parametrize("layout", [(2, 0, 1), (0, 1, 2)])
@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_the_normalisation_is_undone(layout, order):
    levels = np.array([[[0, 10, 255], [128, 64, 200]]], np.float32)
    way = Preprocess((1, 2), 1.0, (0.1, 0.2, 0.3), (0.5, 0.25, 1.0), "stretch", order=order)
    turned = levels[..., ::-1] if order == "bgr" else levels
    array = ((turned / 255 - way.mean) / way.std).transpose(layout)
    assert dataset_model.seen(array, way).tolist() == levels.tolist()


def test_values_beyond_white_and_black_are_cut_off():
    array = np.array([[[-3.0, 300.0, 254.6]]], np.float32)
    assert dataset_model.seen(array, GREY)[..., 0].tolist() == [[0, 255, 255]]


@pytest.mark.parametrize(
    ("high", "wide", "size"),
    [(160, 160, (160, 160)), (161, 10, (81, 5)), (10, 320, (5, 160)), (10, 321, (4, 107)), (1, 1, (1, 1))],
)
def test_large_inputs_are_made_smaller(high, wide, size):
    array = np.zeros((1, high, wide), np.float32)
    assert dataset_model.seen(array, GREY).shape == (*size, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_the_pixels(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, channels), dtype=np.uint8)
    text = dataset_model.png(pixels)
    image = Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2])))
    image.load()
    assert image.mode == ("RGB" if channels == 3 else "L")
    assert np.asarray(image).reshape(3, 5, channels).tolist() == pixels.tolist()


def test_facts_and_unread_files_lie_in_the_cache():
    trial = Trial(model="net", data="photos#ab0123456789")
    dataset_model.leave_unread(trial, ["a.png"])
    assert not dataset_model.shown(trial)
    dataset_model.leave(trial, Found([record(i) for i in range(8)], name="photos"), Known(GREY, "x"), given())
    about = cache.read_json(chapter.shown_data(trial))
    assert dataset_model.shown(trial) and [row[0] for row in about["facts"]] == [
        "data",
        "inputs",
        "judged on",
    ]
    assert len(about["pictures"]) == 3 and "unread" not in about
    dataset_model.leave_unread(trial, ["b.png"])
    dataset_model.leave_unread(trial, ["c.png", "a.png"])
    assert cache.read_json(chapter.shown_data(trial))["unread"] == ["a.png", "b.png", "c.png"]
    before = chapter.shown_data(trial).stat().st_ino
    dataset_model.leave_unread(trial, ["c.png"])
    assert chapter.shown_data(trial).stat().st_ino == before  # nothing new, nothing written
    assert cache.read_json(chapter.shown_data(trial))["facts"] == about["facts"]
