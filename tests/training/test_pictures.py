"""What becomes of a picture on its way into a minibatch: every number of it, with the draws known."""

import io
import math

import numpy as np
import pytest
import torch

from edgescope.errors import UsageError
from edgescope.training import data_sets, page_cache
from edgescope.training.data_sets import CUTOUT, Held, Packed, Photographs, Pictures
from photo_folders import photographs


def drawn(monkeypatch, *values):
    monkeypatch.setattr(torch, "rand", lambda count: torch.tensor(values[:count]))


def test_pixels_are_normalised_by_channel_and_channels_come_first():
    pixels = np.array([[[0, 255, 51]]], np.uint8)
    made = Pictures(3, 1, 1, mean=(0.0, 0.5, 0.1), std=(1.0, 0.5, 0.2)).normalised(pixels)
    assert made.shape == (3, 1, 1) and made.flatten().tolist() == pytest.approx([0.0, 1.0, 0.5])
    assert Pictures(1, 1, 2).normalised(np.array([[0, 255]], np.uint8)).tolist() == [[[-1.0, 1.0]]]


def test_held_samples_are_taken_in_turn_with_their_labels():
    items = Held(np.arange(3, dtype=np.float32), np.array([7, 8, 9]), 5)
    assert [(float(x), int(y)) for x, y in (items[k] for k in range(len(items)))] == [
        (0, 7),
        (1, 8),
        (2, 9),
        (0, 7),
        (1, 8),
    ]


@pytest.mark.parametrize(("asked", "held"), [(0, 5), (3, 3), (9, 5)])
def test_a_packed_set_has_what_it_holds_at_most(tmp_path, asked, held):
    np.save(tmp_path / "images.npy", np.full((5, 2, 4, 1), 255, np.uint8))
    np.save(tmp_path / "labels.npy", np.array([0, 3, 1, 0, 0]))
    items = Packed(tmp_path, Pictures(1, 2, 4), asked)
    assert len(items) == held and items.classes == 4 and items[1][1] == 3
    assert items[0][0].shape == (1, 2, 4) and (items[0][0] == 1.0).all()
    assert [label for _, label in items.__getitems__([1, 2])] == [3, 1]
    with pytest.raises(UsageError):
        Packed(tmp_path, Pictures(1, 4, 2), asked)


@pytest.mark.parametrize(
    ("draws", "wanted"),
    [
        ((0.0, 0.0, 0.0, 0.0), (0, 0, 34, 45)),  # 0.08 of the area, 3 : 4
        ((0.0, 1.0, 0.0, 0.0), (0, 0, 45, 34)),
        ((0.5, 0.5, 0.5, 0.5), (29, 9, 102, 102)),
        ((0.0, 0.5, 0.999, 0.999), (121, 81, 39, 39)),  # the last place there is
    ],
)
def test_a_crop_is_of_the_size_the_shape_and_the_place_that_were_drawn(monkeypatch, draws, wanted):
    drawn(monkeypatch, *draws)
    assert data_sets._crop(160, 120) == wanted


def test_a_crop_lies_in_the_picture_and_a_narrow_one_gives_its_middle():
    torch.manual_seed(0)
    for _ in range(300):
        x, y, w, h = data_sets._crop(160, 120)
        assert 0 <= x <= 160 - w and 0 <= y <= 120 - h
        assert 0.07 < w * h / (160 * 120) <= 1 and 0.7 < w / h < 1.4
    assert data_sets._crop(1000, 10) == (495, 0, 10, 10)
    assert data_sets._crop(10, 1000) == (0, 495, 10, 10)


@pytest.fixture(scope="module")
def items():
    return Photographs(photographs(), Pictures(3, 40, 32))


@pytest.mark.parametrize(
    ("across", "down", "rows", "columns"),
    [(0.5, 0.5, (12, 28), (8, 24)), (0.0, 0.0, (0, 8), (0, 8)), (0.999, 0.999, (31, 40), (23, 32))],
)
def test_one_square_is_blanked_around_the_drawn_place(items, monkeypatch, across, down, rows, columns):
    drawn(monkeypatch, 0.9, across, down)
    blank = np.asarray(items._augmented(np.full((40, 32, 3), 255, np.uint8))) == 0
    assert CUTOUT == 16 and blank[:, slice(*rows), slice(*columns)].all()
    assert blank.sum() == 3 * (rows[1] - rows[0]) * (columns[1] - columns[0])


@pytest.mark.parametrize(("draw", "first"), [(0.49, 1.0), (0.5, -1.0)])
def test_half_of_the_pictures_are_mirrored(items, monkeypatch, draw, first):
    drawn(monkeypatch, draw, 0.0, 0.99)
    pixels = np.zeros((40, 32, 3), np.uint8)
    pixels[:, 16:] = 255
    assert float(items._augmented(pixels)[0, 0, 0]) == first


@pytest.mark.parametrize("draft", [False, True])
def test_a_crop_that_is_the_whole_picture_is_the_picture_scaled(tmp_path, monkeypatch, draft):
    """A ramp from left to right: its ends stay its ends, whether or not the decoder scales it down first."""
    from PIL import Image

    ramp = np.repeat(np.linspace(0, 255, 256).astype(np.uint8)[None], 192, 0)
    data = io.BytesIO()
    Image.fromarray(np.stack([ramp] * 3, -1)).save(data, "JPEG", quality=95)
    monkeypatch.setattr(data_sets, "_crop", lambda width, height: (64, 0, 128, 192))
    items = Photographs(photographs(), Pictures(3, 16, 16), draft=draft)
    found = items._decoded(data.getvalue())
    assert found.shape == (16, 16, 3)
    wanted = 64 + (np.arange(16) + 0.5) * 8
    assert np.abs(found[..., 0] - wanted[None]).max() < 6


@pytest.mark.parametrize(("size", "held"), [(0, 24), (8, 8), (7, 7), (100, 24)])
def test_a_part_of_a_folder_is_taken_evenly(size, held):
    items = Photographs(photographs(), Pictures(3, 8, 8), size)
    assert len(items) == len(items.labels) == held
    assert items.classes == 4 and {path.parent for path in items.files} == {
        path.parent for path in Photographs(photographs(), Pictures(3, 8, 8)).files
    }


def test_the_page_cache_is_filled_with_every_byte(tmp_path, monkeypatch):
    left = {"a": 3 * 2**20 + 5, "b": 0}

    class File(io.BytesIO):
        def __init__(self, name):
            super().__init__(bytes(left[name]))
            self.name = name

        def read(self, size):
            found = super().read(size)
            left[self.name] -= len(found)
            return found

    monkeypatch.setattr(page_cache, "open", lambda path, mode, buffering: File(path), raising=False)
    page_cache.fill(["a", "b"])
    assert left == {"a": 0, "b": 0}


def test_the_numbers_of_a_crop_are_those_of_the_paper():
    assert data_sets.SCALE == (0.08, 1.0) and math.prod(data_sets.RATIO) == pytest.approx(1.0)
