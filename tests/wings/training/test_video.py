"""Networks for clips: trained on real video, judged on recordings they never saw, run by every engine."""

import fcntl
import json
import shutil

import numpy as np
import pytest

import cutting
from edgescope.errors import ModelError, UnavailableError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.verify import judge
from edgescope.verify.measure import compared
from edgescope.verify.measures import TopK
from edgescope.wings.training import clip_data, clips
from edgescope.wings.training import clips as training

pytestmark = pytest.mark.slow

NAMES = ("har_cnn3d", "har_autoencoder", "har_densenet")
EPOCHS = {"har_autoencoder": 5}
"""What is trained here: the two others go the same way and take far longer."""


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return cutting.scenes(tmp_path_factory.mktemp("films"), each=12)


@pytest.fixture(scope="module")
def weights(films, cache_folder):
    """name -> weights and what lies beside them, trained once by the worker that asks first."""
    folder = cache_folder / "trained in tests"
    folder.mkdir(exist_ok=True)

    def train(name):
        out = folder / f"{name}.pth"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not clips.path_of(out).exists():
                training.train(name, films, out, settings=training.Settings(epochs=EPOCHS[name], batch=8))
        return out, json.loads(clips.path_of(out).read_text())

    return train


@pytest.mark.parametrize("name", EPOCHS)
def test_training_reaches_nine_tenths_of_the_held_out_clips(name, weights):
    about = weights(name)[1]
    assert about["accuracy"]["n"] == 48
    assert about["accuracy"]["value"] > 0.9, about["history"]
    assert about["accuracy"]["lo"] > 0.5  # a quarter is chance
    assert about["history"][-1]["loss"] < about["history"][0]["loss"] / 2


def test_what_was_learned_is_in_the_weights_alone(weights, films):
    """Read back, fed one by one: the accuracy that training printed; and a still picture is no montage."""
    import torch

    out, about = weights("har_autoencoder")
    model, data = zoo.get(f"har_autoencoder@{out}"), clip_data.read(films)
    network, entry = model.module(), zoo.table()["har_autoencoder"]

    def answer(cut):
        with torch.inference_mode():
            return int(network(torch.from_numpy(clip_data.prepared(cut, entry))[None]).argmax())

    middles = [(v.label, clip_data.clip(v, v.middle)) for v in data.held_out]
    right = sum(answer(cut) == label for label, cut in middles)
    assert right == round(about["accuracy"]["value"] * about["accuracy"]["n"])
    montage = data.classes.index("Montage")
    stills = [np.repeat(cut[:1], clip_data.FRAMES, axis=0) for label, cut in middles if label == montage]
    assert sum(answer(still) == montage for still in stills) < len(stills) / 2


