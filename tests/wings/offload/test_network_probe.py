"""What iperf3 and ping printed on a loopback, as a profile; generated output; what is refused; both programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import DeviceError, UnavailableError, UsageError
from edgescope.wings.offload import network
from edgescope.wings.offload.network import address, from_iperf3, from_ping, merged, profile, read_printed

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> str:
    return (DATA / name).read_text()


def test_recorded_runs_each_way_and_pings_make_a_profile():
    found = profile(read_printed([DATA / "iperf3_up.json", DATA / "iperf3_down.json"], DATA / "ping.txt"))
    assert len(found.up_samples_bps) == 3, "three seconds after the one omitted"
    assert found.up_bps == pytest.approx(200e6, rel=0.01), "iperf3 was told to send 200 Mbit/s"
    assert len(found.down_samples_bps) == 3 and found.down_bps == pytest.approx(13e9, rel=0.2)
    assert len(found.rtt_samples_s) == 20 and found.rtt_s == pytest.approx(0.04e-3, rel=0.1)
    assert max(found.rtt_samples_s) == 0.389e-3 and found.loss == 0
    assert found.source == "measured from vm to 127.0.0.1 at 2026-11-23T13:10:38+00:00"


def test_evidence_is_that_of_all_runs():
    parts = [from_iperf3(recorded("iperf3_bidir.json"), "b"), from_ping(recorded("ping.txt"), "p")]
    assert [len(parts[0][f"{way}_samples_bps"]) for way in ("up", "down")] == [2, 2]
    assert merged(parts)["evidence"] == [
        "iperf3: 33 segments sent again up",
        "iperf3: 10 segments sent again down",
        "ping: 0 of 20 lost",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("iperf3_udp.json", "a UDP run carries the requested rate"),
        ("iperf3_refused.json", "Connection refused"),
    ],
)
def test_what_iperf3_could_not_measure_is_refused(name, says):
    with pytest.raises(UsageError, match="E-NET-5") as caught:
        from_iperf3(recorded(name), name)
    assert says in str(caught.value) and "iperf3 -c HOST --json" in str(caught.value)


def test_the_servers_file_and_one_without_a_second_are_refused():
    said = json.loads(recorded("iperf3_up.json"))
    short = {**said, "intervals": []}
    with pytest.raises(UsageError, match="no intervals"):
        from_iperf3(json.dumps(short), "x")
    del said["start"]["connecting_to"]
    with pytest.raises(UsageError, match="the client knows"):
        from_iperf3(json.dumps(said), "x")


def test_pings_without_an_answer_are_refused():
    with pytest.raises(UsageError, match="E-NET-5") as caught:
        from_ping(recorded("ping_unreachable.txt"), "p")
    assert "100% packet loss" in str(caught.value)
    with pytest.raises(UsageError, match="it is empty"):
        from_ping("", "p")


def second(bps: float, seconds: float = 1.0, omitted: bool = False) -> dict[str, object]:
    return {"sum": {"bits_per_second": bps, "seconds": seconds, "omitted": omitted}}


def run(intervals: list[dict[str, object]], reverse: int, mean: float = 5e5) -> str:
    said = json.loads(recorded("iperf3_up.json"))
    said["intervals"] = intervals
    said["start"]["test_start"]["reverse"] = reverse
    said["end"]["sum_received"]["bits_per_second"] = mean
    return json.dumps(said)


RATES = st.lists(st.floats(100, 1e12), min_size=1, max_size=8)


@given(RATES, st.lists(st.floats(1, 1e12), max_size=3), st.integers(0, 1), st.floats(0, 0.4))
@pytest.mark.slow
def test_each_whole_second_that_counts_is_a_sample(rates, omitted, reverse, rest):
    rows = [second(r, omitted=True) for r in omitted] + [second(r) for r in rates] + [second(1.0, rest)]
    keys = from_iperf3(run(rows, reverse), "x")
    mine, other = ("down", "up") if reverse else ("up", "down")
    assert keys[f"{mine}_samples_bps"] == rates and f"{other}_samples_bps" not in keys


@given(RATES)
@pytest.mark.slow
def test_a_second_in_which_nothing_came_leaves_the_mean(rates):
    assert from_iperf3(run([second(0), *map(second, rates)], 0), "x")["up_samples_bps"] == [5e5]


LINES = {
    "iputils": "64 bytes from a (10.0.0.7): icmp_seq={i} ttl=64 time={ms:.3f} ms",
    "dated": "[1795439434.123456] 64 bytes from 10.0.0.7: icmp_seq={i} ttl=64 time={ms:.3f} ms",
    "busybox": "64 bytes from 10.0.0.7: seq={i} ttl=64 time={ms:.3f} ms",
    "windows": "Reply from 10.0.0.7: bytes=32 time={ms:.0f}ms TTL=64",
}


@given(
    st.lists(st.floats(0, 9999), min_size=1, max_size=30), st.sampled_from(sorted(LINES)), st.integers(0, 5)
)
@pytest.mark.slow
def test_pings_of_every_kind_are_read_back(times, kind, lost):
    lines = [LINES[kind].format(i=i, ms=ms) for i, ms in enumerate(times)]
    again = [lines[0] + " (DUP!)", "From 10.0.0.1 icmp_seq=9 Destination Host Unreachable"]
    tail = f"{len(times) + lost} packets transmitted, {len(times)} received, 1% packet loss, time 99ms"
    found = from_ping("\n".join(["PING a (10.0.0.7) 56(84) bytes", *lines, *again, "", tail]), "p")
    digits = 0 if kind == "windows" else 3
    assert found["rtt_samples_s"] == pytest.approx([float(f"{ms:.{digits}f}") / 1e3 for ms in times])
    assert found["evidence"] == [f"ping: {lost} of {len(times) + lost} lost"] and found["peer"] == "a"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
)


@given(st.data())
@pytest.mark.slow
def test_a_damaged_file_ends_in_words(data):
    said = json.loads(recorded("iperf3_bidir.json"))
    node, keys = said, []
    while isinstance(node, dict | list) and node and (not keys or data.draw(st.booleans())):
        keys.append(data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))))
        parent, node = node, node[keys[-1]]
    parent[keys[-1]] = data.draw(JSON)
    try:
        profile(from_iperf3(json.dumps(said), "x") | {"rtt": "1ms"})
    except UsageError as error:
        assert error.code in ("E-NET-1", "E-NET-2", "E-NET-5")


@given(st.text())
def test_any_text_ends_in_words(text):
    for parse in (from_iperf3, from_ping):
        try:
            assert parse(text, "x")["evidence"]
        except UsageError as error:
            assert error.code == "E-NET-5"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="E-NET-5"):
        read_printed([], tmp_path / "gone.txt")
    assert read_printed([], None) == {}


@pytest.mark.parametrize(
    "text", ["", "host:", ":80", "host:0", "host:70000", "host:http", "-f", "a b", "[::1", "::1"]
)
def test_no_address(text):
    with pytest.raises(UsageError, match="E-NET-4"):
        address(text)


def test_addresses():
    assert address("nano:7077") == ("nano", 7077) and address("[::1]:80") == ("::1", 80)
    assert address("10.0.0.7") == ("10.0.0.7", 5201) and address("[fe80::1]") == ("fe80::1", 5201)


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put programs that are shell scripts, and no others, on the PATH."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


UP, DOWN, PINGS = (DATA / name for name in ("iperf3_up.json", "iperf3_down.json", "ping.txt"))
CAT = shutil.which("cat")


@pytest.mark.process
def test_a_probe_runs_both_programs_each_way(tmp_path, monkeypatch):
    iperf3 = f'case "$*" in *--reverse*) {CAT} {DOWN};; *"-c nano -p 99 --json"*) {CAT} {UP};; esac'
    programs(tmp_path, monkeypatch, ping=f"{CAT} {PINGS}", iperf3=iperf3)
    told: list[str] = []
    keys = network.probe("nano:99", told.append)
    found = profile(keys)
    assert len(found.rtt_samples_s) == 20 and found.up_bps < 1e9 < found.down_bps
    assert keys["peer"] == "nano:99" and len(keys["evidence"]) == 3 and len(told) == 3


@pytest.mark.process
def test_a_program_that_is_not_here_is_named_with_the_command_to_run(tmp_path, monkeypatch):
    programs(tmp_path, monkeypatch, ping=f"{CAT} {PINGS}")
    with pytest.raises(UnavailableError, match="E-NET-3") as caught:
        network.probe("nano")
    assert "apt-get install iperf3" in caught.value.fix and "--json" in caught.value.fix
    assert caught.value.what.startswith("iperf3 ") and caught.value.fix.endswith("to --iperf3")


FAILURES = {
    "no server": (f"{CAT} {DATA / 'iperf3_refused.json'}", "unable to connect to server: Connection refused"),
    "its own words": ("echo what >&2; exit 2", "what"),
    "silence": ("exec sleep 60", "took more than"),
}


@pytest.mark.process
@pytest.mark.parametrize("kind", FAILURES)
def test_a_program_that_fails_ends_in_its_words_and_in_time(kind, tmp_path, monkeypatch):
    script, says = FAILURES[kind]
    monkeypatch.setattr(network, "LIMIT_S", 1.0)
    sleep = shutil.which("sleep")
    programs(tmp_path, monkeypatch, ping=f"{CAT} {PINGS}", iperf3=script.replace("sleep", str(sleep)))
    start = time.monotonic()
    with pytest.raises(DeviceError, match="E-NET-6") as caught:
        network.probe("nano")
    assert says in str(caught.value) and "Nothing was written" in str(caught.value)
    assert time.monotonic() - start < 40


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("iperf3") or not shutil.which("ping"), reason="needs iperf3 and ping")
def test_the_installed_programs(monkeypatch):
    monkeypatch.setattr(network, "PINGS", 5)
    monkeypatch.setattr(network, "SECONDS", 2)
    server = subprocess.Popen(["iperf3", "-s", "-p", "52011"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        found = profile(network.probe("127.0.0.1:52011"))
    finally:
        server.kill()
        server.wait()
    assert len(found.rtt_samples_s) == 5 and min(found.up_bps, found.down_bps) > 1e8
