"""Folders of pictures as other people have them, read for judging, for training and for anomaly detection.

The situations are those of vision#714 and #2831, mmpretrain#507 and DomainBed#90 (numbers as names, hidden folders),
and of data sets as Kaggle, Roboflow and the makers of UCF-Crime hand them out.
"""

from collections import Counter

import numpy as np
import pytest
from PIL import Image

from edgescope.data import opening
from edgescope.errors import ModelError, UsageError
from edgescope.wings.anomaly import layouts
from edgescope.wings.training import data_sets


@pytest.fixture
def made(tmp_path):
    def make(*places, **texts):
        for i, place in enumerate(places):
            path = tmp_path / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in (".png", ".jpg"):
                Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(path)
            else:
                path.write_bytes(b"")
        for name, text in texts.items():
            (tmp_path / name.replace("_txt", ".txt")).write_bytes(text)
        return tmp_path

    return make


def judged(root):
    found = opening.read(str(root))
    numbers = {
        r.name: found.classes.index(r.label) if isinstance(r.label, str) else r.label for r in found.records
    }
    return numbers, found


def trained(root):
    items = data_sets.Photographs(root, data_sets.Pictures(3, 8, 8))
    return {str(p.relative_to(root)): n for p, n in zip(items.files, items.labels, strict=True)}, items


SYSTEM = [
    ".ipynb_checkpoints/1-checkpoint.jpg",
    "cat/.ipynb_checkpoints/1-checkpoint.jpg",
    "cat/._1.jpg",
    "__MACOSX/cat/._1.jpg",
    "__MACOSX/cat/1.jpg",
    "cat/@eaDir/1.jpg",
    "lost+found/9.jpg",
    "System Volume Information/1.jpg",
    "$RECYCLE.BIN/x/1.jpg",
]


@pytest.mark.parametrize("how", [judged, trained])
def test_what_a_system_left_is_no_data(made, how):
    root = made("cat/1.jpg", "dog/1.jpg", *SYSTEM)
    assert how(root)[0] == {"cat/1.jpg": 0, "dog/1.jpg": 1}


@pytest.mark.parametrize("how", [judged, trained])
def test_a_folder_called_by_a_number_is_that_class_in_training_as_in_judging(made, how):
    root = made(*(f"{k}/a.jpg" for k in range(12)))
    assert how(root)[0] == {f"{k}/a.jpg": k for k in range(12)}
    for k in range(12):
        (root / f"{k}").rename(root / f"{k:03}")
    assert set(how(root)[0].values()) == set(range(12))


@pytest.mark.parametrize("how", [judged, trained])
def test_numbers_beside_names_are_names_and_that_is_said(made, how):
    root = made("7/a.jpg", "12/a.jpg", "other/a.jpg")
    numbers, about = how(root)
    assert numbers == {"12/a.jpg": 0, "7/a.jpg": 1, "other/a.jpg": 2}
    assert any("taken for names" in note for note in about.notes)


def test_the_order_of_names_as_text_is_said_where_people_count_otherwise(made):
    numbers, found = judged(made(*(f"c{k}/a.jpg" for k in (0, 1, 2, 10))))
    assert numbers["c10/a.jpg"] == 2 and any("c10 is class 2" in note for note in found.notes)
    assert not any("order" in n for n in judged(made("d/a.jpg", "e/a.jpg") / "c0")[1].notes)


@pytest.mark.parametrize(
    ("parts", "used"),
    [
        (("train", "val"), "val"),
        (("training", "validation", "test"), "validation"),
        (("Train", "TEST"), "TEST"),
        (("seg_train", "seg_test"), "seg_test"),
        (("train2017", "val2017"), "val2017"),
        (("train_set", "test_set"), "test_set"),
    ],
)
def test_the_held_out_part_judges_the_training_part_trains_and_both_are_said(made, parts, used):
    root = made(*(f"{part}/{kind}/{part}.jpg" for part in parts for kind in ("cat", "dog")))
    numbers, found = judged(root)
    assert set(numbers) == {f"{used}/cat/{used}.jpg", f"{used}/dog/{used}.jpg"}
    assert found.classes == ("cat", "dog") and any(f"{used} is used" in note for note in found.notes)
    numbers, items = trained(root)
    assert numbers == {f"{parts[0]}/cat/{parts[0]}.jpg": 0, f"{parts[0]}/dog/{parts[0]}.jpg": 1}
    assert any(f"{parts[0]} is used" in note for note in items.notes)


