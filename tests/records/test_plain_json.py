"""Stored text that nobody vouches for: which values a field takes, and what is told of the others."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from edgescope.records import Absent, Measured, Status, plain_json
from edgescope.records.plain_json import DEEPEST, parsed

NOTHING = Absent("")


@dataclass(frozen=True)
class Part:
    """A record with a field of each kind that records have."""

    name: str
    count: int = 0
    share: float | None = None
    fine: bool = True
    status: Status = Status.OK
    parts: tuple["Part", ...] = ()
    table: Mapping[str, float] = field(default_factory=dict)
    figure: Measured | Absent = NOTHING
    anything: Any = None


def read(**data):
    return plain_json.record(Part, {"name": "a", **data})


def test_every_kind_of_field_is_read():
    found = read(
        count=2.0,
        share=1,
        fine=False,
        status="oom",
        parts=[{"name": "b", "parts": [{"name": "c"}]}],
        table={"x": 1.5},
        figure={"value": 1.0, "unit": "s", "lo": None, "hi": None, "n": 3},
        anything=[{"a": 1}],
    )
    inner = Part("b", parts=(Part("c"),))
    assert found == Part(
        "a", 2, 1, False, Status.OOM, (inner,), {"x": 1.5}, Measured(1.0, "s", n=3), [{"a": 1}]
    )
    assert type(found.count) is int and read() == Part("a")


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"name": 7}, "name .* text, not int '7'"),
        ({"count": 1.5}, "count must be"),
        ({"count": 2**63}, "count must be"),
        ({"count": -(2**63) - 1}, "count must be"),
        ({"count": math.inf}, "count must be"),
        ({"count": True}, "count must be"),
        ({"share": "1"}, "share must be"),
        ({"share": False}, "share must be"),
        ({"share": 10**301}, "share must be"),
        ({"fine": 1}, "fine must be"),
        ({"status": "new"}, "'new'"),
        ({"parts": {"name": "b"}}, "parts .* a list"),
        ({"parts": [{"name": "b"}, {}]}, r"parts\[1\] lacks name"),
        (
            {"parts": [{"name": "b", "parts": [{"name": "c", "count": ""}]}]},
            r"parts\[0\]\.parts\[0\]\.count must be",
        ),
        ({"parts": [[]]}, r"parts\[0\] .* a table"),
        ({"table": {"x": "1"}}, "table.x must be"),
        ({"table": None}, "table .* a table, not nothing"),
        ({"more": 1, "also": 2}, "the whole has the unknown keys also, more"),
        ({"figure": {"value": "1", "unit": "s"}}, "figure.value must be"),
        ({"figure": {"unit": "s"}}, "figure lacks value"),
        ({"figure": {"absent": 7}}, "figure.reason must be"),
        ({"figure": {"absent": "x", "value": 1.0}}, "figure has the unknown keys value"),
        ({"figure": 7}, "figure .* a table"),
    ],
)
def test_a_value_of_another_kind_is_told_with_its_place(data, place):
    with pytest.raises(ValueError) as caught:
        read(**data)
    assert re.search(place, str(caught.value))


def test_the_ends_of_whole_numbers_are_read():
    assert [read(count=n).count for n in (2**63 - 1, -(2**63), 0, -1)] == [2**63 - 1, -(2**63), 0, -1]
    assert read(share=9.9e299).share == 9.9e299 and math.isnan(read(share=math.nan).share)


FINE = {"value": 1.5, "unit": "s", "lo": 1.0, "hi": None, "n": 2}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, Measured(1.5, "s", 1.0, None, 2)),
        ({"value": 1}, Measured(1, "s", 1.0, None, 2)),
        ({"lo": 1, "hi": 2.0}, Measured(1.5, "s", 1, 2.0, 2)),
        ({"lo": math.nan, "hi": math.nan}, Measured(1.5, "s", None, None, 2)),
        ({"hi": math.inf}, Measured(1.5, "s", 1.0, math.inf, 2)),
        ({"n": 2.0}, Measured(1.5, "s", 1.0, None, 2)),
        ({"value": math.inf}, Absent("the stored value is inf")),
        ({"value": math.nan, "lo": None}, Absent("the stored value is nan")),
    ],
)
def test_a_figure_is_read_as_it_was_written_and_what_is_no_number_is_absent(change, found):
    assert plain_json.field(FINE | change, "") == found
    assert type(getattr(plain_json.field(FINE | change, ""), "n", 0)) is int


def test_a_figure_may_lack_what_has_a_default():
    assert plain_json.field({"value": 1.5, "unit": "s"}, "") == Measured(1.5, "s")
    assert plain_json.field({"absent": "why"}, "") == Absent("why")


def nested(depth, kind):
    value = "end"
    for _ in range(depth):
        value = {"a": value} if kind is dict else [value]
    return value


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("tail", ["", "\u00e9"], ids=["plain", "with other letters"])
def test_so_deep_may_tables_nest(kind, tail):
    fine, deep = (
        json.dumps([nested(depth, kind), tail], ensure_ascii=False).encode()
        for depth in (DEEPEST, DEEPEST + 1)
    )
    assert parsed(fine) == [nested(DEEPEST, kind), tail]
    with pytest.raises(ValueError, match="deep"):
        parsed(deep)


def test_a_nesting_that_no_stack_holds_is_told_as_one():
    with pytest.raises(ValueError, match="deep"):
        parsed(b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize(("digits", "fine"), [(30, True), (31, False)])
def test_a_whole_number_has_thirty_digits_at_most(digits, fine):
    if fine:
        assert parsed(b"1" * digits) == int("1" * digits)
    else:
        with pytest.raises(ValueError, match="31 digits"):
            parsed(b"1" * digits)


@pytest.mark.parametrize(
    "letter", ["\x00", "\x08", "\x0b", "\x1b", "\x7f", "\x9f", "\u202a", "\u202e", "\u2066", "\u2069"]
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_what_a_terminal_obeys_is_replaced_in_keys_and_texts(letter, ascii_only):
    text = json.dumps({f"a{letter}": [f"{letter}b", {"c": letter}, 1]}, ensure_ascii=ascii_only)
    gone = "\N{REPLACEMENT CHARACTER}"
    assert parsed(text.encode()) == {f"a{gone}": [f"{gone}b", {"c": gone}, 1]}


def test_other_letters_stay():
    text = "a\t\n\u00a0\u00e9\u2029\u202f\u2065\u206a\u4e2d"
    assert parsed(json.dumps({text: text}).encode()) == {text: text}
    assert parsed(json.dumps({text: text}, ensure_ascii=False).encode()) == {text: text}


def test_a_value_is_quoted_by_its_beginning():
    with pytest.raises(ValueError, match="must be") as caught:
        read(count="x" * 41)
    assert str(caught.value).endswith(f"str {'x' * 40!r}")
    with pytest.raises(ValueError, match="unknown keys") as caught:
        read(**{"y" * 81: 1})
    assert str(caught.value).endswith(" " + "y" * 80)
