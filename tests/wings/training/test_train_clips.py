"""`edgescope train clips`: what it prints, what it leaves, and what it says where it cannot train."""

import json
import re

import pytest

import cutting
from edgescope.cli.main import main
from edgescope.wings.training import clip_data


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return cutting.scenes(tmp_path_factory.mktemp("films"), each=2)


@pytest.mark.slow
def test_it_prints_each_epoch_and_leaves_a_model(films, tmp_path, capsys):
    out = tmp_path / "new" / "w.pth"
    flags = [
        "--data",
        str(films),
        "--output",
        str(out),
        "--classes",
        "Street,Talk",
        "--epochs",
        "2",
        "--batch-size",
        "8",
    ]
    (films / "Street" / "v_Street_g02_c09.avi").write_bytes(b"cut off")
    assert main(["train", "clips", "har_densenet", *flags]) == 0
    said = capsys.readouterr()
    assert re.search(r"W-CLIPS-1: 1 of 13 videos .*\(Street/v_Street_g02_c09\.avi", said.err)
    assert "classes: Street, Talk" in said.err
    assert [line.split()[:2] for line in said.err.splitlines() if line.startswith("epoch")] == [
        ["epoch", "1"],
        ["epoch", "2"],
    ]
    assert f"next: edgescope bench har_densenet@{out}" in said.out
    (films / "Street" / "v_Street_g02_c09.avi").unlink()
    assert sorted(path.name for path in out.parent.iterdir()) == ["w.pth", "w.pth.json"]


@pytest.mark.slow
def test_json_is_what_lies_beside_the_weights(films, tmp_path, capsys):
    out = tmp_path / "w.pth"
    assert (
        main(
            [
                "train",
                "clips",
                "har_densenet",
                "--data",
                str(films),
                "--output",
                str(out),
                "--epochs",
                "1",
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed == {
        k: v for k, v in json.loads((tmp_path / "w.pth.json").read_text()).items() if k != "version"
    }


@pytest.mark.codec
@pytest.mark.parametrize(
    ("name", "flags", "code", "says"),
    [
        ("resnet50", [], 2, "E-TRAIN-4: resnet50 "),
        ("har_cnn3d", ["--epochs", "0"], 2, "--epochs must be "),
        ("har_cnn3d", ["--classes", "Street,Fly"], 1, "E-CLIPS-1"),
        ("har_cnn3d", ["--classes", "Street"], 1, "E-CLIPS-2"),
        ("har_cnn3d", ["--data", "/nowhere"], 1, "E-CLIPS-1"),
    ],
)
def test_bad_requests_say_what_to_do(films, tmp_path, capsys, name, flags, code, says):
    assert (
        main(["train", "clips", name, "--data", str(films), "--output", str(tmp_path / "w.pth"), *flags])
        == code
    )
    assert says in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("*.pth*"))


@pytest.mark.parametrize("where", ["", "file/w.pth"])
def test_weights_that_could_not_be_written_are_refused_before_any_video_is_read(
    films, tmp_path, capsys, monkeypatch, where
):

    monkeypatch.setattr(clip_data, "read", lambda *a: pytest.fail("the videos were read"))
    (tmp_path / "file").write_text("x")
    assert main(["train", "clips", "har_cnn3d", "--data", str(films), "--output", str(tmp_path / where)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"E-TRAIN-5: --output {tmp_path / where} cannot be written" in said
    assert "EDGESCOPE_CACHE" not in said
