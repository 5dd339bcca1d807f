"""Measures of right answers against values counted by hand, and against the libraries that define them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.records import Absent, Measured
from edgescope.verify.measure import Compared, _number, agreed, compared
from edgescope.verify.measures import (
    CROWD,
    IGNORED,
    JUDGED,
    BoxAgreement,
    MeanAp,
    MeanIou,
    Own,
    TopK,
    _best,
    overlap,
)

ALL = slice(None)


def value(measure, outputs, rows=None):
    tally = measure.tally(outputs, ALL)
    return measure.value(tally, np.arange(len(tally[0])) if rows is None else np.array(rows))


def test_top_k_counts_labels_among_the_best_and_equal_scores_as_argmax_does():
    scores = np.array(
        [[5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5], [1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]], dtype=np.float32
    )
    labels = np.array([0, 0, 0, 1])
    assert value(TopK(labels), (scores,)) == 0.5  # the second class of two equal ones is not the best
    assert value(TopK(labels, 2), (scores,)) == 0.75
    assert value(TopK(labels), (scores,), [0, 0, 0, 1]) == 0.75  # a drawn set holds some twice
    assert [m.name for m in TopK(np.array([7])).others] == ["top5"] and not TopK(labels).others


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_top_k_is_what_sorting_says(seed, k):
    rng = np.random.default_rng(seed)
    scores, labels = rng.standard_normal((30, 12)), rng.integers(0, 12, 30)
    best = np.argsort(-scores, axis=1)[:, :k]
    assert value(TopK(labels, k), (scores,)) == pytest.approx((best == labels[:, None]).any(1).mean())


@pytest.mark.parametrize(
    ("labels", "outputs", "said"),
    [
        (np.array([0, 3]), np.zeros((2, 3)), "labels from 0 to 3 for 3 classes"),
        (np.array([0, -1]), np.zeros((2, 3)), "labels from -1 to 0"),
        (np.array([0, 1]), np.zeros((2, 3, 4)), "not one score a class"),
        (np.array([0, 1]), np.zeros((2, 1)), "not one score a class"),
    ],
)
def test_top_k_refuses_what_are_no_scores_of_its_labels(labels, outputs, said):
    with pytest.raises(ValueError, match=said):
        TopK(labels).tally((outputs,), ALL)


def scores_of(maps, classes):
    return np.eye(classes)[maps].transpose(0, 3, 1, 2)


def test_mean_iou_counted_by_hand():
    label = np.array([[[0, 0, 1], [1, 2, 255]]])
    found = np.array([[[0, 1, 1], [1, 1, 2]]])
    # class 0: 1 of 2; class 1: 2 of 4; class 2: 0 of 1 (its pixel under 255 is not judged)
    wanted = (1 / 2 + 2 / 4 + 0) / 3
    assert value(MeanIou(label), (scores_of(found, 4),)) == pytest.approx(wanted)
    assert value(MeanIou(label), (found,)) == pytest.approx(wanted)  # classes instead of scores
    assert value(MeanIou(label), (scores_of(np.where(label == 255, 3, label), 4),)) == 1.0


def test_mean_iou_is_of_all_pixels_together_and_a_smaller_map_is_sampled():
    label = np.zeros((2, 4, 4), dtype=np.int64)
    label[1, :, 2:] = 1
    half = label[:, ::2, ::2]
    assert value(MeanIou(label), (scores_of(half, 2),)) == 1.0
    wrong = half.copy()
    wrong[1] = 0
    # class 0: 24 of 32 pixels, class 1: none of 8
    assert value(MeanIou(label), (wrong,)) == pytest.approx(24 / 32 / 2)
    assert value(MeanIou(label), (wrong,), [0]) == 1.0
    with pytest.raises(ValueError, match="labels up to 1 for 1 classes"):
        MeanIou(label).tally((np.zeros((2, 1, 4, 4)),), ALL)


def test_mean_iou_leaves_out_what_nobody_judges_and_classes_that_nobody_has():
    label = np.array([[[0, 1, 255, -1, 1, 1]]])
    found = np.array([[[0, 7, 0, 0, -3, 1]]])  # of class 1 a pixel of three; 7 and -3 are no classes
    assert value(MeanIou(label), (found,)) == pytest.approx((1 + 1 / 3) / 2)
    assert math.isnan(MeanIou(label).value((np.zeros((1, 2, 2), int),), np.array([0])))
    one = np.zeros((1, 1, 2), dtype=np.int64)
    assert value(MeanIou(one), (one,)) == 1.0


@pytest.mark.parametrize(
    ("label", "found", "said"),
    [
        ((1, 2, 2), (1, 2), "shape .2,. an input"),
        ((1, 2, 2), (1, 2, 2, 2, 2), "not a class or scores a pixel"),
        ((1,), (1, 2, 2), "not a class or scores a pixel"),
    ],
)
def test_mean_iou_refuses_what_are_no_maps(label, found, said):
    with pytest.raises(ValueError, match=said):
        MeanIou(np.zeros(label, dtype=np.int64)).tally((np.zeros(found),), ALL)


def test_mean_iou_of_labels_that_nobody_judges_is_refused():
    for shape in ((1, 2, 2), (1, 3, 2, 2)):
        with pytest.raises(ValueError, match="labels up to -1"):
            MeanIou(np.full((1, 2, 2), 255)).tally((np.zeros(shape),), ALL)


def made(detected, most=4):
    """Detections of images, each a list of (x1, y1, x2, y2, score, class), as a model's `detections` returns them."""
    boxes, scores = (
        np.zeros((len(detected), most, 4), np.float32),
        np.full((len(detected), most), -1.0, np.float32),
    )
    classes = np.zeros((len(detected), most), np.int64)
    for i, found in enumerate(detected):
        for j, (*box, score, kind) in enumerate(found):
            boxes[i, j], scores[i, j], classes[i, j] = box, score, kind
    return lambda outputs: list(zip(boxes, scores, classes, strict=True))


