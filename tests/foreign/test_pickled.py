"""Pickles of strangers: plain values come back as they were, and nothing else comes back at all."""

import collections
import datetime
import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgescope.foreign.pickled import NotPlain, loaded
from published_sets import python2

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=6,
)


@given(plain, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_come_back(value, protocol):
    assert loaded(pickle.dumps(value, protocol)) == value


@given(
    arrays.arrays(
        st.sampled_from(["<f4", ">f4", "<f8", "u1", "<i8", "?", "<f2", ">i2", "<c8", "S3"]),
        arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    ),
    st.integers(0, pickle.HIGHEST_PROTOCOL),
    st.booleans(),
)
def test_arrays_come_back_with_their_type_and_shape(array, protocol, fortran):
    array = np.asfortranarray(array) if fortran else array
    for data in (pickle.dumps({"w": array}, protocol), python2({"w": array})):
        found = loaded(data)["w"]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tobytes() == array.tobytes()


def test_numbers_of_numpy_and_ordered_dicts_come_back():
    held = collections.OrderedDict(lr=np.float32(0.5), n=np.int64(7), again=[np.zeros(2)] * 2)
    found = loaded(pickle.dumps(held))
    assert list(found) == ["lr", "n", "again"] and (found["lr"], found["n"]) == (0.5, 7)
    assert found["again"][0] is found["again"][1]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (print, "builtins.print"),
        (len, "builtins.len"),
        (datetime.date(2026, 1, 1), "datetime.date"),
        ({"set": {1, 2}}, ""),
        (np.array([{"a": 1}, None], dtype=object), "'O8'"),
        (np.zeros(2, dtype="datetime64[s]"), "'M8'"),
        (np.zeros(2, dtype=[("a", "f4")]), "'V4'"),
        (np.random.default_rng(1), "numpy.random"),
        (collections.Counter("ab"), "collections.Counter"),
        (slice(1), "builtins.slice"),
        (np.dtype("f4"), "no value"),
        ([[[[[[[[[1]]]]]]]]], "within each other"),
    ],
)
def test_anything_else_is_refused_and_named(value, said):
    with pytest.raises(NotPlain) as caught:
        loaded(pickle.dumps(value, 4))
    assert said in str(caught.value)


def test_what_is_named_is_never_called(monkeypatch):
    called = []
    monkeypatch.setattr("collections.deque", lambda *given: called.append(given))

    class Calls:
        def __reduce__(self):
            return collections.deque, ([1],)

    with pytest.raises(NotPlain):
        loaded(b"ccollections\ndeque\n(](lp0\nI1\natR.")
    assert called == [] and Calls().__reduce__()


def test_a_list_that_holds_itself_is_refused():
    held: list = []
    held.append(held)
    with pytest.raises(NotPlain):
        loaded(pickle.dumps(held))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + data,
        lambda data: data.replace(b"f4", b"f8"),
        lambda data: data.replace(b"K\x03", b"K\x04"),
    ],
)
def test_a_damaged_array_is_refused(change):
    data = pickle.dumps({"w": np.ones((3,), np.float32)}, 2)
    assert loaded(data)["w"].shape == (3,)
    with pytest.raises(NotPlain):
        loaded(change(data))


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_one_byte_changed_gives_a_plain_value_or_a_refusal(at, byte):
    data = bytearray(
        pickle.dumps({"w": np.ones((2, 3), np.float32), "names": ["a", "b"], "n": np.float64(1)}, 2)
    )
    data[at % len(data)] = byte
    try:
        found = loaded(bytes(data))
    except NotPlain:
        return
    assert isinstance(
        found, dict | list | tuple | str | bytes | int | float | bool | complex | None | np.ndarray
    )


def test_a_file_is_read_from_its_path(tmp_path):
    from edgescope.foreign.pickled import read

    path = tmp_path / "w.pkl"
    out = io.BytesIO()
    pickle.dump({"blobs": {"w": np.ones(2)}}, out)
    path.write_bytes(out.getvalue())
    assert read(path)["blobs"]["w"].tolist() == [1, 1]
