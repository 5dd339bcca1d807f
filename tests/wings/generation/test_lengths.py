"""Lengths of requests: one for all, or a file's rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.options import settled
from edgescope.wings.generation import lengths
from edgescope.wings.generation.lengths import Lengths
from edgescope.wings.generation.workload import Generation

CSV = "prompt_tokens,output_tokens\n300,20\n7,5\n"


def trace(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        "\ufeff" + CSV,
        "TIMESTAMP,ContextTokens,GeneratedTokens\nx,300,20\ny,7,5\n",
        '{"timestamp": 1, "input_length": 300, "output_length": 20, "hash_ids": [1]}\n\n'
        '{"input_length": 7, "output_length": 5}\n',
    ],
)
def test_rows_of_csv_and_of_json_lines_are_read(tmp_path, text):
    assert lengths.read(trace(tmp_path, text)) == [(300, 20), (7, 5)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "prompt_tokens,output_tokens\n",
        CSV + "x,5\n",
        CSV + "5,0\n",
        "{]\n",
        CSV + "5\n",
        "[1]",
    ],
)
def test_what_is_no_trace_is_refused_before_anything_is_measured(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        lengths.read(trace(tmp_path, text))
    assert caught.value.message.code == "E-GEN-8"


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = trace(tmp_path_factory.mktemp("any"), "")
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        assert all(min(row) >= 1 for row in lengths.read(path))
    except UsageError as error:
        assert error.message.code == "E-GEN-8"


def test_requests_take_the_rows_in_turn_and_the_content_is_part_of_the_trial(tmp_path):
    path = trace(tmp_path, CSV)
    pinned = settled({"lengths": str(path)}, Generation.OPTIONS)
    assert pinned["lengths"].startswith(str(path) + "#")
    found = lengths.of({"lengths": pinned["lengths"]})
    assert [found.of(n) for n in range(3)] == [(300, 20), (7, 5), (300, 20)]
    assert found.longest == (300, 20) and found.warmed == [7, 300]
    one = lengths.of({"lengths": "", "prompt_tokens": 9, "output_tokens": 4})
    assert one.of(5) == (9, 4) and one.warmed == [9]


def test_a_long_trace_is_warmed_up_at_a_few_lengths_up_to_its_longest():
    found = Lengths([(n, 1) for n in range(1, 1001)]).warmed
    assert len(found) == lengths.WARMED and found[-1] == 1000
