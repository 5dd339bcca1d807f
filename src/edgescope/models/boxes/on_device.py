"""The half of the decoders that needs torch: boxes are read and suppressed where the outputs lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope.models.boxes.suppression import TINY, groups
from edgescope.models.image import torchvision_compat

if TYPE_CHECKING:
    from edgescope.models.boxes.decoder import GreedyDecoder


@torch.inference_mode()
def found(decoder: GreedyDecoder, outputs: Sequence[Any], n: int) -> NDArray[np.float64]:
    """Return the kept boxes of the first n images on the host, (k, 7): image, x1, y1, x2, y2, score, class."""
    rows = decoder.candidates([torch.as_tensor(output)[:n] for output in outputs], torch)
    of = groups(rows.classes, rows.images, decoder.classes)
    kept = suppressed(rows.boxes, rows.scores, decoder.overlap, of)
    columns = (rows.images[:, None], rows.boxes, rows.scores[:, None], rows.classes[:, None])
    table: NDArray[np.float64] = torch.cat([c[kept].double() for c in columns], 1).cpu().numpy()
    return table


def suppressed(boxes: torch.Tensor, scores: torch.Tensor, threshold: float, of: torch.Tensor) -> torch.Tensor:
    """Return the numbers of the boxes (n, 4) that are kept, best first, within the groups `of`.

    Groups are moved apart and go through torchvision's own operator at once; in float64, in which the distance costs
    no precision. Without torchvision's compiled operators, `by_rounds` does the same in torch alone.
    """
    if not len(boxes):
        return torch.zeros(0, dtype=torch.int64, device=boxes.device)
    boxes = boxes.double()
    nms = torchvision_compat.compiled_nms()
    if nms is None:
        return by_rounds(boxes, scores, threshold, of)
    apart = (of.double() * (boxes.max() - boxes.min() + 1.0))[:, None]
    kept: torch.Tensor = nms(boxes + apart, scores.double(), threshold)
    return kept


def by_rounds(boxes: torch.Tensor, scores: torch.Tensor, threshold: float, of: torch.Tensor) -> torch.Tensor:
    """Return what greedy suppression keeps, best first, found in rounds of operations on all pairs of boxes.

    Each round drops the boxes that a box kept by the last round overlaps; the first i boxes are right after i rounds at
    the latest, and usually all are after a few (Zheng et al., arXiv 2005.03572, section 3.4).
    """
    order = torch.argsort(scores, descending=True, stable=True)
    some, of = boxes[order], of[order]
    low = torch.maximum(some[:, None, :2], some[None, :, :2])
    high = torch.minimum(some[:, None, 2:], some[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    area = (some[:, 2:] - some[:, :2]).prod(1)
    union = (area[:, None] + area[None] - shared).clamp(min=TINY)
    drops = ((shared > threshold * union) & (of[:, None] == of[None])).triu(1)
    kept = torch.ones(len(some), dtype=torch.bool, device=some.device)
    while True:
        after = ~(drops & kept[:, None]).any(0)
        if torch.equal(after, kept):
            return order[kept]
        kept = after
