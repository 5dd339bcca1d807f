"""How a stream is cut into snippets: every frame in its place, in bounded memory, as the simple way cuts it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.frames import Frame, Item
from edgescope.models.base import Fit, TensorSpec
from edgescope.models.image.preprocess import Placed, Preprocess
from edgescope.wings.video.flow import EndOfFilm
from edgescope.wings.video.snippets import (
    Cutting,
    DecodeSnippets,
    Online,
    PlainSnippets,
    Since,
    Snippet,
    SnippetClasses,
    Snippets,
    Window,
    corners,
    picked,
)

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize("order", ["rgb", "bgr"])
@pytest.mark.parametrize("views", [1, 10])
def test_both_ways_normalise_each_colour_as_the_network_asks(order, views):
    """One pixel by hand: (x / 5 - mean) / std of its colour."""
    how = Preprocess((8, 10), mean=(1.0, 2.0, 4.0), std=(2.0, 0.5, 4.0), divide=5.0, order=order)
    cutting = Cutting(2, views=views)
    for stage in (Snippets(how, cutting, views), PlainSnippets(how, cutting, views)):
        frames = [Frame(np.full((12, 16, 3), (10, 20, 30), np.uint8), k, time_s=0.0) for k in range(2)]
        item = Item(0, frames)
        stage(item)
        colours = (10, 20, 30) if order == "rgb" else (30, 20, 10)
        wanted = [(x / 5 - m) / s for x, m, s in zip(colours, how.mean, how.std, strict=True)]
        assert item.inputs[0].shape == (views, 3, 2, 8, 10)
        assert np.allclose(item.inputs[0], np.array(wanted)[None, :, None, None, None], atol=1e-5)
        assert item.fits == [Fit()] * 2


@pytest.mark.parametrize(("gap", "shown_numbers"), [(4, [1, 2, 3, 7]), (5, [8, 8, 8, 8])])
def test_a_gap_of_a_whole_snippet_is_none_yet(gap, shown_numbers):
    window = Window(4, 2, 2)
    for number in (0, 1, 2, 3, 3 + gap):
        window.add(Frame(None, number), number / 25, np.full((2, 2, 3), number, np.uint8))
    assert window.pixels[window.rows(4, 1), 0, 0, 0].tolist() == shown_numbers
    first = shown_numbers[0]
    assert window.snippet(3) == Snippet(3, first, 3 + gap, first / 25, (3 + gap) / 25, -1)


def test_cuttings_count_their_frames():
    cutting = Cutting(4, step=2, stride=3, views=10)
    assert (cutting.span, cutting.every, cutting.new(30), cutting.new(10)) == (8, 3, 9, 3)
    assert (Cutting(4).step, Cutting(4).stride, Cutting(4).views) == (1, 0, 1)
    assert (Cutting(4, step=2).every, Cutting(4, step=2).new(3)) == (8, 24)
    decode = DecodeSnippets([Film(40), Film(40)], 2, Cutting(4, stride=1))
    assert [decode.count(camera) for camera in (0, 1, 0, 1)] == [5, 5, 2, 2]
    assert DecodeSnippets([Film(9)], 1, Cutting(2, stride=5)).count(0) == 5


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (Placed(16, 12, 3, 2), [(2, 3, False)]),
        (Placed(16, 12, -3, -2), [(0, 0, False)]),
        (Placed(10, 8, 0, 0), [(0, 0, False)]),
    ],
)
def test_one_view_is_the_middle(at, found):
    assert corners(at, 8, 10, 1) == found
    ten = corners(at, 8, 10, 10)
    low, right = max(0, at.height - 8), max(0, at.width - 10)
    five = [(0, 0), (0, right), (low, 0), (low, right), found[0][:2]]
    assert ten == [(*place, False) for place in five] + [(*place, True) for place in five]


def test_the_time_of_a_camera_is_that_of_the_machine_from_its_own_first_frame():
    since = Since()
    times = [
        since(Frame(None, 0, created_ns=at, camera=c))
        for at, c in ((5_000, 0), (2_005_000, 0), (9_000, 1), (0, 2))
    ]
    assert times == pytest.approx([0.0, 0.002, 0.0, 0.0]) and since(Frame(None, 0, time_s=7.0)) == 7.0


@pytest.mark.parametrize("way", ["host", "elements"])
def test_each_frame_has_the_class_of_the_snippet_that_ends_with_or_after_it(way):
    frames = [Frame(np.zeros((4, 6, 3), np.uint8), k) for k in range(6)]
    snippets = [Snippet(0, 0, 2, 0.0, 0.1, -1), Snippet(0, 3, 5, 0.1, 0.2, -1)]
    scores = np.array([[0.1, 0.9, 0.0], [0.7, 0.2, 0.1], [0, 0, 1]], dtype=np.float32)
    item = Item(0, frames, outputs=[[scores, scores[:, ::-1]], [None]], notes={"snippets": snippets})
    SnippetClasses(way)(item)
    assert item.classes == [(1,), (0,)]
    assert [int(found.classes[0]) for found in item.found] == [1, 1, 1, 0, 0, 0]


def online(shape, answer, cutting=Cutting(4)):  # noqa: B008 - it is frozen
    return Online(TensorSpec("input", shape, "float32"), answer, cutting)


@pytest.mark.parametrize(("last", "anew"), [(3 + 8, False), (3 + 9, True)])
def test_a_window_begins_anew_once_more_than_a_snippet_is_missing(last, anew):
    given = []
    stage = online((2, 1), lambda batch: given.append(batch["input"].copy()) or [batch["input"][..., 0]])
    for end, value in ((3, 1.0), (last, 2.0)):
        place = Snippet(0, end - 3, end, 0.0, 1.0, -1)
        stage(Item(0, outputs=[[np.array([[value]], np.float32)]], notes={"snippets": [place]}))
    assert given[-1][0, :, 0].tolist() == ([2, 2] if anew else [1, 2])


def test_cameras_and_snippets_of_a_unit_have_their_own_windows_and_a_head_may_take_views_as_an_axis():
    given = []

    def head(batch):
        given.append(batch["input"].copy())
        return [np.array([[0.25, 0.5]]), "another output"]

    stage = online((1, 2, 3), head)
    places = [Snippet(c, 0, 3, 0.0, 1.0, -1) for c in (0, 1)] + [Snippet(0, 4, 7, 1.0, 2.0, -1)]
    features = np.arange(12, dtype=np.float64).reshape(4, 3)  # the last row only fills the batch
    item = Item(0, outputs=[[features, "another"], ["another network"]], notes={"snippets": places})
    stage(item)
    assert item.notes["scores"] == [0.5, 0.5, 0.5] and given[0].shape == (1, 1, 2, 3)
    assert [window[0, 0, :, 0].tolist() for window in given] == [[0, 0], [3, 3], [0, 6]]
    assert given[0].dtype == np.float32
