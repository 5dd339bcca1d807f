"""Snippets of folders of pictures and of a film that is a list of frames."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from edgescope.errors import ModelError
from edgescope.wings.anomaly import preparation
from edgescope.wings.anomaly.preparation import Preparation, Read

PREPARED = Preparation("motion", 4, 1, (6, 5), (5, 5), (0.0,) * 3, (1.0,) * 3, 3)


def grey(level):
    return np.full((5, 6, 3), level, np.uint8)


@pytest.fixture
def film(tmp_path, monkeypatch):
    """Let every file be a film of these frames; return what was asked of it."""
    asked = SimpleNamespace(closed=0)

    def of(count, error=None, **facts):
        frames = iter([SimpleNamespace(pixels=grey(i)) for i in range(count)])

        def read():
            frame = next(frames, None)
            if frame is None and error:
                raise error
            return frame

        def close():
            asked.closed += 1

        def opened(name, **how):
            asked.name, asked.how = name, how
            return SimpleNamespace(read=read, facts=lambda: facts, close=close)

        monkeypatch.setattr(preparation, "opened", opened)
        return tmp_path / "film.mp4", asked

    return of


def parts(path, **how):
    read = Read()
    found = list(preparation.decoded(path, PREPARED, read, **how))
    return [part[:, :, 0, 0, 0].tolist() for part in found], read


@pytest.mark.parametrize(
    ("count", "most", "snippets", "repeated"),
    [
        (1, 8, [[[0, 0, 0, 0]]], 3),
        (4, 8, [[[0, 1, 2, 3]]], 0),
        (5, 8, [[[0, 1, 2, 3], [4, 4, 4, 4]]], 3),
        (8, 1, [[[0, 1, 2, 3]], [[4, 5, 6, 7]]], 0),
        (10, 2, [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9, 9, 9]]], 2),
        (8, 2, [[[0, 1, 2, 3], [4, 5, 6, 7]]], 0),
    ],
)
def test_a_film_comes_in_snippets_a_few_at_a_time(film, count, most, snippets, repeated):
    path, asked = film(count, fps=25.0, damaged=2)
    found, read = parts(path, most=most)
    assert found == snippets
    assert read == Read(count, repeated, 25.0, 2) and asked.closed == 1
    assert asked.name == f"file:{path}" and asked.how == {"size": (6, 5), "damaged": "stop"}


@pytest.mark.parametrize(
    ("facts", "fps", "damaged"),
    [
        ({}, None, 0),
        ({"fps": 0}, None, 0),
        ({"fps": None, "damaged": None}, None, 0),
        ({"fps": "12.5"}, 12.5, 0),
    ],
)
def test_what_a_film_does_not_say_is_not_known(film, facts, fps, damaged):
    path, asked = film(4, **facts)
    _, read = parts(path, damaged="skip")
    assert (read.fps, read.damaged) == (fps, damaged) and asked.how["damaged"] == "skip"


def test_eight_snippets_come_at_a_time_unless_told_otherwise(film):
    path, _ = film(40)
    assert [len(part) for part in parts(path)[0]] == [8, 2]


def test_a_film_without_frames_or_with_damage_is_told_and_closed(film):
    path, asked = film(0)
    with pytest.raises(ModelError, match=r"E-ANOMALY-11.*film\.mp4 holds no frame"):
        parts(path)
    path, asked = film(2, error=ModelError("E-X-1", "broken"))
    with pytest.raises(ModelError, match="broken"):
        parts(path)
    assert asked.closed == 2


def test_a_folder_of_pictures_is_a_film_in_the_order_in_which_people_count(tmp_path):
    for name, level in (("10.png", 30), ("2.jpg", 20), ("1.PNG", 10)):
        Image.fromarray(np.full((7, 9), level, np.uint8)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    found, read = parts(tmp_path)
    assert found == [[[10, 20, 30, 30]]] and read == Read(3, 1)
    (tmp_path / "3.jpg").write_bytes(b"no picture")
    with pytest.raises(ModelError, match=r"E-ANOMALY-11.*3\.jpg"):
        parts(tmp_path)


def test_a_reason_ends_before_the_remedy():
    assert preparation.reason(ModelError("E-X-1", "broken", fix="mend it")) == "E-X-1: broken."
    assert (
        preparation.reason(ModelError("E-X-1", "broken", effect="It is out")) == "E-X-1: broken. It is out."
    )
