"""One document in five formats: what each shows, and that no number is broken, wrong or lost on the way."""

import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope import units
from edgescope.metrics import METRICS
from edgescope.records import Absent, Measured
from edgescope.report import data, html, terminal
from edgescope.report import document as doc
from edgescope.report.document import Column, Document, Items, Mark, Pairs, Row, Section, Table, Text

NASTY = "</script><b>& | `x` *y*"


def table(rows: int = 3, **keys) -> Table:
    heads = (Column("Variant"), Column.of(METRICS["p50_s"]), Column.of(METRICS["throughput_sps"], 1))
    made = [
        Row(
            (f"v{i}", Measured(0.0015 + i, "s", 0.001, 0.002, 9), Absent("no clock")),
            "picked" if i == 1 else "",
        )
        for i in range(rows)
    ]
    return Table(heads, tuple(made), **keys)


def text(document: Document, wide: int = 80, **keys) -> str:
    lines = terminal.lines(document, wide, **keys)
    return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)


LEVELS = Document(
    "t", tuple(Text(level.value, level=level) for level in doc.Level), {"x": Measured(1 / 3, "s", n=2)}
)


def test_each_format_shows_its_levels():
    assert text(LEVELS).split() == ["brief", "main"]
    assert text(LEVELS, verbose=True).split() == ["main", "detail"]
    page = re.findall("<p>(.*?)</p>", html.render(LEVELS))
    assert page[:3] == ["main", "detail", "page"] and "data" not in page
    assert "main\n\ndetail\n" in data.markdown(LEVELS) and "brief" not in data.markdown(LEVELS)
    assert json.loads(data.json_text(LEVELS))["x"] == {
        "value": 1 / 3,
        "unit": "s",
        "lo": None,
        "hi": None,
        "n": 2,
    }


PAGES = [f"edgescope.report.{page}" for page in ("variants", "result", "sweep")]
PAGES += [f"edgescope.wings.{page}" for page in ("capacity.page", "offload.page", "recommend.recommendation")]


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES)
def test_what_a_terminal_prints_waits_for_no_plots(page):
    code = f"import sys, {page}, edgescope.report.terminal as t\n"
    code += "assert not {'plotly', 'rich'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_section_that_is_left_empty_has_no_heading():
    hidden = Document("t", (Section("Evidence", (Text("x", level=doc.PAGE),)), Text("y")))
    assert "Evidence" not in text(hidden, verbose=True) and "Evidence" in html.render(hidden)


def test_a_csv_holds_the_value_its_ends_and_why_it_is_absent():
    rows = data.csv_file(Document("t", (table(1),))).splitlines()
    assert rows[0].startswith("Variant,p50_s,p50_s_lo,p50_s_hi,p50_s_n,p50_s_absent,throughput_sps,")
    assert rows[1] == "v0,0.0015,0.001,0.002,9,,,,,,no clock"
    both = Document("t", (table(1), table(2, level=doc.DATA)))
    assert len(data.csv_file(both).splitlines()) == 3, "what is data is written alone"


def test_every_format_escapes():
    nasty = Document(
        NASTY, (Text(NASTY), Items((Mark(NASTY, "bad"),)), Pairs(((NASTY, NASTY),))), command=NASTY
    )
    page = html.render(nasty)
    assert "<b>" not in page and page.count("&lt;/script&gt;") >= 6
    assert "</script><b>" not in data.markdown(nasty).replace(f"`{NASTY.replace('`', '')}`", "")


def test_a_link_leads_to_what_the_page_defines_alone():
    link = Text(Mark("p99", to="def-p99_s"))
    glossary = Pairs(((Mark("p99", anchor="def-p99_s"), "the tail"),), kind="glossary")
    assert 'href="#def-p99_s"' not in html.render(Document("t", (link,)))
    assert 'href="#def-p99_s"' in html.render(Document("t", (link, glossary)))


def test_a_narrow_terminal_leaves_columns_out_and_v_puts_them_below():
    page = Document("t", (table(),))
    assert "samples/s" in text(page, 80) and "samples/s" not in text(page, 24)
    folded = text(page, 24, verbose=True)
    assert "samples/s" in folded and folded.count("v1") == 2 and max(map(len, folded.splitlines())) <= 24 + 6


def test_a_long_table_keeps_the_pick():
    brief = text(Document("t", (table(40),)))
    assert len(brief.splitlines()) == terminal.LINES and "v1 " in brief and "more: -v" in brief
    assert len(text(Document("t", (table(40),)), limit=None).splitlines()) == 41


@given(st.lists(st.text("ab 1.[],%-", min_size=1, max_size=12), max_size=40), st.integers(20, 90))
def test_wrapping_loses_no_word_and_keeps_the_width(words, wide):
    """Only what stays in one piece is longer: an interval with what it touches, or a value with its unit."""
    said = " ".join(words)
    lines = ["".join(part for part, _ in line) for line in terminal.wrapped([(said, "")], wide, "  ")]
    assert "".join("".join(lines).split()) == "".join(said.split())
    for line in lines:
        held = re.sub(r"\[[^\[\]]*\]|\d (?=[A-Za-z%])", "", line.strip())
        assert len(line) <= wide or " " not in held


def test_a_value_is_not_broken_from_its_unit_nor_an_interval_in_two():
    said = "the median latency of the variant is 1.82 ms [1.79, 1.85] here"
    for wide in range(24, 60):
        lines = ["".join(part for part, _ in line) for line in terminal.wrapped([(said, "")], wide)]
        assert any("1.82 ms" in line for line in lines) and any("[1.79, 1.85]" in line for line in lines), (
            lines
        )


@given(st.floats(1e-9, 1e12), st.sampled_from(sorted(units.STEPS)))
def test_a_scaled_number_is_the_number_to_three_digits(value, unit):
    said, _, word = units.text(value, unit).partition(" ")
    factor = next(f for f, name in units.STEPS[unit] if name == word)
    assert float(said) / factor == pytest.approx(value, rel=6e-3)


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=6), st.sampled_from(["s", "bytes", "J", "W", "ratio"])
)
def test_the_smallest_figure_of_a_column_keeps_its_digits(values, unit):
    form = units.column(unit, [Measured(v, unit) for v in values])
    assert form.decimals <= units.MAX_DECIMALS
    for v in values:
        shown = float(form.number(v).replace(",", "")) / form.scale.factor
        assert abs(shown - v) <= 0.5 * 10**-form.decimals / form.scale.factor * 1.001


def test_a_waiting_time_is_said_as_people_say_it():
    said = [units.lasting(s) for s in (0.4, 42, 99.4, 100, 3599, 5940, 6000, 11_100)]
    assert said == ["0 s", "42 s", "99 s", "2 min", "60 min", "99 min", "1 h 40 min", "3 h 5 min"]
