"""The JSON that trtexec writes: real files of TensorRT 10, the older names, and damage."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import DeviceError
from edgescope.wings.tensorrt import layers as _trt_layers
from edgescope.wings.tensorrt.trtexec import exports

DATA = Path(__file__).parent / "data"


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "file.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_real_times():
    found = exports.times(DATA / "times_10.json")
    assert {len(column) for column in found.values()} == {200}
    assert found["start_enq"][0] == 4999.9
    assert np.allclose(found["latency"], found["h2d"] + found["compute"] + found["d2h"])
    assert (
        np.abs(found["end_compute"] - found["start_compute"] - found["compute"]).max() <= 0.0101
    )  # printed to 0.01
    assert (np.diff(found["start_h2d"]) >= 0).all()


@pytest.mark.parametrize(
    ("largest", "step"), [(9.87, 1e-5), (999.9, 1e-3), (5000.04, 1e-2), (12345.6, 0.1), (0, 1e-6)]
)
def test_six_digits_are_a_step_that_grows_with_time(largest, step):
    assert exports.resolution_ms(np.array([0.0, largest])) == pytest.approx(step)


def row(**changes):
    names = [n for names in exports.TRTEXEC_COLUMNS.values() for n in names[:1]]
    return dict.fromkeys(names, 1.0) | changes


def test_times_of_8_0_have_other_names(written):
    new = {
        "startEnqMs": 1,
        "endEnqMs": 2,
        "startComputeMs": 3,
        "endComputeMs": 5,
        "computeMs": 2,
        "latencyMs": 4,
    }
    old = new | {
        "startInMs": 2,
        "endInMs": 3,
        "startOutMs": 5,
        "endOutMs": 6,
        "inMs": 1,
        "outMs": 1,
        "endToEndMs": 4,
    }
    found = exports.times(written(json.dumps([old])))
    assert (found["start_h2d"][0], found["end_d2h"][0], found["d2h"][0]) == (2, 6, 1)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[]",
        "{}",
        "[1, 2]",
        "[{}]",
        json.dumps([row(latencyMs="fast")]),
        json.dumps([row(latencyMs=True)]),
        json.dumps([row(), {}]),
        json.dumps([row(startH2dMs=5.0)]),  # ends before it starts
        json.dumps([row(startH2dMs=float("-inf"))]),
        json.dumps([row()]).replace("1.0", "nan", 1),
        json.dumps([row()]).replace("1.0", "1" + "0" * 400, 1),
        "[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_damaged_times_are_told(written, content):
    with pytest.raises(DeviceError, match="E-TRTX-4"):
        exports.times(written(content))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DeviceError, match="E-TRTX-4"):
        exports.times(tmp_path / "none.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*row(), "Layers", "name"]), inner)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("read", [exports.times, exports.profile, exports.outputs])
@settings(max_examples=60)
@given(content=st.one_of(JSON.map(json.dumps).map(str.encode), st.binary(max_size=60)))
@pytest.mark.slow
def test_hostile_files_raise_our_error_or_give_finite_values(tmp_path_factory, read, content):
    path = tmp_path_factory.mktemp("hostile") / "file.json"
    path.write_bytes(content)
    try:
        found = read(path)
    except DeviceError as error:
        assert error.code == "E-TRTX-4"
    else:
        assert found


@given(st.integers(0, 900))
def test_a_file_cut_short_is_never_taken_for_whole(tmp_path_factory, n):
    whole = b"[" + b", ".join(json.dumps(row()).encode() for _ in range(3)) + b"]"
    path = tmp_path_factory.mktemp("cut") / "times.json"
    path.write_bytes(whole[: min(n, len(whole) - 1)])
    with pytest.raises(DeviceError, match="E-TRTX-4"):
        exports.times(path)


def test_a_real_profile():
    count, layers = exports.profile(DATA / "profile_10.json")
    assert count == 21071
    assert layers[1].name == "/conv1/Conv + /relu/Relu"
    assert layers[1].mean_s == pytest.approx(28.8488e-6)
    assert layers[1].median_s == pytest.approx(28.672e-6)
    assert sum(layer.share for layer in layers) == pytest.approx(1.0, abs=0.01)


def test_a_profile_before_8_4_has_no_medians(written):
    rows = [{"count": 3}, {"name": "a", "timeMs": 6, "averageMs": 2, "percentage": 100}]
    assert exports.profile(written(json.dumps(rows)))[1][0].median_s is None


def test_real_layer_information_tells_the_precision():
    told = _trt_layers.read((DATA / "layers_10.json").read_text())
    assert told.precision() == "fp16"
    assert told.kinds["fp16"] >= 2


def test_outputs_keep_shape_type_and_what_is_not_finite(written):
    text = """[
  { "name" : "a"
  , "dimensions" : "2x2"
  , "values" : [ 0.5, nan, -inf, 1e-07 ]
  }
, { "name" : "index"
  , "dimensions" : "1x2"
  , "values" : [ 3, 281474976710656 ]
  }
]
"""
    found = exports.outputs(written(text))
    assert found["a"].shape == (2, 2)
    assert found["a"].dtype == np.float32
    assert np.isnan(found["a"][0, 1])
    assert found["a"][1, 0] == -np.inf
    assert found["index"].tolist() == [[3, 281474976710656]]


def test_outputs_whose_shape_does_not_fit_are_damaged(written):
    entry = '[{ "name" : "a", "dimensions" : "2x3", "values" : [ 1, 2 ] }]'
    with pytest.raises(DeviceError, match="E-TRTX-4"):
        exports.outputs(written(entry))