def true(*images):
    return tuple(np.array(boxes, dtype=np.float32).reshape(-1, 5) for boxes in images)


def test_overlap_counted_by_hand():
    a, b = np.array([[0, 0, 2, 2]]), np.array([[1, 1, 3, 3], [0, 0, 2, 2], [5, 5, 6, 6], [0, 0, 2, 1]])
    assert overlap(a, b)[0] == pytest.approx([1 / 7, 1, 0, 0.5])


def test_average_precision_counted_by_hand():
    truth = true([(0, 0, 10, 10, 0), (20, 0, 30, 10, 0)])
    right, miss = (0, 0, 10, 10), (50, 50, 60, 60)
    assert value(MeanAp(truth, made([[(*right, 0.9, 0), (20, 0, 30, 10, 0.8, 0)]])), ()) == 1.0
    # one of two found and nothing else: precision 1 up to recall 0.5, that is at 51 of 101 recalls
    assert value(MeanAp(truth, made([[(*right, 0.9, 0)]])), ()) == pytest.approx(51 / 101)
    # the miss scores better: precision 1/2 up to recall 0.5
    assert value(MeanAp(truth, made([[(*miss, 0.9, 0), (*right, 0.8, 0)]])), ()) == pytest.approx(
        51 / 101 / 2
    )
    # the same box twice: the second is wrong
    twice = [[(*right, 0.9, 0), (*right, 0.8, 0), (20, 0, 30, 10, 0.7, 0)]]
    assert value(MeanAp(truth, made(twice)), ()) == pytest.approx((51 + 50 * 2 / 3) / 101)
    # overlap 0.8 counts at seven of ten overlaps
    assert value(
        MeanAp(truth[:1], made([[(0, 0, 10, 8, 0.9, 0), (20, 0, 30, 8, 0.8, 0)]])), ()
    ) == pytest.approx(0.7)
    # a box of another class is none
    assert value(MeanAp(truth, made([[(*right, 0.9, 1)]])), ()) == 0.0
    assert np.isnan(value(MeanAp(true([]), made([[(*right, 0.9, 0)]])), ()))


def test_average_precision_of_drawn_images_is_that_of_these_images():
    truth = true([(0, 0, 10, 10, 0)], [(0, 0, 10, 10, 0), (0, 0, 5, 5, 1)])
    found = made([[(0, 0, 10, 10, 0.9, 0)], [(50, 0, 60, 10, 0.95, 0)]])
    measure = MeanAp(truth, found)
    assert value(measure, (), [0]) == 1.0
    assert value(measure, (), [1]) == 0.0
    assert value(measure, (), [0, 0]) == 1.0
    (half,) = measure.others
    assert half.name == "map50" and value(half, ()) == value(measure, ())


