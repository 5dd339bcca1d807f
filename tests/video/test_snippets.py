"""How a stream is cut into snippets: every frame in its place, in bounded memory, as the simple way cuts it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.models.base import TensorSpec
from edgescope.models.image.preprocess import Preprocess
from edgescope.video.flow import EndOfFilm
from edgescope.video.frame import Frame, Item
from edgescope.video.online import Online
from edgescope.video.snippets import Cutting, DecodeSnippets, PlainSnippets, Snippet, Snippets, picked

HOW = Preprocess((8, 10), mean=(0.0,) * 3, std=(1.0,) * 3, divide=1.0)
SIDES = (16, 12)


class Film:
    """Frames whose every pixel is their number."""

    live = False

    def __init__(self, count, gaps=(), created=False):
        numbers = [n for n in range(count) if n not in gaps]
        self.frames = [self._frame(n, created) for n in numbers]

    def _frame(self, n, created):
        image = np.full((SIDES[1], SIDES[0], 3), n % 256, dtype=np.uint8)
        return Frame(image, n, created_ns=n * 40_000_000 + 7 if created else -1, time_s=n / 25)

    def read(self):
        return self.frames.pop(0) if self.frames else None


def units(films, cutting, batch, stage):
    """Every unit of the films after the stage."""
    decode, found = DecodeSnippets(films, batch, cutting), []
    while True:
        item = Item(len(found))
        try:
            decode(item)
        except EndOfFilm:
            return found
        stage(item)
        found.append(item)


def shown(item, row):
    """The numbers of the frames that one row of a unit's input shows."""
    return item.inputs[0][row, 0, :, 0, 0].astype(int).tolist()


def test_snippets_slide_over_the_film_and_the_last_frames_end_one():
    cutting = Cutting(4, stride=2)
    found = units([Film(9)], cutting, 1, Snippets(HOW, cutting, 1))
    assert [shown(item, 0) for item in found] == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [5, 6, 7, 8]]
    assert [(s.first, s.last) for item in found for s in item.notes["snippets"]] == [
        (0, 3),
        (2, 5),
        (4, 7),
        (5, 8),
    ]
    assert [s.end_s for item in found for s in item.notes["snippets"]] == [3 / 25, 5 / 25, 7 / 25, 8 / 25]


def test_every_second_frame_and_several_snippets_a_unit():
    cutting = Cutting(3, step=2, stride=6)
    found = units([Film(24)], cutting, 2, Snippets(HOW, cutting, 2))
    assert [[shown(item, 0), shown(item, 1)] for item in found] == [
        [[0, 2, 4], [6, 8, 10]],
        [[12, 14, 16], [18, 20, 22]],
    ]


def test_a_film_shorter_than_a_snippet_is_spread_over_it():
    cutting = Cutting(4)
    (item,) = units([Film(2)], cutting, 1, Snippets(HOW, cutting, 1))
    assert shown(item, 0) == [0, 0, 1, 1]


def test_a_gap_longer_than_a_snippet_begins_anew():
    cutting = Cutting(4, stride=2)
    film = Film(30, gaps=range(6, 20))
    found = units([film], cutting, 1, Snippets(HOW, cutting, 1))
    assert [shown(item, 0) for item in found][:4] == [
        [0, 1, 2, 3],
        [2, 3, 4, 5],
        [20, 20, 21, 21],
        [20, 21, 22, 23],
    ]


