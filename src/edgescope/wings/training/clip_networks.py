"""Classifiers of clips: sixteen frames in, one of a few actions out; and the sidecar that tells what weights are of.

The three networks of the zoo are untrained until `edgescope train clips` has written weights for them; then
`har_cnn3d@weights.pth` is a trained classifier. The sidecar weights.pth.json next to the weights names their training
data: it gives the classes, and the clips that a variant is judged with. Those come from videos that training never saw;
int8 ranges are found on clips of training videos. Without it neither is known. It names its weights by their SHA-256,
so it is never read for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import cache
from edgescope.artifacts import onnx_export
from edgescope.errors import ModelError
from edgescope.models import synthetic, zoo
from edgescope.models.base import MIN_FRAMES, Purpose, Samples, TensorSpec
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need
from edgescope.wings.training import clip_data
from edgescope.wings.training.clip_data import Origin

if TYPE_CHECKING:
    import torch


SEED = 0
VERSION = 1  # raise this when a network in torch_clips.py changes


class ClipClassifier:
    """A network of the zoo: float32 `input` (3, 16, 64, 64), one logit per class; `name` or `name@weights.pth`."""

    def __init__(self, name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        base, _, weights = name.partition("@")
        self._entry: dict[str, Any] = zoo.table()[base]
        self._weights = Path(weights) if weights else None
        self._about = read_sidecar(self._weights) if self._weights else None
        self.inputs = (TensorSpec("input", tuple(self._entry["input"]), "float32"),)
        self.reference = "torch_eager"
        zoo.check_shapes(name, self.inputs, shapes or {})
        self.info = self._info(base)

    def _info(self, name: str) -> ModelInfo:
        about, entry = self._about, self._entry
        identity = zoo.file_digest(self._weights) if self._weights else f"seed {SEED}"
        return ModelInfo(
            name=name,
            task="classify",
            trained=about is not None and about.enough,
            source=self._source(),
            digest=digest([VERSION, entry["definition"], identity, about.origin.digest if about else ""]),
            params=about.params if about else entry["params"],
            macs=about.macs if about else entry["macs"],
        )

    def _source(self) -> str:
        if self._about:
            return self._about.source
        if self._weights:
            return (
                f"weights given by the user: {self._weights.name}; no {self._weights.name}.json next to them says"
                " what they were trained on, so no accuracy is claimed"
            )
        return f"untrained: random weights, seed {SEED}"

    def module(self) -> torch.nn.Module:
        """Return the network in eval mode with its weights; ModelError if the weights do not fit."""
        make = need(
            "edgescope.wings.training.torch_clips:network",
            self.info.name,
            "pip install 'edgescope[torch]'",
        )
        module: torch.nn.Module = make(self._entry, self._weights, classes=self.width, seed=SEED)
        return module

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX with an open batch axis, exported once."""
        return onnx_export.onnx_file(self.info, self.inputs, self.module, folder, opset=opset)

    @property
    def frame_preprocess(self) -> Preprocess:
        """Return how one frame becomes one slice of the input."""
        mean, std = (tuple(self._entry[key]) for key in ("mean", "std"))
        return Preprocess(self.inputs[0].shape[-1], mean=mean, std=std, interpolation="bilinear")

    @property
    def frame_step(self) -> int:
        """Return the step between the frames of a clip."""
        return clip_data.EVERY

    @property
    def width(self) -> int:
        """Return the number of classes."""
        return len(self._about.origin.classes) if self._about else int(self._entry["classes"])

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return real clips for weights of `edgescope train clips`, seeded noise for any others.

        UnavailableError if the videos are gone, ModelError if they are no longer those of the training.
        LABELLED is None if there are too few held-out clips to judge with.
        """
        if self._about is None:
            return synthetic.samples(self.inputs, purpose, n)
        if purpose is Purpose.LABELLED and not self.info.trained:
            return None
        return clip_data.samples(self._about.origin, purpose, n, self._entry)


# -- the sidecar ----------------------------------------------------------------------------------------------


SIDECAR_VERSION = 1


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


def write_sidecar(weights: Path, about: dict[str, Json]) -> Path:
    """Write `about` to the sidecar of `weights`; return its path."""
    return cache.write_json(path_of(weights), {"version": SIDECAR_VERSION, **about})


def read_sidecar(weights: Path) -> Sidecar | None:
    """Return the sidecar of `weights`, or None if there is none.

    ModelError if it is damaged, or was written for other weights.
    """
    path = path_of(weights)
    if not path.exists() or not weights.exists():
        return None
    about: dict[str, Any] | None = cache.read_json(path)
    try:
        assert about is not None and about["version"] == SIDECAR_VERSION
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
