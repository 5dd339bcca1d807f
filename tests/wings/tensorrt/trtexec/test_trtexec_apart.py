"""Logs that a person brought back: the command, the version and the moments in them; any text gives a run."""

from hypothesis import given
from hypothesis import strategies as st

from edgescope.wings.tensorrt.trtexec import apart

LOG = """&&&& RUNNING TensorRT.trtexec [TensorRT v100300] [b26] # /usr/bin/trtexec --loadEngine=a --warmUp=20
[11/29/2026-10:11:12] [I] Starting inference
a line without a time
[11/29/2026-10:11:15] [I] Timing trace has 40 queries over 3 s
&&&& PASSED TensorRT.trtexec [TensorRT v100300] [b26] # /usr/bin/trtexec --loadEngine=a --warmUp=20
"""


def test_a_log_tells_its_command_its_version_and_when_it_ran():
    ran = apart.played(LOG, 0)
    assert ran.passed
    assert apart.command_in(LOG) == "--loadEngine=a --warmUp=20"
    assert apart.version_in(LOG) == "10.3.0.26"
    assert ran.arrival("Timing trace") - ran.arrival("Starting inference") == 3_000_000_000
    assert ran.seconds == 3.0
    assert ran.lines[2][0] == ran.arrival("Starting inference")
    assert ran.peak_bytes is None


def test_a_run_that_ended_badly_did_not_pass_whatever_its_banner_says():
    assert not apart.played(LOG, 1).passed
    assert not apart.played(LOG.partition("&&&& PASSED")[0], 0).passed


@given(st.text(), st.integers(-20, 300))
def test_any_text_gives_a_run(text, code):
    ran = apart.played(text, code)
    assert ran.code == code
    assert ran.seconds >= 0
    assert isinstance(apart.command_in(text), str)


@given(st.lists(st.integers(0, 99), min_size=6, max_size=6))
def test_a_stamp_that_is_no_time_is_none(numbers):
    month, day, year, *clock = numbers
    line = f"[{month:02}/{day:02}/20{year:02}-" + ":".join(f"{n:02}" for n in clock) + "] [I] x"
    assert apart.played(line, 0).lines[0][0] >= 0
