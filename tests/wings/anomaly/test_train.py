"""Training of heads on made-up features that hold what is to be found: bags, selection, resume, precision."""

import json
from dataclasses import asdict, replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from edgescope.errors import ModelError, UsageError
from edgescope.wings.anomaly import detector, train
from edgescope.wings.anomaly.detector import folded, segmented, stretched
from edgescope.wings.anomaly.evaluation import evaluate, false_alarms_per_hour, weakness
from edgescope.wings.anomaly.features import FeatureSet, Manifest, Row, read_features
from edgescope.wings.anomaly.heads import HEADS
from edgescope.wings.anomaly.preparation import Preparation

pytestmark = pytest.mark.network

PREPARED = Preparation("frames_lite0", 16, 2, (40, 32), (32, 32), (0.0,) * 3, (1.0,) * 3, 32)


def made(root, *, labelled=True, videos=40):
    """Features in which anomalous snippets lie elsewhere than normal ones; a few videos are longer."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(videos):
        split = ("train", "train", "validation", "test")[number // 2 % 4]
        length, anomalous = 8 + 30 * (number % 10 == 0), bool(number % 2)
        features = rng.normal(size=(length, 2, 32)).astype(np.float32)
        features[3:5, :, :8] += 2.5 * anomalous
        spans = ((48, 80),) if anomalous else ()
        rows.append(
            Row(
                f"{split}/{number}",
                split,
                "theft" if anomalous else "normal",
                spans if labelled or split == "test" else () if not anomalous else None,
                16 * length,
                25.0,
                length,
                0,
                0,
                str(number),
            )
        )
        path = root / rows[-1].file
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, features)
    Manifest(root, {"preparation": asdict(PREPARED)}, rows)
    return read_features(root)


def chosen(head="rtfm", **changed):
    return train.recipe(head, **{"steps": 40, "bags": 8, "judged_every": 10, "judged_from": 10} | changed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "labelled"), [*((head, True) for head in train.RECIPES), ("mil_ranking", False)]
)
def test_heads_find_what_is_planted(tmp_path, head, labelled):
    features = made(tmp_path / "f", labelled=labelled)
    steps, rate = {"mil_ranking": (60, 0.05)}.get(head, (20, 3e-3))
    done = train.train(features, tmp_path / "d.pt", chosen(head, steps=steps, learning_rate=rate))
    found = detector.Detector.load(tmp_path / "d.pt")
    rows = features.of("test")
    scored = [train.scored_video(row, found.scores(features.features(row)), 16) for row in rows]
    assert evaluate(scored, draws=20).figures["auc"].value > 0.85
    assert ("frames" if labelled else "videos") in done.about["threshold_of"]


def test_the_published_recipes_are_the_defaults():
    assert train.recipe("rtfm") == train.Recipe("rtfm", 15_000, 64, "adam", 1e-3, 5e-3, 5, 200)
    assert train.recipe("mil_ranking").steps == 20_000 and train.recipe("mil_ranking").bags == 60


def test_bags_are_drawn_pass_by_pass():
    """Every video comes once in a pass, in another order each time, whatever the size of a step."""
    order = np.concatenate([train.drawn(7, 3, step, [0, 1]) for step in range(14)])
    passes = order.reshape(6, 7)
    assert (np.sort(passes, axis=1) == np.arange(7)).all()
    assert len({tuple(row) for row in passes.tolist()}) > 3


def test_a_minibatch_holds_normal_bags_first(tmp_path):
    features = made(tmp_path)
    bags = train.Bags.of(features, chosen())
    (first, *rest) = bags.batches(0)
    assert len(rest) == 9 and first.shape == (8, 2, 32, 32)
    assert first[:4].abs().max() < first[4:, :, :, :8].max()
    again = next(iter(train.Bags.of(features, chosen()).batches(0)))
    assert torch.equal(first, again)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_to_the_same_weights(tmp_path, monkeypatch):
    features = made(tmp_path / "f")
    whole = train.train(features, tmp_path / "whole.pt", chosen())
    plan = train.fit.Plan
    monkeypatch.setattr(train.fit, "Plan", lambda **settings: plan(**{**settings, "keep_s": 0.0}))

    def stop(epoch):
        if epoch.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train.train(features, tmp_path / "cut.pt", chosen(), tell=stop)
    cut = train.train(features, tmp_path / "cut.pt", chosen())
    assert [(e.loss, e.value) for e in cut.history] == [(e.loss, e.value) for e in whole.history]
    first, second = (detector.read(tmp_path / f"{name}.pt").head_state for name in ("whole", "cut"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("select", train.SELECT)
def test_the_split_that_chooses_is_in_the_file(tmp_path, select, monkeypatch):
    features = made(tmp_path / "f")
    judged = []
    scored = train.scored
    monkeypatch.setattr(
        train,
        "scored",
        lambda n, f, rows, *a: judged.append({r.split for r in rows}) or scored(n, f, rows, *a),
    )
    about = train.train(features, tmp_path / "d.pt", chosen(select=select, steps=10)).about
    assert about["selected_on"] == select
    assert ({"test"} in judged) == (select == "test")


@pytest.mark.slow
def test_mixed_precision_trains(tmp_path):
    features = made(tmp_path / "f")
    done = train.train(features, tmp_path / "d.pt", chosen(precision="bf16", patience=2))
    assert all(np.isfinite(epoch.loss) for epoch in done.history)


def losses_of(monkeypatch, quick, **changed):
    """The loss that a recipe trains with, and that without compiling, of the same bags; what `quick` makes of it."""
    monkeypatch.setattr(torch, "compile", quick)
    monkeypatch.setattr(train, "find_spec", lambda name: True)
    network, bags = HEADS["light_head"](16).eval(), torch.rand(4, 1, 32, 16)
    chosen = train.recipe("light_head", device="cuda", **changed)
    return train.loss_of(chosen)(network, bags), train.loss_of(train.recipe("light_head"))(network, bags)


@pytest.mark.parametrize(("steps", "compiled"), [(train.COMPILED_FROM, 1), (train.COMPILED_FROM - 1, 0)])
def test_the_loss_of_a_long_training_is_compiled_on_a_gpu(monkeypatch, steps, compiled):
    seen = []
    found, plain = losses_of(monkeypatch, lambda loss: seen.append(loss) or loss, steps=steps)
    assert len(seen) == compiled and torch.equal(found, plain)


def test_a_loss_that_cannot_be_compiled_is_computed_step_by_step(monkeypatch):
    from torch._dynamo.exc import BackendCompilerFailed

    def fails(network, bags):
        raise BackendCompilerFailed("inductor", RuntimeError("no C compiler"), None)

    with pytest.warns(UserWarning, match="cannot be compiled here.*no C compiler"):
        found, plain = losses_of(monkeypatch, lambda loss: fails)
    assert torch.equal(found, plain)


def test_segments_are_means_and_copies():
    """As published: linspace bounds, the mean within, the first snippet where there is none between."""
    for count in (1, 5, 31, 32, 33, 100, 641):
        features = np.random.default_rng(count).random((count, 2, 3), dtype=np.float32)
        bounds = np.linspace(0, count, 33, dtype=int)
        wanted = [features[a:b].mean(axis=0) if a < b else features[a] for a, b in pairwise(bounds)]
        np.testing.assert_allclose(segmented(features), np.stack(wanted, axis=1), rtol=1e-5)


@pytest.mark.parametrize("count", [1, 5, 31, 32, 33, 70])
def test_a_short_video_is_scored_as_it_was_trained_on(count):
    features = np.random.default_rng(0).random((count, 1, 4), dtype=np.float32)
    rows = stretched(count)
    assert len(rows) == max(32, count) and set(rows.tolist()) == set(range(count))
    if count <= 32:
        np.testing.assert_array_equal(features[rows][:, 0], segmented(features)[0])
    np.testing.assert_allclose(folded(features[rows, 0, 0], count), features[:, 0, 0], rtol=1e-6)


def test_what_is_no_detector_is_named(tmp_path):
    for content in (b"", b"text"):
        (tmp_path / "d.pt").write_bytes(content)
        with pytest.raises(ModelError, match="E-ANOMALY-3"):
            detector.Detector.load(tmp_path / "d.pt")
    torch.save({"state_dict": {}}, tmp_path / "d.pt")
    with pytest.raises(ModelError, match=r"E-ANOMALY-3: .*anomaly train"):
        detector.Detector.load(tmp_path / "d.pt")


def test_features_that_cannot_be_scored_are_named(tmp_path):
    features = made(tmp_path / "f")
    train.train(features, tmp_path / "d.pt", chosen(steps=10))
    found = detector.Detector.load(tmp_path / "d.pt")
    good = features.features(features.rows[0])
    assert found.scores(good[:, 0]).shape == (len(good),)
    bad = good.copy()
    bad[2] = np.nan
    with pytest.raises(ModelError, match=r"E-ANOMALY-4.*1 of 8 snippets.*first 2"):
        found.scores(bad)
    with pytest.raises(ModelError, match=r"E-ANOMALY-4.*\(snippets, crops, 32\) is needed"):
        found.scores(good[:, :, :16])


def test_splits_of_one_kind_are_refused(tmp_path):
    features = made(tmp_path)
    for split in ("train", "validation"):
        rows = tuple(row for row in features.rows if row.split != split or not row.anomalous)
        one = FeatureSet(tmp_path, PREPARED, features.about, rows)
        with pytest.raises(
            UsageError, match=rf"E-ANOMALY-6: the {'training' if split == 'train' else split} split"
        ):
            train.train(one, tmp_path / "d.pt", chosen())


def test_weights_of_the_users_own_lie_in_the_detector(tmp_path):
    """The feature network's weights travel in the file, so it works where the checkpoint is not."""
    from edgescope.models import zoo
    from edgescope.models.weights import save

    network = zoo.get("frames_lite0").module()
    for parameter in network.parameters():
        parameter.data *= 0.9
    save(network, tmp_path / "w.pth")
    prepared = Preparation(
        **{**asdict(PREPARED), "network": f"frames_lite0@{tmp_path / 'w.pth'}", "width": 640}
    )
    head = train.HEADS["light_head"](640)
    weights = detector.user_weights(prepared.network)
    detector.write(
        tmp_path / "d.pt", detector.Checkpoint("light_head", prepared, head.state_dict(), weights, {})
    )
    (tmp_path / "w.pth").unlink()
    found = detector.Detector.load(tmp_path / "d.pt")
    assert found.checkpoint.preparation.network == "frames_lite0"
    state = zoo.get(found.preparation.network).module().state_dict()
    assert all(torch.equal(state[name], weights[name]) for name in weights)
    json.dumps(found.checkpoint.about)


