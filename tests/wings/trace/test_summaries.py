"""Numbers as programs print them: which mark begins the decimals, and what each text is.

Summaries without times of day: every unit, every layout, and the rows that cost themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgescope.errors import UsageError
from edgescope.records import SPAN_KINDS, Trace
from edgescope.wings.trace.importers.printed import (
    _duration,
    decimal_mark,
    knows_summary,
    number,
    read_summary,
)


@pytest.mark.parametrize(
    ("texts", "mark"),
    [
        *(([], "."), (["12"], "."), (["x", ""], "."), (["1.5"], "."), (["1,5"], ","), (["1,5", "1.5"], "")),
        *((["1,234"], "."), (["1.234"], ""), (["1,234", "1.234"], ""), (["0.123"], "."), (["0,123"], ",")),
        *((["1,234.5"], "."), (["1.234,5"], ","), (["1.234.567"], ","), (["1,234,567"], ".")),
        *((["1.234", "1234"], "."), (["1,234", "1234"], ","), (["1,234", "1234.5"], ".")),
        *((["1,234", "123"], "."), (["1.234", "123"], ""), (["1,234", "1.234", "1234"], "")),
        *((["1 234", "1.234"], ""), (["1 234.5"], "."), (["1'234,5"], ","), (["1.234", "1.5"], ".")),
        *((["1.234", "1,5"], ","), (["1234.567"], "."), (["12,3456"], ","), ([" 1.234 ", "5678"], ".")),
        *((["1.234e5"], "."), (["-1.234"], ""), ([".5"], "."), ([",5"], ","), (["1.234", "1'234"], "")),
    ],
)
def test_the_mark_is_that_of_the_whole_file(texts, mark):
    assert decimal_mark(texts) == mark
    assert decimal_mark(reversed(texts)) == mark


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        *(
            ("12", 12, 12),
            ("1.5", 1.5, None),
            ("1,5", None, 1.5),
            ("1,234", 1234, 1.234),
            ("1.234", 1.234, 1234),
        ),
        *(("1,234.5", 1234.5, None), ("1.234,5", None, 1234.5), ("1 234.5", 1234.5, None)),
        *(("12,34,567", 1_234_567, None), ("1,234,567", 1_234_567, None), ("1234,567", None, 1234.567)),
        *(
            ("1,23", None, 1.23),
            (" -2.5 ", -2.5, None),
            ("+.5", 0.5, None),
            ("1e3", 1000, 1000),
            ("2.5e1", 25, None),
        ),
        *(("1.234.5", None, None), ("x", None, None), ("", None, None), (None, None, None), ("5.", 5, None)),
        *(("1'234", 1234, 1234), ("1,2345", None, 1.2345), ("1,234e3", None, 1234)),
    ],
)
def test_a_text_is_a_number_by_the_mark(text, point, comma):
    assert (number(text, "."), number(text, ",")) == (point, comma)


@pytest.fixture
def trace(tmp_path: Path) -> Callable[[str], Trace]:
    def made(text: str) -> Trace:
        path = tmp_path / "summary.csv"
        path.write_text(text, encoding="utf-8")
        return read_summary(path)

    return made


def rows(found: Trace) -> list[tuple[str, str, int, int, int]]:
    c = found.spans.columns
    columns = (c[k].tolist() for k in ("kind", "name", "start_ns", "end_ns", "device"))
    return [(SPAN_KINDS[k], found.spans.names[n], a, b, d) for k, n, a, b, d in zip(*columns, strict=True)]


def codes(found: Trace) -> list[str]:
    return [note.code for note in found.notes]


def test_every_unit_of_time_is_known():
    ns, us, ms = (
        ("ns", "nsecond", "nsec", "nanosecond"),
        ("us", "usecond", "usec", "microsecond", "µs", "μs"),
        (
            "ms",
            "msecond",
            "msec",
            "millisecond",
        ),
    )
    wanted = {w: 1 for w in ns} | {w: 10**3 for w in us} | {w: 10**6 for w in ms}
    wanted |= {w: 10**9 for w in ("s", "sec", "second")}
    assert {w: _duration({"Duration": (1.0, w)}) for w in wanted} == wanted


NCU = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'


@pytest.mark.parametrize(
    ("value", "unit", "ns"),
    [
        *(("1.5", "us", 1500), ("1.5", "usecond", 1500), ("2", "Mseconds", 2_000_000), ("0", "ns", 0)),
        *(
            ("3", "s", 3 * 10**9),
            ("3", " nanoseconds ", 3),
            ("3", "cycle", None),
            ("-1", "ns", None),
            ("x", "ns", None),
        ),
    ],
)
def test_the_length_of_a_kernel_is_its_duration_in_its_unit(trace, value, unit, ns):
    found = trace(
        NCU + f'"0","gemm","gpu__time_duration.sum","{unit}","{value}"\n"1","relu","Duration","ns","7"\n'
    )
    first = ("kernel", "gemm", 0, -1 if ns is None else ns, 0)
    assert rows(found) == [first, ("kernel", "relu", ns or 0, (ns or 0) + 7, 0)]
    assert ("W-PROF-17" in codes(found)) is (ns is None)


def test_the_first_duration_that_is_there_counts_and_kernels_lie_end_to_end(trace):
    text = NCU + "".join(
        f'"{i}","k{i}","{name}","ns","{ns}"\n'
        for i, name, ns in (
            (0, "gpu__time_duration.avg", 9),
            (0, "Duration", 5),
            (1, "gpu__time_duration.avg", 8),
            (2, "sm__cycles.sum", 3),
            (3, "gpu__time_duration.sum", 4),
            (3, "Duration", 99),
        )
    )
    found = trace(text)
    assert [(a, b) for *_, a, b, _ in rows(found)] == [(0, 5), (5, 13), (13, -1), (13, 17)]
    assert found.facts == {} and not found.timed and codes(found) == ["W-PROF-17", "I-PROF-4"]
    samples = found.samples
    assert [(c.name, c.unit) for c in samples.channels] == [
        ("gpu__time_duration.avg", "ns"),
        ("Duration", "ns"),
        ("sm__cycles.sum", "ns"),
        ("gpu__time_duration.sum", "ns"),
    ]
    assert samples.t_ns.tolist() == [0, 0, 5, 13, 13, 13]
    assert samples.channel.tolist() == [0, 1, 0, 2, 3, 1] and samples.value.tolist() == [9, 5, 8, 3, 4, 99]


def test_a_wide_page_has_its_units_in_its_first_row_and_numbers_that_cannot_be_read_are_counted(trace):
    head = '"ID","Kernel Name","gpu__time_duration.sum","a__b","device__attribute_x","plain"\n'
    body = '"","","us","%","",""\n"0","gemm","2","50.5","7","7"\n"1","relu","3","7x","7","7"\n"2","","9","9","",""\n'
    found = trace(head + body)
    assert rows(found) == [("kernel", "gemm", 0, 2000, 0), ("kernel", "relu", 2000, 5000, 0)]
    assert [(c.name, c.unit) for c in found.samples.channels] == [
        ("gpu__time_duration.sum", "us"),
        ("a__b", "%"),
    ]
    assert found.samples.value.tolist() == [2, 50.5, 3]
    assert found.facts["left_out"] == {"values of metrics are no numbers that can be read": 1}
    bare = trace('"Kernel Name","gpu__time_duration.sum"\n"gemm","2"\n"gemm","3"\n')
    assert [r[3] for r in rows(bare)] == [-1, -1], "without a row of units there is no length"
    assert bare.samples.t_ns.tolist() == [0, 0]
    none = trace(NCU + '"0","gemm","a","","n/a"\n"0","relu","a","","n/a"\n')
    assert none.samples is None and [r[1] for r in rows(none)] == ["relu"], "one launch has one name"


STATS = "Time (%),Total Time (ns),{},Avg (ns),{}\n"


@pytest.mark.parametrize(
    ("count", "column", "name", "kind", "device"),
    [
        ("Instances", "Name", "gemm", "kernel", 0),
        ("Num Calls", "Name", "cudaLaunchKernel", "api", -1),
        ("Num Calls", "Name", "cudaStreamSynchronize", "sync", -1),
        ("Num Calls", "Name", "poll", "call", -1),
        ("Num Calls", "Name", "cudart", "call", -1),
        ("Instances", "Range", ":infer", "range", -1),
        ("Count", "Operation", "[CUDA memcpy HtoD]", "copy", 0),
    ],
)
def test_a_summary_is_so_many_equal_spans_of_a_name(trace, count, column, name, kind, device):
    found = trace(STATS.format(count, column) + f"90,90,3,30,{name}\n10,25,2,12.5,{name}x\n")
    plain = name.removeprefix(":")
    wanted = [(kind, plain, 0, 30, device), (kind, plain, 30, 60, device), (kind, plain, 60, 90, device)]
    got = rows(found)
    assert got[:3] == wanted
    assert [(r[1], r[2], r[3]) for r in got[3:]] == [(f"{plain}x", 90, 102), (f"{plain}x", 102, 115)]
    assert found.facts == {"averaged": True} and codes(found) == ["I-PROF-2"] and not found.timed


def test_rows_without_a_count_or_a_time_are_left_out_and_counted(trace):
    head = STATS.format("Instances", "Name")
    found = trace(head + "1,10,1,1,a\n1,10,0,1,b\n1,10,,1,c\n1,,2,1,d\n1,-5,2,1,e\n1,0,1,1,f\n1,7,1,7,a\n")
    assert [(r[1], r[2], r[3]) for r in rows(found)] == [("a", 0, 10), ("f", 10, 10), ("a", 10, 17)]
    assert sum(found.facts["left_out"].values()) == 4 and found.facts["damaged"] is True
    with pytest.raises(UsageError) as refused:
        trace(head + "1,10,0,1,b\n")
    assert refused.value.code == "E-PROF-1"


def test_more_than_a_million_calls_of_a_name_are_spread_over_a_million(trace, monkeypatch):
    monkeypatch.setattr("edgescope.wings.trace.importers.printed.MOST", 4)
    found = trace(STATS.format("Instances", "Name") + "1,100,5,20,a\n1,8,4,2,b\n")
    assert [(r[1], r[3] - r[2]) for r in rows(found)] == [("a", 25)] * 4 + [("b", 2)] * 4


def test_appended_reports_have_a_heading_each_and_a_decimal_mark_between_them(trace):
    first, second = STATS.format("Instances", "Name"), STATS.format("Num Calls", "Name")
    found = trace("a line\n" + first + "1,10,1,1,a\n\n" + second + "1,5,1,1,poll\n")
    assert [(r[1], r[2], r[3]) for r in rows(found)] == [("a", 0, 10), ("poll", 10, 15)]
    with pytest.raises(UsageError) as refused:
        trace(first + '1,"1,5",1,"1.5",a\n')
    assert (refused.value.code, refused.value.evidence) == ("E-PROF-12", "such as '1,5'")
    for empty in ("", "nothing", first):
        with pytest.raises(UsageError) as refused:
            trace(empty)
        assert refused.value.code == "E-PROF-1"


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (b"Time (%),Total Time (ns),Name", True),
        (b'"ID","Kernel Name","Metric Name"', True),
        (b'"ID","Kernel Name","gpu__time_duration.sum"', True),
        (b'"ID","Kernel Name","Grid Size"', True),
        (b'"ID","Kernel Name"', False),
        (b'"ID","Metric Name"', False),
        (b"Total Time,Name", False),
    ],
)
def test_a_summary_is_known_by_its_heading(tmp_path, head, known):
    assert knows_summary(tmp_path, head) is known


def test_cells_beyond_the_heading_and_rows_that_end_before_it_cost_nothing_else(trace):
    head = STATS.format("Instances", "Name")
    found = trace(head + "1,10,1,1,a,more,1.5,2,5\n1,10\n1,5,1,1,b\n")
    assert [(r[1], r[2], r[3]) for r in rows(found)] == [("a", 0, 10), ("b", 10, 15)]
    long = trace(NCU + '"0","gemm","Duration","ns","7","x"\n"1","relu","Duration","ns","8"\n')
    assert [(r[1], r[3]) for r in rows(long)] == [("gemm", 7), ("relu", 15)]