@given(
    frames=st.integers(1, 5),
    step=st.integers(1, 3),
    stride=st.integers(0, 9),
    count=st.integers(1, 40),
    batch=st.integers(1, 3),
    cameras=st.integers(1, 2),
    views=st.sampled_from([1, 10]),
    gaps=st.sets(st.integers(1, 38)),
    created=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_window_in_a_circle_and_the_list_of_pictures_make_the_same(
    frames, step, stride, count, batch, cameras, views, gaps, created
):
    cutting = Cutting(frames, step, stride, views)
    rows = batch * views

    def made(stage):
        return units([Film(count, gaps, created) for _ in range(cameras)], cutting, rows, stage)

    fast, plain = made(Snippets(HOW, cutting, rows)), made(PlainSnippets(HOW, cutting, rows))
    assert len(fast) == len(plain)
    for a, b in zip(fast, plain, strict=True):
        np.testing.assert_allclose(a.inputs[0], b.inputs[0], atol=1e-4)
        assert a.notes["snippets"] == b.notes["snippets"]
        assert a.notes["snippets"][-1].last == a.frames[-1].index


def test_ten_views_are_corners_and_middle_and_their_mirror_images():
    cutting = Cutting(1, views=10)
    image = np.arange(12 * 16, dtype=np.uint8).reshape(12, 16)[..., None].repeat(3, axis=2)
    how = Preprocess((8, 10), crop=0.625, mean=(0.0,) * 3, std=(1.0,) * 3, divide=1.0)
    item = Item(0, [Frame(image, 0, time_s=0.0)])
    Snippets(how, cutting, 10)(item)
    corner = item.inputs[0][:, 0, 0, 0, 0]
    assert corner.tolist() == [0, 6, 64, 70, 35, 9, 15, 73, 79, 44]


def test_no_memory_is_taken_however_long_the_stream_is():
    cutting = Cutting(4)
    stage = Snippets(HOW, cutting, 1)
    decode = DecodeSnippets([Film(4000)], 1, cutting)
    stage(first := Item(0, [Frame(np.zeros((12, 16, 3), dtype=np.uint8), 0, time_s=0.0)]))
    window = stage.windows[0]
    before = window.pixels
    del first
    for number in range(1000):
        item = Item(number)
        decode(item)
        stage(item)
        del item
    assert stage.windows[0].pixels is before and len(window.frames) == 4 and len(stage.arrays.made) <= 2


@pytest.mark.parametrize(("held", "expected"), [(4, [0, 2]), (6, [2, 4]), (1, [0, 0]), (3, [0, 2])])
def test_which_frames_a_snippet_shows(held, expected):
    assert picked(held, 2, 2).tolist() == expected


# -- the head --------------------------------------------------------------------------------------------------


def scored(features, snippets=3, views=1, numbers=None):
    """The windows that a head is given for these features, and the scores that it gives."""
    given = []

    def head(batch):
        given.append(batch["input"].copy())
        return [batch["input"].sum(axis=-1)]

    stage = Online(TensorSpec("input", (snippets, 1), "float32"), head, Cutting(4, views=views))
    scores = []
    for number, feature in enumerate(features):
        at = numbers[number] if numbers else number
        place = Snippet(0, at * 4, at * 4 + 3, at * 1.0, at + 1.0, -1)
        item = Item(
            0, outputs=[[np.array(feature, dtype=np.float32).reshape(views, 1)]], notes={"snippets": [place]}
        )
        stage(item)
        scores += item.notes["scores"]
    return given, scores


def test_a_snippet_is_the_last_of_the_window_that_is_scored():
    given, scores = scored([1, 2, 3, 4])
    assert [window[0, :, 0].tolist() for window in given] == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert scores == [1, 2, 3, 4]


def test_views_are_a_batch_whose_scores_are_averaged():
    given, scores = scored([[1, 3], [5, 9]], views=2)
    assert given[1].shape == (2, 3, 1) and scores == [2.0, 7.0]


def test_features_that_are_no_numbers_are_not_scored_and_stay_out_of_the_window():
    given, scores = scored([1, float("nan"), 2])
    assert np.isnan(scores[1]) and given[-1][0, :, 0].tolist() == [1, 1, 2]


def test_the_window_begins_anew_after_a_gap():
    given, _ = scored([1, 2, 3], numbers=[0, 1, 9])
    assert given[-1][0, :, 0].tolist() == [3, 3, 3]
