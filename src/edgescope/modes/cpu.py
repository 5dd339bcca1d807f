"""Modes of the CPU: which ones a trial may use (`cpus=0-1`), how much of their time (`quota=1.5`), and their governor.

`cpus=`: the trial's process and all it starts may run only on these (sched_setaffinity); engines that size their thread
pools by the affinity use fewer threads, as they would on a smaller machine. Nothing outside the process changes, so
there is nothing to restore. Other processes may still run on the same CPUs.

`quota=` makes a control group (`edgescope-<process>`) in cgroup v2 or v1 if this process may; otherwise it requests a
scope from systemd's user manager (`systemd-run --user --scope`). The kernel stops the group for the rest of each 100 ms
once its time is used up, so the tail of the latency grows first. That is how a container with a CPU limit behaves; it
is not how a slower CPU behaves.

`governor=performance` holds clocks at the policy's limit (Documentation/admin-guide/pm/cpufreq.rst). On a Jetson,
jetson_clocks does this and more.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from edgescope.devices.base import Journal, Mode, Row, Undo
from edgescope.devices.cpu.limits import cpu_limit
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import fact, is_absent
from edgescope.errors import EdgescopeError, SettingError, UnsupportedError
from edgescope.modes import launcher
from edgescope.modes.privileged import PERIOD_US, act, cgroup_base, free_group
from edgescope.process import Launch
from edgescope.units import ranges

_SYSTEMD_S = 20
_SLACK_CPUS = 0.005


class Affinity(Mode):
    """The process may run on `cpus` only."""

    def __init__(self, cpus: Iterable[int]) -> None:
        self.cpus = tuple(sorted(set(cpus)))

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return f"cpus={ranges(self.cpus)}"

    def launch(self) -> Launch:
        """Return the launch that sets the affinity."""
        return launcher.launch(cpus=ranges(self.cpus))

    def enter(self, journal: Journal) -> None:
        """Raise UnsupportedError unless this process may use these CPUs."""
        allowed = os.sched_getaffinity(0)
        missing = sorted(set(self.cpus) - allowed)
        if missing:
            raise UnsupportedError(
                "E-CPUS-1",
                f"CPU {ranges(missing)} cannot be used here",
                evidence=f"this process may use {ranges(allowed)}",
                fix=f"--mode cpus={ranges(allowed)}, or a part of it",
            )

    def leave(self, journal: Journal) -> None:
        """Do nothing: the setting ended with the process."""

    def problem(self) -> str:
        """Return '' if this process may run on exactly these CPUs, else the CPUs it may use."""
        now = os.sched_getaffinity(0)
        return "" if now == set(self.cpus) else f"this process may use CPUs {ranges(now)}"

    def evidence(self) -> str:
        """Return the CPUs that the kernel lets this process run on."""
        return f"sched_getaffinity: CPUs {ranges(os.sched_getaffinity(0))}"

    def features(self) -> Mapping[str, float]:
        """Return the number of CPUs."""
        return {"cpu_cores": float(len(self.cpus))}

    def row(self) -> Row:
        """Return its line in the list of settings."""
        return Row(self.name, why=f"the trial runs on CPU {ranges(self.cpus)} only")


def some(usable: Sequence[int]) -> dict[str, Affinity]:
    """Return the modes that use one, two, four ... of the usable CPUs, but not all, by name."""
    sizes = [2**n for n in range(len(usable).bit_length()) if 2**n < len(usable)]
    return {mode.name: mode for mode in (Affinity(usable[:size]) for size in sizes)}


class Quota(Mode):
    """At most `cpus` CPUs' worth of time."""

    def __init__(self, cpus: float, root: Path = Path("/")) -> None:
        self.cpus, self.root = cpus, root
        self._launch = Launch()

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return f"quota={self.cpus:g}"

    def launch(self) -> Launch:
        """Return the launch that moves the child into the group."""
        return self._launch

    def enter(self, journal: Journal) -> None:
        """Make the group or find a scope; UnsupportedError with both reasons if neither is possible."""
        quota_us = round(self.cpus * PERIOD_US)
        try:
            base = cgroup_base(self.root)
            if not os.access(base, os.W_OK):
                raise PermissionError(errno.EACCES, "this process may make no control group", str(base))
        except OSError as error:
            self._launch = Launch(self._scope(str(error)))
            return
        group = free_group(base)
        journal.note(
            self.name, Undo(f"control group {group} removed", ("quota", "remove", group), str(self.root))
        )
        try:
            act(("quota", "set", group, str(quota_us)), self.root)
        except EdgescopeError as error:
            self._launch = Launch(self._scope(str(error)))
        else:
            self._launch = launcher.launch(group=group, root=str(self.root))

    def _scope(self, why: str) -> tuple[str, ...]:
        """Return systemd's launch prefix after a trial scope with this quota has worked."""
        program = shutil.which("systemd-run")
        words = (program or "", "--user", "--scope", "--quiet", "-p", f"CPUQuota={100 * self.cpus:g}%", "--")
        reason = "no systemd-run"
        if program and self.root == Path("/"):
            try:
                done = subprocess.run(
                    [*words, "true"],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_SYSTEMD_S,
                    check=False,
                )
            except (OSError, subprocess.SubprocessError) as error:
                reason = str(error)
            else:
                if done.returncode == 0:
                    return words
                reason = f"systemd-run: {' '.join(done.stderr.split())[-200:]}"
        raise UnsupportedError(
            "E-QUOTA-1",
            "CPU time cannot be limited here",
            evidence=f"{why} {reason}",
            fix="run it as a user with a systemd session, or in a container with --cpus",
        )

    def problem(self) -> str:
        """Return '' if the control groups of this process allow exactly the requested CPU time."""
        now = cpu_limit(self.root)
        if is_absent(now):
            return f"no limit is set ({now['absent']})"
        return "" if abs(now - self.cpus) <= _SLACK_CPUS else f"the limit is {now:g} CPUs"

    def evidence(self) -> str:
        """Return the limit the kernel reports."""
        now = cpu_limit(self.root)
        return f"control group: {now['absent'] if is_absent(now) else f'{now:g} CPUs'}"

    def features(self) -> Mapping[str, float]:
        """Return the CPU time, in CPUs."""
        return {"cpu_quota": self.cpus}


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
