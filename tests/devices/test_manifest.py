from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from edgescope.devices import manifest
from edgescope.devices.base import NullDevice
from edgescope.devices.cpu.device import CpuDevice
from edgescope.errors import DeviceError
from edgescope.process import SCRATCH
from edgescope.wings.nvidia import NvidiaDevice
from fake_board import board
from fake_nvml import FakeNvml, NVMLError_LibraryNotFound


def devices(root, nvml):
    return {"cpu": CpuDevice(root), "nvidia": NvidiaDevice(nvml), "null": NullDevice()}


@pytest.mark.slow
def test_a_driver_that_fails_to_load_makes_it_the_machine_without_that_gpu_and_says_why(tmp_path):
    root = board(tmp_path)
    absent = FakeNvml(refuse={"nvmlInit": NVMLError_LibraryNotFound()})
    without = manifest.machine(devices(root, absent))
    assert "libnvidia-ml" in without.state["nvidia"]["absent"]
    assert without.id == manifest.machine({"cpu": CpuDevice(root)}).id
    assert manifest.machine(devices(root, FakeNvml())).id != without.id


@pytest.mark.slow
def test_the_manifest_is_json_and_quick():
    took = []
    for _ in range(3):
        start = time.perf_counter()
        got = manifest.machine({"cpu": CpuDevice()})
        took.append(time.perf_counter() - start)
    assert min(took) < 1.5  # git included; some 50 ms on a quiet machine
    again = json.loads(json.dumps({"stable": got.stable, "state": got.state}))
    assert again["state"]["packages"]["numpy"][0].isdigit()
    assert again["state"]["python"].startswith("cpython")


@pytest.mark.slow
def test_versions_come_without_importing():
    code = (
        "import sys; from edgescope.devices import manifest; s = manifest.software();"
        "print([m for m in ('torch', 'onnx', 'openvino', 'onnxruntime', 'duckdb') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_a_missing_package_is_absent(monkeypatch):
    monkeypatch.setattr(manifest, "PACKAGES", ("no-such-package",))
    found = manifest.software()["packages"]
    assert found["no-such-package"] == {"absent": "not installed"}
    assert list(found) == sorted(found) and {"torch", "openvino", "ai-edge-litert"} <= set(found)


def test_variables_that_matter_and_never_secrets():
    got = manifest.environment(
        {
            "OMP_NUM_THREADS": "2",
            "LD_PRELOAD": "libjemalloc.so",
            "NVIDIA_API_KEY": "k",
            "TORCH_AUTH_TOKEN": "t",
            "HOME": "/root",
            "CUDA_VISIBLE_DEVICES": "0",
        }
    )
    assert got == {"CUDA_VISIBLE_DEVICES": "0", "LD_PRELOAD": "libjemalloc.so", "OMP_NUM_THREADS": "2"}


def test_credentials_on_the_command_line_are_masked():
    argv = ["edgescope", "bench", "--token", "abc", "--api-key=def", "--batch", "4", "key.onnx"]
    assert manifest.masked(argv) == [
        "edgescope",
        "bench",
        "--token",
        "***",
        "--api-key=***",
        "--batch",
        "4",
        "key.onnx",
    ]


@pytest.mark.process
def test_the_command_line_is_recorded_masked_and_only_once(monkeypatch):
    monkeypatch.setenv(manifest.COMMAND, "edgescope bench null --api-key hunter2 --auth=hunter3")
    monkeypatch.setenv("EDGESCOPE_STORE", "here")
    monkeypatch.setenv(SCRATCH, "/tmp/another-in-every-run")
    state = manifest.machine({"null": NullDevice()}).state
    assert state["command"] == ["edgescope", "bench", "null", "--api-key", "***", "--auth=***"]
    assert state["environment"]["EDGESCOPE_STORE"] == "here"
    assert "hunter" not in json.dumps(state) and "another-in-every-run" not in json.dumps(state)


def run_git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.mark.process
def test_git_commit_and_dirt(tmp_path):
    assert "absent" in manifest.git(tmp_path)
    run_git(tmp_path, "init", "-q")
    (tmp_path / "f").write_text("1")
    run_git(tmp_path, "add", "f")
    run_git(tmp_path, "commit", "-qm", "one")
    clean = manifest.git(tmp_path)
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "f").write_text("2")
    assert manifest.git(tmp_path) == {"commit": clean["commit"], "dirty": True}


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        (FileNotFoundError(), {"absent": "git is not installed"}),
        (
            subprocess.TimeoutExpired("git", 1),
            {"absent": f"git status took longer than {manifest._GIT_S:.0f} s"},
        ),
        ((128, "", "fatal: no repository\nmore\n"), {"absent": "fatal: no repository"}),
        ((3, "", ""), {"absent": "git status: exit code 3"}),
        ((0, "# branch.oid abc\n# branch.head main\n", ""), {"commit": "abc", "dirty": False}),
        ((0, "# branch.oid abc\n1 .M x\n", ""), {"commit": "abc", "dirty": True}),
        ((0, "", ""), {"commit": "", "dirty": False}),
    ],
)
def test_what_git_says_or_why_it_says_nothing(monkeypatch, tmp_path, ends, found):
    asked = []

    def run(command, **how):
        asked.append((command, how))
        if isinstance(ends, Exception):
            raise ends
        return subprocess.CompletedProcess(command, *ends)

    monkeypatch.setattr(manifest.subprocess, "run", run)
    assert manifest.git(tmp_path) == found
    ((command, how),) = asked
    assert command[:3] == ["git", "-C", str(tmp_path)] and how["env"]["GIT_OPTIONAL_LOCKS"] == "0"
    assert (how["check"], how["text"], how["timeout"]) == (False, True, manifest._GIT_S)


def test_settings_of_other_devices_stay_where_one_cannot_list_its_own():
    class Device:
        def __init__(self, absent="", modes=None):
            self.absent, self.found = absent, modes

        def present(self):
            return self.absent

        def modes(self):
            if isinstance(self.found, Exception):
                raise self.found
            return self.found

    said = DeviceError("E-NVP-1", "no mode")
    devices = {
        "a": Device("absent", {"lost": 1}),
        "b": Device("", {"kept": 2}),
        "c": Device("", said),
        "d": Device("", OSError("x" * 300)),
        "e": Device("", {"also": 3}),
    }
    modes, (first, second) = manifest.settings(devices)
    assert modes == {"kept": 2, "also": 3} and first is said
    assert second.message.code == "E-MODE-14" and len(second.message.evidence) == 200
