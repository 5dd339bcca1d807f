"""A trained detector in one file: the feature network, the head, how frames are prepared, and how it was trained.

    detector = Detector.load(Path("detector.pt"))
    features = detector.features(frames)        # frames (n, height, width, 3) uint8 -> (snippets, crops, width)
    scores = detector.scores(features)          # -> (snippets,), between 0 and 1

A feature network without weights of the user's own is in the file by its name only; with them, by name and weights.

Features of a video of any length -> 32 segments, as heads are trained on them. A video of fewer snippets is scored as
it was trained on, stretched to 32; a longer one with all its snippets. Segment i is the mean of the snippets from
floor(i n / 32) up to floor((i + 1) n / 32), or a copy of the first of them if there is none between: a video shorter
than 32 snippets repeats some.

A pipeline runs a detector as two networks by name, on any engine: features, and the head. The weights in the file are
written once into the cache, under their own content, where names of the zoo can refer to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.fit import UNREADABLE
from edgescope.models.weights import read_state
from edgescope.records import Json, Scalar
from edgescope.wings.anomaly.features import DEFAULT, Engine, Extractor, Features
from edgescope.wings.anomaly.heads import HEADS
from edgescope.wings.anomaly.preparation import Frames, Preparation, preparation
from edgescope.wings.anomaly.torch_networks import load as load_weights

SEGMENTS = 32


def segmented(features: NDArray[Any], count: int = SEGMENTS) -> NDArray[np.float32]:
    """Return (crops, count, width) of features (snippets, crops, width)."""
    bounds = np.linspace(0, len(features), count + 1, dtype=np.int64)
    sums = np.add.reduceat(features.astype(np.float32, copy=False), bounds[:-1], axis=0)
    means = sums / np.maximum(np.diff(bounds), 1).astype(np.float32)[:, None, None]
    found: NDArray[np.float32] = np.ascontiguousarray(means.swapaxes(0, 1))
    return found


def stretched(snippets: int, count: int = SEGMENTS) -> NDArray[np.int64]:
    """Return the snippet of each segment of a video of fewer snippets than segments; all snippets of a longer one."""
    if snippets >= count:
        return np.arange(snippets)
    return np.linspace(0, snippets, count + 1, dtype=np.int64)[:-1]


def folded(scores: NDArray[np.float32], snippets: int) -> NDArray[np.float32]:
    """Return one score per snippet from those of the stretched sequence: the mean over its copies."""
    of = stretched(snippets)
    sums = np.bincount(of, weights=scores, minlength=snippets)
    return (sums / np.bincount(of, minlength=snippets)).astype(np.float32)


# -- the detector --------------------------------------------------------------------------------------------


FORMAT = "edgescope anomaly detector 1"
Arrays = NDArray[np.float32]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a detector's file, on the host."""

    head: str
    """rtfm, mil_ranking or light_head."""
    preparation: Preparation
    head_state: Mapping[str, torch.Tensor]
    feature_state: Mapping[str, torch.Tensor] | None
    """Weights of the feature network if the user gave some; None: the zoo's own."""
    about: Mapping[str, Json]
    """How it was trained: data, settings, figures; `threshold` if one was chosen on validation videos."""

    def module(self) -> torch.nn.Module:
        """Return the head in eval mode; ModelError if its weights do not fit."""
        module = HEADS[self.head](self.preparation.width)
        load_weights(module, self.head_state, self.head)
        return module.eval()


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write a detector's file, completely or not at all."""
    page = {
        "format": FORMAT,
        "head": checkpoint.head,
        "preparation": {
            **asdict(checkpoint.preparation),
            "network": checkpoint.preparation.network.partition("@")[0],
        },
        "head_state": dict(checkpoint.head_state),
        "feature_state": None if checkpoint.feature_state is None else dict(checkpoint.feature_state),
        "about": dict(checkpoint.about),
    }
    with cache.writing(path) as temporary:
        torch.save(page, str(temporary))


def read(path: Path) -> Checkpoint:
    """Return the content of a detector's file; ModelError if it is missing, damaged or of something else."""
    try:
        page = torch.load(str(path), map_location="cpu", weights_only=True)
        if not isinstance(page, dict) or page.get("format") != FORMAT:
            raise ValueError("it is not a file that edgescope anomaly train writes")
        if page["head"] not in HEADS:
            raise ValueError(f"it holds a head {page['head']!r}")
        return Checkpoint(
            page["head"],
            Preparation.of(page["preparation"]),
            page["head_state"],
            page["feature_state"],
            page["about"],
        )
    except UNREADABLE as error:
        raise ModelError(
            "E-ANOMALY-3",
            f"{path} is no detector",
            evidence=" ".join(str(error).split())[:200],
            fix="edgescope anomaly train FEATURES --output detector.pt",
        ) from error


def user_weights(network: str) -> dict[str, torch.Tensor] | None:
    """Return the weights of `name@weights.pth`, or None if a name has none."""
    _, _, weights = network.partition("@")
    return read_state(Path(weights)) if weights else None


