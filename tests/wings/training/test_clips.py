"""UCF50's layout: read, split by recording, cut; and what is said of folders that do not do."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cutting
from edgescope.errors import ModelError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.wings.training import clip_data

pytestmark = pytest.mark.codec

ENTRY = zoo.table()["har_densenet"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Equal videos of two tests share nothing."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))


def still(n, value, *, height=72, width=96):
    """n grey frames whose brightness grows by one each."""
    return np.broadcast_to(np.arange(value, value + n)[:, None, None, None], (n, height, width, 3)).astype(
        np.uint8
    )


def layout(root, names, *, n=8):
    """Write one short video a name, each of its own content."""
    for index, name in enumerate(names):
        cutting.write(root / name, still(n, 10 + 5 * index))
    return root


@pytest.fixture
def small(tmp_path):
    """Two classes of three groups; two videos of a group."""
    names = [f"{c}/v_{c}_g{g:02}_c{k:02}.avi" for c in ("Dive", "Jump") for g in (1, 2, 3) for k in (1, 2)]
    return layout(tmp_path / "small", names)


def test_no_recording_is_on_both_sides_and_every_class_is(small):
    data = clip_data.read(small)
    training, held = ({v.group for v in side} for side in (data.training, data.held_out))
    assert data.classes == ("Dive", "Jump")
    assert training.isdisjoint(held)
    assert training | held == {"g01", "g02", "g03"}
    assert {v.label for v in data.held_out} == {v.label for v in data.training} == {0, 1}
    assert len(data.training) + len(data.held_out) == 12
    assert data.warning is None


def test_the_split_does_not_depend_on_where_the_folder_is_nor_on_other_videos_being_readable(small, tmp_path):
    before = clip_data.read(small)
    moved = shutil.copytree(small, tmp_path / "moved")
    assert clip_data.read(moved).digest == before.digest
    broken = next(v for v in before.training if v.label == 0)
    (moved / "Dive" / broken.path.name).write_bytes(b"no video")
    after = clip_data.read(moved)
    assert [v.path.name for v in after.held_out] == [v.path.name for v in before.held_out]
    assert after.digest != before.digest


names = st.lists(st.sampled_from([f"g{i:02}" for i in range(12)]), min_size=2, max_size=12, unique=True)


@given(st.dictionaries(st.sampled_from("ABCD"), names, min_size=2))
@pytest.mark.slow
def test_a_fifth_of_the_groups_is_held_out_and_one_of_each_class(groups):
    from pathlib import Path

    files = {c: [Path(f"{c}/v_{c}_{g}_c01.avi") for g in gs] for c, gs in groups.items()}
    held = clip_data._held_out(files)
    everything = {g for gs in groups.values() for g in gs}
    assert held <= everything
    assert len(held) >= len(everything) / 5
    assert all(held & set(gs) for gs in groups.values())


def test_a_file_without_a_group_in_its_name_is_one(tmp_path):
    data = clip_data.read(layout(tmp_path / "own", ["A/1.avi", "A/2.avi", "B/1.avi", "B/2.avi"]))
    assert {v.group for v in data.training + data.held_out} == {"A/1.avi", "A/2.avi", "B/1.avi", "B/2.avi"}


def test_bad_videos_are_left_out_and_counted(small):
    (small / "Dive" / "v_Dive_g09_c01.avi").write_bytes(b"")
    whole = (small / "Dive" / "v_Dive_g01_c01.avi").read_bytes()
    (small / "Jump" / "v_Jump_g09_c01.avi").write_bytes(whole[: len(whole) // 20])
    (small / "Jump" / "v_Jump_g09_c02.avi").write_bytes(whole)
    (small / "Jump" / "notes.txt").write_text("no video, and not meant to be")
    cutting.write(small / "Jump" / "v_Jump_g09_c03.avi", still(1, 200))
    data = clip_data.read(small)
    assert len(data.skipped) == 4
    assert data.warning.code == "W-CLIPS-1" and data.warning.what.startswith("4 of 16 videos ")
    assert any(
        "v_Jump_g09_c02.avi: the same file as Dive/v_Dive_g01_c01.avi" in text for text in data.skipped
    )
    assert any("v_Jump_g09_c03.avi: 1 usable frames" in text for text in data.skipped)


@pytest.mark.parametrize(
    ("files", "classes", "says"),
    [
        ([], (), "E-CLIPS-1.*ROOT/CLASS/video.avi"),
        (["A/1.avi", "A/2.avi"], (), "E-CLIPS-2.*one class, A"),
        (["A/1.avi", "A/2.avi", "B/1.avi"], (), "E-CLIPS-4.*the videos of B"),
        (["A/1.avi", "A/2.avi", "B/1.avi", "B/2.avi"], ("A", "C"), "E-CLIPS-1.*there: A, B"),
        (["A/1.avi", "A/2.avi", "B/1.avi", "B/2.avi"], ("A", "A"), "E-CLIPS-2"),
    ],
)
def test_folders_that_do_not_do_say_why(tmp_path, files, classes, says):
    with pytest.raises(ModelError, match=says):
        clip_data.read(layout(tmp_path / "data", files), classes)


def test_a_class_without_videos_is_named(small):
    (small / "Empty").mkdir()
    with pytest.raises(ModelError, match=r"E-CLIPS-3.*Empty.*--classes Dive,Jump"):
        clip_data.read(small)
    assert clip_data.read(small, ["Jump", "Dive"]).classes == ("Dive", "Jump")


def test_a_class_of_unreadable_videos_is_refused(small):
    for path in (small / "Dive").iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"E-CLIPS-4.*Dive.*0 groups are readable"):
        clip_data.read(small)


def test_a_clip_is_every_second_frame_in_order(tmp_path):
    cutting.write(tmp_path / "A" / "1.avi", still(60, 20))
    content = "0" * 64
    assert clip_data._kept(tmp_path / "A" / "1.avi", content) == 30
    video = clip_data.Video(tmp_path / "A" / "1.avi", 0, "g", content, 30)
    assert list(video.starts) == list(range(15))
    cut = clip_data.clip(video, 4)
    assert cut.shape == (16, 64, 64, 3)
    wanted = 20 + 2 * np.arange(4, 20)
    assert np.abs(cut.mean(axis=(1, 2, 3)) - wanted).max() < 3  # MPEG-4 is lossy


def test_a_video_shorter_than_a_clip_is_spread_over_it(small):
    video = clip_data.read(small).training[0]
    assert (video.frames, list(video.starts)) == (4, [0])
    brightness = clip_data.clip(video, 0).mean(axis=(1, 2, 3))
    assert len(brightness) == 16
    assert (np.diff(brightness) >= 0).all()


def test_frames_are_resized_cropped_in_the_middle_and_normalised(tmp_path):
    frames = np.zeros((4, 100, 200, 3), dtype=np.uint8)
    frames[:, :, 60:140] = (250, 120, 10)
    cutting.write(tmp_path / "a.avi", frames)
    clip_data._kept(tmp_path / "a.avi", "1" * 64)
    cut = clip_data.clip(clip_data.Video(tmp_path / "a.avi", 0, "g", "1" * 64, 2), 0)
    assert np.abs(cut[:, 8:-8, 8:-8].mean(axis=(0, 1, 2)) - (250, 120, 10)).max() < 6
    ready = clip_data.prepared(cut, ENTRY)
    assert (ready.shape, ready.dtype) == ((3, 16, 64, 64), np.float32)
    assert ready[0].mean() > ready[1].mean() > ready[2].mean()
    assert ready[0, 5, 30, 40] == pytest.approx((cut[5, 30, 40, 0] / 255 - 0.45) / 0.225, rel=1e-5)


@pytest.fixture
def origin(small):
    data = clip_data.read(small)
    return clip_data.Origin(data.folder, data.classes, data.digest)


@pytest.mark.slow
def test_no_clip_is_both_calibration_and_gate(origin, small):
    data = clip_data.read(small)
    given = {purpose: clip_data.samples(origin, purpose, 400, ENTRY) for purpose in Purpose}
    assert not set(given[Purpose.CALIBRATION].digests) & set(given[Purpose.GATE].digests)
    assert not set(given[Purpose.CALIBRATION].digests) & set(given[Purpose.LABELLED].digests)
    assert len(given[Purpose.LABELLED]) == len(data.held_out)
    assert given[Purpose.GATE].labels is None
    assert sorted(given[Purpose.LABELLED].labels) == sorted(v.label for v in data.held_out)
    assert given[Purpose.BENCH].arrays["input"].shape[1:] == (3, 16, 64, 64)


def test_the_first_samples_are_the_same_however_many_are_asked_for(origin):
    few, many = (clip_data.samples(origin, Purpose.GATE, n, ENTRY) for n in (2, 3))
    assert few.digests == many.digests[:2]


def test_clips_once_cut_need_no_videos_but_others_do(origin, small):
    kept = clip_data.samples(origin, Purpose.LABELLED, 3, ENTRY)
    shutil.rmtree(small)
    assert clip_data.samples(origin, Purpose.LABELLED, 3, ENTRY).digests == kept.digests
    with pytest.raises(Exception, match=r"E-CLIPS-5.*gone from"):
        clip_data.samples(origin, Purpose.CALIBRATION, 3, ENTRY)


def test_other_videos_than_those_of_the_training_are_refused(origin, small):
    cutting.write(small / "Dive" / "v_Dive_g04_c01.avi", still(8, 99))
    with pytest.raises(ModelError, match="E-CLIPS-6"):
        clip_data.samples(origin, Purpose.GATE, 3, ENTRY)
