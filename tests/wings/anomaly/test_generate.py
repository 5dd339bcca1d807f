"""A generated set whose splits share no footage."""

from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.wings.anomaly import generate


def film(frames):
    return np.arange(frames, dtype=np.uint16)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint16)


def test_no_frame_of_a_film_is_in_two_splits():
    found = generate._divided([film(500), film(200)], 48, True)
    frames = {split: [set(part[:, 0, 0, 0].tolist()) for part in found[split].pieces] for split in found}
    for number, whole in enumerate((500, 200)):
        parts = [frames[split][number] for split in ("train", "validation", "test")]
        assert sum(map(len, parts)) == whole and set.union(*parts) == set(range(whole))
    assert [len(found[split].scenes) for split in ("train", "validation", "test")] == [2, 1, 1]


def test_a_film_that_is_too_short_for_a_split_is_named():
    with pytest.raises(UsageError, match=r"E-ANOMALY-10: .*split validation"):
        generate._divided([film(300)], 96, True)
    assert generate._divided([film(300)], 96, False)["test"].scenes


class Dice:
    """A generator that gives the first or the last of what may come, and notes the ranges it was asked for."""

    def __init__(self, *, last=False, random=0.5, uniform=1.0):
        self.last, self.asked, self.half, self.light = last, [], random, uniform

    def integers(self, low, high=None):
        low, high = (0, low) if high is None else (low, high)
        self.asked.append((int(low), int(high)))
        return high - 1 if self.last else low

    def random(self):
        return self.half

    def uniform(self, low, high):
        assert (low, high) == (0.85, 1.1)
        return self.light


