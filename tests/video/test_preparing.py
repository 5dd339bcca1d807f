"""From frames to inputs: the ways agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.models.image.preprocess import Preprocess
from edgescope.video.frame import Frame, Item
from edgescope.video.preparing import Arrays, OneByOne, OnHost, fit_of

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
    from edgescope.video.device import OnDevice

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
