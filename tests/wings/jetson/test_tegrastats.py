"""tegrastats: every known line without a loss, logs with damaged clocks and lines, and the live program."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.devices import replay
from edgescope.devices.base import Failed, SourceSpec, Unsupported
from edgescope.errors import DeviceError, UsageError
from edgescope.telemetry.sampler import Sampler
from edgescope.wings.energy import meter_log
from edgescope.wings.energy.meter_table import Dialect
from edgescope.wings.jetson import tegrastats
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.jetson.tegrastats import RATE, UNREAD, TegrastatsSource
from edgescope.wings.jetson.tegrastats_line import parse
from edgescope.wings.jetson.tegrastats_log import read
from fake_rails import board, iio

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LINES = tomllib.loads((Path(__file__).parent / "tegrastats_lines.toml").read_text())["line"]
BY_ID = {line["id"]: line for line in LINES}
NUMBER = re.compile(r"(?:(?<=[0-9]x)|(?<![A-Za-z0-9_.]))-?[0-9]+(?:\.[0-9]+)?")
"""A value in a line; digits that belong to a name (POM_5V_IN, soc012) are none."""
SCALES = {"byte": (1024, 1048576), "share": (0.01,), "Hz": (1e6,), "W": (1e-3,), "degC": (1,), "1": (1,)}
NANO, THOR = BY_ID["nano_jp4_idle"]["text"], BY_ID["thor_r39_maxima"]["text"]
known = pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])


def dateless(line) -> tuple[int, str]:
    """(where the first item begins, the line)."""
    return (re.match(r"(?:\[?[0-9-]{10} [0-9:]{8}\]?(?: :)? )?", line["text"]).end(), line["text"])


@known
def test_no_item_of_a_known_line_is_lost(line):
    got = parse(line["text"])
    assert got.unknown == ()
    begin, text = dateless(line)
    assert " ".join(item.text for item in got.items).split() == text[begin:].split()
    assert got.when == line.get("when")


@known
def test_every_number_of_a_known_line_is_a_value_in_si_units(line):
    begin, text = dateless(line)
    fields = parse(text).fields
    for found in NUMBER.finditer(text, begin):
        mine = [f for f in fields if f.at == found.start()]
        assert mine, f"nothing came of {found.group()!r} at {found.start()}"
        for f in mine:
            if isinstance(f.value, float):
                assert any(math.isclose(f.value, float(found.group()) * s) for s in SCALES[f.unit]), f
            else:
                assert "-256" in f.value.reason or "NC" in f.value.reason
    names = [f.channel for f in fields]
    assert len(names) == len(set(names))


@known
def test_fields_say_what_a_reader_sees(line):
    got = {f.channel: f.value for f in parse(line["text"]).fields}
    for name, expected in line["expect"].items():
        if expected == "off":
            assert isinstance(got[name], Unsupported), name
        else:
            assert got[name] == pytest.approx(expected), name


def test_every_release_has_a_line():
    assert {int(re.match(r"R(\d+)", line["release"])[1]) for line in LINES} >= {28, 32, 35, 36, 38, 39}


def test_averages_and_maxima_are_channels_of_their_own():
    kinds = {f.channel: f.kind for f in parse(THOR).fields if f.label == "VIN_SYS_5V0"}
    assert kinds == {
        "vin_sys_5v0_power_w": "gauge",
        "vin_sys_5v0_power_since_start_w": "average",
        "vin_sys_5v0_power_max_w": "gauge",
    }


def test_a_rail_is_not_a_temperature_of_the_same_name():
    got = {f.channel: f.value for f in parse("GPU@35C GPU 467mW/468mW").fields}
    assert got == {"temperature_gpu_c": 35.0, "gpu_power_w": 0.467, "gpu_power_since_start_w": 0.468}


@pytest.mark.parametrize(
    "strange",
    [
        "NVNEW 3/4",  # two numbers without a unit, under a name that is no rail's
        "FANS 17",
        "VDD_IN 49x",
        "CPU [3%@729,what]",
        "EDP limit 0",
        "RAM ?/?MB",
        "GPU@35F",
        "VDD_IN 99999999999999999999999999mW/1mW",
    ],
)
def test_what_is_not_known_is_kept_and_told(strange):
    got = parse(f"EMC_FREQ 3%@2133 {strange} APE 174")
    assert " ".join(got.unknown).split() == strange.split()
    assert {f.channel for f in got.fields} == {"emc_busy", "emc_clock_hz", "ape_clock_hz"}


def test_an_impossible_date_is_no_date():
    got = parse("13-45-2025 10:00:00 RAM 1/2MB")
    assert got.when is None
    assert got.unknown == ("13-45-2025", "10:00:00")


@given(st.text(max_size=200))
@pytest.mark.slow
def test_any_text_is_read_without_a_raise_and_without_a_loss(text):
    got = parse(text)
    if got.when is None:
        assert " ".join(item.text for item in got.items).split() == text.split()
    assert all(not isinstance(f.value, float) or math.isfinite(f.value) for f in got.fields)


@given(st.sampled_from(LINES), st.data())
@pytest.mark.slow
def test_a_damaged_line_keeps_what_is_whole(line, data):
    text = line["text"]
    cut = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.text("0123456789%@[]/.,xMBCW -off", max_size=8))
    got = parse(text[:cut] + junk)
    whole = {f.channel: f.value for f in parse(text).fields}
    before = [f for f in got.fields if f.at < cut - 25]
    assert sum(whole.get(f.channel) != f.value for f in before) <= 2 + text.count(",")


POWER = st.integers(-50_000, 200_000)


@given(POWER, POWER, st.sampled_from(["{}mW/{}mW", "{}/{}", "{}mW/{}mW/{}mW", "{}/{}/{}"]))
def test_a_power_below_zero_is_a_power(now, mean, form):
    text = f"RAM 1/2MB VDD_GPU {form.format(now, mean, max(now, mean))} VIN 16802mW/16802mW"
    got = parse(text)
    values = {f.channel: f.value for f in got.fields}
    assert got.unknown == ()
    assert (values["vdd_gpu_power_w"], values["vdd_gpu_power_since_start_w"]) == (now / 1e3, mean / 1e3)
    if form.count("{}") == 3:
        assert values["vdd_gpu_power_max_w"] == max(now, mean) / 1e3
    assert values["vin_power_w"] == 16.802


OWN = "11-23-2026 03:08:02 "
PREFIXES = {
    "Nov 23 03:08:01 thor tegrastats[812]: ": (None, False),
    "Nov 23 03:08:01.250000 thor systemd-cat[8]: ": (None, True),
    "2026-11-23T03:08:01+0000 thor tegrastats[812]: ": ("2026-11-23 03:08:01+00:00", False),
    "2026-11-23T04:08:01.250000+01:00 thor tegrastats: ": ("2026-11-23 04:08:01.250000+01:00", True),
    "Mon 2026-11-23 03:08:01 UTC thor tegrastats[812]: ": ("2026-11-23 03:08:01+00:00", False),
    "1795403281.250000 thor tegrastats[812]: ": ("2026-11-23 03:08:01.250000+00:00", True),
    "[ 1234.250000] thor tegrastats[812]: ": (None, True),
    "Nov 23 03:08:01 ": (None, False),
    "[2026-11-23 03:08:01.250] ": ("2026-11-23 03:08:01.250000", True),
    "00:00:01 ": (None, False),
    "1.250000 ": (None, True),
    "Mon Nov 23 03:08:01 UTC 2026 ": ("2026-11-23 03:08:01+00:00", False),
    "2026-11-23 03:08:01,250 - INFO - ": ("2026-11-23 03:08:01.250000", True),
    "INFO:2026/11/23 03:08:01:stats: ": ("2026-11-23 03:08:01", False),
    "2026-11-23T03:08:01.250000000Z stdout F ": ("2026-11-23 03:08:01.250000+00:00", True),
    "2026-11-23 03:08:01,": ("2026-11-23 03:08:01", False),
    "17,1795403281250,": ("2026-11-23 03:08:01.250000+00:00", True),
    '"2026-11-23 03:08:01";"': ("2026-11-23 03:08:01", False),
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("own", ["", OWN])
def test_a_loggers_time_before_the_line_is_read_and_costs_no_value(prefix, own):
    when, exact = PREFIXES[prefix]
    tail = '"' if prefix.endswith('"') else ""
    got = parse(f"{prefix}{own}{NANO}{tail}\n")
    assert got.unknown == ()
    assert [(f.channel, f.value) for f in got.fields] == [(f.channel, f.value) for f in parse(NANO).fields]
    assert got.stamp.clock.startswith("the logger's") and got.stamp.exact == exact
    named = when is None and prefix.startswith("Nov")
    if named and own:  # the line's own date says which year the logger's 23 November is of
        assert str(got.when).startswith("2026-11-23 03:08:01") and got.stamp.period_s == 0
    else:
        assert (str(got.when) if got.when else None) == when
    assert got.stamp.seconds % 1 == (0.25 if exact else 0)


@pytest.mark.parametrize("prefix", ["13/12/2026 10:00:00 ", "42 ", "host: ", "99:99 ", "Feb 30 10:00:00 "])
def test_words_before_a_line_that_are_no_time_are_told_and_cost_no_value(prefix):
    got = parse(prefix + OWN + NANO)
    assert " ".join(got.unknown).split() == prefix.split()
    assert str(got.when) == "2026-11-23 03:08:02" and got.stamp.clock == "the board's wall clock"
    assert len(got.fields) == len(parse(NANO).fields)


@given(st.text(max_size=60), st.booleans())
@pytest.mark.slow
def test_whatever_a_logger_writes_no_value_is_lost(prefix, dated):
    line = (OWN if dated else "") + NANO
    got = {f.channel: f.value for f in parse(f"{prefix} {line}").fields}
    assert (
        got.items() >= {f.channel: f.value for f in parse(NANO).fields}.items()
        or '"' in prefix
        or "'" in prefix
    )


# -- a file of lines ------------------------------------------------------------------------------------------


def log(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "run.log"
    path.write_text("\n".join(lines) + end)
    return path


def times(got, channel="ram_used_bytes") -> list[float]:
    return [t / 1e9 for name, t, _ in got.rows if name == channel]


def dated(*clocks: str) -> list[str]:
    return [f"09-21-2025 {c} RAM 1/2MB (lfb 1x1MB) VDD_IN 1000mW/1000mW" for c in clocks]


def test_lines_of_one_second_are_spread_over_it(tmp_path):
    clocks = ["10:00:00"] * 3 + ["10:00:01"] * 10 + ["10:00:02"] * 10 + ["10:00:03"] * 4
    got = read(log(tmp_path, *dated(*clocks)))
    at = times(got)
    steps = [b - a for a, b in itertools.pairwise(at)]
    assert all(0.05 < s < 0.2 for s in steps)
    assert at[-1] == pytest.approx(2.6, abs=0.2)
    assert got.interval_s == pytest.approx(0.1, rel=0.2)
    assert "wall clock" in got.clock
    assert str(got.start) == "2025-09-21 10:00:00"
    assert got.remarks == ()


def test_a_clock_set_back_never_bends_a_duration(tmp_path):
    clocks = ["10:00:00", "10:00:01", "10:00:02", "09:00:00", "09:00:01"]
    got = read(log(tmp_path, *dated(*clocks)))
    assert times(got) == [0, 1, 2, 3, 4]
    assert got.remarks == ("line 4: the clock was set back by 3602 s",)


def test_a_leap_of_the_clock_is_told_and_stays(tmp_path):
    got = read(log(tmp_path, *dated("10:00:00", "10:00:01", "11:00:01", "11:00:02")))
    assert times(got) == [0, 1, 3601, 3602]
    assert "line 3: nothing for 3600 s" in got.remarks[0]


def test_without_dates_the_interval_must_be_said(tmp_path):
    path = log(tmp_path, NANO, NANO, NANO)
    with pytest.raises(UsageError, match="E-TEGRA-1"):
        read(path)
    got = read(path, interval_s=0.5)
    assert times(got) == [0, 0.5, 1.0]
    assert "as given" in got.clock
    assert got.start is None


def logged(*prefixes: str) -> list[str]:
    return [prefix + NANO for prefix in prefixes]


def test_the_loggers_clock_is_used_to_its_fraction(tmp_path):
    stamps = [f"2026-11-23T03:08:{s:06.3f}Z nano tegrastats[8]: " for s in (1.1, 1.9, 2.17, 2.51, 3.0)]
    got = read(log(tmp_path, *logged(*stamps)))
    assert times(got) == pytest.approx([0, 0.8, 1.07, 1.41, 1.9])
    assert str(got.start) == "2026-11-23 03:08:01.100000+00:00"
    assert got.clock.startswith("the logger's wall clock (zone stated, fractions of a second), from 2026")
    assert got.remarks == ()


def test_a_loggers_clock_counts_for_more_than_the_boards(tmp_path):
    lines = [f"{1000 + i * 0.5:.3f} 09-21-2025 10:00:{i // 4:02d} {NANO}" for i in range(8)]
    got = read(log(tmp_path, *lines))
    assert times(got) == pytest.approx([i * 0.5 for i in range(8)])
    assert "the logger's seconds since it began" in got.clock and got.start is None


def test_a_day_and_a_year_that_are_not_printed_may_end(tmp_path):
    got = read(log(tmp_path, *logged("23:59:59 ", "00:00:00 ", "00:00:01 ")))
    assert times(got) == [0, 1, 2] and got.remarks == ()
    got = read(
        log(tmp_path, *logged("Dec 31 23:59:59 nx x: ", "Jan  1 00:00:00 nx x: ", "Jan  1 00:00:01 nx x: "))
    )
    assert times(got) == [0, 1, 2] and got.remarks == ()


def test_an_hour_that_the_zone_repeats_is_no_step_of_the_clock(tmp_path):
    for stamps in (
        ("2026-10-25T02:59:59+0200 ", "2026-10-25T02:00:00+0100 ", "2026-10-25T02:00:01+0100 "),
        ("2026-11-01T01:59:59-04:00 ", "2026-11-01T01:00:00-05:00 ", "2026-11-01T01:00:01-05:00 "),
    ):
        got = read(log(tmp_path, *logged(*stamps)))
        assert times(got) == [0, 1, 2] and got.remarks == ()


def test_a_line_that_lost_its_loggers_time_shares_its_neighbours(tmp_path):
    lines = [
        *logged("Nov 23 10:00:00 nx x: ", "Nov 23 10:00:01 nx x: "),
        *dated("10:00:01"),
        *logged("Nov 23 10:00:02 nx x: "),
    ]
    got = read(log(tmp_path, *lines))
    assert got.remarks == () and times(got)[-1] == pytest.approx(2, abs=0.5)


def test_a_csv_log_with_quotes_and_a_head(tmp_path):
    rows = ["time;line;note", *(f'"2026-11-23 03:08:0{i}.5";"{NANO}";"ok, {i}"' for i in range(3))]
    got = read(log(tmp_path, *rows))
    assert times(got) == [0, 1, 2]
    assert got.remarks == ("1 lines are not of tegrastats and were left out",)
    assert [v for n, _, v in got.rows if n == "pom_5v_cpu_power_since_start_w"] == [0.163] * 3


def test_rails_take_their_scope_from_whoever_knows_the_board(tmp_path):
    scopes = {"POM_5V_IN": "carrier"}
    got = read(log(tmp_path, NANO), interval_s=1, scope_of=lambda label: scopes.get(label, "rail"))
    of = {c.name: c.scope for c in got.channels}
    assert of["pom_5v_in_power_w"] == "carrier"
    assert of["pom_5v_gpu_power_w"] == "rail"
    assert of["temperature_cpu_c"] == "thermal_zone"


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 12])
def test_a_gzipped_log_even_without_its_end(tmp_path, lost):
    path = tmp_path / "run.log.gz"
    data = gzip.compress(("\n".join([NANO] * 3000) + "\n").encode())
    path.write_bytes(data[: len(data) - lost])
    got = read(path, interval_s=1)
    assert len(times(got)) > (2999 if not lost else 1)


def test_other_programs_output_is_left_out_and_told(tmp_path):
    got = read(log(tmp_path, "sudo: unable to resolve host nano", NANO, "\0\0\xff", NANO), interval_s=1)
    assert len(times(got)) == 2
    assert got.remarks == ("2 lines are not of tegrastats and were left out",)


def test_half_a_number_at_a_cut_is_no_number(tmp_path):
    cut = NANO[: NANO.index("122/122") + 5]  # ... POM_5V_GPU 122/1
    got = read(log(tmp_path, NANO, cut, NANO), interval_s=1)
    assert [v for n, _, v in got.rows if n == "pom_5v_gpu_power_since_start_w"] == [0.122, 0.122]
    assert len(times(got, "pom_5v_in_power_w")) == 3
    assert "1 lines were cut off" in got.remarks[0]
    unfinished = read(log(tmp_path, NANO, NANO[:-1], end=""), interval_s=1)  # ... POM_5V_CPU 163/16
    assert [v for n, _, v in unfinished.rows if n == "pom_5v_cpu_power_since_start_w"] == [0.163]


def test_half_a_name_at_the_head_is_no_name(tmp_path):
    headless = NANO[NANO.index("GPU@") + 1 :]  # PU@30.5C ...
    got = read(log(tmp_path, headless, NANO, NANO), interval_s=1)
    assert "temperature_pu_c" not in {c.name for c in got.channels}
    assert len(times(got, "temperature_ao_c")) == 3
    assert "1 lines were cut off" in got.remarks[0]


def test_an_item_that_is_not_known_is_told(tmp_path):
    got = read(log(tmp_path, NANO + " NVNEW 3/4"), interval_s=1)
    assert re.search(r"\b2 items .*'NVNEW'", got.remarks[0])


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "\x1f\x8b broken"])
def test_a_file_that_is_no_log(tmp_path, text):
    path = tmp_path / "x"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DeviceError, match="E-TEGRA-2"):
        read(path)
    with pytest.raises(DeviceError, match="E-TEGRA-2"):
        read(tmp_path / "none")


@pytest.mark.slow
def test_a_log_becomes_a_table_that_a_meter_log_can_be(tmp_path):
    path = log(tmp_path, *dated("10:00:00", "10:00:01", "10:00:02"))
    out = tmp_path / "run.csv"
    command = [sys.executable, "-m", "edgescope.wings.jetson.tegrastats_log", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    out.write_text(done.stdout)
    assert done.stdout.splitlines()[0].startswith("time_s,ram_used_bytes,")
    assert len(done.stdout.splitlines()) == 4
    assert "wall clock" in done.stderr
    found = meter_log.read(out, Dialect({"power": "vdd_in_power_w"}))
    assert list(found.t_s) == [0, 1, 2]
    assert list(found.watts) == [1, 1, 1]
    command[-1] = str(log(tmp_path, NANO))
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr[:9]) == (2, "E-TEGRA-1")


# -- the program ----------------------------------------------------------------------------------------------


def program(folder: Path, body: str) -> str:
    """A tegrastats that is a real process; `$2` is the interval in ms."""
    path = folder / "tegrastats"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def steady(folder: Path, line: str = THOR) -> str:
    return program(folder, f"while :; do echo '{line}'; sleep $(awk \"BEGIN{{print $2/1000}}\"); done")


def until(source, ready, limit_s=10.0):
    """Read until `ready(rows)`; return all rows."""
    rows, end = [], time.monotonic() + limit_s
    while time.monotonic() < end:
        rows += source.read()
        if ready(rows):
            return rows
        time.sleep(0.01)
    raise AssertionError(f"nothing like it came: {rows[-3:]}")


@pytest.mark.process
def test_each_line_is_read_once_with_its_time_of_arrival(tmp_path):
    before = time.monotonic_ns()
    source = TegrastatsSource(50, steady(tmp_path), {"VIN_SYS_5V0": "module"})
    scopes = {c.name: c.scope for c in source.channels()}
    assert scopes["vin_sys_5v0_power_w"] == "module"
    assert scopes["vdd_gpu_power_w"] == "rail"
    rows = until(source, lambda rows: sum(n == "vdd_gpu_power_w" for n, _, _ in rows) >= 4)
    source.close()
    stamps = [t for n, t, _ in rows if n == "vdd_gpu_power_w"]
    assert stamps == sorted(set(stamps))
    assert before < stamps[0] < time.monotonic_ns()
    assert all(v == 4.925 for n, _, v in rows if n == "vdd_gpu_power_w")
    assert all(v > 0 for n, _, v in rows if n == RATE)
    assert all(v == 0.0 for n, _, v in rows if n == UNREAD)


@pytest.mark.process
def test_a_rail_that_begins_below_zero_is_there_for_the_whole_run(tmp_path):
    """VDD_GPU of -392 mW is from a public line of an idle Thor."""
    lines = "echo 'RAM 1/2MB VDD_GPU {0}mW/{0}mW VIN 15004mW/15096mW'; sleep 0.05; "
    body = "".join(lines.format(mw) for mw in (-392, -196, 3000)) + "exec sleep 60"
    source = TegrastatsSource(20, program(tmp_path, body))
    rows = until(source, lambda rows: sum(n == "vdd_gpu_power_w" for n, _, _ in rows) >= 3)
    source.close()
    assert [v for n, _, v in rows if n == "vdd_gpu_power_w"] == [-0.392, -0.196, 3.0]
    assert all(v == 0.0 for n, _, v in rows if n == UNREAD)


@pytest.mark.process
def test_two_lines_that_wait_for_the_first_look_have_a_rate(tmp_path):
    source = TegrastatsSource(
        20, program(tmp_path, f"echo '{NANO}'; sleep 0.1; echo '{NANO}'; exec sleep 60")
    )
    end = time.monotonic() + 10
    while len(source._lines) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    got = [v for n, _, v in source.read() if n == RATE]
    source.close()
    assert len(got) == 1 and got[0] > 0


def test_without_the_program_the_reason_is_told(tmp_path):
    source = TegrastatsSource(program=str(tmp_path / "none"))
    rows = source.read()
    assert {n for n, _, _ in rows} == {c.name for c in source.channels()} == {RATE, UNREAD}
    assert all(isinstance(v, Unsupported) and "no tegrastats in PATH" in v.reason for _, _, v in rows)


@pytest.mark.process
def test_killed_in_mid_run_it_is_failed_and_never_a_raise(tmp_path):
    source = TegrastatsSource(20, steady(tmp_path))
    os.kill(source._process.pid, signal.SIGKILL)
    rows = until(source, lambda rows: any(isinstance(v, Failed) for _, _, v in rows))
    failed = {n: v.reason for n, _, v in rows if isinstance(v, Failed)}
    assert set(failed) == {c.name for c in source.channels()}
    assert all("killed by signal 9" in reason for reason in failed.values())
    assert source.read()


@pytest.mark.process
def test_what_it_says_instead_of_a_line_is_passed_on(tmp_path):
    source = TegrastatsSource(20, program(tmp_path, "echo 'tegrastats: cannot open /dev/x' >&2; exit 3"))
    (reason,) = {v.reason for _, _, v in source.read()}
    assert "exit code 3" in reason
    assert "cannot open /dev/x" in reason


@pytest.mark.process
def test_silence_is_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(tegrastats, "_PATIENCE_S", 0.2)
    source = TegrastatsSource(20, program(tmp_path, f"echo '{NANO}'; exec sleep 60"))
    rows = until(source, lambda rows: isinstance(rows[-1][2], Failed) if rows else False)
    assert "printed nothing for" in rows[-1][2].reason
    source.close()


@pytest.mark.process
def test_a_new_item_and_a_missing_one_are_told(tmp_path):
    source = TegrastatsSource(
        20, program(tmp_path, f"echo '{NANO}'; echo 'RAM 1/2MB NEW@3C what'; exec sleep 60")
    )
    rows = until(source, lambda rows: any(isinstance(v, Failed) for n, _, v in rows if n == UNREAD))
    source.close()
    assert any(isinstance(v, Failed) for n, _, v in rows if n == "pom_5v_in_power_w")
    assert {n for n, _, _ in rows} <= {c.name for c in source.channels()}
    assert "2 items were not read, such as 'what'" in rows[-1][2].reason


@pytest.mark.process
def test_it_ends_with_us_even_when_we_are_killed(tmp_path):
    code = (
        "import time\nfrom edgescope.wings.jetson.tegrastats import TegrastatsSource\n"
        f"s = TegrastatsSource(20, {steady(tmp_path)!r})\nprint(s._process.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as us:
        child = int(us.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        us.kill()
    end = time.monotonic() + 10
    while _alive(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.process
def test_in_the_sampler(tmp_path):
    spec = SourceSpec(
        "edgescope.wings.jetson.tegrastats:TegrastatsSource",
        {"interval_ms": 50, "program": steady(tmp_path, NANO)},
    )
    with Sampler([spec], 20, tmp_path) as sampler:
        time.sleep(0.6)
    t_ns, watts = sampler.readings().series("pom_5v_in_power_w")
    assert len(watts) >= 3
    assert set(watts) == {1.388}
    assert len(set(t_ns)) == len(t_ns)


# -- on a board whose sysfs shows no rail ---------------------------------------------------------------------


def second_source(root):
    return [s for s in JetsonDevice(root).sources(1) if s.target.endswith(":TegrastatsSource")]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A Nano whose power monitor cannot be read, and a tegrastats in PATH."""
    steady(tmp_path, NANO)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return board(tmp_path / "root", "nano")


