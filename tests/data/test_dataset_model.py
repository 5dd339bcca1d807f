"""A model with a trial's data, where nothing runs: what changes of it, and when it is looked at."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.data import dataset_model, opening
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose, TensorSpec
from edgescope.records import Trial
from edgescope.report import chapter


class Takes:
    """A network of which only its inputs are known."""

    def __init__(self, spec, **facts):
        self.inputs, self.info = (spec,), replace(zoo.get("null").info, **facts)

    def samples(self, purpose, n):
        return f"own {purpose.value} {n}"


ROW = TensorSpec("x", (2,), "float32")


def rows(path, first=0, n=12, **more):
    np.savez(path, x=np.arange(first, first + 2 * n, dtype=np.float32).reshape(n, 2), **more)
    return str(path)


def of(data="", **options):
    pinned = {k: opening.pin(v) for k, v in options.items()}
    return Trial(model="null", data=opening.pin(data) if data else "", options=pinned)


def test_without_data_it_is_the_model_itself():
    model = Takes(ROW)
    assert dataset_model.with_data(model, Trial(model="null")) is model


def test_data_bring_samples_and_make_an_unknown_network_a_trained_one(tmp_path):
    model = Takes(ROW, source="a file")
    made = dataset_model.with_data(model, of(rows(tmp_path / "a.npz")))
    assert made is not model and model.samples(Purpose.GATE, 3) == "own gate 3"
    judged, ranges = made.samples(Purpose.GATE, 99), made.samples(Purpose.CALIBRATION, 99)
    assert (len(judged), len(ranges)) == (9, 3) and not {*judged.digests} & {*ranges.digests}
    assert made.info.trained and made.info.source == f"a file; judged on {tmp_path / 'a.npz'}"
    assert made.info.prepared == ""


@pytest.mark.parametrize(
    ("facts", "trained"), [({"task": "classify"}, False), ({"trained": True}, True), ({}, True)]
)
def test_a_network_of_which_more_is_known_stays_what_it_is(tmp_path, facts, trained):
    made = dataset_model.with_data(Takes(ROW, **facts), of(rows(tmp_path / "a.npz")))
    assert made.info.trained is trained
    assert ("judged on" in made.info.source) is (facts == {})


def test_other_data_set_the_ranges_alone(tmp_path):
    ranges = rows(tmp_path / "r.npz", 100, n=5)
    made = dataset_model.with_data(Takes(ROW), of(calibration=ranges))
    assert made.samples(Purpose.GATE, 3) == "own gate 3"
    assert len(made.samples(Purpose.CALIBRATION, 99)) == 5
    both = dataset_model.with_data(Takes(ROW), of(rows(tmp_path / "a.npz"), calibration=ranges))
    assert both.samples(Purpose.CALIBRATION, 99).arrays["x"].min() == 100
    assert both.samples(Purpose.GATE, 99).arrays["x"].max() == 23


def test_inputs_of_the_gate_never_set_ranges(tmp_path):
    """A picture saved twice is one input, though its files differ: here float64 and float32 of the same numbers."""
    data = rows(tmp_path / "a.npz")
    made = dataset_model.with_data(Takes(ROW), of(data))
    gate = made.samples(Purpose.GATE, 99)
    own = dataset_model._Data(Takes(ROW), of(data), None, None)
    assert own._judged() == gate.digests


def test_what_lies_in_the_cache_is_not_read_again(tmp_path, monkeypatch):
    trial = of(rows(tmp_path / "a.npz", 50))
    first = dataset_model.with_data(Takes(ROW), trial).samples(Purpose.GATE, 4)
    monkeypatch.setattr(dataset_model.samples, "made", None)
    again = dataset_model.with_data(Takes(ROW), trial).samples(Purpose.GATE, 4)
    assert again.digests == first.digests
    with pytest.raises(TypeError):
        dataset_model.with_data(Takes(ROW), trial).samples(Purpose.GATE, 5)


def test_facts_for_the_report_are_left_once_with_the_gates_inputs(tmp_path, monkeypatch):
    trial, left = of(rows(tmp_path / "a.npz", 70)), []
    made = dataset_model.with_data(Takes(ROW), trial)
    leave = dataset_model.leave
    monkeypatch.setattr(dataset_model, "leave", lambda *given: left.append(given[0]) or leave(*given))
    made.samples(Purpose.CALIBRATION, 2)  # which asks for the gate's, to leave them out
    assert left == [trial] and chapter.shown_data(trial).exists()
    made.samples(Purpose.GATE, 3)
    assert left == [trial]
    chapter.shown_data(trial).unlink()
    made.samples(Purpose.BENCH, 3)
    assert left == [trial]
    made.samples(Purpose.GATE, 3)
    assert left == [trial, trial]


def test_inputs_whose_source_is_gone_are_used_from_the_cache(tmp_path):
    trial = of(rows(tmp_path / "a.npz", 90))
    dataset_model.with_data(Takes(ROW), trial).samples(Purpose.GATE, 3)
    chapter.shown_data(trial).unlink()
    rows(tmp_path / "a.npz", 91)
    opening._read.cache_clear()
    assert len(dataset_model.with_data(Takes(ROW), trial).samples(Purpose.GATE, 3)) == 3
    assert not chapter.shown_data(trial).exists()


@pytest.fixture
def net(monkeypatch):
    """Let the network of every name take this input; return what was asked of its data."""
    asked = []

    def knows(spec, described=True):
        model = SimpleNamespace(inputs=(spec,), info=SimpleNamespace(name="net", digest="d"))
        monkeypatch.setattr(dataset_model.zoo, "described", lambda *given: described)
        monkeypatch.setattr(dataset_model.zoo, "get", lambda *given: model)
        return asked

    for module, name in (("samples", "fits"), ("preprocessing", "shown_by_labels")):
        kept = getattr(getattr(dataset_model, module), name)
        monkeypatch.setattr(
            getattr(dataset_model, module), name, lambda *given, n=name, k=kept: asked.append(n) or k(*given)
        )
    return knows


PICTURE = TensorSpec("x", (3, 2, 2), "float32")


def pictures(path, **more):
    np.savez(path, x=np.arange(96, dtype=np.uint8).reshape(8, 2, 2, 3), **more)
    return str(path)


def test_data_are_checked_before_anything_is_built(tmp_path, net):
    asked = net(ROW)
    dataset_model.checked(of(rows(tmp_path / "a.npz")))
    assert asked == ["fits"]
    with pytest.raises(UsageError, match="E-DATASET-6"):
        np.savez(tmp_path / "b.npz", x=np.ones((4, 3)) * np.arange(4)[:, None])
        dataset_model.checked(of(str(tmp_path / "b.npz")))


def test_there_is_nothing_to_check_without_data_or_before_a_network_is_known(tmp_path, net):
    asked = net(ROW, described=False)
    dataset_model.checked(of(rows(tmp_path / "a.npz")))
    net(ROW)
    dataset_model.checked(Trial(model="null"))
    assert asked == []


def test_labels_have_to_show_how_pictures_are_prepared_where_nobody_says_it(tmp_path, net):
    asked = net(PICTURE)
    dataset_model.checked(of(pictures(tmp_path / "a.npz", labels=np.arange(8) % 2)))
    assert asked == ["shown_by_labels"]
    with pytest.raises(UsageError, match="E-PREPROCESS-2"):
        dataset_model.checked(of(pictures(tmp_path / "b.npz")))
    del asked[:]
    trial = of(pictures(tmp_path / "b.npz"))
    dataset_model.checked(Trial(model="null", data=trial.data, preprocess="half"))
    assert asked == ["fits"]
    del asked[:]
    np.savez(tmp_path / "c.npz", x=np.random.default_rng(0).random((8, 3, 2, 2), dtype=np.float32))
    dataset_model.checked(of(str(tmp_path / "c.npz")))
    assert asked == ["fits"]


def test_the_report_says_how_pictures_were_prepared(tmp_path):
    trial = of(pictures(tmp_path / "a.npz"))
    made = dataset_model.with_data(
        Takes(PICTURE), Trial(model="null", data=trial.data, preprocess="half,crop=1")
    )
    assert made.preprocess.crop == 1.0
    assert made.info.prepared == f"--preprocess half,crop=1: {made.preprocess.said}"
    ready = tmp_path / "r.npz"
    np.savez(ready, x=np.random.default_rng(0).random((8, 3, 2, 2), dtype=np.float32))
    assert dataset_model.with_data(Takes(PICTURE), of(str(ready))).info.prepared == ""
