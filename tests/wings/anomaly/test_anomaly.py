"""`edgescope anomaly`: from films to a judged detector, on real pixels; and what it says of bad requests."""

import json
import re

import pytest

from edgescope.cli.main import main
from edgescope.wings.anomaly import detector, features, generate, train
from edgescope.wings.anomaly.features import read_features

pytestmark = pytest.mark.slow

KINDS = ["--kinds", "freeze,darkness"]
FAST = ["--steps", "20", "--bags", "4", "--judged-every", "10", "--judged-from", "10"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Videos and features of a small set, made once."""
    root = tmp_path_factory.mktemp("anomaly")
    assert (
        main(["anomaly", "generate", str(root / "videos"), "--count", "14", "--size", "96x64", *KINDS]) == 0
    )
    flags = ["--features", "motion", "--batch", "4"]
    assert main(["anomaly", "extract", str(root / "videos"), str(root / "features"), *flags]) == 0
    return root


@pytest.fixture(scope="module")
def trained(folder):
    """Head -> its detector."""
    found = {}
    for head in ("rtfm", "light_head"):
        found[head] = folder / f"{head}.pt"
        flags = ["--head", head, "--output", str(found[head]), "--log", str(folder / f"{head}.csv"), *FAST]
        assert main(["anomaly", "train", str(folder / "features"), *flags]) == 0
    return found


def test_a_generated_set_holds_both_kinds_in_every_split(folder):
    found = read_features(folder / "features")
    for split in ("train", "validation", "test"):
        assert {row.anomalous for row in found.of(split)} == {True, False}
    assert {row.category for row in found.rows} == {"normal", "freeze", "darkness"}
    for row in found.rows:
        assert (row.frames, row.snippets) == (96, 6)
        assert [32 <= end - start <= 48 for start, end in row.intervals] == [True] * row.anomalous


def test_the_same_seed_makes_the_same_pixels(folder, tmp_path, monkeypatch):
    """As they are given to the encoder: x264 does not write the same bytes of them every time."""

    def made(*more):
        given = {}
        monkeypatch.setattr(
            generate, "write_film", lambda path, frames, fps: given.update({path: frames.tobytes()})
        )
        asked = ["anomaly", "generate", str(tmp_path), "--count", "14", "--size", "96x64", *KINDS, *more]
        assert main(asked) == 0
        return given

    other = made("--seed", "1")
    assert made() == made() != other
    assert (tmp_path / "videos.csv").read_text() == (folder / "videos/videos.csv").read_text()


def test_planted_changes_are_in_the_pixels(folder):
    """Frozen frames do not differ, dark ones are dark, outside the interval the film runs on."""
    import numpy as np

    from edgescope.wings.anomaly import layouts
    from edgescope.wings.video.sources.file import File
    from films import all_of

    for video in layouts.read_list(folder / "videos"):
        if video.category not in ("freeze", "darkness"):
            continue
        frames = np.stack([f.pixels for f in all_of(File(video.path))]).astype(float)
        ((start, end),) = video.intervals
        if video.category == "darkness":
            assert frames[start + 6 : end - 6].mean() < 0.4 * frames[:start].mean()
        else:
            change = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))
            assert change[start + 2 : end - 1].mean() < 0.5 * change[:start].mean()


def test_a_detector_is_one_file_that_scores_frames(folder, trained):
    import numpy as np

    found = detector.Detector.load(trained["rtfm"], detector.Engine())
    assert found.snippet == 16 and 0 <= found.threshold <= 1
    frames = np.random.default_rng(0).integers(0, 255, (40, 64, 96, 3), dtype=np.uint8)
    features = found.features(frames)
    assert features.shape == (3, 1, 512)
    scores = found.scores(features)
    assert scores.shape == (3,) and ((scores > 0) & (scores < 1)).all()
    found.close()


def test_training_can_be_read_from_what_it_leaves(folder, trained):
    about = detector.read(trained["rtfm"]).about
    assert about["recipe"]["steps"] == 20 and about["recipe"]["learning_rate"] == 1e-3
    assert about["selected_on"] == "validation" and about["selected_step"] in (10, 20)
    assert (folder / "rtfm.csv").read_text().splitlines()[0] == "number,steps,loss,value,seconds"
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize(("chance", "warned"), [(-1.0, False), (1.0, True)])
def test_training_tells_its_threshold_or_warns_that_there_is_none(
    folder, tmp_path, monkeypatch, capsys, chance, warned
):
    monkeypatch.setattr(train, "CHANCE", chance)
    output = tmp_path / "detector.pt"
    assert main(["anomaly", "train", str(folder / "features"), "--output", str(output), *FAST]) == 0
    said = capsys.readouterr()
    assert ("W-ANOMALY-4" in said.err) == warned
    assert ("alarms at a score of" in said.out) != warned
    assert (detector.read(output).about["threshold"] is None) == warned


def test_the_same_seed_trains_the_same_weights(folder, trained):
    import torch

    again = folder / "again.pt"
    assert main(["anomaly", "train", str(folder / "features"), "--output", str(again), *FAST]) == 0
    first, second = (detector.read(path).head_state for path in (trained["rtfm"], again))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_evaluation_prints_figures_and_compares_two(folder, trained, tmp_path, capsys):
    page, flags = tmp_path / "page.html", ["--draws", "50", "--against", str(trained["light_head"])]
    names = [str(trained["rtfm"]), str(folder / "features")]
    assert main(["anomaly", "evaluate", *names, *flags, "--output", str(page)]) == 0
    said = capsys.readouterr().out
    assert "AUC" in said and "paired by video" in " ".join(said.split())
    assert "False alarms per hour" in page.read_text() and "light_head.pt" in page.read_text()
    assert main(["anomaly", "evaluate", *names, *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 <= found["figures"]["auc"]["value"] <= 1 and found["positive_frames"] > 0
    assert set(found["against"]) >= {"gain", "p"}


def test_features_of_another_network_are_refused(folder, trained, tmp_path, capsys):
    lines = (folder / "features" / features.MANIFEST).read_text().splitlines()
    head = json.loads(lines[0])
    head["preparation"] |= {"network": "s3d", "width": 1024}
    (tmp_path / features.MANIFEST).write_text("\n".join([json.dumps(head), *lines[1:]]))
    assert main(["anomaly", "evaluate", str(trained["rtfm"]), str(tmp_path)]) == 1
    assert re.search(r"E-ANOMALY-15: rtfm\.pt .* motion", " ".join(capsys.readouterr().err.split()))


def test_one_class_only_is_refused(folder, tmp_path, capsys):
    lines = (folder / "features" / features.MANIFEST).read_text().splitlines()
    normal = [line for line in lines[1:] if '"category": "normal"' in line]
    (tmp_path / features.MANIFEST).write_text("\n".join([lines[0], *normal]))
    assert main(["anomaly", "train", str(tmp_path), "--output", str(tmp_path / "d.pt")]) == 2
    assert re.search("E-ANOMALY-6: .*training split", " ".join(capsys.readouterr().err.split()))
    assert not (tmp_path / "d.pt").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["generate", "x", "--count", "4"], 2, "E-ANOMALY-10: 4 clips are too few"),
        (["generate", "x", "--kinds", "fire"], 2, "no anomaly is called fire"),
        (["generate", "x", "--size", "16x16"], 2, "--size 16x16"),
        (["extract", "nowhere", "f"], 2, "E-IO-2"),
        (["extract", "nowhere", "f", "--features", "resnet50"], 2, "E-ANOMALY-1: resnet50"),
        (["train", "nowhere", "--output", "d.pt"], 1, "E-ANOMALY-13"),
        (["train", "nowhere", "--output", "d.pt", "--bags", "3"], 2, "--bags must be even"),
        (["train", "nowhere", "--output", "d.pt", "--head", "rftm"], 2, "--head rtfm"),
        (["evaluate", "nowhere.pt", "nowhere"], 1, "E-ANOMALY"),
    ],
)
def test_bad_requests_say_what_to_do(tmp_path, monkeypatch, capsys, words, code, says):
    monkeypatch.chdir(tmp_path)
    assert main(["anomaly", *words]) == code
    assert says in " ".join(capsys.readouterr().err.split())
