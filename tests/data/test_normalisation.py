"""Who says how pictures are prepared, and how labels show it: with models and data made by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from edgescope.data import preprocessing
from edgescope.data.base import Found, Record
from edgescope.errors import UsageError
from edgescope.models.base import TensorSpec
from edgescope.models.image import preprocess
from edgescope.records import Trial

SPEC = TensorSpec("x", (3, 2, 2), "float32")
WAY = preprocess.named("half", SPEC.shape)


def model(spec=SPEC, name="net", **more):
    return SimpleNamespace(inputs=(spec,), info=SimpleNamespace(name=name, digest="d"), **more)


def record(i, load, label=None):
    return Record(f"r{i}", lambda: f"{i:03d}", load, label)


@pytest.fixture
def data(monkeypatch):
    """Let these records lie under every name."""
    held = SimpleNamespace(found=Found([], name="data"), reads=0)

    def read(name):
        held.reads += 1
        return held.found

    monkeypatch.setattr(preprocessing.opening, "read", read)
    return held


@pytest.mark.parametrize(
    ("own", "text", "origin", "mean"),
    [
        ({}, "half", "--preprocess half", 0.5),
        ({}, "unit", "--preprocess unit", 0.0),
        ({}, "", None, None),
        ({"preprocess": WAY}, "", "as net is known to want them", 0.5),
        ({"config": {"mean": [0.25] * 3, "std": [1.0] * 3}}, "", "as net's own config says", 0.25),
        ({"config": None}, "", None, None),
        ({"preprocess": lambda image: image}, "", None, None),
        ({"preprocess": WAY}, "unit", "--preprocess unit", 0.0),
        ({"preprocess": WAY}, "label_offset=1", "as net is known to want them, with --preprocess label_offset=1", 0.5),
        ({}, "label_offset=1,mean=0.125", "--preprocess label_offset=1,mean=0.125", 0.125),
    ],
)  # fmt: skip
def test_the_trial_says_it_or_the_model(own, text, origin, mean):
    found = preprocessing.known(model(**own), Trial(model="net", preprocess=text))
    if origin is None:
        assert found is None
    else:
        assert (found.origin, found.preprocess.mean[0]) == (origin, mean)


def test_an_input_that_is_no_picture_needs_no_preparing():
    assert preprocessing.known(model(TensorSpec("x", (7,), "float32")), Trial(model="net")) is None


@pytest.mark.parametrize(
    "name", ["preprocessor_config.json", "preprocess.toml", "preprocess.json", "config.json"]
)
def test_a_file_beside_the_model_says_it(tmp_path, name):
    (tmp_path / "net.onnx").touch()
    at = f"onnx@{tmp_path / 'net.onnx'}"
    assert preprocessing.beside(at) == ""
    text = "mean = 0.5\nstd = 0.5\n" if name.endswith("toml") else json.dumps({"mean": [0.5], "std": [0.5]})
    (tmp_path / name).write_text(text)
    assert (
        preprocessing.beside(at) == preprocessing.beside(str(tmp_path / "net.onnx")) == str(tmp_path / name)
    )
    (tmp_path / name).write_text('other = "x"\n' if name.endswith("toml") else '{"hidden": 768}')
    assert preprocessing.beside(at) == "" and preprocessing.beside(str(tmp_path / "none.onnx")) == ""


def test_the_surest_file_comes_first(tmp_path):
    (tmp_path / "net.onnx").touch()
    for name in ("config.json", "preprocess.json"):
        (tmp_path / name).write_text(json.dumps({"mean": [0.5], "std": [0.5]}))
    assert preprocessing.beside(str(tmp_path / "net.onnx")) == str(tmp_path / "preprocess.json")


def test_a_trial_carries_words_as_they_are_and_files_pinned(tmp_path, data):
    (tmp_path / "net.onnx").touch()
    own, ours = tmp_path / "preprocess.json", tmp_path / "rules.json"
    for path in (own, ours):
        path.write_text(json.dumps({"mean": [0.5], "std": [0.5]}))
    net = str(tmp_path / "net.onnx")
    for words in ("half", "half,crop=1", "mean=0.5", "size=2,mean=0.5"):
        assert preprocessing.pinned(words, net, "data") == words
    assert preprocessing.pinned("", net) == ""
    assert preprocessing.pinned("", net, "data").startswith(f"{own}#")
    assert preprocessing.pinned(str(ours), net, "data").startswith(f"{ours}#")
    data.found = Found([], rules=str(ours))
    assert (
        preprocessing.pinned("", net, "data").startswith(f"{ours}#") and preprocessing.pinned("", net) == ""
    )
    with pytest.raises(UsageError, match="E-PREPROCESS-1"):
        preprocessing.pinned(str(tmp_path / "none.json"))


def broken():
    raise OSError("broken")


ONES = np.ones((3, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("loads", "ready"),
    [
        ([lambda: ONES], True),
        ([lambda: ONES.astype(np.float64)], True),
        ([lambda: {"x": ONES}], True),
        ([lambda: {}], False),
        ([broken, lambda: ONES], True),
        ([lambda: ONES.astype(np.uint8), lambda: ONES], False),
        ([lambda: ONES[:2]], False),
        ([lambda: Image.new("RGB", (2, 2))], False),
        ([broken], False),
        ([], False),
    ],
)
def test_float_arrays_of_the_inputs_shape_are_inputs_already(data, loads, ready, request):
    data.found = Found([record(i, load) for i, load in enumerate(loads)])
    name = request.node.name
    assert preprocessing.ready(name, SPEC) is ready
    data.found = Found([])
    assert preprocessing.ready(name, SPEC) is ready and data.reads == 1  # it is remembered


@pytest.mark.parametrize(
    ("labels", "shown"),
    [((0, 0, 0, 0), True), ((None, None, None, None), False), ((3, None, None, None), True)],
)
def test_a_label_is_needed_to_show_it(labels, shown):
    found = Found([record(9 - i, broken, label) for i, label in enumerate(labels)], name="data")
    if shown:
        preprocessing.shown_by_labels(model(), found)
        return
    with pytest.raises(UsageError) as caught:
        preprocessing.shown_by_labels(model(), found)
    assert caught.value.code == "E-PREPROCESS-2"
    assert caught.value.evidence == "there are no labelled pictures to show it; it takes 3x2x2"


def picture(level, channels=3):
    shape = (2, 2, 3) if channels == 3 else (2, 2)
    return Image.fromarray(np.full(shape, level, np.uint8))


def grades(spec, name):
    """Return a network that knows dark (0) and light (1) pictures prepared so, and calls all others 9."""
    way = preprocess.named(name, spec.shape)
    dark, light = (float(way(picture(level)).mean()) for level in (70, 170))

    def run(batch):
        mean = batch["x"].reshape(len(batch["x"]), -1).mean(axis=1)
        far = [np.square((mean - level) / (light - dark)) for level in (dark, light)]
        return [-np.stack([*far, *[np.full(len(mean), 99.0)] * 7, np.full(len(mean), 0.09)], axis=1)]

    return lambda of: run


@pytest.fixture
def labelled(data):
    """Twenty pictures, half of them dark (0) and half light (1), all a little different."""

    def made(channels=3):
        data.found = Found(
            [record(i, lambda i=i: picture(60 + i + 100 * (i % 2), channels), i % 2) for i in range(20)],
            name="data",
        )
        return data

    return made


@pytest.mark.parametrize("best", ["imagenet", "half", "unit", "bytes"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_normalisation_with_most_right_answers_is_taken(labelled, request, best, channels):
    data, spec = labelled(channels), TensorSpec("x", (channels, 2, 2), "float32")
    found = preprocessing.searched(model(spec), request.node.name, grades(spec, best))
    assert found.preprocess == preprocess.named(best, spec.shape)
    assert found.origin.startswith(f"{best}, as 15 labelled pictures show (right answers: ")
    assert f"{best} 15" in found.origin
    count = data.reads
    again = preprocessing.searched(model(spec), request.node.name, None)
    assert again == found and data.reads == count  # from the cache


def test_every_usual_normalisation_is_tried(labelled, request):
    for channels, names in ((3, list(preprocess.NAMED)), (1, ["unit", "half", "imagenet", "bytes"])):
        labelled(channels)
        spec = TensorSpec("x", (channels, 2, 2), "float32")
        found = preprocessing.searched(model(spec), f"{request.node.name}{channels}", grades(spec, "unit"))
        said = found.origin.partition("right answers: ")[2].rstrip(")")
        assert [part.split()[0] for part in said.split(", ")] == names


def test_each_picture_is_decoded_once_for_all_of_them(labelled, request):
    data, loads = labelled(), []
    counted = [
        record(i, lambda r=r: loads.append(r.name) or r.load(), r.label)
        for i, r in enumerate(data.found.records)
    ]
    data.found = Found(counted, name="data")
    preprocessing.searched(model(), request.node.name, grades(SPEC, "half"))
    assert len(loads) == len(set(loads)) == 15


def test_sixty_four_pictures_are_enough(data, request):
    data.found = Found(
        [record(i, lambda i=i: picture(20 + i % 90 + 100 * (i % 2)), i % 2) for i in range(120)], name="data"
    )
    found = preprocessing.searched(model(), request.node.name, grades(SPEC, "half"))
    assert "as 64 labelled pictures" in found.origin


def test_a_search_that_nobody_can_run(labelled, request):
    labelled()
    with pytest.raises(UsageError) as caught:
        preprocessing.searched(model(), request.node.name, None)
    assert caught.value.evidence.startswith("the search has not run")


def test_a_network_whose_output_is_no_class_shows_nothing(labelled, request):
    labelled()
    with pytest.raises(UsageError) as caught:
        preprocessing.searched(model(), request.node.name, lambda of: lambda batch: [batch["x"]])
    assert caught.value.evidence.startswith("its output of shape (3, 2, 2) is no class")


def test_maps_of_classes_show_nothing(data, request):
    maps = {"classes": lambda: np.ones((2, 2)), "mark": "m"}
    drawn = [Record(f"r{i}", lambda i=i: f"{i:03d}", lambda: picture(9), **maps) for i in range(1, 8)]
    data.found = Found([*drawn, record(9, lambda: picture(9), 3)], name="data")
    with pytest.raises(UsageError) as caught:
        preprocessing.searched(model(), request.node.name, grades(SPEC, "half"))
    assert caught.value.evidence.startswith("there are no labelled pictures to show it")
    data.found = Found([*drawn[:7], record(9, broken, 3)], name="data")
    with pytest.raises(UsageError) as caught:
        preprocessing.searched(model(), f"{request.node.name}2", grades(SPEC, "half"))
    assert caught.value.code == "E-PREPROCESS-2"


def test_a_score_is_right_answers_then_certainty():
    answer = np.log(np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]))
    right, certain = preprocessing._score(answer, np.array([0, 2, 2]))
    assert right == 2 and certain == pytest.approx(np.log(0.5 * 0.6 * 0.1))
    beyond = preprocessing._score(answer + 100, np.array([0, 3, 2]))
    assert beyond == (1, pytest.approx(np.log(0.5 * 0.1)))


def test_the_names_of_all_normalisations_are_offered():
    found = preprocessing._unknown(model(), "why")
    first, *rest = preprocess.NAMED
    assert found.fix.startswith(f"--preprocess {first} (or {', '.join(rest)}, keys, ")


def test_what_an_earlier_release_found_out_is_found_again(data, labelled):
    """Whoever raises VERSION on purpose changes the names here, too."""
    folder = preprocessing.cache.folder("data")
    labelled()
    preprocessing.searched(model(), "photos#0123456789ab", grades(SPEC, "half"))
    preprocessing.ready("photos#0123456789ab", SPEC)
    names = {"shown-ab65813451f425b4.json", "ready-06992bee5a16202b.json"}
    assert names <= {path.name for path in folder.iterdir()}
