"""What a mode is in numbers: for whatever predicts over modes."""

import pytest

from edgescope import bench
from edgescope.devices.base import FEATURES
from edgescope.devices.jetson.nvpmodel import Conf, PowerMode
from edgescope.modes.affinity import Affinity
from edgescope.modes.combined import Together
from edgescope.modes.governor import Governor
from edgescope.modes.gpu_power import GpuPower
from edgescope.modes.jetson import NvpMode
from edgescope.modes.mps import Mps
from edgescope.modes.quota import Quota
from edgescope.records import Trial

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


def test_the_numbers_stand_in_the_result(monkeypatch):
    import os

    cpu = min(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {cpu})
    trial = Trial(model="null", backend="null", mode=f"cpus={cpu}", min_s=0.05, max_s=0.1, warmup=0.0)
    result = bench.run(trial, hz=0)
    assert result.machine.state["mode"]["features"] == {"cpu_cores": 1.0}, result.reason
