"""The settings of all devices together."""

from edgescope.devices.settings import settings
from edgescope.errors import DeviceError


def test_settings_of_other_devices_stay_where_one_cannot_list_its_own():
    class Device:
        def __init__(self, absent="", modes=None):
            self.absent, self.found = absent, modes

        def present(self):
            return self.absent

        def modes(self):
            if isinstance(self.found, Exception):
                raise self.found
            return self.found

    said = DeviceError("E-NVP-1", "no mode")
    devices = {
        "a": Device("absent", {"lost": 1}),
        "b": Device("", {"kept": 2}),
        "c": Device("", said),
        "d": Device("", OSError("x" * 300)),
        "e": Device("", {"also": 3}),
    }
    modes, (first, second) = settings(devices)
    assert modes == {"kept": 2, "also": 3} and first is said
    assert second.message.code == "E-MODE-14" and len(second.message.evidence) == 200
