import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from edgescope import cache
from edgescope.artifacts import int8
from edgescope.artifacts.for_precision import int8_options
from edgescope.backends.base import Spec
from edgescope.errors import EdgescopeError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose, TensorSpec
from edgescope.models.image import folder


def photo(path, seed=0, size=(60, 40), **how):
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **how)
    return path


@pytest.fixture
def photos(tmp_path):
    for i, name in enumerate(("a.jpg", "b.JPEG", "cats/c.png")):
        photo(tmp_path / "mine" / name, i)
    (tmp_path / "mine" / "notes.txt").write_text("not an image")
    return tmp_path / "mine"


@dataclasses.dataclass
class Bare:
    """A network of which nothing is known but its input."""

    shape: tuple[int, ...] = (3, 8, 8)
    dtype: str = "float32"

    @property
    def inputs(self):
        return (TensorSpec("x", self.shape, self.dtype),)

    @property
    def info(self):
        return zoo.get("null").info


def test_photographs_come_as_the_zoos_network_wants_them(photos, trained):
    found = folder.samples(str(photos), trained, 8)
    assert len(found) == 3
    assert found.arrays["input"].shape == (3, 3, 224, 224)
    assert found.arrays["input"].dtype == np.float32
    assert folder.pin(str(photos)).split("#")[1] in found.origin
    with Image.open(photos / "a.jpg") as image:
        wanted = trained.preprocess(image)
    assert any(np.array_equal(wanted, row) for row in found.arrays["input"])


def test_n_takes_the_first_and_names_do_not_decide_the_order(photos, trained):
    every, two = (folder.samples(str(photos), trained, n) for n in (8, 2))
    assert two.digests == every.digests[:2]
    (photos / "a.jpg").rename(photos / "z.jpg")
    assert folder.samples(str(photos), trained, 8).digests == every.digests


def test_the_same_photograph_counts_once(photos, trained):
    (photos / "copy.jpg").write_bytes((photos / "a.jpg").read_bytes())
    assert len(folder.samples(str(photos), trained, 8)) == 3


def test_a_pin_holds_what_is_in_the_folder(photos, trained):
    pinned = folder.pin(str(photos))
    assert folder.pinned(pinned)
    assert not folder.pinned(str(photos))
    assert folder.pin(pinned) == pinned
    assert len(folder.samples(pinned, trained, 8)) == 3
    photo(photos / "d.jpg", 9)
    with pytest.raises(UsageError, match=r"E-INT8-12.*planned.*Try: plan again with .*#[0-9a-f]{12}"):
        folder.samples(pinned, trained, 8)
    (photos / "d.jpg").unlink()
    folder.samples(pinned, trained, 8)
    (photos / "preprocess.json").write_text(json.dumps({"mean": [0, 0, 0], "std": [1, 1, 1]}))
    assert folder.pin(str(photos)) != pinned


def test_a_large_folder_is_read_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "MOST", 4)
    for i in range(10):
        np.save(tmp_path / f"{i}.npy", np.full((2,), i, np.float32))
    found = folder.samples(str(tmp_path), Bare((2,)), 64)
    assert sorted(found.arrays["x"][:, 0]) == [0, 2, 5, 7]
    np.save(tmp_path / "11.npy", np.zeros(2, np.float32))
    assert folder.pin(str(tmp_path))


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("a file")])
def test_a_folder_without_inputs_is_refused(tmp_path, make):
    make(tmp_path / "x")
    for ask in (folder.pin, lambda name: folder.samples(name, Bare(), 4)):
        with pytest.raises(UsageError, match=r"E-INT8-5.*no calibration inputs.*\.jpg.*Try: "):
            ask(str(tmp_path / "x"))


@pytest.mark.parametrize("name", ["a.jpg", "b.JPEG", "cats/c.png"])
def test_a_truncated_photograph_is_named(photos, trained, name):
    path = photos / name
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UnsupportedError, match=rf"E-INT8-6.*{path.name} cannot be read.*Try: mend or remove"):
        folder.samples(str(photos), trained, 8)


