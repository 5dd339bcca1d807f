import importlib
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from edgescope.errors import UnavailableError  # noqa: E402
from edgescope.models.boxes import suppressed  # noqa: E402
from edgescope.models.image import torchvision_compat  # noqa: E402


def slow_nms(boxes, scores, threshold):
    """The definition, pair by pair."""

    def iou(a, b):
        w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        shared = max(w, 0) * max(h, 0)
        return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)

    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if all(iou(boxes[i], boxes[k]) <= threshold for k in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_suppression_is_the_definition(threshold):
    rng = np.random.default_rng(1)
    corner = rng.uniform(0, 50, (80, 2))
    boxes = np.hstack([corner, corner + rng.uniform(1, 30, (80, 2))]).astype(np.float32)
    scores = rng.random(80).astype(np.float32)
    assert suppressed(boxes, scores, threshold).tolist() == slow_nms(boxes, scores, threshold)


def test_no_boxes_and_empty_boxes_are_no_error():
    assert suppressed(np.zeros((0, 4)), np.zeros(0), 0.5).tolist() == []
    assert len(suppressed(np.zeros((3, 4)), np.ones(3), 0.5)) == 3


def test_torchvision_imports_and_its_operators_answer():
    torchvision_compat.ensure()
    import torchvision

    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    assert torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]
    pool = torch.ops.torchvision.roi_align  # torchvision's own function would compile before it answers
    pooled = pool(torch.ones(1, 2, 16, 16), torch.tensor([[0, 2.0, 2, 9, 9]]), 1.0, 4, 4, -1, False)
    assert pooled.shape == (1, 2, 4, 4)
    assert torch.allclose(pooled, torch.ones_like(pooled))


@pytest.mark.slow
def test_a_module_of_ones_own_may_import_timm(tmp_path, monkeypatch):
    """In a process of its own: nobody has made torchvision importable there before the user's module."""
    (tmp_path / "mynet.py").write_text(
        "import timm, torch\n"
        "def net():\n"
        "    return timm.create_model('test_efficientnet'), torch.zeros(1, 3, 160, 160)\n"
    )
    code = "from edgescope.models.user.calling import describe; print(describe('mynet:net')['params'] > 0)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


EXTENSION = """
import torch
if {loads}:  # as its binary would, whatever the file is called
    library = torch.library.Library("{package}", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", lambda dets, scores, iou_threshold: torch.tensor([7]), "CompositeExplicitAutograd")
def _assert_has_ops():
    if not {loads}:
        raise RuntimeError("no operators")
"""
BOXES = """
import torch
from {package}.extension import _assert_has_ops
def nms(boxes, scores, threshold):
    _assert_has_ops()
    return torch.ops.{package}.nms(boxes, scores, threshold)
"""
INIT = """
from {package} import extension
import torch
@torch.library.register_fake("{package}::nms")  # fails where nobody has declared it
def fake(dets, scores, iou_threshold):
    return dets.new_empty((0,), dtype=torch.long)
from {package}.ops import boxes
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a maker of packages that load their operators as torchvision does, watched as it is."""

    def make(name, extension):
        files = {"__init__": INIT, "extension": extension, "ops/__init__": "", "ops/boxes": BOXES}
        for file, text in files.items():
            path = tmp_path / name / f"{file}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(package=name, loads=name.endswith("loads")))
        monkeypatch.setattr(sys, "meta_path", [torchvision_compat.Watch(name), *sys.meta_path])
        return name

    monkeypatch.syspath_prepend(tmp_path)
    return make


def nms_of(name):
    boxes = importlib.import_module(name).boxes
    return boxes.nms(torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10]]), torch.tensor([0.5, 0.9]), 0.5).tolist()


def test_nothing_is_declared_where_the_binary_loads(package):
    name = package("vision_that_loads", EXTENSION)
    assert nms_of(name) == [7]
    assert not hasattr(getattr(torch.ops, name), "qnms")


def test_what_is_missing_is_declared_where_the_binary_does_not_load(package):
    name = package("vision_without_binary", EXTENSION)
    assert nms_of(name) == [1]
    assert hasattr(getattr(torch.ops, name), "roi_align")


def test_without_torchvision_an_import_fails_as_ever():
    torchvision_compat.ensure()
    watch = torchvision_compat.Watch("vision_that_is_absent")
    assert watch.find_spec("vision_that_is_absent.extension", []) is None
    assert watch.find_spec("os", None) is None
    assert not hasattr(torch.ops.vision_that_is_absent, "nms")


def test_a_pair_built_for_different_cudas_is_refused_with_the_line_to_run(package):
    name = package("vision_of_another_cuda", "raise RuntimeError('different CUDA major versions')")
    with pytest.raises(UnavailableError, match=r"different CUDA.*pip install --upgrade torch torchvision"):
        importlib.import_module(name)
