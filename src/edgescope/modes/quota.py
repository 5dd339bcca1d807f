"""Limits the CPU time: `--mode quota=1.5` lets the trial use one and a half CPUs' time in each 100 ms.

It makes a control group (`edgescope-<process>`) in cgroup v2 or v1 if this process may; otherwise it requests a scope
from systemd's user manager (`systemd-run --user --scope`). The kernel stops the
group for the rest of each 100 ms once its time is used up, so the tail of the latency grows first. That is how a
container with a CPU limit behaves; it is not how a slower CPU behaves.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from edgescope.devices.base import Journal, Mode, Undo
from edgescope.devices.cpu.limits import cpu_limit
from edgescope.devices.kernel_files import is_absent
from edgescope.errors import EdgescopeError, UnsupportedError
from edgescope.modes import cgroup, launcher
from edgescope.modes.privileged import act
from edgescope.process import Launch

_SYSTEMD_S = 20
_SLACK_CPUS = 0.005


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
        quota_us = round(self.cpus * cgroup.PERIOD_US)
        try:
            base = cgroup.base(self.root)
            if not os.access(base, os.W_OK):
                raise PermissionError(errno.EACCES, "this process may make no control group", str(base))
        except OSError as error:
            self._launch = Launch(self._scope(str(error)))
            return
        group = cgroup.free(base)
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
