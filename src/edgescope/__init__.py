"""edgescope measures, explains and optimises deep learning on edge devices, with numbers you can defend.

    import edgescope

    result = edgescope.run(edgescope.Trial(model="efficientnet_lite0", backend="onnxruntime", precision="int8"))
    print(result)                              # a few lines
    print(result.value("latency_p50_s"))       # a number
    best = edgescope.optimize("efficientnet_lite0", constraints=["p99<=33ms"])

Every verb of the command line is one function here (`edgescope docs api`). Nothing heavy is imported before its use.
"""

from __future__ import annotations

import importlib.util

TYPE_CHECKING = False  # as of typing, whose import takes as long as all else here
if TYPE_CHECKING:
    from typing import Any

    from edgescope.errors import EdgescopeError as EdgescopeError
    from edgescope.isolate.fresh import Limits as Limits
    from edgescope.models.user.live import live as live
    from edgescope.modes.enter import in_mode as in_mode
    from edgescope.records import (
        Absent as Absent,
    )
    from edgescope.records import (
        Measured as Measured,
    )
    from edgescope.records import (
        Result as Result,
    )
    from edgescope.records import (
        Results as Results,
    )
    from edgescope.records import (
        Status as Status,
    )
    from edgescope.records import (
        Trial as Trial,
    )
    from edgescope.records import (
        Trust as Trust,
    )
    from edgescope.records import (
        Verdict as Verdict,
    )
    from edgescope.runner.setup import Setup as Setup
    from edgescope.runner.setup import run as run
    from edgescope.store.results import Store as Store
    from edgescope.study.grid import Study as Study
    from edgescope.verbs.compare import compare as compare
    from edgescope.verbs.sweep import sweep as sweep
    from edgescope.wings.anomaly.verb import watch as watch
    from edgescope.wings.capacity.verb import capacity as capacity
    from edgescope.wings.energy.verb import energy as energy
    from edgescope.wings.explain.verb import explain as explain
    from edgescope.wings.layers.verb import layers as layers
    from edgescope.wings.offload.verb import Sent as Sent
    from edgescope.wings.offload.verb import offload as offload
    from edgescope.wings.optimize.verb import optimize as optimize
    from edgescope.wings.predict.verb import predict as predict
    from edgescope.wings.recommend.verb import recommend as recommend
    from edgescope.wings.studies.verb import ladder as ladder
    from edgescope.wings.studies.verb import train_characterize as train_characterize
    from edgescope.wings.trace.verb import trace as trace
    from edgescope.wings.training.advise import train_advise as train_advise
    from edgescope.wings.training.interleave import train_interleave as train_interleave

__version__ = "0.1.0"

#: Public name -> its module; what the verbs add is in the registry, so that an installed package can add more.
_HOMES = {
    **dict.fromkeys(
        ("Absent", "Measured", "Result", "Results", "Status", "Trial", "Trust", "Verdict"),
        "edgescope.records",
    ),
    "EdgescopeError": "edgescope.errors",
    "Limits": "edgescope.isolate.fresh",
    "Setup": "edgescope.runner.setup",
    "Store": "edgescope.store.results",
    "Study": "edgescope.study.grid",
    "in_mode": "edgescope.modes.enter",
    "live": "edgescope.models.user.live",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__all__":
        return __dir__()
    if name.startswith("_") or importlib.util.find_spec(
        f"{__name__}.{name}"
    ):  # a module is asked for here, too
        raise AttributeError(f"module 'edgescope' has no attribute {name!r}")
    return importlib.import_module("edgescope.registry").function(name)


def __dir__() -> list[str]:
    """Return the public names, for completion and `from edgescope import *`."""
    from edgescope.registry import functions

    return sorted(["__version__", *_HOMES, *functions()])
