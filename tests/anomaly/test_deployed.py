"""A detector's file, watched with: the pipeline gives the scores that the detector itself gives, snippet by snippet."""

import numpy as np
import pytest

import edgescope
from films import all_of, film

torch = pytest.importorskip("torch")
pytest.importorskip("av")

from edgescope.anomaly import detector  # noqa: E402
from edgescope.anomaly.deployed import named  # noqa: E402
from edgescope.anomaly.preparation import preparation  # noqa: E402
from edgescope.models.anomaly.heads import HEADS  # noqa: E402
from edgescope.video.sources.file import File  # noqa: E402

HEAD = "light_head"


def written(path, *, network="frames_lite0", crops=1, normalisation="weights", threshold=0.25):
    """A detector whose head has random weights that differ from those of the zoo."""
    prepared = preparation(network, crops=crops, normalisation=normalisation)
    torch.manual_seed(7)
    head = HEADS[HEAD](prepared.width)
    state = {name: 3 * value for name, value in head.state_dict().items()}
    detector.write(path, detector.Checkpoint(HEAD, prepared, state, None, {"threshold": threshold}))
    return path


@pytest.mark.parametrize("crops", [1, 10])
def test_the_online_scores_are_the_heads_over_a_window_of_the_detectors_own_features(tmp_path, crops):
    clip = film(tmp_path / "film.mp4", 40 if crops == 1 else 24, size=(170, 128))
    network = "frames_lite0" if crops == 1 else "motion"  # the smallest: ten crops are ten times the work
    path = written(tmp_path / "detector.pt", network=network, crops=crops)
    one = detector.Detector.load(path)
    frames = np.stack([frame.pixels for frame in all_of(File(clip))])
    # the last snippet of a stream ends with the last frame, that of the extractor begins after the one before it
    pieces = [frames[0:16], frames[16:32], frames[24:40]] if crops == 1 else [frames[0:16], frames[8:24]]
    features = np.concatenate([one.features(piece) for piece in pieces])
    expected = []
    for number in range(1, len(pieces) + 1):
        window = np.concatenate([np.repeat(features[:1], 32 - number, axis=0), features[:number]])
        expected.append(float(one.scores(window)[-1]))
    one.close()
    scores = []
    found = edgescope.watch(
        str(clip),
        detector=path,
        options={"decode": "full"},
        scored=lambda scored: scores.append(scored.score),
    )
    assert np.ptp(expected) > 1e-4
    assert scores == pytest.approx(expected, abs=2e-4)
    assert found.summary["rule"].startswith("on=0.25,off=0.25")


def test_what_a_file_names(tmp_path):
    plain = named(written(tmp_path / "a.pt"))
    assert plain.features == "frames_lite0" and plain.head.startswith("light_head@") and plain.options == {}
    assert plain.threshold == 0.25
    again = named(written(tmp_path / "b.pt", crops=10, threshold=None))
    assert again.options == {"views": 10} and again.threshold is None
    assert again.head == plain.head  # the same weights are one file in the cache
    other = named(written(tmp_path / "c.pt", network="i3d_r50", normalisation="rtfm"))
    assert other.options == {"normalisation": "rtfm"} and other.head != plain.head
