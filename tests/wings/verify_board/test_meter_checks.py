"""The checks of meters and of throttle counters, on a board made of files."""

import kit_board
import numpy as np
import pytest

from edgescope.records import Channel, Readings
from edgescope.wings.verify_board import site as sites
from edgescope.wings.verify_board.check import Status
from edgescope.wings.verify_board.checks import meters
from edgescope.wings.verify_board.site import Here

pytestmark = pytest.mark.process

CHIP = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(meters, "LOAD_S", 2.0)
    return kit_board.board(tmp_path)


@pytest.mark.slow
def test_a_meter_that_stands_still_under_load_does_not_hold(root):
    found = meters.energy(Here(root))
    assert found.status is Status.FAILS and "does not rise" in found.says
    assert found.evidence["vdd_in"]["scope"] == "module"


@pytest.mark.process
def test_a_meter_that_rises_holds(root, monkeypatch):
    site, real = Here(root), Here.run

    def run(self, argv, limit_s, sent=()):
        loaded = "sleep" not in argv
        (root / CHIP / "curr1_input").write_text("1900\n" if loaded else "1010\n")
        return real(self, argv, limit_s, sent)

    monkeypatch.setattr(Here, "run", run)
    found = meters.energy(site)
    assert found.status is Status.HOLDS, found.says
    assert found.says.startswith("3 meters; ")
    meter = found.evidence["vdd_in"]
    assert meter["idle_w"] == pytest.approx(4.97, abs=1) and meter["load_w"] > 8


@pytest.mark.process
def test_counters_are_read_twice_and_what_moved_is_said(root, monkeypatch):
    found = meters.throttle(Here(root))
    assert found.status is Status.HOLDS, found.says
    assert found.evidence["looked_at"] and not found.evidence["events"]
    real = sites.time.sleep

    def moved(seconds):
        (root / "sys/class/hwmon/hwmon2/oc3_event_cnt").write_text("9\n")
        real(seconds)

    monkeypatch.setattr(sites.time, "sleep", moved)
    found = meters.throttle(Here(root))
    assert found.status is Status.HOLDS and found.evidence["events"]
    assert found.evidence["events"][0] in found.says


def test_a_board_without_a_counter_is_unsupported(tmp_path):
    assert meters.throttle(Here(tmp_path)).status is Status.UNSUPPORTED


def readings(**channels):
    """Readings at 10 Hz: name -> values."""
    specs = tuple(Channel(name, "W", "gpu_board", "gauge", "x") for name in channels)
    rows = [(k * 10**8, i, v) for i, values in enumerate(channels.values()) for k, v in enumerate(values)]
    t_ns, channel, value = (np.array(column) for column in zip(*rows, strict=True))
    return Readings(specs, t_ns.astype(np.int64), channel.astype(np.int16), value.astype(float))


@pytest.mark.parametrize(
    ("joules", "wrong"), [([0, 5, 10, 15], 0), ([0, 5.4, 10.8, 16.2], 0), ([0, 8, 16, 24], 1), ([7], 0)]
)
def test_a_meters_counter_and_its_watts_are_compared(joules, wrong):
    """50 W on average."""
    found = readings(gpu0_energy_j=joules, gpu0_power_w=[50, 49, 51, 50])
    evidence = {}
    assert len(meters._counted_otherwise(found, "gpu0", (0, 10**9), evidence)) == wrong
    assert bool(evidence) == (len(joules) > 1)
