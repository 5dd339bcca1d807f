"""The fixed-function engines of a Jetson's chip: DLA, NVENC, NVDEC, NVJPG, VIC, PVA, OFA, APE.

From JetPack 6 on, each engine has a devfreq folder that everyone may read; before, only root reads its clock, in
debugfs. Its device's runtime status on the host1x bus says whether it runs. No engine publishes a load to the user.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edgescope.devices.base import ChannelSpec, Unsupported, Value
from edgescope.devices.kernel_files import Each, Fact, KernelFile, absent, fact
from edgescope.wings.jetson.files import bounds, devfreqs, first_readable, number, rate_files, unlocked
from edgescope.wings.jetson.identity import soc

_ENGINES: dict[str, tuple[str, ...]] = {
    "dla": ("nafll_dla{0}_core", "nafll_dla", "nvdla{0}"),
    "nvenc": ("nvenc{0}", "nvenc", "nafll_nvenc"),
    "nvdec": ("nvdec{0}", "nvdec", "nafll_nvdec"),
    "nvjpg": ("nvjpg{0}", "nvjpg", "nafll_nvjpg"),
    "vic": ("vic", "vic03", "nafll_vic"),
    "pva": ("pva{0}_vps", "nafll_pva{0}_vps", "nafll_pva_vps"),
    "ofa": ("ofa", "nafll_ofa"),
    "ape": ("ape",),
}
"""Engine -> its clock's names in debugfs, `{0}` being the instance."""
_WITHOUT = {
    "tegra210": ("dla", "pva", "ofa"),
    "tegra186": ("dla", "pva", "ofa"),
    "tegra194": ("ofa",),
    "tegra264": ("dla",),
}
"""Chip -> engines that it lacks, by the data sheets of NVIDIA's modules; all others are looked for."""
_HOST1X = (
    "sys/devices/*.host1x",
    "sys/devices/platform/host1x",
    "sys/devices/platform/*.host1x",
    "sys/devices/platform/bus@0/*.host1x",
)


class Engines(Each):
    """Clocks of the fixed-function engines in hertz; 0 while the kernel reports an engine as suspended.

    There is one clock for the first engine of each kind, and one for each further engine that is present.
    """

    def __init__(self, root: str) -> None:
        found = {name: _Engine(Path(root), *place) for name, place in engines(Path(root)).items()}
        super().__init__(
            (ChannelSpec(f"{name}_clock_hz", "Hz", "engine", "gauge", engine.source), engine.read)
            for name, engine in found.items()
        )

    @staticmethod
    def facts(root: Path) -> Fact:
        """Return runtime status, clock and bounds of each engine that the kernel shows."""
        out: dict[str, Any] = {}
        for name, (kind, index) in engines(root).items():
            folder = _folder(root, kind, index)
            status = _status(root, kind, index)
            if folder is not None or status is not None:
                out[name] = {"status": absent("not shown") if status is None else fact(status)}
                out[name] |= {} if folder is None else bounds(folder)
        return out or absent("no engine is shown in devfreq or on host1x")


def engines(root: Path) -> dict[str, tuple[str, int]]:
    """Return channel prefix -> (kind, instance): instance 0 of every kind, and others that are present."""
    out: dict[str, tuple[str, int]] = {}
    for kind in _ENGINES:
        count = max(1, len(_folders(root, kind)), len(_devices(root, kind)))
        for index in range(count):
            out["ape" if kind == "ape" else f"{kind}{index}"] = (kind, index)
    return out


def _marker(kind: str) -> re.Pattern[str]:
    return re.compile(rf"\.(?:nv)?{kind}\d?$")


def _folders(root: Path, kind: str) -> list[Path]:
    return devfreqs(root, _marker(kind))


def _folder(root: Path, kind: str, index: int) -> Path | None:
    return dict(enumerate(_folders(root, kind))).get(index)


def _devices(root: Path, kind: str) -> list[Path]:
    """Return the engine's devices on the host1x bus, ordered by address."""
    marker = _marker(kind)
    return sorted(
        (d for pattern in _HOST1X for d in root.glob(f"{pattern}/*.*") if marker.search(d.name)),
        key=lambda d: d.name,
    )


def _status(root: Path, kind: str, index: int) -> Path | None:
    device = dict(enumerate(_devices(root, kind))).get(index)
    return None if device is None else device / "power/runtime_status"


class _Engine:
    """One engine's clock file and runtime status."""

    def __init__(self, root: Path, kind: str, index: int) -> None:
        self._kind = kind
        folder, status = _folder(root, kind, index), _status(root, kind, index)
        own = [] if folder is None else [f"{folder.relative_to(root)}/cur_freq"]
        names = [n.format(index) for n in _ENGINES[kind] if index == 0 or "{0}" in n]
        chip = soc(root)
        self._without = "" if own or status or kind not in _WITHOUT.get(str(chip), ()) else f"a {chip} has no"
        self._clock = first_readable(root, (*own, *rate_files(*names)))
        self._status = None if status is None else KernelFile(status)
        self.source = f"{getattr(self._clock, 'path', 'devfreq or debugfs')}; 0 while suspended"

    def read(self) -> Value:
        """Return the clock in hertz, 0 for a suspended engine."""
        if self._status is not None and self._status.read() == b"suspended\n":
            return 0.0
        if self._without and not isinstance(self._clock, KernelFile):
            return Unsupported(f"{self._without} {self._kind.upper()}")
        return unlocked(number(self._clock))
