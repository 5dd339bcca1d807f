"""`--option calibration=DATA`: the ranges of int8 come from data of their own, pinned by their content."""

import numpy as np
import pytest
from PIL import Image

from data_sets import classifier, folder
from edgescope import cache
from edgescope.artifacts import int8
from edgescope.artifacts.for_precision import int8_options
from edgescope.backends.base import Spec
from edgescope.bench.parts import HERE
from edgescope.data import opening
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.records import Trial
from edgescope.study import grid

pytestmark = pytest.mark.network


def asked(ranges, model="squeezenet1_1", **keys):
    return grid.pinned(Trial(model=str(model), options={"calibration": str(ranges)}, **keys), zoo.pin)


def photo(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path):
    for i, name in enumerate(("a.jpg", "b.JPEG", "cats/c.png")):
        photo(tmp_path / "mine" / name, i)
    return tmp_path / "mine"


def test_photographs_come_as_the_zoos_network_wants_them_and_all_of_them_calibrate(photos):
    trial = asked(photos)
    assert trial.options["calibration"] == opening.pin(str(photos))
    model = HERE.model(trial)
    found = model.samples(Purpose.CALIBRATION, 64)
    assert len(found) == 3 and found.arrays["input"].shape == (3, 3, 224, 224)
    with Image.open(photos / "a.jpg") as image:
        wanted = model.preprocess(image)
    assert any(np.array_equal(wanted, row) for row in found.arrays["input"])
    own = zoo.get("squeezenet1_1").samples(Purpose.GATE, 4)
    assert model.samples(Purpose.GATE, 4).digests == own.digests


def test_what_changed_since_it_was_planned_is_refused(photos):
    trial = asked(photos)
    photo(photos / "d.jpg", 9)
    opening._read.cache_clear()  # a trial runs in a process of its own
    with pytest.raises(UsageError, match=r"E-DATASET-8.*planned with"):
        HERE.model(trial).samples(Purpose.CALIBRATION, 8)


def test_other_data_judge_while_these_set_the_ranges(tmp_path, photos):
    made = classifier(tmp_path / "c.onnx")
    keys = {"data": str(folder(tmp_path / "judge")), "preprocess": "half,crop=1", "backend": "onnxruntime"}
    both, alone = (
        HERE.model(t) for t in (asked(photos, made, **keys), asked(photos, made, preprocess="half"))
    )
    held, ranges = (both.samples(purpose, 400) for purpose in (Purpose.GATE, Purpose.CALIBRATION))
    assert len(ranges) == 3 and len(held) == 15 and not set(held.digests) & set(ranges.digests)
    assert len(alone.samples(Purpose.CALIBRATION, 400)) == 3


def test_rules_in_the_folder_say_how_a_bare_onnx_wants_them(tmp_path, photos):
    made = classifier(tmp_path / "c.onnx")
    (photos / "cats/c.png").unlink()  # a label might show it
    with pytest.raises(UsageError, match=r"E-PREPROCESS-2"):
        HERE.model(asked(photos, made, backend="onnxruntime")).samples(Purpose.CALIBRATION, 8)
    (photos / "preprocess.json").write_text('{"mean": [0, 0, 0], "std": [1, 1, 1], "crop": 1.0}')
    rows = HERE.model(asked(photos, made, backend="onnxruntime")).samples(Purpose.CALIBRATION, 8).arrays
    assert all(0 <= array.min() < array.max() <= 1 for array in rows.values())


@pytest.mark.slow
def test_int8_of_them_is_another_file_and_says_where_it_comes_from(photos, untrained, artifacts):
    path = int8.int8(HERE.model(asked(photos)), artifacts)
    assert path != int8.int8(untrained, artifacts)
    about = cache.notes(path)["calibration"]
    assert (about["n"], about["origin"].partition("#")[0]) == (3, "the user's data mine")


@pytest.mark.wings
def test_an_input_of_the_gate_among_them_is_refused(tmp_path, untrained, artifacts):
    gate = untrained.samples(Purpose.GATE, 2).arrays["input"]
    for i, row in enumerate(gate):
        np.save(tmp_path / f"{i}.npy", row)
    with pytest.raises(UsageError, match=r"E-LEAK-1.*2 calibration inputs"):
        int8.int8(HERE.model(asked(tmp_path)), artifacts)


def test_photographs_all_alike_are_refused(tmp_path, artifacts):
    for i in range(3):
        Image.new("RGB", (300 + i, 300), (0, 0, 0)).save(tmp_path / f"{i}.png")
    with pytest.raises(UnsupportedError, match=r"E-INT8-4.*constant"):
        int8.int8(HERE.model(asked(tmp_path)), artifacts)


def test_the_option_belongs_to_int8():
    assert int8_options({"calibration": "mine#1", "threads": 2}, "int8") == {}
    with pytest.raises(UsageError, match=r"E-OPT-3.*fp32"):
        int8_options({"calibration": "mine#1"}, "fp32")
    with pytest.raises(UsageError, match="E-OPT-4"):
        int8_options({"fallback": "perhaps"}, "int8")
    assert int8_options(Spec(options={"threads": 1}).options, "fp32") == {}