# -- by numbers ------------------------------------------------------------------------------------------------


def test_recipes_are_the_published_ones_to_the_last_number():
    assert train.recipe("mil_ranking") == train.Recipe(
        "mil_ranking", 20_000, 60, "adagrad", 1e-3, 1e-3, 20, 200
    )
    assert train.recipe("light_head") == train.Recipe("light_head", 5_000, 64, "adam", 1e-3, 5e-4, 5, 200)
    plain = train.Recipe()
    assert (plain.patience, plain.select, plain.precision, plain.device, plain.seed) == (
        *(None, "validation", "fp32", "cpu", 0),
    )
    assert train.recipe("rtfm", steps=None, seed=0) == train.recipe("rtfm")


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        *(({"steps": 1}, True), ({"steps": 0}, False), ({"bags": 2}, True), ({"bags": 3}, False)),
        *(
            ({"bags": 0}, False),
            ({"bags": 4}, True),
            ({"judged_every": 1}, True),
            ({"judged_every": 0}, False),
        ),
        *(({"select": "train"}, False), ({"learning_rate": 0.0}, False), ({"learning_rate": 1e-9}, True)),
    ],
)
def test_a_recipe_reaches_to_its_limits_and_no_further(changed, fits):
    if fits:
        assert vars(train.recipe("rtfm", **changed)).items() >= changed.items()
        return
    with pytest.raises(UsageError, match="E-ANOMALY-14"):
        train.recipe("rtfm", **changed)


