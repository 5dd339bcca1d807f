"""Numbers of a Kineto file read as numbers give the spans and notes that they give as text (but for true and false)."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.wings.trace.importers import kineto

MOST_US = int(kineto.EXACT_US)


def decimals(most):
    return st.integers(0, most * 1000).map(lambda ns: f"{ns // 1000}.{ns % 1000:03}")


NUMBERS = st.one_of(
    decimals(MOST_US + 10),
    decimals(2 * 10**15),
    st.integers(-5, 2**40).map(str),
    st.sampled_from(['"12.5"', "null", '""', "1e3", "-0.5", "4617892523777.777", '"x"', "0.0005"]),
)
ARGUMENTS = st.sampled_from(["7", '"7"', "-1", "null", "1.5", '"x"', "99999999999", "18446744073709551615"])
NAMES = st.sampled_from(["add", "cudaLaunchKernel", "kernel", "", "cudaDeviceSynchronize"])
CATS = st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "Trace", "unknown"])
LANES = st.sampled_from(["1", '"Spans"', "null", "4294967296", '"3"'])


@st.composite
def events(draw):
    args = {key: draw(ARGUMENTS) for key in draw(st.sets(st.sampled_from(kineto.NUMBERS), max_size=3))}
    parts = {
        "ph": json.dumps(draw(st.sampled_from(["X", "X", "X", "B", "E", "M"]))),
        "cat": json.dumps(draw(CATS)),
        "name": json.dumps(draw(NAMES)),
        "pid": draw(LANES),
        "tid": draw(LANES),
        "ts": draw(NUMBERS),
        "dur": draw(NUMBERS),
        "args": "{" + ", ".join(f'"{key}": {value}' for key, value in args.items()) + "}",
    }
    left = draw(st.sets(st.sampled_from(["dur", "ts", "args", "tid", "cat"]), max_size=1))
    return "{" + ", ".join(f'"{key}": {value}' for key, value in parts.items() if key not in left) + "}"


def told(path):
    try:
        trace = kineto.read(path)
    except UsageError as error:
        return error.code
    columns = {name: column.tolist() for name, column in trace.spans.columns.items()}
    return trace.spans.named(), columns, trace.notes, trace.facts


@given(st.lists(events(), min_size=1, max_size=6))
def test_both_readings_tell_the_same(tmp_path, rows):
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join(rows) + "\n]}")
    as_figures = told(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto, "_loaded_as_figures", lambda base, events: False)
        assert told(path) == as_figures


@given(st.integers(0, MOST_US * 1000 - 1))
def test_a_start_below_the_limit_is_exact_to_the_nanosecond_as_a_double(ns):
    text = f"{ns // 1000}.{ns % 1000:03}"
    assert round(float(text) * 1000) == ns == int(Decimal(text) * 1000)


@pytest.mark.parametrize(
    "start", ["7999999999999.999", "8000000000000.001", "9007199254741.001", "1712345678901234.567"]
)
def test_long_starts_keep_their_nanoseconds(tmp_path, start):
    path = tmp_path / "t.json"
    early = json.dumps(
        {"name": "x" * (1 << 21), "ph": "M"}
    )  # the first long start lies beyond what is looked at
    row = f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {start}, "dur": 1.5}}'
    path.write_text(f'{{"traceEvents": [{early}, {row}]}}')
    spans = kineto.read(path).spans
    assert spans.columns["start_ns"].tolist() == [int(Decimal(start) * 1000)]
