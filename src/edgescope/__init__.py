"""edgescope measures, explains and optimises deep learning on edge devices, with numbers you can defend.

    import edgescope

    trial = edgescope.Trial(model="efficientnet_lite0", backend="onnxruntime", precision="int8")
    result = edgescope.run(trial)
    print(result.status, result.metrics["latency_p50_s"])

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgescope.bench.in_mode import in_mode
    from edgescope.bench.run import run
    from edgescope.errors import EdgescopeError
    from edgescope.records import Absent, Measured, Result, Status, Trial, Trust, Verdict
    from edgescope.store.results import Store

__version__ = "0.1.0"

_HOMES = {
    "Absent": "edgescope.records",
    "EdgescopeError": "edgescope.errors",
    "Measured": "edgescope.records",
    "Result": "edgescope.records",
    "Status": "edgescope.records",
    "Store": "edgescope.store.results",
    "Trial": "edgescope.records",
    "Trust": "edgescope.records",
    "Verdict": "edgescope.records",
    "in_mode": "edgescope.bench.in_mode",
    "run": "edgescope.bench",
}

__all__ = [
    "Absent",
    "EdgescopeError",
    "Measured",
    "Result",
    "Status",
    "Store",
    "Trial",
    "Trust",
    "Verdict",
    "__version__",
    "in_mode",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'edgescope' has no attribute {name!r}")
