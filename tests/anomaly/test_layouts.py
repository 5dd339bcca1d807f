"""Layouts of published sets, made as empty files; labels rebuilt from a published annotation."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.anomaly import frame_labels
from edgescope.anomaly import layouts, videos
from edgescope.anomaly.videos import Video
from edgescope.errors import ModelError, UsageError

UCF = Path(__file__).with_name("ucf_crime_test_annotation.txt")
"""UCF-Crime's test videos with their numbers of frames, from UR-DMU (github.com/henrryzh1/UR-DMU, MIT licence)."""


def files(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return root


def test_ucf_crimes_frame_labels_are_rebuilt():
    rows = layouts.ucf_annotations(UCF)
    labels = [frame_labels(frames, spans) for _, _, frames, spans in rows]
    assert len(rows) == 290
    assert sum(map(len, labels)) == 1_114_144
    assert sum(int(row.sum()) for row in labels) == 84_182
    assert Counter(category == "normal" for _, category, _, _ in rows) == {True: 150, False: 140}


def test_both_forms_of_the_annotation_are_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Abuse028_x264.mp4  Abuse  165  240  -1  -1  \nX/N_1.mp4 530 Normal -1 -1 -1 -1 \n")
    assert layouts.ucf_annotations(path) == [
        ("Abuse028_x264", "Abuse", None, ((165, 240),)),
        ("N_1", "normal", 530, ()),
    ]


@pytest.mark.parametrize("row", ["Abuse028 Abuse 165", "A.mp4 Abuse 240 165 -1 -1", "A.mp4 Abuse x 1 2 3"])
def test_a_wrong_row_is_named(tmp_path, row):
    path = tmp_path / "a.txt"
    path.write_text(f"B.mp4 Abuse 1 2 -1 -1\n{row}\n")
    with pytest.raises(ModelError, match=r"E-ANOMALY-8.*a\.txt, row 2"):
        layouts.ucf_annotations(path)


def test_ucf_crime(tmp_path):
    files(tmp_path, *(f"Videos/Abuse/Abuse{n:03}_x264.mp4" for n in range(11)))
    files(tmp_path, *(f"Videos/Normal/N{n:03}_x264.mp4" for n in range(11)))
    train = [f"Abuse/Abuse{n:03}_x264.mp4" for n in range(10)]
    train += [f"Training_Normal_Videos_Anomaly/N{n:03}_x264.mp4" for n in range(10)]
    (tmp_path / "Anomaly_Train.txt").write_text("\n".join(train))
    (tmp_path / "Temporal_Anomaly_Annotation.txt").write_text(
        "Abuse010_x264.mp4 Abuse 5 9 -1 -1\nN010_x264.mp4 Normal -1 -1 -1 -1\nGone_x264.mp4 Arson 1 2 -1 -1\n"
    )
    found = layouts.read(tmp_path, "ucf_crime")
    assert Counter((v.split, v.anomalous) for v in found.videos) == {
        ("train", True): 8,
        ("validation", True): 2,
        ("train", False): 8,
        ("validation", False): 2,
        ("test", True): 1,
        ("test", False): 1,
    }
    assert found.missing == ("Gone_x264",)
    assert "W-ANOMALY-1: 1 of 23 listed videos are not in" in str(found.warning)
    (test,) = [v for v in found.videos if v.split == "test" and v.anomalous]
    assert test.intervals == ((5, 9),)


def test_shanghaitech(tmp_path):
    files(tmp_path, *(f"training/videos/01_{n:03}.avi" for n in range(6)))
    files(tmp_path, *(f"testing/frames/01_{n:04}/000.jpg" for n in range(6)))
    (tmp_path / "SH_Train.txt").write_text("01_0000\n01_0001\n01_0002\n01_000\n01_001\n01_002\n")
    (tmp_path / "SH_Test.txt").write_text("01_0003\n01_003\n")
    (tmp_path / "testing/test_frame_mask").mkdir()
    np.save(tmp_path / "testing/test_frame_mask/01_0003.npy", np.array([0, 0, 1, 1, 0, 1], np.uint8))
    found = {v.name: v for v in layouts.read(tmp_path, "shanghaitech").videos}
    assert found["01_0003"].intervals == ((2, 4), (5, 6)) and found["01_0003"].frames == 6
    assert found["01_0003"].path.is_dir() and not found["01_003"].anomalous
    assert Counter(v.anomalous for v in found.values()) == {True: 4, False: 4}


def test_xd_violence(tmp_path):
    name = "Bad.Boys__#00-01_label_"
    files(tmp_path, *(f"train/{name}{k}.mp4" for k in ("A", "B1-0-0", "G-0-0", "B2-B6-0")))
    files(tmp_path, "test/v=x_label_B4-0-0.mp4", "test/v=y_label_A.mp4")
    (tmp_path / "annotations.txt").write_text("v=x_label_B4-0-0 10 20 40 55\n")
    found = {v.name: v for v in layouts.read(tmp_path, "xd_violence").videos}
    assert found["v=x_label_B4-0-0"].intervals == ((10, 20), (40, 55))
    assert found["v=x_label_B4-0-0"].category == "Riot"
    assert found["v=y_label_A"].split == "test" and not found["v=y_label_A"].anomalous
    assert {v.category for v in found.values()} == {"normal", "Fighting", "Explosion", "Shooting", "Riot"}


def test_msad(tmp_path):
    files(
        tmp_path, *(f"anomaly/Assault_{n}.mp4" for n in range(9)), *(f"normal/Shop_{n}.mp4" for n in range(9))
    )
    (tmp_path / "anomaly_annotation.csv").write_text(
        "name,scenario,total frames,starting frame of anomaly,ending frame of anomaly\nAssault_1,shop,426,55,426\n"
    )
    found = {v.name: v for v in layouts.read(tmp_path, "msad").videos}
    assert found["Assault_1"].intervals == ((55, 426),) and found["Assault_1"].frames == 426
    assert found["Assault_1"].category == "Assault" and not found["Shop_3"].anomalous


def test_folders_of_ones_own(tmp_path):
    files(tmp_path, *(f"normal/n{n}.mp4" for n in range(10)), *(f"theft/t{n}.mp4" for n in range(10)))
    (tmp_path / "labels.csv").write_text("video,start,end\nt3,16,32\ntheft/t4.mp4,5,9\n")
    found = {v.name: v for v in layouts.read(tmp_path).videos}
    assert Counter(v.split for v in found.values()) == {"train": 12, "validation": 4, "test": 4}
    assert found["theft/t3"].intervals == ((16, 32),) and found["theft/t4"].intervals == ((5, 9),)
    assert found["theft/t5"].intervals is None and found["normal/n1"].intervals == ()
    again = {v.name: v.split for v in layouts.read(tmp_path).videos}
    assert again == {name: v.split for name, v in found.items()}


def test_a_list_is_written_and_read(tmp_path):
    files(tmp_path, "a.mp4", "b.mp4", "c.mp4")
    made = [
        Video("a", tmp_path / "a.mp4", "train", "normal", (), 96),
        Video("b", tmp_path / "b.mp4", "validation", "theft", ((3, 9), (20, 30)), None),
        Video("c", tmp_path / "c.mp4", "test", "theft", None, 12),
    ]
    videos.write(tmp_path, made)
    assert videos.read(tmp_path) == made


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a.mp4,train,normal,3-9,", "a normal video has anomalous frames"),
        ("a.mp4,training,normal,,", "split is 'training'"),
        ("a.mp4,train,theft,9-3,", "'9-3' is no interval"),
        ("a.mp4,train,theft,3-9,many", "frames is 'many'"),
        ("a.mp4,train", "its columns are"),
    ],
)
def test_a_wrong_row_of_a_list_is_named(tmp_path, row, says):
    (tmp_path / "videos.csv").write_text(
        f"video,split,category,intervals,frames\nb.mp4,train,normal,,\n{row}\n"
    )
    with pytest.raises(ModelError, match=rf"videos\.csv, row 3 .*{says}"):
        videos.read(tmp_path)


def test_what_is_no_layout_is_named(tmp_path):
    with pytest.raises(UsageError, match="--layout ucf_crime"):
        layouts.read(tmp_path, "ucf-crime")
    with pytest.raises(ModelError, match="E-ANOMALY-8"):
        layouts.read(tmp_path)
