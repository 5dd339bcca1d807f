"""ONNX Runtime on the CPU: what it does with the CPUs it may use."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

ALLOWED = sorted(os.sched_getaffinity(0))
OPEN = """
import json, os, sys
import numpy as np
os.sched_setaffinity(0, json.loads(sys.argv[1]))
from edgescope import cache
from edgescope.backends.base import Spec
from edgescope.backends.ort.backend import OnnxRuntime
from edgescope.models import zoo
model, engine = zoo.get("squeezenet1_1"), OnnxRuntime()
options = json.loads(sys.argv[2])
artifact = engine.prepare(model, Spec(options=options), cache.folder("artifacts"))
before = set(os.listdir("/proc/self/task")) - {str(os.getpid())}  # a trial's process prepares nothing
session = engine.load(artifact)
session({given.name: np.zeros((1, *given.shape), np.float32) for given in model.inputs})
seen = set().union(*(os.sched_getaffinity(int(task)) for task in set(os.listdir("/proc/self/task")) - before))
print(json.dumps({"threads": session.effective().threads, "seen": sorted(seen)}))
"""


def opened(cpus, options):
    command = [sys.executable, "-c", OPEN, json.dumps(cpus), json.dumps(options)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.skipif(len(ALLOWED) < 2, reason="one CPU: no mask can be narrower")
@pytest.mark.parametrize("cpu", (ALLOWED[0], ALLOWED[-1]))
def test_no_thread_runs_outside_the_affinity_mask(cpu):
    """Left to itself it pins a thread to every core of the machine, whatever the mask says."""
    assert opened([cpu], {}) == {"threads": 1, "seen": [cpu]}


def test_threads_that_were_asked_for_are_kept():
    assert opened(ALLOWED[:1], {"threads": 3}) == {"threads": 3, "seen": ALLOWED[:1]}
