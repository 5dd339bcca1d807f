"""A detector's file as two networks by name, so that a pipeline runs them on any engine: features, and the head.

The weights in the file are written once into the cache, under their own content, where names of
the zoo can refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgescope.errors import ModelError
from edgescope.records import Scalar
from edgescope.wings.anomaly import detector
from edgescope.wings.anomaly.preparation import preparation


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
    checkpoint = detector.read(path)
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
        features = f"{features.partition('@')[0]}@{detector.stored(checkpoint.feature_state)}"
    found = checkpoint.about.get("threshold")
    threshold = float(found) if isinstance(found, (int, float)) else None
    return Named(features, f"{checkpoint.head}@{detector.stored(checkpoint.head_state)}", options, threshold)