def test_a_head_that_is_none_is_told_the_closest():
    with pytest.raises(UsageError, match="E-ANOMALY-14") as caught:
        train.recipe("rtffm")
    assert caught.value.fix == "--head rtfm"


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"steps": 40, "judged_every": 10, "judged_from": 20}, {"epochs": 4, "steps": 40, "judged_from": 2}),
        ({"steps": 41, "judged_every": 10, "judged_from": 29}, {"epochs": 5, "steps": 41, "judged_from": 2}),
        ({"steps": 9, "judged_every": 10, "judged_from": 200}, {"epochs": 1, "judged_from": 1}),
        ({"steps": 40, "judged_every": 10, "judged_from": 200}, {"judged_from": 4}),
        ({"select": "last", "patience": 3, "seed": 7}, {"best": False, "patience": 3, "seed": 7}),
        ({"select": "test", "precision": "bf16"}, {"best": True, "precision": "bf16", "keep_s": 60.0}),
    ],
)
def test_a_recipe_becomes_a_plan(tmp_path, monkeypatch, changed, wanted):
    features, plans = made(tmp_path / "f"), []

    def planned(**settings):
        plans.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(train.fit, "Plan", planned)
    with pytest.raises(KeyboardInterrupt):
        train.train(features, tmp_path / "d.pt", chosen(**changed))
    assert plans[0].items() >= wanted.items()


