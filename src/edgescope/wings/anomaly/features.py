"""Features of snippets: the engine that computes them, and the folder that holds those of a set of videos.

A folder has one array a video, and manifest.jsonl that says what they are. Its first line names the feature network,
how frames were prepared and the engine; each further line is one video, written once its features are, so an
interrupted extraction goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.backends.base import Backend, Session, Spec
from edgescope.errors import ModelError, StoreError
from edgescope.models import zoo
from edgescope.records import Json, Scalar
from edgescope.registry import BACKENDS, home, load
from edgescope.wings.anomaly.layouts import NORMAL, Span
from edgescope.wings.anomaly.preparation import Frames, Preparation

Features = NDArray[np.float32]
"""(snippets, crops, width)."""


@dataclass(frozen=True)
class Engine:
    """The engine that computes features: its name, device, precision, the snippets of one call, and its options."""

    backend: str = "torch_eager"
    device: str = ""
    """'': the engine's own default."""
    precision: str = "fp32"
    batch: int = 1
    options: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def spec(self) -> Spec:
        """Return the settings in the form that engines take."""
        return Spec(
            precision=self.precision,
            batch=self.batch,
            device=self.device or home(self.backend),
            options=dict(self.options),
        )


DEFAULT = Engine()


class Extractor:
    """Computes features: frames or prepared inputs in, arrays out. It holds the engine's memory until `close`."""

    def __init__(self, preparation: Preparation, engine: Engine = DEFAULT) -> None:
        self.preparation, self.engine = preparation, engine
        backend: Backend = load(BACKENDS, engine.backend, "backend")()
        model = zoo.get(preparation.network)
        self._name = model.inputs[0].name
        self.model = model.info
        artifact = backend.prepare(model, engine.spec, cache.folder("artifacts"))
        self._session: Session = backend.load(artifact)

    def __call__(self, frames: Frames) -> Features:
        """Return (ceil(n / snippet), crops, width) of n frames of any size."""
        prepared = self.preparation
        snippets = prepared.snippets(prepared.scaled(frames))
        return self.run(prepared.inputs(snippets)).reshape(len(snippets), prepared.crops, prepared.width)

    def run(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the network's output (n, width) of n prepared inputs, in batches of the engine's size."""
        size = self.engine.batch
        found = np.empty((len(inputs), self.preparation.width), dtype=np.float32)
        for start in range(0, len(inputs), size):
            rows = inputs[start : start + size]
            if len(rows) < size:
                rows = rows[np.minimum(np.arange(size), len(rows) - 1)]
            output = self._session({self._name: rows})[0]
            found[start : start + size] = output[: len(found) - start]
        return found

    def effective(self) -> Any:
        """Return the device and precision that the engine ran with; valid after the first call."""
        return self._session.effective()

    def close(self) -> None:
        """Free the engine."""
        self._session.close()


MANIFEST = "manifest.jsonl"
FORMAT = "edgescope anomaly features 1"
FIX = "edgescope anomaly extract VIDEOS FEATURES"


@dataclass(frozen=True)
class Row:
    """One video of the manifest."""

    name: str
    split: str
    category: str
    intervals: tuple[Span, ...] | None
    frames: int
    fps: float | None
    """Frames per second; None if the video does not say."""
    snippets: int
    repeated: int
    """Copies of the last frame in the last snippet."""
    damaged: int
    """Damaged frames or packets that were left out."""
    key: str
    """Hash of the video file and of everything that its features depend on."""
    left_out: str = ""
    """Why there are no features, or ''."""

    @property
    def anomalous(self) -> bool:
        """Return whether it holds an anomaly."""
        return self.category != NORMAL

    @property
    def file(self) -> str:
        """Return the name of its array within the folder."""
        return f"{self.name}.npy"


@dataclass(frozen=True)
class FeatureSet:
    """The features of a set of videos."""

    root: Path
    preparation: Preparation
    about: Mapping[str, Json]
    """The first line of the manifest."""
    rows: tuple[Row, ...]
    """The videos with features, in the order of their names."""
    left_out: tuple[Row, ...] = ()

    def of(self, split: str) -> tuple[Row, ...]:
        """Return the videos of a split."""
        return tuple(row for row in self.rows if row.split == split)

    def features(self, row: Row) -> NDArray[np.float32]:
        """Return (snippets, crops, width) of a video; ModelError if the file is not what the manifest says."""
        path = self.root / row.file
        try:
            found: NDArray[np.float32] = np.load(path)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(path, str(error)) from error
        wanted = (row.snippets, self.preparation.crops, self.preparation.width)
        if found.shape != wanted:
            raise _damaged(path, f"its shape is {found.shape}, the manifest says {wanted}")
        if not np.isfinite(found).all():
            raise _damaged(path, "it holds values that are no numbers")
        return found


def read_features(root: Path) -> FeatureSet:
    """Return the features of a folder; ModelError if it holds none or its manifest is damaged."""
    about, rows = entries(root)
    if about is None:
        raise _damaged(
            root / MANIFEST, "there is no such file, or it is not from `edgescope anomaly extract`"
        )
    usable = sorted((row for row in rows.values() if not row.left_out), key=lambda row: row.name)
    if not usable:
        raise _damaged(root / MANIFEST, "it names no video with features")
    left_out = tuple(row for row in rows.values() if row.left_out)
    return FeatureSet(root, Preparation.of(about["preparation"]), about, tuple(usable), left_out)


def entries(root: Path) -> tuple[dict[str, Any] | None, dict[str, Row]]:
    """Return the first line of a manifest, None without one, and its videos by name; the last line of a name counts.

    A line that was cut off while it was written is passed over.
    """
    try:
        lines = (root / MANIFEST).read_text(encoding="utf-8").splitlines()
        about = json.loads(lines[0])
        if about.get("format") != FORMAT:
            return None, {}
    except (OSError, ValueError, IndexError, AttributeError):
        return None, {}
    rows = {}
    for line in lines[1:]:
        try:
            row = json.loads(line)
            if row["intervals"] is not None:
                row["intervals"] = tuple((int(start), int(end)) for start, end in row["intervals"])
            rows[row["name"]] = Row(**row)
        except (ValueError, KeyError, TypeError):
            continue
    return about, rows


class Manifest:
    """Writes a manifest line by line."""

    def __init__(self, root: Path, about: Mapping[str, Json], rows: Sequence[Row]) -> None:
        self.path = root / MANIFEST
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"format": FORMAT, **about}), *(json.dumps(asdict(row)) for row in rows)]
        self._write("\n".join(lines) + "\n", "w")

    def add(self, row: Row) -> None:
        """Append a video."""
        self._write(json.dumps(asdict(row)) + "\n", "a")

    def _write(self, text: str, mode: str) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(text)
                file.flush()
        except OSError as error:
            raise StoreError(
                "E-ANOMALY-12",
                f"{self.path} cannot be written",
                evidence=str(error),
                effect="Features extracted before are kept",
                fix="free some space, then the same command",
            ) from error


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(
        "E-ANOMALY-13", f"{path} is no file of features", evidence=what, effect="Nothing was read", fix=FIX
    )
