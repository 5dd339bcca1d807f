"""Pictures of cameras, scanners and microscopes, and what an answer says of how they were prepared."""

import importlib
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageOps

from data_sets import SIDE, classifier, folder
from edgescope.cli.main import main
from edgescope.data import opening
from edgescope.data.dataset_model import checked
from edgescope.data.preprocessing import known
from edgescope.data.samples import Wanted, made
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.models.base import TensorSpec
from edgescope.models.image import preprocess
from edgescope.records import Trial
from edgescope.store.results import Store

SPEC = (TensorSpec("x", (3, SIDE, SIDE), "float32"),)


def deep(root, dtype, white, n=6):
    """Pictures of this type, the left half black and the right half as bright as `white` is."""
    for i in range(n):
        pixels = np.zeros((SIDE, SIDE), dtype)
        pixels[:, SIDE // 2 :] = white
        pixels[0, 0] = white * i / 10
        Image.fromarray(pixels).save(root / f"{i}.tif")
    return root


def prepared(root, how):
    way = preprocess.read(how, SPEC[0].shape)
    return made(opening.read(str(root)), None, 6, Wanted(SPEC, way)).arrays["x"]


@pytest.mark.parametrize(
    ("dtype", "white", "how"),
    [
        (np.float32, 1.0, "unit,resize=stretch,white=1"),
        (np.float32, 255.0, "unit,resize=stretch,white=255"),
        (np.uint16, 4095, "unit,resize=stretch,white=4095"),
        (np.uint16, 1023, "unit,resize=stretch,white=1023"),
        (np.uint16, 65535, "unit,resize=stretch"),
        (np.int32, 255, "unit,resize=stretch,white=255"),
    ],
)
def test_white_is_white_where_it_is_said_or_usual(tmp_path, dtype, white, how):
    array = prepared(deep(tmp_path, dtype, white), how)
    assert array[:, :, :, -1].min() == pytest.approx(1) and array[:, :, 1:, 0].max() == pytest.approx(0)


@pytest.mark.parametrize(
    ("dtype", "white", "said"),
    [
        (np.float32, 1.0, "white=1"),
        (np.float32, 200.0, "white=255"),
        (np.uint16, 4095, "white=4095"),
        (np.uint16, 1000, "white=1023"),
        (np.int32, 100_000, "white=100000"),
    ],
)
def test_white_is_asked_for_where_pictures_would_be_black(tmp_path, dtype, white, said):
    with pytest.raises(UsageError) as error:
        prepared(deep(tmp_path, dtype, white), "unit,resize=stretch")
    assert error.value.code == "E-PREPROCESS-3" and said in error.value.fix


def test_bytes_in_the_networks_own_layout_are_pictures_too(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, SIDE, SIDE), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=pixels)
    np.savez(tmp_path / "b.npz", x=np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)))
    a, b = (prepared(tmp_path / f"{name}.npz", "half,resize=stretch") for name in "ab")
    assert a.min() < -0.9 and np.array_equal(np.sort(a, axis=0), np.sort(b, axis=0))


def test_keys_without_a_normalisation_leave_that_of_the_network():
    """`--preprocess label_offset=1`, as a message advises, is no wish for another mean."""
    way = preprocess.named("imagenet", SPEC[0].shape)
    model = SimpleNamespace(inputs=SPEC, preprocess=way, info=SimpleNamespace(name="net"))
    asked = {
        text: known(model, Trial(model="net", preprocess=text)) for text in ("white=4095", "half,white=4095")
    }
    assert asked["white=4095"].preprocess == replace(way, white=4095.0)
    assert "net" in asked["white=4095"].origin and "white=4095" in asked["white=4095"].origin
    assert asked["half,white=4095"].preprocess.mean == (0.5, 0.5, 0.5)


# -- through the command line -------------------------------------------------------------------------------------


def bench(tmp_path, data, *flags):
    model = classifier(tmp_path / "net.onnx")
    flags = ("--warmup", "0", "--duration", "0.2s", "--store", str(tmp_path / "store"), *flags)
    return main(["bench", str(model), "--backend", "onnxruntime", "--data", str(data), *flags])


@pytest.mark.process
@pytest.mark.parametrize("data", ["unlabelled", "arrays"])
def test_what_cannot_be_prepared_is_said_before_anything_is_built(tmp_path, monkeypatch, capsys, data):
    root = folder(tmp_path / "photos", each=6)
    if data == "unlabelled":
        for i, path in enumerate(sorted(root.rglob("*.png"))):
            path.rename(root / f"{i}.png")
    else:
        np.savez(tmp_path / "a.npz", other=np.random.default_rng(0).random((6, 5), dtype=np.float32))
        root = tmp_path / "a.npz"
    monkeypatch.setattr("edgescope.runner.builds.Builds.build", lambda *_: pytest.fail("it was built"))
    assert bench(tmp_path, root) == 2
    code = "E-PREPROCESS-2" if data == "unlabelled" else "E-DATASET-6"
    assert code in capsys.readouterr().err
    model = str(tmp_path / "net.onnx")
    assert main(["optimize", model, "--data", str(root), "--store", str(tmp_path / "store")]) == 2
    assert code in capsys.readouterr().err


NETWORK = """
import torch
def make():
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    return torch.nn.Sequential(*layers).eval(), torch.zeros(1, 3, {side}, {side})
"""


