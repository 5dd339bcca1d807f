import numpy as np
import pytest

torch = pytest.importorskip("torch")

from edgescope.models import _torchvision  # noqa: E402


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
    assert _torchvision.suppress(boxes, scores, threshold).tolist() == slow_nms(boxes, scores, threshold)


def test_no_boxes_and_empty_boxes_are_no_error():
    assert _torchvision.suppress(np.zeros((0, 4)), np.zeros(0), 0.5).tolist() == []
    assert len(_torchvision.suppress(np.zeros((3, 4)), np.ones(3), 0.5)) == 3


def test_torchvision_imports_and_its_operators_answer():
    _torchvision.ensure()
    import torchvision

    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    assert torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]
    pooled = torchvision.ops.roi_align(torch.ones(1, 2, 16, 16), torch.tensor([[0, 2.0, 2, 9, 9]]), 4)
    assert pooled.shape == (1, 2, 4, 4)
    assert torch.allclose(pooled, torch.ones_like(pooled))


def test_nothing_is_declared_where_the_binary_loads(monkeypatch):
    monkeypatch.setattr(_torchvision, "_binary_loads", lambda: True)
    monkeypatch.setattr(_torchvision, "_declare", lambda: pytest.fail("declared beside the real operators"))
    assert _torchvision.ensure.__wrapped__() is True