def coco(truth, found, images):
    """What pycocotools says of the same boxes."""
    COCO = pytest.importorskip("pycocotools.coco").COCO
    from pycocotools.cocoeval import COCOeval

    def rows(box, **more):
        x1, y1, x2, y2 = (float(v) for v in box)
        return {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0, **more}

    notes, answers = [], []
    for i in range(images):
        notes += [
            rows(b[:4], id=len(notes) + 1 + j, image_id=i + 1, category_id=int(b[4]) + 1)
            for j, b in enumerate(truth[i])
        ]
        boxes, scores, classes = found(())[i]
        for b, s, c in zip(boxes, scores, classes, strict=True):
            answers += [rows(b, image_id=i + 1, category_id=int(c) + 1, score=float(s))] if s >= 0 else []
    known = COCO()
    kinds = [{"id": c + 1} for c in range(3)]
    known.dataset = {
        "info": {},
        "images": [{"id": i + 1} for i in range(images)],
        "annotations": notes,
        "categories": kinds,
    }
    known.createIndex()
    judged = COCOeval(known, known.loadRes(answers), "bbox")
    judged.evaluate()
    judged.accumulate()
    judged.summarize()
    return judged.stats[:2]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_mean_ap_is_pycocotools(seed):
    """Boxes near true ones, missed ones, equal scores and wrong classes."""
    rng, images = np.random.default_rng(seed), 6
    corners = [rng.integers(0, 60, (rng.integers(1, 6), 2)) for _ in range(images)]
    truth = true(
        *(np.hstack([c, c + rng.integers(5, 30, c.shape), rng.integers(0, 3, (len(c), 1))]) for c in corners)
    )
    near = [
        [
            (
                *(b[:4] + rng.integers(-3, 4, 4) * [1, 1, 0, 0]),
                round(rng.random(), 1),
                rng.choice([b[4], rng.integers(3)]),
            )
            for b in image
            if rng.random() < 0.9
        ]
        + [
            (*c, *(c + rng.integers(5, 30, 2)), round(rng.random(), 1), rng.integers(3))
            for c in rng.integers(0, 60, (2, 2))
        ]
        for image in truth
    ]
    found = made(near, most=12)
    measure = MeanAp(truth, found)
    assert [value(measure, ()), value(measure.others[0], ())] == pytest.approx(
        coco(truth, found, images), abs=1e-6
    )


def test_only_the_best_hundred_boxes_of_a_class_count():
    truth = true([(0, 0, 10, 10, 0)])
    crowd = [(50 + i, 50, 60 + i, 60, 0.9, 0) for i in range(100)]
    assert value(MeanAp(truth, made([[*crowd, (0, 0, 10, 10, 0.1, 0)]], most=120)), ()) == 0.0
    assert value(MeanAp(truth, made([[*crowd[1:], (0, 0, 10, 10, 0.1, 0)]], most=120)), ()) == pytest.approx(
        0.01
    )


def regions(*rows):
    """Regions of one image: x1, y1, x2, y2, class, what it is."""
    return (np.array(rows, dtype=np.float32),)


BOX, RIGHT_BOX = (0, 0, 10, 10, 0, JUDGED), (0, 0, 10, 10, 0.5, 0)


@pytest.mark.parametrize(
    ("region", "boxes", "spared"),
    [
        # a crowd takes any number of boxes, by the share of each that lies in it
        ((20, 0, 40, 10, 0, CROWD), [(20, 0, 25, 10, 0.9, 0), (30, 0, 35, 10, 0.8, 0)], 10),
        ((20, 0, 40, 10, 0, CROWD), [(15, 0, 25, 10, 0.9, 0)], 1),  # half of it: at overlap 0.5
        ((20, 0, 40, 10, 0, CROWD), [(14, 0, 25, 10, 0.9, 0)], 0),
        ((20, 0, 40, 10, 1, CROWD), [(20, 0, 25, 10, 0.9, 0)], 0),  # of another class
        # another region takes one box, by overlap
        ((20, 0, 40, 10, 0, IGNORED), [(20, 0, 40, 10, 0.9, 0)], 10),
        ((20, 0, 40, 10, 0, IGNORED), [(20, 0, 25, 10, 0.9, 0)], 0),
        ((20, 0, 40, 10, 0, IGNORED), [(20, 0, 40, 10, 0.9, 0), (20, 0, 40, 10, 0.8, 0)], 0),
        ((20, 0, 40, 10, 0, JUDGED), [(20, 0, 40, 10, 0.9, 0)], 10),
    ],
)
def test_a_box_in_a_region_that_nobody_judges_is_neither_right_nor_a_false_alarm(region, boxes, spared):
    """A false alarm that scores better than the one right box halves its precision at each overlap but `spared`."""
    found = value(MeanAp(regions(BOX, region), made([[*boxes, RIGHT_BOX]])), ())
    assert found == pytest.approx((spared + 0.5 * (10 - spared)) / 10)


