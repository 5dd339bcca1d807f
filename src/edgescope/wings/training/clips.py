"""Classifiers of clips, sixteen frames in and one of a few actions out: trained on a folder of videos, run by weights.

The three networks of the zoo are untrained until `edgescope train clips` has read and split the videos, trained, and
written weights; then `har_cnn3d@weights.pth` is a trained classifier for every other command. The sidecar
weights.pth.json next to the weights names their training data: it gives the classes, and the clips that a variant is
judged with. Those come from videos that training never saw; int8 ranges are found on clips of training videos. Without
it neither is known. It names its weights by their SHA-256, so it is never read for others.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import cache, registry
from edgescope.artifacts import onnx_export
from edgescope.errors import ModelError, UsageError
from edgescope.models import synthetic, zoo
from edgescope.models.base import MIN_FRAMES, Purpose, Samples, TensorSpec
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need
from edgescope.stats.pairs import wilson
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
    write_sidecar(out, about)
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
