"""Layouts of published sets, made as empty files; labels rebuilt from a published annotation."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edgescope.errors import ModelError, UsageError
from edgescope.wings.anomaly import layouts
from edgescope.wings.anomaly.evaluation import frame_labels
from edgescope.wings.anomaly.layouts import Video

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
    assert found.warning.code == "W-ANOMALY-1" and found.warning.what.startswith("1 of 23 ")
    assert {(v.category, v.name[0]) for v in found.videos} == {("normal", "N"), ("Abuse", "A")}
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
    layouts.write_list(tmp_path, made)
    assert layouts.read_list(tmp_path) == made


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
        layouts.read_list(tmp_path)


def test_what_is_no_layout_is_named(tmp_path):
    with pytest.raises(UsageError, match="--layout ucf_crime"):
        layouts.read(tmp_path, "ucf-crime")
    with pytest.raises(ModelError, match="E-ANOMALY-8"):
        layouts.read(tmp_path)


# -- by numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "evidence"), [(0, None), (1, "m0"), (3, "m0, m1, m2"), (4, "m0, m1, m2, ...")]
)
def test_videos_that_are_missing_are_named_up_to_three(tmp_path, missing, evidence):
    there = tuple(Video(f"v{k}", tmp_path / f"v{k}", "train", "normal") for k in range(2))
    found = layouts.VideoSet(tmp_path, "list", there, tuple(f"m{k}" for k in range(missing)))
    assert (found.warning and found.warning.evidence) == evidence and found.found is None
    if missing:
        assert found.warning.what.startswith(f"{missing} of {missing + 2} listed videos")
    assert layouts.VideoSet(tmp_path, "msad", there, by="a.csv").found.evidence == "it holds a.csv"


@pytest.mark.parametrize(
    ("mask", "spans"),
    [
        ([], ()),
        ([0, 0], ()),
        ([1, 1], ((0, 2),)),
        ([0, 1, 1, 0, 5], ((1, 3), (4, 5))),
        ([1, 0, -1, 0], ((0, 1), (2, 3))),
    ],
)
def test_runs_of_a_mask_are_intervals_without_their_end(mask, spans):
    assert layouts.runs(np.array(mask)) == spans


@pytest.mark.parametrize(
    ("row", "spans"),
    [
        ("a.mp4,3,5", {"a": ((3, 5),)}),
        ("x/b,0,1", {"x/b": ((0, 1),)}),
        ("a.b,0,1", {"a.b": ((0, 1),)}),  # no ending of a video
        ("a.mp4,5,5", None),
        ("a.mp4,6,5", None),
        ("a.mp4,,5", None),
        ("a.mp4,3,x", None),
        (",3,5", None),
    ],
)
def test_a_row_of_labels_is_a_video_and_an_interval(tmp_path, row, spans):
    path = tmp_path / "labels.csv"
    path.write_text(f"video,start,end\n{row}\n")
    if spans is not None:
        assert layouts._spans_of(path) == spans
        path.write_text(f"video,start,end\n{row}\n{row}\n")
        assert layouts._spans_of(path) == {name: span * 2 for name, span in spans.items()}
        return
    with pytest.raises(ModelError, match=r"labels\.csv, row 2"):
        layouts._spans_of(path)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("A.mp4 Abuse 0 9 12 20", ("A", "Abuse", None, ((0, 9), (12, 20)))),
        ("A.mp4 Abuse 5 5 -1 -1", ("A", "Abuse", None, ((5, 5),))),
        ("A.mp4 77 Abuse 1 2 -1 -1", ("A", "Abuse", 77, ((1, 2),))),
        ("N.mp4 Normal -1 -1 -1 -1", ("N", "normal", None, ())),
        ("A.mp4 x Abuse 1 2 -1 -1", ("A", "x", None, ((1, 2),))),
        ("A.mp4 Abuse 1 2 9 8", None),
        ("A.mp4 7 7 Abuse 1 2 -1 -1", None),
    ],
)
def test_a_row_of_ucf_crime_is_a_class_and_two_intervals(tmp_path, row, wanted):
    path = tmp_path / "a.txt"
    path.write_text(f"{row}\n")
    if wanted:
        assert layouts.ucf_annotations(path) == [wanted]
        return
    with pytest.raises(ModelError, match="row 1"):
        layouts.ucf_annotations(path)


def test_rows_of_xd_violence_are_pairs_of_frames(tmp_path):
    files(tmp_path, "videos/a_label_B1-0-0.mp4", "videos/b_label_A.mp4", "videos/c_label_G-B2-0.mp4")
    files(tmp_path, "test_videos/d_label_B6-0-0.mp4", "videos/e_label_X-0.mp4")
    (tmp_path / "annotations.txt").write_text("a_label_B1-0-0 3 9 20 30\n")
    found = {video.name[0]: video for video in layouts.xd_violence(tmp_path)}
    assert {name: (v.split, v.category, v.intervals) for name, v in found.items()} == {
        "a": ("test", "Fighting", ((3, 9), (20, 30))),
        "b": ("train", "normal", ()),
        "c": ("train", "Explosion", None),
        "d": ("test", "CarAccident", None),
        "e": ("train", "X", None),
    }
    for row in ("a_label_B1-0-0 3", "a_label_B1-0-0 3 x"):
        (tmp_path / "annotations.txt").write_text(f"a_label_B1-0-0 3 9\n{row}\n")
        with pytest.raises(ModelError, match="row 2"):
            layouts.xd_violence(tmp_path)


def test_rows_of_msad_are_a_name_and_three_frames(tmp_path):
    files(tmp_path, "Assault_1.mp4", "Fire_2.mp4", "sub/normal/street_3.mp4", "Lone.mp4")
    head = "name,total frames,starting frame of anomaly,ending frame of anomaly\n"
    (tmp_path / "anomaly_annotation.csv").write_text(f"{head}Assault_1.mp4,90,10,20\n")
    (tmp_path / "test.txt").write_text("Assault_1.mp4\n")
    found = {video.name: video for video in layouts.msad(tmp_path)}
    assert {name: (v.split, v.category, v.intervals, v.frames) for name, v in found.items()} == {
        "Assault_1": ("test", "Assault", ((10, 20),), 90),
        "Fire_2": ("train", "Fire", None, None),
        "street_3": ("train", "normal", (), None),
        "Lone": ("train", "Lone", None, None),
    }
    for row in ("Assault_1.mp4,90,10,x", ",90,10,20"):
        (tmp_path / "anomaly_annotation.csv").write_text(f"{head}Assault_1.mp4,90,10,20\n{row}\n")
        with pytest.raises(ModelError, match="row 3"):
            layouts.msad(tmp_path)


def test_a_name_of_four_digits_is_anomalous_in_shanghaitech(tmp_path):
    files(tmp_path, "videos/01_001.avi", "videos/01_0014.avi", "videos/05_0017.avi")
    (tmp_path / "frames/06_0150").mkdir(parents=True)
    files(tmp_path, "frames/06_0150/000.jpg")
    (tmp_path / "SH_Train.txt").write_text("01_001\n01_0014\n\n")
    (tmp_path / "SH_Test.txt").write_text("05_0017\n06_0150\n")
    (tmp_path / "test_frame_mask").mkdir()
    np.save(tmp_path / "test_frame_mask/05_0017.npy", np.array([0, 1, 1, 0]))
    np.save(tmp_path / "test_frame_mask/01_001.npy", np.array([0, 1]))
    found = layouts.shanghaitech(tmp_path)
    assert [(v.name, v.split, v.category, v.intervals, v.frames) for v in found] == [
        ("01_001", "train", "normal", (), None),
        ("01_0014", "train", "anomaly", None, None),
        ("05_0017", "test", "anomaly", ((1, 3),), 4),
        ("06_0150", "test", "anomaly", None, None),
    ]
    assert found[3].path == tmp_path / "frames/06_0150"


@pytest.mark.parametrize(
    ("kinds", "refused"),
    [
        ({"Normal_videos"}, True),
        ({"normal", "Normal_videos"}, False),
        ({"abnormal"}, False),
        ({"normal_abnormal"}, False),
        ({"theft"}, False),
    ],
)
def test_a_folder_that_is_nearly_called_normal_is_not_guessed(tmp_path, kinds, refused):
    if not refused:
        layouts._normal_known(tmp_path, kinds)
        return
    with pytest.raises(UsageError, match="E-ANOMALY-17"):
        layouts._normal_known(tmp_path, kinds)


def test_a_fifth_of_the_training_videos_of_each_kind_is_for_validation_unless_some_are():
    def some(split, count, category):
        return [Video(f"{category}{split}{k}", Path("x"), split, category) for k in range(count)]

    given = [*some("train", 20, "normal"), *some("train", 10, "theft"), *some("test", 5, "theft")]
    found = list(layouts._with_validation(given))
    counts = Counter((video.split, video.category) for video in found)
    assert counts == {
        **{("train", "normal"): 16, ("validation", "normal"): 4, ("train", "theft"): 8},
        **{("validation", "theft"): 2, ("test", "theft"): 5},
    }
    assert [v.name for v in found] == [v.name for v in given]
    kept = [*given, *some("validation", 1, "theft")]
    assert list(layouts._with_validation(kept)) == kept


@pytest.mark.parametrize(
    ("count", "shares"), [(10, [6, 2, 2]), (5, [3, 1, 1]), (3, [2, 0, 1]), (1, [1, 0, 0])]
)
def test_names_are_split_in_shares_by_their_hashes_alone(count, shares):
    names = [f"video {k}" for k in range(count)]
    found = layouts.by_hash(names)
    assert [list(found.values()).count(split) for split in layouts.SPLITS] == shares
    assert found == layouts.by_hash(names[::-1])


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("a.mp4,train,normal,,96", ("a", "train", "normal", (), 96)),
        ("a.mp4,test,fire,3-9; 12-20,", ("a", "test", "fire", ((3, 9), (12, 20)), None)),
        ("a.b,test,fire,,", ("a.b", "test", "fire", None, None)),
        ("a.mp4,test,fire,9-9,", None),
        ("a.mp4,test,fire,9-8,", None),
        ("a.mp4,test,fire,9,", None),
        ("a.mp4,test,fire,x-9,", None),
        ("a.mp4,test,fire,3-9,x", None),
        ("a.mp4,elsewhere,fire,,", None),
        ("a.mp4,train,normal,3-9,", None),
        ("a.mp4,train,,,", None),
        ("a.mp4,,fire,,", None),
    ],
)
def test_a_row_of_a_list(tmp_path, row, wanted):
    (tmp_path / "videos.csv").write_text(
        f"video,split,category,intervals,frames\nz.mp4,train,normal,,\n{row}\n"
    )
    if wanted is None:
        with pytest.raises(ModelError, match="row 3"):
            layouts.read_list(tmp_path)
        return
    found = layouts.read_list(tmp_path)[1]
    assert (found.name, found.split, found.category, found.intervals, found.frames) == wanted
    layouts.write_list(tmp_path, layouts.read_list(tmp_path))
    assert layouts.read_list(tmp_path)[1] == found


def test_a_list_that_names_nothing_or_one_video_twice_is_refused(tmp_path):
    head = "video,split,category,intervals,frames\n"
    for rows in ("", "a.mp4,train,normal,,\na.avi,train,normal,,\n"):
        (tmp_path / "videos.csv").write_text(head + rows)
        with pytest.raises(ModelError, match="E-ANOMALY-8"):
            layouts.read_list(tmp_path)


def repeated(root):
    (root / "videos.csv").write_text("video,split,category\n" + "a.mp4,train,normal\n" * 2)
    return layouts.read_list(root)


def empty(root):
    (root / "videos.csv").write_text("video,split,category\n")
    return layouts.read_list(root)


@pytest.mark.parametrize(
    ("reading", "name", "said"),
    [
        (layouts.read_list, "videos.csv", "No such file"),
        (empty, "videos.csv", "it names no video"),
        (repeated, "videos.csv", "a stands there twice"),
        (lambda root: layouts._lines(root / "none.txt"), "none.txt", "No such file"),
        (lambda root: layouts._one(root, "*.a", "b.txt"), "", "there is no *.a or b.txt"),
        (lambda root: layouts.read(root), "", "it names no video"),
    ],
)
def test_what_is_no_fault_of_a_row_names_none(tmp_path, reading, name, said):
    with pytest.raises(ModelError) as caught:
        reading(tmp_path)
    assert caught.value.code == "E-ANOMALY-8" and f" {tmp_path / name} " in caught.value.what
    assert said in caught.value.evidence


def test_a_list_of_videos_that_are_not_there_finds_none(tmp_path):
    (tmp_path / "videos.csv").write_text("video,split,category\na.mp4,train,normal\n")
    with pytest.raises(ModelError) as caught:
        layouts.read(tmp_path)
    assert caught.value.code == "E-ANOMALY-8" and f" {tmp_path} " in caught.value.what
    assert "layout list" in caught.value.evidence


@pytest.mark.parametrize(
    ("words", "spans"),
    [
        ("", ()),
        (" ; ", ()),
        ("3-9", ((3, 9),)),
        (" 3 - 9 ; 0-1", ((3, 9), (0, 1))),
        ("3-3", None),
        ("3", None),
        ("-9", None),
        ("3-x", None),
    ],
)
def test_intervals_are_written_as_start_and_end(tmp_path, words, spans):
    if spans is not None:
        assert layouts.spans(words, tmp_path, 7) == spans
        return
    with pytest.raises(ModelError, match=r", row 7 .*is no interval START-END"):
        layouts.spans(words, tmp_path, 7)


def test_a_list_may_lack_columns_and_endings(tmp_path):
    (tmp_path / "videos.csv").write_text("video,split,category\npictures.d,test,fall\nx/b.MP4,train,normal\n")
    first, second = layouts.read_list(tmp_path)
    assert (first.name, first.intervals, first.frames, first.anomalous) == ("pictures.d", None, None, True)
    assert (second.name, second.intervals, second.path) == ("x/b", (), tmp_path / "x/b.MP4")
    assert not second.anomalous