class Detector:
    """Features of frames and scores of features; the feature network's engine starts with the first frames."""

    def __init__(self, checkpoint: Checkpoint, engine: Engine = DEFAULT) -> None:
        self.checkpoint, self.engine = checkpoint, engine
        self.preparation = _with_weights(checkpoint)
        self._extractor: Extractor | None = None
        self._head = checkpoint.module()

    @classmethod
    def load(cls, path: Path, engine: Engine = DEFAULT) -> Detector:
        """Return the detector of a file; `engine` computes its features."""
        return cls(read(path), engine)

    @property
    def snippet(self) -> int:
        """Return the number of frames in a snippet."""
        return self.preparation.snippet

    @property
    def threshold(self) -> float | None:
        """Return the score above which a snippet is an anomaly, as chosen on validation videos, or None."""
        found = self.checkpoint.about.get("threshold")
        return float(found) if isinstance(found, (int, float)) else None

    @property
    def extractor(self) -> Extractor:
        """Return the feature network, loaded."""
        if self._extractor is None:
            self._extractor = Extractor(self.preparation, self.engine)
        return self._extractor

    def features(self, frames: Frames) -> Features:
        """Return (ceil(n / snippet), crops, width) of n frames (n, height, width, 3) of any size."""
        return self.extractor(frames)

    def scores(self, features: Arrays) -> Arrays:
        """Return one score per snippet of features (snippets, crops, width) or (snippets, width), in order of time.

        A head looks at neighbouring snippets, so a score depends on those that are given with it. ModelError
        E-ANOMALY-4 if features are not finite or of another network.
        """
        crops = features[:, None] if features.ndim == 2 else features
        check_features(crops, self.preparation.width)
        return score(self._head, crops)

    def close(self) -> None:
        """Free the feature network."""
        if self._extractor is not None:
            self._extractor.close()
        self._extractor = None


def score(head: Any, features: Arrays, device: str = "cpu") -> Arrays:
    """Return one score per snippet of features (snippets, crops, width), the mean over crops."""
    rows = features[stretched(len(features))].swapaxes(0, 1)
    with torch.inference_mode():
        sequences = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)).to(device)
        found: Arrays = head(sequences).mean(dim=0).float().cpu().numpy()
    return folded(found, len(features))


def check_features(features: NDArray[Any], width: int, name: str = "the features") -> None:
    """Raise ModelError E-ANOMALY-4 unless features are (snippets, crops, width), at least one, and all finite."""
    wrong = ""
    if features.ndim != 3 or features.shape[2] != width or not features.size:
        wrong = (
            f"their shape is {'x'.join(map(str, features.shape))}, and (snippets, crops, {width}) is needed"
        )
    elif not np.isfinite(features).all():
        snippets = np.flatnonzero(~np.isfinite(features).all(axis=(1, 2)))
        wrong = f"{len(snippets)} of {len(features)} snippets hold values that are no numbers, first {snippets[0]}"
    if wrong:
        raise ModelError(
            "E-ANOMALY-4",
            f"{name} cannot be scored",
            evidence=wrong,
            effect="No score was computed",
            fix="edgescope anomaly extract VIDEOS FEATURES --overwrite, with the feature network of the detector",
        )


def stored(state: Mapping[str, torch.Tensor]) -> Path:
    """Return the file in the cache that holds these weights, named by their content; write it if it is missing."""
    content = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    path = cache.folder("anomaly") / f"{content.hexdigest()[:24]}.pth"
    if not path.exists():
        with cache.writing(path) as temporary:
            torch.save(dict(state), str(temporary))
    return path


def _with_weights(checkpoint: Checkpoint) -> Preparation:
    """Return the preparation whose network has the file's own weights, put into the cache if there are any."""
    if checkpoint.feature_state is None:
        return checkpoint.preparation
    path = stored(checkpoint.feature_state)
    return replace(checkpoint.preparation, network=f"{checkpoint.preparation.network}@{path}")


# -- as two networks by name ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """What the workload `video` needs to run a detector."""

    features: str
    """The feature network, with the file's own weights after an @ if it has some."""
    head: str
    options: Mapping[str, Scalar]
    """Options of the workload that say how frames are prepared: views, normalisation."""
    threshold: float | None


def named(path: Path) -> Named:
    """Return the networks of a detector's file; ModelError E-ANOMALY-3 if it is none.

    E-ANOMALY-18 if frames are no longer prepared as those that it was trained on.
    """
    checkpoint = read(path)
    prepared = checkpoint.preparation
    normalisation = prepared.normalisation
    usual = preparation(prepared.network, crops=prepared.crops, normalisation=normalisation or "weights")
    if differs := usual.differs(prepared):
        raise ModelError(
            "E-ANOMALY-18",
            f"{path} was trained on frames that were prepared in another way",
            evidence=differs,
            effect="Its scores would mean nothing",
            fix="edgescope anomaly extract VIDEOS FEATURES, then edgescope anomaly train FEATURES",
        )
    options: dict[str, Scalar] = {"views": prepared.crops, "normalisation": normalisation}
    features = prepared.network
    if checkpoint.feature_state is not None:
        features = f"{features.partition('@')[0]}@{stored(checkpoint.feature_state)}"
    found = checkpoint.about.get("threshold")
    threshold = float(found) if isinstance(found, (int, float)) else None
    return Named(features, f"{checkpoint.head}@{stored(checkpoint.head_state)}", options, threshold)
