"""Train a network of the zoo on a folder of videos: read, split, train, write the weights and their sidecar.

The result is `NAME@weights.pth` for every other command, and weights.pth.json is its sidecar (clip_networks.py).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgescope import cache, registry
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import Json, digest
from edgescope.registry import need
from edgescope.stats.pairs import wilson
from edgescope.wings.training import clip_data, clip_networks


@dataclass(frozen=True)
class Settings:
    """How to train."""

    epochs: int = 40
    batch: int = 16
    seed: int = 0
    device: str = "cpu"
    rate: float = 1e-3
    """Learning rate at the start; it falls to 0 along a cosine."""

    @property
    def place(self) -> str:
        """What PyTorch calls the device."""
        return registry.place(self.device).called("torch")

    def __post_init__(self) -> None:
        """Raise UsageError if a setting makes no sense."""
        wrong = [
            text
            for fits, text in (
                (self.epochs >= 1, f"--epochs must be at least 1, not {self.epochs}"),
                (
                    self.batch >= 2,
                    f"--batch-size must be at least 2, as batches are normalised, not {self.batch}",
                ),
                (0 <= self.seed < 2**63, f"--seed must be a whole number from 0, not {self.seed}"),
                (
                    "torch" in registry.place(self.device).names,
                    f"--device must be a place that PyTorch trains on, not {self.device!r}",
                ),
                (
                    self.rate > 0 and math.isfinite(self.rate),
                    f"--learning-rate must be above 0, not {self.rate:g}",
                ),
            )
            if not fits
        ]
        if wrong:
            raise UsageError(
                "E-TRAIN-1", wrong[0], effect="Nothing was trained", fix="edgescope train clips --help"
            )


@dataclass(frozen=True)
class Epoch:
    """One pass over the training videos: its mean loss, and the held-out videos classified correctly after it."""

    number: int
    loss: float
    right: int
    held_out: int
    seconds: float


def train(
    name: str,
    folder: Path,
    out: Path,
    *,
    classes: Sequence[str] = (),
    settings: Settings = Settings(),
    started: Callable[[clip_data.Data], None] = lambda data: None,
    tell: Callable[[Epoch], None] = lambda epoch: None,
) -> dict[str, Json]:
    """Train `name`; write the weights to `out` and their sidecar `out.json`; return the sidecar.

    UsageError if `name` is not a clip network, ModelError if the videos are not usable, UnavailableError if PyTorch,
    PyAV or the device is missing. `started` is called with the videos, `tell` with each epoch. Each epoch is kept in
    `OUT.part` until the weights are written: a repetition of the same training goes on after the last one, to the same
    weights.
    """
    entry = _entry(name)
    _writable(out)
    data = clip_data.read(folder.absolute(), classes)
    started(data)
    run = need(
        "edgescope.wings.training.torch_clips:train", "training", "pip install 'edgescope[torch,video]'"
    )
    part = out.with_name(f"{out.name}.part")
    key = digest([name, asdict(settings), data.digest, list(data.classes), cache.versions(("torch",))])
    trained = run(entry, data, settings, tell=tell, kept=(part, key))
    save = need("edgescope.models.weights:save", "training", "pip install 'edgescope[torch]'")
    save(trained.network, out)
    about = _about(name, data, settings, trained) | {"weights_sha256": cache.content(out)}
    clip_networks.write_sidecar(out, about)
    part.unlink(missing_ok=True)
    return about


def names() -> tuple[str, ...]:
    """Return the networks of the zoo that can be trained here."""
    return tuple(name for name, entry in zoo.table().items() if entry["definition"].startswith("clips:"))


def _writable(out: Path) -> None:
    """Raise UsageError if the weights could not be written after training."""
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir():
            raise IsADirectoryError(f"{out} is a folder")
        with tempfile.TemporaryFile(dir=out.absolute().parent):
            pass
    except OSError as error:
        raise UsageError(
            "E-TRAIN-5",
            f"--output {out} cannot be written",
            evidence=str(error),
            effect="Nothing was trained",
            fix="--output FILE.pth in a folder that you can write",
        ) from error


def _entry(name: str) -> dict[str, Any]:
    if name in names():
        return zoo.table()[name]
    raise UsageError(
        "E-TRAIN-4",
        f"{name} is no network for clips",
        evidence=f"those are {', '.join(names())}",
        fix=f"edgescope train clips {names()[0]} --data ROOT --output weights.pth",
    )


def _about(name: str, data: clip_data.Data, settings: Settings, trained: Any) -> dict[str, Json]:
    last: Epoch = trained.history[-1]
    interval = wilson(last.right, last.held_out)
    return {
        "model": name,
        "params": trained.params,
        "macs": trained.macs,
        "data": {
            "folder": str(data.folder),
            "digest": data.digest,
            "classes": list(data.classes),
            "training_videos": len(data.training),
            "held_out_videos": len(data.held_out),
            "held_out_groups": sorted({video.group for video in data.held_out}),
            "left_out": list(data.skipped),
            "gate_clips": len(clip_data.gate_windows(data)),
        },
        "accuracy": {
            "value": last.right / last.held_out,
            "lo": interval.lo,
            "hi": interval.hi,
            "n": last.held_out,
            "unit": "1",
            "of": "held-out videos, the middle clip of each, by the last epoch's weights",
        },
        "settings": asdict(settings),
        "seconds": round(sum(epoch.seconds for epoch in trained.history), 3),
        "history": [asdict(epoch) for epoch in trained.history],
        "made_with": cache.versions(("edgescope", "torch", "av")),
    }
