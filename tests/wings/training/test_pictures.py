"""What becomes of a picture on its way into a minibatch: every number of it, with the draws known."""

import io
import math

import numpy as np
import pytest
import torch

from edgescope.errors import UsageError
from edgescope.wings.training import data_sets, medium
from edgescope.wings.training.data_sets import CUTOUT, Held, Packed, Photographs, Pictures
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

    monkeypatch.setattr(medium, "open", lambda path, mode, buffering: File(path), raising=False)
    medium.fill(["a", "b"])
    assert left == {"a": 0, "b": 0}


def test_the_numbers_of_a_crop_are_those_of_the_paper():
    assert data_sets.SCALE == (0.08, 1.0) and math.prod(data_sets.RATIO) == pytest.approx(1.0)


def jpeg(size, value, mode="RGB"):
    from PIL import Image

    data = io.BytesIO()
    Image.new(mode, size, value).save(data, "JPEG", quality=95)
    return data.getvalue()


@pytest.mark.parametrize(
    ("crop", "size"),
    [
        ((256, 192), (32, 24)),
        ((128, 192), (64, 48)),
        ((256, 96), (64, 48)),
        ((64, 48), (128, 96)),
        ((32, 20), (308, 231)),
    ],
)
def test_a_decoder_scales_as_far_as_the_crop_stays_as_large_as_the_input(monkeypatch, crop, size):
    """The side that shrinks less decides: 256 x 192 for an input of 32 x 24, so 8 for the whole and 4 for a half."""
    from PIL import JpegImagePlugin

    asked = []
    monkeypatch.setattr(
        JpegImagePlugin.JpegImageFile, "draft", lambda self, mode, size: asked.append((mode, size))
    )
    monkeypatch.setattr(data_sets, "_crop", lambda width, height: (0, 0, *crop))
    Photographs(photographs(), Pictures(3, 24, 32), draft=True)._decoded(jpeg((256, 192), (1, 2, 3)))
    assert asked == [("RGB", size)]


@pytest.mark.parametrize(
    ("channels", "mode", "shape"), [(1, "RGB", (8, 8)), (3, "L", (8, 8, 3)), (1, "L", (8, 8))]
)
def test_a_picture_has_as_many_colours_as_the_network_takes(channels, mode, shape):
    items = Photographs(photographs(), Pictures(channels, 8, 8))
    found = items._decoded(jpeg((64, 48), 90 if mode == "L" else (90, 90, 90), mode))
    assert found.shape == shape and np.abs(found.astype(int) - 90).max() <= 1


def test_bytes_are_kept_where_they_are_loaded_before_and_a_medium_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(data_sets.Throttle, "wait", lambda self, path: waited.append((self.medium, path)))
    items = Photographs(photographs(), Pictures(3, 8, 8), 4, preload=True)
    assert items.bytes == [path.read_bytes() for path in items.files] and not waited
    monkeypatch.setattr(type(items.files[0]), "read_bytes", lambda self: pytest.fail("it is in memory"))
    tensor, label = items[1]
    assert tensor.shape == (3, 8, 8) and label == items.labels[1]
    monkeypatch.undo()
    monkeypatch.setattr(data_sets.Throttle, "wait", lambda self, path: waited.append((self.medium, path)))
    slow = Photographs(photographs(), Pictures(3, 8, 8), 4, medium="sd")
    assert not slow.bytes and slow[2][1] == slow.labels[2]
    assert waited == [(data_sets.MEDIA["sd"], slow.files[2])]


@pytest.mark.parametrize(
    ("options", "draft", "medium", "kept"),
    [
        ({}, False, None, False),
        ({"decode": "draft"}, True, None, False),
        ({"medium": "hdd"}, False, "hdd", False),
        ({"medium": "hdd", "medium_by": "cgroup"}, False, None, False),
        ({"preload": 1}, False, None, True),
    ],
)
def test_options_decide_how_photographs_are_read(options, draft, medium, kept):
    usual = {"decode": "full", "medium": "as_is", "medium_by": "delay", "preload": 0}
    items = data_sets.opened(photographs(), Pictures(3, 8, 8), 4, {**usual, **options})
    assert (items.draft, len(items), bool(items.bytes)) == (draft, 4, kept)
    assert (items.throttle and items.throttle.medium) == (data_sets.MEDIA[medium] if medium else None)


