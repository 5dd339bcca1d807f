"""Whether another thread runs is told from its state, before the kernel has counted its time."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from edgescope.bench import worker

SPINS = """
import hashlib, sys
sys.stdin.readline()
print("on", flush=True)
data = bytes(1 << 22)
while True:
    hashlib.sha256(data)
"""


@contextmanager
def hashing():
    """Run a thread that holds no lock of the interpreter."""
    data, ended = bytes(1 << 22), threading.Event()

    def work():
        while not ended.is_set():
            hashlib.sha256(data)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_thread_that_runs_is_seen_at_once():
    assert not all(worker.awake(os.getpid()) for _ in range(50))
    with hashing():
        seen = []
        for _ in range(20):
            time.sleep(0.001)
            seen.append(worker.awake(os.getpid()))
    assert sum(seen) >= 15


def test_it_is_waited_for_no_longer_than_the_limit(monkeypatch):
    monkeypatch.setattr(worker, "ASLEEP_S", 0.1)
    with hashing():
        assert 0.1 <= worker.until_asleep(os.getpid()) < 0.3
    assert worker.until_asleep(os.getpid()) < 0.1


@pytest.mark.process
def test_another_process_is_asleep_until_it_is_told_to_work():
    with subprocess.Popen([sys.executable, "-c", SPINS], stdin=-1, stdout=-1) as process:
        try:
            end = time.monotonic() + 10
            while worker.awake(process.pid) and time.monotonic() < end:
                time.sleep(0.05)
            assert not worker.awake(process.pid)
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            assert any(worker.awake(process.pid) for _ in range(50))
        finally:
            process.kill()
    assert not worker.awake(process.pid)
