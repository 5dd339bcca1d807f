from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgescope.devices.base import Failed, Unsupported
from edgescope.devices.cpu import sensors
from edgescope.devices.cpu.sensors import Clocks, Rapl, Temperatures
from edgescope.devices.cpu.sources import (
    PAGE_BYTES,
    TICK_S,
    CpuTime,
    MemoryAndLoad,
    Pressure,
    ProcessTree,
    Usage,
    parse_stat,
)
from edgescope.devices.kernel_files import KernelFile
from fake_board import board, process, stat_line, write


def values(source) -> dict:
    rows = source.read()
    declared = {c.name for c in source.channels()}
    assert {name for name, _, _ in rows} <= declared
    return {name: value for name, _, value in rows}


def test_shares_of_all_cores_from_deltas(tmp_path):
    root = board(tmp_path)
    process(root, 50, cpu_ticks=100, children="51 ")
    process(root, 51, cpu_ticks=10, ppid=50)
    source = CpuTime(str(root), 50)
    write(root, {"proc/stat": stat_line(1000 + 60, 9000 + 30, steal=10, ctxt=1234)})
    process(root, 50, cpu_ticks=120, children="51 ", rss=200)
    process(root, 51, cpu_ticks=20, ppid=50)
    got = values(source)
    assert got["cpu_busy"] == pytest.approx(0.6)
    assert got["cpu_steal"] == pytest.approx(0.1)
    assert got["cpu_others"] == pytest.approx(0.3)  # 60 busy ticks less 20 + 10 of the tree
    assert got["ctx_switches"] == 1234
    assert got["proc_cpu_s"] == pytest.approx(1.2)
    assert got["proc_rss_bytes"] == 200 * os.sysconf("SC_PAGE_SIZE")
    assert got["proc_major_faults"] == 3


def four_cores(*busy: int, idle: int = 0, steal: int = 0) -> str:
    """Four cores with so many busy ticks each, `idle` of each idle; the stolen ones are core 3's."""
    lines = [f"cpu{n} {b} 0 0 {idle} 0 0 0 {steal if n == 3 else 0} 0 0\n" for n, b in enumerate(busy)]
    return f"cpu  {sum(busy)} 0 0 {4 * idle} 0 0 0 {steal} 0 0\n{''.join(lines)}ctxt 7\n"


def masked(root: Path, *cpus: int, online: str = "0-3") -> CpuTime:
    """The source of a process that may use these CPUs of four, before anything has ticked."""
    process(root, 50)
    write(root, {"proc/stat": four_cores(0, 0, 0, 0), "sys/devices/system/cpu/online": online})
    return CpuTime(str(root), 50, cpus)


def after_a_second(root: Path, *cpus: int, online: str = "0-3") -> dict:
    """What it says once it has used 40 ticks while core 0 was hogged and core 3 stolen from."""
    source = masked(root, *cpus, online=online)
    process(root, 50, cpu_ticks=40)
    write(root, {"proc/stat": four_cores(900, 50, 30, 500, idle=500, steal=100)})
    return values(source)


def test_of_a_process_with_a_mask_its_own_cores_are_told_apart(tmp_path):
    got = after_a_second(tmp_path, 1, 2)
    assert got["cpu_others"] == pytest.approx((1480 - 40) / 3580)
    assert got["cpu_allowed_others"] == pytest.approx((50 + 30 - 40) / 1080)
    assert got["cpu_allowed_steal"] == 0 < got["cpu_steal"]
    got = after_a_second(tmp_path / "hogged", 0, 3, 9)  # CPU 9 is not online
    assert got["cpu_allowed_others"] == pytest.approx((900 + 500 - 40) / 2500)
    assert got["cpu_allowed_steal"] == pytest.approx(100 / 2500)


def test_cores_that_have_not_ticked_wait_for_the_tick_and_lose_nothing(tmp_path):
    source = masked(tmp_path, 1)
    for mine, theirs in ((4, 10), (8, 20)):  # the others tick, core 1 has not been accounted yet
        process(tmp_path, 50, cpu_ticks=mine)
        write(tmp_path, {"proc/stat": four_cores(theirs, 0, 0, 0)})
        assert "cpu_allowed_others" not in values(source)
    process(tmp_path, 50, cpu_ticks=12)
    write(tmp_path, {"proc/stat": four_cores(20, 12, 0, 0)})
    assert values(source)["cpu_allowed_others"] == 0


