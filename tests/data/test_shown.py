"""A report shows once what the network sees of the user's data."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from data_sets import classifier, folder
from edgescope.bench.parts import HERE
from edgescope.data.dataset_model import png, seen
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.models.image.preprocess import NAMED, named
from edgescope.records import Trial
from edgescope.report import chapter, write
from edgescope.study import grid
from making import result


@pytest.mark.parametrize("name", NAMED)
def test_what_is_seen_is_what_was_prepared(name):
    image = Image.new("RGB", (8, 8), (200, 100, 50))
    way = named(name, (3, 8, 8))
    text = png(seen(way(image), way))
    shown = Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2])))
    assert np.abs(np.asarray(shown).astype(int) - [200, 100, 50]).max() <= 1


@pytest.mark.slow
def test_a_page_has_facts_and_pictures(tmp_path):
    photos = folder(tmp_path / "photos", each=6)
    (photos / "mist").mkdir()
    (photos / "copy.png").write_bytes((photos / "dark" / "0.png").read_bytes())
    given = Trial(model=str(classifier(tmp_path / "c.onnx")), backend="onnxruntime", data=str(photos))
    trial = grid.pinned(given, zoo.pin)
    HERE.model(trial).samples(Purpose.GATE, 400)
    write([result(trial, model=HERE.model(trial).info)], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert page.count('<img src="data:image/png') == 8 and "1 light" in page
    for said in (
        "12 different ones, 12 with labels; 3 set the ranges",
        "1 copy",
        "without an image: mist",
        "half 9",
    ):
        assert said in page, said
    chapter.shown_data(trial).unlink()
    HERE.model(trial).samples(Purpose.GATE, 400)
    assert chapter.shown_data(trial).exists()
    chapter.shown_data(trial).unlink()
    write([result(trial)], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<img " not in page and f"{trial.data}: its pictures are no " in page
