"""Decoders: four ways of reading the same outputs give the same boxes, and known boxes come back."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.models import boxes as decoders
from edgescope.models import zoo
from edgescope.models.base import Decodes, Fit
from edgescope.models.boxes import CentreDecoder, PointDecoder, SsdDecoder, default_boxes, encoded, on_host

FITS = [Fit(0.5, 0.75, 10.0, -4.0), Fit(), Fit(2.0, 2.0)]


def ssd_outputs(n=3, seed=0, lead=6.0):
    """Logits of which some tens of boxes exceed the score, in groups that overlap."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, 81, 8732)).astype(np.float32)
    logits[:, 0] += lead
    for image in range(n):
        for box in rng.integers(0, 8732 - 3, 15):
            logits[image, rng.integers(1, 4), box : box + 3] += 9 + 2 * rng.random(3)
    return [rng.standard_normal((n, 4, 8732)).astype(np.float32), logits]


def centre_outputs(n=3, seed=0, height=480, width=640):
    """Three faces an image, each a peak of some cells."""
    rng = np.random.default_rng(seed)
    h, w = height // 4, width // 4
    heat = 0.2 * rng.random((n, 1, h, w), dtype=np.float32)
    for image in range(n):
        for y, x in zip(rng.integers(0, h - 3, 3), rng.integers(0, w - 3, 3), strict=True):
            heat[image, 0, y : y + 3, x : x + 3] = 0.3 + 0.7 * rng.random((3, 3))
    sizes = (2 + 0.1 * rng.standard_normal((n, 2, h, w))).astype(np.float32)
    offsets = rng.random((n, 2, h, w), dtype=np.float32)
    return [heat, sizes, offsets, np.zeros((n, 10, h, w), np.float32)]


def point_outputs(n=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [640 * rng.random((n, 4, 400)), 0.2 * rng.random((n, 80, 400))], 1, dtype=np.float32
    )
    rows[:, 4:10, :40] += 0.5 * rng.random((n, 6, 40), dtype=np.float32)
    return [rows]


FAMILIES = {
    "ssd": (SsdDecoder(), ssd_outputs),
    "centre": (CentreDecoder(), centre_outputs),
    "points": (PointDecoder(), point_outputs),
}


