#!/usr/bin/env python3
"""edgescope's agent: samples a board's sensors and runs programs there, told what to do over its stdin.

One file, standard library only, Python 3.6 or newer (JetPack 4 has 3.6). It speaks JSON lines:

    in    {"id": 7, "verb": "ping"}
    out   {"id": 7, "ok": {"t_s": 812.25}}   or   {"id": 7, "error": {"code": "bad_request", "what": "..."}}
    out   {"event": "rows", ...}, {"event": "lines", ...} between the answers, while it samples or runs a program

`edgescope docs remote` names every verb. All times are time.monotonic() of the board, in seconds (3.6 has no
monotonic_ns; a float holds 2 ns at 100 days of uptime). When stdin closes, or the host has been silent for too
long, everything it started is killed and it ends: nothing stays behind but the files that were sent.
"""

import base64
import collections
import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import math
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

PROTOCOL = 2
#: Longest line taken from the host, and bytes of a file in one message (base64 makes a third more of it).
LONGEST_LINE, CHUNK = 4 << 20, 1 << 18
#: Silence of the host after which the agent gives up: while it samples or runs a program, and while idle.
SILENT_BUSY_S, SILENT_IDLE_S = 60.0, 3600.0
#: Bytes of output after which a program that never stops talking is stopped.
MOST_OUTPUT = 64 << 20
#: Bytes that must stay free on the board's disk, and bytes of files that are kept from one session to the next.
SPARE_DISK, KEPT_FILES = 64 << 20, 4 << 30
#: Samples a second, and programs at once, that are asked for at most.
MOST_HZ, MOST_PROGRAMS = 50.0, 64
PR_SET_PDEATHSIG = 1
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
#: Drivers of power monitors -> their channels.
CHIPS = {"ina3221": 3, "ina237": 1, "ina238": 1, "ina228": 1}
#: Parts of the types of cooling devices that cost no speed.
HARMLESS = ("fan", "surface", "shutdown", "backlight", "battery", "charger")
TRTEXEC = "/usr/src/tensorrt/bin/trtexec"
#: Files that say what a board is and how it is set, relative to its root.
FACTS = (
    "etc/nv_tegra_release",
    "etc/os-release",
    "etc/nvpmodel.conf",
    "etc/nvpmodel/*.conf",
    "var/lib/nvpmodel/status",
    "proc/cpuinfo",
    "proc/loadavg",
    "proc/meminfo",
    "proc/stat",
    "proc/uptime",
    "proc/device-tree/compatible",
    "proc/device-tree/model",
    "proc/device-tree/serial-number",
    "proc/device-tree/nvidia,dtsfilename",
    "proc/device-tree/chosen/plugin-manager/ids/*",
    "proc/interrupts",
    "proc/pressure/*",
    "proc/sys/kernel/hostname",
    "proc/sys/kernel/osrelease",
    "sys/devices/soc0/*",
    "sys/devices/system/cpu/offline",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/present",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/cpu[0-9]*/online",
    "sys/devices/system/cpu/cpu[0-9]*/topology/*_id",
    "sys/devices/system/cpu/cpufreq/policy*/*",
    "sys/devices/system/node/online",
    "sys/class/devfreq/*/*",
    "sys/class/devfreq/*/device/load",
    "sys/class/devfreq/*/device/railgate_enable",
    "sys/class/devfreq/*/device/tpc_pg_mask",
    "sys/devices/gpu.0/load",
    "sys/devices/platform/gpu.0/load",
    "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_count",
    "sys/class/dmi/id/product_name",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/thermal/thermal_zone*/type",
    "sys/class/thermal/thermal_zone*/temp",
    "sys/class/thermal/thermal_zone*/trip_point_*",
    "sys/class/thermal/cooling_device*/type",
    "sys/class/thermal/cooling_device*/*_state",
    "sys/class/hwmon/hwmon*/*",
    "sys/bus/i2c/drivers/ina3221x/*/iio:device*/*",
    "sys/bus/i2c/drivers/ina*/*/hwmon/hwmon*/*",
    "sys/kernel/debug/bpmp/debug/clk/emc/*rate*",
    "sys/kernel/debug/clk/emc/clk_rate",
    "sys/kernel/nvpmodel_*/*",
)
#: Bytes of one such file, and of all of them.
FACT_BYTES, FACTS_BYTES = 1 << 16, 2 << 20


class Refused(Exception):
    """A request that is not carried out: `code` is for the program, `what` is for people."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code, self.what = code, what


# ---- sensors -----------------------------------------------------------------------------------------------


class KernelFile:
    """A kernel file, opened once; the kernel renders it anew at each read."""

    def __init__(self, path: str) -> None:
        self.path, self.fd = path, os.open(path, os.O_RDONLY)

    def number(self) -> float:
        """Return the number in the file; OSError or ValueError if there is none."""
        return float(os.pread(self.fd, 64, 0))

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class Gauge:
    """One channel: its description and its reader, which raises OSError or ValueError if it cannot read now."""

    def __init__(
        self, name: str, unit: str, scope: str, source: str, read: Callable[[], float], *, kind: str = "gauge"
    ) -> None:
        self.about = {"name": name, "unit": unit, "scope": scope, "kind": kind, "source": source}
        self.name, self._read, self.reason = name, read, ""

    def read(self) -> Optional[float]:
        """Return the value, or None if there is none; the reason is kept."""
        try:
            value = self._read()
        except (OSError, ValueError) as error:
            self.reason = str(error)[:200] or type(error).__name__
            return None
        if not math.isfinite(value):
            self.reason = "it is not a finite number"
            return None
        return value


def word(text: str) -> str:
    """Return a name in lower case, letters and digits only."""
    return "_".join(re.findall("[a-z0-9]+", text.lower()))


def text_of(path: str) -> str:
    """Return the text of a small file, or '' if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(FACT_BYTES).decode("utf-8", "replace").strip("\0 \n")
    except OSError:
        return ""


def scaled(path: str, scale: float) -> Callable[[], float]:
    """Return a reader of a file's number times `scale`; OSError if there is no such file."""
    file = KernelFile(path)
    return lambda: file.number() * scale


