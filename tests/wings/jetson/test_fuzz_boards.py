"""A small piece of benchmarks/fuzz_boards.py lines_and_trees, which runs a million lines and ten thousand trees."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from edgescope.devices import recording

sys.path.insert(0, str(Path(__file__).parents[2].parent / "benchmarks"))
import fuzz_boards


@pytest.mark.slow
def test_damaged_lines_raise_nothing():
    assert list(fuzz_boards.cases("line", 1, range(2000), [])) == []


@pytest.mark.slow
def test_damaged_trees_raise_only_our_own_errors():
    assert recording.shipped()
    assert list(fuzz_boards.cases("tree", 1, range(20), recording.shipped())) == []


def test_a_defect_would_be_found(monkeypatch):
    """The fuzz is no good if it cannot fail."""
    monkeypatch.setattr(fuzz_boards, "parse", lambda text: 1 / 0)
    ((name, trace), *_) = fuzz_boards.cases("line", 1, range(3), [])
    assert name == "line:1:0"
    assert "ZeroDivisionError" in trace


@pytest.mark.slow
def test_a_damaged_tree_is_mended(tmp_path):
    entries = tuple(recording.Entry(f"sys/a{i % 3}/f{i}", f"{i}\n") for i in range(30))
    tree = fuzz_boards.Tree(recording.Recording("x", "constructed", entries=entries), tmp_path)
    changed = 0
    for i in range(200):
        tree.damage(random.Random(i))
        changed += {p: (tmp_path / p).is_file() for p in tree.paths} != dict.fromkeys(tree.paths, True)
        tree.mend()
        assert all((tmp_path / e.path).read_text() == e.text for e in entries)
    assert changed > 50
