"""CSVs of Nsight Compute: without a duration (public files of cache metrics alone), and in the marks of a locale."""

import json

import pytest

from edgescope.cli.main import main
from edgescope.wings.trace.imported import read

HEAD = '"ID","Kernel Name","CC","Metric Name","Metric Unit","Metric Value"'
TIME, SHARE = "gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def written(tmp_path, *rows):
    path = tmp_path / "ncu.csv"
    path.write_text(
        "\n".join([HEAD, *(",".join(f'"{c}"' for c in row) for row in rows)]) + "\n", encoding="utf-8"
    )
    return path


def kernels(capsys, path, rc=0):
    assert main(["trace", str(path), "--json"]) == rc
    (one,) = json.loads(capsys.readouterr().out)["traces"].values()
    return one["kernels"], [n["code"] for n in one["notes"]]


@pytest.mark.parametrize(
    ("time", "share"),
    [
        ("1.234.567", "45,25"),
        ("1,234,567", "45.25"),
        ("1\N{NARROW NO-BREAK SPACE}234\N{NO-BREAK SPACE}567", "45,25"),
        *(("1'234'567", "45.25"), ("12,34,567", "45.25"), ("1234567", "45,25"), ("1234567", "45.25")),
    ],
)
def test_the_marks_of_a_locale(tmp_path, time, share):
    rows = [(i, "k", "9.0", n, u, v) for i in (0, 1) for n, u, v in ((TIME, "ns", time), (SHARE, "%", share))]
    trace = read(written(tmp_path, *rows))
    c = trace.spans.columns
    expected = 1_234_567
    assert (c["end_ns"] - c["start_ns"]).tolist() == [expected] * 2
    assert trace.samples.series(SHARE)[1].tolist() == [45.25] * 2


@pytest.mark.parametrize("values", [("1.234", "2.000"), ("1.5", "2,5"), ("1.234,5", "1,234.5")])
def test_what_can_be_read_in_two_ways_is_refused(capsys, tmp_path, values):
    path = written(tmp_path, *((i, "k", "9.0", TIME, "us", v) for i, v in enumerate(values)))
    assert main(["trace", str(path)]) == 2
    assert capsys.readouterr().err.startswith("E-PROF-12")


def test_kernels_without_a_duration_have_none(capsys, tmp_path):
    path = written(
        tmp_path, (0, "k", "8.7", "L2 Hit Rate", "%", "78"), (1, "k", "8.7", "L2 Hit Rate", "%", "80")
    )
    (one,), codes = kernels(capsys, path)
    assert (one["count"], one["total_ns"], one["spread_ns"]) == (2, None, None) and "W-PROF-17" in codes
    assert main(["trace", str(path), "-v"]) == 0
    assert "0 ns" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        ("ns", 1),
        ("nsecond", 1),
        ("us", 1e3),
        ("usecond", 1e3),
        ("\N{MICRO SIGN}s", 1e3),
        ("msecond", 1e6),
        ("ms", 1e6),
        ("second", 1e9),
        ("cycle", None),
        ("", None),
        ("%", None),
    ],
)
def test_the_unit_is_the_files_and_an_unknown_one_is_no_time(capsys, tmp_path, unit, factor):
    (one,), codes = kernels(capsys, written(tmp_path, (0, "k", "9.0", TIME, unit, "7")))
    assert one["total_ns"] == (None if factor is None else 7 * factor)
    assert ("W-PROF-17" in codes) is (factor is None)


def test_a_heading_in_the_middle_is_no_row(capsys, tmp_path):
    path = written(tmp_path, (0, "k", "9.0", TIME, "ns", "7"))
    path.write_text(path.read_text() * 2)
    found, _ = kernels(capsys, path)
    assert [k["name"] for k in found] == ["k"] and found[0]["total_ns"] in (7, 14)
