"""A model with a trial's data: split, preparation, labels, and every mistake told by its code."""

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data_sets import SIDE, classifier, coco, folder, picture
from edgescope import cache
from edgescope.bench.parts import HERE
from edgescope.data import dataset_model, opening, preprocessing
from edgescope.data import opening as folders
from edgescope.data.base import Record, content_of
from edgescope.data.dataset_model import with_data
from edgescope.data.samples import split
from edgescope.errors import UnsupportedError, UsageError
from edgescope.isolate import placement
from edgescope.models import zoo
from edgescope.models.base import Purpose, TensorSpec
from edgescope.records import Trial
from edgescope.report import chapter, terminal
from edgescope.report import result as card
from edgescope.study import grid
from edgescope.verify import reference as checks
from edgescope.verify.measures import JUDGED
from edgescope.workloads import gate
from making import result


def trial(model, data="", preprocess="half,crop=1", **keys):
    given = Trial(model=str(model), backend="onnxruntime", data=str(data), preprocess=preprocess, **keys)
    return grid.pinned(given, zoo.pin)


def model_of(*args, **keys):
    return HERE.model(trial(*args, **keys))


@pytest.fixture
def onnx_file(tmp_path):
    return classifier(tmp_path / "c.onnx")


def rows(values):
    """Records with these contents and labels."""
    return [
        Record(f"r{i}", lambda c=c: content_of([np.array(c)]), dict, label)
        for i, (c, label) in enumerate(values)
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([None, 0, 1])), min_size=1, max_size=60))
@pytest.mark.slow
def test_no_content_is_on_both_sides_and_order_decides_nothing(values):
    kinds = {}
    for content, label in values:
        kinds.setdefault(content, set()).add(label)
    sure = [c for c, found in kinds.items() if len(found - {None}) <= 1]
    if len(sure) < 2:
        with pytest.raises(UsageError, match="E-DATASET-2"):
            split(rows(values), "x")
        return
    parts, turned = split(rows(values), "x"), split(rows(values[::-1]), "x")
    ranges, judged = ({r.content() for r in side} for side in (parts.calibration, parts.judged))
    assert not ranges & judged and len(ranges) + len(judged) == len(sure) and ranges
    assert [r.content() for r in parts.judged] == [r.content() for r in turned.judged]
    bare = [c for c in sure if kinds[c] == {None}]
    if len(bare) >= len(ranges):
        assert not any(r.truth for r in parts.calibration)


def test_a_labelled_folder_judges_a_bare_onnx(tmp_path, onnx_file):
    model = model_of(onnx_file, folder(tmp_path / "photos"))
    held, ranges = (model.samples(p, 400) for p in (Purpose.GATE, Purpose.CALIBRATION))
    assert len(held) == 15 and len(ranges) == 5 and not set(held.digests) & set(ranges.digests)
    assert model.info.trained and "photos" in model.info.source
    truth = gate.prepare(model, HERE)
    assert (truth.gate[0].argmax(axis=1) == model.samples(Purpose.GATE, 400).labels).all()


def test_what_is_prepared_once_is_read_from_the_cache(tmp_path, onnx_file):
    of = trial(onnx_file, folder(tmp_path / "photos"))
    first = HERE.model(of).samples(Purpose.GATE, 8)
    for path in (tmp_path / "photos").rglob("*.png"):
        path.unlink()
    again = HERE.model(of).samples(Purpose.GATE, 8)
    assert again.digests == first.digests and (again.labels == first.labels).all()
    assert isinstance(again.arrays["input"], np.memmap)


def test_a_damaged_cache_is_made_again(tmp_path, onnx_file):
    of = trial(onnx_file, folder(tmp_path / "photos"))
    first = HERE.model(of).samples(Purpose.LABELLED, 8)
    for path in cache.folder("data").glob("labelled-*labels.npy"):
        path.unlink()
    assert (HERE.model(of).samples(Purpose.LABELLED, 8).labels == first.labels).all()


def test_a_colocated_model_has_its_own_inputs(tmp_path, onnx_file):
    beside = placement.colocated(trial(onnx_file, folder(tmp_path / "photos"), colocated="squeezenet1_1"))
    assert [(t.data, t.preprocess) for t in beside] == [("", "")]


