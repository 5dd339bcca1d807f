"""Extraction from real videos with a feature network that is only a mean: what is decoded, kept, left out."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import films
from edgescope.errors import ModelError, UsageError
from edgescope.frames import opened
from edgescope.records import ModelInfo
from edgescope.wings.anomaly import extract as extraction
from edgescope.wings.anomaly.features import MANIFEST, Engine
from edgescope.wings.anomaly.layouts import Video
from edgescope.wings.anomaly.preparation import Preparation, preparation

PREPARED = Preparation("frames_lite0", 16, 1, (40, 32), (32, 32), (0.0,) * 3, (1.0,) * 3, 3)


class Means:
    """Gives the mean of each channel over a snippet; remembers the batches it was given."""

    def __init__(self, prepared, engine):
        self.preparation, self.engine, self.batches = prepared, engine, []
        self.model = ModelInfo("means", "features", False, "", "digest", 0, 0)
        made.append(self)

    def run(self, inputs):
        self.batches.append(len(inputs))
        return inputs.mean(axis=(2, 3, 4))

    def close(self):
        pass


made = []


@pytest.fixture(autouse=True)
def means(monkeypatch):
    made.clear()
    monkeypatch.setattr(extraction, "Extractor", Means)


def videos(folder, *lengths, **more):
    paths = [films.film(folder / f"v{n}.mp4", frames, **more) for n, frames in enumerate(lengths)]
    return [Video(path.stem, path, "train", "normal") for path in paths]


def run(found, out, **more):
    return extraction.extract(found, out, PREPARED, engine=Engine(batch=4), **more)


@pytest.mark.codec
@pytest.mark.parametrize("decoders", [1, 3])
def test_every_frame_is_in_a_snippet(tmp_path, decoders):
    done = run(videos(tmp_path, 33, 16, 5, 64), tmp_path / "out", decoders=decoders)
    rows = done.features.rows
    assert [(r.frames, r.snippets, r.repeated) for r in rows] == [
        (33, 3, 15),
        (16, 1, 0),
        (5, 1, 11),
        (64, 4, 0),
    ]
    assert done.frames == 118 and done.new == 4 and done.warning is None
    assert sum(made[0].batches) == 9 and made[0].batches[:-1] == [4, 4]  # batches are filled across videos
    assert [r.fps for r in rows] == [25.0] * 4


@pytest.mark.codec
def test_features_are_those_of_each_snippet_alone(tmp_path):
    found = videos(tmp_path, 40)
    features = run(found, tmp_path / "out").features
    frames = []
    source = films.all_of(opened(str(found[0].path), size=(40, 32)))
    frames = np.stack([frame.pixels for frame in source])
    got = features.features(features.rows[0])
    wanted = PREPARED.inputs(PREPARED.snippets(frames)).mean(axis=(2, 3, 4))
    np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-6)
    last = PREPARED.snippets(frames)[2]
    assert (last[8:] == last[7]).all() and (last[7] == frames[39]).all()


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(tmp_path):
    found = videos(tmp_path, 16, 32, 48)
    out = tmp_path / "out"

    def stop(progress):
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(found, out, tell=stop)
    assert run(found, out).new == 1
    assert run(found, out).new == 0
    films.film(found[1].path, 20)  # another film under the same name
    assert run(found, out).new == 1
    assert run(found, out, overwrite=True).new == 3


@pytest.mark.codec
def test_a_line_that_was_cut_off_is_computed_again(tmp_path):
    found, out = videos(tmp_path, 16, 32), tmp_path / "out"
    run(found, out)
    text = (out / MANIFEST).read_text()
    (out / MANIFEST).write_text(text[:-40])
    done = run(found, out)
    assert done.new == 1 and len(done.features.rows) == 2


@pytest.mark.codec
def test_other_labels_need_no_new_features(tmp_path):
    found, out = videos(tmp_path, 32), tmp_path / "out"
    run(found, out)
    again = run([Video("v0", found[0].path, "test", "theft", ((3, 9),))], out)
    assert again.new == 0
    assert (again.features.rows[0].split, again.features.rows[0].intervals) == ("test", ((3, 9),))


@pytest.mark.codec
def test_another_layout_needs_no_new_features(tmp_path):
    """A video is known by its file, whatever the layout calls it; two that look alike are computed."""
    found = videos(tmp_path, 33, 16)
    run(found, tmp_path / "out")
    other = [replace(v, name=f"Abuse/{v.name}", category="Abuse") for v in found]
    again = run(other, tmp_path / "out")
    assert again.new == 0 and [r.name for r in again.features.rows] == ["Abuse/v0", "Abuse/v1"]
    assert again.features.features(again.features.rows[0]).shape[0] == 3
    assert again.features.rows[0].category == "Abuse"
    assert run(found, tmp_path / "out").new == 0


@pytest.mark.codec
def test_videos_that_cannot_be_used_are_left_out_and_named(tmp_path):
    good = videos(tmp_path, 32)
    empty = tmp_path / "empty.mp4"
    empty.write_bytes(b"")
    whole = films.film(tmp_path / "w.avi", 60, codec="mpeg4", noise=20)
    broken = films.cut(whole, 0.5)
    short = Video("stated", films.film(tmp_path / "s.mp4", 20), "train", "normal", (), 200)
    bad = [Video(p.stem, p, "train", "normal") for p in (empty, broken)]
    done = run([*good, *bad, short], tmp_path / "out", decoders=2)
    assert [r.name for r in done.features.rows] == ["v0"]
    why = {r.name: r.left_out for r in done.features.left_out}
    assert "E-VIDEO-1" in why["empty"] and "E-VIDEO-1" in why["w_cut"]
    assert why["stated"] == "its labels state 200 frames and 20 were decoded"
    assert done.warning.code == "W-ANOMALY-2" and done.warning.what.startswith("3 of 4 videos ")
    skipping = run([bad[1], *good], tmp_path / "two", damaged="skip")
    (row,) = [r for r in skipping.features.rows if r.name == "w_cut"]
    assert row.damaged and 10 < row.frames < 60


def test_a_folder_of_pictures_is_a_video(tmp_path):
    from PIL import Image

    folder = tmp_path / "01_0014"
    folder.mkdir()
    for n in range(20):
        Image.fromarray(films.picture(n)).save(folder / f"{n:03}.png")
    done = run([Video("01_0014", folder, "test", "anomaly", None)], tmp_path / "out")
    assert (done.features.rows[0].frames, done.features.rows[0].repeated) == (20, 12)
    (folder / "005.png").write_bytes(b"no picture")
    with pytest.raises(ModelError, match="names no video with features"):
        run([Video("01_0014", folder, "test", "anomaly", None)], tmp_path / "out")


@pytest.mark.codec
def test_features_that_are_no_numbers_are_named(tmp_path):
    features = run(videos(tmp_path, 40), tmp_path / "out").features
    (row,) = features.rows
    array = features.features(row)
    array[1, 0, 2] = np.nan
    np.save(features.root / row.file, array)
    with pytest.raises(ModelError, match=r"E-ANOMALY-13.*no numbers"):
        features.features(row)
    np.save(features.root / row.file, array[:2])
    with pytest.raises(ModelError, match="its shape is"):
        features.features(row)


def test_ten_crops_are_corners_and_centre_and_their_mirror_images():
    shape = Preparation("x", 2, 10, (10, 8), (4, 6), (0.0,) * 3, (1 / 255,) * 3, 1)
    snippet = np.arange(8 * 10, dtype=np.uint8).reshape(1, 1, 8, 10, 1).repeat(2, 1).repeat(3, 4)
    got = shape.inputs(snippet).reshape(10, 3, 2, 4, 6)
    assert got[:5, 0, 0, 0, 0].round().tolist() == [0, 4, 40, 44, 22]
    np.testing.assert_allclose(got[5:], got[:5, ..., ::-1])


def test_each_network_has_its_own_normalisation():
    pixel = np.full((1, 16, 256, 340, 3), 255, np.uint8)
    own, rtfm = (
        preparation("i3d_r50_nl", normalisation=n).inputs(pixel)[0, 0, 0, 0, 0] for n in ("weights", "rtfm")
    )
    assert own == pytest.approx((255 - 114.75) / 57.375) and rtfm == pytest.approx(1.0)
    assert preparation("s3d").frame_size == (256, 256)
    with pytest.raises(UsageError, match="E-ANOMALY-1"):
        preparation("resnet50")


@pytest.mark.codec
def test_the_manifest_is_one_line_a_video(tmp_path):
    run(videos(tmp_path, 16, 32), tmp_path / "out")
    head, *rows = [json.loads(line) for line in (tmp_path / "out" / MANIFEST).read_text().splitlines()]
    assert head["preparation"]["snippet"] == 16 and [row["snippets"] for row in rows] == [1, 2]


# -- by numbers ------------------------------------------------------------------------------------------------


def prepared(**changed):
    return replace(PREPARED, **{"frame_size": (5, 4), "side": (2, 3), **changed})


@pytest.mark.parametrize("crops", [1, 10])
def test_crops_are_the_middle_or_the_corners_the_middle_and_their_mirror_images(crops):
    frames = np.arange(20, dtype=np.uint8).reshape(1, 4, 5, 1).repeat(3, axis=3)
    how = prepared(snippet=1, crops=crops, mean=(0.0,) * 3, std=(1 / 255,) * 3)
    found = how.inputs(how.snippets(frames))
    assert found.shape == (crops, 3, 1, 2, 3)
    places = [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]
    views = [frames[0, top : top + 2, left : left + 3, 0] for top, left in places]
    wanted = [views[4]] if crops == 1 else [*views, *(view[:, ::-1] for view in views)]
    assert np.allclose(found[:, 0, 0], np.array(wanted), atol=1e-4)


def test_pixels_are_normalised_by_colour():
    how = prepared(snippet=1, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
    found = how.inputs(np.full((1, 1, 4, 5, 3), (255, 0, 51), np.uint8))
    assert found[0, :, 0, 0, 0].tolist() == pytest.approx([1.0, -1.0, 0.1])


@pytest.mark.parametrize(("frames", "snippets"), [(1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_the_last_snippet_is_filled_up_with_its_last_frame(frames, snippets):
    film_ = np.arange(frames, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    found = PREPARED.snippets(film_)[..., 0, 0, 0]
    assert PREPARED.count(frames) == snippets and found.shape == (snippets, 16)
    assert found.flatten().tolist() == [min(k, frames - 1) for k in range(16 * snippets)]


def test_frames_of_another_size_are_scaled_and_those_of_this_size_are_not():
    how, frames = prepared(), np.zeros((2, 4, 5, 3), np.uint8)
    assert how.scaled(frames) is frames
    other = how.scaled(np.full((2, 5, 4, 3), 7, np.uint8))
    assert other.shape == (2, 4, 5, 3) and (other == 7).all()


def test_preparations_differ_in_what_they_do_and_not_in_whose_weights_they_have():
    mine = preparation("motion")
    assert mine.differs(replace(mine, network="motion@a")) == "" and mine.normalisation == "weights"
    assert mine.differs(replace(mine, crops=10, snippet=9)) == "snippet 9, not 16, crops 10, not 1"
    assert preparation("motion", normalisation="rtfm").mean == (0.5,) * 3
    assert preparation("motion", normalisation="rtfm").std == (0.5,) * 3
    assert replace(mine, mean=(9.0,) * 3).normalisation == ""
    for keys in ({"crops": 2}, {"crops": 0}, {"normalisation": "x"}):
        with pytest.raises(UsageError, match="E-ANOMALY-2"):
            preparation("motion", **keys)


def test_a_batch_of_an_engine_is_filled_with_its_last_row_and_only_whole_batches_are_asked_for():
    from edgescope.wings.anomaly.features import Extractor

    asked, one = [], Extractor.__new__(Extractor)
    one.preparation, one.engine, one._name = PREPARED, Engine(batch=4), "x"
    one._session = lambda batch: asked.append(batch["x"][:, 0].tolist()) or [batch["x"] * 2.0]
    inputs = np.arange(30, dtype=np.float32).reshape(10, 3)
    assert (one.run(inputs) == inputs * 2).all()
    assert asked == [[0, 3, 6, 9], [12, 15, 18, 21], [24, 27, 27, 27]]
    asked.clear()
    assert one.run(inputs[:4]).shape == (4, 3) and len(asked) == 1
    frames = np.zeros((33, 32, 40, 3), np.uint8)
    one._session = lambda batch: [np.arange(4 * 3, dtype=np.float32).reshape(4, 3)]
    assert one(frames).shape == (3, 1, 3)
    assert (Engine().backend, Engine().device, Engine().precision, Engine().batch) == (
        "torch_eager",
        "",
        "fp32",
        1,
    )


@pytest.mark.codec
@pytest.mark.parametrize(
    ("stated", "left_out"), [(33, False), (49, False), (50, True), (17, False), (16, True), (None, False)]
)
def test_a_count_of_frames_that_is_more_than_a_snippet_off_leaves_a_video_out(tmp_path, stated, left_out):
    found, other = videos(tmp_path, 33, 16)
    done = run([replace(found, frames=stated), other], tmp_path / "out")
    assert len(done.features.left_out) == left_out and done.frames == (16 if left_out else 49)


@pytest.mark.parametrize(
    ("count", "evidence"),
    [(1, "a0: why"), (3, "a0: why; a1: why; a2: why"), (4, "a0: why; a1: why; a2: why; ...")],
)
def test_videos_that_were_left_out_are_named_up_to_three(count, evidence):
    out = tuple(SimpleNamespace(name=f"a{k}", left_out="why") for k in range(count))
    done = extraction.Extracted(SimpleNamespace(left_out=out, rows=(1, 2)), 0, 0, 0.0)
    assert done.warning.evidence == evidence and done.warning.what.startswith(
        f"{count} of {count + 2} videos"
    )


@pytest.mark.parametrize(
    ("batch", "crops", "most"), [(1, 1, 1), (4, 1, 4), (1, 10, 1), (9, 10, 1), (25, 10, 2)]
)
def test_what_is_decoded_at_once_fills_a_batch(monkeypatch, batch, crops, most):
    asked = []
    monkeypatch.setattr(extraction, "decoded", lambda *given, **how: asked.append(how["most"]) or ())
    prepared_ = replace(PREPARED, crops=crops)
    extractor = SimpleNamespace(preparation=prepared_, engine=Engine(batch=batch), run=None)
    job = extraction._Job(SimpleNamespace(path=None), "key")
    assert list(extraction._computed([job], extractor, 1, "stop")) == [job]
    assert asked == [most] and job.expected == 0


@pytest.mark.parametrize(("decoders", "waiting"), [(1, 4), (3, 12)])
def test_few_chunks_wait_for_the_engine(monkeypatch, decoders, waiting):
    sizes, whole = [], extraction.queue.Queue
    monkeypatch.setattr(extraction.queue, "Queue", lambda size: sizes.append(size) or whole(size))
    extractor = SimpleNamespace(preparation=PREPARED, engine=Engine(), run=None)
    assert list(extraction._computed([], extractor, decoders, "stop")) == [] and sizes == [waiting]
