"""Train a detector's head on extracted features: weak labels in, one file out.

The recipes are the published ones. What differs from the originals: weights are chosen on a validation split, never on
the test split, unless `select` is "test" by name; and a run is repeatable, because seeds decide the order of bags.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope import cache, fit, registry
from edgescope.errors import UsageError, closest_name
from edgescope.fit import Task
from edgescope.records import Json, digest
from edgescope.wings.anomaly import detector
from edgescope.wings.anomaly.detector import SEGMENTS, segmented
from edgescope.wings.anomaly.evaluation import Curve, ScoredVideo, curve, false_alarms_per_hour
from edgescope.wings.anomaly.features import FeatureSet, Row, read_features
from edgescope.wings.anomaly.heads import HEADS, LOSSES

SELECT = ("validation", "last", "test")
OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
}
RESIDENT = 0.25
"""Share of a GPU's free memory that the features may take; larger sets stay on the host."""
CHANCE = 0.5
"""The AUC of a detector that guesses: at or below it no score can be a threshold."""
COMPILED_FROM = 3000
"""Steps from which compiling the loss pays on a GPU: it takes seconds, and saves milliseconds a step."""


@dataclass(frozen=True)
class Recipe:
    """How a head is trained."""

    head: str = "rtfm"
    steps: int = 15_000
    bags: int = 64
    """Videos in a minibatch, half of them anomalous."""
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 5e-3
    judged_every: int = 5
    """Steps between two looks at the validation split."""
    judged_from: int = 200
    """The first step after which weights are judged."""
    patience: int | None = None
    """Looks without a better value after which training stops; None: never."""
    select: str = "validation"
    """The split that chooses the weights: validation, test (as the original does); last: those of the last step."""
    precision: str = "fp32"
    device: str = "cpu"
    seed: int = 0


RECIPES = {
    "rtfm": Recipe(),
    "mil_ranking": Recipe("mil_ranking", 20_000, 60, "adagrad", 1e-3, 1e-3, 20),
    "light_head": Recipe("light_head", 5_000, 64, "adam", 1e-3, 5e-4),
}
"""Head -> its published recipe; that of the light head is ours."""


@dataclass(frozen=True)
class Trained:
    """What training left."""

    path: Path
    about: Mapping[str, Json]
    history: tuple[fit.Epoch, ...]
    stopped: str


def recipe(head: str, **changed: Any) -> Recipe:
    """Return the recipe of a head with what is changed of it; UsageError if it makes no sense."""
    if head not in RECIPES:
        close = closest_name(head, RECIPES) or "rtfm"
        raise UsageError(
            "E-ANOMALY-14", f"no head is called {head!r}", evidence=", ".join(RECIPES), fix=f"--head {close}"
        )
    found = replace(RECIPES[head], **{key: value for key, value in changed.items() if value is not None})
    for fits, what in (
        (found.steps >= 1, f"--steps must be at least 1, not {found.steps}"),
        (found.bags >= 2 and found.bags % 2 == 0, f"--bags must be even and at least 2, not {found.bags}"),
        (found.judged_every >= 1, f"--judged-every must be at least 1, not {found.judged_every}"),
        (found.select in SELECT, f"--select must be one of {', '.join(SELECT)}, not {found.select!r}"),
        (found.learning_rate > 0, f"--learning-rate must be above 0, not {found.learning_rate:g}"),
    ):
        if not fits:
            raise UsageError(
                "E-ANOMALY-14", what, effect="Nothing was trained", fix="edgescope anomaly train --help"
            )
    return found


