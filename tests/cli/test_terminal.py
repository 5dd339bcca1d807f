"""Numbers and words as a person reads them."""

import pytest

from edgescope import units
from edgescope.records import Absent, Measured
from edgescope.report import document as doc
from edgescope.report import terminal


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (Measured(0.0018234, "s", 0.00180, 0.00185), "1.82 ms [1.8, 1.85]"),
        (Measured(1.5, "s"), "1.5 s"),
        (Measured(2.5e-7, "s"), "250 ns"),
        (Measured(134_502_309_888, "byte"), "135 GB"),
        (Measured(512.0, "bytes"), "512 B"),
        (Measured(1.98e9, "Hz"), "1.98 GHz"),
        (Measured(0.123, "share"), "12.3 %"),
        (Measured(533.04, "samples/s"), "533 samples/s"),
        (Measured(12_345.6, "samples/s"), "12346 samples/s"),
        (Measured(0.0, "W"), "0 W"),
        (Measured(0.0, "s", 0.0, 0.002), "0 s [0, 0.002]"),
        (Measured(0.0, "share"), "0 %"),
        (Absent("no sensor"), "n/a"),
        (None, "n/a"),
    ],
)
def test_fields(field, text):
    assert units.show(field) == text


def test_absent_says_why_and_is_never_a_number():
    assert units.why(Absent("no RAPL")) == "no RAPL"
    assert units.ratio(Absent("no pairs")) == "n/a"


def test_ratios():
    assert units.ratio(Measured(7.689, "1", 7.312, 8.085)) == "7.69x [7.31, 8.09]"


COMMAND = "pip install 'edgescope[torch]' :warning: [bold]"


def test_square_brackets_are_printed_and_not_taken_for_markup(capsys):
    table = doc.Table((doc.Column(COMMAND),), (doc.Row((COMMAND,)),), title=COMMAND)
    terminal.printed([table, doc.Text(COMMAND), doc.Items((COMMAND,))])
    lines = capsys.readouterr().out.split("\n")
    assert [line.removeprefix("- ") for line in lines if line] == [COMMAND] * 5
