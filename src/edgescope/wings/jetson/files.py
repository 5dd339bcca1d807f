"""Find the file of a Jetson metric on any release: the first of several paths that can be read.

NVIDIA moved nearly every file between JetPack 4 and 7. A source lists all known paths, as patterns under the root,
and takes the first that opens. If none opens, the most useful reason is kept: a file that exists and is forbidden can
be unlocked, a missing one cannot.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from edgescope.devices.base import Unsupported, Value
from edgescope.devices.kernel_files import Fact, KernelFile, fact

UNLOCK_DEBUGFS = "debugfs is for root: run as root, or sudo chmod a+rx /sys/kernel/debug"
"""In a container debugfs must be mounted as well: -v /sys/kernel/debug:/sys/kernel/debug:ro."""
_GPU = re.compile(r"(?:^|\.)(?:g[a-z]\d+[a-z]|gpu)$|^gpu-gpc-\d+$")
"""gm20b (Nano), gp10b (TX2), gv11b (Xavier), ga10b and gpu (Orin), gpu-gpc-0 (Thor), and what follows them."""
_DEVFREQ = (
    "sys/class/devfreq/*",
    "sys/devices/*/devfreq/*",
    "sys/devices/platform/*/devfreq/*",
    "sys/devices/platform/bus@0/*/devfreq/*",
)


def found(root: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the paths that match any of the patterns under `root`, in the order of the patterns."""
    out: dict[Path, None] = {}
    for pattern in patterns:
        for path in sorted(glob.glob(f"{glob.escape(str(root))}/{pattern}"), key=natural):
            out.setdefault(Path(path))
    return list(out)


def natural(path: str) -> list[int | str]:
    """Return a key that sorts texts with numbers in the order of the numbers."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d{1,18})", path)]


def first_readable(root: Path, patterns: Sequence[str], size: int = 64) -> KernelFile | Unsupported:
    """Return the first of these files that can be read now, or the reason why none can."""
    reasons = []
    for path in found(root, patterns) + [root / p for p in patterns if "*" not in p]:
        file = KernelFile(path, size)
        data = file.read()
        if isinstance(data, bytes):
            return file
        reasons.append(data.reason)
    forbidden = [r for r in reasons if r.startswith("no permission")]
    return Unsupported((forbidden or reasons or [f"no {root / patterns[0]}"])[0])


def number(file: KernelFile | Unsupported, scale: float = 1.0) -> Value:
    """Return the file's number times `scale`, or the reason why there is none."""
    return file.number(scale) if isinstance(file, KernelFile) else file


def unlocked(value: Value) -> Value:
    """Return a reason with the way to unlock the file added if it lies in debugfs."""
    return Unsupported(f"{value.reason}; {UNLOCK_DEBUGFS}") if isinstance(value, Unsupported) else value


def devfreqs(root: Path, marker: re.Pattern[str]) -> list[Path]:
    """Return the devfreq folders whose name contains the marker, each device once, ordered by address."""
    out: dict[str, Path] = {}
    for path in found(root, _DEVFREQ):
        if marker.search(path.name):
            out.setdefault(path.name, path)
    return [out[name] for name in sorted(out)]  # addresses are hexadecimal, of one length


def bounds(folder: Path) -> dict[str, Fact]:
    """Return the lowest, current and highest clock of a devfreq folder in hertz."""
    return {f"{name}_hz": fact(folder / f"{name}_freq", int) for name in ("min", "cur", "max")}


def rate_files(*names: str) -> list[str]:
    """Return the debugfs paths of these clocks' rates: Tegra186 and later, then Tegra210."""
    places = ("bpmp/debug/clk/{0}/rate", "clk/{0}/clk_rate")
    return [f"sys/kernel/debug/{place.format(name)}" for name in names for place in places]


def gpu_devfreq(root: Path) -> Path | None:
    """Return the devfreq folder of the integrated GPU, found by its marker, or None if there is none."""
    return next(iter(devfreqs(root, _GPU)), None)


def command_names(root: Path) -> dict[int, str]:
    """Return the name of every running process by its id."""
    out = {}
    for pid in filter(str.isdigit, _listed(root / "proc")):
        try:
            out[int(pid)] = (root / "proc" / pid / "comm").read_text(errors="replace").strip()
        except OSError:  # it ended meanwhile
            continue
    return out


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