def product(volts: Callable[[], float], amperes: Callable[[], float]) -> Callable[[], float]:
    """Return a reader of watts."""
    return lambda: volts() * amperes()


def with_sign(watts: Callable[[], float], amperes: Callable[[], float]) -> Callable[[], float]:
    """Return a reader of watts with the sign of the current: an INA238's power register has none."""
    return lambda: math.copysign(watts(), min(amperes(), 0.0) or 1.0)


def gauges(
    name: str, unit: str, scope: str, path: str, scale: float = 1.0, *, kind: str = "gauge"
) -> List[Gauge]:
    """Return the gauge of one file, or [] if it cannot be opened."""
    try:
        return [Gauge(name, unit, scope, path, scaled(path, scale), kind=kind)]
    except OSError:
        return []


def rails(root: str) -> List[Gauge]:
    """Return volts, amperes and watts of every power monitor: INA3221 under iio (JetPack 4) and hwmon, INA238."""
    found: List[Gauge] = []
    for chip in sorted(glob.glob(root + "/sys/bus/i2c/drivers/ina3221x/*/iio:device*")):
        for c in range(3):
            found += iio_rail(chip, c)
    seen: List[str] = []
    bound = sorted(glob.glob(root + "/sys/bus/i2c/drivers/ina*/*/hwmon/hwmon*"))
    for chip in bound + sorted(glob.glob(root + "/sys/class/hwmon/hwmon*")):
        driver = text_of(chip + "/name") or (chip.split("/")[-4] if chip in bound else "")
        if driver not in CHIPS or os.path.basename(chip) in seen:
            continue
        seen.append(os.path.basename(chip))
        place = chip.split("/")[-3] if chip in bound else os.path.basename(chip)
        for c in range(1, CHIPS[driver] + 1):
            found += hwmon_rail(chip, c, f"{driver}_{place}_ch{c}")
    return found


def connected(label: str) -> bool:
    """Return whether a channel has a rail: NC says that nothing is connected."""
    return bool(label) and "NC" not in re.split("[^A-Z]", label.upper())


def iio_rail(chip: str, c: int) -> List[Gauge]:
    """Return one rail as JetPack 4 shows it, in mV, mA and mW."""
    label = text_of(f"{chip}/rail_name_{c}")
    if not connected(label):
        return []
    name = word(label)
    return (
        gauges(name + "_power_w", "W", "rail", f"{chip}/in_power{c}_input", 1e-3)
        + gauges(name + "_voltage_v", "V", "rail", f"{chip}/in_voltage{c}_input", 1e-3)
        + gauges(name + "_current_a", "A", "rail", f"{chip}/in_current{c}_input", 1e-3)
    )


def hwmon_rail(chip: str, c: int, unlabelled: str) -> List[Gauge]:
    """Return one rail as hwmon shows it, in mV, mA and, from a chip that multiplies itself, microwatts."""
    labels = (f"in{c}_label", f"curr{c}_label", "label")
    label = next((text for text in (text_of(f"{chip}/{name}") for name in labels) if text), unlabelled)
    volts, amperes, power = (f"{chip}/{kind}{c}_input" for kind in ("in", "curr", "power"))
    if not connected(label) or text_of(f"{chip}/in{c}_enable") == "0":
        return []
    samples = text_of(chip + "/samples")
    kind = "average" if samples.isdigit() and int(samples) > 1 else "gauge"
    name = word(label)
    both = gauges(name + "_voltage_v", "V", "rail", volts, 1e-3, kind=kind) + gauges(
        name + "_current_a", "A", "rail", amperes, 1e-3, kind=kind
    )
    if len(both) < 2:
        return []
    if os.path.exists(power):
        try:
            signed = with_sign(scaled(power, 1e-6), scaled(amperes, 1e-3))
        except OSError:
            return both
        return [Gauge(name + "_power_w", "W", "rail", power, signed, kind=kind), *both]
    watts = product(scaled(volts, 1e-3), scaled(amperes, 1e-3))
    source = f"{volts} x {os.path.basename(amperes)}"
    return [Gauge(name + "_power_w", "W", "rail", source, watts, kind=kind), *both]


def gpu(root: str) -> List[Gauge]:
    """Return the integrated GPU's load (a share of its current clock), its clock and the memory clock."""
    places = ("gpu.0", "platform/gpu.0", "[0-9]*.g*", "platform/[0-9]*.g*", "platform/bus@0/[0-9]*.g*")
    loads = [p for place in places for p in sorted(glob.glob(f"{root}/sys/devices/{place}/load"))]
    devices = sorted(glob.glob(root + "/sys/class/devfreq/*/cur_freq"))
    mine = [p for p in devices if re.search(r"/(?:[^/]*\.(?:g[a-z]\d+[a-z]|gpu)|gpu-gpc-\d+)/cur_freq$", p)]
    found: List[Gauge] = []
    for path in loads[:1]:
        found += gauges("gpu_busy", "share", "gpu", path, 1e-3, kind="average")
    for path in mine[:1]:
        found += gauges("gpu_clock_hz", "Hz", "gpu", path)
    for place in ("bpmp/debug/clk/emc/rate", "clk/emc/clk_rate"):
        found += gauges("emc_clock_hz", "Hz", "memory", f"{root}/sys/kernel/debug/{place}")
    return found


def clocks(root: str) -> List[Gauge]:
    """Return the clock of each CPU cluster."""
    found: List[Gauge] = []
    for path in sorted(glob.glob(root + "/sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_cur_freq")):
        number = re.findall("policy([0-9]+)", path)[-1]
        found += gauges(f"cpu_policy{number}_clock_hz", "Hz", "system", path, 1e3)
    return found


def temperatures(root: str) -> List[Gauge]:
    """Return every thermal zone; a powered-off one reads -256 C, which is no temperature."""
    found: Dict[str, Gauge] = {}
    for zone in sorted(glob.glob(root + "/sys/class/thermal/thermal_zone[0-9]*")):
        number = re.findall("[0-9]+", zone)[-1]
        name = f"temperature_{word(text_of(zone + '/type')) or number}_c"
        name = name if name not in found else f"{name[:-2]}_{number}_c"
        try:
            read = scaled(zone + "/temp", 1e-3)
        except OSError:
            continue
        found[name] = Gauge(name, "degC", "thermal_zone", zone + "/temp", powered(read))
    return list(found.values())


