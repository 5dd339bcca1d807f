"""Power modes of a board through its agent: entered, read back, and put back after a kill of either side.

The board is a folder (fake_jetson.py). Its nvpmodel is a real program, as are the agent and what keeps the way back.
"""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

import fake_jetson
import small_board
from edgescope.errors import EdgescopeError
from edgescope.records import Result, Status, Trial
from edgescope.wings.remote import run
from edgescope.wings.remote.address import Address
from edgescope.wings.remote.board import opened

HERE = Address("board", agent="started directly")


@pytest.fixture
def jetson(behind, tmp_path, monkeypatch):
    """An Orin Nano in mode 25W (1), whose nvpmodel.conf knows 15W, 25W, MAXN_SUPER and 7W, which needs a reboot."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    one = behind()
    fake_jetson.board(one.root)
    link = one.root / "etc/nvpmodel.conf"
    link.unlink()
    link.write_text((one.root / "etc/nvpmodel/board.conf").read_text())
    return one


def live(one):
    return int((one.root / "live").read_text().strip() or -1)  # it is empty while it is written


def journal(one):
    return one.home / "cache/edgescope-agent/modes/mode"


def restored(one, seconds=10.0):
    """Whether the board is in mode 1 again with nothing left to do, within some seconds."""
    until = time.monotonic() + seconds
    while (live(one) != 1 or journal(one).exists() or one.alive()) and time.monotonic() < until:
        time.sleep(0.02)
    return live(one) == 1 and not journal(one).exists() and not one.alive()


@pytest.mark.process
def test_a_mode_is_held_read_back_and_left(jetson):
    with opened(HERE, jetson.argv) as board:
        with board.in_mode("15W") as found:
            assert live(jetson) == 0
            assert journal(jetson).read_text() == "1"
            assert board.machine().state["jetson"]["power_mode"]["name"] == "15W"
        assert live(jetson) == 1
        assert found["asked"] == "15W"
        assert "says 0" in found["evidence"]
        assert found["features"]["gpu_hz"] == 612000000.0
        with board.in_mode("25W") as found:  # the present one: nothing is changed
            assert (live(jetson), journal(jetson).exists()) == (1, False)
    assert restored(jetson)


@pytest.mark.process
def test_a_trial_is_measured_in_its_mode(jetson):
    options = {"threads": 1}
    keys = {"warmup": 0.02, "min_s": 0.2, "max_s": 0.3, "mode": "MAXN_SUPER", "options": options}
    with opened(HERE, jetson.argv) as board:
        trial = Trial(model="lenet5", backend="torch_eager", **keys)
        result = run.answer(Result.begun(trial, board.machine()), board)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert result.machine.state["jetson"]["power_mode"]["name"] == "MAXN_SUPER"
    assert "mode MAXN_SUPER: nvpmodel -q says 2" in result.effective.evidence
    assert result.machine.state["mode"]["asked"] == "MAXN_SUPER"
    assert restored(jetson)


@pytest.mark.process
@pytest.mark.parametrize("how", ["the agent is killed", "the host is killed", "an error"])
def test_the_mode_before_comes_back(jetson, how):
    class Stop(Exception):
        pass

    with pytest.raises((EdgescopeError, Stop)), opened(HERE, jetson.argv) as board, board.in_mode("15W"):
        assert live(jetson) == 0
        if how == "an error":
            raise Stop
        if how == "the agent is killed":
            board.wire._process.kill()
        board.wire._process.end(0.0)
    assert restored(jetson)


@pytest.mark.slow
def test_random_kills_leave_no_mode_behind(jetson):
    """Killed at any moment of entering, holding and leaving: the mode before is back and nothing runs."""
    chance = random.Random(7)
    code = f"""
import sys
from edgescope.wings.remote.address import Address
from edgescope.wings.remote.board import opened
with opened(Address("board", agent="x"), {jetson.argv!r}) as board:
    while True:
        with board.in_mode("15W"):
            print("held", flush=True)
"""
    for _ in range(8):
        host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        host.stdout.readline()
        time.sleep(chance.random() * 0.3)
        agents = [int(line.split()[0]) for line in small_board.alive(jetson.mark) if "agent" in line]
        if agents and chance.random() < 0.5:
            os.kill(chance.choice(agents), signal.SIGKILL)
        host.kill()
        host.wait()
        host.stdout.close()
        assert restored(jetson)


@pytest.mark.process
def test_what_a_power_cut_left_is_put_back_by_the_next_agent(jetson):
    journal(jetson).parent.mkdir(parents=True)
    journal(jetson).write_text("1")
    (jetson.root / "live").write_text("0")
    with opened(HERE, jetson.argv) as board:
        assert board.wire.hello["restored"] == 1
        assert live(jetson) == 1
    assert restored(jetson)


@pytest.mark.process
def test_a_board_in_anothers_use_says_who_and_since_when(jetson):
    with opened(HERE, jetson.argv) as board, board.in_mode("15W"):
        with pytest.raises(EdgescopeError) as told, opened(HERE, jetson.argv) as other, other.in_mode("25W"):
            pass
        assert told.value.code == "E-MODE-3"
        assert f"agent {board.wire._process.pid}" in told.value.evidence or "since 20" in told.value.evidence
        assert live(jetson) == 0
    assert restored(jetson)


def spoil(jetson, how):
    program = jetson.root / "usr/sbin/nvpmodel"
    if how == "ignores":
        (jetson.root / "ignores").touch()
    if how == "no rights":
        program.write_text(
            program.read_text().replace("id=$2\n", "echo 'sudo: a password is required'; exit 1\n")
        )


@pytest.mark.process
@pytest.mark.parametrize(
    ("mode", "how", "code"),
    [
        ("7W", "", "E-MODE-2"),
        ("15W", "ignores", "E-MODE-2"),
        ("15W", "no rights", "E-MODE-4"),
        ("99W", "", "E-MODE-1"),
        ("cpus=0", "", "E-ON-2"),
    ],
)
def test_a_mode_that_cannot_be_entered_changes_nothing(jetson, mode, how, code):
    spoil(jetson, how)
    with pytest.raises(EdgescopeError) as told, opened(HERE, jetson.argv) as board, board.in_mode(mode):
        pytest.fail("it was entered")
    assert told.value.code == code
    assert restored(jetson)