@pytest.mark.parametrize(
    ("category", "times"),
    [
        ("normal", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("speed", [0, 1, 3, 5, 7, 8, 9, 10]),
        ("freeze", [0, 1, 1, 1, 1, 2, 3, 4]),
        ("reversal", [1, 2, 1, 0, -1, 0, 1, 2]),
    ],
)
def test_the_time_of_a_clip_runs_on_but_for_its_interval(category, times):
    found = generate._times(category, 8, 2, 3).tolist()
    assert found == [time - min(times) for time in times], "from 0 on"


@pytest.mark.parametrize(
    ("clips", "counts"), [(12, (3, 1, 2)), (60, (15, 6, 9)), (13, (3, 1, 2)), (100, (25, 10, 15))]
)
def test_a_split_has_as_many_anomalous_as_normal_clips_and_all_kinds_in_turn(clips, counts):
    plan = generate._plan(clips, ["speed", "freeze"])
    for split, count in zip(("train", "validation", "test"), counts, strict=True):
        mine = [category for where, category in plan if where == split]
        assert mine[::2] == ["normal"] * count
        assert mine[1::2] == [("speed", "freeze")[k % 2] for k in range(count)]
    assert len(plan) == 2 * sum(counts)


def scene(frames=300, height=30, width=40):
    """A film whose every pixel of frame k is k // 2."""
    return (
        np.repeat(np.arange(frames) // 2, height * width * 3)
        .reshape(frames, height, width, 3)
        .astype(np.uint8)
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("category", ["normal", "speed", "freeze", "reversal"])
def test_a_clip_is_cut_where_the_dice_say_and_its_interval_lies_within(category, last):
    footage, dice = generate._Footage([scene(), scene()], []), Dice(last=last)
    pixels, intervals = generate._clip(footage, category, 96, (32, 24), dice)
    length = 48 if last else 32
    first, after = (48, 97 - length) if category == "reversal" else (8, 96 - length - 7)
    start = after - 1 if last else first
    assert dice.asked[:3] == [(0, 2), (32, 49), (first, after)]
    assert intervals == (() if category == "normal" else ((start, start + length),))
    times = generate._times(category, 96, start, length)
    assert dice.asked[3] == (0, 300 - times.max()) and dice.asked[4:] == [(0, 7), (0, 9)]
    begin = dice.asked[3][1] - 1 if last else 0
    assert (pixels == ((begin + times) // 2)[:, None, None, None]).all() and pixels.shape == (96, 24, 32, 3)


@pytest.mark.parametrize(("light", "wanted"), [(1.0, 100), (1.1, 110), (0.85, 85)])
def test_the_light_of_a_clip_is_changed_as_a_whole_and_goes_down_to_a_fifth_in_the_dark(light, wanted):
    film = np.full((200, 24, 32, 3), 100, np.uint8)
    plain, _ = generate._clip(generate._Footage([film], []), "normal", 96, (32, 24), Dice(uniform=light))
    assert np.abs(plain.astype(int) - wanted).max() <= 1
    dark, ((start, end),) = generate._clip(generate._Footage([film], []), "darkness", 96, (32, 24), Dice())
    assert (start, end) == (8, 40)
    shares = dark[:, 0, 0, 0] / 100
    assert (shares[:9] == 1).all() and (shares[39:] == 1).all()
    assert shares[9:12] == pytest.approx([1 - 0.8 / 3, 1 - 1.6 / 3, 0.2], abs=0.011)
    assert shares[12:36] == pytest.approx(np.full(24, 0.2), abs=0.011)
    assert shares[36:39] == pytest.approx([0.2, 1 - 1.6 / 3, 1 - 0.8 / 3], abs=0.011)
    white = np.full((200, 24, 32, 3), 250, np.uint8)
    bright, _ = generate._clip(generate._Footage([white], []), "normal", 96, (32, 24), Dice(uniform=1.1))
    assert (bright == 255).all()


@pytest.mark.parametrize(("draw", "mirrored"), [(0.49, True), (0.5, False)])
@pytest.mark.parametrize("last", [False, True])
def test_a_window_is_a_part_of_the_picture_and_half_of_them_are_mirrored(draw, mirrored, last):
    film = np.arange(2 * 10 * 12 * 3).reshape(2, 10, 12, 3)
    found = generate._window(film, (5, 4), Dice(last=last, random=draw))
    wanted = film[:, 6:10, 7:12] if last else film[:, 0:4, 0:5]
    assert (found == (wanted[:, :, ::-1] if mirrored else wanted)).all()


def test_an_object_is_an_ellipse_that_goes_from_the_left_to_the_right():
    pixels, other = np.zeros((5, 30, 50, 3), np.uint8), np.full((2, 40, 60, 3), 9, np.uint8)
    other[1] = 8
    dice = Dice(last=True)
    generate._through(pixels, other, dice)
    assert dice.asked == [(0, 30), (0, 50), (0, 20)]
    seen = pixels[..., 0] > 0
    assert [int(frame.any(axis=0).argmax()) for frame in seen] == [
        1,
        11,
        21,
        31,
        41,
    ]  # the ends of an ellipse are bare
    assert {int(frame.any(axis=1).argmax()) for frame in seen} == {20}
    assert [int(frame.max()) for frame in pixels[..., 0]] == [9, 8, 9, 8, 9]
    down, across = np.mgrid[-1:1:10j, -1:1:10j]
    assert (seen[0, 19:29, 0:10] == (down**2 + across**2 < 1)).all() and seen[0].sum() == seen[
        0, 19:29, 0:10
    ].sum()
    one = np.zeros((1, 30, 50, 3), np.uint8)
    generate._through(one, other, Dice())
    assert one[0, :10, :10].any() and not one[0, 10:].any() and not one[0, :, 10:].any()


@pytest.mark.parametrize("pieces", [0, 1])
def test_an_object_is_a_piece_of_another_film_or_of_the_same_one_backwards(pieces):
    film, other = np.full((200, 24, 32, 3), 10, np.uint8), np.full((200, 24, 32, 3), 70, np.uint8)
    film[-1] = 30
    footage = generate._Footage([film], [film, other][: 1 + pieces])
    pixels, ((start, end),) = generate._clip(footage, "object", 96, (32, 24), Dice())
    values = set(np.unique(pixels[start:end]).tolist())
    assert values == ({10, 70} if pieces else {10, 30}) and set(np.unique(pixels[:start]).tolist()) == {10}
    assert set(np.unique(pixels[end:]).tolist()) == {10}


@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        ({}, True),
        ({"clips": 12}, True),
        ({"clips": 11}, False),
        ({"frames": 96}, True),
        ({"frames": 95}, False),
        ({"kinds": []}, False),
        ({"kinds": ["speed", "rain"]}, False),
    ],
)
def test_a_set_that_cannot_be_made_is_refused(keys, fits):
    asked = {"clips": 60, "kinds": generate.KINDS, "frames": 96, **keys}
    if fits:
        generate._check(**asked)
        return
    with pytest.raises(UsageError, match="E-ANOMALY-10"):
        generate._check(**asked)


@pytest.mark.parametrize(("frames", "fits"), [(143, False), (144, True)])
def test_a_film_is_long_enough_for_a_clip_and_the_longest_interval(frames, fits):
    if fits:
        assert len(generate._divided([film(frames), film(9)], 96, False)["train"].scenes) == 1
        return
    with pytest.raises(UsageError) as caught:
        generate._divided([film(frames), film(9)], 96, False)
    assert caught.value.evidence == "the longest has 143"


def test_a_set_is_written_clip_by_clip_with_its_list(tmp_path, monkeypatch):
    written, told, listed = [], [], []
    monkeypatch.setattr(
        generate, "write_film", lambda path, pixels, fps: written.append((path, pixels.shape, fps))
    )
    monkeypatch.setattr(generate, "_film", lambda path, size: scene())
    monkeypatch.setattr(generate, "write_list", lambda root, made: listed.append((root, len(made))))
    made = generate.generate(
        tmp_path, clips=12, sources=["a"], size=(32, 24), tell=lambda done, of: told.append((done, of))
    )
    assert told == [(k, 12) for k in range(1, 13)] and listed == [(tmp_path, 12)]
    assert written[0] == (tmp_path / "train/clip_000.mp4", (96, 24, 32, 3), 25)
    assert [path.name for path, *_ in written] == [f"clip_{k:03}.mp4" for k in range(12)]
    assert (
        made.videos[1].category == "speed"
        and len(made.videos[1].intervals) == 1
        and made.videos[1].frames == 96
    )
    assert made.videos[0].name == "train/clip_000" and made.videos[0].intervals == ()


def test_a_film_is_read_a_quarter_larger_and_closed(monkeypatch):
    asked, frames = [], [np.full((5, 5, 3), k, np.uint8) for k in range(3)]

    class Source:
        def __init__(self, path, size):
            asked.append((path, size))

        def read(self):
            return SimpleNamespace(pixels=frames.pop(0)) if frames else None

        def close(self):
            asked.append("closed")

    monkeypatch.setattr(generate, "load", lambda *about: Source)
    assert generate._film("a", (320, 240))[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert asked == [("a", (400, 300)), "closed"]


def test_the_same_film_backwards_is_what_it_is():
    film_ = np.repeat(np.arange(200), 24 * 32 * 3).reshape(200, 24, 32, 3).astype(np.uint8)
    pixels, ((start, _),) = generate._clip(generate._Footage([film_], []), "object", 96, (32, 24), Dice())
    pieces = [set(np.unique(pixels[k]).tolist()) - {k} for k in range(start + 1, start + 4)]
    assert pieces == [{198}, {197}, {196}]