@pytest.mark.parametrize(
    ("cpus", "online"), [((0, 1, 2, 3), "0-3"), (range(64), "0-3"), ((7,), "x"), ((1, 2), "0-7"), ((), "0-3")]
)
def test_without_fewer_cores_or_with_other_numbers_there_is_one_share(tmp_path, cpus, online):
    assert not [n for n in after_a_second(tmp_path, *cpus, online=online) if "allowed" in n]


def test_no_accounting_tick_leaves_the_shares_out(tmp_path):
    root = board(tmp_path)
    process(root, 50)
    source = CpuTime(str(root), 50)
    assert "cpu_busy" not in values(source)
    write(root, {"proc/stat": stat_line(1050, 9050)})
    assert values(source)["cpu_busy"] == pytest.approx(0.5)


def test_without_proc_every_metric_is_unsupported(tmp_path):
    got = values(CpuTime(str(tmp_path), 50))
    assert got
    assert all(isinstance(v, Unsupported) for v in got.values())
    assert all(isinstance(v, Unsupported) for v in values(Pressure(str(tmp_path))).values())
    assert all(isinstance(v, Unsupported) for v in values(MemoryAndLoad(str(tmp_path))).values())


def test_nonsense_is_failed_not_zero(tmp_path):
    write(tmp_path, {"proc/stat": "gibberish\n", "proc/pressure/cpu": "?\n"})
    assert isinstance(values(CpuTime(str(tmp_path), 50))["cpu_busy"], Failed)
    write(tmp_path, {"proc/stat": f"cpu 1 0 0 {1 << 62} 0 0 0 0\n"})
    assert isinstance(values(CpuTime(str(tmp_path), 50))["cpu_busy"], Failed)
    assert isinstance(values(Pressure(str(tmp_path)))["psi_cpu_some"], Failed)


def test_pressure_is_a_share_of_the_time_since_the_last_reading(tmp_path):
    root = board(tmp_path)
    source = Pressure(str(root))
    time.sleep(0.02)
    write(root, {"proc/pressure/cpu": "some avg10=0 avg60=0 avg300=0 total=6000\nfull total=9999999\n"})
    got = values(source)
    assert 0 < got["psi_cpu_some"] <= 0.25  # 5 ms of at least 20
    assert isinstance(got["psi_memory_some"], Unsupported)


def test_memory_and_load(tmp_path):
    got = values(MemoryAndLoad(str(board(tmp_path))))
    assert got == {"mem_available_bytes": 4194304 * 1024.0, "load1": 0.5}


def test_clocks_are_the_mean_of_the_policies(tmp_path):
    assert values(Clocks(str(board(tmp_path))))["cpu_freq_hz"] == pytest.approx(1.0e9)
    assert isinstance(values(Clocks(str(tmp_path / "none")))["cpu_freq_hz"], Unsupported)


def test_a_powered_off_sensor_is_absent(tmp_path):
    got = values(Temperatures(str(board(tmp_path))))
    assert got["temperature_cpu_thermal_c"] == pytest.approx(45.5)
    assert isinstance(got["temperature_gpu_thermal_c"], Unsupported)
    assert isinstance(values(Temperatures(str(tmp_path / "none")))["temperature_c"], Unsupported)


def test_zones_of_one_type_stay_apart(tmp_path):
    for i in range(2):
        write(tmp_path, {f"sys/class/thermal/thermal_zone{i}/type": "acpitz"})
        write(tmp_path, {f"sys/class/thermal/thermal_zone{i}/temp": 30000 + i * 1000})
    assert sorted(values(Temperatures(str(tmp_path))).values()) == [30.0, 31.0]


def test_energy_counter_is_unwrapped(tmp_path):
    root = board(tmp_path)
    source = Rapl(str(root))
    assert values(source)["cpu_package_energy_j"] == pytest.approx(9.0)
    write(root, {"sys/class/powercap/intel-rapl:0/energy_uj": "500000"})
    assert values(source)["cpu_package_energy_j"] == pytest.approx(10.5)
    write(root, {"sys/class/powercap/intel-rapl:0/energy_uj": "100000"})
    assert values(source)["cpu_package_energy_j"] == pytest.approx(20.1)