def test_the_labels_show_how_pictures_are_prepared(tmp_path, onnx_file):
    """Dark is 40, light 210: where no input is below zero, all look light."""
    model = model_of(onnx_file, folder(tmp_path / "photos"), preprocess="")
    middle = float(model.samples(Purpose.GATE, 15).arrays["input"].min())
    assert middle < 0
    bare = folder(tmp_path / "bare" / "x", each=3).parent
    for path in list(bare.rglob("*.png")):
        path.rename(bare / f"{path.parent.name}{path.name}")
    with pytest.raises(UsageError, match=r"E-PREPROCESS-2.*--preprocess imagenet"):
        model_of(onnx_file, bare, preprocess="").samples(Purpose.GATE, 4)


def test_each_labelled_picture_is_decoded_once(tmp_path, onnx_file, monkeypatch):
    opened = []
    plain = folders.opened
    monkeypatch.setattr(folders, "opened", lambda path: opened.append(path) or plain(path))
    of = trial(onnx_file, folder(tmp_path / "photos"), preprocess="")
    preprocessing.searched(zoo.get(of.model), of.data, HERE._fp32)
    assert len(opened) == len(set(opened)) == 15


def test_a_file_beside_the_model_or_the_data_says_it_and_belongs_to_the_trial(tmp_path, onnx_file):
    photos = folder(tmp_path / "photos", each=2)
    beside = tmp_path / "preprocessor_config.json"
    beside.write_text('{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}')
    of = trial(onnx_file, photos, preprocess="")
    assert of.preprocess.startswith(f"{beside}#")
    (photos / "preprocess.toml").write_text("mean = [0, 0, 0]\nstd = 1\n")
    other = trial(onnx_file, photos, preprocess="")
    assert other.preprocess.startswith(str(photos)) and other.id != of.id
    assert HERE.model(other).samples(Purpose.GATE, 4).arrays["input"].min() >= 0


def test_a_networks_own_config_says_it(tmp_path):
    made = Takes((TensorSpec("x", (3, SIDE, SIDE), "float32"),))
    made.config = {"mean": [0.0] * 3, "std": [1.0] * 3, "crop_pct": 1.0}
    known = with_data(made, trial("null", folder(tmp_path / "photos"), ""))
    assert known.samples(Purpose.GATE, 4).arrays["x"].min() >= 0 and known.preprocess.crop == 1


def test_a_network_of_timms_carries_its_config():
    from edgescope.models.user import calling

    class Network:
        default_cfg: ClassVar = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9, "url": "x"}

    assert calling.config_of(Network()) == {"mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9}
    Network.default_cfg = {}
    assert calling.config_of(Network()) is None


def test_both_layouts_and_bytes(tmp_path):
    photos = folder(tmp_path / "photos", each=2)
    nhwc = model_of(classifier(tmp_path / "t.onnx", layout="nhwc"), photos)
    nchw = model_of(classifier(tmp_path / "c.onnx"), photos)
    a, b = (m.samples(Purpose.GATE, 3).arrays["input"] for m in (nhwc, nchw))
    assert a.shape[1:] == (SIDE, SIDE, 3) and np.array_equal(a.transpose(0, 3, 1, 2), b)


@pytest.mark.wings
def test_boxes_follow_the_picture_into_the_input(tmp_path, onnx_file):
    model = model_of(onnx_file, coco(tmp_path), preprocess="half,resize=stretch")
    found = model.samples(Purpose.GATE, 4)
    assert model.info.trained and found.labels is None
    judged = [b[b[:, 5] == JUDGED] for b in found.boxes]
    assert all(np.allclose(b[:, :4], [[4, 4, 6, 5.6]]) for b in judged)


def test_class_maps_are_resized_without_mixing_classes(tmp_path):
    spec = (TensorSpec("x", (3, SIDE, SIDE), "float32"),)
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).random((6, 3, SIDE, SIDE), dtype=np.float32),
             labels=np.random.default_rng(1).integers(0, 5, (6, SIDE, SIDE)))  # fmt: skip
    made = with_data(Takes(spec), trial("null", tmp_path / "a.npz", "unit"))
    assert made.samples(Purpose.LABELLED, 9).labels.shape == (5, SIDE, SIDE)


