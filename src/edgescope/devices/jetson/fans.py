"""A Jetson's fans: duty, speed, and their owner.

The kernel's governor, NVIDIA's nvfancontrol daemon and jtop's saved profile fight for one fan; a different owner is
a different temperature and, in a long run, a different throughput. JetPack 4 has /sys/devices/pwm-fan, later
releases hwmon's `pwmfan` and a tachometer chip of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Unsupported
from edgescope.devices.jetson.files import command_names, found, number
from edgescope.devices.kernel_files import Each, Fact, KernelFile, fact, is_absent

_DUTIES = ("sys/class/hwmon/hwmon*/pwm[1-9]", "sys/class/hwmon/hwmon*/cur_pwm", "sys/devices/pwm-fan/cur_pwm")
_SPEEDS = (
    "sys/class/hwmon/hwmon*/fan[1-9]_input",
    "sys/class/hwmon/hwmon*/rpm",
    "sys/devices/generic_pwm_tachometer/hwmon/hwmon*/rpm",
    "sys/devices/pwm-fan/rpm_measured",
)
_DAEMONS = ("nvfancontrol", "jtop")


def _first(root: Path, patterns: Sequence[str]) -> list[KernelFile]:
    """Return the files of the first pattern that matches: the other patterns show the same fans."""
    matches = (found(root, (pattern,)) for pattern in patterns)
    return [KernelFile(path) for path in next((m for m in matches if m), [])]


class Fans(Each):
    """`fan<N>_share` of full duty and `fan<N>_rpm`, from 1; a fan without a tachometer has no speed, never 0."""

    def __init__(self, root: str) -> None:
        none = {"share": "no PWM fan: cooled passively, or not shown", "rpm": "no tachometer"}
        units, patterns = {"share": "share", "rpm": "1/min"}, {"share": _DUTIES, "rpm": _SPEEDS}
        scales, metrics = {"share": 1 / 255, "rpm": 1.0}, []
        for what, unit in units.items():
            files: list[KernelFile | Unsupported] = [*_first(Path(root), patterns[what])]
            for i, file in enumerate(files or [Unsupported(none[what])], 1):
                source = str(file.path) if isinstance(file, KernelFile) else "hwmon"
                spec = ChannelSpec(f"fan{i}_{what}", unit, "fan", "gauge", source)
                metrics.append((spec, partial(number, file, scales[what])))
        super().__init__(metrics)

    @staticmethod
    def facts(root: Path) -> Fact:
        """Return the owner of the fan (`kernel`, `nvfancontrol`, `jtop`) and the evidence for it."""
        running = set(command_names(root).values())
        control = fact(root / "sys/devices/pwm-fan/temp_control", int)
        policies = {
            str(fact(policy.with_name("type"))): fact(policy)
            for policy in found(root, ("sys/class/thermal/thermal_zone*/policy",))
        }
        owners = [name for name in _DAEMONS if name in running]
        by_kernel = control == 1 or (is_absent(control) and set(policies.values()) - {"user_space"})
        if by_kernel and "nvfancontrol" not in owners:
            owners.append("kernel")
        return {
            "owners": owners,
            "temp_control": control,
            "pwm_enable": {
                p.parent.name: fact(p, int) for p in found(root, ("sys/class/hwmon/hwmon*/pwm1_enable",))
            },
            "thermal_governors": policies,
        }
