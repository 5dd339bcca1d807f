import itertools
import subprocess
import sys

import numpy as np
import pytest

from edgescope.errors import UnavailableError
from edgescope.models import synthetic
from edgescope.models.base import Purpose, TensorSpec
from edgescope.models.image import photos
from edgescope.models.image.preprocess import Preprocess

pytestmark = pytest.mark.slow


def of(trained, purpose, n=1000):
    return trained.samples(purpose, n)


def test_there_are_enough_of_each(trained):
    assert len(of(trained, Purpose.LABELLED)) == 20
    assert len(of(trained, Purpose.GATE)) >= 300
    assert len(of(trained, Purpose.CALIBRATION)) >= 30
    assert len(of(trained, Purpose.BENCH)) >= 8
    assert len(of(trained, Purpose.GATE, 7)) == 7


def test_gate_calibration_and_labelled_share_nothing(trained):
    kinds = [set(of(trained, p).digests) for p in (Purpose.GATE, Purpose.CALIBRATION, Purpose.LABELLED)]
    for a, b in itertools.combinations(kinds, 2):
        assert not a & b
    assert len(kinds[0]) == len(of(trained, Purpose.GATE))


def test_photographs_are_normalised_and_different(trained):
    array = of(trained, Purpose.LABELLED).arrays["input"]
    assert array.dtype == np.float32
    assert array.shape == (20, 3, 224, 224)
    assert array.min() >= -1
    assert array.max() <= 1
    assert array.std(axis=(1, 2, 3)).min() > 0.05
    assert photos.fingerprint({"": array[3]}) == of(trained, Purpose.LABELLED).digests[3]


def test_the_gates_frames_say_their_scene(trained):
    """Twenty neighbours of a film are one scene, and no scene runs from one film into the next."""
    found = of(trained, Purpose.GATE)
    sizes = np.bincount(found.groups)
    assert len(found.groups) == len(found) == 370 and sizes.max() == photos.SCENE
    assert sizes.tolist() == [20] * 12 + [10] + [20] * 6  # 250 frames and 120
    assert of(trained, Purpose.GATE, 7).groups.tolist() == found.first(7).groups.tolist()
    assert of(trained, Purpose.LABELLED).groups is None


def test_labels_are_those_of_the_file_names(trained):
    labels = of(trained, Purpose.LABELLED).labels
    assert labels[:4].tolist() == [243, 559, 438, 990]
    assert of(trained, Purpose.GATE).labels is None


def test_preprocess_crops_the_middle():
    from PIL import Image

    pixels = np.zeros((256, 512, 3), dtype=np.uint8)
    pixels[:, 250:262] = 255
    out = Preprocess(224, 0.875)(Image.fromarray(pixels))
    assert out.shape == (3, 224, 224)
    assert out[0, 112, 112] == 1.0
    assert out[0, 112, 5] == -1.0


def test_a_second_process_needs_no_decoder(trained):
    want = of(trained, Purpose.GATE, 3).digests
    code = f"""
import sys
for name in ("av", "PIL", "torch", "skvideo"):
    sys.modules[name] = None
from edgescope.models import zoo
from edgescope.models.base import Purpose
samples = zoo.get("efficientnet_lite0").samples(Purpose.GATE, 3)
assert samples.digests == {want!r}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_package_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(photos.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install --no-deps foolbox==3\.3\.4"):
        photos.samples(Purpose.LABELLED, 20, Preprocess())


def test_a_damaged_cache_is_made_again(trained, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path))
    want = of(trained, Purpose.LABELLED).digests
    for path in (tmp_path / "samples").glob("*.npy"):
        path.write_bytes(path.read_bytes()[:1000])
    again = of(trained, Purpose.LABELLED)
    assert again.digests == want
    assert photos.fingerprint({"": again.arrays["input"][19]}) == want[19]


def test_synthetic_inputs_are_seeded_and_disjoint():
    specs = (TensorSpec("x", (2, 3), "float32"), TensorSpec("ids", (5,), "int64"))
    a, b = (synthetic.samples(specs, Purpose.GATE, n, ranges={"ids": (3, 7)}) for n in (4, 9))
    assert a.digests == b.digests[:4]
    assert np.array_equal(a.arrays["x"], b.arrays["x"][:4])
    assert len(set(b.digests)) == 9
    assert b.arrays["ids"].min() >= 3
    assert b.arrays["ids"].max() <= 7
    assert not set(a.digests) & set(synthetic.samples(specs, Purpose.CALIBRATION, 9).digests)
