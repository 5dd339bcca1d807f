"""What a mode is in numbers: for whatever predicts over modes."""

import pytest

from edgescope import bench
from edgescope.devices.base import FEATURES, Row
from edgescope.errors import DeviceError, UsageError
from edgescope.modes import catalog
from edgescope.modes.catalog import Together
from edgescope.modes.cpu import Affinity, Governor, Quota
from edgescope.modes.gpu import GpuPower, Mps
from edgescope.records import Trial


@pytest.mark.parametrize(
    ("mode", "numbers"),
    [
        (Affinity([0, 2, 3]), {"cpu_cores": 3.0}),
        (Quota(0.5), {"cpu_quota": 0.5}),
        (GpuPower(200), {"gpu_power_w": 200}),
        (Mps(40), {"gpu_sm_share": 0.4}),
        (Mps(), {}),
        (Governor("performance"), {}),
        (Together(), {}),
        (Together(Affinity(range(4)), Affinity([0, 1]), Quota(1)), {"cpu_cores": 2.0, "cpu_quota": 1}),
        (Together(Affinity(range(8)), Quota(2)), {"cpu_cores": 8.0, "cpu_quota": 2}),
    ],
)
def test_a_mode_says_what_it_limits_in_si_units(mode, numbers):
    found = mode.features()
    assert found.keys() <= set(FEATURES)
    assert found == numbers


@pytest.mark.process
def test_the_numbers_stand_in_the_result(monkeypatch):
    import os

    cpu = min(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {cpu})
    trial = Trial(model="null", backend="null", mode=f"cpus={cpu}", min_s=0.05, max_s=0.1, warmup=0.0)
    result = bench.run(trial, hz=0)
    assert result.machine.state["mode"]["features"] == {"cpu_cores": 1.0}, result.reason


def test_powers_of_two_of_this_machine_and_what_takes_a_value_come_last():
    rows = catalog.listing({})
    valued = [f"{key}=..." for key in catalog.offered({})]
    assert [row.name for row in rows[-len(valued) :]] == valued and "quota=..." in valued
    assert all(row.change == "" for row in rows[-len(valued) :])
    assert catalog.without({}) == "no power modes: this is no Jetson" and catalog.problems({}) == ()


class There:
    """A device that is present, or says why not."""

    def __init__(self, why_not=""):
        self.present = lambda: why_not


@pytest.mark.parametrize(
    ("devices", "program", "offered"),
    [
        ({"nvidia": There()}, "/bin/mps", {"mps", "gpu_power"}),
        ({"nvidia": There()}, None, {"gpu_power"}),
        ({"nvidia": There("no driver"), "jetson": There("no Jetson")}, None, set()),
        ({"nvidia": There(), "jetson": There()}, "/bin/mps", {"mps"}),
        ({"replayed": There(), "jetson": There()}, "/bin/mps", set()),
    ],
)
def test_a_setting_of_a_gpu_is_offered_where_the_board_has_it(monkeypatch, devices, program, offered):
    monkeypatch.setattr(catalog.shutil, "which", lambda name: program)
    assert set(catalog.offered(devices)) == {"cpus", "quota", "governor", *offered}


def test_a_row_of_the_list_says_only_what_its_setting_changes():
    assert Row("x") == Row("x", None, (), None, None, None, False, False, "live", "")
    assert Affinity([0, 1]).row() == Row("cpus=0-1", why="the trial runs on CPU 0-1 only")
    assert Quota(1).row() == Row("quota=1") and Together().row() == Row("as_is")
    assert Quota(1).change() == ("live", "") and Quota(1).number is None and not Quota(1).comes_last


class Numbered(Quota):
    """A board's own mode."""

    number = 7

    def row(self):
        return Row("15W", self.number, change="not known")


class Last(Governor):
    """What holds clocks at the highest that another mode allows."""

    comes_last = True


def test_a_boards_modes_come_before_what_has_no_number_and_what_holds_their_clocks_after_them(monkeypatch):
    modes = {"hold": Last("x"), "cpus=0": Affinity([0]), "15W": Numbered(1), "cpus=0-1": Affinity([0, 1])}
    monkeypatch.setattr(catalog, "settings", lambda devices: (modes, ()))
    rows = catalog.listing({})
    assert [row.name for row in rows[:4]] == ["15W", "governor=x", "cpus=0", "cpus=0-1"]
    assert len(rows) == 4 + len(catalog.offered({})) and rows[0].change == "not known"
    assert catalog.find("hold+cpus=0+15W", {}).name == "cpus=0+quota=1+governor=x"
    with pytest.raises(UsageError, match=r"available: hold, cpus=0, 15W\(7\), cpus=0-1, cpus=\.\.\."):
        catalog.find("hold+25W", {})


class Silent(There):
    """A board with power modes, of which none is listed and two are not understood."""

    def unlisted(self):
        return "no power modes: none here", ["line 3", "line 5"]


def test_why_power_modes_are_missing_is_told_by_the_devices_that_are_there(monkeypatch):
    monkeypatch.setattr(catalog, "settings", lambda devices: ({}, (DeviceError("E-X-1", "no list"),)))
    both = {"cpu": There(), "board": Silent()}
    assert catalog.without(both) == "no power modes: none here"
    assert catalog.problems(both) == ("line 3", "line 5", "E-X-1: no list.")
    assert catalog.without({"board": Silent("absent")}) == "no power modes: this is no Jetson"
