"""Alarms as lines of JSON: each on the disk at once, whole, after a kill and a full disk too."""

import json
import os
import signal
import subprocess
import sys

import pytest

from edgescope.wings.video.alarm import Alarm
from edgescope.wings.video.sinks import Event, Log


def event(number, *, over=False, at=None):
    return Event(f"s-{number}", "film", Alarm(number, 2, 1.0, 2.0, 3.0, 0.91234567, 2.5, over=over), at, 0.25)


def test_a_line_for_each_event(tmp_path):
    log = Log(tmp_path / "new" / "alarms.jsonl")
    log.told(event(1, at=0.0))
    log.told(event(1, over=True))
    raised, ended = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert raised == {
        "event": "alarm_raised",
        "id": "s-1",
        "source": "film",
        "camera": 2,
        "start_s": 1.0,
        "raised_s": 2.0,
        "end_s": None,
        "at": "1970-01-01T00:00:00.000+00:00",
        "delay_s": 1.25,
        "peak": 0.9123,
        "peak_s": 2.5,
    }
    assert (ended["event"], ended["end_s"], ended["at"]) == ("alarm_ended", 3.0, None)


def test_a_line_that_was_cut_short_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "alarms.jsonl"
    path.write_text('{"event": "alarm_raised"}\n{"event": "alarm_ra')
    Log(path).told(event(7))
    lines = path.read_text().splitlines()
    assert len(lines) == 3 and json.loads(lines[2])["id"] == "s-7"


KILLED = """
import sys
from pathlib import Path
from edgescope.wings.video.alarm import Alarm
from edgescope.wings.video.sinks import Event
from edgescope.wings.video.sinks import Log
log, number = Log(Path(sys.argv[1])), 0
while True:
    log.told(Event(f"s-{number}", "film", Alarm(number, 0, 1.0, 2.0, 3.0, 0.9, 2.0)))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.slow
def test_every_event_that_a_killed_process_wrote_is_there(tmp_path):
    path = tmp_path / "alarms.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        while int(process.stdout.readline()) < 50:
            pass
        os.kill(process.pid, signal.SIGKILL)
        last = max(map(int, process.stdout.read().split()), default=50)
    found = [json.loads(line)["id"] for line in path.read_text().splitlines()]
    assert found[: last + 1] == [f"s-{n}" for n in range(last + 1)]


FULL = """
import resource, signal, sys
from pathlib import Path
from edgescope.wings.video.alarm import Alarm
from edgescope.wings.video.sinks import Event
from edgescope.wings.video.sinks import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = Log(Path(sys.argv[1]))
alarm = Alarm(1, 0, 1.0, 2.0, 3.0, 0.9, 2.0)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
log.told(Event("a", "film", alarm))
resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 40, hard))
log.told(Event("b", "film", alarm))
assert log.facts()["failed"] == 1 and log.facts()["problem"], log.facts()
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
log.told(Event("c", "film", alarm))
"""


@pytest.mark.slow
def test_a_full_disk_costs_that_line_only(tmp_path):
    path = tmp_path / "alarms.jsonl"
    subprocess.run([sys.executable, "-c", FULL, str(path)], check=True, timeout=60)
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["a", "c"]
