"""A sample's arrays as the network takes them: integers that stand for numbers."""

import numpy as np
import pytest
from PIL import Image

from edgescope.data.samples import as_picture, fitted, picture, picture_input
from edgescope.errors import UsageError
from edgescope.models.base import TensorSpec
from edgescope.models.image.preprocess import Preprocess


def given(dtype, step, mean):
    """Grey pixels 1, 2, 3 and 9 as a network's input of this type takes them."""
    grey = Image.fromarray(np.array([[1, 2, 3, 9]], dtype=np.uint8))
    how = Preprocess((1, 4), 1.0, (mean,), (1.0,), "stretch", "nearest", divide=1.0)
    (found,) = fitted(grey, "a.png", [TensorSpec("x", (1, 1, 4), dtype, step)], how).values()
    assert found.dtype == dtype
    return found.ravel().tolist()


@pytest.mark.parametrize(
    ("dtype", "step", "mean", "wanted"),
    [
        ("int8", (2.0, -3), 0.0, [-2, -2, -1, 2]),  # halves away from zero: 0.5 is 1, 1.5 is 2, 4.5 is 5
        ("int8", (2.0, -3), 4.0, [-5, -4, -4, 0]),  # -1.5 is -2, -0.5 is -1, 2.5 is 3
        ("int8", (0.04, 0), 0.0, [25, 50, 75, 127]),
        ("uint8", (0.5, 7), 0.0, [1, 2, 3, 9]),  # pixels as they are
        ("uint8", (0.5, 7), 1.0, [7, 9, 11, 23]),
        ("int8", None, 0.5, [0, 2, 2, 8]),  # numbers themselves: halves to the even one
    ],
)
def test_integers_count_in_the_steps_of_the_input(dtype, step, mean, wanted):
    assert given(dtype, step, mean) == wanted


ONE = TensorSpec("x", (2, 3), "float32")
TWO = (ONE, TensorSpec("ids", (2,), "int64"))
COLOUR = TensorSpec("x", (3, 2, 4), "float32")
LAST = TensorSpec("x", (2, 4, 3), "float32")
GREY = TensorSpec("x", (1, 2, 4), "float32")
PLAIN = Preprocess((2, 4), 1.0, (0.0,) * 3, (1.0,) * 3, "stretch", "nearest", divide=1.0)


def refused(*given):
    with pytest.raises(UsageError) as caught:
        fitted(*given)
    return caught.value.code, caught.value.evidence


@pytest.mark.parametrize("value", [np.ones((2, 3)), {"x": np.ones((2, 3))}, {"other": np.ones((2, 3))}])
def test_a_network_with_one_input_takes_it_by_any_name(value):
    found = fitted(value, "r", [ONE], None)
    assert found["x"].tolist() == [[1] * 3] * 2 and found["x"].dtype == np.float32 and list(found) == ["x"]


def test_several_inputs_come_by_their_names():
    found = fitted({"ids": np.arange(2), "x": np.ones((2, 3), np.float32)}, "r", TWO, None)
    assert list(found) == ["x", "ids"] and found["ids"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("value", "specs", "said", "effect", "fix"),
    [
        (np.ones(2), TWO, "it holds one array", "x, ids", "give x, ids"),
        ({"x": np.ones(2)}, TWO, "it holds x", "ids", "give x, ids"),
        ({"x": 1, "idx": 2}, TWO, "it holds x, idx", "ids", "name it 'ids' for 'idx'"),
        ({"x": 1, "ids": 2, "q": 3}, TWO, "it holds x, ids, q", "what the others are for", "give x, ids"),
        ({"x": 1, "q": 3}, [ONE], "it holds x, q", "what the others are for", "give x"),
        ({}, [ONE], "it holds ", "x", "give x"),
    ],
)
def test_names_that_do_not_fit_are_told_with_the_nearest(value, specs, said, effect, fix):
    with pytest.raises(UsageError) as caught:
        fitted(value, "r", specs, None)
    error, takes = caught.value, ", ".join(["x (float32 2x3)", "ids (int64 2)"][: len(specs)])
    assert (error.code, error.evidence) == ("E-DATASET-5", f"{said}; the network takes {takes}")
    assert error.effect.endswith(f" of {effect}") and error.fix == fix


@pytest.mark.parametrize(
    ("array", "spec", "said"),
    [
        (np.ones((3, 2)), ONE, "it is float64 3x2"),
        (np.float32(1), ONE, "it is float32 of one number"),
        (np.ones(2), TWO[1], "it is float64 2"),
        (np.array(["a", "b"]), TWO[1], "it is <U1 2"),
        (np.ones((2, 3), complex), ONE, "it is complex128 2x3"),
    ],
)
def test_shapes_and_types_have_to_fit(array, spec, said):
    code, evidence = refused(array, "r", [spec], None)
    assert code == "E-DATASET-6" and evidence.startswith(said)
    dims = "x".join(map(str, spec.shape))
    assert evidence.endswith(f"the network takes {spec.name} ({spec.dtype} {dims}) for each sample")


