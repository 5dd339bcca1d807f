"""`edgescope anomaly watch` from the command line: films, live sources, signals, a terminal, real sinks."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from edgescope.cli.main import main
from films import film
from hook_server import Hook

pytestmark = pytest.mark.process

pytest.importorskip("av")
pytest.importorskip("torch")
SMALL = ["--features", "har_cnn3d", "--head", "light_head"]
ALWAYS = ["--alarm", "on=0,off=0"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A film of 80 frames, 3.2 s."""
    return film(tmp_path_factory.mktemp("film") / "film.mp4", 80, size=(96, 64))


@pytest.mark.slow
def test_a_film_is_watched_to_its_end_by_every_sink(clip, tmp_path, capsys):
    hook = Hook()
    sinks = ["--log", str(tmp_path / "a.jsonl"), "--clips", str(tmp_path / "clips"), "--webhook", hook.url]
    sinks += ["--spool", str(tmp_path / "spool"), "--output", str(tmp_path / "report.html")]
    assert main(["anomaly", "watch", str(clip), *SMALL, *ALWAYS, *sinks, "--json"]) == 0
    hook.down()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    scores = [row for row in rows if row["event"] == "score"]
    # har_cnn3d sees every second of 32 frames: two whole snippets and the tail
    assert [(row["start_s"], row["end_s"]) for row in scores] == [(0.0, 1.24), (1.28, 2.52), (1.92, 3.16)]
    assert [row["event"] for row in rows if row["event"] != "score"] == [
        "alarm_raised",
        "alarm_ended",
        "summary",
    ]
    summary = rows[-1]
    assert (summary["frames"], summary["snippets"], summary["alarms"], summary["live"]) == (80, 3, 1, False)
    logged = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["event"] for row in logged] == ["alarm_raised", "alarm_ended"] and logged == hook.received
    assert (logged[1]["start_s"], logged[1]["end_s"]) == (0.0, 3.16)
    (saved,) = (tmp_path / "clips").glob("*.mp4")
    page = (tmp_path / "report.html").read_text()
    assert saved.stem == logged[0]["id"] and saved.name in page and "1 alarm" in page


@pytest.mark.slow
def test_the_same_film_has_the_same_scores_again(clip, capsys):
    def scores():
        assert main(["anomaly", "watch", str(clip), *SMALL, "--json"]) == 0
        return [
            row["score"] for row in map(json.loads, capsys.readouterr().out.splitlines()) if "score" in row
        ]

    first = scores()
    assert first == scores() and len(first) == 3


@pytest.mark.slow
def test_a_summary_without_json_and_the_warning_of_an_untrained_head(clip, capsys):
    assert main(["anomaly", "watch", str(clip), *SMALL, *ALWAYS]) == 0
    said = capsys.readouterr()
    assert "1 alarm in 3 s of the stream" in said.out and "Clip" in said.out
    warned, opening, threshold, watching = said.err.replace("\n  ", " ").splitlines()
    assert "W-WATCH-1" in warned and "har_cnn3d" in opening and str(clip) in watching
    assert threshold == "alarm at a score of 0 (as given)"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nothing.mp4"], "E-VIDEO-3"),
        (["synthetic:64x48", "--alarm", "on=2x"], "E-ALARM-1"),
        (["synthetic:64x48", "--alarm", "on=2"], "E-ALARM-1"),
        (["synthetic:64x48", "--webhook", "host"], "E-WATCH-2"),
        (["synthetic:64x48", "--detector", "none.pt"], "E-ANOMALY-3"),
        (["synthetic:64x48", "--features", "mobilenet_v2"], "E-PIPE-2"),
        (["synthetic:64x48", "--workload-option", "views=3"], "E-PIPE-3"),
        (["synthetic:64x48", "--output", "report.exe"], "E-REPORT-1"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_watched_is_refused(words, code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = words if "--features" in words else [*words, *SMALL]
    assert main(["anomaly", "watch", *given]) != 0
    assert code in capsys.readouterr().err


def command(*words):
    return [sys.executable, "-m", "edgescope", "anomaly", "watch", *words]


def test_a_signal_ends_a_live_source_with_a_summary(tmp_path):
    words = ["synthetic:96x64@60", *SMALL, *ALWAYS, "--log", str(tmp_path / "a.jsonl"), "--json"]
    with subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        for line in process.stdout:
            if json.loads(line)["event"] == "alarm_raised":
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        rows = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.wait(60) == 0
    summary = rows[-1]
    assert summary["event"] == "summary" and summary["live"] and summary["frame_age_p50_s"] is not None
    assert summary["failed_units"] == 0 and rows[-2]["event"] == "alarm_ended"
    logged = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["event"] for row in logged] == ["alarm_raised", "alarm_ended"]
    assert logged[0]["at"].startswith("20") and logged[0]["delay_s"] > 0


@pytest.mark.slow
def test_an_alarm_that_a_killed_watcher_could_not_deliver_the_next_one_does(clip, tmp_path):
    hook = Hook()
    hook.down()
    words = [*SMALL, *ALWAYS, "--webhook", hook.url, "--spool", str(tmp_path / "spool"), "--json"]
    watcher = command("synthetic:96x64@60", *words)
    with subprocess.Popen(watcher, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        raised = next(row for row in map(json.loads, process.stdout) if row["event"] == "alarm_raised")
        os.kill(process.pid, signal.SIGKILL)
    hook.up()
    assert main(["anomaly", "watch", str(clip), *words]) == 0
    hook.down()
    assert [row["id"] for row in hook.received].index(raised["id"]) == 0
    assert {row["event"] for row in hook.received[1:]} == {"alarm_raised", "alarm_ended"}


@pytest.mark.slow
def test_a_terminal_is_drawn_on_and_q_ends_it():
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    words = command("synthetic:96x64@60", *SMALL, *ALWAYS)
    env = os.environ | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=subprocess.DEVNULL, env=env)
    os.close(slave)
    seen, end, asked = b"", time.monotonic() + 90, False
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    seen += os.read(master, 65536)
                except OSError:  # the other side has gone
                    break
            if not asked and b"and is on" in seen and b"age p50" in seen:
                os.write(master, b"q")
                asked = True
        assert process.wait(60) == 0
    finally:
        process.kill()  # one that hangs would take the time of every later test
        process.wait()
        os.close(master)
    text = seen.decode(errors="replace")
    assert asked and "\x1b[?1049l" in text  # the terminal is as it was
    assert "watching synthetic:96x64@60" in text and "ALARM" in text and "0.00" in text
    assert "1 alarm in" in text.split("\x1b[?1049l")[1]
