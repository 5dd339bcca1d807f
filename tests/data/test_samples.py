"""From records made by hand to arrays: which are used, how many, what is left out, what the cache gives back."""

from functools import partial

import numpy as np
import pytest
from PIL import Image

from edgescope import cache
from edgescope.data import samples
from edgescope.data.base import Found, Record
from edgescope.data.samples import Unfit, Wanted
from edgescope.errors import UsageError
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image.preprocess import Preprocess

ROW = (TensorSpec("x", (2,), "float32"),)
ARRAYS = Wanted(ROW, None)
GREY = (TensorSpec("x", (1, 2, 2), "float32"),)
PLAIN = Preprocess(2, 1.0, (0.0,), (1.0,), "stretch", "nearest", divide=1.0)
PICTURES = Wanted(GREY, PLAIN)


def record(i, label=None, load=None, **truth):
    value = np.full(2, i, np.float32)
    return Record(f"r{i}", lambda: f"{i:03d}", load or (lambda: value), label, **truth)


def found(records, classes=(), name="a/folder"):
    return Found(list(records), classes, name=name)


def broken(error=OSError):
    def load():
        raise error("broken")

    return load


def rows(given):
    return given.arrays["x"][:, 0].tolist()


def picture(pixels=((1, 2), (3, 4)), dtype=np.uint8, turned=1):
    image = Image.fromarray(np.array(pixels, dtype))
    if turned > 1:
        image.getexif()[0x0112] = turned
    return image


EIGHT = found([record(i, i % 2 if i > 3 else None) for i in range(8)])