def powered(read: Callable[[], float]) -> Callable[[], float]:
    """Return a reader that raises ValueError for the value of a powered-off sensor."""

    def checked() -> float:
        value = read()
        if value < -200:
            raise ValueError(f"the sensor is powered off (reads {value:.0f} C)")
        return value

    return checked


def heat(root: str) -> List[Gauge]:
    """Return the channels of throttling (cooling states, over-current counters) and of the fan."""
    found: List[Gauge] = []
    for device in sorted(glob.glob(root + "/sys/class/thermal/cooling_device[0-9]*")):
        kind = text_of(device + "/type").lower()
        if not kind or any(part in kind for part in HARMLESS):
            continue
        name = word(kind)
        if any(gauge.name == f"throttled_{name}_thermal" for gauge in found):
            name += "_" + re.findall("[0-9]+", device)[-1]
        found += raised(f"throttled_{name}_thermal", device + "/cur_state")
    for path in sorted(glob.glob(root + "/sys/class/hwmon/hwmon*/oc[0-9]*_event_cnt")):
        number = re.findall("oc([0-9]+)_", path)[-1]
        found += gauges(f"oc{number}_events", "1", "system", path, kind="counter")
    fans = sorted(glob.glob(root + "/sys/class/hwmon/hwmon*/pwm1")) + sorted(
        glob.glob(root + "/sys/devices/pwm-fan/cur_pwm")
    )
    for number, path in enumerate(fans):
        found += gauges(f"fan{number}_share", "share", "system", path, 1 / 255.0)
    return found


def raised(name: str, path: str) -> List[Gauge]:
    """Return a flag that is 1 while a cooling device is above state 0, or [] if it cannot be opened."""
    try:
        state = scaled(path, 1.0)
    except OSError:
        return []
    return [Gauge(name, "flag", "thermal", path, lambda: float(state() > 0))]


def memory(root: str) -> List[Gauge]:
    """Return the channels of available memory and of used swap."""
    path = root + "/proc/meminfo"

    def bytes_of(key: str) -> float:
        with open(path, "rb") as file:
            found = re.search(f"^{key}: +([0-9]+) kB".encode(), file.read(), re.MULTILINE)
        if found is None:
            raise ValueError(f"no {key} in {path}")
        return int(found.group(1)) * 1024.0

    def swap() -> float:
        return bytes_of("SwapTotal") - bytes_of("SwapFree")

    return [
        Gauge("mem_available_bytes", "byte", "system", path, lambda: bytes_of("MemAvailable")),
        Gauge("swap_used_bytes", "byte", "system", path, swap),
    ]


class CpuShares:
    """Busy, stolen and foreign CPU time since the last tick, as shares of all cores."""

    def __init__(self, root: str, mine_s: Callable[[], float]) -> None:
        self.path, self.mine_s = root + "/proc/stat", mine_s
        self.last = self.now = (0.0, 0.0, 0.0, 0.0)

    def gauges(self) -> List[Gauge]:
        """Return the channels of the three shares; reading the first one reads the counters anew."""
        whose = self.path + " less the agent and its program"
        return [
            Gauge("cpu_busy", "share", "system", self.path, lambda: self.share(0, True), kind="interval"),
            Gauge("cpu_steal", "share", "system", self.path, lambda: self.share(1), kind="interval"),
            Gauge("cpu_others", "share", "system", whose, self.others, kind="interval"),
        ]

    def share(self, column: int, move: bool = False) -> float:
        """Return a column's share; ValueError while no accounting tick has passed."""
        if move:
            self.move()
        total = self.now[2] - self.last[2]
        if total <= 0 or not self.last[2]:
            raise ValueError("no accounting tick has passed")
        return (self.now[column] - self.last[column]) / total

    def others(self) -> float:
        """Return the share that neither the agent nor its program used."""
        mine = (self.now[3] - self.last[3]) / max(self.now[2] - self.last[2], TICK_S)
        return self.share(0) - mine

    def move(self) -> None:
        """Read the counters anew: busy, stolen, total seconds, and those of the agent and its program."""
        with open(self.path, "rb") as file:
            numbers = [int(x) * TICK_S for x in file.readline().split()[1:9]]
        if len(numbers) < 8:
            raise ValueError(f"{self.path} does not begin with a cpu line")
        user, nice, system, idle, iowait, irq, soft, steal = numbers
        busy = user + nice + system + irq + soft
        self.last, self.now = self.now, (busy, steal, busy + idle + iowait + steal, self.mine_s())


RAIL = re.compile(r"(?<![\w/])([A-Z][A-Z0-9_]*) (-?\d+)(?:mW)?/-?\d+(?:mW)?(?:/-?\d+mW)?(?= |$)")


def tegrastats_rails(line: str) -> Dict[str, float]:
    """Return watts by channel name from one line of tegrastats; RAM and SWAP carry MB and are no rails."""
    return {word(label) + "_power_w": int(value) / 1e3 for label, value in RAIL.findall(line)}


class Tegrastats:
    """The last line of a running tegrastats, which may read rails that no file shows."""

    def __init__(self, program: str) -> None:
        self.process = started([program, "--interval", "200"], None)
        self.latest: Dict[str, float] = {}
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self) -> None:
        """Keep the values of each line as it comes."""
        for line in iter(self.process.stdout.readline, b""):  # type: ignore[union-attr]
            found = tegrastats_rails(line.decode("utf-8", "replace").strip())
            self.latest = found or self.latest
        self.latest = {}

    def gauges(self, patience_s: float = 2.0) -> List[Gauge]:
        """Return the rails that its first lines name, or [] if no line came in time."""
        until = time.monotonic() + patience_s
        while not self.latest and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        return [Gauge(name, "W", "rail", "tegrastats", self.reader(name)) for name in sorted(self.latest)]

    def reader(self, name: str) -> Callable[[], float]:
        """Return a reader of one rail's latest value."""

        def read() -> float:
            if name not in self.latest:
                raise ValueError("tegrastats says nothing of it any more")
            return self.latest[name]

        return read

    def stop(self) -> None:
        """End it."""
        end(self.process)


