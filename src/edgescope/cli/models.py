"""List the models: task, parameters, MACs, FLOPs, and whether their weights are trained."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from edgescope.commandline import trial_flags

if TYPE_CHECKING:
    from edgescope.models.base import Model


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Print the models; a MAC is one multiply-accumulate and counts as two FLOPs; return 0."""
    from edgescope.models import zoo

    infos = [(name, zoo.get(name)) for name in zoo.names()]
    if args.json:
        print(json.dumps([_facts(name, model) for name, model in infos], indent=1))
        return 0
    from edgescope.report.render import terminal

    cells = [
        (
            name,
            model.info.task,
            "x".join(map(str, model.inputs[0].shape)),
            f"{(model.info.params or 0) / 1e6:.2f}",
            f"{(model.info.macs or 0) / 1e9:.3f}",
            f"{2 * (model.info.macs or 0) / 1e9:.3f}",
        )
        for name, model in infos
    ]
    terminal.table(("model", "task", "input", "M params", "GMACs", "GFLOPs"), cells)
    for name, model in infos:
        if model.info.trained:
            terminal.note(f"trained: {name}, {model.info.source.removeprefix('trained on ')}")
    terminal.note("All others are untrained here: random weights from seed 0, for their speed alone.")
    terminal.note(
        "Also: NAME@weights.pth, any file.onnx, any module:callable. One MAC is two FLOPs; both count one sample."
    )
    return 0


def _facts(name: str, model: Model) -> dict[str, Any]:
    info = model.info
    return {
        "name": name,
        "task": info.task,
        "inputs": {i.name: list(i.shape) for i in model.inputs},
        "params": info.params,
        "macs": info.macs,
        "flops": None if info.macs is None else 2 * info.macs,
        "trained": info.trained,
        "source": info.source,
    }
