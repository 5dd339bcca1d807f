"""`run.py --check DATA` by mAP, mIoU and closeness: as the gate judged, with files that need no edgescope."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.synthetic import NullModel
from edgescope.records import Measured, ModelInfo, Trial, Verification
from edgescope.verify import judge, metric_names, reference
from edgescope.verify.judge import Reference
from edgescope.verify.measures import MeanAp
from edgescope.wings.optimize import check, standalone

N, CLASSES, SIDE = 120, 3, 6
TRIAL = Trial(model="null", backend="null", data="samples.npz")
READS = '''
import numpy as np

def boxes(outputs):
    """Each row of an output holds two boxes: x1, y1, x2, y2, score, class."""
    found = outputs.reshape(len(outputs), 2, 6)
    return [(image[:, :4], image[:, 4], image[:, 5].astype(np.int64)) for image in found]
'''
RUN = """
import sys
sys.modules["edgescope"] = None
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import check
def run(batch):
    return [batch["input"] {}]
sys.exit(check.main(run, 8, Path(sys.argv[1]), Path("samples.npz")))
"""


class Given(NullModel):
    """A network that returns its inputs; `right` says what they should be."""

    def __init__(self, inputs, **right):
        super().__init__()
        self.info = ModelInfo("given", "unknown", True, "a test", digest="0", params=0, macs=0)
        self.inputs = (TensorSpec("input", inputs.shape[1:], "float32"),)
        digests = tuple(hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in inputs)
        self.given = Samples({"input": inputs}, digests, "made up", **right)

    def samples(self, purpose, n):
        return self.given.first(n) if purpose in (Purpose.GATE, Purpose.LABELLED) else None


def detector(rng, path):
    (path / "reads_boxes.py").write_text(READS)
    low = rng.random((N, 2, 2)) * 20
    found = np.concatenate(
        [low, low + 8, rng.random((N, 2, 1)), rng.integers(0, CLASSES, (N, 2, 1))], axis=2
    ).astype(np.float32)
    truth = tuple(
        row[: 1 + i % 2, [0, 1, 2, 3, 5]] + np.array([1, 0, 1, 0, 0]) for i, row in enumerate(found)
    )
    return Given(found.reshape(N, 12), boxes=tuple(t.astype(np.float32) for t in truth))


def segmenter(rng, path):
    scores = rng.random((N, CLASSES, SIDE, SIDE)).astype(np.float32)
    labels = scores.argmax(1)
    labels[:, 0] = (labels[:, 0] + 1) % CLASSES
    return Given(scores, labels=labels)


def unlabelled(rng, path):
    return Given(rng.random((N, 4, 5)).astype(np.float32))


WORLDS = {"map": detector, "miou": segmenter, "centred_l2": unlabelled}


@pytest.fixture(params=WORLDS)
def world(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    yield request.param, WORLDS[request.param](np.random.default_rng(0), tmp_path), tmp_path
    sys.modules.pop("reads_boxes", None)


def judged(model, folder, run):
    metric = metric_names.named("map@reads_boxes:boxes") if model.given.boxes else ""
    truth = reference.reference(model, lambda: lambda batch: [batch["input"]], batch=8, metric=metric)
    answer, _ = judge.verify(run, model, truth, precision="int8", batch=8, metric=metric)
    folder.mkdir()
    card = standalone.fill(folder, model, replace(TRIAL, metric=metric), truth, answer)
    (folder / "card.json").write_text(json.dumps({"check": card}))
    (folder / "check.py").write_text(Path(check.__file__).read_text())
    return answer, card


def checked(folder, change):
    words = [sys.executable, "-c", RUN.format(change), str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_it_finds_what_the_gate_found(world):
    method, model, root = world
    np.savez(root / "samples.npz", **model.given.arrays)
    answer, card = judged(model, root / "out", lambda batch: [batch["input"] * 1.001])
    assert (answer.method, card.get("absent")) == (method, None)
    done = checked(root / "out", "* 1.001")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"on {card['n']} of {card['n']} inputs" in done.stdout
    assert done.stdout.count("  passed") == (2 if method == "centred_l2" else 1)
    value = answer.figure().value
    assert card["value"] == (-value if method == "centred_l2" else value)
    wrong = checked(root / "out", "[:, ::-1]")
    assert wrong.returncode == 1 and "worse than allowed" in wrong.stdout
    np.savez(root / "samples.npz", input=model.given.arrays["input"][5:])
    part = checked(root / "out", "* 1.001")
    assert part.returncode == 1 and f"of {card['n']} inputs" in part.stdout, part.stdout
    assert "worse than allowed" not in part.stdout


def test_boxes_that_edgescopes_own_code_reads_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    model = detector(np.random.default_rng(0), tmp_path)
    monkeypatch.setattr(judge, "measure_of", lambda *given: MeanAp(model.given.boxes, lambda outputs: []))
    share = Measured(1.0, "1", n=N)
    answer = Verification(True, "map", {"accuracy": share, "reference_accuracy": share}, 0.99, "made up")
    card = standalone.fill(tmp_path, model, TRIAL, Reference((), (np.zeros(N),), ""), answer)
    assert "--metric map@module:callable" in card["absent"]
