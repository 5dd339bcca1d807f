"""Replay: files change in place as time passes, processes share a stage, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgescope.bench import present
from edgescope.cli.main import main
from edgescope.devices import manifest, replay
from edgescope.devices.base import Failed, SourceSpec, Unsupported
from edgescope.devices.kernel_files import KernelFile
from edgescope.devices.replay import Stage
from edgescope.errors import SettingError
from edgescope.modes.catalog import listing
from edgescope.registry import REPLAYED
from edgescope.telemetry.sampler import Sampler

STAT = "cpu  {} 0 0 {} 0 0 0 0 0 0\nctxt 5\nbtime 1\n"
ROWS = [
    {"schema": 1, "board": "tiny", "made": "captured", "about": "", "sources": {"t": "this test"}},
    {"path": "proc/stat", "text": STAT.format(100, 900)},
    {"path": "proc/meminfo", "text": "MemTotal: 100 kB\nMemAvailable: 50 kB\n"},
    {"path": "sys/class/thermal/thermal_zone0/type", "text": "CPU-therm\n"},
    {"path": "sys/class/thermal/thermal_zone0/temp", "text": "41000\n"},
    {"path": "proc/loadavg", "absent": "no permission to read /proc/loadavg"},
    {
        "t_s": 0.3,
        "files": {"sys/class/thermal/thermal_zone0/temp": "142500\n", "proc/stat": STAT.format(110, 950)},
    },
    {
        "t_s": 0.8,
        "files": {"sys/class/thermal/thermal_zone0/temp": "9000\n", "proc/stat": STAT.format(120, 980)},
    },
]
TEMP = "sys/class/thermal/thermal_zone0/temp"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.board.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


class Time:
    """The stage's clock in a test's hands."""

    def __init__(self):
        self.now = 5.0

    def monotonic_ns(self):
        return int(self.now * 1e9)

    time = staticmethod(time.time)


def test_a_stage_moves_in_place_and_holds_at_the_end(file, monkeypatch):
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    played = Stage.make(file)
    zone = KernelFile(played.root / TEMP, 32)

    def at(now, *, begin=True):
        clock.now = now
        played.advance(begin=begin)
        return zone.number()

    assert at(6.0, begin=False) == at(7.0, begin=False) == 41000  # time stands until something watches
    assert at(8.0) == at(8.29) == 41000
    assert at(8.31) == at(8.79) == 142500
    assert at(8.81) == at(99.0) == 9000
    assert zone.read() == b"9000\n"  # shorter than what was there before


def test_a_sensor_that_was_unplugged_fails_until_it_is_back(file, monkeypatch):
    rows = [
        *ROWS[:-2],
        *({"t_s": t, "files": {TEMP: text}} for t, text in ((1, None), (2, None), (3, "7000\n"))),
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    played = Stage.make(file)
    zone = KernelFile(played.root / TEMP, 32)
    played.advance()
    assert zone.number() == 41000
    for clock.now in (6.1, 7.1):
        played.advance()
        assert isinstance(zone.number(), Failed)  # open since before
        assert isinstance(KernelFile(played.root / TEMP, 32).number(), Unsupported)  # opened now
    clock.now = 8.1
    played.advance()
    assert zone.number() == KernelFile(played.root / TEMP, 32).number() == 7000


def test_frames_that_were_slept_through_are_all_applied(file, monkeypatch):
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    played = Stage.make(file)
    played.advance()
    clock.now += 100
    played.advance()
    assert (played.root / TEMP).read_text() == "9000\n"


@pytest.mark.process
def test_a_process_that_joins_shares_time_and_files(file):
    played = Stage.make(file)
    code = (
        "import sys, time, pathlib\nfrom edgescope.devices.replay import Stage\n"
        "s = Stage.join(pathlib.Path(sys.argv[1])); s.advance(); time.sleep(0.35); s.advance()"
    )
    subprocess.run([sys.executable, "-c", code, str(played.folder)], check=True)
    assert (played.root / TEMP).read_text() in ("142500\n", "9000\n")
    time.sleep(0.5)
    played.advance(begin=False)  # it was started over there
    assert (played.root / TEMP).read_text() == "9000\n"


MAKER = (
    "import sys, time, pathlib\nfrom edgescope.devices.replay import Stage\n"
    "s = Stage.make(pathlib.Path(sys.argv[1])); print(s.folder, flush=True)\n"
)


@pytest.mark.process
def test_a_stage_goes_with_its_process(file):
    done = subprocess.run(
        [sys.executable, "-c", MAKER, str(file)], check=True, capture_output=True, text=True
    )
    assert not Path(done.stdout.strip()).exists()


@pytest.mark.process
def test_what_a_killed_process_left_goes_at_the_next_start_and_a_living_ones_stays(file):
    code = MAKER + "time.sleep(60)"
    makers = [
        subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=-1, text=True) for _ in range(2)
    ]
    folders = [Path(maker.stdout.readline().strip()) for maker in makers]
    try:
        makers[0].send_signal(signal.SIGKILL)
        makers[0].wait()
        assert folders[0].exists()
        Stage.make(file)
        assert not folders[0].exists() and folders[1].exists()
    finally:
        for maker in makers:
            maker.kill()
            maker.communicate()
    replay.sweep()
    assert not folders[1].exists()


@pytest.mark.wings
@pytest.mark.process
def test_the_real_sampler_reads_a_moving_board(file, tmp_path):
    here = replay.devices(str(file))
    specs = [spec for device in here.values() for spec in device.sources(os.getpid())]
    with Sampler(specs, 20, tmp_path) as sampler:
        time.sleep(1.3)
    got = sampler.readings()
    assert set(got.series("temperature_cpu_therm_c")[1]) == {41.0, 142.5, 9.0}
    _, busy = got.series("cpu_busy")
    assert len(busy) == 2 and busy[0] == pytest.approx(10 / 60)
    by = {c.name: c for c in got.channels}
    assert by["load1"].status == "unsupported" and by["load1"].reason == "no permission to read /proc/loadavg"
    assert by["cpu_others"].status == "unsupported"  # the measured process is not on the recorded board
    assert not any(str(here[REPLAYED].stage.root) in c.source + c.reason for c in got.channels)
    assert sampler.cost()["alive"]


@pytest.mark.wings
@pytest.mark.process
def test_facts_are_the_boards_and_the_machine_says_that_it_is_replayed(file):
    here = replay.devices(str(file))
    machine = manifest.machine(here)
    assert machine.state["replayed"]["board"] == "tiny" and machine.state["replayed"]["made"] == "captured"
    assert machine.state["cpu"]["memory_total_bytes"] == 102400
    assert machine.state["cpu"]["kernel"] == {"absent": "no /proc/sys/kernel/osrelease"}
    other = file.with_name("other.board.jsonl")
    other.write_text(file.read_text().replace("41000", "41001"))
    assert manifest.machine(replay.devices(str(other))).id != machine.id
    assert here["cpu"].present() == ""
    assert "edgescope-stage" not in json.dumps([machine.stable, machine.state["cpu"]])


@pytest.mark.wings
def test_the_throttle_counters_are_the_recordings(file):
    rows = [*ROWS[:-2]]
    rows.append({"path": "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "text": "2\n"})
    rows.append({"t_s": 0.1, "files": {rows[-1]["path"]: "5\n"}})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with replay.devices(str(file))["cpu"].throttle_watch() as watch:
        time.sleep(0.15)
    evidence = watch.evidence()
    assert evidence.events == ("cpu0 core_throttle_count rose by 3",)


class Odd:
    """A source that yields one of each kind of value."""

    def __init__(self, root):
        self.root = root

    def channels(self):
        return ()

    def read(self):
        return [("a", 1, Unsupported(f"no {self.root}/proc/x")), ("b", 2, Failed(f"{self.root}/sys/y broke"))]


def test_a_wrapped_source_speaks_of_the_boards_own_paths(file, monkeypatch):
    played = Stage.make(file)
    monkeypatch.setattr("edgescope.devices.base.Odd", Odd, raising=False)
    source = replay.ReplaySource("edgescope.devices.base:Odd", {"root": str(played.root)}, str(played.folder))
    assert source.read() == [("a", 1, Unsupported("no /proc/x")), ("b", 2, Failed("/sys/y broke"))]


@pytest.mark.wings
def test_a_mode_is_listed_with_its_clocks_and_cannot_be_entered():
    modes = replay.devices("orin_nano")["jetson"].modes()
    assert set(modes) == {"15W", "25W", "MAXN_SUPER"}
    row = next(row for row in listing(replay.devices("orin_nano")) if row.name == "25W")
    assert row.now and row.default and row.gpu_max_hz == 918_000_000 and row.cores == tuple(range(6))
    for mode in modes.values():
        with pytest.raises(SettingError, match="E-REC-7"):
            mode.enter(None)


@pytest.mark.wings
@pytest.mark.process
def test_the_board_flag_holds_for_one_command_and_its_children(file, monkeypatch, capsys):
    monkeypatch.delenv("EDGESCOPE_BOARD", raising=False)
    assert main(["--board", str(file), "doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["state"]["replayed"]["board"] == "tiny"
    assert "EDGESCOPE_BOARD" not in os.environ
    assert REPLAYED not in present()
    monkeypatch.setenv("EDGESCOPE_BOARD", "nothing_of_that_name")
    assert main(["doctor"]) == 2
    assert "E-REC-1" in capsys.readouterr().err
    file.write_text("{}\n")
    assert main(["--board", str(file), "doctor"]) == 1
    assert "E-REC-2" in capsys.readouterr().err
    assert os.environ["EDGESCOPE_BOARD"] == "nothing_of_that_name"


@pytest.mark.wings
def test_sources_keep_their_cadence_and_travel_as_json(file):
    specs = replay.devices(str(file))["cpu"].sources(1)
    assert json.loads(json.dumps([spec.kwargs for spec in specs]))
    assert {spec.target for spec in specs} == {"edgescope.devices.replay:ReplaySource"}
    from edgescope.devices.cpu.device import CpuDevice

    assert [spec.every for spec in specs] == [spec.every for spec in CpuDevice().sources(1)]
    assert isinstance(specs[0], SourceSpec)


@pytest.fixture
def left(tmp_path):
    """A folder that a stage has left, so many seconds ago, with or without its lock."""

    def made(name, age_s, lock=True):
        folder = tmp_path / f"edgescope-stage-{name}"
        folder.mkdir()
        if lock:
            (folder / "alive").touch()
        os.utime(folder, (1000.0 - age_s, 1000.0 - age_s))
        return folder

    return made


def test_only_stages_that_nobody_uses_are_swept(tmp_path, left, monkeypatch):
    monkeypatch.setattr(replay.time, "time", lambda: 1000.0)
    unused, used, fresh, old = left("a", 0), left("b", 999), left("c", 60, False), left("d", 61, False)
    other, target = tmp_path / "other", tmp_path / "target"
    other.mkdir()
    target.touch()
    link = left("e", 999, False)
    (link / "alive").symlink_to(target)
    with (used / "alive").open() as lock:
        replay.fcntl.flock(lock, replay.fcntl.LOCK_SH)
        replay.sweep(tmp_path)
    assert [folder.exists() for folder in (unused, used, fresh, old, other, link)] == [
        *(False, True, True, False),
        *(True, True),
    ]


def test_a_stage_that_is_gone_already_is_new(tmp_path):
    assert replay._age_s(tmp_path / "gone") == 0.0


def test_a_forked_child_removes_nothing(tmp_path, monkeypatch):
    swept = []
    monkeypatch.setattr(replay, "sweep", lambda: swept.append(1))
    folder = tmp_path / "stage"
    folder.mkdir()
    replay._remove(folder, os.getpid() + 1)
    assert folder.exists() and not swept
    replay._remove(folder, os.getpid())
    replay._remove(folder, os.getpid())
    assert not folder.exists() and len(swept) == 2


def test_another_process_reads_the_stage_from_its_folder(file, monkeypatch):
    made = Stage.make(file)
    assert Stage.join(made.folder) is made
    monkeypatch.setattr(replay, "_OPEN", {})
    joined = Stage.join(made.folder)
    assert joined is not made and Stage.join(made.folder) is joined
    assert joined.recording == made.recording and joined.root == made.root


@pytest.mark.parametrize("begins", [False, True])
def test_looking_at_facts_begins_no_time(file, monkeypatch, begins):
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    played = Stage.make(file)
    played.advance(begin=begins)
    clock.now += 0.5
    played.advance()
    assert (played.root / TEMP).read_text() == ("142500\n" if begins else "41000\n")


def test_time_may_begin_before_the_first_look(file, monkeypatch):
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    played = Stage.make(file)
    played.advance(since_ns=int((clock.now - 0.5) * 1e9))
    assert (played.root / TEMP).read_text() == "142500\n"


def test_nothing_is_looked_up_before_the_next_frame_is_due(file, monkeypatch):
    clock, locked = Time(), []
    monkeypatch.setattr(replay, "time", clock)
    played = Stage.make(file)
    real = replay.fcntl.flock
    monkeypatch.setattr(replay.fcntl, "flock", lambda *what: locked.append(1) or real(*what))
    seen = []
    for passed in (0.0, 0.299, 0.001, 0.499, 0.001, 1000.0, 1e6):
        clock.now = round(clock.now + passed, 6)
        before = len(locked)
        played.advance()
        seen.append(len(locked) > before)
    assert seen == [True, False, True, False, True, False, False]


def test_the_watch_begins_time_at_its_entry_where_no_sensor_was_read(file, monkeypatch):
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    monkeypatch.setattr(replay, "time", clock)
    played = Stage.make(file)
    with replay.ReplayWatch(None, played) as watch:
        clock.now += 0.4
        assert (played.root / TEMP).read_text() == "41000\n"
    assert (played.root / TEMP).read_text() == "142500\n"
    assert watch.evidence().events == watch.evidence().looked_at == ()
    with replay.ReplayWatch(None, played):
        clock.now += 10
    assert (played.root / TEMP).read_text() == "9000\n"


def test_without_a_recording_there_is_no_board():
    none = replay.ReplayDevice()
    assert none.present() and none.machine() == ({}, {}) and none.sources(1) == () and none.modes() == {}
    assert replay.root({}) == replay.root({REPLAYED: none}) == Path("/")


@pytest.mark.wings
def test_a_recordings_files_stand_for_the_machines(file):
    here = replay.devices(str(file))
    stage = here[REPLAYED].stage
    assert replay.root(here) == stage.root and here[REPLAYED].present() == ""
    stable, facts = here[REPLAYED].machine()
    assert len(stable["recording"]) == 16
    assert (facts["board"], facts["made"], facts["seconds"]) == ("tiny", "captured", 0.8)


def test_words_of_the_stage_are_those_of_the_board(file):
    stage = Stage.make(file)
    root = stage.root
    assert stage.plainly({"a": [f"no {root}/proc/x", ("b", 1)], "c": f"{root}"}) == {
        "a": ["no /proc/x", ["b", 1]],
        "c": "/",
    }
    assert stage.plain(f"no {root}/proc/loadavg") == "no permission to read /proc/loadavg"
