"""Tables of files and labels as pandas, Excel and other people write them.

The situations are those of vision#714, mljar-supervised#245 and fastai#1868: labels with .0, names in an order of text,
and headings that say which column is meant.
"""

import numpy as np
import pytest
from PIL import Image

from edgescope.data import opening
from edgescope.data.samples import number
from edgescope.errors import UsageError


@pytest.fixture
def pictures(tmp_path):
    for i in range(24):
        Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(tmp_path / f"{i}.png")
    return tmp_path


def labels(root, text, encoding="utf-8", name="l.csv"):
    (root / name).write_bytes(text.encode(encoding))
    found = opening.read(str(root / name))
    return [None if r.label is None else number(r, found) for r in found.records], found


def rows(line, heading=""):
    return heading + "".join(line.format(i=i, k=i % 12) for i in range(24))


RIGHT = [i % 12 for i in range(24)]


@pytest.mark.parametrize(
    "text",
    [
        rows("{i}.png,{k}\n"),
        rows("{i}.png,{k}\n", "file,label\n"),
        rows("{i}.png,{k}.0\n", "file,label\n"),
        rows("{i}.png, {k}\n", "file, label\n"),
        rows("{i}.png,{k:03}\n", "file,label\n"),
        rows('"{i}.png","{k}"\r\n', '"file","label"\r\n'),
        rows("{i}.png;{k}\n", "Filename;Class\n"),
        rows("{i}.png\t{k}\n", "Image Path\tTarget\n"),
        rows("{i}.png,3,8,{k}\n", "filename,num_boxes,width,class\n"),
        rows("{k},{i}.png\n", "label,file\n"),
        rows("{i},{i}.png,{k}\n", ",file,label\n"),
        rows("{i}.png,{k},class{k}\n", "image,class_id,class_name\n"),
        rows("{i}.png,train,{k}\n", "file,split,label\n"),
        rows("./{i}.png,{k},\n"),
        rows(".\\{i}.png,{k}\n"),
        rows("{i}.png,{k}\n") + ",\n,,\n\n",
        rows("{i}.png,{k}\n").rstrip("\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_network_that_is_always_right_is_right_on_every_line(pictures, text, encoding):
    found, about = labels(pictures, text, encoding)
    assert found == RIGHT and about.classes == ()


def test_a_column_with_another_word_is_used_and_said(pictures):
    found, about = labels(pictures, rows("{i}.png,{k}\n", "id,breed\n"))
    assert found == RIGHT and about.notes == ("labels are its column 'breed'",)


def test_a_column_that_cannot_be_a_label_is_none(pictures):
    found, _ = labels(pictures, rows("{i}.png,train\n", "file,split\n"))
    assert found == [None] * 24


@pytest.mark.parametrize(
    "text",
    [
        rows("{i}.png,1,2,5,6,{k}\n"),
        rows("{i}.png,1,2\n", "file,melanoma,nevus\n"),
        rows("{i}.png,1,2\n", "file,label,target\n"),
        rows("{i}.png,{k},1,1,5,5\n", "filename,class,xmin,ymin,xmax,ymax\n"),
    ],
)
def test_columns_that_may_mean_anything_are_asked_about(pictures, text):
    with pytest.raises(UsageError) as error:
        labels(pictures, text)
    assert error.value.code == "E-DATASET-15"


def test_a_first_line_whose_file_is_gone_is_no_heading(pictures):
    with pytest.raises(UsageError) as error:
        labels(pictures, "gone.png,3\n0.png,1\n1.png,2\n")
    assert error.value.code == "E-DATASET-9" and "1 of 3: gone.png" in str(error.value)


def test_nothing_known_is_no_label(pictures):
    found, _ = labels(pictures, "file,label\n0.png,\n1.png,NaN\n2.png,2.0\n3.png,NA\n4.png\n")
    assert found == [None, None, 2, None, None]
    assert labels(pictures, "0.png,\n1.png,2\n2.png,\n", name="m.csv")[1].notes == (
        "2 of 3 files have no label",
    )
    assert labels(pictures, "0.png,1\n1.png,2\n", name="n.csv")[1].notes == ()


def test_names_are_numbered_as_text_which_is_said_where_people_count_otherwise(pictures):
    _, about = labels(pictures, rows("{i}.png,c{k}\n"))
    assert about.classes[2] == "c10" and any("c10 is class 2" in note for note in about.notes)
    (pictures / "classes.txt").write_text("\n".join(f"c{k}" for k in range(12)))
    assert labels(pictures, rows("{i}.png,c{k}\n"), name="m.csv")[0] == RIGHT


def test_numbers_beside_names_are_names(pictures):
    found, about = labels(pictures, "0.png,1\n1.png,cat\n2.png,10\n")
    assert found == [0, 2, 1] and about.classes == ("1", "10", "cat")
    assert any("1, 10 are taken for names" in note for note in about.notes)


def test_fractions_are_no_classes(pictures):
    with pytest.raises(UsageError) as error:
        labels(pictures, "0.png,0.25\n1.png,0.5\n2.png,1.0\n")
    assert error.value.code == "E-LABEL-5"


def test_a_name_that_looks_like_a_fraction_is_a_name_among_names(pictures):
    assert labels(pictures, "0.png,0.5\n1.png,a\n2.png,b\n")[1].classes == ("0.5", "a", "b")


def test_labels_below_zero_are_kept_for_the_check_of_labels(pictures):
    assert labels(pictures, "0.png,-1\n1.png,0\n")[0] == [-1, 0]


def test_letters_of_windows_in_names_of_files_and_classes(pictures):
    (pictures / "0.png").rename(pictures / "Käse.png")
    found, about = labels(pictures, "file;label\nKäse.png;süß\n1.png;herb\n", "cp1252")
    assert found == [1, 0] and about.classes == ("herb", "süß")


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b",,\n", b"\0\0\0", b"a" * 300_000, b"file,label\n", b"x\0.png,1\n"]
)
def test_what_is_no_table_of_files_is_refused(pictures, data):
    (pictures / "l.csv").write_bytes(data)
    with pytest.raises(UsageError) as error:
        opening.read(str(pictures / "l.csv"))
    assert error.value.code in ("E-DATASET-9", "E-DATASET-17")


def test_a_mask_that_is_not_there_is_named(pictures):
    with pytest.raises(UsageError) as error:
        labels(pictures, "0.png,gone.png\n1.png,2.png\n")
    assert error.value.code == "E-DATASET-9" and "gone.png" in str(error.value)