def test_classes_are_those_of_all_parts_where_one_lacks_some(made):
    root = made("train/ant/1.jpg", "train/bee/1.jpg", "train/cat/1.jpg", "val/bee/2.jpg", "val/cat/2.jpg")
    numbers, found = judged(root)
    assert numbers == {"val/bee/2.jpg": 1, "val/cat/2.jpg": 2} and found.classes == ("ant", "bee", "cat")
    assert trained(root)[0]["train/cat/1.jpg"] == 2


def test_a_test_part_without_classes_judges_nothing(made):
    root = made("train/cat/1.jpg", "train/dog/1.jpg", "test/1.jpg", "test/2.jpg")
    assert set(judged(root)[0]) == {"train/cat/1.jpg", "train/dog/1.jpg"}


def test_classes_that_are_called_like_parts_are_classes(made):
    assert judged(made("bus/1.jpg", "plane/1.jpg", "train/1.jpg"))[1].classes == ("bus", "plane", "train")
    assert judged(made("test1/1.jpg", "test2/1.jpg") / "test1")[1].classes == ()


@pytest.mark.parametrize(
    "places",
    [
        ("train/cat/1.jpg", "val/cat/1.jpg", "cat/1.jpg"),
        ("images/1.jpg", "images/2.jpg", "masks/1.png", "masks/2.png"),
        ("JPEGImages/1.jpg", "SegmentationClass/1.png"),
    ],
)
def test_what_is_not_clear_is_asked(made, places):
    with pytest.raises(UsageError) as error:
        judged(made(*places))
    assert error.value.code == "E-DATASET-14"


@pytest.mark.parametrize(
    "around", ["photos", "images", "seg_train/seg_train", "train/images", "a/b", "archive/Images"]
)
def test_a_lone_folder_around_the_data_is_gone_into(made, around):
    root = made(*(f"{around}/{kind}/1.jpg" for kind in ("cat", "dog")))
    assert judged(root)[0] == {f"{around}/cat/1.jpg": 0, f"{around}/dog/1.jpg": 1}
    assert set(trained(root)[0].values()) == {0, 1}


def test_pictures_in_a_lone_folder_of_pictures_have_no_label(made):
    assert judged(made("train/images/1.jpg", "train/images/2.jpg", "train/labels/1.txt"))[0] == {
        "train/images/1.jpg": None,
        "train/images/2.jpg": None,
    }


def test_links_are_followed_once(made):
    root = made("data/cat/1.jpg", "data/dog/1.jpg")
    (root / "set").mkdir()
    for kind in ("cat", "dog"):
        (root / "set" / kind).symlink_to(root / "data" / kind)
    (root / "set" / "cat" / "loop").symlink_to(root / "set")
    assert judged(root / "set")[0] == {"cat/1.jpg": 0, "dog/1.jpg": 1}


@pytest.mark.parametrize(
    "text",
    [b"dog\ncat\n", b"dog\ncat", b"dog\r\ncat\r\n", b"dog\rcat", b"\xef\xbb\xbfdog\ncat\n", b"dog\ncat\n\n\n"]
    + ["dog\ncat\n".encode(code) for code in ("utf-16", "utf-32")],
)
@pytest.mark.parametrize("how", [judged, trained])
def test_classes_txt_is_read_whatever_wrote_it(made, text, how):
    assert how(made("cat/1.jpg", "dog/1.jpg", classes_txt=text))[0] == {"dog/1.jpg": 0, "cat/1.jpg": 1}


def test_classes_txt_in_other_letters(made):
    root = made("Bär/1.jpg", "Möwe/1.jpg", classes_txt="Möwe\nBär\n".encode("cp1252"))
    assert judged(root)[1].classes == ("Möwe", "Bär")


