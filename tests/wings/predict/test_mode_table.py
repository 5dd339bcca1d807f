"""Tables of modes as other tools write them."""

import json

import pytest

from edgescope.errors import UsageError
from edgescope.wings.predict import modes

CSV = """cpu_cores,gpu_hz,batch,seconds,power_w
4,1e6,16,0.32,14.5
4,1e6,16,0.16,
12,2e6,16,,
12,,4,0.5,20
"""


def test_rows_of_equal_knobs_are_runs_of_one_mode_and_seconds_are_a_samples(tmp_path):
    path = tmp_path / "modes.csv"
    path.write_text(CSV)
    grid, measured = modes.read_table(path)
    assert len(grid) == 3
    assert measured.seconds == {0: [0.02, 0.01], 2: [0.125]} and measured.watts == {0: [14.5], 2: [20.0]}


def test_json_tells_throughputs_processes_and_queries_in_flight(tmp_path):
    path = tmp_path / "modes.json"
    rows = [
        {"processes": 2, "in_flight": 4, "batch": 1, "seconds": 0.8, "throughput_sps": 1000},
        {"processes": 1, "in_flight": 1, "batch": 1, "throughput_sps": 4.0, "power_w": 3},
        {"processes": 1, "in_flight": 2, "batch": 1, "throughput_sps": None, "power_w": 3},
    ]
    path.write_text(json.dumps(rows))
    grid, measured = modes.read_table(path)
    assert len(grid) == 3
    assert measured.seconds == {0: [pytest.approx(0.1)], 1: [0.25]} and measured.watts == {1: [3.0]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "batch,seconds\n1,fast\n"),
        ("a.json", '[{"batch": 1, "seconds": true}]'),
        ("a.json", '[{"batch": 1, "power_w": "much", "seconds": 1}]'),
        ("a.json", "[1]"),
        ("a.json", "3"),
        ("a.json", "{"),
        ("absent.csv", None),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, name, text):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as raised:
        modes.read_table(path)
    assert raised.value.code == "E-PRED-7" and name in raised.value.what


def test_cells_become_numbers_switches_words_or_nothing():
    row = modes._with_numbers({"a": " 4 ", "b": "", "c": "true", "d": "MAXN", 5: 6})
    assert row == {"a": 4.0, "b": None, "c": True, "d": "MAXN", "5": 6}
