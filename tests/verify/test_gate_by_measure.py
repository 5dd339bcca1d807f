"""The gate where inputs are labelled: which measure judges, by which floor, and what one that fails is told as."""

import sys

import numpy as np
import pytest

from edgescope import cache
from edgescope.errors import ModelError, UsageError
from edgescope.models.base import Detections, Purpose, Samples
from edgescope.models.boxes import PointDecoder
from edgescope.models.synthetic import NullModel
from edgescope.records import Measured, ModelInfo
from edgescope.verify import judge, measure, metric_names, reference
from edgescope.verify.judge import Reference
from edgescope.verify.measure import compared, measure_of
from edgescope.verify.measures import MeanIou, Own, TopK

RNG = np.random.default_rng(0)


class Labelled(NullModel):
    """Inputs that are the answers: a network that returns them is right as often as `right` says."""

    def __init__(self, n=200, classes=10, right=0.9, **given):
        super().__init__()
        self.info = ModelInfo("labelled", "unknown", True, "a test", digest=f"{n}-{right}", params=0, macs=0)
        rng = np.random.default_rng(1)
        self.labels = rng.integers(0, classes, n)
        shown = np.where(np.arange(n) < right * n, self.labels, (self.labels + 1) % classes)
        self.scores = (np.eye(classes)[shown] + rng.random((n, classes)) / 10).astype(np.float32)
        keys = {"labels": self.labels} | given
        self.given = Samples({"input": self.scores}, tuple(f"{i:016x}" for i in range(n)), "made up", **keys)

    def samples(self, purpose, n):
        return self.given.first(n) if purpose in (Purpose.GATE, Purpose.LABELLED) else None


def plain(batch):
    return [batch["input"]]


def losing(k):
    """A network that answers wrongly on the k inputs where it was right first."""

    def run(batch):
        out = batch["input"].copy()
        for i, row in enumerate(batch["input"]):
            if run.asked < k:
                out[i] = np.roll(row, 1)
            run.asked += 1
        return [out]

    run.asked = 0
    return run


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gate(model, run, precision="int8", **keys):
    metric = keys.get("metric", "")
    truth = reference.reference(model, lambda: plain, batch=8, metric=metric)
    return judge.verify(run, model, truth, precision=precision, batch=8, **keys)[0]


def test_labels_judge_by_the_difference_on_the_same_inputs(own_cache):
    answer = gate(Labelled(400), losing(3))
    assert answer.passed and answer.method == "top1" and answer.threshold == 0.99
    figures = answer.fields
    assert figures["accuracy"] == figures["top1"] and figures["accuracy"].value == pytest.approx(0.8925)
    assert figures["reference_accuracy"].value == figures["reference_top1"].value == 0.9
    apart = figures["accuracy_difference"]
    assert (apart.value, apart.n) == (pytest.approx(-0.0075), 400) and apart.lo < -0.0075 < apart.hi
    assert figures["top5"].value >= figures["top1"].value
    said = (
        "top-1 89.2 % (fp32 90.0 %; difference -0.8 points, 95 % CI -2.2 to 0.2; floor -0.9), on 400 labelled"
    )
    assert answer.detail.startswith(said), answer.detail


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize(("lost", "passes"), [(0, True), (3, True), (4, False)])
def test_one_floor_for_every_precision(own_cache, precision, lost, passes):
    assert gate(Labelled(400), losing(lost), precision).passed == passes


@pytest.mark.parametrize(("share", "passes"), [(0.9, True), (0.97, True), (0.98, False), (1.0, False)])
def test_the_floor_is_the_users_to_move(own_cache, share, passes):
    answer = gate(Labelled(400), losing(9), min_accuracy=share)
    assert answer.passed == passes and answer.threshold == share


def test_what_the_labels_cannot_tell_the_outputs_must():
    """One answer lost of a hundred is the floor; their interval reaches further than five times that."""
    labels = np.arange(100) % 10
    right = np.eye(10)[labels]
    rank = TopK(labels)
    theirs = rank.tally((right,), slice(None))
    wrong = right.copy()
    wrong[0] = np.roll(right[0], 1)
    told = [compared(rank, rank.tally((wrong,), slice(None)), theirs, None)]
    assert told[0].difference.lo < -0.05
    truth = Reference((right,), theirs, "made up")
    near, far = (
        right + 0.01 * RNG.standard_normal(right.shape),
        right + 0.3 * RNG.standard_normal(right.shape),
    )
    passed, failed = (judge.judge((y,), truth, precision="int8", told=told) for y in (near, far))
    assert passed.passed and "the outputs are close to fp32's" in passed.detail
    assert not failed.passed and "more labelled inputs would tell" in failed.detail


