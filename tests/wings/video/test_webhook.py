"""No event is lost: by a server that is down, that answers badly, or by a process that is killed."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from edgescope.errors import UsageError
from edgescope.wings.video.alarm import Alarm
from edgescope.wings.video.sinks import Event, Webhook
from hook_server import Hook


def event(number: int, *, over=False) -> Event:
    return Event(f"s-{number}", "film", Alarm(number, 0, 1.0, 2.0, 3.0, 0.9, 2.0, over=over), 1e9, 0.1)


def until(met, seconds=8.0):
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def hook():
    hook = Hook()
    yield hook
    hook.down()


@pytest.fixture
def webhook(hook, tmp_path):
    webhook = Webhook(hook.url, tmp_path / "spool", first_s=0.02, timeout_s=2.0)
    yield webhook
    webhook.close(wait_s=0.5)


def ids(hook) -> list[str]:
    return [row["id"] for row in hook.received]


def test_events_arrive_in_order_and_leave_the_spool(hook, webhook, tmp_path):
    for number in range(5):
        webhook.told(event(number))
    webhook.told(event(4, over=True))
    until(lambda: len(hook.received) == 6)
    assert ids(hook) == ["s-0", "s-1", "s-2", "s-3", "s-4", "s-4"]
    assert [row["event"] for row in hook.received][-2:] == ["alarm_raised", "alarm_ended"]
    until(lambda: webhook.facts()["waiting"] == 0)
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["refused"]


def test_a_server_that_goes_down_and_comes_back_gets_every_event(hook, webhook):
    webhook.told(event(0))
    until(lambda: len(hook.received) == 1)
    hook.down()
    for number in range(1, 4):
        webhook.told(event(number))
    until(lambda: webhook.tries >= 4)
    assert webhook.facts()["waiting"] == 3 and "refused" in str(webhook.facts()["problem"])
    hook.up()
    until(lambda: len(hook.received) == 4)
    assert ids(hook) == ["s-0", "s-1", "s-2", "s-3"]


@pytest.mark.parametrize("answers", [[500, 503, 429], [0, 0]])
def test_an_answer_that_may_change_is_tried_again(hook, webhook, answers):
    hook.answers = list(answers)
    webhook.told(event(1))
    until(lambda: ids(hook) == ["s-1"])
    assert webhook.tries == len(answers) + 1


@pytest.mark.parametrize("status", [400, 404, 302])
def test_an_answer_that_will_not_change_is_put_aside_and_holds_nothing_up(hook, webhook, tmp_path, status):
    hook.answers = [status]
    webhook.told(event(1))
    webhook.told(event(2))
    until(lambda: ids(hook) == ["s-2"])
    assert webhook.facts()["refused"] == 1 and str(status) in str(webhook.facts()["problem"])
    (kept,) = (tmp_path / "spool" / "refused").iterdir()
    assert json.loads(kept.read_text())["id"] == "s-1"


def test_an_event_that_cannot_be_put_aside_stays_and_says_so(hook, webhook, tmp_path):
    aside = tmp_path / "spool" / "refused"
    aside.rmdir()
    aside.write_text("a file where the folder was")
    hook.answers = [404] * 3
    webhook.told(event(1))
    until(lambda: "cannot be put aside" in str(webhook.facts()["problem"]))
    assert webhook.facts()["refused"] == 0
    until(lambda: ids(hook) == ["s-1"])  # once the server takes it


KILLED = """
import sys, time
from pathlib import Path
from edgescope.wings.video.alarm import Alarm
from edgescope.wings.video.sinks import Event
from edgescope.wings.video.sinks import Webhook
webhook = Webhook(sys.argv[1], Path(sys.argv[2]), first_s=30.0)
number = 0
while True:
    webhook.told(Event(f"k-{number}", "film", Alarm(number, 0, 1.0, 2.0, 3.0, 0.9, 2.0)))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.process
def test_what_a_killed_process_was_told_the_next_one_sends(hook, tmp_path):
    hook.down()
    command = [sys.executable, "-c", KILLED, hook.url, str(tmp_path / "spool")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = [int(process.stdout.readline()) for _ in range(40)]
        os.kill(process.pid, signal.SIGKILL)
        told += [int(line) for line in process.stdout.read().split()]
    hook.up()
    webhook = Webhook(hook.url, tmp_path / "spool", first_s=0.02)
    until(lambda: webhook.facts()["waiting"] == 0)
    webhook.close()
    arrived = ids(hook)
    assert arrived[: len(told)] == [f"k-{number}" for number in told]
    assert len(arrived) <= len(told) + 1  # one may have been on the disk and not yet printed


FULL = """
import resource, signal, sys, time
from pathlib import Path
from edgescope.wings.video.alarm import Alarm
from edgescope.wings.video.sinks import Event
from edgescope.wings.video.sinks import Webhook
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
webhook = Webhook(sys.argv[1], Path(sys.argv[2]), first_s=0.02)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
webhook.told(Event("f-0", "film", Alarm(0, 0, 1.0, 2.0, 3.0, 0.9, 2.0)))
time.sleep(0.2)
assert webhook.facts()["waiting"] == 1 and webhook.facts()["problem"], webhook.facts()
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
end = time.monotonic() + 5
while webhook.facts()["waiting"] and time.monotonic() < end:
    time.sleep(0.01)
webhook.close()
"""


@pytest.mark.process
def test_an_event_that_the_disk_does_not_take_waits_in_memory(hook, tmp_path):
    """The kernel refuses every write, as on a full disk, until there is room again."""
    assert resource.RLIMIT_FSIZE
    subprocess.run([sys.executable, "-c", FULL, hook.url, str(tmp_path / "spool")], check=True, timeout=60)
    assert ids(hook) == ["f-0"]


@pytest.mark.parametrize("url", ["ftp://host/x", "host/x", "http://", "file:///etc/passwd"])
def test_what_is_no_address_is_refused(url, tmp_path):
    with pytest.raises(UsageError, match="E-WATCH-2"):
        Webhook(url, tmp_path)


def test_a_password_stays_out_of_reports(tmp_path):
    webhook = Webhook("http://user:secret@127.0.0.1:9/hook?token=secret", tmp_path, first_s=30.0)
    assert webhook.facts()["webhook"] == "http://127.0.0.1:9/hook"
    webhook.close(wait_s=0.5)