def test_energy_is_the_sum_of_the_packages_or_nothing(tmp_path):
    root = board(tmp_path)
    zone = "sys/class/powercap/intel-rapl:1"
    write(root, {f"{zone}/name": "package-1", f"{zone}/energy_uj": "1000000"})
    write(root, {"sys/class/powercap/intel-rapl:0:0/name": "core"})
    write(root, {"sys/class/powercap/intel-rapl:0:0/energy_uj": "7000000"})
    assert values(Rapl(str(root)))["cpu_package_energy_j"] == pytest.approx(10.0)
    write(root, {f"{zone}/energy_uj": "not a number"})
    assert isinstance(values(Rapl(str(root)))["cpu_package_energy_j"], Failed)


def test_a_counter_that_goes_backwards_without_a_range_is_not_guessed(tmp_path):
    root = board(tmp_path)
    (root / "sys/class/powercap/intel-rapl:0/max_energy_range_uj").unlink()
    source = Rapl(str(root))
    source.read()
    write(root, {"sys/class/powercap/intel-rapl:0/energy_uj": "1"})
    assert isinstance(values(source)["cpu_package_energy_j"], Unsupported)


@pytest.mark.process
def test_the_tree_counts_living_and_finished_children():
    code = "import time\nwhile time.process_time() < 0.25: pass\nprint(1, flush=True)\n"
    tree = ProcessTree(Path("/proc"), os.getpid())
    before = tree.read()
    child = subprocess.Popen([sys.executable, "-c", code + "input()"], stdin=-1, stdout=-1, text=True)
    child.stdout.readline()
    fresh = ProcessTree(Path("/proc"), os.getpid()).read()
    child.communicate("\n")
    after = tree.read()
    assert isinstance(before, tuple) and isinstance(fresh, tuple) and isinstance(after, tuple)
    assert isinstance(after[0], Usage) and after[0].rss_bytes > 1e6
    assert fresh[1] - before[1] >= 0.15  # alive
    assert after[1] - before[1] >= 0.15  # waited for


@pytest.mark.process
def test_a_process_that_ends_says_so():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    source = CpuTime("/", child.pid)
    child.communicate(b"\n")
    got = values(source)
    assert isinstance(got["proc_cpu_s"], Failed)
    assert "ended" in got["proc_cpu_s"].reason


def test_descendants_are_found_without_the_children_file(tmp_path):
    root = board(tmp_path)
    for pid, ppid in ((50, 1), (51, 50), (52, 51), (60, 1)):
        process(root, pid, ppid=ppid, cpu_ticks=100)
    (root / "proc/50/task/50/children").unlink()
    got = ProcessTree(root / "proc", 50).read()
    assert isinstance(got, tuple)
    assert got[1] == pytest.approx(3.0)


def test_this_machine_is_read_for_little():
    source = CpuTime("/", os.getpid())
    time.sleep(0.05)
    got = values(source)
    assert 0 <= got["cpu_busy"] <= 1 + 1e-9
    start = time.process_time()
    for _ in range(200):
        source.read()
    assert (time.process_time() - start) / 200 < 1e-3


