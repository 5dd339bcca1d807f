"""The settings of all devices together; a device whose list cannot be read does not affect the others."""

from __future__ import annotations

from collections.abc import Mapping

from edgescope.devices.base import Device, Mode
from edgescope.errors import DeviceError, EdgescopeError


def settings(devices: Mapping[str, Device]) -> tuple[dict[str, Mode], tuple[EdgescopeError, ...]]:
    """Return the settings of the present devices by name, and an error for each device that could not list its own."""
    modes: dict[str, Mode] = {}
    problems: list[EdgescopeError] = []
    for name, device in devices.items():
        try:
            modes |= {} if device.present() else device.modes()
        except EdgescopeError as error:
            problems.append(error)
        except Exception as error:  # an exception of a driver library concerns this device alone
            problems.append(
                DeviceError(
                    "E-MODE-14",
                    f"the settings of {name} cannot be listed",
                    evidence=repr(error)[:200],
                    effect="The settings of other devices are not affected",
                )
            )
    return modes, tuple(problems)