@pytest.mark.wings
@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_float_arrays_of_the_inputs_shape_are_ready(tmp_path, ending):
    spec, given = (
        (TensorSpec("x", (3, SIDE, SIDE), "float32"),),
        np.random.default_rng(0).random((6, 3, SIDE, SIDE)),
    )
    name = tmp_path / "arrays"
    if ending == "npz":
        name = tmp_path / "a.npz"
        np.savez(name, x=given)
    else:
        name.mkdir()
        for i, one in enumerate(given):
            np.save(name / f"{i}.npy", one)
    made = with_data(Takes(spec), trial("null", name, "")).samples(Purpose.GATE, 9).arrays["x"]
    assert made.dtype == np.float32 and {one.tobytes() for one in made} < {
        one.astype(np.float32).tobytes() for one in given
    }


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).integers(0, 255, (6, SIDE, SIDE, 3), dtype=np.uint8),
        np.random.default_rng(0).integers(0, 255, (6, 3, SIDE, SIDE), dtype=np.uint8),
        np.random.default_rng(0).random((6, SIDE, SIDE, 3)),
    ],
)
def test_other_arrays_ask_how_they_become_inputs(tmp_path, array):
    np.savez(tmp_path / "a.npz", x=array)
    spec = (TensorSpec("x", (3, SIDE, SIDE), "float32"),)
    with pytest.raises(UsageError, match="E-PREPROCESS-2"):
        with_data(Takes(spec), trial("null", tmp_path / "a.npz", "")).samples(Purpose.GATE, 4)


class Takes:
    """A network of which only its inputs are known."""

    def __init__(self, specs):
        self.inputs = specs
        self.info = zoo.get("null").info


# -- bad input -------------------------------------------------------------------------------------------------


def test_images_of_every_mode_and_size_come_out_alike(tmp_path, onnx_file):
    photos = tmp_path / "photos"
    for i, mode in enumerate(("RGB", "L", "P", "RGBA", "LA", "1")):
        picture(photos / f"{mode}.png", 120, i, mode, size=(5 + i, 40))
    picture(photos / "cmyk.jpg", 120, 20, "CMYK")
    deep = np.full((9, 11), 120 * 257, dtype=np.uint16)
    Image.fromarray(deep).save(photos / "deep.png")
    found = [model_of(onnx_file, photos).samples(p, 9) for p in (Purpose.GATE, Purpose.CALIBRATION)]
    levels = np.concatenate([f.arrays["input"].mean(axis=(1, 2, 3)) for f in found])
    assert len(levels) == 8 and "cannot be read" not in found[0].origin
    assert (np.sort(np.abs(levels - (120 / 127.5 - 1)))[:7] < 0.12).all()  # one bit is black or white


def test_a_turned_photograph_is_seen_upright(tmp_path):
    from edgescope.models.image.preprocess import upright

    plain = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6))
    exif = Image.Exif()
    exif[0x0112] = 6
    plain.save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as turned:
        assert upright(turned).size == (4, 6)


def test_what_cannot_be_read_is_counted_and_named(tmp_path, onnx_file):
    photos = folder(tmp_path / "photos", each=6)
    for name in ("bad.png", "cut.jpg"):
        (photos / name).write_bytes(b"\x89PNG no picture" if name == "bad.png" else b"\xff\xd8\xff")
    model = model_of(onnx_file, photos)
    of = trial(onnx_file, photos)
    for _ in range(2):  # the second time from the cache
        model = HERE.model(of)
        found = [model.samples(p, 400) for p in (Purpose.GATE, Purpose.CALIBRATION)]
        assert sum(len(f.unread) for f in found) == 2
        said = chapter.unread(of)
        assert said.startswith(f"2 inputs of {photos} cannot be read: bad.png (") and "cut.jpg (" in said
    dataset_model.leave_unread(of, ["a.png (OSError)", "b.png (OSError)"])
    assert chapter.unread(of).endswith(" and 1 more")
    page = "\n".join(
        "".join(text for text, _ in line) for line in terminal.lines(card.document(result(of)), 300)
    )
    assert "left out" in page and "4 inputs of" in page
    for i in range(30):
        (photos / f"{i}.png").write_bytes(b"nothing %d" % i)
    with pytest.raises(UsageError, match=r"E-DATASET-3: \d+ of \d+ inputs"):
        model_of(onnx_file, photos).samples(Purpose.GATE, 400)


