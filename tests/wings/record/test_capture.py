"""`edgescope record`: what is read, what never is, and what one file holds of it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgescope.cli.main import main
from edgescope.devices import manifest, recording, replay
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.recording import Recording
from edgescope.errors import StoreError, UsageError
from edgescope.records import Machine, Trial
from edgescope.store.results import Store
from edgescope.wings.jetson.soc import process_bytes
from edgescope.wings.record import capture, nameless
from edgescope.wings.record import capture as recorder
from edgescope.wings.record.capture import Plan
from fake_board import board, write
from making import result


class Clock:
    """Time that passes by sleeping; a hook sees each step."""

    def __init__(self, hook=lambda now: None):
        self.now, self.hook = 100.0, hook

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.hook(self.now - 100.0)


def captured(root, seconds=2.0, hook=lambda now: None):
    clock = Clock(hook)
    return capture.capture("b", Plan(seconds, 2.0), root, clock=clock, sleep=clock.sleep)


def test_frames_hold_what_changed_and_when(tmp_path):
    root = board(tmp_path)
    zone = "sys/class/thermal/thermal_zone0/temp"

    def heat(now):
        write(root, {zone: "45500\n" if now < 1.2 else "61000\n"})

    got = captured(root, hook=heat)
    assert [(f.t_s, dict(f.files)) for f in got.frames] == [(1.5, {zone: "61000\n"})]
    assert got.made == "captured" and got.sources["here"]


def test_a_sensor_that_is_unplugged_while_recording_is_no_constant(tmp_path):
    root = board(tmp_path)
    zone = "sys/class/thermal/thermal_zone0/temp"

    def plug(now):
        if 0.9 < now < 1.4:
            (root / zone).unlink(missing_ok=True)
        else:
            write(root, {zone: "45500\n"})

    got = captured(root, hook=plug)
    assert [(f.t_s, dict(f.files)) for f in got.frames] == [(1.0, {zone: None}), (1.5, {zone: "45500\n"})]


def test_of_gpu_memory_the_sizes_are_taken_and_the_processes_are_not(tmp_path):
    """A client list as jetson_stats reads it; the processes are made up."""
    clients = "sys/kernel/debug/nvmap/iovmm/clients"
    text = (
        "CLIENT                        PROCESS      PID        SIZE\n"
        "user                    annas robot 7     4711      12345K\n"
        "kernel                         kernel        0        678K\n"
        "annas note\n"
        "total                                              13023K\n"
    )
    write(board(tmp_path), {clients: text})
    (entry,) = [e for e in captured(tmp_path).entries if e.path == clients]
    assert "annas" not in entry.text and "4711" not in entry.text and "note" not in entry.text
    assert [line.split()[-1] for line in entry.text.splitlines()] == ["SIZE", "12345K", "678K", "13023K"]
    assert "not among NvMap's 1 clients" in process_bytes(entry.text, 4711).reason


def test_what_names_a_machine_or_its_owner_is_not_read(tmp_path):
    root = board(tmp_path)
    secret = "verysecret77"
    write(
        root,
        {
            "proc/sys/kernel/hostname": secret,
            "proc/device-tree/serial-number": secret,
            "proc/self/cgroup": f"0::/{secret}",
            "proc/cmdline": secret,
            "proc/self/environ": secret,
            "proc/1/cmdline": secret,
            "proc/version": secret,
            "sys/class/dmi/id/product_serial": secret,
            "sys/class/dmi/id/product_uuid": secret,
            "sys/class/net/eth0/address": secret,
            "etc/machine-id": secret,
            "etc/hostname": secret,
            "proc/cpuinfo": f"processor\t: 0\nSerial\t\t: {secret}\n",
            "proc/stat": f"cpu  1 0 0 1 0 0 0 0 0 0\nintr {secret}\nctxt 5\nbtime 1\n",
        },
    )
    text = "".join(recording.lines(captured(root)))
    assert secret not in text
    assert "processor" in text and "ctxt 5" in text


def test_what_cannot_be_read_is_absent_with_the_reason(tmp_path, monkeypatch):
    root = board(tmp_path)
    real = capture._read

    def read(where, path):
        if path.endswith("energy_uj"):
            raise PermissionError(13, "Permission denied")
        return real(where, path)

    monkeypatch.setattr(capture, "_read", read)
    (entry,) = [e for e in captured(root).entries if e.path.endswith("energy_uj")]
    assert entry.text is None
    assert entry.absent == "no permission to read /sys/class/powercap/intel-rapl:0/energy_uj"


def test_this_machine_recorded_and_played_has_the_same_facts(tmp_path):
    got = capture.capture("here", Plan(0.2, 10.0))
    assert any("proc/stat" in f.files for f in got.frames)
    recorder.write(got, tmp_path / "here.zip")
    there, now = replay.devices(str(tmp_path / "here.zip"))["cpu"].machine()
    here, live = CpuDevice().machine()
    assert there == here | {"architecture": {"absent": "not in the recording: no file says it"}}
    assert "absent" in now["affinity"] and "absent" in now["libc"]
    for key in ("memory_total_bytes", "online_cpus", "kernel", "boot_time_s"):
        assert now[key] == live[key]
    assert now["hostname"] == {"absent": "no /proc/sys/kernel/hostname"}
    text = "".join(recording.lines(got))
    if len(socket.gethostname()) > 4:
        assert socket.gethostname() not in text


AUDIT = """
import os, sys
from pathlib import Path
from edgescope.wings.record import capture
from edgescope.devices import recording
from edgescope.devices.replay import Stage
from edgescope.devices import replay
import importlib
opened, base = set(), [""]
def hook(event, args):
    if event == "open" and base[0] and isinstance(args[0], (str, bytes)):
        name = os.fsdecode(args[0])
        if name.startswith(base[0]):
            opened.add(name[len(base[0]):])
