"""Choose the clips with which a trained classifier of clips is timed, judged and calibrated.

    gate         up to 400 clips of held-out videos, at many offsets: does a variant agree with fp32?
    labelled     the middle clip of each held-out video: task accuracy, one clip per video because the clips
                 of one video are not independent
    bench        the labelled clips again
    calibration  the middle clip of each training video: ranges for int8

The clips are kept in the cache, under the digest of the data, so a process that measures decodes nothing
and needs the videos only the first time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.errors import ModelError, UnavailableError
from edgescope.models.base import TRAINED_FRAMES, Purpose, Samples
from edgescope.models.image.photos import fingerprint
from edgescope.records import digest
from edgescope.wings.training.clip_classifier import dataset
from edgescope.wings.training.clip_classifier.dataset import Data, Video

VERSION = 2  # raise this when the choice of clips, or their order, changes
WORDS = {
    Purpose.GATE: "held-out clips, at several offsets of a video, shuffled",
    Purpose.LABELLED: "held-out clips, one a video, shuffled",
    Purpose.BENCH: "held-out clips, one a video, shuffled",
    Purpose.CALIBRATION: "clips that were trained on, one a video, shuffled",
}


@dataclass(frozen=True)
class Origin:
    """The data on which a network was trained, as recorded with its weights."""

    folder: Path
    classes: tuple[str, ...]
    digest: str


def samples(origin: Origin, purpose: Purpose, n: int, entry: Mapping[str, Any]) -> Samples:
    """Return the first n clips of this purpose: arrays["input"] float32 (n, 3, 16, 64, 64), labels (n,).

    UnavailableError if they are not cut yet and the videos are gone, ModelError if these are other videos.
    """
    key = digest([VERSION, purpose.value, origin.digest, entry["mean"], entry["std"]])
    path = cache.folder("samples") / f"clips-{purpose.value}-{key}.npy"
    about = cache.read_json(path.with_suffix(".json"))
    if about is None or not path.exists() or path.stat().st_size != about["bytes"]:
        about = _cut(_data(origin), purpose, entry, path)
    labels = None if purpose is Purpose.GATE else np.asarray(about["labels"][:n], dtype=np.int64)
    return Samples(
        arrays={"input": np.load(path, mmap_mode="r")[:n]},
        digests=tuple(about["digests"][:n]),
        origin=f"{WORDS[purpose]} ({origin.folder.name}: {', '.join(origin.classes)})",
        labels=labels,
        groups=np.asarray(about["videos"][:n], dtype=np.int64) if purpose is Purpose.GATE else None,
    )


def gate_windows(data: Data) -> list[tuple[Video, int]]:
    """Return up to 400 (held-out video, first frame), spread evenly over all clips, shuffled."""
    pairs = [(video, start) for video in data.held_out for start in video.starts]
    chosen = np.linspace(0, len(pairs) - 1, min(len(pairs), TRAINED_FRAMES)).round().astype(int)
    return [pairs[i] for i in np.random.default_rng(0).permutation(chosen)]


def _data(origin: Origin) -> Data:
    if not origin.folder.is_dir():
        raise UnavailableError(
            "E-CLIPS-5",
            f"the videos that this network was trained on are gone from {origin.folder}",
            effect="Without held-out clips its answers cannot be judged, and an unjudged network is not timed",
            fix='put them back, or name their new place under "data", "folder" in the .json next to the weights',
        )
    data = dataset.read(origin.folder, origin.classes)
    if data.digest != origin.digest:
        raise ModelError(
            "E-CLIPS-6",
            f"the videos in {origin.folder} are not those that this network was trained on",
            evidence=f"digest {data.digest}, at training {origin.digest}",
            effect="A video it was trained on could pass for a held-out one",
            fix="put the old videos back, or train again with edgescope train clips",
        )
    return data


def _cut(data: Data, purpose: Purpose, entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
    windows = gate_windows(data) if purpose is Purpose.GATE else _middles(data, purpose)
    arrays: list[NDArray[np.float32]] = [
        dataset.prepared(dataset.clip(video, start), entry) for video, start in windows
    ]
    with cache.writing(path) as temporary:
        np.save(temporary, np.stack(arrays))
    about = {
        "digests": [fingerprint({"": array}) for array in arrays],
        "labels": [video.label for video, _ in windows],
        "videos": _numbered([str(video.path) for video, _ in windows]),
        "bytes": path.stat().st_size,
    }
    cache.write_json(path.with_suffix(".json"), about)
    return about


def _middles(data: Data, purpose: Purpose) -> Sequence[tuple[Video, int]]:
    videos = data.training if purpose is Purpose.CALIBRATION else data.held_out
    order = np.random.default_rng(0).permutation(len(videos))[:TRAINED_FRAMES]
    return [(videos[i], videos[i].middle) for i in order]


def _numbered(names: Sequence[str]) -> list[int]:
    """Return each name's number, in the order of their first appearance."""
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return [known[name] for name in names]
