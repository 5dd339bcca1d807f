"""Constructed trees: the paths and file formats are those that public reports name for each release."""

from __future__ import annotations

import pytest

from edgescope.devices.base import Failed, Unsupported
from edgescope.wings.jetson.soc import CpuClusters, Emc, Engines, Gpu
from fake_board import write


def values(source):
    return {name: value for name, _, value in source.read()}


GPUS = {
    "nano": ("sys/class/devfreq/57000000.gpu", "sys/devices/gpu.0/load"),
    "nano_path": ("sys/devices/57000000.gpu/devfreq/57000000.gpu", "sys/devices/gpu.0/load"),
    "tx2": ("sys/class/devfreq/17000000.gp10b", "sys/devices/17000000.gp10b/load"),
    "xavier": ("sys/class/devfreq/17000000.gv11b", "sys/devices/gpu.0/load"),
    "orin_jp5": ("sys/class/devfreq/17000000.ga10b", "sys/devices/platform/17000000.ga10b/load"),
    "orin_jp6": ("sys/class/devfreq/17000000.gpu", "sys/devices/platform/bus@0/17000000.gpu/load"),
    "orin_sys": (
        "sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu",
        "sys/devices/platform/bus@0/17000000.gpu/load",
    ),
    "through_devfreq": ("sys/class/devfreq/17000000.gpu", "sys/class/devfreq/17000000.gpu/device/load"),
    "a_chip_of_tomorrow": ("sys/class/devfreq/27000000.gb30b", "sys/devices/platform/gpu.0/load"),
}


@pytest.mark.parametrize(("folder", "load"), GPUS.values(), ids=GPUS)
def test_load_and_clock_are_found_under_every_layout(tmp_path, folder, load):
    write(tmp_path, {f"{folder}/cur_freq": "306000000\n", load: "437\n"})
    assert values(Gpu(str(tmp_path))) == {"gpu_busy": pytest.approx(0.437), "gpu_clock_hz": 306e6}


def test_thor_has_a_clock_and_no_load_file(tmp_path):
    write(
        tmp_path,
        {
            "sys/class/devfreq/gpu-nvd-0/cur_freq": "1\n",
            "sys/class/devfreq/gpu-gpc-0/cur_freq": "1575000000\n",
        },
    )
    got = values(Gpu(str(tmp_path)))
    assert got["gpu_clock_hz"] == 1575e6
    assert isinstance(got["gpu_busy"], Unsupported) and "NVML" in got["gpu_busy"].reason


def test_another_devfreq_device_is_no_gpu(tmp_path):
    write(tmp_path, {"sys/class/devfreq/15340000.vic/cur_freq": "115200000\n"})
    got = values(Gpu(str(tmp_path)))
    assert all(isinstance(v, Unsupported) for v in got.values())
    assert Gpu.facts(tmp_path) == {"absent": "no GPU in devfreq"}


def test_a_load_file_that_holds_no_number_has_failed(tmp_path):
    write(tmp_path, {"sys/class/devfreq/17000000.gpu/cur_freq": "1\n", "sys/devices/gpu.0/load": "N/A\n"})
    assert isinstance(values(Gpu(str(tmp_path)))["gpu_busy"], Failed)


def test_facts_of_the_gpu(tmp_path):
    folder = "sys/class/devfreq/17000000.gv11b"
    files = {
        "min_freq": 114750000,
        "cur_freq": 306000000,
        "max_freq": 1109250000,
        "governor": "nvhost_podgov",
    }
    files |= {"available_frequencies": "114750000 1109250000", "device/railgate_enable": 1}
    files |= {"device/enable_3d_scaling": 0, "device/tpc_pg_mask": 240}
    write(tmp_path, {f"{folder}/{name}": text for name, text in files.items()})
    got = Gpu.facts(tmp_path)
    assert (got["name"], got["min_hz"], got["cur_hz"]) == ("17000000.gv11b", 114750000, 306000000)
    assert (got["max_hz"], got["available_hz"]) == (1109250000, [114750000, 1109250000])
    assert (got["railgate"], got["scaling_3d"], got["tpc_pg_mask"]) == (True, False, "240")


BPMP = "sys/kernel/debug/bpmp/debug/clk"


@pytest.mark.parametrize(
    ("clock", "load"),
    [
        (f"{BPMP}/emc/rate", "sys/kernel/actmon_avg_activity/mc_all"),
        (f"{BPMP}/emc/rate", "sys/kernel/debug/cactmon/mc_all"),
        ("sys/kernel/debug/clk/emc/clk_rate", "sys/kernel/actmon_avg_activity/mc_all"),
        ("sys/kernel/debug/clk/override.emc/clk_rate", "sys/kernel/actmon_avg_activity/mc_all"),
    ],
)
def test_memory_load_is_active_cycles_over_the_clock(tmp_path, clock, load):
    write(tmp_path, {clock: "1600000000\n", load: "400000\n"})
    assert values(Emc(str(tmp_path))) == {"emc_busy": pytest.approx(0.25), "emc_clock_hz": 1.6e9}


