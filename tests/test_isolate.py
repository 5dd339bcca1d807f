"""Whatever a model does, what comes back is a recorded Result with the reason. Real processes throughout."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from edgescope import isolate
from edgescope.isolate import Limits
from edgescope.records import Status, Trial

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def hostile_models_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH")))))


def trial(factory: str, **keys) -> Trial:
    keys = {"min_s": 0.2, "max_s": 0.5, "warmup": 0.1} | keys
    return Trial(model=f"hostile_models:{factory}", **keys)


def run(factory: str, limits: Limits | None = None, **keys):
    return isolate.run(trial(factory, **keys), limits or Limits(timeout_s=120))


def test_an_ordinary_model_is_measured():
    result = run("ordinary")
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason  # a busy machine is unstable
    assert result.verification.passed
    assert "no task accuracy" in result.verification.detail
    assert len(result.queries) > 10
    assert result.metrics["peak_rss_bytes"].value > 50e6


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("raises", "the sky is falling"),
        ("not_a_model", "hostile_models:not_a_model"),
        ("broken_factory", "no weights today"),
        ("no_such_name", "no_such_name"),
    ],
)
def test_what_raises_is_failed_with_its_message(factory, says):
    result = run(factory)
    assert result.status is Status.FAILED
    assert says in result.reason


def test_a_query_that_fails_in_the_middle_fails_the_trial_and_keeps_the_rows():
    result = run("raises_later", warmup=0, max_queries=100, max_s=60)
    assert result.status is Status.FAILED
    assert "only once" in result.reason
    assert len(result.queries) == 100
    assert result.metrics["errors"].value == 1


def test_a_hang_is_stopped_by_the_time_out_and_leaves_no_process():
    before = set(psutil.Process().children(recursive=True))
    result = run("hangs", Limits(timeout_s=8))
    assert result.status is Status.TIMEOUT
    assert "8 s" in result.reason
    assert set(psutil.Process().children(recursive=True)) == before


def test_nan_is_wrong_output():
    result = run("nan")
    assert result.status is Status.WRONG_OUTPUT
    assert "NaN" in result.reason


def test_a_fast_wrong_answer_is_wrong_output():
    result = run("wrong_in_bf16", precision="bf16")
    if result.status is Status.UNSUPPORTED:
        pytest.skip(result.reason)
    assert result.status is Status.WRONG_OUTPUT
    assert not result.verification.passed


def test_a_crash_names_the_signal():
    result = run("segfaults")
    assert result.status is Status.CRASHED
    assert "SIGSEGV" in result.reason


def test_a_model_that_eats_memory_is_stopped_at_the_floor():
    floor = psutil.virtual_memory().available - 1_500_000_000
    result = run("eats_memory", Limits(timeout_s=120, floor_bytes=floor))
    assert result.status is Status.OOM
    assert "floor" in result.reason
    assert "--batch" in result.reason
    assert psutil.virtual_memory().available > floor


def test_a_precision_the_device_lacks_is_unsupported():
    result = run("ordinary", precision="fp16")
    assert result.status is Status.UNSUPPORTED
    assert "fp16" in result.reason


def test_the_child_dies_with_its_parent():
    script = (
        "from edgescope import isolate\nfrom edgescope.records import Trial\n"
        "isolate.run(Trial(model='null', backend='null', options={'delay_us': 1000}, min_s=60, max_s=60))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 30
    family: list[psutil.Process] = []
    while len(family) < 2 and time.monotonic() < deadline:  # the trial's process and its sampler
        time.sleep(0.1)
        family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) == 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
