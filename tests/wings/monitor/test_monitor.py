"""The monitor: what a frame shows, that a lost sensor loses its value, and a real terminal driven by keys."""

from __future__ import annotations

import fcntl
import math
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(__file__)), "devices"))
from edgescope.commandline.screen import painted
from edgescope.devices.base import ChannelSpec, Failed, SourceSpec, Unsupported
from edgescope.devices.clocks import Trip
from edgescope.devices.cpu.device import CpuDevice
from edgescope.telemetry.latest import Live, Sensors, binned
from edgescope.units import short
from edgescope.wings.monitor import frame, live
from edgescope.wings.monitor.live import Finder, Marks, Monitor, Pace, Running
from fake_board import board, write

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def spec(name, unit, scope="system", kind="gauge", source="x"):
    return ChannelSpec(name, unit, scope, kind, source)


SPECS = [
    spec("cpu_busy", "share"),
    spec("gpu_busy", "share"),
    spec("gpu_clock_hz", "Hz"),
    spec("cpu_freq_hz", "Hz"),
    spec("vdd_in_power_w", "W", "module"),
    spec("vdd_in_voltage_v", "V", "module"),
    spec("vdd_soc_power_w", "W", "rail"),
    spec("temperature_tj_thermal_c", "degC"),
    spec("temperature_cpu_thermal_c", "degC"),
    spec("mem_available_bytes", "byte"),
    spec("throttled_gpu_thermal", "flag"),
    spec("oc3_events", "1"),
]
VALUES = {
    "cpu_busy": 0.37,
    "gpu_busy": 0.92,
    "gpu_clock_hz": 612e6,
    "cpu_freq_hz": 1.51e9,
    "vdd_in_power_w": 8.91,
    "vdd_in_voltage_v": 4.98,
    "vdd_soc_power_w": 1.39,
    "temperature_tj_thermal_c": 95.1,
    "temperature_cpu_thermal_c": 57.0,
    "mem_available_bytes": 3.3e9,
    "throttled_gpu_thermal": 0.0,
    "oc3_events": 2.0,
}


def view(values=VALUES, **more):
    usual = {
        "title": "Orin Nano | L4T 36.4.4 | mode 15W",
        "channels": {s.name: s for s in SPECS},
        "values": values,
        "last_minute": lambda name, columns: [values.get(name, math.nan)] * columns,
        "facts": {"memory_total_bytes": 7.8e9, "cores": 6.0, "online": 4.0},
        "trips": {"temperature_tj_thermal_c": Trip("passive", 99.0)},
        "cost": "this view costs 0.40 % of one core at 2 Hz",
    }
    return frame.View(**(usual | more))


def text(rows):
    return ["".join(t for t, _ in row) for row in rows]


def test_a_frame_shows_load_power_heat_memory_and_throttling():
    got = "\n".join(text(frame.rows(view(), 120, 40)))
    for word in ("37 %", "4 of 6 cores", "of 612 MHz", "8.91 W", "module, 4.98 V", "1.39 W", "95.1 C"):
        assert word in got
    assert "passive trip at 99 C" in got
    assert "none now" in got and "oc3 2" in got
    assert got.index("vdd_in") < got.index("vdd_soc")  # the total before its parts


@given(st.integers(1, 200), st.integers(1, 60))
def test_a_frame_never_leaves_the_terminal(width, height):
    rows = text(frame.rows(view(), width, height))
    assert len(rows) <= height
    assert all(len(row) <= width for row in rows)


def test_what_does_not_fit_is_counted():
    rows = text(frame.rows(view(), 80, 12))
    assert any("more rows: make the window taller" in row for row in rows)


def test_near_a_trip_and_throttling_stand_out():
    rows = frame.rows(view(VALUES | {"throttled_gpu_thermal": 1.0}), 100, 40)
    styles = {t.strip(): style for row in rows for t, style in row}
    assert styles["95.1 C"] == "warn"
    assert styles["NOW gpu_thermal"] == "bad"


def test_a_zone_that_always_says_100_is_not_the_hottest():
    """A TX2 without a readable trip point."""
    pmic = spec("temperature_pmic_die_c", "degC")
    channels = {s.name: s for s in [*SPECS, pmic]}
    got = "\n".join(text(frame.rows(view(VALUES | {pmic.name: 100.0}, channels=channels, trips={}), 100, 40)))
    assert "pmic" not in got and "95.1 C" in got


def test_a_board_without_sensors_says_so():
    got = "\n".join(text(frame.rows(view({}, channels={}, facts={}, trips={}), 80, 24)))
    assert "no sensor: edgescope doctor says why" in got
    assert "no counter or flag is readable here" in got