def test_thors_memory_clock_needs_no_root_and_bpmps_unit_is_not_guessed(tmp_path):
    activity = "sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity"
    write(tmp_path, {"sys/class/devfreq/bwmgr/cur_freq": "665600000\n", activity: "123456\n"})
    got = values(Emc(str(tmp_path)))
    assert got["emc_clock_hz"] == 665.6e6
    assert isinstance(got["emc_busy"], Unsupported) and "not published" in got["emc_busy"].reason


def test_without_debugfs_the_reason_says_what_unlocks_it(tmp_path):
    got = values(Emc(str(tmp_path)))
    assert all(
        isinstance(v, Unsupported) and "chmod a+rx /sys/kernel/debug" in v.reason for v in got.values()
    )


def test_a_memory_clock_of_0_gives_no_share(tmp_path):
    write(tmp_path, {f"{BPMP}/emc/rate": "0\n", "sys/kernel/actmon_avg_activity/mc_all": "5\n"})
    assert isinstance(values(Emc(str(tmp_path)))["emc_busy"], Failed)


@pytest.mark.parametrize(
    ("active_khz", "share"), [(1600000, 1.0), (1616000, 1.0), (1648000, None), (12544000, None), (-1, None)]
)
def test_memory_cannot_be_busier_than_always(tmp_path, active_khz, share):
    write(tmp_path, {f"{BPMP}/emc/rate": "1600000000\n"})
    write(tmp_path, {"sys/kernel/actmon_avg_activity/mc_all": f"{active_khz}\n"})
    got = values(Emc(str(tmp_path)))["emc_busy"]
    assert got == share if share else isinstance(got, Failed) and "1600 MHz: no share" in got.reason


def test_facts_of_the_memory_controller(tmp_path):
    files = {"rate": 204000000, "max_rate": 2133000000, "min_rate": 204000000, "mrq_rate_locked": 1}
    write(tmp_path, {f"{BPMP}/emc/{name}": text for name, text in files.items()})
    write(tmp_path, {"sys/kernel/nvpmodel_emc_cap/emc_iso_cap": "1600000000\n"})
    got = Emc.facts(tmp_path)
    assert got == {
        "min_hz": 204000000,
        "cur_hz": 204000000,
        "max_hz": 2133000000,
        "cap_hz": 1600000000,
        "locked": True,
    }


def test_engines_by_devfreq_in_the_order_of_their_addresses(tmp_path):
    write(
        tmp_path,
        {
            "sys/class/devfreq/15380000.nvjpg/cur_freq": "600000000\n",
            "sys/class/devfreq/15540000.nvjpg/cur_freq": "700000000\n",
            "sys/class/devfreq/154c0000.nvenc/cur_freq": "166000000\n",
            "sys/class/devfreq/15880000.nvdla0/cur_freq": "1600000000\n",
        },
    )
    got = values(Engines(str(tmp_path)))
    assert (got["nvjpg0_clock_hz"], got["nvjpg1_clock_hz"]) == (600e6, 700e6)
    assert (got["nvenc0_clock_hz"], got["dla0_clock_hz"]) == (166e6, 1.6e9)
    assert isinstance(got["vic0_clock_hz"], Unsupported)


def test_engines_by_debugfs(tmp_path):
    write(
        tmp_path,
        {
            f"{BPMP}/nafll_dla0_core/rate": "1369600000\n",
            f"{BPMP}/nvdec/rate": "115200000\n",
            f"{BPMP}/ape/rate": "174000000\n",
        },
    )
    got = values(Engines(str(tmp_path)))
    assert (got["dla0_clock_hz"], got["nvdec0_clock_hz"], got["ape_clock_hz"]) == (1369.6e6, 115.2e6, 174e6)
    assert "chmod" in got["nvenc0_clock_hz"].reason


@pytest.mark.parametrize(
    ("chip", "none"),
    [("tegra210", "dla pva ofa"), ("tegra186", "dla pva ofa"), ("tegra194", "ofa"), ("tegra264", "dla")],
)
def test_an_engine_that_the_chip_has_not_is_no_closed_door(tmp_path, chip, none):
    write(tmp_path, {"proc/device-tree/compatible": f"nvidia,some-board\0nvidia,{chip}\0"})
    got = values(Engines(str(tmp_path)))
    for kind in none.split():
        assert got[f"{kind}0_clock_hz"] == Unsupported(f"a {chip} has no {kind.upper()}")
    assert all("chmod" in got[f"{kind}_clock_hz"].reason for kind in ("nvenc0", "nvjpg0", "vic0"))


