"""The whole measuring stack on each shipped board: facts, sampler, energy, verdict, modes, doctor, bench.

The boards are constructed recordings (see docs/how-to/recordings.md): their values come from public lines, so what is
expected here is typed from those lines and from boards.toml, not from what the parsers answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

import edgescope
from edgescope import bench
from edgescope.analysis.run.energy_window import energy
from edgescope.bench.watch import Watch, available
from edgescope.devices import clocks, manifest, recording, replay
from edgescope.modes.catalog import listing
from edgescope.records import Absent, Measured, Trial, Trust, Window
from edgescope.wings.doctor import report as doctor

SECONDS = 1.2


@dataclass(frozen=True)
class Expected:
    """What a board must give, from public facts."""

    board: str
    """As boards.toml calls it."""
    cores: int
    """Online."""
    meter: str
    scope: str
    first_w: float
    """Total of the first public line."""
    modes: frozenset[str] = frozenset()
    measured: frozenset[str] = frozenset()
    off: frozenset[str] = field(default_factory=frozenset)
    """Channels that the board has and that cannot be read on it."""
    throttled: str = ""


CLOCKS = {"gpu_clock_hz", "temperature_cpu_therm_c"}
BOARDS = {
    "nano": Expected(
        "Jetson Nano",
        4,
        "pom_5v_in",
        "module",
        1.388,
        frozenset({"MAXN", "5W"}),
        frozenset({*CLOCKS, "gpu_busy", "pom_5v_gpu_power_w", "pom_5v_cpu_power_w", "cpu_policy0_clock_hz"}),
        frozenset({"emc_clock_hz", "nvmap_used_bytes"}),
        "thermal",
    ),
    "tx2": Expected(
        "Jetson TX2",
        6,
        "vdd_in",
        "module",
        3.624,
        frozenset({"MAXN", "MAXQ", "MAXP_CORE_ALL", "MAXP_CORE_ARM"}),
        frozenset({"gpu_busy", "vdd_sys_gpu_power_w", "vdd_4v0_wifi_power_w", "cpu_policy1_clock_hz"}),
        frozenset({"emc_clock_hz"}),
    ),
    "xavier_nx": Expected(
        "Jetson Xavier NX",
        4,
        "vdd_in",
        "module",
        5.542,
        frozenset({"MODE_15W_6CORE", "MODE_10W_4CORE", "MODE_20W_2CORE"}),
        frozenset({*CLOCKS, "gpu_busy", "nvmap_used_bytes", "swap_used_bytes", "vdd_soc_power_w"}),
        frozenset({"emc_clock_hz"}),
    ),
    "agx_xavier": Expected(
        "Jetson AGX Xavier",
        8,
        "rails",
        "sum_of_rails",
        0.467 + 0.467 + 1.245 + 0.0 + 0.311 + 2.768,
        frozenset({"MAXN", "MODE_30W_ALL", "MODE_15W_DESKTOP"}),
        frozenset(
            {*CLOCKS, "gpu_busy", "emc_busy", "emc_clock_hz", "cv_power_w", "sys5v_power_w", "vic0_clock_hz"}
        ),
    ),
    "orin_nano": Expected(
        "Jetson Orin Nano",
        6,
        "vdd_in",
        "module",
        2.957,
        frozenset({"15W", "25W", "MAXN_SUPER"}),
        frozenset(
            {"gpu_busy", "emc_busy", "vdd_cpu_gpu_cv_power_w", "oc1_events", "fan1_share", "swap_used_bytes"}
        ),
    ),
    "orin_nx": Expected(
        "Jetson Orin NX",
        4,
        "vdd_in",
        "module",
        6.120,
        frozenset({"10W", "15W", "25W", "40W", "MAXN_SUPER"}),
        frozenset({"gpu_busy", "oc3_events", "temperature_cv0_thermal_c", "nvmap_used_bytes"}),
        frozenset({"emc_clock_hz"}),
    ),
    "agx_orin": Expected(
        "Jetson AGX Orin",
        12,
        "rails",
        "sum_of_rails",
        2.971 + 12.415 + 5.048,
        frozenset({"MAXN", "MODE_15W", "MODE_30W", "MODE_50W"}),
        frozenset({"gpu_busy", "vddq_vdd2_1v8ao_power_w", "vin_sys_5v0_power_w", "oc3_events"}),
        frozenset({"emc_clock_hz"}),
        "over-current",
    ),
    "thor": Expected(
        "Jetson AGX Thor",
        14,
        "vin",
        "carrier",
        16.802,
        frozenset(),
        frozenset({"gpu_clock_hz", "emc_clock_hz", "vdd_gpu_power_w", "vdd_cpu_soc_mss_power_w"}),
        frozenset({"gpu_busy", "nvmap_used_bytes"}),
    ),
}


def test_every_shipped_board_is_tested():
    assert sorted(BOARDS) == recording.shipped()


@pytest.fixture(scope="module")
def all_watched():
    """Every board, each watched by a real sampler of its own beside its throttle counters, all at once."""
    found = {}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(
            clocks, "calibrate", lambda: 100
        )  # the spin probe tells of this machine, not of the boards
        for name in sorted(BOARDS):
            here = replay.devices(name)
            watch = Watch(here, 20.0)
            stack.enter_context(watch.watching())
            found[name] = here, watch, time.monotonic_ns()
        time.sleep(SECONDS)
        stop = time.monotonic_ns()
    return {
        n: (BOARDS[n], here, watch, Window(0, 1, start, stop)) for n, (here, watch, start) in found.items()
    }


@pytest.fixture(params=sorted(BOARDS))
def watched(request, all_watched):
    """One board: what is expected, its devices, what was read, when."""
    return all_watched[request.param]


@pytest.mark.slow
def test_a_gpu_without_memory_of_its_own_takes_what_the_machine_lost(watched):
    _, here, watch, window = watched
    left = watch._within("mem_available_bytes", window).min()
    found = watch.board_memory("cuda", window, left + 3e9)
    assert "unified_memory_bytes" in str(found["gpu_board_memory_bytes"].reason)
    assert found["unified_memory_bytes"].value == pytest.approx(3e9)
    assert "was not read" in str(watch.board_memory("cuda", window, None)["unified_memory_bytes"].reason)
    assert available(manifest.machine(here)) > 0


@pytest.mark.process
def test_facts(watched):
    expected, here, _, _ = watched
    machine = manifest.machine(here)
    assert machine.state["replayed"]["made"] == "constructed"
    jetson = machine.state["jetson"]
    assert expected.board in json.dumps(machine.stable["jetson"])
    assert len(machine.state["cpu"]["online_cpus"]) == expected.cores
    assert jetson["l4t"] and jetson["rails"] and jetson["gpu"]["cur_hz"] >= 0
    total = jetson["power_total"]
    assert (total["channel"], total["scope"]) == (f"{expected.meter}_power_w", expected.scope)
    if expected.modes:
        assert jetson["power_mode"]["name"] in expected.modes
    assert "edgescope-stage" not in json.dumps(machine.state["jetson"])


@pytest.mark.process
def test_readings(watched):
    expected, _, watch, _ = watched
    assert watch.cost["alive"] and watch.cost["ticks"] > 10
    status = {c.name: c.status for c in watch.readings.channels}
    assert {n for n in expected.measured if status.get(n) != "measured"} == set()
    assert {n for n in expected.off if status.get(n) != "unsupported"} == set()
    assert "failed" not in {c.status for c in watch.readings.channels}, [
        c for c in watch.readings.channels if c.status == "failed"
    ]
    _, total_w = watch.readings.series(f"{expected.meter}_power_w")
    assert total_w[0] == pytest.approx(expected.first_w, rel=0.01)
    assert len(set(total_w)) >= 3  # it moved
    for channel in watch.readings.channels:
        assert "edgescope-stage" not in channel.source + channel.reason


@pytest.mark.process
def test_energy_has_the_scope_that_the_boards_table_promises(watched):
    expected, _, watch, window = watched
    got = energy(watch.readings, window.start_ns, window.stop_ns, 100, device="cuda")
    assert (got.meter, got.scope) == (expected.meter, expected.scope)
    assert isinstance(got.energy_j, Measured)
    _, watts = watch.readings.series(f"{expected.meter}_power_w")
    seconds = (window.stop_ns - window.start_ns) / 1e9
    assert watts.min() * seconds * 0.99 <= got.energy_j.value <= watts.max() * seconds * 1.01


@pytest.mark.process
def test_a_powered_off_zone_is_no_temperature(watched):
    _, here, watch, _ = watched
    for channel in watch.readings.channels:
        if channel.name.startswith("temperature_"):
            _, celsius = watch.readings.series(channel.name)
            assert (celsius > -50).all()
    if here["replayed"].stage.recording.board.startswith("Jetson AGX Orin"):
        cv0, gpu = (
            watch.readings.series("temperature_cv0_therm_c"),
            watch.readings.series("temperature_gpu_therm_c"),
        )
        assert len(cv0[0]) and set(gpu[1]) <= {69.125, 72.125}


@pytest.mark.process
def test_the_verdict_names_the_cause(watched):
    expected, _, watch, window = watched
    got = watch.verdict(window)
    assert got.trust is not Trust.CLEAN
    if expected.throttled:
        assert got.trust is Trust.THROTTLED
        assert any(expected.throttled in text.replace("_", "-") for text in got.evidence), got.evidence
    else:
        assert got.trust is not Trust.THROTTLED, got.evidence


@pytest.mark.process
def test_modes(watched):
    expected, here, _, _ = watched
    rows = [row for row in listing(here) if row.id is not None]
    assert expected.modes <= {row.name for row in rows}
    assert [row.now for row in rows].count(True) == (1 if expected.modes else 0)


@pytest.mark.process
def test_doctor(watched):
    expected, here, _, _ = watched
    report = doctor.examine(here, watch_s=0.1, root=replay.root(here))
    assert report.devices["jetson"] == report.devices["cpu"] == ""
    by = {m.name: m for m in report.metrics}
    assert by[f"{expected.meter}_power_w"].status == "measured"
    assert by[f"{expected.meter}_power_w"].scope == expected.scope
    failed = [m for m in report.metrics if m.status == "failed"]
    assert not [m for m in failed if m.kind != "interval"]  # a recording that has ended has no more intervals
    texts = [f"{f.text} {f.fix}" for f in (*report.disturbances, *report.missing)]
    assert not any("edgescope-stage" in text for text in texts), texts


@pytest.mark.slow
def test_the_command_examines_a_board():
    command = [sys.executable, "-m", "edgescope.cli.main", "--board", "orin_nx", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["machine"]["state"]["replayed"]["board"] == "Jetson Orin NX 16GB"
    assert next(m for m in report["metrics"] if m["name"] == "vdd_in_power_w")["scope"] == "module"


@pytest.mark.slow
def test_a_bench_on_a_board_has_its_readings_but_neither_its_watts_nor_a_verdict(monkeypatch):
    monkeypatch.setenv("EDGESCOPE_BOARD", "xavier_nx")
    trial = Trial(model="null", backend="null", warmup=0.1, min_s=1.2, max_s=1.4)
    result = bench.run(trial, hz=20.0)
    assert result.status.value in ("ok", "unstable"), result.reason  # unstable: this machine is busy
    assert result.verdict.trust is Trust.UNKNOWN
    assert "the sensors are a recording" in result.verdict.evidence
    assert any(w.code == "W-REC-1" for w in result.warnings)
    watts = [result.metrics[n] for n in ("power_w", "energy_j", "energy_per_sample_j")]
    assert all(isinstance(w, Absent) and "recording" in w.reason for w in watts)
    spent = edgescope.energy(result).meters[0][1].metrics
    assert isinstance(spent["power_w"], Measured) and 5.0 < spent["power_w"].value < 10.0
    assert isinstance(spent["energy_per_sample_j"], Absent)
    assert result.machine.state["replayed"]["board"].startswith("Jetson Xavier NX")
    assert os.environ["EDGESCOPE_BOARD"] == "xavier_nx"