@pytest.mark.slow
def test_what_training_left_is_told_in_the_file(tmp_path):
    features = made(tmp_path / "f")
    told = []
    done = train.train(features, tmp_path / "d.pt", chosen(steps=25, select="last"), tell=told.append)
    assert [epoch.steps for epoch in told] == [10, 20, 25] and not (tmp_path / "d.pt.part").exists()
    about = done.about
    assert (about["steps"], about["selected_step"], about["stopped"]) == (25, 25, "")
    assert about["videos"] == {"train": 20, "validation": 10, "test": 10}
    assert about["seconds"] == round(sum(epoch.seconds for epoch in told), 3)
    best = train.train(features, tmp_path / "e.pt", chosen(steps=30))
    top = max(best.history, key=lambda epoch: epoch.value)
    assert (best.about["selected_step"], best.about["selection_auc"]) == (top.steps, top.value)
    never = train.train(features, tmp_path / "f.pt", chosen(steps=10, judged_every=20, judged_from=90))
    assert never.about["selection_auc"] == never.history[0].value


@pytest.mark.parametrize(
    ("device", "name", "fused", "kind"),
    [("cuda", "adam", True, "Adam"), ("cuda", "adagrad", None, "Adagrad"), ("cpu", "adam", None, "Adam")],
)
def test_weights_are_updated_as_the_recipe_says(monkeypatch, device, name, fused, kind):
    asked = []
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)
    makers = {key: lambda weights, key=key, **how: asked.append((key, how)) for key in train.OPTIMIZERS}
    monkeypatch.setattr(train, "OPTIMIZERS", makers)
    recipe = train.recipe("rtfm", device=device, optimizer=name, learning_rate=0.5, weight_decay=0.25)
    bags = train.Bags(torch.zeros(1), torch.zeros(1), recipe)
    train.task(torch.nn.Linear(1, 1), bags, recipe)
    wanted = {"lr": 0.5, "weight_decay": 0.25} | ({"fused": True} if fused else {})
    assert asked == [(name, wanted)]


def test_minibatches_follow_one_another_over_all_looks(tmp_path):
    bags = train.Bags.of(made(tmp_path), chosen(bags=6, judged_every=4, seed=3))
    assert bags.normal.shape == bags.anomalous.shape == (10, 2, 32, 32)
    for epoch in range(3):
        for number, batch in enumerate(bags.batches(epoch)):
            rows = [train.drawn(10, 3, 4 * epoch + number, [3, kind]) for kind in (0, 1)]
            assert torch.equal(batch[:3], bags.normal[rows[0]]) and torch.equal(
                batch[3:], bags.anomalous[rows[1]]
            )
        assert number == 3


def test_what_is_drawn_is_a_permutation_of_each_pass():
    first, second = (np.random.default_rng([5, 9, p]).permutation(4).tolist() for p in (0, 1))
    assert [train.drawn(4, 3, step, [5, 9]).tolist() for step in (0, 1, 2)][:2] == [
        first[:3],
        [first[3], *second[:2]],
    ]


@pytest.mark.parametrize(
    ("free", "device", "fits"), [(400, "cuda", True), (399, "cuda", False), (0, "cpu", True)]
)
def test_features_lie_on_the_device_if_a_quarter_of_its_memory_holds_them(monkeypatch, free, device, fits):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 1000))
    assert train._fits(device, 100) is fits


