"""Three heads on the same generated videos: RTFM, Sultani's ranking, the light head; and features in 16 bits.

    python benchmarks/anomaly_set.py --folder anomaly-set

Videos, features and detectors stay in the folder, so a run that was cut goes on. The feature network is frames_lite0:
an image network with real weights over each frame, because weights of I3D or S3D cannot be had here. The figures say
how well planted changes are found in scenes that training has seen, and nothing of crimes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from facts import publish
from numpy.typing import NDArray

from edgescope.analysis.anomaly import compared, frame_labels
from edgescope.anomaly import layouts
from edgescope.anomaly.extract import extract
from edgescope.anomaly.feature_set import FeatureSet
from edgescope.anomaly.features import Engine
from edgescope.anomaly.preparation import preparation
from edgescope.records.codec import to_plain
from edgescope.stats.ranking import curve
from edgescope.verbs import anomaly

HEADS = {"rtfm": 1e-3, "mil_ranking": 1e-2, "light_head": 1e-3}
"""Head -> learning rate: the published one of RTFM; ranking takes a larger one, because the run is short."""
WANTED = 0.90
CLOSE = 0.01


def main() -> None:
    """Make, extract, train, evaluate; write published/anomaly_set.json."""
    args = parsed()
    videos, features = args.folder / "videos", args.folder / "features"
    if not (videos / "videos.csv").exists():
        anomaly.generate(videos, clips=args.clips, size=(192, 144), seed=args.seed)
    done = anomaly.extract(videos, features, features="frames_lite0", backend="onnxruntime", batch=4)
    rows, found = {}, {}
    for head, rate in HEADS.items():
        path, begin = args.folder / f"{head}.pt", time.monotonic()
        if not path.exists():
            anomaly.train(
                features,
                path,
                head=head,
                steps=args.steps,
                bags=args.bags,
                learning_rate=rate,
                judged_every=10,
                judged_from=20,
                patience=args.patience,
                seed=args.seed,
                log=args.folder / f"{head}.csv",
            )
        found[head] = anomaly.evaluate(path, features)
        rows[head] = found[head].json() | {"seconds_here": round(time.monotonic() - begin, 1)}
        rows[head]["training"] = {
            k: rows[head]["training"][k] for k in ("recipe", "selection_auc", "selected_step")
        }
        rows[head]["detector"] = path.name
        print(head, found[head])
    pairs: dict[str, Any] = {}
    for head in ("mil_ranking", "light_head"):
        difference = compared(found["rtfm"].judged.scored, found[head].judged.scored)
        pairs[f"rtfm - {head}"] = {
            "gain": to_plain(difference.gain),
            "p": difference.p,
            "sure": difference.sure,
        }
    reduced = {}
    if args.reduced:
        other = args.folder / f"features-{args.reduced}"
        tests = [video for video in layouts.read(videos).videos if video.split == "test"]
        extract(tests, other, preparation("frames_lite0"), engine=Engine("openvino", "cpu", args.reduced, 4))
        for head in HEADS:
            exact = found[head].judged.evaluation.figures["auc"]
            small = anomaly.evaluate(args.folder / f"{head}.pt", other).judged.evaluation.figures["auc"]
            reduced[head] = {
                "fp32": to_plain(exact),
                args.reduced: to_plain(small),
                "change": small.value - exact.value,
            }
    auc = found["rtfm"].judged.evaluation.figures["auc"].value
    met = auc >= WANTED and all(abs(row["change"]) < CLOSE for row in reduced.values())
    about = {
        "set": f"{len(done.features.rows)} clips of 96 frames, 192x144, cut from three films; kinds in turn",
        "features": "frames_lite0: EfficientNet-Lite0 (ImageNet weights) over each frame, mean and change; 16 frames",
        "wanted": f"frame AUC of RTFM at least {WANTED}; a change by 16-bit features below {CLOSE}",
    }
    ceiling = {"auc": supervised(done.features), "of": supervised.__doc__}
    figures = {**about, "heads": rows, "pairs": pairs, "reduced": reduced, "supervised": ceiling}
    publish(args.name, figures, met=met)


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
    parser.add_argument("--clips", type=int, default=240)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--bags", type=int, default=32)
    parser.add_argument("--patience", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--reduced", default="bf16", help="precision of OpenVINO to extract in again; '' for none"
    )
    parser.add_argument("--name", default="anomaly_set")
    return parser.parse_args()


if __name__ == "__main__":
    main()