@pytest.mark.process
def test_where_sysfs_shows_no_rail_the_program_is_asked_too(installed, tmp_path):
    (spec,) = second_source(installed)
    spec = json.loads(json.dumps(asdict(spec)))  # as it travels to the sampler
    source = TegrastatsSource(**spec["kwargs"] | {"interval_ms": 50})
    rows = until(source, lambda rows: any(n == RATE for n, _, _ in rows))
    source.close()
    assert dict((n, v) for n, _, v in rows)["tegrastats_pom_5v_in_power_w"] == 1.388
    scopes = {c.name: c.scope for c in source.channels()}
    assert scopes["tegrastats_pom_5v_in_power_w"] == "module"
    assert scopes["tegrastats_pom_5v_gpu_power_w"] == "rail"
    assert {n for n, _, _ in rows} == set(scopes)
    assert all(name.startswith("tegrastats_") for name in scopes)  # nothing that sysfs gives as well


def test_where_sysfs_shows_rails_or_there_is_no_program_it_is_not_asked(installed, monkeypatch):
    monitor = iio(installed, "6-0040", 0, {"POM_5V_IN": 4200})
    assert second_source(installed) == []
    (monitor / "in_power0_input").write_text("")
    assert len(second_source(installed)) == 1  # there, and not readable
    monkeypatch.setattr(tegrastats, "find", lambda program="": "")
    assert second_source(installed) == []