@pytest.mark.parametrize("kind", [np.float64, np.int8, np.uint16, bool])
def test_numbers_of_every_type_become_floats(kind):
    assert fitted(np.ones((2, 3), kind), "r", [ONE], None)["x"].tolist() == [[1] * 3] * 2
    if kind is not np.float64:
        assert fitted(np.ones(2, kind), "r", [TWO[1]], None)["ids"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("values", "bad"), [([1, np.nan, 3], 1), ([np.inf, np.nan, -np.inf], 3), ([1, 2, 3], 0)]
)
def test_values_that_are_no_numbers_are_counted(values, bad):
    array, spec = np.array(values), TensorSpec("x", (3,), "float32")
    if bad:
        assert refused(array, "r", [spec], None) == ("E-DATASET-4", f"{bad} of 3 values of x")
    else:
        assert fitted(array, "r", [spec], None)["x"].tolist() == values


def pixels(*shape):
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "spec", "wanted"),
    [
        ((2, 4, 3), COLOUR, "as is"),
        ((2, 4, 4), COLOUR, "as is"),
        ((2, 4), COLOUR, "as is"),
        ((2, 4, 1), COLOUR, "grey"),
        ((3, 2, 4), COLOUR, "turned"),
        ((1, 2, 4), GREY, "turned grey"),
        ((5, 7, 3), COLOUR, "as is"),
        ((2, 4, 3), LAST, "as is"),
        ((3, 5, 4), COLOUR, "as is"),
        ((3, 3, 1), TensorSpec("x", (3, 3, 1), "float32"), "grey"),
        ((2, 4, 2), COLOUR, None),
        ((4,), COLOUR, None),
        ((1, 2, 4, 3), COLOUR, None),
        ((2, 3), ONE, None),
        ((3, 2, 4), TensorSpec("x", (3, 2, 4), "uint8"), None),
    ],
)
def test_bytes_of_a_picture_are_one(shape, spec, wanted):
    given = pixels(*shape)
    found = as_picture(given, spec)
    if wanted is None:
        assert found is None
        return
    array = given.transpose(1, 2, 0) if wanted.startswith("turned") else given
    array = array[..., 0] if wanted.endswith("grey") else array
    assert np.asarray(found).tolist() == array.tolist()
    assert as_picture(given.astype(np.float32), spec) is None


@pytest.mark.parametrize("spec", [COLOUR, LAST])
def test_pictures_come_in_the_layout_of_the_input(spec):
    image = Image.fromarray(pixels(2, 4, 3))
    found = fitted(image, "r", [spec], PLAIN)["x"]
    wanted = pixels(2, 4, 3)
    assert found.tolist() == (wanted.transpose(2, 0, 1) if spec is COLOUR else wanted).tolist()
    assert found.flags.c_contiguous and found.dtype == np.float32


def test_a_picture_needs_to_be_prepared():
    assert refused(Image.new("RGB", (5, 7)), "r", [COLOUR], None) == (
        "E-DATASET-6",
        "it is a picture of 5 x 7, the network takes x (float32 3x2x4) for each sample",
    )


@pytest.mark.parametrize(
    ("value", "specs", "kind"),
    [
        (Image.new("RGB", (4, 2)), [COLOUR], "picture"),
        ({"any": Image.new("RGB", (4, 2))}, [COLOUR], "picture"),
        (Image.new("RGB", (4, 2)), TWO, "picture"),
        (pixels(2, 4, 3), [COLOUR], "picture"),
        ({"x": pixels(2, 4, 3)}, [COLOUR], "picture"),
        (pixels(2, 4, 3), [ONE], None),
        (pixels(2, 4, 3), [COLOUR, ONE], None),
        (np.ones((3, 2, 4), np.float32), [COLOUR], None),
        ({"x": pixels(2, 4, 3), "y": pixels(2, 4, 3)}, [COLOUR], None),
        ({}, [COLOUR], None),
        (None, [COLOUR], None),
    ],
)
def test_a_record_may_hold_a_picture(value, specs, kind):
    found = picture(value, specs)
    assert (found is None) == (kind is None) and (found is None or found.size == (4, 2))


@pytest.mark.parametrize(
    ("specs", "found"), [([COLOUR], COLOUR), ([LAST], LAST), ([ONE], None), ([COLOUR, ONE], None), ([], None)]
)
def test_the_only_input_may_be_a_picture(specs, found):
    assert picture_input(specs) is found


@pytest.mark.parametrize(
    ("dtype", "mean", "wanted"),
    [("uint8", 1.6, [0, 0, 1, 7]), ("int8", 1.6, [-1, 0, 1, 7]), ("uint8", -250.0, [251, 252, 253, 255])],
)
def test_integers_end_where_their_type_does(dtype, mean, wanted):
    assert given(dtype, None, mean) == wanted