def test_sparklines_are_scaled_and_blank_where_nothing_was_read():
    assert frame.spark([0, 0.5, 1, math.nan], 0, 1, "_-^") == "_-^ "
    assert frame.spark([5, 5], 5, 5) == "▁▁"


@given(st.lists(st.floats(-1e9, 1e9), max_size=200), st.integers(1, 80))
@pytest.mark.slow
def test_bins_are_means_and_the_newest_is_last(points, columns):
    got = binned(points, columns, 120)
    assert len(got) == columns
    if points:
        assert not math.isnan(got[-1])
        kept = points[-120:]
        assert all(min(kept) - 1 <= v <= max(kept) + 1 for v in got if not math.isnan(v))
    else:
        assert all(math.isnan(v) for v in got)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.374, "share", "37 %"),
        (612e6, "Hz", "612 MHz"),
        (1.51e9, "Hz", "1.51 GHz"),
        (4.97, "W", "4.97 W"),
        (0.52, "W", "520 mW"),
        (0.0, "W", "0.00 W"),
        (45.5, "degC", "45.5 C"),
        (3.3e9, "byte", "3.30 GB"),
        (0.0, "Hz", "0 Hz"),
        (0.0, "byte", "0 B"),
        (0.0, "rpm", "0.00 rpm"),
    ],
)
def test_values_are_short(value, unit, shown):
    assert short(value, unit) == shown


class Scripted:
    """A source that answers what its script says, reading by reading."""

    script: ClassVar[list] = []

    def channels(self):
        return [spec("vdd_in_power_w", "W", "module"), spec("pkg_energy_j", "J", "cpu_package", "counter")]

    def read(self):
        return list(type(self).script.pop(0)) if type(self).script else []


def test_a_sensor_that_is_unplugged_loses_its_value():
    good = [("vdd_in_power_w", 0, 5.0)]
    Scripted.script = [good, good, good, good, [("vdd_in_power_w", 0, Failed("gone"))], good]
    sensors = Sensors([SourceSpec(f"{__name__}:Scripted")], 2.0)
    assert sensors.values["vdd_in_power_w"] == 5.0
    while "vdd_in_power_w" in sensors.values and Scripted.script:
        sensors.tick(0)
    assert "vdd_in_power_w" not in sensors.values
    assert math.isnan(sensors.last_minute("vdd_in_power_w", 120)[-1])
    sensors.tick(1)
    assert sensors.values["vdd_in_power_w"] == 5.0


def test_an_energy_counter_is_shown_as_power_and_never_backwards():
    live = Live()
    index = live.add(spec("pkg_energy_j", "J", "cpu_package", "counter"))
    live.note(index, 100.0)
    assert live.values == {}
    time.sleep(0.02)
    live.note(index, 100.4)
    assert 0 < live.values["pkg_power_w"] < 0.4 / 0.02 + 1
    before = live.values["pkg_power_w"]
    live.note(index, 3.0)  # the counter was reset
    assert live.values["pkg_power_w"] == before
    live.note(index, Unsupported("no permission"))
    assert live.values == {}


def test_a_gauge_of_power_wins_over_the_counter_beside_it():
    class Both:
        def channels(self):
            return [spec("gpu0_power_w", "W"), spec("gpu0_energy_j", "J", kind="counter")]

        def read(self):
            return [("gpu0_power_w", 0, 75.0), ("gpu0_energy_j", 0, Unsupported("not here"))]

    globals()["Both"] = Both
    sensors = Sensors([SourceSpec(f"{__name__}:Both")], 2.0)
    assert dict(sensors.values) == {"gpu0_power_w": 75.0}
    assert sensors.channels["gpu0_power_w"].unit == "W"


def trial_process(root, pid, folder, verb="run"):
    argv = ["python", "-m", "edgescope.bench.child", verb, str(folder), "1"]
    stat = f"{pid} (python) S 1 1 1 0 -1 0 5 0 3 0 0 0 0 0 20 0 1 0 100 1000 100 0\n"
    write(root, {f"{pid}/cmdline": "\0".join(argv) + "\0", f"{pid}/stat": stat})


