"""The TensorRT of this process: the full library, or TensorRT-RTX, a smaller one for RTX cards with the same API.

Nothing else here imports either. Where both are installed the full one is taken, because it runs on more GPUs. What an
engine needs to know of the library stands here: `API`, by which its names are chosen, `FULL_VERSION`, its own version
as messages and engine files name it, and `RUNS_ON` and `BUILDS_FOR`, the GPUs that it names.

With Python 3.10 or later there are two forms of the API:

* 8.5 to 10 (JetPack 6, servers): precisions are builder flags.
* 11: networks are strongly typed, so precision comes from the ONNX file and the flags for it are gone. TensorRT-RTX
  counts its own versions from 1.0 and has had this form from the start.

Before 8.5 inputs and outputs were numbered; boards with such a TensorRT have Python 3.6 or 3.8, and trtexec runs there.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

FULL, RTX = "tensorrt", ("tensorrt_rtx", "tensorrt_rtx_bindings")
OLDEST = (8, 5)
OPTIMISATION_LEVEL = (8, 6)
PROFILE_SHARING = (8, 6)
ALWAYS_EXPLICIT_BATCH = (10, 0)
PROGRESS_MONITOR = (10, 0)
STRONGLY_TYPED = (11, 0)


def _imported() -> ModuleType:
    """Return the library; ImportError if none is installed, naming the full one, or if its place holds none."""
    hollow = ""
    for name in (FULL, *RTX):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            continue
        if hasattr(module, "__version__"):
            return module
        # only a stubs package, or a folder of that name
        hollow = (
            hollow or f"the module {name} at {list(module.__path__)} is not TensorRT: it has no __version__"
        )
    if hollow:
        raise ImportError(hollow)
    raise ModuleNotFoundError(f"No module named {FULL!r}", name=FULL)


if TYPE_CHECKING:
    import tensorrt as checked  # its stubs, where there are some

    trt = checked
else:
    trt = _imported()

OWN_VERSION = str(trt.__version__)
IS_RTX = str(trt.__name__) in RTX
"""Whether it is TensorRT-RTX."""
FULL_VERSION = f"RTX {OWN_VERSION}" if IS_RTX else OWN_VERSION
"""`10.3.0.30`, or `RTX 1.7.1.116`."""
API: tuple[int, ...] = STRONGLY_TYPED if IS_RTX else tuple(int(part) for part in OWN_VERSION.split(".")[:2])
"""Major and minor version of the full TensorRT that has this API."""
if API < OLDEST:
    raise ImportError(
        f"TensorRT {FULL_VERSION} is too old: its Python API is known here from 8.5 on; use trtexec"
    )


def _named() -> dict[str, Any]:
    """Return {compute capability: the library's name of it}, as TensorRT-RTX lists them; {} of the full library."""
    listed = getattr(trt, "ComputeCapability", None) if IS_RTX else None
    members: Mapping[str, Any] = getattr(listed, "__members__", {})
    found = {name: re.fullmatch(r"SM(\d+)(\d)", name) for name in members}
    return {f"{m[1]}.{m[2]}": members[name] for name, m in found.items() if m}


BUILDS_FOR: Mapping[str, Any] = _named()
"""Compute capability -> what `set_compute_capability` takes: an engine for it is built without such a GPU.
{} if the library builds for the GPU that it finds, and for no other."""
RUNS_ON: tuple[str, ...] = tuple(BUILDS_FOR)
"""The compute capabilities on which the library runs, () if it names none."""