sys.addaudithook(hook)
for name in recording.shipped():
    devices = replay.devices(name)
    root = devices["replayed"].stage.root
    base[0] = str(root) + "/"
    for key, device in devices.items():
        device.machine()
        for spec in device.sources(os.getpid()):
            module, cls = spec.target.split(":")
            getattr(importlib.import_module(module), cls)(**spec.kwargs).read()
        if hasattr(device, "throttle_watch"):
            with device.throttle_watch():
                pass
    base[0] = ""
own = f"proc/{os.getpid()}/"
unknown = sorted({p for p in opened if not capture.known(p) and not p.startswith(own)})
assert len(opened) > 100, len(opened)
assert not unknown, unknown
"""


@pytest.mark.slow
def test_every_file_that_a_device_opens_on_a_board_is_on_the_list():
    done = subprocess.run([sys.executable, "-c", AUDIT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


TINY = Recording("tiny", "captured", "", {}, (), ())


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    out = tmp_path / "x.board.jsonl"
    out.write_text("before")

    def broken(what):
        yield "half"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording, "lines", broken)
    with pytest.raises(StoreError, match=r"E-REC-6.*No space left"):
        recorder.write(TINY, out)
    assert out.read_text() == "before" and os.listdir(tmp_path) == ["x.board.jsonl"]
    with pytest.raises(StoreError, match="E-REC-6"):
        recorder.write(TINY, tmp_path / "nowhere/x.board.jsonl")


@pytest.mark.slow
def test_results_travel_without_their_owners_name(tmp_path):
    made = result(Trial(model="null", backend="null"))
    secret = "verysecret77"
    state = {
        "cpu": {"hostname": secret, "kernel": "6.1"},
        "environment": {"EDGESCOPE_X": secret},
        "command": [secret],
        "git": {"commit": secret},
        "nvidia": {"gpu0": {"uuid": secret, "name": "GPU"}},
    }
    from dataclasses import replace

    made = replace(made, machine=Machine({"cpu": {"board": "NVIDIA Jetson #t77x"}}, state))
    Store(tmp_path / "store").save(made)
    size = recorder.write(TINY, tmp_path / "x.zip", tmp_path / "store")
    assert size == (tmp_path / "x.zip").stat().st_size
    assert recording.read(tmp_path / "x.zip").board == "tiny"
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        archive.extractall(tmp_path / "out")
    (got,) = Store(tmp_path / "out/results").results()
    assert got.machine.stable["cpu"]["board"] == "NVIDIA Jetson"
    assert got.machine.state["nvidia"]["gpu0"]["name"] == "GPU"
    full = Store(tmp_path / "out/results").full(got)
    assert len(full.queries.columns["query_id"]) == len(made.queries.columns["query_id"])
    everything = b"".join(p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert secret.encode() not in everything and b"t77x" not in everything


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["-o", "x.board.jsonl", "--seconds", "0"], "E-REC-3"),
        (["-o", "x.board.jsonl", "--hz", "1000"], "E-REC-3"),
        (["-o", "x.txt"], "E-REC-4"),
        (["-o", "x.board.jsonl", "--results", "."], "E-REC-4"),
        (["-o", "x.zip", "--results", "nowhere"], "E-REC-5"),
    ],
)
def test_flags_that_cannot_be_meant(flags, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["record", *flags]) == 2
    assert code in capsys.readouterr().err
    assert not os.listdir(tmp_path)


def test_a_recording_is_not_recorded(tmp_path, capsys):
    assert main(["--board", "nano", "record", "-o", str(tmp_path / "x.zip")]) == 2
    assert "E-REC-8" in capsys.readouterr().err


def test_a_file_of_many_pages_is_read_whole(tmp_path):
    cpus = "".join(f"processor\t: {n}\nflags\t\t: {'fpu ' * 300}\n\n" for n in range(64))
    write(board(tmp_path), {"proc/cpuinfo": cpus})
    (entry,) = [e for e in captured(tmp_path).entries if e.path == "proc/cpuinfo"]
    assert entry.text == cpus
    (real,) = [e for e in captured(Path("/"), 0.5).entries if e.path == "proc/interrupts"]
    assert "soctherm" in real.text or real.text == ""


@pytest.mark.slow
def test_the_command_records_this_machine_and_another_plays_it(tmp_path, capsys):
    out = tmp_path / "mine.board.jsonl"
    assert main(["record", "-o", str(out), "--seconds", "0.4", "--hz", "5", "--name", "mine"]) == 0
    *said, command = capsys.readouterr().out.splitlines()
    assert ": mine, " in " ".join(said)
    _, *words = shlex.split(command)  # in one piece, however long the path is
    assert words == ["--board", str(out), "doctor"]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["state"]["replayed"]["made"] == "captured"
    real = manifest.machine({"cpu": CpuDevice()})
    assert report["machine"]["stable"]["cpu"]["cpu"] == real.stable["cpu"]["cpu"]
    assert Path(out).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (
            {"proc/device-tree/model": "NVIDIA Jetson\0", "sys/class/dmi/id/product_name": "other"},
            "NVIDIA Jetson",
        ),
        ({"proc/device-tree/model": "\0\n", "sys/class/dmi/id/product_name": " PowerEdge\n"}, "PowerEdge"),
        ({}, "unnamed board"),
    ],
)
def test_a_board_is_called_as_its_tree_or_its_firmware_says(tmp_path, files, name):
    assert recorder.board_name(write(tmp_path, files)) == name


def test_what_names_an_owner_is_left_out_at_any_depth():
    facts = {
        "cpus": [{"serial": 7, "model": "Orin #A1b2"}, ("x #1", 2)],
        "network": {"hostname": "h", "mac_address": "m", "speed": 1},
        **{name: "secret" for name in ("environment", "command", "git", "board_uuid", "serial_number")},
        **{name: "kept" for name in ("environments", "command_line", "digit")},
    }
    out = {"absent": "left out of the recording"}
    assert nameless._without(facts) == {
        "cpus": [{"serial": out, "model": "Orin"}, ["x", 2]],
        "network": {"hostname": out, "mac_address": out, "speed": 1},
        **{name: out for name in ("environment", "command", "git", "board_uuid", "serial_number")},
        **{name: "kept" for name in ("environments", "command_line", "digit")},
    }


@pytest.mark.parametrize(
    ("seconds", "hz", "fine"),
    [(3600, 50, True), (3600.1, 1, False), (1, 50.1, False), (0, 1, False), (1, 0, False), (0.1, 0.1, True)],
)
def test_so_long_and_so_often_a_machine_is_recorded(seconds, hz, fine):
    try:
        assert recorder.plan("a.zip", seconds, hz, None) == Plan(seconds, hz) and fine
    except UsageError as error:
        assert error.message.code == "E-REC-3" and not fine


@pytest.mark.parametrize(
    ("output", "results", "code"),
    [
        ("a.board.jsonl", False, ""),
        ("a.zip", False, ""),
        ("a.zip", True, ""),
        ("a.board.jsonl", True, "E-REC-4"),
        ("a.txt", False, "E-REC-4"),
        ("a.zip", "no such", "E-REC-5"),
    ],
)
def test_results_need_an_archive(tmp_path, output, results, code):
    store = str(tmp_path) if results is True else results or None
    try:
        assert recorder.plan(output, 1, 1, store) and not code
    except UsageError as error:
        assert error.message.code == code


def test_paths_that_a_recording_leaves_out_are_known():
    assert (
        capture.known("proc/self/cgroup") and capture.known("proc/stat") and not capture.known("etc/passwd")
    )


def test_a_closed_folder_stands_for_all_below_it(tmp_path, monkeypatch):
    root = board(tmp_path)
    (root / "sys/kernel/debug").mkdir(parents=True, exist_ok=True)
    asked = []
    monkeypatch.setattr(capture.os, "access", lambda path, how: asked.append(how))
    first = next(iter(capture._entries(root)))
    assert (first.path, first.text) == ("sys/kernel/debug", None) and "/sys/kernel/debug" in first.absent
    assert asked == [os.R_OK | os.X_OK]


def test_no_more_files_are_read_than_a_recording_holds(tmp_path, monkeypatch):
    root = board(tmp_path)
    every = [entry.path for entry in capture._entries(root)]
    monkeypatch.setattr(capture, "MAX_ENTRIES", 3)
    assert [entry.path for entry in capture._entries(root)] == every[:3] and len(every) == len(set(every)) > 3


def test_a_file_whose_reading_would_wait_is_absent(tmp_path, monkeypatch):
    def waits(handle, most):
        raise BlockingIOError

    root = board(tmp_path)
    monkeypatch.setattr(capture.os, "read", waits)
    assert capture._text(root, "proc/stat") is None
    assert "reading would wait" in capture._entry(root, "proc/stat").absent or capture._entry(
        root, "proc/stat"
    ).absent.endswith(os.strerror(11))


@pytest.mark.parametrize(
    ("size", "read"), [(524_288, 524_288), (524_287, 524_287 + 524_288), (600_000, 600_000)]
)
def test_half_a_mebibyte_of_a_file_is_enough(tmp_path, monkeypatch, size, read):
    parts = [b"a" * size, b"b" * 524_288, b""]
    monkeypatch.setattr(capture.os, "read", lambda handle, most: parts.pop(0))
    (tmp_path / "file").touch()
    assert len(capture._read(tmp_path, "file")) == read


def test_a_recording_says_how_much_of_what_it_holds(tmp_path):
    got = captured(board(tmp_path), seconds=1.9)
    assert got.about == f"{sum(e.text is not None for e in got.entries)} files over 1.9 s at 2 Hz"
    clock = Clock()
    capture.capture("b", Plan(1.9, 2.0), tmp_path, clock=clock, sleep=clock.sleep)
    assert clock.now == 101.5