def test_the_running_trial_is_found_by_its_process(tmp_path):
    proc, folder = tmp_path / "proc", tmp_path / "t"
    write(
        folder,
        {
            "trial.json": '{"model": "m.onnx#12ab", "backend": "onnxruntime", "precision": "fp32",'
            ' "device": "cpu", "batch": 4, "mode": "15W", "replicate": 2}'
        },
    )
    finder = Finder(proc)
    assert finder.look() is None  # no /proc at all
    write(proc, {"1/cmdline": "init\0"})
    assert finder.look() is None
    trial_process(proc, 42, folder)
    found = finder.look()
    assert found.pid == 42
    assert found.what == "m.onnx onnxruntime fp32 cpu batch 4 mode 15W replicate 2"
    (proc / "42/cmdline").write_text("")  # a zombie
    assert finder.look() is None


def test_the_warden_that_starts_a_trial_is_none(tmp_path):
    argv = [
        "python",
        "-I",
        "-S",
        "/x/edgescope/warden.py",
        "1",
        "/t",
        "python",
        "-m",
        "edgescope.bench.child",
        "run",
        "/t",
    ]
    trial_process(tmp_path, 42, tmp_path / "t")
    trial_process(tmp_path, 43, tmp_path / "t")
    (tmp_path / "43/cmdline").write_text("\0".join(argv) + "\0" + "1\0")
    assert Finder(tmp_path).look().pid == 42


def test_a_question_that_is_a_pipe_is_no_hang(tmp_path):
    (tmp_path / "t").mkdir()
    os.mkfifo(tmp_path / "t/trial.json")
    trial_process(tmp_path, 42, tmp_path / "t")
    assert "cannot be read" in Finder(tmp_path).look().what


def test_a_trial_whose_folder_is_closed_is_still_seen(tmp_path):
    trial_process(tmp_path, 7, tmp_path / "closed", "prepare")
    assert "cannot be read" in Finder(tmp_path).look().what


def test_a_process_that_was_seen_before_exec_is_asked_again(tmp_path):
    finder = Finder(tmp_path)
    write(tmp_path, {"9/cmdline": "python\0-m\0edgescope\0bench\0"})
    assert finder.look() is None
    trial_process(tmp_path, 9, tmp_path / "t")
    assert finder.look().pid == 9


@pytest.mark.process
def test_a_real_process_is_found_and_its_end_is_seen(tmp_path):
    """A stand-in with a trial's command line, so that other trials on this machine do not matter."""
    write(tmp_path, {"trial.json": '{"model": "m", "backend": "b", "precision": "int8", "device": "cpu"}'})
    finder = Finder()
    finder.look()
    argv = ["-c", "import time; time.sleep(60)", "edgescope.bench.child", "run", str(tmp_path), "1"]
    process = subprocess.Popen([sys.executable, *argv])
    try:
        end = time.monotonic() + 10
        while (found := finder._trial(str(process.pid))) is None and time.monotonic() < end:
            time.sleep(0.01)  # between fork and exec it shows this process's command
        assert found.what == "m b int8 cpu batch 1"
        assert -0.1 < found.elapsed_s < 30
        assert finder.look() is not None
    finally:
        process.kill()
        process.wait()
    finder._now = found
    assert finder.look() != found


def test_each_trial_has_a_letter_on_the_time_line():
    marks = Marks(8)
    first, second = Running(1, "a", 0.0), Running(2, "b", 0.0)
    for running in (None, None, first, first, None, second, second, None):
        marks.tick(running)
    assert marks.last_minute(8) == "··AA·BB·"
    assert marks.last_minute(4) == "·ABB"


@pytest.mark.slow
def test_a_fake_board_in_plain_lines(tmp_path):
    """Every word but the time is name=value; the powered-off zone is not among them."""
    root = board(tmp_path)
    write(
        root,
        {
            "sys/class/thermal/thermal_zone0/trip_point_0_type": "passive",
            "sys/class/thermal/thermal_zone0/trip_point_0_temp": "97000",
        },
    )
    lines = []
    Monitor({"cpu": CpuDevice(root)}, Pace(20, 0.3), root=root, proc=tmp_path / "none").paper(lines.append)
    assert 1 <= len(lines) <= 7
    clock, *words = lines[-1].split()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d", clock)  # more than one line a second
    pairs = dict(word.split("=", 1) for word in words)
    assert pairs["temperature_cpu_thermal"] == "45.5C"
    assert pairs["cpu_freq"] == "1.00GHz"
    assert pairs["trial"] == "none" and pairs["throttle"] == "unknown"
    assert not any("gpu" in name for name in pairs)


def test_no_colour_means_no_escape_sequence_in_a_row():
    row = (("a", "bad"), ("b", ""))
    assert painted(row, colour=False) == "ab"
    assert ESCAPE.sub("", painted(row, colour=True)) == "ab" != painted(row, colour=True)


