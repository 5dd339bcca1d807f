"""Tables of files and labels: which separator, heading and columns it is, and what is said where that is not clear."""

import csv as csv_

import numpy as np
import pytest
from PIL import Image

from edgescope.errors import UsageError
from edgescope.wings import datasets


@pytest.fixture
def read(tmp_path):
    """Read a table of files 0.png ... 59.png, which are there."""
    for i in range(60):
        (tmp_path / f"{i}.png").touch()

    def reading(text, name="a.csv"):
        (tmp_path / name).write_text(text)
        return datasets.read_csv(str(tmp_path / name))

    return reading


def refused(read, *given):
    """Return code and evidence of the error that reading raises."""
    with pytest.raises(UsageError) as caught:
        read(*given)
    return caught.value.code, caught.value.evidence


def rows(found):
    return [(r.name, r.label) for r in found.records]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_the_one_that_names_files(read, separator):
    found = read("".join(f"{i}.png{separator}cat{i % 2}\n" for i in range(3)))
    assert rows(found) == [("0.png", "cat0"), ("1.png", "cat1"), ("2.png", "cat0")]
    assert found.classes == ("cat0", "cat1") and found.notes == ()


def test_a_separator_within_names_of_classes_is_none(read):
    assert rows(read("0.png;a,b\n1.png;c,d\n")) == [("0.png", "a,b"), ("1.png", "c,d")]


def test_the_first_forty_lines_show_the_separator(read):
    """After them lines that a comma would split stand for nothing."""
    lines = ["0.png,1"] * 20 + ["none.png;1"] * 20 + ["1.png;2"] * 50
    assert datasets._hits(read.__closure__[0].cell_contents, [line.split(",") for line in lines]) == 20
    wide = [line.split(";") for line in ["none.png;1"] * 39 + ["1.png;2"] * 5]
    assert datasets._hits(read.__closure__[0].cell_contents, wide) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("file,label\n0.png,1\n1.png,2\n", [("0.png", 1), ("1.png", 2)]),
        ("0.png,1\n1.png,2\n", [("0.png", 1), ("1.png", 2)]),
        ("Image Path,class-id\n0.png,1\n", [("0.png", 1)]),
        ("what,ever\n0.png,1\n", [("0.png", 1)]),
        ("label,file\n1,0.png\n2,1.png\n", [("0.png", 1), ("1.png", 2)]),
        ("1,0.png\n2,1.png\n", [("0.png", 1), ("1.png", 2)]),
        ("0.png\n1.png\n", [("0.png", None), ("1.png", None)]),
        ("file\n0.png\n", [("0.png", None)]),
        ("\n  \nfile , label \n 0.png , 1 \n\n", [("0.png", 1)]),
        ("file,label\n0.png,1\n1.png\n", [("0.png", 1), ("1.png", None)]),
        ("file,label\n0.png,NaN\n1.png,3\n", [("0.png", None), ("1.png", 3)]),
        ("index,file,split\n1,0.png,a\n2,1.png,b\n", [("0.png", None), ("1.png", None)]),
        ("file,index,kind\n0.png,5,cat\n", [("0.png", "cat")]),
        ("file,other,label\n0.png,,4\n", [("0.png", 4)]),
        (",file,label\n0,0.png,4\n1,1.png,5\n", [("0.png", 4), ("1.png", 5)]),
        ("image,file,label\nx,0.png,4\ny,1.png,5\n", [("0.png", 4), ("1.png", 5)]),
        ("file,image,label\n0.png,1.png,4\n", [("0.png", 4)]),
        ("class_name,file,class_id\ncat,0.png,4\ndog,1.png,5\n", [("0.png", 4), ("1.png", 5)]),
        ("label,file,other\ncat,0.png,4\n", [("0.png", "cat")]),
        ("file,label\n.\\0.png,1\n", [(".\\0.png", 1)]),
    ],
)
def test_heading_and_columns_are_found(read, text, found):
    assert rows(read(text)) == found


def test_a_file_is_found_by_either_slash(read, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "in.png").write_bytes(b"x")
    first, second = read("sub\\in.png,1\nsub/in.png,2\n").records
    assert first.content() == second.content()


def test_a_heading_names_no_file_there_or_not(read):
    assert refused(read, "0.jpg,1\n0.png,2\n") == ("E-DATASET-9", "1 of 2: 0.jpg")
    assert rows(read("0.png,label\n1.png,x\n")) == [("0.png", "label"), ("1.png", "x")]


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("file,label\n0.png,1\n", ()),
        ("file,kind\n0.png,1\n", ("labels are its column 'kind'",)),
        ("file,label,index\n0.png,1,5\n", ("labels are its column 'label'",)),
        ("file,\n0.png,1\n", ("labels are its column 2",)),
        ("file,label,split\n0.png,,a\n", ()),
        ("file,label\n0.png,1\n1.png,\n2.png,\n", ("2 of 3 files have no label",)),
        ("file,label\n0.png,\n1.png,\n", ()),
    ],
)
def test_a_reader_is_told_what_is_not_plain(read, text, notes):
    assert read(text).notes == notes


def test_the_rules_beside_a_table_are_its_own(read, tmp_path):
    assert read("0.png,1\n").rules == ""
    (tmp_path / "preprocess.toml").touch()
    assert read("0.png,1\n", "b.csv").rules == str(tmp_path / "preprocess.toml")


