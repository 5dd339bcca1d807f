"""The whole kit: on a board of files, over ssh, on recorded boards; stopped, killed, out of time; nobody is named."""

import json
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import kit_board
import pytest

from edgescope.cli.main import main
from edgescope.modes import enter
from edgescope.wings.remote.lends import parse
from edgescope.wings.verify_board import board_file, verb
from edgescope.wings.verify_board.check import Check, Status
from edgescope.wings.verify_board.checks import settings
from edgescope.wings.verify_board.site import Here, OnBoard, Said

LIVE = "live"
"""The file of the board that says in which mode it is."""


@pytest.fixture
def kit(tmp_path, monkeypatch):
    """A board of files that the kit takes for its own; returns its root."""
    root = kit_board.board(tmp_path)
    for key, value in kit_board.environment(tmp_path, root).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(enter, "_JOURNALS", {})
    return root


def check(name, target, limit_s=20.0, **given):
    return Check(name, f"path of {name}", limit_s, target, given)


def command(folder, only):
    return [sys.executable, "-m", "edgescope", "verify-board", "-o", str(folder / "b.json"), "--checks", only]


def slow_down(root, line, by):
    """Have the board's nvpmodel wait where it comes to a line."""
    program = root / "usr/sbin/nvpmodel"
    assert line in program.read_text()
    program.write_text(program.read_text().replace(line, by))


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.slow
def test_the_kit_verifies_a_board_puts_its_modes_back_and_names_nobody(kit, tmp_path, capsys):
    output = tmp_path / "b.json"
    only = "rails_sum,modes,mode_killed,agent"
    code = main(["verify-board", "-o", str(output), "--checks", only])
    found = board_file.read(output)
    assert {v.check.name: v.outcome.status for v in found.checks} == {
        name: Status.HOLDS for name in ("board", "rails_sum", "agent", "modes", "mode_killed")
    }, [v.outcome.says for v in found.checks]
    assert code == 0
    assert (kit / LIVE).read_text().strip() == "1"
    calls = (kit / "calls").read_text()
    assert "nvpmodel -m 0" in calls and "nvpmodel -m 2" in calls and "nvpmodel -m 3" not in calls
    text = output.read_text() + capsys.readouterr().out
    assert not [secret for secret in kit_board.SECRETS if secret in text]
    assert found.left == () and found.board.startswith("Jetson Orin Nano 8GB")
    modes = next(v for v in found.checks if v.check.name == "modes").outcome.evidence
    assert modes["before"] == modes["after"] and "needs a reboot" in str(modes["7W"])


@pytest.mark.slow
def test_killed_with_sigkill_in_a_mode_the_keeper_puts_it_back(kit, tmp_path):
    """The kit itself is killed while a check holds a mode; nothing of edgescope is started afterwards."""
    slow_down(kit, "id=$(cat live)\n", 'id=$(cat live); [ "$id" = 0 ] && sleep 2\n')
    child = subprocess.Popen(command(tmp_path, "modes"), stderr=subprocess.DEVNULL)
    assert until(lambda: (kit / LIVE).read_text().strip() == "0", 60)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert until(lambda: (kit / LIVE).read_text().strip() == "1" and not enter.left_behind())
    assert not (tmp_path / "b.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit_s", "budget_s", "status"), [(6.0, 1200.0, Status.FAILS), (60.0, 10.0, Status.NOT_RUN)]
)
def test_a_check_that_hangs_is_stopped_and_what_it_set_is_put_back(
    kit, monkeypatch, limit_s, budget_s, status
):
    """At its own limit, and where the kit's time is up before."""
    table = [check("board", "rails:board"), check("mode_killed", "settings:killed", limit_s)]
    monkeypatch.setattr(verb, "chosen", lambda only: table)
    slow_down(kit, "id=$2\n", 'id=$2; [ "$id" = 1 ] || sleep 60\n')
    found = verb.verify_board(budget_s=budget_s)
    assert found.checks[1].outcome.status is status and found.seconds < 30
    assert found.restored and found.left == () and (kit / LIVE).read_text().strip() == "1"


@pytest.mark.process
def test_what_does_not_fit_the_time_is_not_run_and_a_process_that_dies_does_not_hold(kit, monkeypatch):
    told = []
    found = verb.verify_board(only=("rails",), budget_s=-1, tell=lambda c, o: told.append((c.name, o)))
    assert [v.outcome.status for v in found.checks] == [Status.NOT_RUN] * 2
    assert [name for name, outcome in told if outcome is None] == ["board", "rails"]
    table = [check("board", "rails:board"), check("no_such_check", "rails:none")]
    monkeypatch.setattr(verb, "chosen", lambda only: table)
    died = verb.verify_board().checks[1].outcome
    assert died.status is Status.FAILS and died.says