def test_what_is_a_true_boxs_and_in_a_crowd_is_right_and_a_second_one_is_the_crowds():
    crowd = (0, 0, 50, 50, 0, CROWD)
    assert value(MeanAp(regions(BOX, crowd), made([[RIGHT_BOX]])), ()) == 1.0
    assert value(MeanAp(regions(crowd, BOX), made([[(*RIGHT_BOX[:4], 0.9, 0), RIGHT_BOX]])), ()) == 1.0
    measure = MeanAp(
        regions(BOX, crowd), made([[(*RIGHT_BOX[:4], 0.9, 0), RIGHT_BOX, (80, 80, 90, 90, 0.4, 0)]])
    )
    kept, counts = measure.tally((), ALL)
    assert kept[0, :3, 2].tolist() == [1.0, -1.0, 0.0] and np.isnan(kept[0, 3:, 0]).all()
    assert counts.tolist() == [[1]] and kept.shape == (1, 300, 12)
    only = MeanAp(regions(crowd), made([[RIGHT_BOX]]))
    assert math.isnan(value(only, ())) and only.classes == 1


def test_an_image_without_boxes_counts_its_false_alarms_and_one_class_at_a_time():
    truth = (*true([(0, 0, 10, 10, 0), (20, 0, 30, 10, 2)]), np.zeros((0, 5), np.float32))
    right = [RIGHT_BOX, (20, 0, 30, 10, 0.5, 2)]
    measure = MeanAp(truth, made([right, [(0, 0, 9, 9, 0.9, 0)]]))
    assert measure.classes == 3 and (measure.name, measure.title) == ("map", "mAP")
    assert value(measure, ()) == pytest.approx((0.5 + 1.0) / 2)  # the second class has no true box
    assert value(measure, (), [0]) == 1.0 and math.isnan(value(measure, (), [1]))
    (half,) = measure.others
    assert (half.name, half.title, half.others) == ("map50", "mAP at overlap 0.5", ())
    assert MeanAp((np.zeros((0, 5)),), made([[]])).classes == 0


def test_of_a_class_100_boxes_count_of_all_300_and_none_that_scores_below_0():
    scores = np.concatenate([np.linspace(0.9, 0.5, 150), np.full(150, 0.4), np.full(150, 0.3), [-1.0, 0.0]])
    classes = np.concatenate([np.repeat([0, 1, 2], 150), [3, 3]])
    best = _best(scores, classes)
    assert best.tolist() == [*range(100), *range(150, 250), *range(300, 400)]
    assert _best(np.array([0.1, -0.1, 0.0, 0.1]), np.zeros(4)).tolist() == [0, 3, 2]


def test_chance_is_what_always_naming_the_commonest_classes_reaches():
    labels = np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6])
    assert TopK(labels).chance == 0.3 and TopK(labels, 5).chance == 0.8
    assert TopK(np.arange(200)).chance == 0.01 and TopK(np.arange(100).repeat(2)).chance == 0.01
    assert TopK(np.arange(6)).others and not TopK(np.arange(5)).others and not TopK(np.arange(9), 5).others


@pytest.mark.parametrize(
    ("theirs", "chance", "telling"),
    [
        (Measured(0.5, "1", 0.3, 0.7, 9), 0.29, True),
        (Measured(0.5, "1", 0.3, 0.7, 9), 0.3, False),
        (Measured(0.5, "1", n=9), 0.49, True),
        (Measured(0.5, "1", n=9), 0.5, False),
    ],
)
def test_labels_tell_where_fp32_is_surely_better_than_chance(theirs, chance, telling):
    own = Own(lambda y, t: 0.0, None, "m:f")
    own.chance = chance
    assert Compared(own, theirs, theirs, Measured(0.0, "1")).telling is telling


