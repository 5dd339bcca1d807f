"""The half of the decoders that needs torch: boxes are read and suppressed where the outputs lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope.models.boxes.decoder import TINY, groups

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

    Sorted by group, a box competes with the few before it only, so n times the largest group are compared and not n
    times n. Each round drops the boxes that a box kept by the last round overlaps; the first i boxes of a group are
    right after i rounds at the latest, and usually all are after a few (Zheng et al., arXiv 2005.03572, section 3.4).
    """
    if not len(boxes):
        return torch.zeros(0, dtype=torch.int64, device=boxes.device)
    best = torch.argsort(scores, descending=True, stable=True)
    by_group = torch.argsort(of[best], stable=True)
    order = best[by_group]
    some, of = boxes[order].double(), of[order]
    most = int(torch.unique_consecutive(of, return_counts=True)[1].max())
    before = torch.arange(len(of), device=of.device)[:, None] - torch.arange(1, most, device=of.device)
    rival = before.clamp(min=0)
    same = (before >= 0) & (of[rival] == of[:, None])
    others, mine = some[rival], some[:, None]
    shared = (
        torch.minimum(others[..., 2:], mine[..., 2:]) - torch.maximum(others[..., :2], mine[..., :2])
    ).clamp(min=0)
    area = (some[:, 2:] - some[:, :2]).prod(1)
    both = shared.prod(2)
    drops = same & (both > threshold * (area[rival] + area[:, None] - both).clamp(min=TINY))
    kept = torch.ones(len(some), dtype=torch.bool, device=some.device)
    while True:
        after = ~(drops & kept[rival]).any(1)
        if torch.equal(after, kept):
            break
        kept = after
    return best[torch.sort(by_group[kept]).values]