@pytest.fixture(scope="module")
def quick(films, tmp_path_factory):
    """Weights after one epoch: enough for everything but accuracy."""
    out = tmp_path_factory.mktemp("quick") / "quick.pth"
    return out, training.train("har_densenet", films, out, settings=training.Settings(epochs=1, batch=24))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A network of two of the classes, of few videos, and what lies beside its weights."""
    films = cutting.scenes(tmp_path_factory.mktemp("few"), each=5)
    out, settings = tmp_path_factory.mktemp("two") / "two.pth", training.Settings(epochs=1, batch=24)
    return out, training.train("har_densenet", films, out, classes=["Talk", "Street"], settings=settings)


def test_the_same_seed_gives_the_same_weights(quick, films, tmp_path):
    import torch

    settings = training.Settings(epochs=1, batch=24)
    training.train("har_densenet", films, tmp_path / "again.pth", settings=settings)
    first, again = (torch.load(path, weights_only=True) for path in (quick[0], tmp_path / "again.pth"))
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_the_sidecar_says_what_the_weights_are(quick, films):
    out, about = quick
    assert json.loads(clips.path_of(out).read_text()) == {"version": clips.VERSION, **about}
    assert about["data"]["classes"] == list(cutting.CLASSES)
    assert (about["data"]["training_videos"], about["data"]["held_out_videos"]) == (96, 48)
    assert about["accuracy"]["lo"] <= about["accuracy"]["value"] <= about["accuracy"]["hi"]
    entry = zoo.table()["har_densenet"]
    assert (about["params"], about["macs"]) == (entry["params"], entry["macs"])
    assert about["data"]["gate_clips"] == 400  # of 48 videos x 9 offsets


def test_too_few_held_out_clips_are_said_and_no_accuracy_is_claimed(two):
    out, _ = two
    model = zoo.get(f"har_densenet@{out}")
    assert not model.info.trained
    assert "90 held-out clips are too few for the top-1 gate, which needs 100" in model.info.source
    assert "held-out clips" in model.samples(Purpose.GATE, 8).origin
    assert model.samples(Purpose.LABELLED, 8) is None


def test_other_numbers_of_classes_change_the_head_and_the_figures(two):
    out, about = two
    model = zoo.get(f"har_densenet@{out}")
    assert model.info.params == about["params"] < zoo.table()["har_densenet"]["params"]
    assert model.info.params == sum(p.numel() for p in model.module().parameters())


def test_a_variant_is_judged_by_its_top_class_on_held_out_clips(weights, artifacts, open_onnx):
    out, about = weights("har_autoencoder")
    model = zoo.get(f"har_autoencoder@{out}")
    assert model.info.trained
    assert f"{about['accuracy']['value']:.1%} of 48 held-out videos right" in model.info.source
    network, given = open_onnx(model.onnx(artifacts)), {}

    def run(batch):
        """Each batch once: the same 448 clips are asked for three times."""
        key = batch["input"].tobytes()
        if key not in given:
            given[key] = network(batch)
        return [array.copy() for array in given[key]]

    gate, labelled = judge.gate_samples(model), model.samples(Purpose.LABELLED, 400)
    assert (len(gate), len(labelled)) == (400, 48)
    truth = judge.Reference(*judge.answers(run, judge.basis(model), 8), "onnxruntime")
    answer, _ = judge.verify(run, model, truth, precision="fp32", batch=8)
    assert (answer.passed, answer.method) == (True, "top1_agreement")
    assert answer.fields["accuracy"].value == pytest.approx(about["accuracy"]["value"])
    wrong, _ = judge.verify(
        lambda b: [np.roll(run(b)[0], 1, axis=1)], model, truth, precision="fp32", batch=8
    )
    assert not wrong.passed


def test_int8_ranges_come_from_training_videos(weights, artifacts, open_onnx):
    from edgescope.artifacts import int8

    model = zoo.get(f"har_autoencoder@{weights('har_autoencoder')[0]}")
    run = open_onnx(int8.int8(model, artifacts))
    clip = model.samples(Purpose.LABELLED, 48)
    right = (judge.outputs(run, clip, 8)[0].argmax(axis=1) == clip.labels).mean()
    assert right > 0.8
    int8.disjoint(model.samples(Purpose.CALIBRATION, 64), judge.gate_samples(model))


def test_one_answer_always_is_not_knowledge():
    """70 % of one label: a constant network is right in 70 %, and its top class means nothing."""
    labels = np.array([0] * 70 + [1] * 30)
    constant = (np.tile([1.0, 0.0], (100, 1)).astype(np.float32),)
    gate = (np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32) + np.float32([9, 0]),)
    kept = TopK(labels).tally(constant, slice(None))
    told = [compared(TopK(labels), kept, kept, None)]
    answer = judge.judge(gate, judge.Reference(gate, kept, "x"), precision="fp32", told=told)
    assert answer.method == "centred_l2"


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_gives_the_networks_answers(name, artifacts, open_onnx):
    import openvino
    import torch

    model = zoo.get(name)
    path = model.onnx(artifacts)  # its batch axis is open: batches of 1 and 4 were compared with PyTorch
    clip = model.samples(Purpose.GATE, 3).arrays["input"]
    with torch.inference_mode():
        wanted = model.module()(torch.from_numpy(clip)).numpy()
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for got in (open_onnx(path)({"input": clip})[0], compiled([clip])[0]):
        np.testing.assert_allclose(got, wanted, atol=1e-3 * np.abs(wanted).max())


def test_weights_without_a_sidecar_claim_nothing(quick, tmp_path):
    shutil.copy(quick[0], tmp_path / "bare.pth")
    model = zoo.get(f"har_densenet@{tmp_path / 'bare.pth'}")
    assert not model.info.trained
    assert "no bare.pth.json next to them" in model.info.source
    assert "synthetic" in model.samples(Purpose.GATE, 1).origin


def test_a_sidecar_of_other_weights_is_refused(quick, tmp_path):
    out = tmp_path / "w.pth"
    out.write_bytes(quick[0].read_bytes() + b"\0")
    shutil.copy(clips.path_of(quick[0]), clips.path_of(out))
    with pytest.raises(ModelError, match=r"E-CLIPS-8: .*other weights"):
        zoo.get(f"har_densenet@{out}")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 99}', '{"version": 1, "data": 3}'])
def test_a_damaged_sidecar_is_refused(quick, tmp_path, text):
    shutil.copy(quick[0], tmp_path / "w.pth")
    clips.path_of(tmp_path / "w.pth").write_text(text)
    with pytest.raises(ModelError, match="E-CLIPS-7"):
        zoo.get(f"har_densenet@{tmp_path / 'w.pth'}")


def test_videos_that_are_gone_are_named(quick, tmp_path, monkeypatch):
    shutil.copy(quick[0], tmp_path / "w.pth")
    about = json.loads(clips.path_of(quick[0]).read_text())
    about["data"] |= {"folder": str(tmp_path / "gone")}
    clips.path_of(tmp_path / "w.pth").write_text(json.dumps(about))
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "another machine"))
    with pytest.raises(UnavailableError, match=r"E-CLIPS-5: .*gone.*\.json "):
        zoo.get(f"har_densenet@{tmp_path / 'w.pth'}").samples(Purpose.GATE, 4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epochs": 0}, "--epochs"),
        ({"batch": 1}, "--batch"),
        ({"seed": -1}, "--seed"),
        ({"device": "tpu"}, "--device"),
        ({"rate": float("nan")}, "--learning-rate"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, says):
    with pytest.raises(UsageError, match=f"E-TRAIN-1.*{says}"):
        training.Settings(**settings)


def test_a_diverging_training_writes_nothing(films, tmp_path):
    settings = training.Settings(epochs=2, batch=24, rate=1e30)
    with pytest.raises(ModelError, match="E-TRAIN-3"):
        training.train("har_autoencoder", films, tmp_path / "w.pth", settings=settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu("torch_eager")
def test_training_on_a_gpu_gives_the_same_weights_twice(films, tmp_path):
    import torch

    for name in NAMES:
        settings = training.Settings(epochs=2, batch=8, device="cuda")
        first, second = (tmp_path / f"{name}-{i}.pth" for i in (1, 2))
        for out in (first, second):
            training.train(name, films, out, settings=settings)
        one, two = (torch.load(path, weights_only=True) for path in (first, second))
        assert all(torch.equal(one[key], two[key]) for key in one)