def test_a_folder_without_photographs_is_refused(tmp_path):
    usual = {"decode": "full", "medium": "as_is", "medium_by": "delay", "preload": 0}
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="E-IMAGES-1"):
            data_sets.opened(folder, Pictures(3, 8, 8), 0, usual)
    assert data_sets._notes(tmp_path / "nowhere") == ()


def test_classes_alternate_and_what_is_left_out_is_told(tmp_path):
    for kind, count in (("a", 3), ("b", 1)):
        (tmp_path / kind).mkdir()
        for k in range(count):
            (tmp_path / kind / f"{k}.jpg").write_bytes(jpeg((8, 8), (0, 0, 0)))
    listed = data_sets._listed(tmp_path)
    assert [(path.parent.name, path.stem, n) for path, n in listed] == [
        ("a", "0", 0),
        ("b", "0", 1),
        ("a", "1", 0),
        ("a", "2", 0),
    ]
    before = Photographs(tmp_path, Pictures(3, 8, 8)).notes
    assert not any("left out" in note for note in before)
    for k in range(2):
        (tmp_path / "a" / f"{k}.png").touch()
    after = Photographs(tmp_path, Pictures(3, 8, 8)).notes
    assert [note for note in after if note not in before] == [
        "2 pictures that are no JPEG files are left out"
    ]


def test_what_a_scaling_decoder_saves_is_measured_on_the_same_crops(monkeypatch):
    """The clock goes on by four seconds for a picture, by one where the decoder scales."""
    spent, drawn_ = [0.0], []

    def decoded(items, data):
        spent[0] += 1.0 if items.draft else 4.0
        drawn_.append((items.draft, float(torch.rand(1))))

    monkeypatch.setattr(Photographs, "_decoded", decoded)
    monkeypatch.setattr(data_sets.time, "perf_counter", lambda: spent[0])
    share, size = data_sets.draft_share(photographs(), (3, 8, 8), files=5)
    files = Photographs(photographs(), Pictures(3, 8, 8)).files
    assert share == 0.25 and size == sum(path.stat().st_size for path in files)
    draws = [draw for _, draw in drawn_]
    assert len(draws) == 4 * 5 and draws[:5] == draws[5:10] == draws[10:15] == draws[15:]


def test_what_of_the_files_is_in_the_cache_is_none_without_files(monkeypatch):
    monkeypatch.setattr(medium, "residency", lambda files: float(len(files)))
    assert data_sets.in_cache(Photographs(photographs(), Pictures(3, 8, 8), 4)) == 4.0
    assert (
        data_sets.in_cache(Held(np.zeros(1), np.zeros(1, np.int64), 1)) is None
        and data_sets.in_cache([1]) is None
    )


def test_a_packed_set_of_another_shape_or_length_is_refused(tmp_path):
    for images, labels in (((5, 2, 4, 1), 4), ((5, 2, 4, 3), 5)):
        np.save(tmp_path / "images.npy", np.zeros(images, np.uint8))
        np.save(tmp_path / "labels.npy", np.zeros(labels, np.int64))
        with pytest.raises(UsageError, match="E-IMAGES-1"):
            data_sets.opened(tmp_path, Pictures(1, 2, 4), 0, {})
    np.save(tmp_path / "images.npy", np.zeros((0, 2, 4, 1), np.uint8))
    np.save(tmp_path / "labels.npy", np.zeros(0, np.int64))
    assert Packed(tmp_path, Pictures(1, 2, 4), 0).classes == 0


def test_a_picture_without_numbers_of_its_own_is_of_minus_one_to_one():
    assert (Pictures(1, 2, 2).mean, Pictures(1, 2, 2).std) == ((0.5,), (0.5,))


def test_photographs_are_decoded_in_full_and_from_the_disk_unless_it_is_said():
    items = Photographs(photographs(), Pictures(3, 8, 8))
    assert (items.draft, items.throttle, items.bytes) == (False, None, [])
