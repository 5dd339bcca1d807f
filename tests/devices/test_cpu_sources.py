from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_board import board, process, stat_line, write

from edgescope.devices.base import Failed, Unsupported
from edgescope.devices.cpu import sensors
from edgescope.devices.cpu.sensors import Clocks, Rapl, Temperatures
from edgescope.devices.cpu.sources import CpuTime, MemoryAndLoad, Pressure
from edgescope.devices.kernel_files import KernelFile
from edgescope.devices.process_tree import PAGE_BYTES, TICK_S, ProcessTree, Usage, parse_stat


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


def test_sources_and_the_watcher_import_neither_numpy_nor_an_engine():
    code = (
        "import sys\n"
        "import edgescope.telemetry.watcher\n"
        "from edgescope.devices.cpu import device, sensors, sources\nfrom edgescope.devices.nvidia import nvml\n"
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