def sensors(root: str, mine_s: Callable[[], float]) -> List[Gauge]:
    """Return every channel of this board except those of tegrastats."""
    parts = (rails, gpu, clocks, temperatures, heat, memory)
    found = CpuShares(root, mine_s).gauges() + [gauge for part in parts for gauge in part(root)]
    unique: Dict[str, Gauge] = collections.OrderedDict()
    for gauge in found:
        unique.setdefault(gauge.name, gauge)
    return list(unique.values())


class Sampler(threading.Thread):
    """Reads every channel at a steady rate and sends the rows about once a second."""

    def __init__(self, hz: float, found: List[Gauge], send: Callable[[Dict[str, Any]], None]) -> None:
        super().__init__(daemon=True)
        self.hz, self.gauges, self.send = hz, found, send
        self.stopping, self.ticks = threading.Event(), 0
        self.spent_s, self.spent_before_s = 0.0, time.process_time()
        self.begun_s = self.ended_s = time.monotonic()

    def run(self) -> None:
        """Sample until told to stop; ticks come from a schedule whose phase wanders by a fifth of a period."""
        tick, sent_s = 0, self.begun_s
        rows: List[Any] = []
        while not self.stopping.is_set():
            due = self.begun_s + (tick + 0.2 * ((tick * 0.618034) % 1)) / self.hz
            late = time.monotonic() - due
            if late < 0 and self.stopping.wait(-late):
                break
            tick = max(tick + 1, int((time.monotonic() - self.begun_s) * self.hz))
            rows.append(self.row())
            if time.monotonic() - sent_s > 1.0:
                self.send({"event": "rows", "rows": rows})
                rows, sent_s = [], time.monotonic()
        self.ended_s = time.monotonic()
        if rows:
            self.send({"event": "rows", "rows": rows})

    def row(self) -> List[Any]:
        """Return [time, CPU seconds of the agent so far, [value or null a channel]]."""
        now = time.monotonic()
        values = [gauge.read() for gauge in self.gauges]
        self.ticks += 1
        self.spent_s = time.process_time() - self.spent_before_s
        return [round(now, 6), round(self.spent_s, 6), values]

    def stop(self) -> Dict[str, Any]:
        """Stop; return the number of ticks, their cost, and why channels have no value."""
        self.stopping.set()
        self.join(10.0)
        reasons = {gauge.name: gauge.reason for gauge in self.gauges if gauge.reason}
        return {
            "ticks": self.ticks,
            "cpu_s": self.spent_s,
            "wall_s": self.ended_s - self.begun_s,
            "reasons": reasons,
        }


# ---- programs ----------------------------------------------------------------------------------------------

LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_agent() -> None:
    """Run in the child: ask the kernel for SIGKILL when the agent dies, in case the agent cannot clean up."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def started(
    argv: List[str], folder: Optional[str], more: Optional[Dict[str, str]] = None
) -> "subprocess.Popen[bytes]":
    """Start a program as the leader of its own process group, with `more` in its environment; return it."""
    return subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(os.environ, **(more or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_agent,  # noqa: PLW1509 (one system call, loaded beforehand)
    )


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a program with its whole group; do nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Run:
    """One program in a folder of its own; its lines are stamped as they come."""

    def __init__(self, argv: List[str], folder: str, number: int, count: int) -> None:
        self.folder, self.number = folder, number
        self.begun_s, self.seconds, self.stopped, self.peak = time.monotonic(), 0.0, "", 0
        self.rest, self.size, self.silent = b"", 0, False
        self.code: Optional[int] = None
        place = {"EDGESCOPE_PROGRAM": str(number), "EDGESCOPE_PROGRAMS": str(count)}
        self.process = started(argv, folder, place)
        self.pipe = self.process.stdout.fileno()  # type: ignore[union-attr]

    def read(self, send: Callable[[Dict[str, Any]], None]) -> None:
        """Send the lines that came; note whether it closed its output."""
        chunk, now = os.read(self.pipe, 1 << 16), time.monotonic()
        lines = (self.rest + chunk).split(b"\n")
        self.rest, self.silent = (lines.pop() if chunk else b""), not chunk
        self.size += len(chunk)
        texts = [line.decode("utf-8", "replace").rstrip("\r") for line in lines if line or chunk]
        if texts:
            send({"event": "lines", "program": self.number, "t_s": now, "lines": texts})

    def ended(self) -> bool:
        """Return whether it has ended; whatever it left behind in its group is killed then."""
        if self.code is None and self.silent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.code = self.process.wait(0.05)
                self.seconds = time.monotonic() - self.begun_s
                end(self.process)
                self.process.stdout.close()  # type: ignore[union-attr]
        return self.code is not None

    def told(self) -> Dict[str, Any]:
        """Return how it ended."""
        return {
            "pid": self.process.pid,
            "code": self.code,
            "seconds": self.seconds,
            "peak_bytes": self.peak or None,
            "stopped": self.stopped,
        }

    def stop(self, why: str) -> None:
        """Kill it with its group, if it runs."""
        if self.code is None:
            self.stopped = self.stopped or why
            end(self.process)

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far, or 0 once it has ended and been waited for."""
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
            return sum(int(x) for x in fields[11:15]) * TICK_S
        except (OSError, IndexError, ValueError):
            return 0.0


def followed(runs: List[Run], limit_s: float, send: Callable[[Dict[str, Any]], None]) -> None:
    """Send the lines of programs until all have ended; one that fails ends the others, for nothing comes of them."""
    begun_s = time.monotonic()
    while not all([run.ended() for run in runs]):
        ready = select.select([run.pipe for run in runs if not run.silent], [], [], 0.2)[0]
        late = time.monotonic() - begun_s > limit_s
        for run in runs:
            if not run.silent and run.pipe in ready:
                run.read(send)
            if run.code is None:
                run.peak = high_water(run.process.pid) or run.peak
            if late or run.size > MOST_OUTPUT:
                run.stop("timeout" if run.size <= MOST_OUTPUT else "output")
            if run.code or run.stopped:
                for other in runs:
                    other.stop("another failed")


