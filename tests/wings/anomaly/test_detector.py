"""A detector's file and its scores, with a head that is a sum and a feature network that never runs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from edgescope.errors import ModelError
from edgescope.wings.anomaly import detector
from edgescope.wings.anomaly.detector import Checkpoint, Detector
from edgescope.wings.anomaly.heads import HEADS
from edgescope.wings.anomaly.preparation import Preparation, preparation

PREPARED = Preparation("motion", 16, 2, (40, 32), (32, 32), (0.5,) * 3, (0.25,) * 3, 8)


class Sums(torch.nn.Module):
    """Scores of (N, 32 or more, width): the sum over the width."""

    def forward(self, rows):
        self.seen = rows
        return rows.sum(dim=2)


def checkpoint(prepared=PREPARED, state=None, **about):
    torch.manual_seed(0)
    return Checkpoint("light_head", prepared, HEADS["light_head"](prepared.width).state_dict(), state, about)


def test_a_file_gives_back_what_was_written(tmp_path):
    weights = {"b": torch.ones(2), "a": torch.zeros(3, dtype=torch.int64)}
    given = checkpoint(replace(PREPARED, network="motion@mine.pth"), weights, threshold=0.5, steps=7)
    detector.write(tmp_path / "d.pt", given)
    found = detector.read(tmp_path / "d.pt")
    assert found.preparation == PREPARED and found.head == "light_head"
    assert found.about == {"threshold": 0.5, "steps": 7}
    assert found.feature_state is not None and found.feature_state.keys() == weights.keys()
    assert all(torch.equal(found.head_state[name], value) for name, value in given.head_state.items())
    detector.write(tmp_path / "e.pt", checkpoint())
    assert detector.read(tmp_path / "e.pt").feature_state is None
    assert not found.module().training
    with pytest.raises(ModelError):
        replace(found, preparation=replace(PREPARED, width=9)).module()


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ([1], ".*edgescope anomaly train.*"),
        ({"format": "other"}, ".*edgescope anomaly train.*"),
        ({"format": detector.FORMAT, "head": "none"}, "it holds a head 'none'"),
        ({"format": detector.FORMAT, "head": "rtfm"}, "'preparation'"),
        ({"format": detector.FORMAT, "head": "x" * 400}, "it holds a head '" + "x" * 183),
    ],
)
def test_what_is_no_detector_is_told_why(tmp_path, page, said):
    torch.save(page, tmp_path / "d.pt")
    with pytest.raises(ModelError) as caught:
        detector.read(tmp_path / "d.pt")
    assert caught.value.code == "E-ANOMALY-3" and re.fullmatch(said, caught.value.evidence)
    with pytest.raises(ModelError, match="E-ANOMALY-3"):
        detector.read(tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("about", "threshold"),
    [({"threshold": 0.25}, 0.25), ({"threshold": 1}, 1.0), ({"threshold": None}, None), ({}, None)],
)
def test_a_threshold_is_a_number_or_was_not_chosen(tmp_path, about, threshold):
    found = Detector(checkpoint(**about)).threshold
    assert found == threshold and (found is None or isinstance(found, float))
    usual = preparation("motion")
    path = tmp_path / "d.pt"
    detector.write(path, checkpoint(usual, **about))
    assert detector.named(path).threshold == threshold


@pytest.mark.parametrize("count", [1, 5, 32, 40])
def test_a_score_is_the_mean_over_crops_for_each_snippet(count):
    features = np.random.default_rng(0).random((count, 3, 4)).astype(np.float32)
    head = Sums()
    found = detector.score(head, features)
    assert found.shape == (count,) and head.seen.shape == (3, max(32, count), 4)
    assert found == pytest.approx(features.sum(axis=2).mean(axis=1), rel=1e-5)


def test_features_of_one_crop_need_no_axis_for_it():
    one = Detector(checkpoint())
    one._head = Sums()
    features = np.random.default_rng(0).random((5, 8)).astype(np.float32)
    assert one.scores(features) == pytest.approx(features.sum(axis=1), rel=1e-5)
    assert one.scores(features[:, None]) == pytest.approx(features.sum(axis=1), rel=1e-5)
    assert one.snippet == 16
    with pytest.raises(ModelError, match="E-ANOMALY-4"):
        one.scores(features[:, :7])


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((2, 3, 8), True),
        ((1, 1, 8), True),
        ((2, 8), False),
        ((2, 3, 7), False),
        ((0, 3, 8), False),
        ((2, 3, 8, 1), False),
    ],
)
def test_features_have_three_axes_and_the_networks_width(shape, fits):
    if fits:
        detector.check_features(np.zeros(shape), 8)
        return
    with pytest.raises(ModelError) as caught:
        detector.check_features(np.zeros(shape), 8, "a.npy")
    said = f"their shape is {'x'.join(map(str, shape))}, and (snippets, crops, 8) is needed"
    assert (caught.value.code, caught.value.evidence) == ("E-ANOMALY-4", said)
    assert caught.value.what.startswith("a.npy ")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_snippets_that_hold_no_numbers_are_counted(value):
    features = np.zeros((5, 2, 8))
    features[3, 1, 7] = features[4, 0, 0] = value
    with pytest.raises(ModelError) as caught:
        detector.check_features(features, 8)
    assert re.fullmatch(r"2 of 5 snippets .*, first 3", caught.value.evidence)


def test_weights_lie_in_the_cache_under_their_content():
    weights = {"b": torch.arange(4.0).reshape(2, 2), "a": torch.ones(1)}
    path = detector.stored(weights)
    assert path == detector.stored(dict(reversed(weights.items()))) and path.suffix == ".pth"
    assert torch.equal(torch.load(path)["b"], weights["b"]) and len(path.stem) == 24
    before = path.stat().st_mtime_ns
    assert detector.stored(weights).stat().st_mtime_ns == before
    others = {
        detector.stored({"b": weights["b"].T, "a": weights["a"]}),
        detector.stored({"c": weights["b"], "a": weights["a"]}),
        detector.stored({"b": weights["b"]}),
    }
    assert len(others | {path}) == 4


def test_the_files_own_weights_are_the_feature_networks(tmp_path):
    weights = {"a": torch.ones(1)}
    assert Detector(checkpoint()).preparation == PREPARED
    own = Detector(checkpoint(state=weights)).preparation
    assert own == replace(PREPARED, network=f"motion@{detector.stored(weights)}")
    detector.write(tmp_path / "d.pt", checkpoint(preparation("motion"), weights))
    assert detector.named(tmp_path / "d.pt").features == own.network
    assert detector.user_weights("motion") is None
    torch.save(weights, tmp_path / "w.pth")
    assert torch.equal(detector.user_weights(f"motion@{tmp_path / 'w.pth'}")["a"], weights["a"])


def test_the_engine_starts_with_the_first_frames_and_ends_with_close(monkeypatch):
    log = []

    class Extractor:
        def __init__(self, *given):
            log.append(given)

        def __call__(self, frames):
            return frames + 1

        def close(self):
            log.append("closed")

    monkeypatch.setattr(detector, "Extractor", Extractor)
    one = Detector(checkpoint())
    one.close()
    assert log == []
    assert one.features(2) == 3 and one.features(3) == 4 and log == [(PREPARED, detector.DEFAULT)]
    one.close()
    one.close()
    assert log[1:] == ["closed"]
    assert one.features(2) == 3 and len(log) == 3


@pytest.mark.parametrize("crops", [1, 10])
@pytest.mark.parametrize("normalisation", ["weights", "rtfm"])
def test_a_pipeline_prepares_frames_as_the_detector_did(tmp_path, crops, normalisation):
    prepared = preparation("motion", crops=crops, normalisation=normalisation)
    detector.write(tmp_path / "d.pt", checkpoint(prepared, threshold=0.5))
    found = detector.named(tmp_path / "d.pt")
    assert found.options == {"views": crops, "normalisation": normalisation} and found.features == "motion"
    assert found.head == f"light_head@{detector.stored(checkpoint(prepared).head_state)}"
    detector.write(tmp_path / "e.pt", checkpoint(replace(prepared, mean=(9.0,) * 3)))
    with pytest.raises(ModelError) as caught:
        detector.named(tmp_path / "e.pt")
    assert caught.value.code == "E-ANOMALY-18" and "mean (9.0, 9.0, 9.0)" in caught.value.evidence
