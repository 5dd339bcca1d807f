"""Planted bottlenecks of training: whether the right setting is named first, and gains what was predicted.

    PYTHONPATH=src:tests python benchmarks/training_advice.py [--only read,decode] [--seconds 660]

Each case is a task with one thing wrong, which can be run by itself: `cd benchmarks; edgescope train advise
training_advice:read`. Targets: the right knob first in 7 of 8, the realised gain within 20 % of the predicted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from edgescope.training.stages import stage
from edgescope.training.task import Task

OUT = Path(__file__).parent.parent / "published" / "training_advice.json"
WINDOW_S = 3.0
"""Seconds of each run: ten cases then fit into twelve minutes."""
Case = tuple[set[str], str, dict[str, Any]]
#: Case -> the knobs that are right, the model, further keys of the Trial. {jpg} is a folder of large photographs.
CASES: dict[str, Case] = {
    "read": ({"num_workers"}, "training_advice:read", {}),
    "augment": ({"num_workers"}, "training_advice:augment", {}),
    "collate": ({"num_workers"}, "training_advice:collate", {}),
    "restart": ({"persistent_workers"}, "training_advice:restart", {}),
    "bursts": ({"prefetch_factor"}, "training_advice:bursts", {}),
    "small_batch": ({"batch"}, "training_advice:small_batch", {}),
    "few_workers": ({"num_workers"}, "training_advice:few_workers", {}),
    "decode": ({"decode"}, "lenet5", {"batch": 8, "workload_options": {"images": "{jpg}", "num_workers": 2}}),
    "medium": (
        {"preload"},
        "lenet5",
        {
            "batch": 8,
            "workload_options": {
                "images": "{jpg}",
                "decode": "draft",
                "medium": "hdd",
                "page_cache": "cold_epochs",
                "num_workers": 1,
                "persistent_workers": True,
            },
        },
    ),
    "threads": ({"threads"}, "resnet18_cifar", {"batch": 8, "options": {"threads": 16}}),
}


class Items(Dataset[Any]):
    """Samples of which one stage takes long."""

    def __init__(self, count: int, slow: str, seconds: float, every: int = 1) -> None:
        self.count, self.slow, self.seconds, self.every = count, slow, seconds, every

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        for name in ("read", "decode", "augment"):
            with stage(name):
                if name == self.slow and index % self.every == 0:
                    time.sleep(self.seconds)
        return torch.full((4,), index / self.count), index % 3


def _collated(rows: list[Any]) -> Any:
    time.sleep(0.005 * len(rows))
    return default_collate(rows)


def _task(items: Items, *, step_s: float = 0.02, batch: int = 8, fixed: bool = False, **loader: Any) -> Task:
    """Return a task whose step takes `step_s` for eight samples, or, if `fixed`, for any number of them."""
    network = nn.Linear(4, 3)
    made = DataLoader(items, batch_size=batch, shuffle=items.every == 1, **loader)

    def loss(net: nn.Module, rows: Any) -> torch.Tensor:
        time.sleep(step_s if fixed else step_s * len(rows[0]) / 8)
        return nn.functional.cross_entropy(net(rows[0]), rows[1])

    return Task(network, lambda epoch: made, loss, torch.optim.SGD(network.parameters(), lr=0.01))


def read() -> Task:
    """Reading takes longer than the step, and nobody reads ahead."""
    return _task(Items(800, "read", 0.004))


def augment() -> Task:
    """Augmenting takes half as long as the step, and nothing overlaps."""
    return _task(Items(800, "augment", 0.002), step_s=0.03)


def collate() -> Task:
    """Joining samples takes twice as long as the step."""
    return _task(Items(800, "", 0.0), collate_fn=_collated)


def restart() -> Task:
    """Epochs are short and the workers start anew in each."""
    return _task(Items(40, "read", 0.001), num_workers=2)


def bursts() -> Task:
    """One minibatch in eight takes as long as five steps; the worker is not far enough ahead."""
    return _task(
        Items(1600, "read", 0.1, every=64), num_workers=1, persistent_workers=True, prefetch_factor=2
    )


def small_batch() -> Task:
    """The step takes as long for two samples as for eight."""
    return _task(Items(800, "", 0.0), batch=2, fixed=True)


def few_workers() -> Task:
    """One worker loads at a third of the speed of the step."""
    return _task(Items(1600, "decode", 0.008), num_workers=1, persistent_workers=True)


def examined(name: str, folder: Path, verify: bool) -> dict[str, Any]:
    """Return what was advised for a case and what the change brought."""
    from edgescope.verbs.train_advise import train_advise

    right, model, keys = CASES[name]
    options = {
        key: value.format(jpg=folder / "jpg") if isinstance(value, str) else value
        for key, value in keys.get("workload_options", {}).items()
    }
    say: Callable[[object], None] = lambda what: print(what, file=sys.stderr)  # noqa: E731
    from edgescope.runner.setup import Setup

    found = train_advise(
        model,
        verify=verify,
        store=folder / "store",
        setup=Setup(tell=say),
        **{
            "options": {"threads": 1},
            "min_s": WINDOW_S,
            "max_s": WINDOW_S,
            **keys,
            "workload_options": options,
        },
    )
    print(found, file=sys.stderr)
    pick, gain = found.pick, getattr(found.realised, "value", None)
    return {
        "case": name,
        "right": sorted(right),
        "bottleneck": found.bottleneck,
        "advised": pick.setting if pick else None,
        "first": bool(pick and pick.knob in right),
        "predicted": pick.gain if pick else None,
        "realised": gain,
        "interval": [getattr(found.realised, "lo", None), getattr(found.realised, "hi", None)],
        "off": gain / pick.gain - 1 if pick and gain else None,
        "others": {change.setting: change.gain for change in found.changes[1:]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--seconds", type=float, default=660.0, help="begin no case after so long")
    parser.add_argument("--no-verify", dest="verify", action="store_false")
    parser.add_argument("--folder", type=Path, default=None, help="keep runs here: the same command goes on")
    parser.add_argument(
        "--keep", action="store_true", help="keep this machine's published rows of other cases"
    )
    args = parser.parse_args()
    from facts import machine_id, publish

    from edgescope.models.image import photo_set

    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    page = json.loads(OUT.read_text()) if args.keep and OUT.exists() else {}
    kept = page["figures"]["rows"] if page.get("machine_id") == machine_id() else []
    rows: list[dict[str, Any]] = [row for row in kept if row["case"] not in args.only]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edgescope-advice-") as place:
        folder = args.folder or Path(place)
        if not (folder / "jpg").exists():
            photo_set.write(folder / "jpg", photo_set.Recipe(64, 1280, 960))
        for name in args.only:
            if time.monotonic() - begun > args.seconds:
                break
            try:
                rows.append(examined(name, folder, args.verify))
            except Exception as error:  # one case that fails must not lose the others
                rows.append({"case": name, "first": False, "off": None, "failed": str(error)})
            first = sum(row["first"] for row in rows)
            near = sum(row["off"] is not None and abs(row["off"]) <= 0.2 for row in rows)
            figures = {"cases": len(rows), "right_first": first, "within_20_per_cent": near, "rows": rows}
            publish("training_advice", figures, met=len(rows) >= 8 and min(first, near) >= len(rows) - 1)


if __name__ == "__main__":
    main()