def test_a_recorded_board_is_never_asked_by_this_machines_program(installed, tmp_path):
    head = {"schema": 1, "board": "b", "made": "constructed", "about": "", "sources": {}}
    tree = {"path": "proc/device-tree/compatible", "text": "nvidia,p4071-0000+p3834-0008\0nvidia,tegra264\0"}
    path = tmp_path / "x.board.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (head, tree)))
    jetson = replay.devices(str(path))["jetson"]
    assert jetson.present() == ""
    assert jetson.sources(1) and not any("tegrastats" in s.kwargs["target"] for s in jetson.sources(1))


def test_the_example_in_the_page_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs/reference/boards.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    log(tmp_path, NANO, NANO, NANO).rename(tmp_path / "run.log")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert names["watts"] == [1.388, 1.388, 1.388]
    assert names["scope"] == "module"


def fields_of(line):
    return {field.channel: field.value for field in parse(line).fields}


@pytest.mark.parametrize(("unit", "bytes_"), [("B", 1), ("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)])
def test_an_amount_of_memory_is_in_its_unit(unit, bytes_):
    found = fields_of(f"RAM 3/7{unit} (lfb 5x4{unit})")
    assert 3 * bytes_ in found.values() and 4 * bytes_ in found.values()


@pytest.mark.parametrize(
    ("clocks", "one"), [("[600]", 6e8), ("[600,600]", 6e8), ("[600,300]", None), ("[600,600,300]", None)]
)
def test_clusters_have_one_clock_if_they_agree_and_each_its_own_if_there_are_several(clocks, one):
    found = fields_of(f"GR3D_FREQ 40%@{clocks}")
    assert found["gpu_busy"] == 0.4
    assert found["gpu_clock_hz"] == one if one else isinstance(found["gpu_clock_hz"], Unsupported)
    each = [float(text) * 1e6 for text in clocks.strip("[]").split(",")]
    names = [name for name in found if "_gpc" in name]
    assert [found[name] for name in names] == (each if len(each) > 1 else [])
    assert names == [f"gpu_gpc{i}_clock_hz" for i in range(len(names))]


@pytest.mark.parametrize(
    ("text", "celsius"),
    [("-199.9", -199.9), ("-200", None), ("-200.1", None), ("-256", None), ("0", 0.0), ("51.5", 51.5)],
)
def test_a_sensor_at_200_below_zero_is_off(text, celsius):
    (value,) = fields_of(f"tj@{text}C").values()
    assert value == celsius if celsius is not None else isinstance(value, Unsupported)


@pytest.mark.parametrize(
    ("item", "watts"), [("VDD_IN 5000mW/4000mW", 5.0), ("VDD_IN 5W/4W", 5.0), ("VDD_IN 5000/4000", 5.0)]
)
def test_a_rail_is_in_its_unit_or_in_milliwatts(item, watts):
    found = fields_of(item)
    assert (found["vdd_in_power_w"], found["vdd_in_power_since_start_w"]) == (watts, watts * 0.8)


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("VIC_FREQ 3%@4", {"vic0_busy": 0.03, "vic0_clock_hz": 4e6}),
        ("NVENC 729", {"nvenc0_clock_hz": 729e6}),
        ("NVDLA1 50%", {"dla1_busy": 0.5}),
        ("MSENC 5", {"nvenc0_clock_hz": 5e6}),
        ("EMC_FREQ 2%@1600", {"emc_busy": 0.02, "emc_clock_hz": 16e8}),
        ("PVA0_FREQ [3%,5%@7]", {"pva0_0_busy": 0.03, "pva0_1_busy": 0.05, "pva0_clock_hz": 7e6}),
    ],
)
def test_an_engine_has_a_share_and_a_clock(item, found):
    assert fields_of(item) == pytest.approx(found)


def test_a_log_is_printed_as_a_table_with_its_remarks(tmp_path, monkeypatch, capsys):
    from edgescope.wings.jetson import tegrastats_log

    log = tmp_path / "log"
    log.write_text("RAM 1/2MB CPU [5%@100,off]\nodd\nRAM 2/2MB CPU [7%@100,off]\n")
    monkeypatch.setattr(sys, "argv", ["it", str(log), "--interval", "0.5"])
    assert tegrastats_log.main() == 0
    out, err = capsys.readouterr()
    head, first, second = out.splitlines()
    assert head.split(",")[:3] == ["time_s", "ram_used_bytes", "ram_total_bytes"]
    assert first.split(",")[:3] == ["0.000", "1048576", "2097152"] and second.startswith("0.500,2097152,")
    assert "," * 2 in first  # the core that is off has no figure
    assert err.splitlines() == [
        "time: line number times 0.5 s, as given",
        "1 lines are not of tegrastats and were left out",
    ]
    monkeypatch.setattr(sys, "argv", ["it", str(log)])
    code = tegrastats_log.main()
    out, err = capsys.readouterr()
    assert (code, out, err[:9]) == (UsageError.exit_code, "", "E-TEGRA-1")


class Program:
    """A tegrastats that is none: what it has printed so far, and how it ended."""

    def __init__(self, code=None):
        self.code, self.did, self.late = code, [], False

    def poll(self):
        return self.code

    def terminate(self):
        self.did.append("terminate")

    def wait(self, seconds=None):
        self.did.append(("wait", seconds))
        if self.late and seconds is not None:
            raise subprocess.TimeoutExpired("it", seconds)

    def kill(self):
        self.did.append("kill")


@pytest.mark.parametrize("late", [False, True])
def test_a_program_that_does_not_end_is_killed(late):
    program = Program()
    program.late = late
    tegrastats._stop(program)
    assert program.did == ["terminate", ("wait", 1.0), *(["kill", ("wait", None)] if late else [])]


@pytest.fixture
def live(monkeypatch):
    """A source whose program printed these lines at these seconds; time passes by sleeping."""

    def made(*lines, code=None, interval_ms=1000):
        clock = SimpleNamespace(now=100.0)
        clock.monotonic = lambda: clock.now
        clock.monotonic_ns = lambda: round(clock.now * 1e9)
        clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
        program = Program(code)

        def start(source, path, interval):
            source._process = program
            source._thread = SimpleNamespace(join=lambda seconds: None)
            source._lines.extend((round(t * 1e9), text) for t, text in lines)
            source._learn()

        monkeypatch.setattr(tegrastats, "time", clock)
        monkeypatch.setattr(tegrastats, "find", lambda program: "/bin/it")
        monkeypatch.setattr(TegrastatsSource, "_start", start)
        return TegrastatsSource(interval_ms), clock, program

    return made


def test_the_rate_is_of_the_lines_that_came_since_the_last_look(live):
    source, clock, _ = live((100.0, "RAM 1/2MB"), (100.5, "RAM 2/2MB"))
    rows = {(name, t): value for name, t, value in source.read()}
    assert rows["ram_used_bytes", 100_500_000_000] == 2097152.0 and rows[RATE, 100_500_000_000] == 2.0
    assert [value for (name, _), value in rows.items() if name == UNREAD] == [0.0]
    clock.now = 102.0
    source._lines.extend([(101_000_000_000, "noise"), (101_500_000_000, "RAM 1/2MB ODD x")])
    rows = {name: value for name, _, value in source.read()}
    assert rows[RATE] == 1.0 and "'ODD'" in rows[UNREAD].reason and "2 items" in rows[UNREAD].reason


def test_a_program_is_silent_after_three_intervals_and_some(live):
    source, clock, _ = live((100.0, "RAM 1/2MB"))
    source.read()
    clock.now = 100.0 + 3 + tegrastats._PATIENCE_S - 0.001
    assert source.read() == []
    clock.now += 0.001
    assert {type(value) for _, _, value in source.read()} == {Failed}


@pytest.mark.parametrize(
    ("code", "says"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "killed by signal 9")],
)
def test_a_program_that_ended_is_told_with_its_last_words(live, code, says):
    source, _, program = live((100.0, "RAM 1/2MB"), (100.0, "no such option"))
    assert len(source.read()) == 3
    program.code = code
    reasons = {value.reason for _, _, value in source.read()}
    assert len(reasons) == 1 and says in (reason := reasons.pop()) and "no such option" in reason


def test_lines_that_a_program_left_behind_are_read_before_its_end_is_told(live):
    source, _, program = live((100.0, "RAM 1/2MB"))
    program.code = 0
    assert source.read()[0][2] == 1048576.0 and isinstance(source.read()[0][2], Failed)


def test_a_program_without_readings_is_waited_for_and_ended(live):
    source, clock, program = live((100.0, "usage: it"), interval_ms=500)
    assert clock.now == pytest.approx(100.0 + 0.5 + tegrastats._PATIENCE_S, abs=0.011)
    (reason,) = {value.reason for _, _, value in source.read()}
    assert "no line with readings; it said: 'usage: it'" in reason and program.did[0] == "terminate"


def test_a_value_before_a_loggers_time_is_a_value_however_short_its_name():
    found = parse("A@45C 2026-11-23 03:08:01 RAM 1/2MB")
    assert [(f.channel, f.value) for f in found.fields][:2] == [
        ("temperature_a_c", 45.0),
        ("ram_used_bytes", 1048576.0),
    ]