@pytest.mark.parametrize(
    ("value", "share", "shown"),
    [
        (0.9125, True, "91.2"),
        (-0.0004, True, "0.0"),
        (-0.0006, True, "-0.1"),
        (12.3456, False, "12.35"),
        (-0.5, False, "-0.5"),
    ],
)
def test_a_share_is_printed_in_per_cent_and_nothing_as_less_than_nothing(value, share, shown):
    assert _number(value, share) == shown


def test_what_is_told_of_a_variant_and_of_fp32():
    share = Compared(
        TopK(np.array([0])), *(Measured(x, "1", n=9) for x in (0.5, 0.625)), Measured(-0.125, "1", -0.5, 0.25)
    )
    assert share.sentence(-0.009) == (
        "top-1 50.0 % (fp32 62.5 %; difference -12.5 points, 95 % CI -50.0 to 25.0; floor -0.9)"
    )
    assert share.fields() == {"top1": share.ours, "reference_top1": share.theirs}
    own = Own(lambda y, t: 0.0, None, "mine:loss#12")
    score = Compared(own, *(Measured(x, "score") for x in (3.0, 2.5)), Measured(0.5, "score"))
    assert score.sentence(-0.25) == "loss 3 (fp32 2.5; difference 0.5, no interval; floor -0.25)"
    assert score.fields() == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "unit"),
    [(0.0, 1.0, "1"), (1.0, 0.5, "1"), (-0.25, 0.5, "score"), (0.5, 1.25, "score"), (1.25, 0.5, "score")],
)
def test_values_from_0_to_1_are_taken_for_a_share(ours, theirs, unit):
    own = Own(lambda y, t: y.mean(), None, "m:f")
    tallies = [(np.full(50, x),) for x in (ours, theirs)]
    found = compared(own, *tallies, None, drawn=False)
    assert (found.ours, found.theirs) == (Measured(ours, unit, n=50), Measured(theirs, unit, n=50))
    assert found.difference.value == pytest.approx(ours - theirs) and found.difference.lo is None
    drawn = compared(own, *tallies, None)
    assert (drawn.difference.unit, drawn.difference.lo) == (unit, pytest.approx(ours - theirs))


def test_boxes_agree_as_the_average_precision_against_those_of_fp32_above_its_score():
    found = [
        (np.array([[0, 0, 9, 9], [50, 50, 60, 60]]), np.array([0.9, s]), np.zeros(2)) for s in (0.5, 0.51)
    ]
    of = BoxAgreement(lambda outputs: found, 0.5)
    tally = of.tally((), ALL)
    assert tally[0].shape == (2, 300, 6) and np.isnan(tally[0][:, 2:]).all()
    assert of.value(tally, np.arange(2)) == 1.5 and of.value(tally, np.array([], int)) == 0.0
    truth = of.against(tally)
    assert [len(boxes) for boxes in truth.boxes] == [1, 2] and truth.name == "map50"
    assert truth.boxes[1].tolist() == [[0, 0, 9, 9, 0], [50, 50, 60, 60, 0]]
    assert value(truth, tally) == 1.0 == agreed(of, tally, tally, None).value
    few = BoxAgreement(lambda outputs: found, 0.95)
    assert agreed(few, tally, tally, None) == Absent("fp32 finds no box above 0.95 in 2 images")


def test_a_function_of_the_users_gets_arrays_and_labels_of_the_same_inputs():
    outputs, labels = np.arange(12.0).reshape(6, 2), np.arange(6)
    assert value(Own(lambda y, t: y[:, 0] == 2 * t, labels, "m:f#0"), (outputs,), [1, 1, 5]) == 1.0
    assert value(Own(lambda y, t: float(len(y[1])), None, "m:f"), (outputs, outputs)) == 6.0
    boxes = true([(0, 0, 1, 1, 0)], [], [(0, 0, 1, 1, 0)])
    assert value(Own(lambda y, t: sum(map(len, t)), boxes, "m:f"), (outputs[:3],), [0, 0, 1]) == 2.0
    for bad in ("text", None, np.zeros(5), {"a": 1}):
        with pytest.raises(TypeError, match="not a number"):
            value(Own(lambda y, t, bad=bad: bad, labels, "m:f"), (outputs,))
