"""Sets the CPU frequency governor: `--mode governor=performance` holds clocks at the policy's limit.

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
    """Sets one governor on every CPU clock policy."""

    def __init__(self, governor: str, root: Path = Path("/")) -> None:
        self.governor, self.root = governor, root

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return f"governor={self.governor}"

    def enter(self, journal: Journal) -> None:
        """Set the governor on every policy; UnsupportedError if there is no cpufreq."""
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
        """Return '' if every policy has the governor, else the policies that have another."""
        now = self._now()
        others = [f"{policy} has governor {g}" for policy, g in now.items() if g != self.governor]
        return "; ".join(others) if now else "no cpufreq"

    def evidence(self) -> str:
        """Return the governors read from the kernel."""
        return ", ".join(f"{policy} {governor}" for policy, governor in self._now().items())

    def _now(self) -> dict[str, str]:
        read = {policy.name: fact(policy / "scaling_governor") for policy in policies(self.root)}
        return {policy: governor for policy, governor in read.items() if not is_absent(governor)}

    def _words(self, policy: str, governor: str) -> tuple[str, ...]:
        return ("write", f"/sys/devices/system/cpu/cpufreq/{policy}/scaling_governor", governor)
