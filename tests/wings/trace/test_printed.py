"""Numbers as programs print them: which mark begins the decimals, and what each text is."""

from __future__ import annotations

import pytest

from edgescope.wings.trace.importers.summaries import decimal_mark, number


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