def high_water(pid: int) -> int:
    """Return the largest resident set of a process so far, in bytes, or 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            found = re.search(rb"^VmHWM:\s+([0-9]+)", file.read(), re.MULTILINE)
        return int(found.group(1)) * 1024 if found else 0
    except OSError:
        return 0


# ---- files -------------------------------------------------------------------------------------------------


class Files:
    """Files by the SHA-256 of their content, so that nothing is sent twice."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.partial: Dict[str, Tuple[Any, Any, int]] = {}

    def path(self, digest: str) -> str:
        """Return the path for a content, whether it is there or not."""
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise Refused("bad_request", "sha256 must be 64 hex digits")
        return os.path.join(self.folder, digest)

    def made(self) -> str:
        """Make the folder if missing and return it."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        return self.folder

    def open(self, digest: str, size: int) -> bool:
        """Begin to receive a file of `size` bytes; return True if its content is there already."""
        path = self.path(digest)
        if os.path.isfile(path):
            os.utime(path, None)
            return True
        self.close(digest)
        free = shutil.disk_usage(self.made()).free
        if size + SPARE_DISK > free:
            text = (
                f"{size / 1e6:.0f} MB are to be written and {free / 1e6:.0f} MB are free under {self.folder}"
            )
            raise Refused("disk_full", text)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".part-")
        self.partial[digest] = (os.fdopen(handle, "wb"), hashlib.sha256(), size)
        os.rename(name, path + ".part")
        return False

    def add(self, digest: str, data: bytes) -> int:
        """Append to a file that is being received; return the bytes it still lacks."""
        if digest not in self.partial:
            raise Refused("bad_request", "this file was not begun")
        file, state, left = self.partial[digest]
        if len(data) > left:
            self.close(digest)
            raise Refused("bad_request", "more bytes came than were announced")
        file.write(data)
        state.update(data)
        self.partial[digest] = (file, state, left - len(data))
        if left == len(data):
            self.finish(digest)
        return left - len(data)

    def finish(self, digest: str) -> None:
        """Give a whole file its name; Refused if its content is not the announced one."""
        file, state, _ = self.partial[digest]
        file.flush()
        if state.hexdigest() != digest:
            self.close(digest)
            raise Refused("digest", "the content that came is not that of its sha256")
        file.close()
        del self.partial[digest]
        os.rename(self.path(digest) + ".part", self.path(digest))

    def close(self, digest: str) -> None:
        """Remove the part of a file that was received."""
        if digest in self.partial:
            with contextlib.suppress(OSError):  # what was still to be written does not fit either
                self.partial.pop(digest)[0].close()
        if os.path.exists(self.path(digest) + ".part"):
            os.unlink(self.path(digest) + ".part")

    def adopt(self, path: str) -> Tuple[str, int]:
        """Keep a file that a program has written; return (sha256, size)."""
        state = hashlib.sha256()
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                state.update(chunk)
        size = os.path.getsize(path)
        os.rename(path, self.path(state.hexdigest()))
        return state.hexdigest(), size

    def place(self, digest: str, target: str, own: bool) -> None:
        """Put a file's content at `target`: a link, or a copy where the program will write to it."""
        source = self.path(digest)
        if not os.path.isfile(source):
            raise Refused("not_found", "the board does not have this file (any more)")
        if not own:
            with contextlib.suppress(OSError):  # a file system without links
                os.link(source, target)
                return
        shutil.copyfile(source, target)

    def tidy(self) -> None:
        """Remove what was left half-written, and the files used longest ago beyond the limit."""
        kept = 0
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        paths = [os.path.join(self.folder, name) for name in names]
        for path in sorted((p for p in paths if os.path.isfile(p)), key=os.path.getmtime, reverse=True):
            kept += os.path.getsize(path)
            stale = path.endswith(".part") and time.time() - os.path.getmtime(path) > 3600
            if kept > KEPT_FILES or stale:
                os.unlink(path)
        for path in (p for p in paths if os.path.isdir(p)):
            if time.time() - os.path.getmtime(path) > 86400:  # an agent that was killed left its run's folder
                shutil.rmtree(path, ignore_errors=True)


# ---- power modes -------------------------------------------------------------------------------------------

NVPMODEL, HELPER = "/usr/sbin/nvpmodel", "/usr/local/sbin/edgescope-helper"
#: Notes the way back, sets the mode, and goes back when its stdin closes, which the kernel does however the agent ends.
#: One process does all of it, so that no change can come after the way back was gone.
KEEPER = """trap '' HUP INT TERM PIPE
printf %s "$BEFORE" > "$JOURNAL" && sync "$JOURNAL" && "$@" -m "$WANTED" < /dev/null 2>&1
printf '\\nexit %s\\n' "$?"; read x
"$@" -m "$BEFORE" < /dev/null > /dev/null 2>&1 && rm -f "$JOURNAL"
"""
MODE_S = 60.0


