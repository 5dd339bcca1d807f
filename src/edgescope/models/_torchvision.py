"""Makes `import torchvision` work where its compiled operators cannot be loaded.

torchvision's wheel carries a binary, `_C.so`, built for one torch build (often the CUDA one). Beside a CPU-
only or a vendor's torch it does not load, and then even `import torchvision` fails, because Python code in
it refers to operators that the binary would have declared. The image classifiers need none of them. This
module declares those operators with torch.library first: nms in numpy, roi_align through torchvision's own
Python version. Where the binary loads, nothing is changed. It is the one place that may try an import.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
QNMS = "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
ROI_ALIGN = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
    " int sampling_ratio, bool aligned) -> Tensor"
)

_Library: Any = torch.library.Library  # carries no types
_declared: list[Any] = []


@cache
def ensure() -> bool:
    """Make torchvision importable; True where its compiled operators loaded, False where ours stand in."""
    if _binary_loads():
        return True
    _declare()
    _lift_check()
    return False


def _binary_loads() -> bool:
    spec = importlib.util.find_spec("torchvision")
    folders = spec.submodule_search_locations if spec else None
    operators: Any = torch.ops
    names = [f"_C{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    for path in (Path(folder) / name for folder in folders or () for name in names):
        if path.exists():
            try:
                operators.load_library(str(path))
            except (OSError, RuntimeError):
                return False
            return True
    return False


def _declare() -> None:
    library = _Library("torchvision", "DEF")
    for schema in (NMS, QNMS, ROI_ALIGN):
        library.define(schema)
    library.impl("nms", _nms, "CompositeExplicitAutograd")
    library.impl("qnms", _nms, "CompositeExplicitAutograd")
    library.impl("roi_align", _roi_align, "CompositeImplicitAutograd")
    _declared.append(library)  # the operators vanish with the object that declared them


def _lift_check() -> None:
    """Let torchvision.ops call the operators declared here: its own check only knows the binary."""
    from torchvision.ops import boxes

    boxes._assert_has_ops = _has_ops


def _has_ops() -> None:
    """Pass; a def and not a lambda, because torch's tracing exporter wants its source."""


def _nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    kept = suppress(dets.detach().cpu().numpy(), scores.detach().cpu().numpy(), iou_threshold)
    return torch.from_numpy(kept).to(dets.device)


def _roi_align(*args: Any) -> torch.Tensor:
    from torchvision.ops import roi_align

    python: Callable[..., torch.Tensor] = roi_align.__globals__["_roi_align"]
    return python(*args)


def suppress(boxes: NDArray[Any], scores: NDArray[Any], threshold: float) -> NDArray[np.int64]:
    """Return indices (int64) of boxes (n, 4: x1 y1 x2 y2) that greedy suppression keeps, best first."""
    x1, y1, x2, y2 = boxes.astype(np.float64).T.reshape(4, -1)
    area = (x2 - x1) * (y2 - y1)
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while order.size:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        wide = np.minimum(x2[best], x2[rest]) - np.maximum(x1[best], x1[rest])
        high = np.minimum(y2[best], y2[rest]) - np.maximum(y1[best], y1[rest])
        shared = np.clip(wide, 0, None) * np.clip(high, 0, None)
        union = np.maximum(area[best] + area[rest] - shared, np.finfo(np.float64).tiny)
        order = rest[shared / union <= threshold]
    return np.asarray(kept, dtype=np.int64)