def test_an_engine_that_the_kernel_shows_is_read_whatever_the_table_says(tmp_path):
    write(
        tmp_path,
        {
            "proc/device-tree/compatible": "nvidia,tegra264\0",
            "sys/class/devfreq/15880000.nvdla0/cur_freq": "1600000000\n",
        },
    )
    assert values(Engines(str(tmp_path)))["dla0_clock_hz"] == 1.6e9


def test_a_suspended_engine_runs_at_no_clock_and_an_active_one_at_its_own(tmp_path):
    device = "sys/devices/platform/bus@0/13e00000.host1x/154c0000.nvenc/power/runtime_status"
    write(tmp_path, {"sys/class/devfreq/154c0000.nvenc/cur_freq": "166000000\n", device: "suspended\n"})
    source = Engines(str(tmp_path))
    assert values(source)["nvenc0_clock_hz"] == 0.0
    (tmp_path / device).write_text("active\n")
    assert values(source)["nvenc0_clock_hz"] == 166e6
    assert Engines.facts(tmp_path)["nvenc0"]["status"] == "active"


def policy(root, number, **files):
    base = f"sys/devices/system/cpu/cpufreq/policy{number}"
    write(root, {f"{base}/{name}": f"{text}\n" for name, text in files.items()})


def test_clusters_tell_what_the_hardware_runs_at_from_what_was_asked_for(tmp_path):
    policy(tmp_path, 0, scaling_cur_freq=2601000, cpuinfo_cur_freq=649000)  # forum t/361188
    policy(tmp_path, 4, scaling_cur_freq=972000)
    source = CpuClusters(str(tmp_path))
    assert values(source) == {"cpu_policy0_clock_hz": 649e6, "cpu_policy4_clock_hz": 972e6}
    first, second = source.channels()
    assert "hardware runs at" in first.source and "requested" in second.source


def test_a_board_of_two_cores_without_cpufreq(tmp_path):
    write(tmp_path, {"sys/devices/system/cpu/online": "0-1\n"})
    assert isinstance(values(CpuClusters(str(tmp_path)))["cpu_policy0_clock_hz"], Unsupported)
    assert CpuClusters.facts(tmp_path) == {
        "online": [0, 1],
        "offline": {"absent": f"no {tmp_path}/sys/devices/system/cpu/offline"},
        "policies": {},
    }


def test_every_channel_that_is_read_is_announced(tmp_path):
    for kind in (Gpu, Emc, Engines, CpuClusters):
        source = kind(str(tmp_path))
        assert {c.name for c in source.channels()} == {name for name, _, _ in source.read()}


@pytest.mark.parametrize(
    ("load", "share"), [("0", 0.0), ("1000", 1.0), ("1001", None), ("-1", None), ("306", 0.306)]
)
def test_a_load_is_per_mille_of_the_present_clock(tmp_path, load, share):
    write(tmp_path, {"sys/devices/gpu.0/load": load})
    found = dict((name, value) for name, _, value in Gpu(str(tmp_path)).read())["gpu_busy"]
    assert isinstance(found, Failed) if share is None else found == pytest.approx(share)


@pytest.mark.parametrize(
    ("clock", "active_khz", "share"),
    [
        ("1000000000", "500000", 0.5),
        ("1000000000", "1020000", 1.0),
        ("1000000000", "1020001", None),
        ("1000000000", "0", 0.0),
        ("1", "0", 0.0),
        ("0", "0", None),
        ("-5", "0", None),
    ],
)
def test_memory_is_busy_for_a_share_of_its_clock(tmp_path, clock, active_khz, share):
    files = {
        "sys/kernel/debug/bpmp/debug/clk/emc/rate": clock,
        "sys/kernel/actmon_avg_activity/mc_all": active_khz,
    }
    rows = {name: value for name, _, value in Emc(str(write(tmp_path, files))).read()}
    assert rows["emc_clock_hz"] == float(clock)
    assert isinstance(rows["emc_busy"], Failed) if share is None else rows["emc_busy"] == share


def test_without_a_clock_of_memory_its_share_is_not_known(tmp_path):
    files = {"sys/kernel/actmon_avg_activity/mc_all": "5"}
    rows = {name: value for name, _, value in Emc(str(write(tmp_path, files))).read()}
    assert rows["emc_busy"] == rows["emc_clock_hz"] and isinstance(rows["emc_busy"], Unsupported)