class PowerModes:
    """The board's power modes, by nvpmodel; one is held for a while and the one before it is put back.

    The way back is on disk before anything changes. A process that outlives the agent goes it, and the next agent
    goes it after a power cut. A lock tells a mode that is held from one that was left behind.
    """

    def __init__(self, root: str, folder: str) -> None:
        self.root, self.folder = root, folder
        self.journal, self.lock = os.path.join(folder, "mode"), os.path.join(folder, "mode.lock")
        self.keeper: Optional["subprocess.Popen[bytes]"] = None

    def command(self, *words: str) -> List[str]:
        """Return the command line that needs no password: directly, by the installed helper, or by sudo."""
        program = self.root + NVPMODEL
        if self.root or os.geteuid() == 0:
            return [program, *words]
        return ["sudo", "-n", *([HELPER, "nvpmodel"] if os.path.isfile(HELPER) else [program]), *words]

    def call(self, *words: str) -> str:
        """Return what nvpmodel prints; Refused if there is none, or it may not be run."""
        if not os.path.isfile(self.root + NVPMODEL):
            raise Refused("no_mode", f"there is no {NVPMODEL}")
        done = subprocess.run(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.root or "/",
            timeout=MODE_S,
            check=False,
        )
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode:
            raise Refused("no_rights", f"{' '.join(self.command(*words))}: {' '.join(text.split())[-200:]}")
        return text

    def now(self) -> int:
        """Return the id of the present mode; Refused if nvpmodel does not tell it."""
        found = re.findall(r"^\s*([0-9]{1,3})\s*$", self.call("-q"), re.MULTILINE)
        if not found:
            raise Refused("no_mode", "nvpmodel -q names no mode")
        return int(found[-1])

    def taken(self) -> int:
        """Return the lock, open and held; Refused if another agent or its keeper holds it."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        handle = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            who = os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise Refused("held", f"{who or 'another program'} holds a power mode") from None
        return handle

    def recover(self) -> Optional[int]:
        """Put back the mode that was left behind, if no program holds one; return its id."""
        if not os.path.exists(self.journal):
            return None
        try:
            handle = self.taken()
        except Refused:
            return None
        try:
            before = text_of(self.journal)
            if before.isdigit():
                self.call("-m", before)
            os.unlink(self.journal)
            return int(before) if before.isdigit() else None
        except (Refused, OSError, subprocess.SubprocessError):
            return None
        finally:
            os.close(handle)

    def enter(self, wanted: int) -> Dict[str, Any]:
        """Set a mode and return what was before, what nvpmodel says now, and what it printed."""
        if self.keeper is not None:
            raise Refused("busy", "a power mode is held already")
        self.recover()
        handle = self.taken()
        try:
            before, said = self.now(), ""
            if before != wanted:
                self.call("-m", str(before))  # changes nothing, and shows whether the way back is open
                since = time.strftime("%Y-%m-%d %H:%M:%S")
                os.pwrite(handle, f"agent {os.getpid()} of {os.getuid()} since {since}\n".encode("ascii"), 0)
                self.keeper = subprocess.Popen(
                    ["/bin/sh", "-c", KEEPER, "sh", *self.command()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd=self.root or "/",
                    env=dict(os.environ, JOURNAL=self.journal, BEFORE=str(before), WANTED=str(wanted)),
                    start_new_session=True,
                    pass_fds=(handle,),
                )
                said = self.heard(self.keeper)
            return {"before": before, "now": self.now(), "said": said[-500:]}
        except BaseException:
            self.leave()
            raise
        finally:
            os.close(handle)

    def heard(self, keeper: "subprocess.Popen[bytes]") -> str:
        """Return what nvpmodel printed while the keeper set the mode; Refused if it failed."""
        said: List[str] = []
        for line in iter(keeper.stdout.readline, b""):  # type: ignore[union-attr]
            text = line.decode("utf-8", "replace").rstrip()
            if text.startswith("exit "):
                if text != "exit 0":
                    raise Refused("no_rights", " ".join(said)[-300:] or text)
                return " ".join(said)
            said += [text] if text else []
        raise Refused("failed", "what sets the mode ended")

    def leave(self) -> Dict[str, Any]:
        """Put the mode before back, if one is held; return whether that is done."""
        keeper, self.keeper = self.keeper, None
        if keeper is not None and keeper.stdin is not None:
            keeper.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                keeper.wait(MODE_S)
        return {"restored": not os.path.exists(self.journal)}


# ---- the conversation --------------------------------------------------------------------------------------


def field(request: Dict[str, Any], name: str, kind: Any) -> Any:
    """Return a field of a request; Refused if it is missing or of another type."""
    value = request.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Refused("bad_request", f"{name} is missing or of the wrong type")
    return value


def plain(name: Any) -> str:
    """Return a plain file name; Refused for a path."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+ -]{1,200}", name) or name in (".", ".."):
        raise Refused("bad_request", f"{str(name)[:60]!r} is not a plain file name")
    return name


Program = Tuple[List[str], Dict[str, str], List[str]]


def program_of(asked: Any) -> Program:
    """Return the command line, the files by their names and the outputs of a program that is asked for."""
    if not isinstance(asked, dict):
        raise Refused("bad_request", "a program is an object with argv, files and outputs")
    argv = field(asked, "argv", list)
    if not argv or not all(isinstance(w, str) and "\0" not in w for w in argv):
        raise Refused("bad_request", "argv must be a list of words")
    outputs = [plain(name) for name in field(asked, "outputs", list)]
    return argv, {plain(k): str(v) for k, v in field(asked, "files", dict).items()}, outputs


