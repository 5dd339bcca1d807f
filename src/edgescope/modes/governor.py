"""How the kernel chooses CPU clocks: `--mode governor=performance` holds them at the policy's limit.

Documentation/admin-guide/pm/cpufreq.rst. On a Jetson, jetson_clocks does this and more.
"""

from __future__ import annotations

from pathlib import Path

from edgescope.devices.base import Journal, Mode, Undo
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import fact, is_absent
from edgescope.errors import SettingError, UnsupportedError
from edgescope.modes.privileged import act


class Governor(Mode):
    """One governor for every CPU clock policy."""

    def __init__(self, governor: str, root: Path = Path("/")) -> None:
        self.governor, self.root = governor, root

    @property
    def name(self) -> str:
        """The word after --mode."""
        return f"governor={self.governor}"

    def enter(self, journal: Journal) -> None:
        """Set it on every policy; UnsupportedError where there is no cpufreq."""
        now = self._now()
        if not now:
            raise UnsupportedError("E-MODE-9", "there is no CPU frequency driver here, so no governor")
        for policy, governor in now.items():
            journal.note(
                self.name,
                Undo(f"{policy} governor {governor}", self._words(policy, governor), str(self.root)),
            )
        for policy in now:
            act(self._words(policy, self.governor), self.root)
        if problem := self.problem():
            raise SettingError(
                "E-MODE-2", "mode change not in effect", evidence=problem, effect="Nothing was measured"
            )

    def problem(self) -> str:
        """Return '' where every policy has the governor."""
        now = self._now()
        others = [f"{policy} has governor {g}" for policy, g in now.items() if g != self.governor]
        return "; ".join(others) if now else "no cpufreq"

    def evidence(self) -> str:
        """Return the governors read."""
        return ", ".join(f"{policy} {governor}" for policy, governor in self._now().items())

    def _now(self) -> dict[str, str]:
        read = {policy.name: fact(policy / "scaling_governor") for policy in policies(self.root)}
        return {policy: governor for policy, governor in read.items() if not is_absent(governor)}

    def _words(self, policy: str, governor: str) -> tuple[str, ...]:
        return ("write", f"/sys/devices/system/cpu/cpufreq/{policy}/scaling_governor", governor)
