"""Whatever a study file holds, it is read or refused by one of our own errors; never another."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import EdgescopeError
from edgescope.models import zoo
from edgescope.study import grid, schema

WORDS = [
    "null",
    "fp32",
    "int8",
    "cpu",
    "cuda",
    "mps",
    "time_slicing",
    "resnet50",
    "openvino",
    "burst",
    "8",
    "5s",
    "",
    "x.onnx",
]
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-2, 9),
    st.just(10**30),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(WORDS),
    st.text(max_size=3),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "threads", "batch"]), inner, max_size=2),
    ),
    max_leaves=4,
)
KEYS = st.sampled_from([*schema.SECTIONS["trial"], *schema.SWEEP, "bound", "name", "path", "batsh", ""])
TABLES = st.dictionaries(KEYS, VALUES, max_size=3)
NAMES = st.sampled_from([*schema.SECTIONS, "extra"])


def toml(value) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return json.dumps(value)


@settings(max_examples=80)
@given(TABLES, st.dictionaries(NAMES, st.one_of(TABLES, st.lists(TABLES, max_size=2), SCALARS), max_size=3))
@pytest.mark.slow
def test_a_study_is_read_or_refused(tmp_path, trial, others):
    data = {"trial": {"model": "null", "backend": "null"} | trial} | {
        k: v for k, v in others.items() if k != "trial"
    }
    text = "\n".join(f"{name} = {toml(section)}" for name, section in data.items())
    path = tmp_path / "study.toml"
    path.write_text(text)
    try:
        plan = grid.read(path, zoo.pin)
    except EdgescopeError as error:
        assert "study.toml" in error.what or error.code.startswith("E-STUDY")
    else:
        assert plan.trials
