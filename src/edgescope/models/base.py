"""The interface of models: where a network comes from, its fp32 definition, and real inputs to judge it with.

A Model never imports torch before its module is requested: an engine that only reads an ONNX file must be
measured in a process that holds nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from edgescope.records import ModelInfo
from edgescope.records.lazy import NDArray, np

if TYPE_CHECKING:
    import torch

    from edgescope.fit import Task

Batch = Mapping[str, NDArray[Any]]
"""Input name -> array whose first axis is the batch."""

MIN_FRAMES, TRAINED_FRAMES = 100, 400
"""The least real inputs by which the gate judges a trained network, labelled or not (one of them is one point then),
and the number that it requests."""
DENSE = ("segment", "detect", "features", "score")
"""Tasks whose answer is not a class, so labelled photographs and 400 frames show nothing that a few inputs do not."""


class Purpose(str, Enum):
    """The purpose of samples; no sample serves both GATE and CALIBRATION."""

    BENCH = "bench"
    GATE = "gate"
    CALIBRATION = "calibration"
    LABELLED = "labelled"


@runtime_checkable
class OnDemand(Protocol):
    """Arrays of samples that are made when they are asked for."""

    def where(self, rows: slice) -> Mapping[str, NDArray[Any]]:
        """Return some of the samples."""


@dataclass(frozen=True)
class Samples:
    """Inputs of one purpose: arrays of shape (n, ...) by input name, what is right for them, a hash of each sample."""

    arrays: Mapping[str, NDArray[Any]]
    digests: tuple[str, ...]
    """SHA-256 (16 hex digits) of each sample's preprocessed bytes: equality means the same input."""
    origin: str
    """Where they come from, for the reader of a result."""
    labels: NDArray[np.int64] | None = None
    """(n,) class numbers, or (n, height, width) class maps for segmentation."""
    boxes: tuple[NDArray[np.float32], ...] | None = None
    """For detection, for each sample (k, 5): x1, y1, x2, y2 in pixels of the network's input, class number."""
    groups: NDArray[np.int64] | None = None
    """One number per sample, (n,): equal numbers mean one scene, so not independent. None: all are independent."""
    noise: bool = False
    """Whether they are random numbers: good for timing and for telling engines apart, not for judging int8."""
    unread: tuple[str, ...] = ()
    """The files that could not be read and are left out, each with the reason."""

    def __len__(self) -> int:
        return len(self.digests)

    def first(self, n: int) -> Samples:
        """Return the first n samples."""
        return self.where(slice(n))

    def where(self, rows: slice) -> Samples:
        """Return some of the samples."""
        arrays: Mapping[str, NDArray[Any]]
        if isinstance(self.arrays, OnDemand):
            arrays = self.arrays.where(rows)
        else:
            arrays = {name: array[rows] for name, array in self.arrays.items()}
        labels, groups = (None if x is None else x[rows] for x in (self.labels, self.groups))
        boxes = None if self.boxes is None else self.boxes[rows]
        return Samples(
            arrays, self.digests[rows], self.origin, labels, boxes, groups, self.noise, self.unread
        )


@dataclass(frozen=True)
class TensorSpec:
    """One input: name, shape without the batch axis, numpy dtype name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    step: tuple[float, int] | None = None
    """Scale and zero point of integers that stand for numbers, (integer - zero) * scale; None: they are themselves."""


class Model(Protocol):
    """One network and the inputs to judge it with."""

    @property
    def info(self) -> ModelInfo:
        """Return the facts known without running the network; cheap, imports no engine."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs in the order the network takes them."""

    @property
    def reference(self) -> str:
        """Return the backend whose fp32 outputs are the reference: torch_eager, or onnxruntime for a file."""

    def module(self) -> torch.nn.Module:
        """Return the fp32 network in eval mode; UnsupportedError if there is only a file."""

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return an fp32 ONNX file with an open batch axis, made once, cached by content under `folder`.

        `opset` requests exactly that version (an old engine reads no later one); None: the exporter's default.
        """

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return up to n samples for this purpose, always the same ones, or None if there are none."""


@runtime_checkable
class FixedBatch(Protocol):
    """Optional interface of a model that is a file: its batch axis may be closed."""

    @property
    def closed_batch(self) -> int | None:
        """Return the only batch size that it takes, or None if the axis is open."""

    def check_batch(self, batch: int) -> None:
        """Raise UsageError if it cannot take this batch size."""