@pytest.mark.parametrize("kind", ["callable", "pt2"])
@pytest.mark.slow
def test_of_a_network_that_ran_before_it_is_said_before_anything_is_built(
    tmp_path, monkeypatch, capsys, kind
):
    """What a callable or a file of PyTorch's takes is known once something of it ran; then at once."""
    torch = pytest.importorskip("torch")
    root = folder(tmp_path / "photos", each=6)
    for i, path in enumerate(sorted(root.rglob("*.png"))):
        path.rename(root / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"network_of_{kind}"
    (tmp_path / f"{name}.py").write_text(NETWORK.format(side=SIDE))
    model = f"{name}:make"
    if kind == "pt2":
        model = str(tmp_path / "net.pt2")
        network, example = importlib.import_module(name).make()
        torch.export.save(torch.export.export(network, (example,)), model)
    assert not zoo.described(model)
    checked(Trial(model=model, data=str(root)))  # nothing of it has run, so nothing is known
    zoo.get(model)
    assert zoo.described(model)
    monkeypatch.setattr("edgescope.runner.builds.Builds.build", lambda *_: pytest.fail("it was built"))
    for verb in ("bench", "optimize"):
        assert main([verb, model, "--data", str(root), "--store", str(tmp_path / "store")]) == 2
        assert "E-PREPROCESS-2" in capsys.readouterr().err
    checked(Trial(model=model, data=str(root), preprocess="half"))


@pytest.mark.slow
def test_every_answer_says_how_pictures_were_prepared_and_labels_at_chance_first(tmp_path, capsys):
    """The pictures are right and the labels are somebody else's: three of four say that a picture is dark."""
    root = folder(tmp_path / "photos", each=80)
    rows = [f"photos/{p.relative_to(root)},{i % 4 == 0:d}" for i, p in enumerate(sorted(root.rglob("*.png")))]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    bench(tmp_path, tmp_path / "list.csv", "--preprocess", "half,resize=stretch")
    said = capsys.readouterr().out
    assert said.lstrip().startswith("W-LABEL-1")
    (result,) = Store(tmp_path / "store").results()
    assert result.warnings[0].code == "W-LABEL-1" and "chance is" in result.verification.doubt
    assert "mean 0.5" in result.model.prepared and "stretch" in result.model.prepared
    (path,) = (tmp_path / "store").rglob("result.json")
    assert json.loads(path.read_text())["model"]["prepared"] == result.model.prepared
    main(
        ["show", result.id, "--store", str(tmp_path / "store")]
    )  # 1 where a busy machine made the run unstable
    assert "mean 0.5" in " ".join(capsys.readouterr().out.split())
    page = tmp_path / "r.md"
    assert main(["report", "--store", str(tmp_path / "store"), "-o", str(page)]) == 0
    assert result.model.prepared in page.read_text()
    assert page.read_text().index("W-LABEL-1") < 400


@pytest.mark.slow
def test_labels_that_fit_leave_no_doubt_and_the_guess_is_told(tmp_path, capsys):
    bench(tmp_path, folder(tmp_path / "photos", each=80))
    (result,) = Store(tmp_path / "store").results()
    assert result.verification.doubt == "" and "W-LABEL-1" not in {w.code for w in result.warnings}
    assert "labelled pictures show (right answers:" in result.model.prepared


@pytest.mark.slow
def test_a_file_of_ones_own_has_weights_of_which_nothing_is_known(tmp_path, capsys):
    model = classifier(tmp_path / "net.onnx")
    flags = ["--warmup", "0", "--duration", "0.2s", "--store", str(tmp_path / "store")]
    main(["bench", str(model), "--backend", "onnxruntime", *flags])
    said = capsys.readouterr().out
    assert "weights not known" in said and "untrained" not in said.splitlines()[0]


# -- maps of classes on pictures that a phone turned ----------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("stored", [True, False])
def test_a_mask_lies_on_its_picture_drawn_as_stored_or_as_seen(tmp_path, orientation, stored):
    """The mask is the picture's own red: whatever was turned, they must stay the same."""
    for i in range(2):
        pixels = np.zeros((4, 8, 3), np.uint8)
        pixels[1, 2 : 5 + i, 0] = pixels[3, 0, 0] = 255
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(pixels).save(tmp_path / f"{i}.png", exif=exif)
        drawn = Image.open(tmp_path / f"{i}.png")
        drawn = drawn if stored and orientation >= 5 else ImageOps.exif_transpose(drawn)
        Image.fromarray((np.asarray(drawn)[..., 0] > 0).astype(np.uint8)).save(tmp_path / f"mask{i}.png")
    (tmp_path / "l.csv").write_text("0.png,mask0.png\n1.png,mask1.png\n")
    high, wide = (8, 4) if orientation >= 5 else (4, 8)
    spec = (TensorSpec("x", (3, high, wide), "float32"),)
    way = preprocess.read("unit,resize=stretch,interpolation=nearest", spec[0].shape)
    given = made(opening.read(str(tmp_path / "l.csv")), None, 2, Wanted(spec, way))
    assert np.array_equal(given.labels, given.arrays["x"][:, 0] > 0.5) and given.labels.sum() == 9


def test_a_mask_of_another_form_is_left_out_and_named(tmp_path):
    for i in range(3):
        Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(tmp_path / f"{i}.png")
        Image.fromarray(np.zeros((4, 4) if i else (8, 20), np.uint8)).save(tmp_path / f"mask{i}.png")
    (tmp_path / "l.csv").write_text("".join(f"{i}.png,mask{i}.png\n" for i in range(3)))
    way = preprocess.read("unit", SPEC[0].shape)
    given = made(opening.read(str(tmp_path / "l.csv")), None, 3, Wanted(SPEC, way))
    assert len(given) == 2 and "20 x 8, it is 8 x 8" in given.unread[0]