def test_few_labels_are_told_and_do_not_judge(own_cache):
    answer = gate(Labelled(99), plain)
    assert answer.method == "centred_l2" and answer.passed  # 99 frames are too few for the top class, too
    assert isinstance(answer.fields["accuracy"], Measured)
    assert "99 labelled inputs are too few to judge by, 100 would do" in answer.detail


def test_labels_of_another_network_are_no_judge(own_cache):
    model = Labelled(200, labels=np.random.default_rng(4).integers(0, 10, 200))
    answer = gate(model, plain)
    assert answer.method == "centred_l2" and "are these the network's own labels?" in answer.detail


def test_asking_for_agreement_lets_that_judge(own_cache):
    for keys in ({"metric": "agreement"}, {"min_agreement": 0.9}):
        answer = gate(Labelled(200), losing(8), **keys)
        assert answer.method == "top1_agreement" and answer.passed, answer.detail


def test_scenes_widen_the_interval(own_cache):
    scenes = np.arange(400) // 20
    alone, together = (gate(Labelled(400, groups=g), losing(3)) for g in (None, scenes))
    ends = [a.fields["accuracy_difference"].lo for a in (alone, together)]
    assert ends[1] < ends[0] - 0.005


# -- which measure applies -------------------------------------------------------------------------------------


def boxed(n=120):
    return tuple(np.array([[0, 0, 10, 10, 0]], np.float32) for _ in range(n))


class OneBox:
    """A decoder that finds the same box in every image."""

    score, names = 0.5, ()

    def at(self, score):
        return self

    def host(self, outputs, fits):
        box = np.array([[0, 0, 10, 10]], np.float32)
        return [Detections(box, np.full(1, 0.9, np.float32), np.zeros(1, np.int64)) for _ in fits]

    elements = device = host


class Detecting(Labelled):
    decoder = OneBox()


def test_the_labels_choose_the_measure():
    maps = np.zeros((120, 4, 4), np.int64)
    for model, name in (
        (Labelled(120), "top1"),
        (Labelled(120, labels=maps), "miou"),
        (Detecting(120, labels=None, boxes=boxed()), "map"),
        (Labelled(120, labels=None, boxes=boxed()), None),  # raw heads: agreement with fp32
        (Labelled(120, labels=None), None),
    ):
        found = measure_of(model, model.given)
        assert (found and found.name) == name
    assert measure_of(Labelled(120), None) is None
    assert measure_of(Labelled(120), Labelled(120).given, "top5").name == "top5"


@pytest.mark.parametrize(
    ("metric", "given"),
    [("top1", {"labels": None}), ("miou", {}), ("map", {"labels": None, "boxes": boxed()})],
)
def test_a_named_measure_without_its_labels_says_what_is_missing(metric, given):
    model = Labelled(120, **given)
    with pytest.raises(UsageError, match=f"E-MEAS-5: --metric {metric} cannot be computed"):
        measure_of(model, model.given, metric)


def test_labels_that_are_no_classes_of_the_network(own_cache):
    with pytest.raises(UsageError, match="E-LABEL-1"):
        gate(Labelled(120, labels=np.full(120, 12)), plain)
    maps = Labelled(120, labels=np.zeros((120, 4, 4), np.int64))
    assert "scores a pixel" in gate(maps, plain).detail  # told, and closeness judges
    with pytest.raises(UsageError, match=r"E-MEAS-5: .*scores a pixel"):
        gate(maps, plain, metric="miou")


@pytest.mark.slow
def test_a_detector_is_judged_by_its_boxes(own_cache):
    answer = gate(Detecting(120, labels=None, boxes=boxed()), plain)
    assert answer.passed and answer.method == "map" and answer.fields["map50"].value == 1.0
    assert answer.fields["accuracy_difference"].value == 0.0


# -- functions of the user's -----------------------------------------------------------------------------------

SOURCE = """
import numpy as np
def accuracy(outputs, labels): return (outputs.argmax(1) == labels).mean()
def each(outputs, labels): return outputs.argmax(1) == labels
def loss(outputs, labels): return -30 - 10 * (outputs.argmax(1) != labels).mean()
def raising(outputs, labels): raise KeyError("no such class")
def nan(outputs, labels): return float("nan")
def text(outputs, labels): return "good"
def picky(outputs, labels):
    if len(set(labels)) < 10: raise ValueError("one class is missing")
    return (outputs.argmax(1) == labels).mean()
"""


@pytest.fixture
def mine(own_cache):
    (own_cache / "my_measures.py").write_text(SOURCE)
    yield own_cache
    sys.modules.pop("my_measures", None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "each", "picky"])