@pytest.mark.slow
def test_sources_and_the_watcher_import_neither_numpy_nor_an_engine():
    code = (
        "import sys\n"
        "import edgescope.telemetry.watcher\n"
        "from edgescope.devices.cpu import device, sensors, sources\nfrom edgescope.wings import nvidia\n"
        "print([m for m in ('numpy', 'torch', 'psutil', 'onnxruntime') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "9" * 400, "", "x"])
def test_no_file_makes_a_value_that_is_no_number(tmp_path, text):
    zone = "sys/class/powercap/intel-rapl:0"
    files = {
        "proc/loadavg": text,
        "proc/meminfo": f"MemAvailable: {text} kB",
        "proc/pressure/cpu": f"some total={text}\n",
        "proc/stat": f"cpu {text} 0 0 0 0 0 0 0\nctxt {text}\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": text,
        "sys/class/thermal/thermal_zone0/temp": text,
        f"{zone}/energy_uj": text,
    }
    root = write(board(tmp_path), files)
    for source in (
        CpuTime(str(root), 50),
        *(s(str(root)) for s in (MemoryAndLoad, Clocks, Temperatures, Rapl)),
    ):
        for name, value in values(source).items():
            assert not isinstance(value, float) or math.isfinite(value), name
    assert isinstance(values(MemoryAndLoad(str(root)))["mem_available_bytes"], Failed)
    assert isinstance(values(Pressure(str(root)))["psi_cpu_some"], Failed)


def test_children_that_name_their_parents_end_the_search(tmp_path):
    process(tmp_path, 50, cpu_ticks=100, children="51 50 ")
    process(tmp_path, 51, cpu_ticks=100, children="50 51 ", ppid=50)
    usage, total = ProcessTree(tmp_path / "proc", 50).read()
    assert isinstance(usage, Usage)
    assert total == pytest.approx(2.0)


def test_a_damaged_list_of_children_is_looked_up_by_parents(tmp_path):
    process(tmp_path, 50, cpu_ticks=100, children="?? ")
    process(tmp_path, 51, cpu_ticks=100, ppid=50)
    _, total = ProcessTree(tmp_path / "proc", 50).read()
    assert total == pytest.approx(2.0)


def test_a_folder_that_only_looks_like_a_zone_is_none(tmp_path):
    root = board(tmp_path)
    for name in ("thermal_zone_x", "thermal_zone1 (copy)", "thermal_zone\u0663"):
        write(root, {f"sys/class/thermal/{name}/type": "x", f"sys/class/thermal/{name}/temp": "50000"})
    write(root, {"sys/devices/system/cpu/cpufreq/policy0.bad/scaling_cur_freq": "9"})
    assert set(values(Temperatures(str(root)))) == {"temperature_cpu_thermal_c", "temperature_gpu_thermal_c"}
    assert values(Clocks(str(root)))["cpu_freq_hz"] == pytest.approx(1.0e9)


def whole_line(pid, parent, *, utime=0, stime=0, cutime=0, cstime=0, rss=0, faults=0):
    fields = ["S", str(parent), *["0"] * 7, str(faults), "0", *map(str, (utime, stime, cutime, cstime))]
    return f"{pid} (a b) c) {' '.join(fields)} {' '.join(['0'] * 6)} {rss} 0\n"


def test_a_stat_line_is_ticks_pages_and_faults():
    found = parse_stat(whole_line(7, 1, utime=100, stime=20, cutime=3, cstime=4, rss=5, faults=6).encode())
    assert found == Usage(pytest.approx(120 * TICK_S), pytest.approx(7 * TICK_S), 5 * PAGE_BYTES, 6)
    long = whole_line(7, 1, utime=10**19).encode()
    assert parse_stat(long).own_s == pytest.approx(10**19 * TICK_S)
    with pytest.raises(ValueError, match="64 bits"):
        parse_stat(whole_line(7, 1, utime=10**20).encode())


@pytest.mark.parametrize("text", ["", "7 (a) S\n", "7 (a) S 1 x\n", "nothing"])
def test_what_is_no_stat_line_is_failed(tmp_path, text):
    path = tmp_path / "7/stat"
    path.parent.mkdir()
    path.write_text(text)
    found = ProcessTree(tmp_path, 7).read()
    assert isinstance(found, Failed) and str(path) in found.reason


def test_a_tree_is_searched_again_at_every_tenth_reading(tmp_path):
    def put(pid, parent, **keys):
        (tmp_path / f"{pid}").mkdir(exist_ok=True)
        (tmp_path / f"{pid}/stat").write_text(whole_line(pid, parent, **keys))

    put(7, 1, utime=100, cutime=10)
    put(8, 7, utime=200, cstime=20)
    put(9, 8, stime=400)
    put(5, 1, utime=900)
    tree = ProcessTree(tmp_path, 7)
    totals = []
    for _ in range(11):
        totals.append(round(tree.read()[1] / TICK_S))
        put(11, 9, utime=5000)
    assert totals == [730] * 10 + [5730]
    for name in (9, 11):  # it has ended
        tree._files[name] = KernelFile(tmp_path / "gone")
    usage, total = tree.read()
    assert round(total / TICK_S) == 330 and round(usage.own_s / TICK_S) == 100 and set(tree._files) == {7, 8}


@pytest.mark.parametrize(
    ("celsius", "powered"), [("-200000", True), ("-200001", False), ("-256000", False), ("45500", True)]
)
def test_a_sensor_below_200_degrees_is_powered_off(tmp_path, celsius, powered):
    root = write(
        tmp_path,
        {"sys/class/thermal/thermal_zone0/type": "cpu\n", "sys/class/thermal/thermal_zone0/temp": celsius},
    )
    ((name, _, value),) = sensors.Temperatures(str(root)).read()
    assert name == "temperature_cpu_c" and (
        value == float(celsius) / 1000 if powered else isinstance(value, Unsupported)
    )


@pytest.mark.parametrize(("count", "read"), [(1, 1), (8, 8), (9, 5), (16, 8), (17, 6)])
def test_at_most_eight_clocks_are_read_evenly_over_the_policies(tmp_path, count, read):
    policy = "sys/devices/system/cpu/cpufreq/policy"
    root = write(tmp_path, {f"{policy}{n}/scaling_cur_freq": f"{1000 + n}\n" for n in range(count)})
    clocks = sensors.Clocks(str(root))
    step = -(-count // 8)
    chosen = list(range(0, count, step))
    assert len(chosen) == read and f" {read} cpufreq" in clocks.channels()[0].source
    assert clocks.read()[0][2] == pytest.approx(1e3 * (1000 + sum(chosen) / len(chosen)))


def test_every_share_is_of_what_has_passed_since_the_last_reading(tmp_path):
    """Not since the boot: each of the figures was something before."""
    root = board(tmp_path)
    process(root, 50, cpu_ticks=7)
    write(root, {"proc/stat": stat_line(1000, 9000, steal=500)})
    source, shares = CpuTime(str(root), 50), []
    for user, idle, steal, mine in ((1060, 9030, 510, 27), (1060, 9100, 540, 27), (1160, 9100, 540, 127)):
        before = values(source)
        write(root, {"proc/stat": stat_line(user, idle, steal=steal)})
        process(root, 50, cpu_ticks=mine)
        found = values(source)
        assert "cpu_busy" not in before
        shares.append(tuple(round(found[f"cpu_{what}"], 6) for what in ("busy", "steal", "others")))
    assert shares == [(0.6, 0.1, 0.4), (0.0, 0.3, 0.0), (1.0, 0.0, 0.0)]


def test_all_kinds_of_work_are_busy_and_waiting_is_not(tmp_path):
    process(tmp_path, 50)
    write(tmp_path, {"proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\nctxt 1\n"})
    source = CpuTime(str(tmp_path), 50)
    write(tmp_path, {"proc/stat": "cpu  1 2 4 100 28 8 16 41 1000 1000\nctxt 1\n"})
    found = values(source)
    assert (found["cpu_busy"], found["cpu_steal"]) == (pytest.approx(31 / 200), pytest.approx(41 / 200))


def test_pressure_is_of_the_nanoseconds_since_the_last_reading(tmp_path, monkeypatch):
    from edgescope.devices.cpu import sources

    now = [1_000_000]
    monkeypatch.setattr(sources.time, "monotonic_ns", lambda: now[0])
    text = "some avg10=0 total={}\nfull avg10=0 total=9\n"
    write(tmp_path, {"proc/pressure/cpu": text.format(100), "proc/pressure/memory": text.format(0)})
    source = Pressure(str(tmp_path))
    found = []
    for passed_ns, total in (
        (1_000_000, 350),
        (500_000, 350),
        (0, 351),
        (1_000, "x"),
        (1_000, 400),
        (1_000, 401),
    ):
        now[0] += passed_ns
        write(tmp_path, {"proc/pressure/cpu": text.format(total)})
        found.append(values(source)["psi_cpu_some"])
    assert found[:3] == [0.25, 0.0, 1000.0] and isinstance(found[3], Failed)
    assert found[4:] == [400.0, 1.0]  # a figure follows no figure: the count itself, then its share


def test_a_line_without_switches_says_so(tmp_path):
    process(tmp_path, 50)
    write(tmp_path, {"proc/stat": "cpu  1 0 0 1 0 0 0 0 0 0\nbtime 5\n"})
    source = CpuTime(str(tmp_path), 50)
    write(tmp_path, {"proc/stat": "cpu  2 0 0 2 0 0 0 0 0 0\nbtime 5\n"})
    assert "no ctxt line" in values(source)["ctx_switches"].reason
    write(tmp_path, {"proc/stat": "cpu  3 0 0 3 0 0 0 0 0 0\nctxt 123"})
    assert values(source)["ctx_switches"] in (12, 123)
    write(tmp_path, {"proc/stat": "cpu  4 0 0 4 0 0 0 0 0 0\nctxt 124\nx 5\n"})
    assert values(source)["ctx_switches"] == 124


@pytest.mark.parametrize(
    ("policies", "read"), [(1, [0]), (8, range(8)), (9, range(0, 9, 2)), (17, range(0, 17, 3))]
)
def test_eight_clocks_are_read_at_most_spread_over_all(tmp_path, policies, read):
    for n in range(policies):
        write(tmp_path, {f"sys/devices/system/cpu/cpufreq/policy{n}/scaling_cur_freq": f"{1000 + n}\n"})
    source = Clocks(str(tmp_path))
    assert values(source)["cpu_freq_hz"] == pytest.approx(1e3 * (1000 + sum(read) / len(read)))
    assert f" {len(read)} " in source.channels()[0].source


def test_energy_of_memory_is_told_beside_that_of_the_packages(tmp_path):
    for zone, name, energy in (
        ("0", "package-0", 5),
        ("1", "package-1", 6),
        ("0:1", "dram", 2),
        ("1:1", "dram", 1),
    ):
        folder = f"sys/class/powercap/intel-rapl:{zone}"
        write(tmp_path, {f"{folder}/name": name, f"{folder}/energy_uj": f"{energy}000000"})
    source = Rapl(str(tmp_path))
    assert values(source) == {"cpu_package_energy_j": 11.0, "cpu_dram_energy_j": 3.0}
    assert [c.scope for c in source.channels()] == ["cpu_package", "rail"]
    assert "no package zone" in values(Rapl(str(tmp_path / "none")))["cpu_package_energy_j"].reason


def test_a_counter_at_nought_has_not_wrapped(tmp_path):
    zone = "sys/class/powercap/intel-rapl:0"
    write(tmp_path, {f"{zone}/name": "package-0", f"{zone}/max_energy_range_uj": "10000000"})
    seen = []
    source = None
    for energy in ("0", "0", "500000", "500000", "400000"):
        write(tmp_path, {f"{zone}/energy_uj": energy})
        source = source or Rapl(str(tmp_path))
        seen.append(values(source)["cpu_package_energy_j"])
    assert seen == [0.0, 0.0, 0.5, 0.5, pytest.approx(10.4)]


def test_a_chip_of_hwmon_stands_beside_the_zones(tmp_path):
    chips = {"hwmon0": "nvme", "hwmon1": "coretemp", "hwmon2": "k10temp"}
    for folder, name in chips.items():
        write(
            tmp_path,
            {f"sys/class/hwmon/{folder}/name": name, f"sys/class/hwmon/{folder}/temp1_input": "41500"},
        )
    (tmp_path / "sys/class/hwmon/hwmon2/temp1_input").unlink()
    assert values(Temperatures(str(tmp_path))) == {"temperature_coretemp_c": 41.5}


@pytest.mark.parametrize(("celsius", "off"), [(-200, False), (-200.001, True), (-256, True), (0, False)])
def test_no_real_part_is_colder_than_200_below(tmp_path, celsius, off):
    zone = "sys/class/thermal/thermal_zone0"
    write(tmp_path, {f"{zone}/type": "x", f"{zone}/temp": str(round(celsius * 1000))})
    (found,) = values(Temperatures(str(tmp_path))).values()
    assert isinstance(found, Unsupported) if off else found == pytest.approx(celsius)


@pytest.mark.parametrize("column", range(8))
@pytest.mark.parametrize(("ticks", "fine"), [((1 << 62) - 1, True), (1 << 62, False)])
def test_no_count_is_of_more_ticks_than_time_has_had(tmp_path, column, ticks, fine):
    process(tmp_path, 50)
    counts = ["0"] * 8
    write(tmp_path, {"proc/stat": f"cpu  {' '.join(counts)}\nctxt 5\n"})
    source = CpuTime(str(tmp_path), 50)
    counts[column] = str(ticks)
    write(tmp_path, {"proc/stat": f"cpu  {' '.join(counts)}\nctxt 5\n"})
    assert isinstance(values(source)["cpu_busy"], Failed) is not fine
