"""A run with too many tests that pass only when rerun fails, alone and with workers, and names them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reruns import MOST

HERE = Path(__file__).parent
CONFTEST = """
from pathlib import Path
from reruns import Reruns

def pytest_addoption(parser):
    parser.addoption("--reran", type=Path)

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reruns(config.option.reran))
"""
FLAKY = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({count}))
def test_flaky(number):
    seen = pathlib.Path(__file__).with_name(f"seen{{number}}")
    known = seen.exists()
    seen.touch()
    assert known

def test_good():
    pass
"""


def ran(folder, count, *args, more=""):
    """The exit status and the output of a run of a folder with so many flaky tests."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(FLAKY.format(count=count) + more)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for seen in folder.glob("seen*"):
        seen.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--reruns", "1", "-p", "no:cacheprovider", *args, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HERE), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


TOO_MANY = MOST + 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_too_many_that_pass_only_when_rerun_fail_the_run_and_are_named(tmp_path, workers):
    status, said = ran(tmp_path, TOO_MANY, *workers)
    assert status == 1 and f"{TOO_MANY + 1} passed" in said
    named = said.partition(f"passed only when rerun: {TOO_MANY}")[2]
    assert all(f"test_flaky[{n}]" in named for n in range(TOO_MANY))


@pytest.mark.slow
def test_as_many_as_may_do_not_and_are_kept_for_the_second_half_in_which_one_more_does(tmp_path):
    file = tmp_path / "kept" / "reran"
    status, said = ran(tmp_path, MOST, "--reran", str(file))
    assert status == 0 and f"passed only when rerun: {MOST}" in said
    assert len(file.read_text().splitlines()) == MOST
    assert ran(tmp_path, 0, "--reran", str(file))[0] == 0
    status, said = ran(tmp_path, 1, "--reran", str(file))
    assert status == 1 and f"passed only when rerun: {TOO_MANY}" in said
    assert len(file.read_text().splitlines()) == TOO_MANY


@pytest.mark.slow
def test_a_test_that_fails_twice_is_a_failure_and_no_flaky_one(tmp_path):
    status, said = ran(tmp_path, 1, more="\ndef test_bad():\n    assert False\n")
    assert status == 1 and "passed only when rerun: 1" in said
    assert "test_bad" not in said.partition("passed only when rerun: 1")[2].partition("=====")[0]