def train(
    features: FeatureSet,
    out: Path,
    chosen: Recipe = RECIPES["rtfm"],
    *,
    tell: Callable[[fit.Epoch], None] = lambda epoch: None,
    log: Path | None = None,
) -> Trained:
    """Train a head on the training split and write the detector to `out`; return what training left.

    An interrupted run goes on where it stopped (its state is in OUT.part). UsageError if a split holds one class only.
    """
    bags = Bags.of(features, chosen)
    judged = _judged(features, chosen.select)
    plan = fit.Plan(
        epochs=-(-chosen.steps // chosen.judged_every),
        steps=chosen.steps,
        seed=chosen.seed,
        device=chosen.device,
        precision=chosen.precision,
        judged_from=min(chosen.judged_from, chosen.steps) // chosen.judged_every or 1,
        best=chosen.select != "last",
        patience=chosen.patience,
        keep_s=60.0,
    )
    width = features.preparation.width
    made = list[Task]()

    def make() -> Task:
        made.append(task(HEADS[chosen.head](width), bags, chosen))
        return made[0]

    part = out.with_name(f"{out.name}.part")
    name = digest([asdict(chosen), [row.key for row in features.rows], cache.versions(("torch",))])
    fitted = fit.fit(make, plan, judge=judged, tell=tell, kept=(part, name), log=log)
    network = made[0].network
    about = _about(features, chosen, fitted, _threshold(network, features))
    weights = detector.user_weights(features.preparation.network)
    state = network.state_dict()
    detector.write(out, detector.Checkpoint(chosen.head, features.preparation, state, weights, about))
    part.unlink(missing_ok=True)
    return Trained(out, about, fitted.history, fitted.stopped)


def task(network: torch.nn.Module, bags: Bags, chosen: Recipe) -> Task:
    """Return the training of a head on bags, by its recipe."""
    place = registry.place(chosen.device)
    network.to(place.called("torch"))
    options: dict[str, Any] = {"lr": chosen.learning_rate, "weight_decay": chosen.weight_decay}
    if place.cuda and chosen.optimizer == "adam":  # in one kernel there; Adagrad has no such form
        options["fused"] = True
    optimizer = OPTIMIZERS[chosen.optimizer](network.parameters(), **options)
    return Task(network, bags.batches, loss_of(chosen), optimizer)


def loss_of(chosen: Recipe) -> Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]:
    """Return the loss of a minibatch that a recipe trains with, compiled where that pays."""
    terms = LOSSES[chosen.head]

    def loss(network: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return terms(network, batch).total

    cuda = registry.place(chosen.device).cuda
    pays = cuda and chosen.steps >= COMPILED_FROM and find_spec("triton") is not None
    return Compiled(loss) if pays else loss


class Compiled:
    """A loss that is compiled at its first call, and computed step by step where that fails."""

    def __init__(self, loss: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> None:
        from torch._dynamo.exc import TorchDynamoException  # reading it takes a second

        self.loss, self.quick, self.fails = loss, torch.compile(loss), TorchDynamoException

    def __call__(self, network: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Return the loss of a minibatch."""
        try:
            return self.quick(network, batch)
        except self.fails as error:
            why = " ".join(str(error).split())[:200]
            warnings.warn(f"the loss cannot be compiled here, so steps take longer: {why}", stacklevel=2)
            self.quick = self.loss
            return self.loss(network, batch)


@dataclass(frozen=True)
class Bags:
    """The training videos as bags of 32 segments, and the order in which they are drawn."""

    normal: torch.Tensor
    """(videos, crops, 32, width)."""
    anomalous: torch.Tensor
    chosen: Recipe

    @classmethod
    def of(cls, features: FeatureSet, chosen: Recipe) -> Bags:
        """Return the bags of the training split, on the device if they take a quarter of its free memory or less."""
        rows = features.of("train")
        kinds = [[row for row in rows if row.anomalous == kind] for kind in (False, True)]
        for name, kind in zip(("normal", "anomalous"), kinds, strict=True):
            if not kind:
                raise UsageError(
                    "E-ANOMALY-6",
                    f"the training split of {features.root} holds no {name} video",
                    evidence=f"{len(rows)} videos",
                    effect="Nothing was trained",
                    fix=f"add {name} videos to the split train",
                )
        normal, anomalous = (torch.from_numpy(pooled(features, kind)) for kind in kinds)
        if _fits(chosen.device, normal.nbytes + anomalous.nbytes):
            at = registry.place(chosen.device).called("torch")
            normal, anomalous = normal.to(at), anomalous.to(at)
        return cls(normal, anomalous, chosen)

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        """Yield the minibatches between two looks at the validation split: normal bags, then anomalous ones."""
        half = self.chosen.bags // 2
        for step in range(epoch * self.chosen.judged_every, (epoch + 1) * self.chosen.judged_every):
            parts = [
                kind[
                    torch.from_numpy(drawn(len(kind), half, step, [self.chosen.seed, number])).to(kind.device)
                ]
                for number, kind in enumerate((self.normal, self.anomalous))
            ]
            yield torch.cat(parts)


def drawn(count: int, size: int, step: int, seed: Sequence[int]) -> NDArray[np.int64]:
    """Return the videos of a step: all of them in random order, again and again, `size` a step."""
    places = np.arange(step * size, (step + 1) * size)
    orders = {
        p: np.random.default_rng([*seed, p]).permutation(count) for p in np.unique(places // count).tolist()
    }
    return np.array([orders[place // count][place % count] for place in places.tolist()], dtype=np.int64)


def pooled(features: FeatureSet, rows: Sequence[Row]) -> NDArray[np.float32]:
    """Return (videos, crops, 32, width): every video as 32 segments, computed once and not at each step."""
    shape = features.preparation
    found = np.empty((len(rows), shape.crops, SEGMENTS, shape.width), dtype=np.float32)
    for place, row in enumerate(rows):
        found[place] = segmented(features.features(row))
    return found


def scored(network: Any, features: FeatureSet, rows: Sequence[Row], device: str = "cpu") -> list[ScoredVideo]:
    """Return the scores of videos: all snippets of each at once, the mean over crops."""
    network.eval()
    snippet = features.preparation.snippet
    return [
        scored_video(row, detector.score(network, features.features(row), device), snippet) for row in rows
    ]


def scored_video(row: Row, scores: NDArray[np.float32], snippet: int) -> ScoredVideo:
    """Return the scores of one video with its labels."""
    return ScoredVideo(row.name, row.category, scores, row.frames, row.intervals or (), row.fps, snippet)


def judging(videos: Sequence[ScoredVideo], rows: Sequence[Row]) -> tuple[Curve, str]:
    """Return the curve by which weights are chosen, and what it is of: frames if all are labelled, else videos."""
    if all(row.intervals is not None for row in rows):
        positives = np.concatenate([video.positives for video in videos])
        negatives = np.concatenate([video.snippet - video.positives for video in videos])
        return curve(np.concatenate([video.scores for video in videos]), positives, negatives), "frames"
    highest = [np.sort(v.scores)[-max(1, len(v.scores) // 10) :].mean() for v in videos]
    labels = np.array([video.anomalous for video in videos])
    return curve(highest, labels, ~labels), "videos"


def _judged(features: FeatureSet, select: str) -> Callable[[Task], float]:
    """Return what judges a network: the AUC of the split that chooses the weights."""
    split = "test" if select == "test" else "validation"
    rows = features.of(split)
    if len({row.anomalous for row in rows}) < 2:
        raise UsageError(
            "E-ANOMALY-6",
            f"the {split} split of {features.root} does not hold videos of both kinds",
            evidence=f"{len(rows)} videos",
            effect="Weights cannot be chosen",
            fix="add videos of the other kind to the split",
        )

    def judge(task: Task) -> float:
        device = str(next(task.network.parameters()).device)
        return judging(scored(task.network, features, rows, device), rows)[0].roc_auc

    return judge


def _threshold(network: torch.nn.Module, features: FeatureSet) -> dict[str, Json]:
    """Return the score above which a snippet is an anomaly, chosen on the validation split, and what chose it."""
    rows = features.of("validation")
    if len({row.anomalous for row in rows}) < 2:
        why = "not chosen: the validation split does not hold videos of both kinds"
        return {"threshold": None, "threshold_of": why}
    videos = scored(network, features, rows)
    found, of = judging(videos, rows)
    if not found.roc_auc > CHANCE:
        why = f"not chosen: the AUC on {of} of the validation split is {found.roc_auc:.3f}, no better than chance"
        return {"threshold": None, "threshold_of": why}
    why = f"largest true less false positive rate on {of} of the validation split"
    false = false_alarms_per_hour(videos, found.youden)
    return {"threshold": found.youden, "threshold_of": why, "false_alarms_per_hour": false}


def _about(
    features: FeatureSet, chosen: Recipe, fitted: fit.Fitted, threshold: Mapping[str, Json]
) -> dict[str, Json]:
    best = fitted.best
    counts = {split: len(features.of(split)) for split in ("train", "validation", "test")}
    return {
        "recipe": asdict(chosen),
        "videos": {**counts},
        "features": dict(features.about),
        "selected_on": chosen.select,
        "selection_auc": best.value if best else None,
        "selected_step": best.steps if best and chosen.select != "last" else chosen.steps,
        "steps": fitted.history[-1].steps,
        "stopped": fitted.stopped,
        **threshold,
        "seconds": round(sum(epoch.seconds for epoch in fitted.history), 3),
        "made_with": cache.versions(("edgescope", "torch")),
    }


def _fits(device: str, size: int) -> bool:
    return not registry.place(device).cuda or size <= RESIDENT * torch.cuda.mem_get_info()[0]


def read_and_train(root: Path, out: Path, chosen: Recipe, **rest: Any) -> Trained:
    """Train on a folder of features; ModelError if it holds none."""
    return train(read_features(root), out, chosen, **rest)
