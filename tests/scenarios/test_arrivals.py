"""A trace's file: what is read, and the line of what is wrong."""

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.options import settled
from edgescope.scenarios import Trace, open_loop


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0\n0.5\n1\n", [0, 0.5, 1]),
        ("# recorded at the gate\n\n0.25\r\n0.25\r\n", [0.25, 0.25]),
        ("arrival_s\n1\n2", [1, 2]),
        ('camera,"arrival_s",size\na,1,9\nb,2.5,9\n', [1, 2.5]),
        ("0.1,door\n0.2,gate\n", [0.1, 0.2]),
        ("1e-3\n1e-2\n", [0.001, 0.01]),
    ],
)
def test_plain_lists_and_csv_are_read(text, seconds):
    assert list(open_loop.parsed_trace(text) / 1e9) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no arrival"),
        ("# nothing\n\n", "holds no arrival"),
        ("arrival_s\n", "holds no arrival"),
        ("0\nsoon\n", "line 2 is not a number"),
        ("0\n1\n-2\n", "line 3 is negative"),
        ("0\nnan\n", "line 2 is not a finite"),
        ("0\ninf\n", "line 2 is not a finite"),
        ("1_0\n", "line 1 is not a finite"),
        ("0\n\n2\n1\n", "E-TRACE-1: .*line 4 .*order"),
        ("1763764000.5\n", "line 1 is no time from the start"),
        ("1e300\n", "line 1 is no time from the start"),
        ("a,arrival_s\n1\n", "line 2 is not a number"),
        ("time\n0\n", "line 1 is not a number"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(text, says):
    with pytest.raises(UsageError, match=says):
        open_loop.parsed_trace(text)


def test_a_trace_without_arrivals_has_no_line_to_name():
    with pytest.raises(UsageError, match=r"E-TRACE-1: trace .*\(2 characters\)"):
        open_loop.parsed_trace("#\n")


def test_the_latest_arrival_is_after_115_days():
    assert open_loop.parsed_trace("10000000")[0] == 10**16
    with pytest.raises(UsageError, match="line 1 is no time"):
        open_loop.parsed_trace("10000000.1")


def test_files_that_cannot_be_a_trace_are_refused(tmp_path):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(open_loop.MOST_TRACE_BYTES + 1)
    for name in ("binary", "large", "missing", "x" * 5000):
        with pytest.raises(UsageError, match="E-TRACE-"):
            open_loop.read_trace(tmp_path / name)
    for name in (str(tmp_path / "pipe"), str(tmp_path / "missing"), str(tmp_path), "x" * 5000, "a\0b"):
        with pytest.raises(UsageError, match="E-OPTION-3"):
            settled({"trace": name}, Trace.OPTIONS)


def test_a_byte_order_mark_is_no_part_of_a_number(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\ufeff0\n1\n", encoding="utf-8")
    assert list(open_loop.read_trace(path)) == [0, 10**9]


def test_a_trace_of_one_moment_has_no_period():
    assert open_loop.trace_period_ns(np.array([0, 10, 30])) == 45
    with pytest.raises(UsageError, match="burst"):
        open_loop.trace_period_ns(np.array([7, 7]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, open_loop.MOST_ARRIVAL_S), min_size=1, max_size=50))
def test_what_is_written_is_read_back(seconds):
    seconds = sorted(seconds)
    read = open_loop.parsed_trace("\n".join(repr(s) for s in seconds))
    assert np.allclose(read / 1e9, seconds, rtol=1e-12, atol=1e-9)
    assert (np.diff(read) >= 0).all()


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet='0123456789.,-+eEnaif#"_ \t\r\n\0arivl_s', max_size=60))
def test_any_text_is_a_trace_or_a_usage_error(text):
    try:
        read = open_loop.parsed_trace(text)
    except UsageError as error:
        assert error.code == "E-TRACE-1"
    else:
        assert len(read) and (np.diff(read) >= 0).all() and (read >= 0).all()
        assert math.isfinite(float(read[-1]))


def test_the_period_is_exact_however_long_the_trace():
    late = 10**16 + 3
    assert open_loop.trace_period_ns(np.array([0, 1, late])) == late + late // 2


def test_a_trace_of_one_moment_says_which():
    with pytest.raises(UsageError, match=r"2 arrivals at 3 s"):
        open_loop.trace_period_ns(np.array([3 * 10**9, 3 * 10**9]))


def test_a_trace_that_is_too_large_is_told_in_megabytes(tmp_path, monkeypatch):
    monkeypatch.setattr(open_loop, "MOST_TRACE_BYTES", 1_000_000)
    (tmp_path / "large").write_bytes(b"0" * 3_000_000)
    with pytest.raises(UsageError, match="3 MB, at most 1"):
        open_loop.read_trace(tmp_path / "large")


def test_a_trace_that_vanishes_while_it_is_read_is_a_usage_error(tmp_path, monkeypatch):
    def gone(path):
        raise OSError(5, "Input/output error")

    (tmp_path / "t").write_text("0\n1\n")
    monkeypatch.setattr(open_loop.cache, "content", gone)
    with pytest.raises(UsageError, match=r"E-TRACE-4.*Input/output error"):
        open_loop.read_trace(tmp_path / "t")


def test_what_is_no_number_is_shown_shortened():
    for junk in ("1" + "0" * 400, "x" * 400):
        with pytest.raises(UsageError, match="E-TRACE-1") as raised:
            open_loop.parsed_trace(junk)
        assert len(raised.value.evidence) == 42, "40 characters between quotes"