def test_one_image_is_too_few(tmp_path, onnx_file):
    picture(tmp_path / "photos" / "a.png", 5)
    picture(tmp_path / "photos" / "b.png", 5)
    with pytest.raises(UsageError, match=r"E-DATASET-2.*holds 1 input .*2 records"):
        model_of(onnx_file, tmp_path / "photos").samples(Purpose.GATE, 4)


@pytest.mark.slow
def test_labels_beyond_the_classes_and_labels_shifted_by_one(tmp_path):
    photos = folder(tmp_path / "photos", names=("0", "5"))
    with pytest.raises(UsageError, match=r"E-LABEL-1.*it has 3: 0 to 2; found 5"):
        gate.prepare(model_of(classifier(tmp_path / "three.onnx", 3), photos), HERE)
    background = classifier(tmp_path / "background.onnx", 3, first=1)
    photos = folder(tmp_path / "good")
    with pytest.raises(UsageError, match=r"E-LABEL-2: .* 0/15 .* 15/15 .* \+1"):
        gate.prepare(model_of(background, photos), HERE)
    with pytest.raises(UsageError, match="E-LABEL-2"):
        model_of(background, photos, preprocess="").samples(Purpose.GATE, 4)
    mended = model_of(background, photos, preprocess="half,label_offset=1")
    assert gate.prepare(mended, HERE).tally is not None


@given(st.integers(2, 9), st.integers(0, 2**32))
def test_labels_at_chance_are_not_called_shifted(classes, seed):
    rng = np.random.default_rng(seed)
    checks.check_labels(np.eye(classes)[np.zeros(30, int)], rng.integers(0, 1, 30), "a network")
    answer = rng.random((12, classes))
    checks.check_labels(answer, answer.argmax(axis=1), "a network")


def test_a_name_that_is_no_class(tmp_path, onnx_file):
    photos = folder(tmp_path / "photos")
    (photos / "classes.txt").write_text("dark\nbright\n")
    with pytest.raises(UsageError, match=r"E-LABEL-3.*'light'"):
        model_of(onnx_file, photos).samples(Purpose.LABELLED, 40)


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"idx": np.ones((4, 3), np.int64), "mask": np.ones((4, 3), np.float32)}, r"E-DATASET-5.*name it 'ids'"),
        ({"ids": np.ones((4, 2), np.int64), "mask": np.ones((4, 3), np.float32)}, r"E-DATASET-6.*ids.*it is int64 2"),
        ({"ids": np.ones((4, 3)), "mask": np.ones((4, 3), np.float32)}, "E-DATASET-6.*float64"),
        ({"ids": np.ones((4, 3), np.int64), "mask": np.full((4, 3), np.nan, np.float32)}, "E-DATASET-4.*3 of 3 values"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(tmp_path, arrays, code):
    specs = (TensorSpec("ids", (3,), "int64"), TensorSpec("mask", (3,), "float32"))
    arrays = arrays | {"labels": np.arange(4)}
    arrays["ids" if "ids" in arrays else "idx"] += np.arange(4).astype(np.int64)[
        :, None
    ]  # four different rows
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError, match=code):
        with_data(Takes(specs), trial("null", tmp_path / "a.npz", "")).samples(Purpose.GATE, 4)


def test_int8_of_an_unknown_network_asks_for_data(tmp_path, onnx_file):
    from edgescope.backends.base import Spec

    backend = HERE.backend("onnxruntime")
    with pytest.raises(UnsupportedError, match=r"E-INT8-13: .*Try: edgescope optimize c.onnx --data FOLDER"):
        backend.prepare(model_of(onnx_file, preprocess=""), Spec(precision="int8"), tmp_path)
    said = zoo.asks_for_data(str(onnx_file), "")
    assert said is not None and said.code == "W-DATASET-1"
    assert zoo.asks_for_data(str(onnx_file), "photos") is None and zoo.asks_for_data("resnet50", "") is None
    made = backend.prepare(model_of(onnx_file, folder(tmp_path / "photos")), Spec(precision="int8"), tmp_path)
    assert made.path is not None


def test_a_network_known_to_be_untrained_stays_so(tmp_path):
    photos = folder(tmp_path / "photos", each=2)
    model = model_of("lenet5" if "lenet5" in zoo.names() else "squeezenet1_1", photos, preprocess="")
    assert not model.info.trained and len(model.samples(Purpose.GATE, 3)) == 3
    assert opening.bare(trial("null", photos).data) == str(photos)
