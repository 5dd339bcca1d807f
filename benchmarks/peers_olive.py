"""The user's side of Olive, for benchmarks/peers.py: pictures as data sets, and the evaluator's way to a class.

Olive loads this file by its name, in the folder that holds the arrays. The evaluator counts agreement with fp32 through
labels that fp32 gave: Olive 0.13.0 fails on a metric of the type `custom` before it has measured anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from olive.data.registry import Registry

HERE = Path(__file__).parent


class Pictures:
    """Pairs of a network's input and its class, from NAME.npy and NAME_classes.npy."""

    def __init__(self, name: str) -> None:
        self.pictures = np.load(HERE / f"{name}.npy")
        self.classes = np.load(HERE / f"{name}_classes.npy")

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, i: int) -> tuple[dict[str, Any], int]:
        return {"input": self.pictures[i]}, int(self.classes[i])


@Registry.register_dataset()
def pictures(data_dir: str | None = None, name: str = "", **_: Any) -> Pictures:
    return Pictures(name)


@Registry.register_post_process()
def top1(output: Any, **_: Any) -> torch.Tensor:
    if isinstance(output, dict):
        output = next(iter(output.values()))
    return torch.as_tensor(output[0] if isinstance(output, (tuple, list)) else output).argmax(-1)
