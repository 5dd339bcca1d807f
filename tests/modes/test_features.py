"""What a mode is in numbers: for whatever predicts over modes."""

import pytest

from edgescope import bench
from edgescope.devices.base import FEATURES, Row
from edgescope.modes import catalog
from edgescope.modes.catalog import Together
from edgescope.modes.cpu import Affinity, Governor, Quota
from edgescope.modes.gpu_power import GpuPower
from edgescope.modes.mps import Mps
from edgescope.records import Trial
from edgescope.wings.jetson.modes import JetsonClocks, NvpMode
from edgescope.wings.jetson.nvpmodel import Conf, PowerMode

W15 = PowerMode(
    2,
    "15W",
    {
        "CPU_ONLINE": {f"CORE_{n}": str(int(n < 4)) for n in range(8)},
        "CPU_A78_0": {"MAX_FREQ": "1113600"},
        "CPU_A78_1": {"MAX_FREQ": "-1"},
        "GPU": {"MAX_FREQ": "420750000"},
        "EMC": {"MAX_FREQ": "0"},
    },
)


@pytest.mark.parametrize(
    ("mode", "numbers"),
    [
        (Affinity([0, 2, 3]), {"cpu_cores": 3.0}),
        (Quota(0.5), {"cpu_quota": 0.5}),
        (GpuPower(200), {"gpu_power_w": 200}),
        (Mps(40), {"gpu_sm_share": 0.4}),
        (Mps(), {}),
        (Governor("performance"), {}),
        (NvpMode(W15, Conf((W15,), {})), {"cpu_cores": 4.0, "cpu_hz": 1113.6e6, "gpu_hz": 420.75e6}),
        (Together(), {}),
        (Together(NvpMode(W15, Conf((W15,), {})), Affinity([0, 1])), "cpu_cores 2"),
        (Together(Affinity(range(8)), Quota(2)), {"cpu_cores": 8.0, "cpu_quota": 2}),
    ],
)
def test_a_mode_says_what_it_limits_in_si_units(mode, numbers):
    found = mode.features()
    assert found.keys() <= set(FEATURES)
    assert found["cpu_cores"] == 2 if numbers == "cpu_cores 2" else found == numbers


@pytest.mark.process
def test_the_numbers_stand_in_the_result(monkeypatch):
    import os

    cpu = min(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {cpu})
    trial = Trial(model="null", backend="null", mode=f"cpus={cpu}", min_s=0.05, max_s=0.1, warmup=0.0)
    result = bench.run(trial, hz=0)
    assert result.machine.state["mode"]["features"] == {"cpu_cores": 1.0}, result.reason


def test_a_row_of_the_list_says_only_what_its_setting_changes(monkeypatch):
    now = {"absent": "no such program"}
    monkeypatch.setattr(NvpMode, "now", lambda mode: now)
    assert Row("x") == Row("x", None, (), None, None, None, False, False, "live", "")
    assert Affinity([0, 1]).row().why == "the trial runs on CPU 0-1 only"
    row = NvpMode(W15, Conf((W15,), {})).row()
    assert (row.id, row.cores, row.cpu_max_hz, row.gpu_max_hz, row.emc_max_hz) == (
        2,
        (0, 1, 2, 3),
        None,
        420750000,
        None,
    )
    assert (row.default, row.now, row.change) == (False, False, "not known")
    now = W15
    here = NvpMode(W15, Conf((W15,), {})).row()
    assert (here.now, here.change) == (True, "live")
    capped = PowerMode(3, "C", {"CPU_A": {"MAX_FREQ": "1000"}, "CPU_B": {"MAX_FREQ": "3000"}}, default=True)
    found = NvpMode(capped, Conf((capped,), {})).row()
    assert (found.cpu_max_hz, found.default, found.now) == (3_000_000, True, False)
    assert JetsonClocks().row().why and Quota(1).row() == Row("quota=1")


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


def test_only_what_a_reboot_mends_is_said_to_need_one():
    mode = NvpMode(W15, Conf((W15,), {}))
    assert mode._not_in_effect("x").fix == "" and "reboot" in mode._not_in_effect("x", reboot=True).fix


def test_power_modes_come_before_what_has_no_number_and_each_keeps_its_place(monkeypatch):
    modes = {"cpus=0": Affinity([0]), "15W": NvpMode(W15, Conf((W15,), {})), "cpus=0-1": Affinity([0, 1])}
    monkeypatch.setattr(NvpMode, "now", lambda mode: {"absent": "no such program"})
    monkeypatch.setattr(catalog, "settings", lambda devices: (modes, ()))
    rows = catalog.listing({})
    assert [row.name for row in rows[:3]] == ["15W", "cpus=0", "cpus=0-1"]
    assert len(rows) == 3 + len(catalog.offered({}))
    assert not rows[0].now
    monkeypatch.setattr(NvpMode, "now", lambda mode: W15)
    assert catalog.listing({})[0].now
