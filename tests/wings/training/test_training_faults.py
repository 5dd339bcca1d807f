"""What goes wrong in training: broken files, a loader that raises, a worker killed, a medium that vanishes, Ctrl-C."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import planted_stalls
from edgescope.bench.outcome import status_of
from edgescope.bench.parts import HERE
from edgescope.errors import UsageError
from edgescope.fit import Task
from edgescope.isolate import fresh
from edgescope.options import read
from edgescope.records import Status, Trial
from edgescope.wings.training import loading
from edgescope.wings.training.loop import Loop
from edgescope.wings.training.workload import Training
from photo_folders import photographs

LONG = {"warmup": 0, "min_s": 60, "max_s": 60}


def trial(model="lenet5", batch=8, **options):
    options = {"epochs": 1} | options
    return Trial(model=model, workload="training", batch=batch, workload_options=options, **LONG)


def loop_of(asked):
    return Loop(HERE.model(asked), asked, read("training", asked.workload_options, Training.OPTIONS))


@pytest.fixture
def folder(tmp_path):
    copied = tmp_path / "jpg"
    shutil.copytree(photographs(), copied)
    return copied


@pytest.mark.slow
def test_broken_files_stop_the_run_or_are_left_out_and_counted(folder):
    """In processes of their own, as all whose loader has workers: PyTorch's signal handler raises anywhere."""
    broken = sorted(folder.rglob("*.jpg"))[::8]
    for number, path in enumerate(broken):
        path.write_bytes(path.read_bytes()[: 200 * number])
    stopped = fresh.run(trial(images=str(folder), num_workers=1))
    assert stopped.status is Status.FAILED and "Error" in str(stopped.reason)
    result = fresh.run(trial(images=str(folder), num_workers=1, on_error="skip"))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert result.metrics["skipped_items"].value == len(broken) == 3
    assert result.queries.columns["samples"].sum() == 24 - 3
    assert len(result.artifact["left_out"]) == 3 and "item" in result.artifact["left_out"][0]


@pytest.mark.slow
def test_files_that_are_all_broken_are_an_error_with_a_reason(folder):
    for path in folder.rglob("*.jpg"):
        path.write_bytes(b"")
    made = loop_of(trial(images=str(folder), on_error="skip"))
    with pytest.raises(UsageError, match="E-STEP-4: an epoch "):
        made.step()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raises", "raises_in_worker"])
def test_a_loader_that_raises_ends_the_run_with_its_words(name):
    result = fresh.run(trial(f"planted_stalls:{name}", batch=1))
    assert result.status is Status.FAILED and "a broken file" in str(result.reason)


@pytest.mark.slow
def test_a_killed_worker_ends_the_run():
    result = fresh.run(trial("planted_stalls:kills", batch=1, epochs=0))
    assert result.status is Status.FAILED and "DataLoader worker" in str(result.reason)


def test_a_medium_that_vanishes_ends_the_run(folder):
    made = loop_of(trial(images=str(folder), epochs=0))
    made.step()
    shutil.rmtree(folder)
    with pytest.raises(OSError, match="No such file"):
        for _ in range(10):
            made.step()
    assert made.step() is None


def test_memory_that_runs_out_at_a_larger_batch_is_recorded_as_such(monkeypatch):
    def full(self, batch, mark=None):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr("edgescope.fit.Step.__call__", full)
    asked = trial(batch=64)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        loop_of(asked).alone(None)
    assert status_of(raised.value)[0] is Status.OOM


def test_no_folder_and_too_many_classes_are_refused_with_a_command(tmp_path):
    with pytest.raises(UsageError, match=r"E-IMAGES-1: .*such folder.*edgescope train data"):
        loop_of(trial(images=str(tmp_path / "none")))
    for label in range(11):
        (tmp_path / f"{label}").mkdir()
        shutil.copy(sorted(photographs().rglob("*.jpg"))[0], tmp_path / f"{label}" / "a.jpg")
    with pytest.raises(UsageError, match=r"E-STEP-5: .* has 11 classes, lenet5 has 10"):
        loop_of(trial(images=str(tmp_path)))


def test_a_loader_that_cannot_be_taken_apart_is_refused():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([torch.zeros(1)])

    with pytest.raises(Exception, match="E-LOADER-1"):
        loading.watched(torch.utils.data.DataLoader(Stream()), loading.Settings())


@pytest.mark.slow
def test_ctrl_c_reaps_the_workers(tmp_path):
    words = ["bench", "lenet5", "--workload", "training", "--batch", "8", "--duration", "60", "--warmup", "0"]
    words += ["--workload-option", "num_workers=2", "--store", str(tmp_path / "s")]
    env = os.environ | {"EDGESCOPE_MARK": str(tmp_path)}
    run = subprocess.Popen(
        [sys.executable, "-m", "edgescope", *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        _until(lambda: len(_marked(tmp_path)) >= 5)  # edgescope, the warden, the trial, two workers
        run.send_signal(signal.SIGINT)
        assert run.wait(30) == 130
        _until(lambda: not _marked(tmp_path))
    finally:
        run.kill()
        run.communicate()


def _marked(mark):
    """Processes whose environment carries the mark."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"EDGESCOPE_MARK={mark}".encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


def _until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_user_task_keeps_its_own_loss():
    network = nn.Linear(2, 1)
    rows = [(torch.ones(4, 2), torch.zeros(4, 1))]
    mine = Task(
        network,
        lambda epoch: rows,
        lambda net, b: net(b[0]).mean(),
        torch.optim.SGD(network.parameters(), 0.1),
    )
    assert list(loading.Batches(mine.batches).epoch(0)) == rows
    assert planted_stalls.read().batches(0).batch_size == planted_stalls.BATCH
