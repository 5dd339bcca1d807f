"""A run without the tests marked `process` fails each other one that starts a process, whatever catches the failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CONFTEST = """
import sys
from processes import Processes

def pytest_configure(config):
    denied = Processes()
    config.pluginmanager.register(denied)
    sys.addaudithook(denied.heard)
"""
TESTS = """
import os, subprocess, sys, threading
import pytest

COMMAND = [sys.executable, "-c", "open('started', 'w')"]

def test_a_command():
    subprocess.run(COMMAND)

def test_a_fork():
    if not os.fork():
        os._exit(0)

def test_a_shell():
    os.system("touch started")

def test_a_thread():
    thread = threading.Thread(target=subprocess.run, args=(COMMAND,))
    thread.start()
    thread.join()

def test_it_goes_on():
    try:
        subprocess.run(COMMAND)
    except BaseException:
        pass

@pytest.fixture
def child():
    return subprocess.run(COMMAND)

def test_a_fixture(child):
    pass

def test_none():
    pass
"""
STARTING = ["a_command", "a_fork", "a_shell", "a_thread", "it_goes_on", "a_fixture"]


@pytest.mark.process
def test_each_test_that_starts_a_process_fails_and_starts_none(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-r", "fE", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    named = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    for name in STARTING:
        assert any(f"::test_{name}" in line for line in named), name
    assert not any("test_none" in line for line in named)
    assert not (tmp_path / "started").exists()