def test_a_function_of_the_users_judges(mine, name):
    answer = gate(Labelled(400), losing(3), metric=f"my_measures:{name}")
    assert answer.passed and answer.method.startswith(f"my_measures:{name}#")
    apart = answer.fields["accuracy_difference"]
    assert apart.value == pytest.approx(-0.0075) and apart.lo < apart.value < apart.hi <= 0
    assert answer.detail.startswith(f"{name} 89.2 % (fp32 90.0 %; difference -0.8 points, 95 % CI")
    assert not gate(Labelled(400), losing(4), metric=f"my_measures:{name}").passed


def test_a_measure_that_is_no_share_is_printed_as_it_is(mine):
    answer = gate(Labelled(400), losing(3), metric="my_measures:loss")
    assert answer.detail.startswith("loss -31.07 (fp32 -31; difference -0.075, 95 % CI -"), answer.detail
    assert "floor -0.31)" in answer.detail and answer.fields["accuracy"].unit == measure.SCORE


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raising", "KeyError: 'no such class'"),
        ("nan", "it returned NaN or infinity"),
        ("text", "not a number"),
    ],
)
def test_a_measure_that_gives_no_number_is_told_before_anything_is_measured(mine, name, said):
    with pytest.raises(ModelError, match=rf"E-MEAS-6: .* {name} .* 200 inputs.*{said}"):
        reference.reference(Labelled(200), lambda: plain, metric=f"my_measures:{name}")


def test_names_are_pinned_and_mistyped_ones_corrected(mine):
    named = metric_names.named("my_measures:accuracy")
    assert named.startswith("my_measures:accuracy#") and metric_names.named(named) == named
    assert metric_names.function(named)(np.eye(2), np.array([0, 1])) == 1.0
    assert metric_names.named("") == "" and metric_names.named("map") == "map"
    (mine / "my_measures.py").write_text(SOURCE + "# changed")
    with pytest.raises(ModelError, match="E-MEAS-3"):
        metric_names.function(named)
    with pytest.raises(UsageError, match=r"E-MEAS-1.*Try: --metric miou"):
        metric_names.named("miuo")
    with pytest.raises(UsageError, match="E-MEAS-1"):
        metric_names.named("nowhere_at_all:f")
    with pytest.raises(ModelError, match="E-MEAS-4"):
        metric_names.function("my_measures:absent")


def test_a_live_function_is_kept_in_the_cache(own_cache):
    pytest.importorskip("cloudpickle")
    shift = 3
    name = metric_names.named(lambda outputs, labels: shift + len(outputs))
    assert name.startswith("live:lambda#")
    assert metric_names.function(name)(np.zeros(2), None) == 5
    assert metric_names.named(name) == name
    for path in cache.folder("metrics").iterdir():
        path.unlink()
    with pytest.raises(ModelError, match="E-MEAS-2"):
        metric_names.function(name)


def test_a_function_that_a_module_holds_is_called_by_its_name(mine):
    sys.path.insert(0, str(mine))
    try:
        import my_measures

        assert metric_names.named(my_measures.each).startswith("my_measures:each#")
    finally:
        sys.path.remove(str(mine))


def test_an_interval_ends_in_time_however_slow_the_function_is(monkeypatch):
    monkeypatch.setattr(measure, "DRAWING_S", 0.0)
    slow = Own(lambda y, t: float(y.mean()), None, "m:slow")
    tally = (RNG.random((50, 2)),)
    found = compared(slow, tally, tally, None)
    assert found.difference == Measured(0.0, "1", None, None, 50)
    assert "no interval" in found.sentence(-0.01)


def test_segmentation_is_judged_image_by_image():
    labels = RNG.integers(0, 3, (120, 8, 8))
    found = np.eye(3)[labels].transpose(0, 3, 1, 2)
    of = MeanIou(labels)
    theirs = of.tally((found,), slice(None))
    worse = found.copy()
    worse[:12] = np.roll(worse[:12], 1, axis=1)
    said = compared(of, of.tally((worse,), slice(None)), theirs, None)
    assert said.theirs.value == 1.0 and said.ours.value == pytest.approx(108 / 132, abs=0.01)
    assert said.difference.lo < said.difference.value < said.difference.hi < 0
    assert said.telling


def test_the_answer_is_asked_again_when_labels_or_floor_change(own_cache):
    asked = []

    def counting(batch):
        asked.append(len(batch["input"]))
        return plain(batch)

    model, other = Labelled(120), Labelled(120, labels=np.arange(120) % 10)
    truth = reference.reference(model, lambda: plain, batch=8)
    for of, keys, whole in (
        (model, {}, True),
        (model, {}, False),
        (model, {"min_accuracy": 0.5}, True),
        (other, {}, True),
    ):
        asked.clear()
        reference.verified(counting, of, truth, precision="int8", batch=8, facts={"a": 1}, **keys)
        assert (sum(asked) > 100) == whole


