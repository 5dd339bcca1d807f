"""edgescope measures, explains and optimises deep learning on edge devices, with numbers you can defend.

    import edgescope

    result = edgescope.run(edgescope.Trial(model="efficientnet_lite0", backend="onnxruntime", precision="int8"))
    print(result)                              # a few lines
    print(result.value("latency_p50_s"))       # a number
    best = edgescope.optimize("efficientnet_lite0", constraints=["p99<=33ms"])

Every verb of the command line is one function here (`edgescope docs api`). Nothing heavy is imported before its use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgescope.bench.in_mode import in_mode
    from edgescope.errors import EdgescopeError
    from edgescope.isolate.fresh import Limits
    from edgescope.models.user.live import live
    from edgescope.records import Absent, Measured, Result, Results, Status, Trial, Trust, Verdict
    from edgescope.runner.setup import Setup
    from edgescope.store.results import Store
    from edgescope.study.grid import Study
    from edgescope.verbs.capacity import capacity
    from edgescope.verbs.compare import compare
    from edgescope.verbs.energy import energy
    from edgescope.verbs.explain import explain
    from edgescope.verbs.ladder import ladder
    from edgescope.verbs.layers import layers
    from edgescope.verbs.offload import Sent, offload
    from edgescope.verbs.optimize import optimize
    from edgescope.verbs.predict import predict
    from edgescope.verbs.recommend import recommend
    from edgescope.verbs.run import run
    from edgescope.verbs.sweep import sweep
    from edgescope.verbs.trace import trace
    from edgescope.verbs.train_advise import train_advise
    from edgescope.verbs.train_characterize import train_characterize
    from edgescope.verbs.train_interleave import train_interleave
    from edgescope.verbs.watch import watch

__version__ = "0.1.0"

_RECORDS = ("Absent", "Measured", "Result", "Results", "Status", "Trial", "Trust", "Verdict")
_VERBS = (
    "capacity",
    "compare",
    "energy",
    "explain",
    "ladder",
    "layers",
    "offload",
    "optimize",
    "predict",
    "recommend",
    "run",
    "sweep",
    "trace",
    "train_advise",
    "train_characterize",
    "train_interleave",
    "watch",
)
_HOMES = {
    **dict.fromkeys(_RECORDS, "edgescope.records"),
    **{verb: f"edgescope.verbs.{verb}" for verb in _VERBS},
    "EdgescopeError": "edgescope.errors",
    "Limits": "edgescope.isolate.fresh",
    "Sent": "edgescope.verbs.offload",
    "Setup": "edgescope.runner.setup",
    "Store": "edgescope.store.results",
    "Study": "edgescope.study.grid",
    "in_mode": "edgescope.bench.in_mode",
    "live": "edgescope.models.user.live",
}

__all__ = [
    "Absent",
    "EdgescopeError",
    "Limits",
    "Measured",
    "Result",
    "Results",
    "Sent",
    "Setup",
    "Status",
    "Store",
    "Study",
    "Trial",
    "Trust",
    "Verdict",
    "__version__",
    "capacity",
    "compare",
    "energy",
    "explain",
    "in_mode",
    "ladder",
    "layers",
    "live",
    "offload",
    "optimize",
    "predict",
    "recommend",
    "run",
    "sweep",
    "trace",
    "train_advise",
    "train_characterize",
    "train_interleave",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'edgescope' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted(__all__)