def scored(category, scores, intervals=()):
    row = Row(category, "test", category, intervals, 16 * len(scores), 25.0, len(scores), 0, 0, "k")
    return train.scored_video(row, np.array(scores, np.float32), 16), row


def test_without_labels_of_frames_the_tenth_of_the_highest_scores_answers_for_a_video():
    """20 snippets: two of them; 9: one. By one the anomalous one is higher, by the mean of three it is not."""
    high, low = [0.9, 0.8, *[0.0] * 18], [0.84, 0.84, 0.84, *[0.0] * 17]
    given = [scored("theft", high, None), scored("normal", low), scored("theft", [0.7, *[0.0] * 8], None)]
    given.append(scored("normal", [0.6, 0.6, *[0.0] * 7]))
    videos, rows = (list(each) for each in zip(*given, strict=True))
    found, of = train.judging(videos, rows)
    assert of == "videos" and found.roc_auc == 0.75  # 0.85 and 0.7 against 0.84 and 0.6
    labelled = [(video, replace(row, intervals=((0, 16),) if row.anomalous else ())) for video, row in given]
    of_frames = train.judging(
        [train.scored_video(row, video.scores, 16) for video, row in labelled], [row for _, row in labelled]
    )
    assert of_frames[1] == "frames" and 0.75 < of_frames[0].roc_auc < 1


class Judged:
    """What judging finds: an AUC that a test sets, and a threshold."""

    auc = 0.51

    def __call__(self, videos, rows):
        return SimpleNamespace(roc_auc=self.auc, youden=0.3), "frames"


@pytest.mark.parametrize(("fps", "rate"), [(25.0, 2 * 3600 / (6 * 16 / 25)), (None, None)])
def test_false_alarms_are_the_times_that_usual_scores_rise_to_the_threshold(fps, rate):
    usual, _ = scored("normal", [0.1, 0.6, 0.7, 0.1, 0.5, 0.2])
    other, _ = scored("theft", [0.9, 0.1])
    videos = [replace(usual, fps=fps), other]
    assert false_alarms_per_hour(videos, 0.5) == (rate and pytest.approx(rate))


@pytest.mark.parametrize(
    ("threshold", "false", "weak"),
    [(9.4e-7, 0.0, True), (0.5, 0.0, False), (0.5, 61.0, True), (0.5, 60.0, False), (0.01, None, False)],
)
def test_a_threshold_next_to_0_or_with_more_than_one_false_alarm_a_minute_is_weak(threshold, false, weak):
    assert bool(weakness(threshold, false)) is weak


def test_a_threshold_is_chosen_only_where_the_validation_split_has_both_kinds_and_the_detector_beats_chance(
    tmp_path, monkeypatch
):
    features = made(tmp_path)
    network = HEADS["light_head"](32)
    rows = tuple(row for row in features.rows if row.split != "validation" or row.anomalous)
    one = FeatureSet(tmp_path, PREPARED, features.about, rows)
    assert train._threshold(network, one)["threshold"] is None
    monkeypatch.setattr(train, "judging", judged := Judged())
    both = train._threshold(network, features)
    assert both["false_alarms_per_hour"] >= 0
    assert 0 < both["threshold"] < 1 and "frames of the validation split" in both["threshold_of"]
    judged.auc = 0.5
    blind = train._threshold(network, features)
    assert blind["threshold"] is None and "0.500" in blind["threshold_of"]
    monkeypatch.undo()
    with pytest.raises(UsageError, match="E-ANOMALY-6"):
        train._judged(one, "last")
    assert (
        0 <= train._judged(one, "test")(train.task(network, train.Bags.of(features, chosen()), chosen())) <= 1
    )


def test_a_reason_why_a_loss_is_not_compiled_is_cut(monkeypatch):
    class Fails(Exception):
        pass

    compiled = train.Compiled.__new__(train.Compiled)
    calls = []

    def quick(network, batch):
        calls.append("quick")
        raise Fails("x  " * 200)

    compiled.loss, compiled.quick, compiled.fails = lambda network, batch: calls.append("plain"), quick, Fails
    with pytest.warns(UserWarning) as told:
        compiled(None, None)
    compiled(None, None)
    assert calls == ["quick", "plain", "plain"]
    assert str(told[0].message).endswith(": " + " ".join(["x"] * 200)[:200]) and told[0].filename == __file__