@pytest.mark.parametrize("text", [b"dog\n\ncat\n", b"dog\ncat\ndog\n"])
def test_a_classes_txt_that_leaves_numbers_open_is_refused(made, text):
    with pytest.raises(UsageError) as error:
        judged(made("cat/1.jpg", "dog/1.jpg", classes_txt=text))
    assert error.value.code == "E-LABEL-4"


def test_pictures_that_training_does_not_read_are_counted(made):
    _, items = trained(made("cat/1.jpg", "dog/1.jpg", "dog/2.png", "dog/3.png"))
    assert len(items.files) == 2 and any(note.startswith("2 pictures") for note in items.notes)


# -- videos ------------------------------------------------------------------------------------------------------


def test_parts_of_a_set_of_videos_are_known_by_their_usual_names(made):
    root = made(*(f"{p}/{k}/{p}.mp4" for p in ("train", "val", "test") for k in ("normal", "Fight")))
    found = layouts.read(root)
    assert Counter(v.split for v in found.videos) == {"train": 2, "validation": 2, "test": 2}
    assert {v.category for v in found.videos} == {"normal", "Fight"}


def test_hidden_videos_are_no_videos(made):
    root = made(
        "normal/1.mp4", "Fight/1.mp4", "__MACOSX/normal/._1.mp4", ".trash/2.mp4", "Fight/@eaDir/3.mp4"
    )
    assert {v.name for v in layouts.read(root).videos} == {"normal/1", "Fight/1"}


def ucf(made, lists=""):
    root = made(
        *(f"Abuse/Abuse00{i}_x264.mp4" for i in range(4)),
        *(f"Training_Normal_Videos_Anomaly/N{i}_x264.mp4" for i in range(4)),
        "Testing_Normal_Videos_Anomaly/N9_x264.mp4",
        f"{lists}Anomaly_Train.txt",
        f"{lists}Temporal_Anomaly_Annotation_for_Testing_Videos.txt",
    )
    (root / f"{lists}Anomaly_Train.txt").write_bytes(
        b"".join(
            b"Abuse/Abuse00%d_x264.mp4\r\nTraining_Normal_Videos_Anomaly/N%d_x264.mp4\r\n" % (i, i)
            for i in range(3)
        )
    )
    (root / f"{lists}Temporal_Anomaly_Annotation_for_Testing_Videos.txt").write_text(
        "Abuse003_x264.mp4  Abuse  5  9  -1  -1\nN9_x264.mp4  Normal  -1  -1  -1  -1\n"
    )
    return root


@pytest.mark.parametrize("lists", ["", "Anomaly_Detection_splits/"])
def test_ucf_crime_is_known_by_its_lists(made, lists):
    found = layouts.read(ucf(made, lists))
    assert found.layout == "ucf_crime" and found.found.code == "W-ANOMALY-3"
    assert {v.category for v in found.videos} == {"normal", "Abuse"}
    assert {v.name for v in found.videos if v.split == "test"} == {"Abuse003_x264", "N9_x264"}


def test_ucf_crime_without_its_lists_is_asked_about(made):
    root = ucf(made)
    for path in root.glob("*.txt"):
        path.unlink()
    with pytest.raises(UsageError) as error:
        layouts.read(root)
    assert error.value.code == "E-ANOMALY-17"


@pytest.mark.parametrize(
    ("files", "layout"),
    [
        (("annotations.txt", "videos/A.Beautiful_label_A.mp4"), "xd_violence"),
        (("anomaly_annotation.csv", "Assault/Assault_1.mp4"), "msad"),
    ],
)
def test_other_sets_are_known_by_their_lists(made, files, layout):
    assert layouts.read(made(*files)).layout == layout


def test_a_list_that_names_no_video_is_refused(made):
    with pytest.raises(ModelError) as error:
        layouts.read(made("SH_Train.txt", "SH_Test.txt", "training/videos/01_001.avi"))
    assert error.value.code == "E-ANOMALY-8"


def test_lists_of_two_sets_are_asked_about(made):
    with pytest.raises(UsageError) as error:
        layouts.read(made("SH_Train.txt", "Anomaly_Train.txt", "normal/1.mp4"))
    assert error.value.code == "E-ANOMALY-16"
