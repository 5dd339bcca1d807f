"""The sidecar weights.pth.json that `edgescope train clips` writes next to weights: it names their training data.

Without it neither the classes of the weights nor the inputs to judge them with are known. It names its weights
by their SHA-256, so it is never read for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.models.base import MIN_FRAMES
from edgescope.records import Json
from edgescope.wings.training.clip_classifier.samples import Origin

VERSION = 1


@dataclass(frozen=True)
class Sidecar:
    """The part of the file that a model needs."""

    origin: Origin
    params: int
    macs: int
    gate_clips: int
    """Number of held-out clips on which a variant can be judged."""
    accuracy: str

    @property
    def enough(self) -> bool:
        """Return whether there are enough held-out clips to judge a variant by its top class."""
        return self.gate_clips >= MIN_FRAMES

    @property
    def source(self) -> str:
        """Return where the weights come from, in one sentence."""
        text = f"trained by edgescope train clips on {self.origin.folder.name}; {self.accuracy}"
        few = f"; {self.gate_clips} held-out clips are too few for the top-1 gate, which needs {MIN_FRAMES}"
        return text if self.enough else text + few


def path_of(weights: Path) -> Path:
    """Return the path of the sidecar: weights.pth.json for weights.pth."""
    return weights.with_name(weights.name + ".json")


def write(weights: Path, about: dict[str, Json]) -> Path:
    """Write `about` to the sidecar of `weights`; return its path."""
    return cache.write_json(path_of(weights), {"version": VERSION, **about})


def read(weights: Path) -> Sidecar | None:
    """Return the sidecar of `weights`, or None if there is none.

    ModelError if it is damaged, or was written for other weights.
    """
    path = path_of(weights)
    if not path.exists() or not weights.exists():
        return None
    about: dict[str, Any] | None = cache.read_json(path)
    try:
        assert about is not None and about["version"] == VERSION
        found = _sidecar(about)
        wanted = about["weights_sha256"]
    except (AssertionError, KeyError, TypeError) as error:
        raise ModelError(
            "E-CLIPS-7",
            f"{path.name} is not a file that edgescope train clips writes next to weights",
            evidence=f"{type(error).__name__}: {error}" if str(error) else "",
            effect="The training data of these weights is not known",
            fix=f"train again, or delete {path} to time them with synthetic inputs",
        ) from error
    if cache.content(weights) != wanted:
        raise ModelError(
            "E-CLIPS-8",
            f"{path.name} was written for other weights",
            evidence=f"SHA-256 {cache.content(weights)[:12]}, written for {str(wanted)[:12]}",
            effect="An accuracy of one network would be claimed for another",
            fix=f"copy both files together, or delete {path} to time them with synthetic inputs",
        )
    return found


def _sidecar(about: dict[str, Any]) -> Sidecar:
    data, accuracy = about["data"], about["accuracy"]
    return Sidecar(
        origin=Origin(Path(data["folder"]), tuple(data["classes"]), str(data["digest"])),
        params=int(about["params"]),
        macs=int(about["macs"]),
        gate_clips=int(data["gate_clips"]),
        accuracy=(
            f"{accuracy['value']:.1%} of {accuracy['n']} held-out videos right"
            f" (95 % interval {accuracy['lo']:.1%} to {accuracy['hi']:.1%})"
        ),
    )
