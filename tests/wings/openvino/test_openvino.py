"""OpenVINO's package in a process that is measured."""

import subprocess
import sys

import pytest

WATCHED = """
import sys, time
seen = []
about = ("os.fork", "subprocess.Popen", "socket.connect", "socket.getaddrinfo", "_thread.start_new_thread")
sys.addaudithook(lambda event, args: seen.append(event) if event in about else None)
import edgescope.wings.openvino.backend
time.sleep(0.5)
assert not seen, seen
"""


@pytest.mark.slow
def test_importing_it_starts_nothing_and_tells_nobody():
    """Its telemetry starts a thread, and from there a process, at each import."""
    pytest.importorskip("openvino")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