class Agent:
    """One conversation: requests come from `source`, answers and events go to `sink`."""

    def __init__(self, source: Any, sink: Any, root: str, store: str) -> None:
        self.source, self.sink, self.root = source, sink, root.rstrip("/")
        self.files, self.lock = Files(os.path.join(store, "files")), threading.Lock()
        self.sampler: Optional[Sampler] = None
        self.tegrastats: Optional[Tegrastats] = None
        self.runs: List[Run] = []
        self.modes = PowerModes(self.root, os.path.join(store, "modes"))
        self.folders: List[str] = []
        self.starting = threading.Lock()
        self.heard_s, self.over, self.now_s = time.monotonic(), False, time.monotonic()

    def send(self, message: Dict[str, Any]) -> None:
        """Send one message; end everything if the host has gone."""
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        try:
            with self.lock:
                self.sink.write(line)
                self.sink.flush()
        except (OSError, ValueError) as error:
            self.leave(1, f"the host cannot be written to: {error}")

    def serve(self) -> None:
        """Answer until stdin closes or the host says bye."""
        for line in self.lines():
            self.heard_s = self.now_s = time.monotonic()
            request = None
            try:
                request = self.request(line)
                answer = self.answer(request)
                if answer is not None:
                    self.send({"id": request["id"], "ok": answer})
            except Refused as refused:
                self.refuse(request, refused.code, refused.what)
            except Exception as error:  # whatever a request does, the next one is answered
                full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
                self.refuse(request, "disk_full" if full else "failed", f"{type(error).__name__}: {error}")
            if self.over:
                return

    def lines(self) -> Iterator[bytes]:
        """Yield each whole line; one that is too long is answered with an error and skipped."""
        while True:
            line = self.source.readline(LONGEST_LINE + 1)
            if not line.endswith(b"\n"):
                if len(line) <= LONGEST_LINE:
                    return  # stdin closed, perhaps in mid-line
                while line and not line.endswith(b"\n"):
                    line = self.source.readline(LONGEST_LINE)
                self.refuse(None, "bad_request", f"a line is longer than {LONGEST_LINE} bytes")
            elif line.strip():
                yield line

    def request(self, line: bytes) -> Dict[str, Any]:
        """Return the request in a line; Refused if the line is no request."""
        try:
            found = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            raise Refused("bad_request", "the line is not JSON") from None
        if not isinstance(found, dict) or not isinstance(found.get("verb"), str):
            raise Refused("bad_request", "a request is an object with a verb")
        identity = found.setdefault("id", None)
        if identity is not None and (not isinstance(identity, int) or abs(identity) > 2**53):
            found["id"] = None
            raise Refused("bad_request", "the id must be a whole number")
        return found

    def refuse(self, request: Optional[Dict[str, Any]], code: str, what: str) -> None:
        """Answer with an error."""
        identity = request["id"] if request else None
        self.send({"id": identity, "error": {"code": code, "what": what[:500]}})

    def answer(self, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Return the answer to a request, or None if it comes later."""
        verbs: Dict[str, Callable[[Dict[str, Any]], Optional[Dict[str, Any]]]] = {
            "hello": self.hello,
            "ping": self.ping,
            "facts": self.facts,
            "sample_start": self.sample_start,
            "sample_stop": self.sample_stop,
            "find": self.find,
            "run": self.run_programs,
            "cancel": self.cancel,
            "mode_enter": lambda request: self.modes.enter(field(request, "mode", int)),
            "mode_leave": lambda request: dict(self.modes.leave(), now=self.modes.now()),
            "put_begin": self.put_begin,
            "put": self.put,
            "get": self.get,
            "forget": self.forget,
            "bye": self.bye,
        }
        verb = verbs.get(request["verb"])
        if verb is None:
            raise Refused("unknown_verb", f"there is no verb {request['verb'][:60]!r} here")
        return verb(request)

    def hello(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the agent's protocol, its Python and its clock."""
        self.files.tidy()
        restored = self.modes.recover()
        return {
            "restored": restored,
            "agent": "edgescope",
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "executable": sys.executable,
            "clock": "time.monotonic",
            "resolution_s": time.get_clock_info("monotonic").resolution,
            "t_s": self.now_s,
        }

    def ping(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the time at which the request arrived."""
        return {"t_s": self.now_s}

    def facts(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the text of the files that describe this board, and the facts that need a system call."""
        files: Dict[str, str] = {}
        absent: Dict[str, str] = {}
        total = 0
        for pattern in FACTS:
            paths = sorted(glob.glob(os.path.join(self.root + "/", pattern)))
            for path in paths or [os.path.join(self.root + "/", pattern)]:
                name = os.path.relpath(path, self.root + "/")
                if total > FACTS_BYTES or name in files or os.path.isdir(path):
                    continue
                try:
                    with open(path, "rb") as file:
                        files[name] = file.read(FACT_BYTES).decode("utf-8", "replace")
                    total += len(files[name])
                except OSError as error:
                    absent[name] = error.strerror or str(error)
        return {
            "files": files,
            "absent": absent,
            "python": platform.python_version(),
            "architecture": platform.machine(),
            "libc": " ".join(platform.libc_ver()).strip(),
            "affinity": sorted(os.sched_getaffinity(0)),
            "uid": os.getuid(),
            "trtexec": self.trtexec(None),
        }

    def trtexec(self, named: Optional[str]) -> Optional[str]:
        """Return the path of trtexec, from the request, EDGESCOPE_TRTEXEC, PATH or JetPack's folder, or None."""
        asked = named or os.environ.get("EDGESCOPE_TRTEXEC")
        found = shutil.which(asked) if asked else shutil.which("trtexec") or shutil.which(TRTEXEC)
        return os.path.realpath(found) if found else None

    def find(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the path of trtexec."""
        named = request.get("named")
        if named is not None and not isinstance(named, str):
            raise Refused("bad_request", "named must be a path")
        path = self.trtexec(named)
        if path is None:
            looked = named or "EDGESCOPE_TRTEXEC, PATH and " + TRTEXEC
            raise Refused("not_found", f"no trtexec: looked at {looked}")
        return {"path": path}

    def sample_start(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Begin to sample; return the channels, in the order of the values in each row."""
        hz = field(request, "hz", (int, float))
        if self.sampler is not None:
            raise Refused("busy", "it samples already")
        if not 0 < hz <= MOST_HZ:
            raise Refused("bad_request", f"hz must lie between 0 and {MOST_HZ:g}")
        found = sensors(self.root, self.mine_s)
        if not any(gauge.name.endswith("_power_w") for gauge in found):
            found += self.tegrastats_gauges()
        self.sampler = Sampler(hz, found, self.send)
        self.sampler.start()
        return {"channels": [gauge.about for gauge in found], "t_s": time.monotonic()}

    def tegrastats_gauges(self) -> List[Gauge]:
        """Return the rails that tegrastats prints, or [] if there is no tegrastats."""
        program = shutil.which("tegrastats")
        if program is None:
            return []
        self.tegrastats = Tegrastats(program)
        return self.tegrastats.gauges()

    def mine_s(self) -> float:
        """Return the CPU seconds of the agent, its ended programs and the running ones."""
        running, spent = sum(run.cpu_s() for run in list(self.runs)), os.times()
        return spent[0] + spent[1] + spent[2] + spent[3] + running

    def sample_stop(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Stop sampling; the last rows are sent before this answer."""
        if self.sampler is None:
            raise Refused("bad_request", "it does not sample")
        told = self.sampler.stop()
        self.sampler = None
        if self.tegrastats is not None:
            self.tegrastats.stop()
            self.tegrastats = None
        return told

    def put_begin(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Announce a file; return whether its content is here already."""
        digest, size = field(request, "sha256", str), field(request, "size", int)
        if size < 0:
            raise Refused("bad_request", "size must not be negative")
        have = self.files.open(digest, size)
        if not have and size == 0:
            self.files.add(digest, b"")
        return {"have": have}

    def put(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Take the next part of a file."""
        digest = field(request, "sha256", str)
        try:
            data = base64.b64decode(field(request, "data", str), validate=True)
        except ValueError:
            raise Refused("bad_request", "data is not base64") from None
        try:
            return {"left": self.files.add(digest, data)}
        except OSError:
            self.files.close(digest)
            raise

    def get(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return a part of a file."""
        path, offset = self.files.path(field(request, "sha256", str)), field(request, "offset", int)
        if offset < 0 or not os.path.isfile(path):
            raise Refused("not_found", "there is no such part of a file")
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(CHUNK)
        return {"data": base64.b64encode(data).decode("ascii"), "size": os.path.getsize(path)}

    def forget(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Remove files that will not be needed again."""
        for digest in field(request, "sha256", list):
            path = self.files.path(digest) if isinstance(digest, str) else ""
            if os.path.isfile(path):
                os.unlink(path)
        return {}

    def run_programs(self, request: Dict[str, Any]) -> None:
        """Run programs at once, each in a folder with its named files; the answer comes when all have ended."""
        programs = [program_of(one) for one in field(request, "programs", list)]
        limit_s = field(request, "limit_s", (int, float))
        if not 0 < limit_s < 1e7:
            raise Refused("bad_request", "limit_s must be seconds")
        if not 0 < len(programs) <= MOST_PROGRAMS:
            raise Refused("bad_request", f"programs must be 1 to {MOST_PROGRAMS}")
        if self.folders:
            raise Refused("busy", "a program runs already")
        folder = tempfile.mkdtemp(dir=self.files.made(), prefix="run-")
        self.folders.append(folder)
        try:
            for number, (_, files, outputs) in enumerate(programs):
                os.mkdir(os.path.join(folder, str(number)))
                for name, digest in files.items():
                    self.files.place(digest, os.path.join(folder, str(number), name), own=name in outputs)
            threading.Thread(target=self.drive, args=(request["id"], programs, folder, limit_s)).start()
        except BaseException:
            self.clear(folder)
            raise

    def drive(self, identity: Any, programs: List[Program], folder: str, limit_s: float) -> None:
        """Run the programs in a thread of their own: PR_SET_PDEATHSIG fires when the thread that forked ends."""
        told: Optional[Dict[str, Any]] = None
        code, what, argv = "failed", "", programs[0][0]
        try:
            for number, (argv, _, _) in enumerate(programs):
                with self.starting:
                    if self.over:
                        return
                    place = os.path.join(folder, str(number))
                    self.runs.append(Run(argv, place, number, len(programs)))
            followed(self.runs, limit_s, self.send)
            outputs = [self.kept(run, programs[run.number][2]) for run in self.runs]
            told = {"programs": [dict(run.told(), outputs=outputs[run.number]) for run in self.runs]}
        except Exception as error:  # the host waits for an answer, whatever it is
            code = "cannot_start" if len(self.runs) < len(programs) else "failed"
            full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
            code, what, told = "disk_full" if full else code, f"{argv[0]}: {error}", None
        finally:
            for run in self.runs:
                run.stop("")
            self.runs = []
            self.clear(folder)
        if told is None:
            self.send({"id": identity, "error": {"code": code, "what": what[:500]}})
        else:
            self.send({"id": identity, "ok": told})

    def kept(self, run: Run, outputs: List[str]) -> Dict[str, Dict[str, Any]]:
        """Keep what a program has written of `outputs`; return the sha256 and the size of each by its name."""
        found = [name for name in outputs if os.path.isfile(os.path.join(run.folder, name))]
        kept = {name: self.files.adopt(os.path.join(run.folder, name)) for name in found}
        return {name: {"sha256": digest, "size": size} for name, (digest, size) in kept.items()}

    def cancel(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Stop the running programs, if there are any."""
        runs = list(self.runs)
        for run in runs:
            run.stop("cancelled")
        return {"stopped": bool(runs)}

    def clear(self, folder: str) -> None:
        """Remove a run's folder."""
        shutil.rmtree(folder, ignore_errors=True)
        if folder in self.folders:
            self.folders.remove(folder)

    def bye(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """End the conversation."""
        self.over = True
        return {}

    def watch(self) -> None:
        """End everything when the host has been silent for too long: its network may have failed."""
        while True:
            time.sleep(1.0)
            busy = bool(self.folders) or self.sampler is not None
            limit_s = SILENT_BUSY_S if busy else SILENT_IDLE_S
            if time.monotonic() - self.heard_s > limit_s:
                self.leave(1, f"nothing came from the host for {limit_s:.0f} s")

    def leave(self, code: int, why: str = "") -> None:
        """Say why, kill what was started, remove what was written, and end at once."""
        if why:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"edgescope's agent ends: {why}\n")
                sys.stderr.flush()
        self.over = True
        with self.starting:  # a program that is being started must not be missed
            processes = [run.process for run in self.runs]
        if self.tegrastats is not None:
            processes.append(self.tegrastats.process)
        for process in processes:
            end(process)
        for folder in list(self.folders):
            shutil.rmtree(folder, ignore_errors=True)
        for digest in list(self.files.partial):
            self.files.close(digest)
        self.modes.leave()
        os._exit(code)


def interrupted(number: int, frame: Any) -> None:
    """Turn a signal into an orderly end."""
    raise SystemExit(128 + number)


def main(argv: List[str]) -> None:
    """Serve on stdin and stdout. EDGESCOPE_ROOT names another root for the sensors (tests)."""
    if argv[1:]:
        sys.exit(
            "usage: edgescope_agent.py (it takes no arguments and speaks JSON lines on stdin and stdout)"
        )
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    root = os.environ.get("EDGESCOPE_ROOT", "/")
    agent = Agent(sys.stdin.buffer, sys.stdout.buffer, root, os.path.join(base, "edgescope-agent"))
    threading.Thread(target=agent.watch, daemon=True).start()
    code, why = 1, ""
    try:
        agent.serve()
        code = 0
    except BaseException as error:
        why = f"{type(error).__name__} {error}"
    finally:
        agent.leave(code, why)


if __name__ == "__main__":
    main(sys.argv)