@pytest.mark.slow
def test_on_a_recorded_board_what_is_recorded_is_verified_and_counts_as_a_recording(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_BOARD", "orin_nano")
    found = verb.verify_board(only=("rails_sum", "modes"))
    by = {v.check.name: v.outcome for v in found.checks}
    assert found.reached == "recording" and "RECORDING" in found.board
    assert by["board"].status is by["rails_sum"].status is Status.HOLDS
    assert by["modes"].status is Status.UNSUPPORTED


def test_the_checks_are_listed(capsys):
    assert main(["verify-board", "--list"]) == 0
    assert "rails_tegrastats" in capsys.readouterr().out


@pytest.mark.slow
def test_over_ssh_the_board_is_verified_and_neither_it_nor_its_address_is_named(
    behind, tmp_path, monkeypatch
):
    if shutil.which("ssh") is None:
        pytest.skip("no ssh client on PATH")
    server_of = pytest.importorskip("ssh_server", reason="asyncssh is not installed").Server
    from edgescope.wings.remote import address

    board, keys = behind(), tmp_path / "keys"
    keys.mkdir()
    with server_of(keys, board.environment) as server:
        monkeypatch.setenv(address.SSH, server.client())
        url = f"ssh://kowalska@127.0.0.1:{server.port}?python={sys.executable}"
        output = tmp_path / "b.json"
        code = main(["verify-board", "--on", url, "-o", str(output), "--checks", "rails,agent,modes"])
        found = board_file.read(output)
        by = {v.check.name: v.outcome for v in found.checks}
        assert code == 0 and found.reached == "ssh"
        assert [by[n].status for n in ("board", "rails", "agent")] == [Status.HOLDS] * 3, by
        assert by["modes"].status is Status.UNSUPPORTED
        text = output.read_text()
        assert "kowalska" not in text and str(server.port) not in json.dumps(found.board)
        assert "1420000001234" not in text and "127.0.0.1" not in text
    assert until(lambda: not board.alive(), 5)


def test_a_board_over_ssh_says_what_names_it_its_owner_and_the_way_there():
    lines = [
        "/etc/passwd:root:x:0:0::/root:/bin/sh",
        "/etc/passwd:anna_k:x:1000:1000:Anna Kowalska,,,:/home/anna_k:/bin/bash",
        "/sys/class/net/eth0/address:48:b0:2d:5e:77:1a",
        "/home/bo bo.l 192.168.7.9 50122 10.13.37.42 22",
    ]
    site = object.__new__(OnBoard)
    facts = {"files": {"proc/device-tree/serial-number": "1423919087654"}}
    wire = SimpleNamespace(address=parse("ssh://carl@annas-robot-7:2222"))
    site.board = SimpleNamespace(tree=SimpleNamespace(reported=facts), wire=wire)
    site.run = lambda argv, limit_s, sent=(): Said(0, tuple(enumerate(lines)), 0.1)
    found = site.names().words
    told = {
        **dict.fromkeys(("anna_k", "Anna Kowalska", "bo", "bo.l", "carl"), "user"),
        **dict.fromkeys(("48:b0:2d:5e:77:1a", "192.168.7.9", "10.13.37.42"), "address"),
        **{"annas-robot-7": "host", "1423919087654": "serial"},
    }
    assert told.items() <= found.items()


@pytest.mark.process
def test_a_mode_that_leaves_something_changed_does_not_hold(kit):
    left = "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq"
    slow_down(kit, "[ -e half ] && exit 0\n", f'echo "$id" > {left}\n')
    found = settings.modes(Here(kit))
    assert found.status is Status.FAILS
    assert found.evidence["before"] != found.evidence["after"] and "15W" in found.says


@pytest.mark.process
def test_a_board_that_cannot_be_reached_is_an_error_and_no_file(tmp_path, monkeypatch, capsys):
    if shutil.which("ssh") is None:
        pytest.skip("no ssh client on PATH")
    output = tmp_path / "b.json"
    assert main(["verify-board", "--on", "ssh://nobody@127.0.0.1:1", "-o", str(output)]) == 3
    assert "E-SSH-3" in capsys.readouterr().err and not output.exists()
