"""A detector's file, watched with: the pipeline gives the scores that the detector itself gives, snippet by snippet."""

from dataclasses import replace

import numpy as np
import pytest

import edgescope
from edgescope.errors import ModelError, UsageError
from films import all_of, film

torch = pytest.importorskip("torch")
pytest.importorskip("av")

from edgescope.wings.anomaly import detector  # noqa: E402
from edgescope.wings.anomaly.detector import named  # noqa: E402
from edgescope.wings.anomaly.heads import HEADS  # noqa: E402
from edgescope.wings.anomaly.preparation import preparation  # noqa: E402
from edgescope.wings.anomaly.verb import chain  # noqa: E402
from edgescope.wings.video.alarm import Rule  # noqa: E402
from edgescope.wings.video.sources.file import File  # noqa: E402

pytestmark = pytest.mark.network

HEAD = "light_head"


def written(path, *, network="frames_lite0", crops=1, normalisation="weights", threshold=0.25):
    """A detector whose head has random weights that differ from those of the zoo."""
    prepared = preparation(network, crops=crops, normalisation=normalisation)
    torch.manual_seed(7)
    head = HEADS[HEAD](prepared.width)
    state = {name: 3 * value for name, value in head.state_dict().items()}
    detector.write(path, detector.Checkpoint(HEAD, prepared, state, None, {"threshold": threshold}))
    return path


@pytest.mark.parametrize("crops", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_the_online_scores_are_the_heads_over_a_window_of_the_detectors_own_features(tmp_path, crops):
    clip = film(tmp_path / "film.mp4", 40 if crops == 1 else 24, size=(170, 128))
    network = "frames_lite0" if crops == 1 else "motion"  # the smallest: ten crops are ten times the work
    path = written(tmp_path / "detector.pt", network=network, crops=crops)
    one = detector.Detector.load(path)
    frames = np.stack([frame.pixels for frame in all_of(File(clip, size=one.preparation.frame_size))])
    # the last snippet of a stream ends with the last frame, that of the extractor begins after the one before it
    pieces = [frames[0:16], frames[16:32], frames[24:40]] if crops == 1 else [frames[0:16], frames[8:24]]
    features = np.concatenate([one.features(piece) for piece in pieces])
    expected = []
    for number in range(1, len(pieces) + 1):
        window = np.concatenate([np.repeat(features[:1], 32 - number, axis=0), features[:number]])
        expected.append(float(one.scores(window)[-1]))
    one.close()
    scores = []
    found = edgescope.watch(str(clip), detector=path, scored=lambda scored: scores.append(scored.score))
    assert np.ptp(expected) > 1e-4
    assert scores == pytest.approx(expected, abs=1e-6)
    assert found.summary["rule"].startswith("on=0.25,off=0.25")


def test_what_a_file_names(tmp_path):
    plain = named(written(tmp_path / "a.pt"))
    assert plain.features == "frames_lite0" and plain.head.startswith("light_head@")
    assert plain.options == {"views": 1, "normalisation": "weights"}
    assert plain.threshold == 0.25
    again = named(written(tmp_path / "b.pt", crops=10, threshold=None))
    assert again.options == {"views": 10, "normalisation": "weights"} and again.threshold is None
    assert again.head == plain.head  # the same weights are one file in the cache
    other = named(written(tmp_path / "c.pt", network="i3d_r50", normalisation="rtfm"))
    assert other.options == {"views": 1, "normalisation": "rtfm"} and other.head != plain.head


@pytest.mark.parametrize(
    ("threshold", "rule", "on", "origin"),
    [
        (0.25, "", 0.25, "own"),
        (0.25, "min_s=1,smooth=3", 0.25, "own"),
        (0.25, "on=0.7", 0.7, "given"),
        (None, "", 0.5, "default"),
    ],
)
def test_the_threshold_is_told_with_where_it_comes_from(tmp_path, threshold, rule, on, origin):
    path, said = written(tmp_path / "a.pt", threshold=threshold), []
    trial = chain("film.mp4", detector=path, rule=rule, tell=said.append)
    assert Rule.of(str(trial.workload_options["alarm"])) == replace(Rule.of(rule), on=on, off=min(0.4, on))
    assert len(said) == 1 and f"{on:g}" in said[0] and origin in said[0]


SEEN = (
    {},
    {"options": {"decode": "full"}},
    {"options": {"decode": "scaled"}},
    {"options": {"decode": "full", "preprocess": "image"}},
    {"source": "paced:{}@80", "options": {"decode": "full", "queue": "block"}},
    {"source": "paced:{}@80", "options": {"queue": "block"}},
)


@pytest.mark.slow
def test_a_score_does_not_depend_on_how_the_film_comes_or_on_who_looks_on(tmp_path):
    clip = film(tmp_path / "film.mkv", 32, size=(354, 290), noise=30)
    path = written(tmp_path / "detector.pt", network="motion")
    every = []
    for how in SEEN:
        scores = []
        source = how.get("source", "{}").format(clip)
        seen = edgescope.watch(
            source,
            detector=path,
            options=how.get("options", {}),
            scored=lambda s, to=scores: to.append(s.score),
        )
        dropped = seen.summary["dropped_by_source"] + seen.summary["dropped_by_queues"]
        assert not dropped or "paced" in source  # a busy machine drops frames of a film that is paced
        every.append([] if dropped else scores)
    assert len(every[0]) == 2 and np.ptp(every[0]) > 1e-5
    for how, scores in zip(SEEN, every, strict=True):
        assert not scores or scores == pytest.approx(every[0], abs=1e-6), how


def test_a_frame_that_is_scaled_for_a_network_is_there_for_people_in_its_own_size(tmp_path):
    clip = film(tmp_path / "film.mkv", 2, size=(96, 64))
    small = all_of(File(clip, size=(32, 32)))[1]
    both = all_of(File(clip, size=(32, 32), whole=True))[1]
    assert (both.pixels == small.pixels).all() and small.whole is None and (small.shown == small.pixels).all()
    assert (both.shown == all_of(File(clip))[1].pixels).all() and both.size == (96, 64)


def test_a_detector_refuses_frames_that_are_prepared_otherwise(tmp_path, monkeypatch):
    clip = film(tmp_path / "film.mkv", 4)
    path = written(tmp_path / "a.pt", network="motion", normalisation="rtfm")
    for option, value in (("views", 10), ("normalisation", "weights")):
        with pytest.raises(UsageError, match="E-ANOMALY-19"):
            edgescope.watch(str(clip), detector=path, options={option: value})
    with pytest.raises(UsageError, match="E-ANOMALY-19"):
        edgescope.watch(str(clip), detector=path, features="i3d_r50")
    edgescope.watch(str(clip), detector=path, options={"views": 1, "normalisation": "rtfm"})
    usual = preparation("motion", normalisation="rtfm")
    for changed in ({"frame_size": (64, 64)}, {"mean": (0.1,) * 3}, {"snippet": 8}):
        odd = replace(usual, **changed)
        assert usual.differs(odd).startswith(next(iter(changed)))
        head = HEADS[HEAD](odd.width)
        detector.write(tmp_path / "odd.pt", detector.Checkpoint(HEAD, odd, head.state_dict(), None, {}))
        with pytest.raises(ModelError, match="E-ANOMALY-18"):
            named(tmp_path / "odd.pt")
    assert not usual.differs(replace(usual, network="motion@mine.pth"))
