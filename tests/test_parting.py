"""A run in parts: every file is in one of them, whichever machine asks, and none has much more than another."""

from pathlib import Path

import pytest

from parting import part, parted, sizes

FILES = {Path(f"test_{n}.py"): 100 + 37 * n % 50 for n in range(41)}


@pytest.mark.parametrize("of", [1, 2, 3])
def test_every_file_is_in_one_part(of):
    parts = parted(FILES, of)
    assert sorted(file for each in parts for file in each) == sorted(FILES)
    assert parts == parted(dict(reversed(FILES.items())), of)


def test_parts_differ_by_less_than_a_file():
    first, second = (sum(FILES[file] for file in each) for each in parted(FILES, 2))
    assert abs(first - second) <= max(FILES.values())


def test_more_parts_than_files_leave_some_empty():
    assert parted({Path("a"): 3}, 2) == [{Path("a")}, set()]


def test_a_file_counts_by_its_bytes(tmp_path):
    (tmp_path / "test_a.py").write_text("four", encoding="utf-8")
    assert sizes([tmp_path / "test_a.py"]) == {tmp_path / "test_a.py": 4}


def test_a_part_is_told_by_its_number():
    assert part("2/3") == (2, 3)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/2", ""])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(ValueError, match=r"no part|invalid literal"):
        part(text)