# -- detectors without labels ----------------------------------------------------------------------------------


class Found(Labelled):
    """A trained detector without labels, whose outputs are boxes and scores of four points."""

    decoder = PointDecoder(classes=2, overlap=0.9)

    def __init__(self, n=120, boxes=True):
        super().__init__(n, labels=None)
        rng = np.random.default_rng(2)
        rows = np.zeros((n, 6, 4), np.float32)
        rows[:, :2] = rng.uniform(50, 500, (n, 2, 4))
        rows[:, 2:4] = rng.uniform(30, 60, (n, 2, 4))
        rows[:, 4] = rng.uniform(0.4, 0.9, (n, 4)) if boxes else 0.0
        self.info = ModelInfo(
            "found", "detect", True, "a test", digest=f"found-{n}-{boxes}", params=0, macs=0
        )
        digests = tuple(f"{i:015x}d" for i in range(n))
        self.given = Samples({"input": rows}, digests, "made up")

    def samples(self, purpose, n):
        return None if purpose is Purpose.LABELLED else self.given.first(n)


def moved(pixels, lower=0.0, lost=0):
    def run(batch):
        out = batch["input"].copy()
        out[:, :2] += pixels
        out[:, 4] -= lower
        out[:, 4, :lost] = 0.0
        return [out]

    return run


@pytest.mark.slow
def test_a_detector_without_labels_is_judged_by_fp32s_boxes(own_cache):
    answer = gate(Found(), moved(0))
    assert answer.passed and answer.method == "box_agreement" and answer.fields["box_agreement"].value == 1.0
    assert "against the boxes of fp32 on 120 images" in answer.detail and answer.threshold == 0.80
    assert "accuracy" in answer.fields and not isinstance(answer.fields["accuracy"], Measured)
    assert gate(Found(), moved(0), "fp32").threshold == 0.95
    assert gate(Found(), moved(0), metric="agreement").method == "box_agreement"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "passes"),
    [(moved(3), True), (moved(30), False), (moved(0, lower=0.3), True), (moved(0, lost=1), False)],
    ids=["a little off", "far off", "less sure", "a box in four lost"],
)
def test_which_boxes_agree(own_cache, run, passes):
    answer = gate(Found(), run)
    assert answer.method == "box_agreement" and answer.passed == passes, answer.detail


@pytest.mark.slow
def test_where_boxes_cannot_judge_closeness_does(own_cache):
    none = gate(Found(boxes=False), moved(0))
    assert (
        none.method == "centred_l2"
        and "no box above 0.25 in 120 images" in none.fields["box_agreement"].reason
    )
    few = gate(Found(60), moved(0))
    assert few.method == "centred_l2" and few.fields["box_agreement"].value == 1.0


READER = """
import numpy as np

def read(rows):
    corners = [np.vstack([image[:2] - image[2:4] / 2, image[:2] + image[2:4] / 2]).T for image in rows]
    return [(boxes, image[4], np.zeros(len(boxes))) for boxes, image in zip(corners, rows)]

def short(rows):
    return read(rows)[1:]

def wrong(rows):
    return [(image[0].T, image[4], image[4]) for image in rows]
"""


@pytest.mark.slow
def test_a_users_function_reads_the_boxes(own_cache, monkeypatch):
    (own_cache / "reading.py").write_text(READER)
    monkeypatch.syspath_prepend(str(own_cache))
    rows = Found().given.arrays["input"]
    half = rows[:, 2:4] / 2
    corners = np.concatenate([rows[:, :2] - half, rows[:, :2] + half, np.zeros((120, 1, 4))], 1)
    truth = tuple(corners.transpose(0, 2, 1).astype(np.float32))
    model = Labelled(120, labels=None, boxes=truth)
    model.given = Samples({"input": rows}, model.given.digests, "made up", boxes=truth)
    metric = metric_names.named("map@reading:read")
    assert metric.startswith("map@reading:read#")
    answer = gate(model, plain, metric=metric)
    assert answer.passed and answer.method == "map" and answer.fields["map"].value == 1.0
    for name, why in (("short", "7 entries for 8 images"), ("wrong", "for each image it must return boxes")):
        with pytest.raises(UsageError, match=f"E-MEAS-5.*{why}"):
            gate(model, plain, metric=metric_names.named(f"map@reading:{name}"))
    with pytest.raises(UsageError, match="its inputs have no boxes"):
        measure_of(model, Labelled(120).given, metric)
    with pytest.raises(UsageError, match="E-MEAS-1"):
        metric_names.named("map@nowhere_at_all:read")