@given(
    data=st.binary(max_size=300),
    kind=st.sampled_from(folder.KINDS),
    head=st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"\x93NUMPY\x01\x00"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_raises_anything_but_our_errors(tmp_path, data, kind, head):
    for old in tmp_path.iterdir():
        old.unlink()
    (tmp_path / f"x{kind}").write_bytes(head + data)
    (tmp_path / "preprocess.json").write_text(json.dumps({"mean": [0, 0, 0], "std": [1, 1, 1]}))
    with pytest.raises(EdgescopeError, match=r"E-INT8-[67]"):
        folder.samples(str(tmp_path), Bare(), 1)


@pytest.mark.parametrize(
    "array",
    [np.zeros((3, 8, 9), np.float32), np.zeros((1, 3, 8, 8), np.float32), np.zeros((3, 8, 8), np.uint8)],
)
def test_an_array_of_another_shape_or_type_is_refused(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(UnsupportedError, match=r"E-INT8-7.*x\.npy does not fit.*takes float32 \(3, 8, 8\)"):
        folder.samples(str(tmp_path), Bare(), 1)


def test_photographs_for_an_unknown_network_need_rules(tmp_path):
    photo(tmp_path / "a.png", 3)
    with pytest.raises(UnsupportedError, match=r"E-INT8-9.*preprocess\.json.*mean"):
        folder.samples(str(tmp_path), Bare(), 1)
    (tmp_path / "preprocess.json").write_text(json.dumps({"mean": [0, 0, 0], "std": [1, 1, 1], "crop": 1.0}))
    row = folder.samples(str(tmp_path), Bare(), 1).arrays["x"][0]
    assert row.shape == (3, 8, 8)
    assert 0 <= row.min() < row.max() <= 1
    for wrong in ("[]", "{", '{"mean": [0, 0, 0]}', '{"mean": [0, 0, 0], "std": [1, 1, 1], "colour": "bgr"}'):
        (tmp_path / "preprocess.json").write_text(wrong)
        with pytest.raises(UnsupportedError, match="E-INT8-9"):
            folder.samples(str(tmp_path), Bare(), 1)


def test_int8_on_the_users_images_is_another_file_and_says_where_it_comes_from(photos, untrained, artifacts):
    pinned = folder.pin(str(photos))
    path = int8.int8(untrained, artifacts, calibration=pinned)
    assert path != int8.int8(untrained, artifacts)
    about = cache.notes(path)["calibration"]
    assert (about["n"], about["origin"]) == (3, f"the user's folder mine#{pinned.split('#')[1]}")


def test_a_gate_input_in_the_folder_is_refused(tmp_path, untrained, artifacts):
    gate = untrained.samples(Purpose.GATE, 2).arrays["input"]
    for i, row in enumerate(gate):
        np.save(tmp_path / f"{i}.npy", row)
    with pytest.raises(UsageError, match=r"E-LEAK-1.*2 calibration inputs"):
        int8.int8(untrained, artifacts, calibration=str(tmp_path))


def test_photographs_all_alike_are_refused(tmp_path, untrained, artifacts):
    for i in range(3):
        Image.new("RGB", (300 + i, 300), (0, 0, 0)).save(tmp_path / f"{i}.png")
    with pytest.raises(UnsupportedError, match=r"E-INT8-4.*constant"):
        int8.int8(untrained, artifacts, calibration=str(tmp_path))


def test_a_trial_takes_a_pinned_folder_only(photos):
    pinned = folder.pin(str(photos))
    assert int8_options({"calibration": pinned, "threads": 2}, "int8") == {"calibration": pinned}
    with pytest.raises(UsageError, match=rf"E-INT8-11.*Try: --option 'calibration={pinned}'"):
        int8_options({"calibration": str(photos)}, "int8")
    with pytest.raises(UsageError, match=r"E-OPT-3.*fp32"):
        int8_options({"calibration": pinned}, "fp32")
    with pytest.raises(UsageError, match="E-OPT-4"):
        int8_options({"fallback": "perhaps"}, "int8")
    assert int8_options(Spec(options={"threads": 1}).options, "fp32") == {}


def test_the_module_needs_no_image_library_until_an_image_is_read(photos):
    code = f"""
import sys
from edgescope.models.image import folder
folder.pin({str(photos)!r})
assert not {{"PIL", "torch", "onnx"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
