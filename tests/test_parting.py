"""A run in parts: every file is in one of them, whichever machine asks, and none has much more than another."""

import json
from pathlib import Path

import pytest

from parting import SPENT, Spent, costs, joined, noted, part, parted

FILES = {frozenset({Path(f"test_{n}.py")}): 100 + 37 * n % 50 for n in range(41)}


def cost(files):
    return sum(FILES[frozenset({file})] for file in files)


@pytest.mark.parametrize("of", [1, 2, 3])
def test_every_file_is_in_one_part(of):
    parts = parted(FILES, of)
    assert sorted(file for each in parts for file in each) == sorted(min(group) for group in FILES)
    assert parts == parted(dict(reversed(FILES.items())), of)


def test_parts_differ_by_less_than_a_file():
    first, second = map(cost, parted(FILES, 2))
    assert abs(first - second) <= max(FILES.values())


def test_more_parts_than_files_leave_some_empty():
    assert parted({frozenset({Path("a")}): 3}, 2) == [{Path("a")}, set()]


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a test file."""

    def make(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return make


def test_a_file_counts_by_its_bytes_until_its_seconds_are_known(file):
    old, new = file("test_a.py", "four"), file("test_b.py", "eight or")
    assert costs([old, new], {}) == {frozenset({old}): 4, frozenset({new}): 8}
    assert costs([old, new], {str(old): 3.0}) == {frozenset({old}): 3.0, frozenset({new}): 6.0}


def test_files_that_name_a_heavy_package_go_together(file):
    one, two = file("test_a.py", "import torch"), file("test_b.py", "# torch, too")
    other = file("test_c.py", "torches")
    assert set(costs([one, two, other], {})) == {frozenset({one, two}), frozenset({other})}


def test_what_each_part_took_is_joined_for_the_next_run(tmp_path):
    for n in (1, 2):
        spent = Spent(tmp_path / f"{n}-of-2")
        spent.seconds[f"tests/test_{n}.py"] = float(n)
        spent.pytest_sessionfinish(pytest.ExitCode.OK)
    joined(tmp_path)
    assert noted(tmp_path / SPENT) == {"tests/test_1.py": 1.0, "tests/test_2.py": 2.0}


def test_a_run_that_was_cut_short_leaves_what_was_known(tmp_path):
    Spent(tmp_path).pytest_sessionfinish(pytest.ExitCode.INTERRUPTED)
    assert not (tmp_path / SPENT).exists()


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"a": None}), json.dumps({"a": "x"})])
def test_what_cannot_be_read_is_nothing_known(tmp_path, text):
    (tmp_path / SPENT).write_text(text, encoding="utf-8")
    assert noted(tmp_path / SPENT) == {}
    assert noted(tmp_path / "none.json") == {}


def test_a_part_is_told_by_its_number():
    assert part("2/3") == (2, 3)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/2", ""])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(ValueError, match=r"no part|invalid literal"):
        part(text)