@pytest.mark.parametrize(
    ("head", "body", "code", "evidence"),
    [
        (
            "file,what,ever",
            "0.png,1,2",
            "E-DATASET-15",
            "no word of a heading says which column is the label; heading: file, what, ever",
        ),
        (
            "file,label,class",
            "0.png,1,2",
            "E-DATASET-15",
            "two columns may be the label; heading: file, label, class",
        ),
        (
            "file,label,class",
            "0.png,cat,dog",
            "E-DATASET-15",
            "two columns may be the label; heading: file, label, class",
        ),
        (
            "file,xmin,label",
            "0.png,1,2",
            "E-DATASET-15",
            "a line is a box, and not a picture; heading: file, xmin, label",
        ),
        (
            "0.png,1,2",
            "1.png,3,4",
            "E-DATASET-15",
            "no word of a heading says which column is the label; heading: none",
        ),
        (
            "file,what," + "x" * 400,
            "0.png,1,2",
            "E-DATASET-15",
            ("no word of a heading says which column is the label; heading: file, what, " + "x" * 400)[:300],
        ),
        ("file,label", "", "E-DATASET-9", "no line after the heading"),
        ("file,label", "9.jpg,1\n0.png,2\n,3", "E-DATASET-9", "2 of 3: 9.jpg, an empty cell"),
        (
            "file,label",
            "".join(f"none{i}.png,1\n" for i in range(5)),
            "E-DATASET-9",
            "5 of 5: none0.png, none1.png, none2.png",
        ),
        ("file,label", "y" * 100 + ",1", "E-DATASET-9", "1 of 1: " + "y" * 80),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused_with_its_evidence(read, head, body, code, evidence):
    assert refused(read, f"{head}\n{body}\n") == (code, evidence)


@pytest.mark.parametrize(
    ("head", "fix"),
    [
        ("file,what,labl", "call it `label`, if it is labl"),
        ("file,what,ever", "call it `label`"),
        ("file,label,class", "call it `label`, if it is label"),
        ("file,class,what,target", "call it `label`, if it is class"),
    ],
)
def test_the_column_that_is_nearest_is_offered(read, head, fix):
    with pytest.raises(UsageError) as caught:
        read(f"{head}\n0.png,1,2,3\n")
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("labels", "evidence"),
    [
        (("0.5", "1.25"), "2 fractions such as 0.5"),
        (("0.5", "cat", "7.25"), "2 fractions such as 0.5"),
        (("0.5", "cat"), None),
        (("0.5", "cat", "dog"), None),
        (("-1,5", "+2.25", ".5"), "3 fractions such as +2.25"),
        (("1.0", "2."), None),
        (("1.50", "x1.5"), None),
    ],
)
def test_fractions_are_no_classes(read, labels, evidence):
    text = "file;label\n" + "".join(f"{i}.png;{word}\n" for i, word in enumerate(labels))
    if evidence:
        assert refused(read, text) == ("E-LABEL-5", evidence)
    else:
        assert len(read(text).records) == len(labels)


def test_a_mask_is_a_map_of_classes(read, tmp_path):
    Image.fromarray(np.array([[0, 1, 2]], np.uint8)).save(tmp_path / "mask.png")
    first, second = read("0.png,mask.png\n1.png,mask.png\n").records
    assert first.label is None and first.classes().tolist() == [[0, 1, 2]]
    assert first.mark == second.mark != "" and first.truth
    long = "m" * 90 + ".png"
    with pytest.raises(UsageError) as caught:
        read(f"0.png,{long}\n")
    assert (
        caught.value.code == "E-DATASET-9"
        and caught.value.what == f"the mask {long[-80:]} of 0.png is not there"
    )


def test_a_map_of_classes_is_palette_or_grey(tmp_path):
    palette = Image.fromarray(np.array([[3, 1]], np.uint8), "P")
    palette.putpalette([200, 100, 50] * 4)
    deep = Image.fromarray(np.array([[300, 7]], np.uint16))
    colour = Image.fromarray(np.array([[[9, 9, 9], [5, 5, 5]]], np.uint8))
    for image, wanted in ((palette, [[3, 1]]), (deep, [[300, 7]]), (colour, [[9, 5]])):
        image.save(tmp_path / "m.png")
        assert datasets.class_map(tmp_path / "m.png").tolist() == wanted


@pytest.mark.parametrize("error", [OSError("x" * 400), csv_.Error("x" * 400)])
def test_what_cannot_be_read_as_a_table(read, tmp_path, monkeypatch, error):
    def fails(path):
        raise error

    monkeypatch.setattr(datasets.foreign, "read", fails)
    code, evidence = refused(datasets.read_csv, str(tmp_path / "a.csv"))
    assert code == "E-DATASET-17" and len(evidence) == 200
    assert evidence.startswith(f"{type(error).__name__}: x")


def test_an_empty_table_lists_no_files(read):
    assert refused(read, "") == ("E-DATASET-9", "no line after the heading")
    for text, what in (
        ("", "a.csv lists no files"),
        ("9.jpg\n0.png\n", "a.csv lists files that are not there"),
    ):
        with pytest.raises(UsageError) as caught:
            read(text)
        assert caught.value.what == what
