"""Detect anomalies in videos: make a set, extract features, train a detector, evaluate it.

from edgescope.wings.anomaly import verb as anomaly

anomaly.generate("videos")
anomaly.extract("videos", "features", features="frames_lite0", backend="onnxruntime")
anomaly.train("features", "detector.pt", head="rtfm")
print(anomaly.evaluate("detector.pt", "features"))

`edgescope.watch("film.mp4", detector="detector.pt")` watches a stream for anomalies and returns what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.errors import Message, ModelError, UsageError
from edgescope.records import Answer, Field, Json, Measured, Scalar, Trial
from edgescope.records.answers import figure_text
from edgescope.records.codec import to_plain
from edgescope.registry import need
from edgescope.wings.anomaly import evaluation as figures
from edgescope.wings.anomaly import extract as extraction
from edgescope.wings.anomaly import generate as generation
from edgescope.wings.anomaly import layouts, preparation
from edgescope.wings.anomaly.evaluation import Difference, Evaluation, ScoredVideo
from edgescope.wings.anomaly.extract import Extracted, Progress
from edgescope.wings.anomaly.features import Engine, FeatureSet, read_features
from edgescope.wings.anomaly.generate import GeneratedSet

if TYPE_CHECKING:
    from edgescope.fit import Epoch
    from edgescope.wings.anomaly.train import Recipe, Trained
    from edgescope.wings.video.verb import Watched

TORCH = "pip install 'edgescope[torch]'"
Name = str | Path


def generate(root: Name, **settings: Any) -> GeneratedSet:
    """Write a small set of videos with planted anomalies, cut from real films, to the folder `root`.

    `settings` are clips, kinds, sources, frames, size and seed (edgescope.wings.anomaly.generate.generate).
    """
    return generation.generate(Path(root), **settings)


def extract(
    videos: Name,
    output: Name,
    *,
    features: str = "i3d_r50_nl",
    layout: str = "",
    crops: int = 1,
    normalisation: str = "weights",
    backend: str = "torch_eager",
    precision: str = "fp32",
    device: str = "",
    batch: int = 1,
    options: Mapping[str, Any] | None = None,
    decoders: int = 1,
    damaged: str = "stop",
    overwrite: bool = False,
    noted: Callable[[Message], None] = lambda message: None,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Extracted:
    """Write the features of a folder of videos to the folder `output`; what is there already is not computed again.

    `noted` is called with warnings about videos that are missing, `tell` with each video.
    """
    if damaged not in ("stop", "skip"):
        raise UsageError(
            "E-ANOMALY-2", f"--damaged must be stop or skip, not {damaged!r}", fix="--damaged skip"
        )
    for name, value in (("--batch", batch), ("--decoders", decoders)):
        if value < 1:
            raise UsageError("E-ANOMALY-2", f"{name} must be at least 1, not {value}", fix=f"{name} 1")
    prepared = preparation.preparation(features, crops=crops, normalisation=normalisation)
    found = layouts.read(Path(videos), layout)
    for message in filter(None, (found.found, found.warning)):
        noted(message)
    engine = Engine(backend, device, precision, batch, options or {})
    return extraction.extract(
        found.videos,
        Path(output),
        prepared,
        engine=engine,
        decoders=decoders,
        damaged=damaged,
        overwrite=overwrite,
        tell=tell,
    )


def train(
    features: Name,
    output: Name,
    *,
    head: str = "rtfm",
    log: Name | None = None,
    tell: Callable[[Epoch], None] = lambda epoch: None,
    **changed: Any,
) -> Trained:
    """Train a head on extracted features and write the detector to the file `output`.

    `changed` are fields of the recipe (edgescope.wings.anomaly.train.Recipe); the others are as published.
    """
    run = need("edgescope.wings.anomaly.train:read_and_train", "training", TORCH)
    kept = None if log is None else Path(log)
    trained: Trained = run(Path(features), Path(output), recipe(head, **changed), tell=tell, log=kept)
    return trained


def recipe(head: str, **changed: Any) -> Recipe:
    """Return how a head is trained, as published but for `changed`; UnavailableError without PyTorch."""
    found: Recipe = need("edgescope.wings.anomaly.train:recipe", "training", TORCH)(head, **changed)
    return found


@dataclass(frozen=True)
class DetectorEvaluation:
    """One detector on one split of a set."""

    detector: Path
    features: str
    """The feature network."""
    head: str
    about: Mapping[str, Json]
    """How it was trained."""
    evaluation: Evaluation
    scored: tuple[ScoredVideo, ...]


@dataclass(frozen=True, repr=False)
class Evaluated(Answer):
    """How well a detector finds anomalies, and how much better than another one."""

    judged: DetectorEvaluation
    against: DetectorEvaluation | None
    difference: Difference | None
    split: str

    def lines(self) -> Iterator[str]:
        """Yield every figure with its interval."""
        yield f"{self.judged.detector.name} on {self.judged.evaluation.videos} videos of the split {self.split}"
        yield from (figure_text(name, field) for name, field in self.judged.evaluation.figures.items())
        if self.difference:
            yield f"{figure_text('gain', self.difference.gain)}, p = {self.difference.p:.3g}"

    def records(self) -> list[dict[str, Any]]:
        """Return one row per figure, and per category."""
        rows = {**self.judged.evaluation.figures}
        rows |= {f"auc_{name}": field for name, field in self.judged.evaluation.by_category.items()}
        return [{"figure": name, **_columns(field)} for name, field in rows.items()]

    def json(self) -> dict[str, Json]:
        """Return everything as plain values."""
        one = self.judged.evaluation
        found: dict[str, Any] = {
            "detector": str(self.judged.detector),
            "head": self.judged.head,
            "features": self.judged.features,
            "split": self.split,
            "videos": one.videos,
            "frames": one.frames,
            "positive_frames": one.positive_frames,
            "figures": to_plain(dict(one.figures)),
            "by_category": to_plain(dict(one.by_category)),
            "training": dict(self.judged.about),
        }
        if self.against and self.difference:
            found["against"] = {
                "detector": str(self.against.detector),
                "figures": to_plain(dict(self.against.evaluation.figures)),
                "gain": to_plain(self.difference.gain),
                "p": self.difference.p,
            }
        return found


def evaluate(
    detector: Name,
    features: Name,
    *,
    against: Name | None = None,
    against_features: Name | None = None,
    split: str = "test",
    recall: float = figures.RECALL,
    draws: int = figures.DRAWS,
) -> Evaluated:
    """Return how well a detector finds the anomalies of a split, and, with `against`, how much better than another one.

    The other detector is scored on the same videos: on the same features, or on `against_features`.
    """
    if not 0 < recall <= 1:
        raise UsageError(
            "E-ANOMALY-2", f"--recall must be above 0 and at most 1, not {recall:g}", fix="--recall 0.8"
        )
    judged = _judged(Path(detector), read_features(Path(features)), split, recall, draws)
    if against is None:
        return Evaluated(judged, None, None, split)
    other = _judged(Path(against), read_features(Path(against_features or features)), split, recall, draws)
    return Evaluated(judged, other, figures.compared(judged.scored, other.scored, draws=draws), split)


def _judged(path: Path, features: FeatureSet, split: str, recall: float, draws: int) -> DetectorEvaluation:
    load = need("edgescope.wings.anomaly.detector:Detector", "a detector", TORCH).load
    scored_video = need("edgescope.wings.anomaly.train:scored_video", "a detector", TORCH)
    found = load(path)
    mine, theirs = found.checkpoint.preparation, features.preparation
    if differs := mine.differs(theirs):
        raise ModelError(
            "E-ANOMALY-15",
            f"{path.name} was trained on features of {mine.network}",
            evidence=f"those in {features.root} have {differs}",
            effect="Nothing was scored",
            fix=f"edgescope anomaly extract VIDEOS FEATURES --features {mine.network} --crops {mine.crops} "
            f"--normalisation {mine.normalisation or 'weights'}",
        )
    rows = [row for row in features.of(split) if row.intervals is not None]
    if not rows:
        raise UsageError(
            "E-ANOMALY-6",
            f"the split {split} of {features.root} holds no video with frame labels",
            effect="Nothing was scored",
            fix="--split test, or intervals in the labels of the videos",
        )
    scored = tuple(scored_video(row, found.scores(features.features(row)), theirs.snippet) for row in rows)
    evaluation = figures.evaluate(scored, recall=recall, draws=draws)
    return DetectorEvaluation(
        path, mine.network, found.checkpoint.head, found.checkpoint.about, evaluation, scored
    )


def _columns(field: Field) -> dict[str, Any]:
    if isinstance(field, Measured):
        return {"value": field.value, "lo": field.lo, "hi": field.hi, "n": field.n, "unit": field.unit}
    return {"value": None, "lo": None, "hi": None, "n": None, "unit": "", "why": field.reason}


def watch(source: str, **how: Any) -> Watched:
    """Watch a stream until it ends, or for `seconds`; return its alarms and what was dropped or failed.

    `detector` is a file of `edgescope anomaly train`, `rule` says when an alarm is raised
    (`on=0.6,off=0.4,min_s=1,cooldown_s=10,smooth=3`). Further arguments are those of `chain` and of
    edgescope.wings.video.verb.watch: sinks, seconds, tell, scored.
    """
    from edgescope.wings.video import verb as video

    return video.watch(source, made=chain, **how)


def chain(
    source: str,
    *,
    detector: str | Path = "",
    features: str = "",
    rule: Any = "",
    options: Mapping[str, Scalar] = {},
    tell: Callable[[str], None] = lambda what: None,
    **how: Any,
) -> Trial:
    """Return the trial whose pipeline watches `source` with a file of `edgescope anomaly train`.

    The file says its networks, how frames are prepared, and its threshold. Without one, `features` and `head` are
    networks of the zoo. `tell` is called with the score that raises an alarm, and where that comes from. Further
    arguments are those of edgescope.wings.video.verb.chain.
    """
    from edgescope.wings.video import verb as video

    own: float | None = None
    features = features or video.FEATURES
    if detector:
        named = need("edgescope.wings.anomaly.detector:named", "a detector", "pip install 'edgescope[torch]'")
        made = named(Path(detector))
        given = {**options, **({"features": features} if features != video.FEATURES else {})}
        for option, mine in {**made.options, "features": made.features.partition("@")[0]}.items():
            if given.get(option, mine) != mine:
                raise UsageError(
                    "E-ANOMALY-19",
                    f"{detector} was trained with {option}={mine}, not {given[option]}",
                    effect="Its scores would mean nothing",
                    fix=f"leave {option} out: the detector says it",
                )
        own, features, options = made.threshold, made.features, {**made.options, **options}
        how["head"] = made.head
    rule, origin = video.decided(rule, own, detector=bool(detector))  # a mistake in it is found first
    tell(f"alarm at a score of {rule.on:.3g} ({origin})")
    return video.chain(source, features=features, rule=rule, options=options, **how)