@runtime_checkable
class Trains(Protocol):
    """Optional interface of a model that may bring its own training."""

    def task(self) -> Task | None:
        """Return a new task with its initial weights; None if it is a network alone."""


@runtime_checkable
class Configured(Protocol):
    """Optional interface of a model that carries a config of its pictures, as networks of timm do."""

    @property
    def config(self) -> Mapping[str, Any] | None:
        """Return the config, or None if it has none."""


@runtime_checkable
class Described(Protocol):
    """Optional interface of a kind of model whose inputs are known only once something of it ran."""

    @classmethod
    def described(cls, name: str, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Return whether its facts are known, so that nothing of it has to run."""


@runtime_checkable
class Written(Protocol):
    """Optional interface of a model that is a file: the precision in which its products are written."""

    @property
    def written(self) -> str:
        """Return int8, fp16, int4 ... of a file that no longer holds an fp32 network, '' of one that does."""


def written(model: Model) -> str:
    """Return the precision of a model that is run as it is and never lowered, '' for one that can be lowered."""
    return model.written if isinstance(model, Written) else ""


def usual_batch(model: Model) -> int:
    """Return the batch in which its fp32 answers are computed: its only one, or 8."""
    return (model.closed_batch if isinstance(model, FixedBatch) else None) or 8


@runtime_checkable
class SeesImages(Protocol):
    """Optional interface of a model that knows how an image becomes its input."""

    @property
    def preprocess(self) -> Callable[[Any], NDArray[np.float32]]:
        """Return the function that turns an opened image (PIL) into one sample, without the batch axis."""


@runtime_checkable
class SeesClips(Protocol):
    """Optional interface of a model of clips, whose first input is (channels, frames, height, width)."""

    @property
    def frame_preprocess(self) -> Callable[[Any], NDArray[np.float32]]:
        """Return the function that turns one frame (PIL) into one slice of its input, (channels, height, width)."""

    @property
    def frame_step(self) -> int:
        """Return the step between the frames that it sees: 1 for every frame of a video, 2 for every second."""

    @property
    def width(self) -> int:
        """Return the number of values that it gives of a clip: features, or classes."""


@dataclass(frozen=True, slots=True)
class Detections:
    """The boxes found in one frame, the most certain first."""

    boxes: NDArray[np.float32]
    """(n, 4): x1, y1, x2, y2 in pixels of the frame."""
    scores: NDArray[np.float32]
    """(n,) between 0 and 1."""
    classes: NDArray[np.int64]
    """(n,) class numbers."""

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a frame was fitted into the network's input: a point of the input is the frame's, scaled, then moved."""

    scale_x: float = 1.0
    scale_y: float = 1.0
    offset_x: float = 0.0
    offset_y: float = 0.0
    """Pixels of the input: positive beside a letterbox's border, negative where the frame was cropped."""


class Decoder(Protocol):
    """Reads a detector's outputs as boxes, suppresses overlapping ones, and maps them to the frame.

    `outputs` are the network's, each (batch, ...), on the host or a device, and `fits` has one entry per frame; rows of
    the batch beyond them are ignored. The three ways find the same boxes.
    """

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the classes by number, or () if they are not known."""

    @property
    def score(self) -> float:
        """Return the score that a box must exceed."""

    READS: ClassVar[int | None]
    """How many of the outputs it reads, from the first on; None: all."""

    def elements(self, outputs: Sequence[Any], fits: Sequence[Fit]) -> list[Detections]:
        """Return the boxes of each frame, read by Python loops where the outputs lie: on a device each read waits."""

    def host(self, outputs: Sequence[Any], fits: Sequence[Fit]) -> list[Detections]:
        """Return the boxes of each frame, computed with numpy after one copy of the outputs to the host."""

    def device(self, outputs: Sequence[Any], fits: Sequence[Fit]) -> list[Detections]:
        """Return the boxes of each frame, computed with torch where the outputs lie; only the boxes are copied."""

    def at(self, score: float) -> Decoder:
        """Return the same decoder with another least score."""


@runtime_checkable
class Decodes(Protocol):
    """Optional interface of a detector that knows how its outputs are read as boxes."""

    @property
    def decoder(self) -> Decoder:
        """Return what reads its outputs, with the thresholds that the detector is used with."""
