"""From frames to inputs: the ways agree."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgescope.frames import Frame, Item
from edgescope.models.base import Fit
from edgescope.models.image.preprocess import Preprocess
from edgescope.registry import need, place
from edgescope.wings.video import stages
from edgescope.wings.video.stages import Arrays, OneByOne, OnHost, fit_of

WAYS = [
    Preprocess(32),
    Preprocess((24, 40), resize="stretch", interpolation="bilinear"),
    Preprocess((32, 48), resize="letterbox"),
    Preprocess(32, mean=(103.9, 116.8, 123.7), std=(1.0, 1.0, 1.0), order="bgr", divide=1.0),
    Preprocess(28, mean=(0.1307,), std=(0.3081,)),
]


def item(sizes, seed=0):
    rng = np.random.default_rng(seed)
    images = [rng.integers(0, 256, (high, wide, 3), dtype=np.uint8) for wide, high in sizes]
    return Item(0, [Frame(image, k) for k, image in enumerate(images)])


@pytest.mark.parametrize("preprocess", WAYS)
@settings(max_examples=10, deadline=None)
@given(wide=st.integers(20, 90), high=st.integers(20, 90), batch=st.integers(2, 3))
def test_all_frames_at_once_give_what_one_after_another_gives(preprocess, wide, high, batch):
    one, all_at_once = item([(wide, high)] * 2), item([(wide, high)] * 2)
    OneByOne([preprocess], batch)(one)
    OnHost([preprocess], batch)(all_at_once)
    assert all_at_once.inputs[0].shape == one.inputs[0].shape == (batch, *one.inputs[0].shape[1:])
    assert np.abs(all_at_once.inputs[0] - one.inputs[0]).max() <= 1e-4 * max(1.0, np.abs(one.inputs[0]).max())
    assert all_at_once.fits == one.fits
    assert (one.inputs[0][-1] == one.inputs[0][1]).all()


def test_a_frame_that_its_source_has_scaled_is_only_cut():
    """The picture has the size after resizing already; what it was decoded in says where it lies."""
    preprocess = Preprocess((24, 40), resize="stretch")
    scaled = item([(40, 24)])
    scaled.frames[0].sides = (400, 120)
    OnHost([preprocess], 1)(scaled)
    pixels = scaled.frames[0].image.transpose(2, 0, 1) / 255
    assert np.allclose(scaled.inputs[0][0], (pixels - 0.5) / 0.5, atol=1e-5)
    assert scaled.fits == [fit_of(preprocess, scaled.frames[0])] and scaled.fits[0].scale_x == 0.1


@pytest.mark.parametrize("preprocess", WAYS[:3])
def test_a_fit_brings_a_point_of_the_frame_to_its_place_in_the_input(preprocess):
    """A bright square in a dark frame is found again where the fit says."""
    image = np.zeros((60, 100, 3), dtype=np.uint8)
    image[20:40, 40:70] = 255
    frame = Frame(image, 0)
    given = Item(0, [frame])
    OnHost([preprocess], 1)(given)
    (fit,) = given.fits
    y, x = np.nonzero(given.inputs[0][0, 1] > 0.5)
    assert x.mean() + 0.5 == pytest.approx(55 * fit.scale_x + fit.offset_x, abs=1.5)
    assert y.mean() + 0.5 == pytest.approx(30 * fit.scale_y + fit.offset_y, abs=1.5)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("preprocess", WAYS)
@settings(max_examples=10, deadline=None)
@given(wide=st.integers(20, 90), high=st.integers(20, 90))
def test_the_device_prepares_as_pillow_does(preprocess, device, wide, high):
    from edgescope.wings.video.device import OnDevice

    one, there = item([(wide, high)] * 2), item([(wide, high)] * 2)
    OneByOne([preprocess], 3)(one)
    OnDevice([preprocess], 3, device)(there)
    got, step = there.inputs[0].cpu().numpy(), 1 / (preprocess.divide * min(preprocess.std))
    assert got.shape == one.inputs[0].shape and there.fits == one.fits
    away = np.abs(got - one.inputs[0])
    assert np.percentile(away, 95) <= 2.05 * step, "no more than the last digit of a pixel, rounded twice"
    assert away.mean() <= 0.6 * step


def test_an_array_is_used_again_only_once_nobody_holds_it():
    arrays = Arrays((2, 3))
    first, second = arrays.free(), arrays.free()
    assert first is not second
    del second
    assert arrays.free() is not first and len(arrays.made) == 2


def test_units_under_way_keep_inputs_of_their_own():
    prepare, units = OnHost([WAYS[0]], 1), [item([(40, 40)], seed) for seed in range(3)]
    for unit in units:
        prepare(unit)
    assert len({unit.inputs[0].ctypes.data for unit in units}) == 3
    assert not np.array_equal(units[0].inputs[0], units[1].inputs[0])


def test_grey_is_pillows_to_the_last_digit():
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (64, 65, 3)).astype(np.uint8)
    pixels[0, :3] = [[0, 0, 0], [255, 255, 255], [1, 254, 128]]
    assert (stages._grey(pixels)[..., 0] == np.asarray(Image.fromarray(pixels).convert("L"))).all()


@pytest.mark.parametrize(
    ("sides", "size", "middle"),
    [
        ((4, 8), (8, 4), (slice(0, 4), slice(0, 8))),  # it fills the input: no border
        ((8, 8), (8, 4), (slice(2, 6), slice(0, 8))),
        ((8, 8), (4, 8), (slice(0, 8), slice(2, 6))),
    ],
)
def test_a_letterboxs_border_is_grey_of_114_and_only_where_the_picture_is_not(sides, size, middle):
    preprocess = Preprocess(sides, resize="letterbox")
    given = Item(0, [Frame(np.full((size[1], size[0], 3), 200, np.uint8), 0)])
    OnHost([preprocess], 1)(given)
    seen = (given.inputs[0][0] * 0.5 + 0.5) * 255
    wanted = np.full((3, *sides), 114.0)
    wanted[:, middle[0], middle[1]] = 200
    assert np.allclose(seen, wanted, atol=1e-3)


def test_a_network_that_takes_bytes_gets_bytes():
    plain = Preprocess((4, 6), resize="stretch", mean=(0.0,) * 3, std=(1.0,) * 3, divide=1.0)
    given = item([(6, 4)])
    OnHost([plain], 2)(given)
    assert (
        given.inputs[0] == given.frames[0].image.transpose(2, 0, 1)
    ).all()  # and the second row repeats it
    scaled = Preprocess((4, 6), resize="stretch", mean=(1.0, 2.0, 4.0), std=(2.0, 4.0, 0.5), divide=4.0)
    scale, shift = stages.coefficients(scaled)
    assert scale.tolist() == [0.125, 0.0625, 0.5] and shift.tolist() == [-0.5, -0.5, -8.0]


def test_a_function_of_ones_own_does_not_say_how_it_fits_a_frame():
    own = lambda picture: np.zeros((3, 4, 4), np.float32) + np.asarray(picture).mean()  # noqa: E731
    given = item([(8, 4), (8, 4)])
    OneByOne([own, WAYS[0]], 3)(given)
    assert given.fits == [Fit()] * 2 and [made.shape for made in given.inputs] == [
        (3, 3, 4, 4),
        (3, 3, 32, 32),
    ]
    assert stages.vectorisable([own, WAYS[0], own, WAYS[1]]) == [WAYS[0], WAYS[1]]


def test_a_fit_is_each_sides_scale_and_what_lies_before_it():
    fit = fit_of(Preprocess((20, 40), resize="letterbox"), Frame(np.zeros((10, 10, 3), np.uint8), 0))
    assert (fit.scale_x, fit.scale_y, fit.offset_x, fit.offset_y) == (2.0, 2.0, 10.0, 0.0)
    fit = fit_of(Preprocess((20, 40), resize="stretch"), Frame(np.zeros((5, 10, 3), np.uint8), 0))
    assert (fit.scale_x, fit.scale_y, fit.offset_x, fit.offset_y) == (4.0, 4.0, 0.0, 0.0)


# -- on a device, with another of torch's devices or none --------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "axes"),
    [
        ((40, 90), [2, 3]),
        ((90, 40), [3, 2]),
        ((60, 60), [3, 2]),
        ((20, 25), [3, 2]),
        ((30, 60), [2]),
        ((60, 30), [3]),
    ],
)
def test_the_side_that_shrinks_more_is_resized_first(size, axes):
    """As Pillow does, which rounds in between; a side that keeps its size is not touched."""
    from edgescope.wings.video.device import OnDevice

    there = OnDevice([Preprocess((30, 30), resize="stretch")], 1, "cpu")
    there(item([size]))
    assert [side.axis for _, side in there.made] == axes


def test_what_is_decoded_there_is_taken_as_it_is_and_the_rest_is_staged_once():
    torch = pytest.importorskip("torch")
    from edgescope.wings.video.device import OnDevice

    step = Preprocess((12, 12), resize="letterbox", order="bgr")
    host, there = item([(16, 10)] * 2), item([(16, 10)] * 2)
    for frame in there.frames:
        frame.image = torch.as_tensor(frame.image)
    stage = OnDevice([step, WAYS[4]], 3, "cpu")
    stage(there)
    assert not stage.staging
    stage(host)
    stage(item([(16, 10)] * 2))
    assert list(stage.staging) == [(3, 10, 16, 3)] and len(stage.staging[3, 10, 16, 3].made) == 1
    one = item([(16, 10)] * 2)
    OneByOne([step, WAYS[4]], 3)(one)
    for a, b, wanted in zip(host.inputs, there.inputs, one.inputs, strict=True):
        assert torch.equal(a, b) and a.is_contiguous() and a.shape == wanted.shape
        assert np.abs(a.numpy() - wanted).mean() < 2 / 255
    border = (host.inputs[0][0, :, 0, 0] * 0.5 + 0.5) * 255
    assert border.tolist() == pytest.approx([114.0] * 3)


class Cuda:
    """torch.cuda as far as the stages use it: notes what is asked of it."""

    def __init__(self, monkeypatch, torch, capability=(7, 0)):
        self.told, cuda = [], self

        class Stream:
            def __init__(self, priority=0):
                cuda.told.append(("made", priority))

            def synchronize(self):
                cuda.told.append("waited")

        class Event:
            def __init__(self, enable_timing=False):
                assert enable_timing

            def record(self):
                cuda.told.append("event")

            def synchronize(self):
                cuda.told.append("end")

            def elapsed_time(self, end):
                return 0.25

        @contextmanager
        def stream(one):
            cuda.told.append("on")
            yield
            cuda.told.append("off")

        for name, made in {"Stream": Stream, "Event": Event, "stream": stream}.items():
            monkeypatch.setattr(torch.cuda, name, made)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: cuda.told.append("all"))


def test_a_stage_has_a_stream_for_each_thread_and_is_timed_by_events(monkeypatch):
    torch = pytest.importorskip("torch")
    from edgescope.wings.video import device

    cuda = Cuda(monkeypatch, torch)
    stage = device.OnStream(lambda item: cuda.told.append(item))
    stage("one")
    stage("two")
    assert cuda.told == [("made", -1), "on", "one", "waited", "off", "on", "two", "waited", "off"]
    cuda.told.clear()
    assert stage.device_ns("again") == 250_000
    assert cuda.told == ["on", "event", "again", "event", "end", "off"]
    other = threading.Thread(target=stage, args=("three",))
    other.start()
    other.join()
    need(place("cuda").synchronize, "torch", "")()
    assert cuda.told[6:8] == [("made", -1), "on"] and cuda.told[-1] == "all"


@pytest.mark.parametrize(("capability", "fast"), [((6, 2), False), ((7, 0), True), ((8, 6), True)])
def test_half_precision_is_for_tensor_cores(monkeypatch, capability, fast):
    torch = pytest.importorskip("torch")
    from edgescope.wings.video import device

    Cuda(monkeypatch, torch, capability)
    assert device.OnDevice([], 1).dtype == (torch.float16 if fast else torch.float32)
    assert device.OnDevice([], 1, "cpu").dtype == torch.float32
    made, empty = [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory, **k: made.append(pin_memory) or empty(*a, **k))
    pinned = device._pinned((2, 3))
    assert (pinned.shape, pinned.dtype, made) == ((2, 3), np.uint8, [True])
    assert device._plain((2, 3)).dtype == np.uint8