@pytest.mark.parametrize(
    ("purpose", "expected"),
    [
        (Purpose.CALIBRATION, [0, 1]),
        (Purpose.GATE, [2, 3, 4, 5, 6, 7]),
        (Purpose.BENCH, [2, 3, 4, 5, 6, 7]),
        (Purpose.LABELLED, [4, 5, 6, 7]),
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_each_purpose_has_its_records_in_their_order(purpose, expected):
    given = samples.made(EIGHT, purpose, 99, ARRAYS)
    assert rows(given) == expected and given.origin == "the user's data folder"
    assert rows(samples.made(EIGHT, purpose, 2, ARRAYS)) == expected[:2]
    labels = [i % 2 for i in expected]
    assert given.labels.tolist() == labels if purpose is Purpose.LABELLED else given.labels is None


def test_without_labels_there_is_nothing_labelled():
    assert samples.made(found(map(record, range(8))), Purpose.LABELLED, 9, ARRAYS) is None


def test_inputs_of_another_side_are_left_out():
    given = samples.made(EIGHT, Purpose.GATE, 99, ARRAYS)
    less = samples.made(EIGHT, Purpose.GATE, 3, ARRAYS, but=given.digests[1:3])
    assert rows(less) == [2, 5, 6]
    assert samples.made(EIGHT, Purpose.GATE, 3, ARRAYS, but=given.digests) is None


@pytest.mark.parametrize(("most", "count"), [(96, 12), (95, 11), (72, 9), (64, 8), (1, 8)])
def test_inputs_take_no_more_memory_than_they_may_and_are_eight_at_least(monkeypatch, most, count):
    monkeypatch.setattr(samples, "MOST_BYTES", most)
    assert len(samples.made(found(map(record, range(20))), None, 99, ARRAYS)) == count
    assert len(samples.made(found(map(record, range(20))), None, 5, ARRAYS)) == 5


def test_memory_counts_all_inputs_by_the_bytes_of_their_numbers(monkeypatch):
    monkeypatch.setattr(samples, "MOST_BYTES", 100)
    specs = (TensorSpec("x", (2,), "float32"), TensorSpec("y", (1, 2), "int8"))
    both = [record(i, load=lambda i=i: {"x": np.full(2, i), "y": np.full((1, 2), i)}) for i in range(20)]
    given = samples.made(found(both), None, 99, Wanted((specs[0], specs[1]), None))
    assert len(given) == 10 and given.arrays["y"].dtype == np.int8


@pytest.mark.parametrize("error", [OSError, ValueError, EOFError, SyntaxError])
@pytest.mark.parametrize(("bad", "kept"), [(4, True), (5, False)])
def test_what_cannot_be_read_is_left_out_unless_it_is_more_than_half(error, bad, kept):
    given = found([record(i, load=broken(error) if i < bad else None) for i in range(8)])
    if kept:
        made = samples.made(given, None, 99, ARRAYS)
        assert rows(made) == [4, 5, 6, 7]
        assert made.unread == tuple(f"r{i} ({error.__name__})" for i in range(4))
        return
    with pytest.raises(UsageError) as caught:
        samples.made(given, None, 99, ARRAYS)
    assert caught.value.code == "E-DATASET-3"
    assert caught.value.what.startswith("5 of 8 inputs of a/folder ")
    assert caught.value.evidence == ", ".join(f"r{i} ({error.__name__})" for i in range(3))


def test_what_fits_no_input_is_an_error_at_once_and_other_errors_are_the_users_own():
    wrong = found([record(i, load=lambda: np.ones(3, np.float32)) for i in range(4)])
    with pytest.raises(UsageError, match="E-DATASET-6"):
        samples.made(wrong, None, 99, ARRAYS)
    with pytest.raises(KeyError):
        samples.made(found([record(i, load=broken(KeyError)) for i in range(4)]), None, 99, ARRAYS)


def test_many_records_come_in_their_order(monkeypatch):
    monkeypatch.setattr(samples, "AT_ONCE", 3)
    assert rows(samples.made(found(map(record, range(10))), None, 99, ARRAYS)) == list(range(10))
    seen = []
    watched = [record(i, load=lambda i=i: seen.append(i) or np.full(2, i)) for i in range(10)]
    assert rows(samples.made(found(watched), None, 4, ARRAYS)) == [0, 1, 2, 3]
    assert sorted(seen) == list(range(6))


@pytest.mark.parametrize(("first", "fit"), [(None, True), (broken(), True), (lambda: np.ones(3), False)])
def test_the_first_input_that_can_be_read_shows_whether_they_fit(first, fit):
    given = found([record(0, load=first), record(1)])
    if fit:
        samples.fits(given, ARRAYS)
    else:
        with pytest.raises(UsageError, match="E-DATASET-6"):
            samples.fits(given, ARRAYS)
    samples.fits(found([record(0, load=broken())]), ARRAYS)


@pytest.mark.parametrize(
    ("loads", "pictures"),
    [
        ([picture], True),
        ([broken(), picture], True),
        ([lambda: np.ones((1, 2, 2), np.float32), picture], False),
        ([broken()], False),
        ([], False),
    ],
)
def test_the_first_input_that_can_be_read_shows_whether_they_are_pictures(loads, pictures):
    given = found([record(i, load=load) for i, load in enumerate(loads)])
    assert samples.pictures(given, GREY) is pictures


@pytest.mark.parametrize(
    ("label", "number"), [(3, 3), (0, 0), ("dog", 1), ("cat", 0), ("bird", None), (None, None)]
)
def test_labels_are_numbers_or_places_of_names(label, number):
    of = found([], ("cat", "dog"))
    if number is not None:
        assert samples.number(record(0, label), of) == number
        return
    with pytest.raises(UsageError) as caught:
        samples.number(record(0, label), of)
    assert (caught.value.code, caught.value.evidence) == ("E-LABEL-3", "2 classes: cat, dog ...")


def test_eight_classes_are_named():
    with pytest.raises(UsageError) as caught:
        samples.number(record(0, "x"), found([], tuple("abcdefghij")))
    assert caught.value.evidence == "10 classes: a, b, c, d, e, f, g, h ..."


@pytest.mark.parametrize(("offset", "labels"), [(0, [3, 3, 3]), (1, [4, 4, 4])])
def test_labels_are_shifted_as_the_preprocessing_says(offset, labels):
    way = Preprocess(2, 1.0, (0.0,), (1.0,), "stretch", "nearest", divide=1.0, label_offset=offset)
    of = found([record(i, 3, load=picture) for i in range(3)])
    assert samples.made(of, None, 9, Wanted(GREY, way)).labels.tolist() == labels
    assert samples.made(found([record(i, 3) for i in range(3)]), None, 9, ARRAYS).labels.tolist() == [3] * 3


def test_labels_count_where_all_inputs_have_one_of_one_shape():
    def maps(*shape):
        return {"classes": lambda: np.ones(shape), "mark": "m"}

    def labels(*records):
        return samples.made(found(records), None, 9, ARRAYS).labels

    assert labels(record(0, 3), record(1)) is None
    assert labels(record(0, 3), record(1, **maps(2, 2))) is None
    assert labels(record(0, **maps(2, 3)), record(1, **maps(2, 2))) is None
    assert labels(record(0, **maps(2, 3)), record(1, **maps(2, 3))).shape == (2, 2, 3)
    assert labels(record(0, 3), record(1, 4)).dtype == np.int64


def test_boxes_count_where_all_inputs_have_some():
    box = np.ones((1, 5), np.float32)
    both = samples.made(found([record(0, boxes=box), record(1, boxes=box[:0])]), None, 9, ARRAYS)
    assert [b.tolist() for b in both.boxes] == [[[1] * 5], []]
    assert samples.made(found([record(0, boxes=box), record(1)]), None, 9, ARRAYS).boxes is None


WIDE = ((1, 2, 3), (4, 5, 6))
"""A picture of three columns and two rows."""


@pytest.mark.parametrize(
    ("size", "turned", "box"),
    [
        (None, 1, [0, 0, 1, 1]),
        ((3, 2), 1, [0, 0, 1, 1]),
        ((2, 3), 1, None),
        (None, 6, [0, 0, 1, 1]),
        ((2, 3), 6, [0, 0, 1, 1]),
        ((3, 2), 6, [1, 0, 2, 1]),
        ((9, 9), 6, None),
    ],
)
def test_boxes_lie_on_the_picture_as_a_person_sees_it(size, turned, box):
    given = np.array([[0, 0, 1, 1, 7]], np.float32)
    image = picture(WIDE, turned=turned)
    if box is None:
        with pytest.raises(Unfit) as caught:
            samples._boxes_as_seen(given, size, image)
        seen = "2 x 3" if turned == 6 else "3 x 2"
        assert str(caught.value) == f"its boxes are given for {size[0]} x {size[1]}, it is {seen}"
    else:
        assert samples._boxes_as_seen(given, size, image).tolist() == [[*box, 7]]


@pytest.mark.parametrize(
    ("shape", "turned", "fits"),
    [
        ((2, 3), 1, True),
        ((4, 6), 1, True),
        ((40, 60), 1, True),
        ((40, 61), 1, True),
        ((40, 130), 1, False),
        ((3, 2), 1, False),
        ((3, 3), 1, True),
        ((4, 4), 1, True),
        ((5, 5), 1, True),
        ((9, 6), 6, True),
        ((6, 9), 6, False),
        ((2, 3, 1), 1, False),
        ((6,), 1, False),
    ],
)
def test_a_map_of_classes_has_the_form_of_its_picture(shape, turned, fits):
    """A pixel of rounding is allowed: of 40 x 61 for 2 x 3, the sides are 122 and 120."""
    given, image = np.ones(shape), picture(WIDE, turned=turned)
    if fits:
        assert samples._map_as_seen(given, image) is given
    else:
        with pytest.raises(Unfit, match="its map of classes"):
            samples._map_as_seen(given, image)
    assert samples._map_as_seen(given, None) is given


@pytest.mark.parametrize(
    ("seen", "mapped", "fits"),
    [
        ((10, 20), (5, 11), True),
        ((10, 20), (5, 12), True),
        ((10, 20), (5, 15), False),
        ((10, 20), (6, 14), True),
    ],
)
def test_the_rounding_that_is_allowed_is_the_longest_side(seen, mapped, fits):
    """10 x 20 of 5 x 12 differ by 20, just as much as the longest side; 6 x 14 by 20, 5 x 15 by 50."""
    image = Image.new("L", seen)
    given = np.ones(mapped[::-1])
    if fits:
        assert samples._map_as_seen(given, image) is given
    else:
        with pytest.raises(Unfit):
            samples._map_as_seen(given, image)


def test_a_map_drawn_on_the_stored_picture_is_turned_with_it():
    found_map = np.array(WIDE)
    assert samples._map_as_seen(found_map, picture(WIDE, turned=6)).tolist() == [[4, 1], [5, 2], [6, 3]]
    assert samples._map_as_seen(found_map, picture(WIDE, turned=3)) is found_map


def test_boxes_and_maps_follow_their_picture_into_the_input():
    box = np.array([[0, 0, 2, 1, 3]], np.float32)
    wide = [record(i, load=lambda: picture(((1, 1, 2, 2), (3, 3, 4, 4))), boxes=box) for i in range(2)]
    given = samples.made(found(wide), None, 9, PICTURES)
    assert given.arrays["x"][0].tolist() == [[[1, 2], [3, 4]]]
    assert given.boxes[0].tolist() == [[0, 0, 1, 1, 3]]
    drawn = [
        record(
            i,
            load=lambda: picture(((1, 1, 2, 2), (3, 3, 4, 4))),
            classes=lambda: np.array([[0, 0, 9, 9]] * 2),
        )
        for i in range(2)
    ]
    assert samples.made(found(drawn), None, 9, PICTURES).labels[0].tolist() == [[0, 9], [0, 9]]


def test_what_is_drawn_on_another_picture_is_left_out_by_its_name():
    box = np.array([[0, 0, 2, 1, 3]], np.float32)
    good = [record(i, load=picture, boxes=box, size=(2, 2)) for i in range(3)]
    given = samples.made(found([*good, record(9, load=picture, boxes=box, size=(5, 2))]), None, 9, PICTURES)
    assert given.unread == ("r9 (its boxes are given for 5 x 2, it is 2 x 2)",)


def test_a_map_without_a_picture_stays_as_it_is():
    given = samples.class_map(np.array([[1.0, 2.0]]), None)
    assert given.tolist() == [[1, 2]] and given.dtype == np.int64


def test_a_border_around_a_map_is_nobodys_class():
    way = Preprocess(2, 1.0, (0.0,), (1.0,), "letterbox", "nearest")
    assert samples.class_map(np.array([[3] * 4, [3] * 4]), way).tolist() == [[255, 255], [3, 3]]


@pytest.mark.parametrize(
    ("brightest", "white"),
    [
        (0.5, "1"),
        (1.0, "1"),
        (1.5, "255"),
        (255.0, "255"),
        (255.5, "1023"),
        (1023.0, "1023"),
        (1023.5, "4095"),
        (4095.0, "4095"),
        (4095.5, "16383"),
        (16383.0, "16383"),
        (16383.5, "65535"),
        (65535.0, "65535"),
        (70000.0, "70000"),
    ],
)
def test_the_white_that_is_offered_is_the_next_usual_one(brightest, white):
    found = samples._white_unknown("it", brightest)
    assert found.fix.startswith(f"--preprocess white={white}, ")
    assert f"highest value is {brightest:g}" in found.evidence


@pytest.mark.parametrize(
    ("brightest", "known"), [(65535, True), (16384, True), (16383, False), (65536, False), (300, False)]
)
def test_pictures_of_many_bits_are_known_to_use_them(brightest, known):
    dtype = np.int32 if brightest > 65535 else np.uint16
    of = found([record(i, load=lambda i=i: picture(((i, 2), (3, brightest)), dtype)) for i in range(3)])
    if known:
        assert samples.made(of, None, 9, PICTURES).arrays["x"].max() == round(brightest / 257)
        return
    with pytest.raises(UsageError) as caught:
        samples.made(of, None, 9, PICTURES)
    assert caught.value.code == "E-PREPROCESS-3" and "3 pictures of folder" in caught.value.what


def test_one_bright_picture_shows_the_white_of_all_and_bytes_need_none():
    deep = [
        record(i, load=lambda i=i: picture(((i, 2), (3, 60_000 * (i == 1))), np.uint16)) for i in range(3)
    ]
    assert samples.made(found([*deep, record(5, load=picture)]), None, 9, PICTURES) is not None
    assert samples._brightest(None) is None and samples._brightest(picture()) is None
    assert samples._brightest(picture(((1, 300),), np.uint16)) == 300


def test_white_that_is_said_is_not_asked_for():
    way = Preprocess(2, 1.0, (0.0,), (1.0,), "stretch", "nearest", divide=1.0, white=300.0)
    of = found([record(i, load=lambda i=i: picture(((i, 0), (0, 300)), np.uint16)) for i in range(3)])
    assert samples.made(of, None, 9, Wanted(GREY, way)).arrays["x"].max() == 255


def test_floats_of_which_nobody_says_what_is_white():
    of = found([record(i, load=lambda: picture(((0, 0.25), (0.5, 1.0)), np.float32)) for i in range(3)])
    with pytest.raises(UsageError) as caught:
        samples.made(of, None, 9, PICTURES)
    assert caught.value.code == "E-PREPROCESS-3" and " in r0" in caught.value.what


# -- the cache -------------------------------------------------------------------------------------------------


def test_a_place_belongs_to_data_purpose_number_and_input(tmp_path):
    deeper = Wanted((TensorSpec("x", (3,), "float32"),), None)
    places = {
        samples.place(pin, purpose, n, wanted).name
        for pin in ("a#1", "a#2")
        for purpose in (None, Purpose.GATE)
        for n in (1, 2)
        for wanted in (ARRAYS, deeper, PICTURES)
    }
    assert len(places) == 24
    assert {name.partition("-")[0] for name in places} == {"any", "gate"}


FULL = Samples(
    {"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3)},
    ("a", "b", "c"),
    "here",
    np.array([4, 5, 6]),
    (np.ones((1, 6), np.float32), np.zeros((0, 6), np.float32), np.ones((2, 6), np.float32)),
    unread=("z (OSError)",),
)
BARE = Samples({"x": np.arange(6.0).reshape(3, 2)}, ("a", "b", "c"), "here")
FIVE = Samples({"x": np.ones((2, 1))}, ("a", "b"), "", None, (np.ones((1, 5), np.float32), np.zeros((0, 5))))
NONE = Samples({"x": np.ones((1, 1))}, ("a",), "", None, (np.zeros((0, 5), np.float32),))


@pytest.mark.parametrize("given", [FULL, BARE, FIVE, NONE])
def test_the_cache_gives_back_what_it_was_given(tmp_path, given):
    path = tmp_path / "place.json"
    samples.keep(path, given)
    again = samples.kept(path)
    assert samples.whole(path) and again.digests == given.digests and again.origin == given.origin
    assert {k: v.tolist() for k, v in again.arrays.items()} == {
        k: v.tolist() for k, v in given.arrays.items()
    }
    assert again.unread == given.unread
    assert (again.labels is None) == (given.labels is None)
    assert given.labels is None or again.labels.tolist() == given.labels.tolist()
    if given.boxes is None:
        assert again.boxes is None
    else:
        assert [b.shape for b in again.boxes] == [b.shape for b in given.boxes]
        assert [b.tolist() for b in again.boxes] == [b.tolist() for b in given.boxes]


def test_the_cache_remembers_that_there_is_nothing(tmp_path):
    samples.keep(tmp_path / "none.json", None)
    assert samples.whole(tmp_path / "none.json") and samples.kept(tmp_path / "none.json") is None


@pytest.mark.parametrize("part", ["place-0.npy", "place-1.npy", "place-labels.npy", "place.json"])
@pytest.mark.parametrize("how", ["gone", "cut", "grown"])
def test_a_place_is_whole_while_all_its_files_are(tmp_path, part, how):
    samples.keep(tmp_path / "place.json", FULL)
    path = tmp_path / part
    if how == "gone" or part.endswith("json"):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if how == "cut" else path.read_bytes() + b"x")
    assert not samples.whole(tmp_path / "place.json")


def test_what_is_kept_is_read_as_it_is_used(tmp_path):
    samples.keep(tmp_path / "place.json", FULL)
    again = samples.kept(tmp_path / "place.json")
    assert isinstance(again.arrays["x"], np.memmap) and isinstance(again.labels, np.memmap)
    assert cache.read_json(tmp_path / "place.json")["columns"] == 6
    samples.keep(tmp_path / "bare.json", BARE)
    assert cache.read_json(tmp_path / "bare.json")["columns"] == 5


def test_records_load_when_they_are_asked_for():
    calls = []
    lazy = [record(i, load=partial(lambda i: calls.append(i) or np.full(2, i), i)) for i in range(8)]
    samples.sides(found(lazy))
    assert calls == []


def test_what_an_earlier_release_prepared_is_found_again():
    """Whoever raises VERSION on purpose changes the name here, too."""
    assert (
        samples.place("photos#0123456789ab", Purpose.GATE, 8, PICTURES).name == "gate-97e87ba77669d22d.json"
    )
