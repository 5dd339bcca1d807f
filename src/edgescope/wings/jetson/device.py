"""An NVIDIA Jetson, from sysfs and procfs alone: no daemon, no root, no jtop.

The device tree names the board, boards.toml gives the meaning of its rails, and everything that moves
from the sources of its neighbours, each a few kernel files opened once. What sets a power mode is loaded when the
settings are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgescope.devices import clocks
from edgescope.devices.base import Mode, SourceSpec
from edgescope.devices.kernel_files import Fact
from edgescope.wings.jetson import boards, nvpmodel, rails, tegrastats
from edgescope.wings.jetson.guards import Fans, JetsonThrottleWatch
from edgescope.wings.jetson.soc import CpuClusters, Emc, Engines, Gpu

_SOURCES = (
    ("rails:Rails", 1),
    ("soc:Gpu", 1),
    ("soc:Emc", 5),
    ("soc:CpuClusters", 5),
    ("guards:HeldClocks", 5),
    ("guards:Cooling", 5),
    ("guards:OverCurrent", 10),
    ("guards:Fans", 10),
    ("soc:Engines", 10),
)
"""(Source, ticks between two reads). Power and load change fastest. Reading a rail more often than its chip updates
repeats values, which shows when each update came. Counters can be read rarely without loss."""
_MEMORY = ("soc:JetsonMemory", 10)
_TEGRASTATS_MS = 200
"""The INA3221s behind it refresh about every 430 ms: read twice as often, no result is missed."""


class JetsonDevice:
    """One Jetson module on its carrier board."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def present(self) -> str:
        """Return '' on a machine with an NVIDIA Tegra, otherwise the reason."""
        return boards.present(self._root)

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return (stable facts of the module, current facts): release, power mode, rails, fan and its owner, clocks."""
        root = self._root
        state: dict[str, Any] = {
            "l4t": boards.l4t(root),
            "jetpack": boards.jetpack_here(root),
            "power_mode": _power_mode(root),
            "dvfs": clocks.dvfs(root),
            **rails.facts(root),
            "fan": Fans.facts(root),
            "gpu": Gpu.facts(root),
            "memory": Emc.facts(root),
            "cpu_clusters": CpuClusters.facts(root),
            "engines": Engines.facts(root),
        }
        if unread := nvpmodel.problems(root):
            state["nvpmodel_problems"] = unread
        return boards.stable(root), state

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return rails, GPU, memory, engines, fans and throttling; none on a machine that is no Jetson.

        If sysfs shows no rail, NVIDIA's tegrastats is read as well, if it is installed.
        """
        if self.present():
            return ()
        root = {"root": str(self._root)}
        rest = [SourceSpec(f"edgescope.wings.jetson.{target}", root, every) for target, every in _SOURCES]
        target, every = _MEMORY
        memory = SourceSpec(f"edgescope.wings.jetson.{target}", root | {"pid": pid}, every)
        return (*rest, memory, *self._second_source())

    def _second_source(self) -> Sequence[SourceSpec]:
        program = tegrastats.find()
        if not program or rails.readable(self._root):
            return ()
        board = boards.here(self._root).board
        scopes = {label: rail.scope for label, rail in board.rails.items()} if board else {}
        kwargs = {
            "interval_ms": _TEGRASTATS_MS,
            "program": program,
            "scopes": scopes,
            "prefix": "tegrastats_",
        }
        return (SourceSpec("edgescope.wings.jetson.tegrastats:TegrastatsSource", kwargs),)

    def modes(self) -> Mapping[str, Mode]:
        """Return the power modes of nvpmodel.conf and jetson_clocks, by name."""
        if self.present():
            return {}
        from edgescope.wings.jetson.modes import modes

        return modes(self._root)

    def unlisted(self) -> tuple[str, Sequence[str]]:
        """Return why nvpmodel.conf yields no power mode, and its lines that were not understood."""
        conf, path = nvpmodel.load(self._root), f"/{nvpmodel.CONF}"
        if not isinstance(conf, nvpmodel.Conf):
            reason = str(conf["absent"]).replace(f"{self._root}/", "/")
            return f"no power modes: {reason} (the file that lists them)", ()
        unread = [f"{path}, {line}" for line in conf.unread if line.startswith("line ")]
        return f"no power modes: none in {path} (the file that lists them)", unread

    def throttle_watch(self) -> JetsonThrottleWatch:
        """Return a context that reports, once it has ended, whether heat, power or the supply held the clocks down."""
        return JetsonThrottleWatch(self._root)


def _power_mode(root: Path) -> Fact:
    """Return name, id and cores of the current nvpmodel mode, or the reason why it is not known."""
    mode = nvpmodel.current(root)
    if not isinstance(mode, nvpmodel.PowerMode):
        return mode
    return {"name": mode.name, "id": mode.id, "cores": list(mode.cores), "default": mode.default}
