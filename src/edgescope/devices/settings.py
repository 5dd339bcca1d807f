"""The settings of all devices together: a device whose list cannot be read takes no other device's settings along."""

from __future__ import annotations

from collections.abc import Mapping

from edgescope.devices.base import Device, Mode
from edgescope.errors import DeviceError, EdgescopeError


def settings(devices: Mapping[str, Device]) -> tuple[dict[str, Mode], tuple[EdgescopeError, ...]]:
    """Return the settings of the devices that are here, by name, and why a device could not list its own."""
    modes: dict[str, Mode] = {}
    problems: list[EdgescopeError] = []
    for name, device in devices.items():
        try:
            modes |= {} if device.present() else device.modes()
        except EdgescopeError as error:
            problems.append(error)
        except Exception as error:  # whatever a driver library raises is this device's alone
            problems.append(
                DeviceError(
                    "E-MODE-14",
                    f"the settings of {name} cannot be listed",
                    evidence=repr(error)[:200],
                    effect="The settings of other devices are not affected",
                )
            )
    return modes, tuple(problems)
