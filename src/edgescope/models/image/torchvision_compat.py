"""Make `import torchvision` work if its compiled operators cannot be loaded.

torchvision's wheel contains a binary built for one torch build (often the CUDA one). With a CPU-only or a vendor's
torch it does not load, and then even `import torchvision` fails, because its Python code refers to operators that the
binary would have declared. The image classifiers need no such operators. `ensure()` watches for that import, from any
module: torchvision first tries its own binary, then torch is queried for the declared operators, and only missing
ones are declared here: nms in numpy, roi_align through torchvision's own Python version. Declaring an operator twice
ends the process, so nothing is declared on a guess.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

from edgescope.errors import UnavailableError
from edgescope.models.boxes import suppressed

NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
QNMS = "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
ROI_ALIGN = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
    " int sampling_ratio, bool aligned) -> Tensor"
)

_Library: Any = torch.library.Library  # carries no types
_declared: list[Any] = []


@cache
def ensure() -> None:
    """Make the next `import torchvision` in this process succeed, with its own operators or with ours."""
    sys.meta_path.insert(0, Watch("torchvision"))


def torchvision() -> Any:
    """Return torchvision; importing it takes longer than PyTorch itself, so only a network that needs it asks."""
    ensure()
    return importlib.import_module("torchvision")


class Watch(MetaPathFinder):
    """An import finder that patches two modules of a package once they have run, and ignores all others."""

    def __init__(self, package: str) -> None:
        self._mend: dict[str, Callable[[ModuleType], None]] = {
            f"{package}.extension": lambda _: declare_missing(package),  # the one that loads the binary
            f"{package}.ops.boxes": _lift_check,
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the usual spec of a watched module, or None for any other."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._mend else None
        if spec is not None and spec.loader is not None:
            _run_then(spec.loader, self._mend[fullname])
        return spec


def _run_then(loader: Any, mend: Callable[[ModuleType], None]) -> None:
    """Make a loader call `mend` on each module after running it."""
    run = loader.exec_module

    def run_and_mend(module: ModuleType) -> None:
        try:
            run(module)
        except RuntimeError as error:  # torchvision's own check: torch is built for another CUDA
            raise UnavailableError(
                "E-NAME-2",
                "torchvision cannot be loaded",
                evidence=str(error),
                fix="pip install --upgrade torch torchvision",
            ) from error
        mend(module)

    loader.exec_module = run_and_mend


def declare_missing(namespace: str) -> None:
    """Declare nms, qnms and roi_align if torch has no `namespace::nms`; else do nothing."""
    known = getattr(torch.ops, namespace)
    if hasattr(known, "nms"):
        return
    library = _Library(namespace, "FRAGMENT")
    for schema, implementation, dispatch in OPERATORS:
        name = schema.partition("(")[0]
        if not hasattr(known, name):
            library.define(schema)
            library.impl(name, implementation, dispatch)
    _declared.append(library)  # the operators vanish with the object that declared them


def _lift_check(boxes: ModuleType) -> None:
    """Let torchvision.ops.boxes call the operators declared here: its own check only knows the binary."""
    vars(boxes)["_assert_has_ops"] = _has_ops


def _has_ops() -> None:
    """Do nothing. This is a def, not a lambda, because torch's tracing exporter needs its source."""


def _nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    kept = suppressed(dets.detach().cpu().numpy(), scores.detach().cpu().numpy(), iou_threshold)
    return torch.from_numpy(kept).to(dets.device)


def _roi_align(*args: Any) -> torch.Tensor:
    from torchvision.ops import roi_align

    compiled = roi_align.__globals__["_roi_align"]  # at its first call, for half a minute, by a C++ compiler
    python: Callable[..., torch.Tensor] = inspect.unwrap(compiled)
    return python(*args)


#: schema, implementation, dispatch key
OPERATORS: tuple[tuple[str, Callable[..., torch.Tensor], str], ...] = (
    (NMS, _nms, "CompositeExplicitAutograd"),
    (QNMS, _nms, "CompositeExplicitAutograd"),
    (ROI_ALIGN, _roi_align, "CompositeImplicitAutograd"),
)
