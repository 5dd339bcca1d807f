"""Network profiles: what can be written, what is refused, what wins."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.wings.offload import network
from edgescope.wings.offload.network import (
    RATE,
    TIME,
    load,
    median,
    profile,
    read_bandwidth,
    read_share,
    read_time,
)


@given(st.floats(0.001, 50), st.sampled_from(sorted(TIME)))
def test_times_are_read_back(value, unit):
    assert read_time(f"{value:.6f}{unit}") == pytest.approx(float(f"{value:.6f}") * TIME[unit])


@given(
    st.floats(200, 1000),
    st.sampled_from(sorted(RATE)),
    st.sampled_from(["", "/s", "ps"]),
    st.sampled_from(["", " "]),
)
def test_bandwidths_are_read_back(value, unit, per, space):
    assert read_bandwidth(f"{value:.3f}{space}{unit}{per}") == pytest.approx(
        float(f"{value:.3f}") * RATE[unit]
    )


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        *(("200bit", 200), ("200b", 200), ("25B", 200), ("2kbit", 2e3), ("2kb", 2e3), ("2kB", 16e3)),
        *(("2Mbit", 2e6), ("2Mb/s", 2e6), ("2MBps", 16e6), ("2Gbit", 2e9), ("2Gb", 2e9), (" .5 GB/s ", 4e9)),
        *(("100bit", 100), ("10000Gbit", 1e13)),
    ],
)
def test_bits_and_bytes_a_second(text, bps):
    assert read_bandwidth(text) == bps


@pytest.mark.parametrize("text", ["99bit", "10001Gbit"])
def test_no_network_is_so_slow_or_so_fast(text):
    with pytest.raises(ValueError, match="outside"):
        read_bandwidth(text)


def test_sizes_times_and_shares_to_their_ends():
    assert [network.read_size(f"3{unit}") for unit in ("B", "kB", "MB", "GB", "KiB", "MiB")] == [
        *(3, 3e3, 3e6, 3e9, 3072, 3 * 1024**2)
    ]
    assert [read_time(text) for text in ("5us", "5ms", "60s", "0s")] == pytest.approx([5e-6, 5e-3, 60, 0])
    assert [read_share(text) for text in ("50%", "0.5", "0")] == [0.5, 0.5, 0.0]
    for read, text in ((read_time, "60.1s"), (read_share, "50.1%"), (network.read_size, "1001GB")):
        with pytest.raises(ValueError, match="outside"):
            read(text)


@pytest.mark.parametrize(("values", "middle"), [((3.0,), 3.0), ((4.0, 1.0), 2.5), ((9.0, 1.0, 2.0), 2.0)])
def test_the_median_of_even_and_odd_numbers(values, middle):
    assert median(values) == middle


@given(st.text(max_size=12))
def test_anything_else_is_a_value_error(text):
    for read in (read_time, read_bandwidth, read_share, network.read_size):
        try:
            assert math.isfinite(read(text))
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize("text", ["20", "20Mhz", "-1Mbit", "0bit", "1e3Mbit", "nan", "9999999Gbit", ""])
def test_no_bandwidth(text):
    with pytest.raises(ValueError):
        read_bandwidth(text)


def test_a_loss_is_a_share():
    assert read_share("0.5%") == pytest.approx(0.005) and read_share("0.02") == 0.02
    with pytest.raises(ValueError):
        read_share("60%")


def test_toml_as_a_person_writes_it(tmp_path):
    path = tmp_path / "home.toml"
    path.write_text('rtt = "20ms"\njitter = "2ms"\nuplink = "10Mbit"\ndownlink = "50Mbit"\nloss = "1%"\n')
    found = profile(load(path))
    assert (found.rtt_s, found.jitter_s, found.up_bps, found.down_bps, found.loss) == (
        0.02,
        0.002,
        1e7,
        5e7,
        0.01,
    )
    assert found.source == "given" and not found.loss_absent and not found.measured


def test_samples_stay_and_a_typed_round_trip_moves_them(tmp_path):
    path = tmp_path / "net.json"
    keys = {"rtt_samples_s": [0.010, 0.012, 0.030], "up_samples_bps": [1e6, 3e6], "down_samples_bps": [5e6]}
    path.write_text(
        json.dumps(keys | {"host": "a", "peer": "b", "measured_at": "now", "loss_absent": "TCP hides it"})
    )
    found = profile(load(path))
    assert found.rtt_s == 0.012 and found.up_bps == 2e6 and found.down_bps == 5e6
    assert found.source == "measured from a to b at now" and found.loss_absent == "TCP hides it"
    further = profile(load(path) | {"rtt": "40ms", "bandwidth": "8Mbit"})
    assert further.rtt_samples_s == pytest.approx((0.038, 0.040, 0.058))
    assert further.up_bps == further.down_bps == 8e6 and not further.up_samples_bps


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('rtt = "20ms"\nbandwith = "1Mbit"', "unknown keys bandwith"),
        ('rtt = "20"\nbandwidth = "1Mbit"', "rtt cannot be read"),
        ('{"rtt_samples_s": [0.1, "x"], "bandwidth": "1Mbit"}', "rtt_samples_s cannot be read"),
        ('{"rtt_samples_s": [-1], "bandwidth": "1Mbit"}', "rtt_samples_s cannot be read"),
        ('{"rtt_samples_s": [NaN], "bandwidth": "1Mbit"}', "rtt_samples_s cannot be read"),
        (
            '{"rtt_samples_s": [0.1], "jitter": "5ms", "bandwidth": "1Mbit"}',
            "jitter is given",
        ),
        ('bandwidth = "1Mbit"', "rtt is not known"),
        ('rtt = "20ms"', "uplink is not known"),
        ("{", "cannot be read"),
        ("rtt = ", "cannot be read"),
        ("\x00", "cannot be read"),
    ],
)
def test_a_bad_profile_is_refused_in_words(tmp_path, text, says):
    path = tmp_path / "net.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match="E-NET") as caught:
        profile(load(path))
    assert says in str(caught.value)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=20), st.floats(0, 10))
def test_moved_samples_keep_their_spread_and_are_never_negative(values, to):
    found = network.moved(tuple(values), to)
    assert min(found) >= 0
    if min(values) + to - median(tuple(values)) >= 0:
        assert median(found) == pytest.approx(to, abs=1e-9)
        assert max(found) - min(found) == pytest.approx(max(values) - min(values), abs=1e-9)