def test_plain_names_what_throttles():
    assert "throttle=gpu_thermal" in live.line(view(VALUES | {"throttled_gpu_thermal": 1.0}), 0.0)


def test_plain_has_the_main_figures_and_all_with_all():
    got = live.line(view(), 12.34, tenths=True)
    clock, *words = got.split()
    assert clock.endswith(":12.3") and len(got) < 170
    assert [w.partition("=")[0] for w in words] == [
        *("cpu_busy", "gpu_busy", "gpu_clock", "cpu_freq", "vdd_in_power", "temperature_tj_thermal"),
        *("mem_available", "throttle", "trial"),
    ]
    clock, *every = live.line(view(), 12.34, everything=True).split()
    assert clock.endswith(":12") and set(words) < set(every)
    assert "vdd_soc_power=1.39W" in every and "temperature_cpu_thermal=57.0C" in every


def test_plain_shows_every_rail_where_no_total_is_known():
    channels = {s.name: s for s in SPECS if s.name != "vdd_in_power_w"}
    assert "vdd_soc_power=1.39W" in live.line(view(channels=channels), 0.0)


def test_a_long_title_is_wrapped_and_not_cut():
    title = "Jetson Orin Nano 8GB (developer kit) | L4T 36.4.4 | mode 25W | RECORDING, constructed"
    first, second, *_ = text(frame.rows(view(title=title), 80, 40))
    assert (first, second) == (title.rpartition(" | ")[0], "RECORDING, constructed")


class Terminal:
    """A real `edgescope monitor` on a pseudo-terminal of a given size."""

    def __init__(self, columns, rows, *flags, **env):
        self.master, slave = pty.openpty()
        self.slave = slave
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        environ = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color"} | env
        command = [sys.executable, "-m", "edgescope.cli.main", "monitor", *flags]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environ, start_new_session=True
        )
        self.seen = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, word, seconds=30):
        """Read until `word` appears in what was written from now on; return that."""
        end, start = time.monotonic() + seconds, len(self.seen)
        while word not in self.seen[start:]:
            assert time.monotonic() < end, f"{word!r} never came: {self.seen[-500:]!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        return self.seen[start:]

    def key(self, data):
        os.write(self.master, data)

    def end(self, seconds=20):
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        code = self.process.wait(1)
        while select.select([self.master], [], [], 0.1)[0]:
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        errors = self.process.stderr.read().decode()
        after = termios.tcgetattr(self.slave)
        for fd in (self.master, self.slave):
            os.close(fd)
        self.process.stderr.close()
        return code, errors, after


def rows_of(written):
    """Return the text of each absolutely positioned row in what was written."""
    return [ESCAPE.sub("", part) for part in re.split(r"\x1b\[\d+;1H", written)[1:]]


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_real_terminal_is_drawn_on_resized_and_restored_by_q():
    terminal = Terminal(80, 24, "--hz", "4")
    first = terminal.until("q quits")
    assert "\x1b[?1049h" in first and "\x1b[?25l" in first
    assert any("cpu" in row for row in rows_of(first))
    assert all(len(row) <= 80 for row in rows_of(first))
    terminal.resize(50, 7)
    again = terminal.until("more rows")
    assert all(len(row) <= 50 for row in rows_of(again.partition("\x1b[2J")[2]))
    terminal.key(b"\x1a")  # Ctrl-Z is not for a drawn screen
    terminal.until("\x1b[")
    terminal.key(b"q")
    code, errors, after = terminal.end()
    assert (code, errors) == (0, "")
    assert terminal.seen.endswith("\x1b[?1049l")
    assert after == terminal.before


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["key", "signal"])
def test_ctrl_c_and_sigterm_restore_the_terminal(how):
    terminal = Terminal(120, 40, "--hz", "4", NO_COLOR="1")
    first = terminal.until("q quits")
    assert "\x1b[1m" not in first and "\x1b[2m" not in first  # no colour, no weight
    if how == "key":
        terminal.key(b"\x03")
    else:
        terminal.process.send_signal(signal.SIGTERM)
    code, errors, after = terminal.end()
    assert (code, errors) == (0, "")
    assert terminal.seen.endswith("\x1b[?1049l")
    assert after == terminal.before


@pytest.mark.slow
def test_without_a_terminal_it_prints_lines():
    command = [sys.executable, "-m", "edgescope.cli.main", "monitor", "--hz", "10", "--seconds", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert 1 <= len(lines) <= 7
    assert all("cpu_busy=" in line or "mem_available=" in line for line in lines)
    assert "\x1b" not in done.stdout
