"""The script behind `make test-gpu`: what it counts, and that nothing run is no pass."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_suite  # noqa: E402

TESTS = """
import pytest
pytestmark = pytest.mark.gpu

def test_right(): pass
def test_wrong(): assert 1 == 2, "one is not two"
def test_left(): pytest.skip("no NVIDIA GPU: none")
@pytest.fixture
def broken(): raise OSError("no driver")
def test_of_what_breaks(broken): pass
@pytest.fixture
def late():
    yield
    raise OSError("not given back")
def test_that_ends_badly(late): pass
"""


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "test_made.py").write_text(TESTS)
    (tmp_path / "test_unreadable.py").write_text("import nothing_of_this_name")
    code = f"""
import sys, pytest; sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import gpu_suite, json
found = gpu_suite.Outcomes()
pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", {str(tmp_path)!r}, {str(tmp_path)!r},
             "--continue-on-collection-errors"], plugins=[found])
print(); print("ROWS", json.dumps(list(found.rows.values())))
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    import json

    return json.loads(out.stdout.rpartition("ROWS ")[2])


@pytest.mark.slow
def test_each_test_has_one_outcome_whatever_part_of_it_failed(rows):
    found = {row["test"].rpartition("::")[2]: row["outcome"] for row in rows}
    assert found == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_left": "skipped",
        "test_of_what_breaks": "failed",
        "test_that_ends_badly": "failed",
        "test_unreadable.py": "failed",
    }
    made = gpu_suite.counted(rows)["test_made.py"]
    assert made == {"passed": 1, "failed": 3, "skipped": 1}
    assert "one is not two" in next(row["why"] for row in rows if row["test"].endswith("test_wrong"))
    assert "skipped 1: no NVIDIA GPU: none" in gpu_suite.table(rows)


@pytest.mark.slow
def test_what_was_not_run_is_no_pass(rows):
    by = {row["outcome"]: row for row in rows}
    assert gpu_suite.status(rows) == 1
    assert gpu_suite.status([by["passed"], by["skipped"]]) == 0
    assert gpu_suite.status([by["skipped"]]) == gpu_suite.status([]) == gpu_suite.NONE_RAN