def assert_same(ours, theirs):
    assert [len(a) for a in ours] == [len(b) for b in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert a.classes.tolist() == b.classes.tolist()
        np.testing.assert_allclose(a.boxes, b.boxes, atol=1e-3)
        np.testing.assert_allclose(a.scores, b.scores, atol=1e-6)


def four_ways(decoder, outputs, fits):
    """Return the detections by elements of tensors, by elements of arrays, and vectorised with numpy and torch."""
    import torch

    tensors = [torch.from_numpy(output) for output in outputs]
    return (
        decoder.elements(tensors, fits),
        decoder.elements(on_host(tensors), fits),
        decoder.host(outputs, fits),
        decoder.device(tensors, fits),
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_four_ways_find_the_same_boxes(family):
    decoder, make = FAMILIES[family]
    first, *others = four_ways(decoder, make(), FITS)
    assert all(len(found) >= 3 for found in first)
    assert all((np.diff(found.scores) <= 0).all() for found in first)
    for other in others:
        assert_same(first, other)


@pytest.mark.parametrize("family", FAMILIES)
def test_suppression_drops_some_of_these_boxes(family):
    """Otherwise the test above would not see a difference in it."""
    decoder, make = FAMILIES[family]
    rows = decoder.candidates(make(), np)
    assert len(rows.scores) > sum(map(len, decoder.host(make(), FITS)))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_16_bits_and_their_float32_values_give_the_same_boxes(family):
    import torch

    decoder, make = FAMILIES[family]
    half = [torch.from_numpy(output).half() for output in make()]
    same = [tensor.float().numpy() for tensor in half]
    wanted = decoder.host(same, FITS)
    for found in (decoder.host(half, FITS), decoder.device(half, FITS), decoder.elements(half, FITS)):
        assert_same(found, wanted)
    bfloat = [torch.from_numpy(output).bfloat16() for output in make()]
    assert_same(decoder.host(bfloat, FITS), decoder.device(bfloat, FITS))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_beyond_the_frames_do_not_count(family):
    decoder, make = FAMILIES[family]
    for found in four_ways(decoder, make(), FITS[:2]):
        assert_same(found, decoder.host([output[:2] for output in make()], FITS[:2]))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_found_is_nothing(family):
    decoder, make = FAMILIES[family]
    for found in four_ways(decoder.at(0.9999999), [0 * output for output in make(2)], FITS[:2]):
        assert [len(one) for one in found] == [0, 0] and found[0].boxes.shape == (0, 4)


@pytest.mark.slow
def test_one_box_may_be_of_two_classes():
    moves, logits = np.zeros((1, 4, 8732), np.float32), np.zeros((1, 81, 8732), np.float32)
    logits[0, 0] = 30
    logits[0, [0, 5, 9], 77] = 0, 40, 40.1
    for found in four_ways(SsdDecoder(), [moves, logits], [Fit()]):
        assert found[0].classes.tolist() == [8, 4]  # the class after the background is 0


@pytest.mark.slow
def test_a_sure_answer_is_found_though_its_softmax_rounds_to_one():
    moves, logits = np.zeros((1, 4, 8732), np.float32), np.zeros((1, 81, 8732), np.float32)
    logits[0, 0] = 50
    for box, value in ((100, 120.0), (4000, 119.0), (8000, 118.0)):
        logits[0, 0, box], logits[0, 7, box] = 0, value
    first, *others = four_ways(SsdDecoder(), [moves, logits], [Fit()])
    assert len(first[0]) == 3
    for other in others:
        assert_same(first, other)


# -- the way to the frame --------------------------------------------------------------------------------------


def test_a_box_goes_back_the_way_the_frame_came():
    """The frame was scaled by 0.5 and 0.75, and moved by 10 and -4."""
    heat = np.zeros((1, 1, 120, 160), np.float32)
    heat[0, 0, 30, 50] = 0.9
    sizes = np.full((1, 2, 120, 160), np.log(10), np.float32)
    outputs = [heat, sizes, np.zeros_like(sizes)]
    (plain,) = CentreDecoder().host(outputs, [Fit()])
    assert plain.boxes[0] == pytest.approx([182, 102, 222, 142])
    (fitted,) = CentreDecoder().host(outputs, FITS[:1])
    assert fitted.boxes[0] == pytest.approx([172 / 0.5, 106 / 0.75, 212 / 0.5, 146 / 0.75])


def test_a_box_is_cut_at_the_input():
    heat = np.zeros((1, 1, 120, 160), np.float32)
    heat[0, 0, 0, 159] = 0.9
    sizes = np.full((1, 2, 120, 160), np.log(10), np.float32)
    (found,) = CentreDecoder().host([heat, sizes, np.zeros_like(sizes)], [Fit()])
    assert found.boxes[0] == pytest.approx([618, 0, 640, 22])


# -- SSD's default boxes ---------------------------------------------------------------------------------------


def test_default_boxes_counted_by_hand():
    boxes = default_boxes() * 300
    assert boxes.shape == (8732, 4) and decoders.BOXES_PER_CELL == (4, 6, 6, 6, 4, 4)
    assert boxes[0] == pytest.approx([4, 4, 21, 21])
    assert boxes[1] == pytest.approx([12, 4, 21, 21])  # the next column
    assert boxes[38] == pytest.approx([4, 12, 21, 21])  # the next row
    assert boxes[1444] == pytest.approx([4, 4, np.sqrt(21 * 45), np.sqrt(21 * 45)])  # the next shape
    assert boxes[2888] == pytest.approx([4, 4, 21 * np.sqrt(2), 21 / np.sqrt(2)])
    assert boxes[4332] == pytest.approx([4, 4, 21 / np.sqrt(2), 21 * np.sqrt(2)])
    assert boxes[5776] == pytest.approx([8, 8, 45, 45])  # the next map
    assert boxes[-1] == pytest.approx([150, 150, 261 / np.sqrt(2), 300])  # 369 pixels, cut at the image's 300


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_known_boxes_come_back_from_their_moves(seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 250, (8732, 2))
    boxes = np.hstack([low, low + rng.uniform(2, 50, (8732, 2))])
    some = np.sort(rng.choice(8732, 20, replace=False))
    logits = np.zeros((1, 81, 8732), np.float32)
    logits[0, 0] = 30
    logits[0, 0, some], logits[0, 1 + np.arange(20), some] = 0, 30
    moves = encoded(boxes).T[None].astype(np.float32)
    (found,) = SsdDecoder().host([moves, logits], [Fit()])
    by_class = found.boxes[np.argsort(found.classes)]
    np.testing.assert_allclose(by_class, boxes[some], atol=1e-3)


# -- the models that decode, and how long it takes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ssd300", SsdDecoder), ("yolov8n_class", PointDecoder), ("centerface", CentreDecoder)],
)
def test_detectors_of_the_zoo_say_how_they_are_read(name, kind):
    model = zoo.get(name)
    assert isinstance(model, Decodes) and isinstance(model.decoder, kind)
    assert not isinstance(zoo.get("resnet50"), Decodes)


def fastest_ms(call):
    def once():
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)

    return min(once() for _ in range(15))


@pytest.mark.gpu("torch_eager")
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_gpu_finds_the_same_boxes_in_four_ways(family, half):
    import torch

    decoder, make = FAMILIES[family]
    tensors = [torch.from_numpy(output).cuda() for output in make(2)]
    if half:
        tensors = [tensor.half() for tensor in tensors]
    wanted = decoder.host(tensors, FITS[:2])
    assert min(map(len, wanted)) >= 3
    for found in (
        decoder.elements(tensors, FITS[:2]),
        decoder.elements(on_host(tensors), FITS[:2]),
        decoder.device(tensors, FITS[:2]),
    ):
        assert_same(found, wanted)


@pytest.mark.alone
def test_decoding_with_numpy_is_fast():
    outputs = ssd_outputs(1)
    assert 30 < len(SsdDecoder().candidates(outputs, np).scores) < 80
    assert fastest_ms(lambda: SsdDecoder().host(outputs, [Fit()])) < 3.0
    outputs = centre_outputs(1)
    assert fastest_ms(lambda: CentreDecoder().host(outputs, [Fit()])) < 1.0
