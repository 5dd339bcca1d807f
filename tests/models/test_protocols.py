"""Optional powers of models and devices are found by their Protocols."""

from contextlib import nullcontext

import pytest

from edgescope.devices.base import NullDevice, TellsProcessMemory, Throttled
from edgescope.devices.cpu.device import CpuDevice
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.models.base import FixedBatch, SeesImages
from edgescope.models.synthetic import NullModel
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.nvidia import NvidiaDevice


def test_devices_that_tell_more_are_found():
    assert isinstance(CpuDevice(), Throttled) and isinstance(JetsonDevice(), Throttled)
    assert isinstance(NvidiaDevice(), TellsProcessMemory)
    assert not isinstance(NullDevice(), Throttled | TellsProcessMemory)


class Watched(NullDevice):
    def throttle_watch(self):
        return nullcontext()


def test_a_device_of_a_plugin_needs_the_method_alone():
    assert isinstance(Watched(), Throttled) and not isinstance(Watched(), TellsProcessMemory)


class Closed(NullModel):
    """A model that takes one batch only."""

    closed_batch = 2

    def check_batch(self, batch):
        if batch != self.closed_batch:
            raise UsageError("E-X-1", f"batch {batch}")


def test_a_model_with_a_closed_batch_is_asked(monkeypatch):
    assert not isinstance(zoo.get("null"), FixedBatch | SeesImages)
    assert isinstance(zoo.get("squeezenet1_1"), SeesImages)
    monkeypatch.setattr(zoo, "load", lambda *_: lambda name, shapes: Closed(name))
    assert isinstance(zoo.get("null", batch=2), FixedBatch)
    with pytest.raises(UsageError, match="E-X-1: batch 3"):
        zoo.get("null", batch=3)
