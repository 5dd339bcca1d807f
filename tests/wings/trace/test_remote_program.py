"""Any program on a board: through an agent that is a child of this process, and over ssh."""

import shutil
import sys
from pathlib import Path

import pytest

from edgescope.analysis.kernels.account import account
from edgescope.errors import UsageError
from edgescope.remote.address import Address
from edgescope.remote.board import opened
from edgescope.wings.trace.program import on

RECORDED = Path(__file__).parents[2] / "recorded_traces"
HERE = Address("board", agent="started directly")
PROGRAM = """
import time
def decode():
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        sum(range(1000))
decode()
print("its own output")
raise SystemExit(3)
"""


@pytest.mark.slow
def test_the_sampler_goes_with_the_program_and_its_trace_comes_back(behind, capsys):
    one = behind()
    (one.home / "prog.py").write_text(PROGRAM)
    with opened(HERE, one.argv) as board:
        trace = on(board, [sys.executable, "prog.py"])  # in the home of the board's user
    assert "its own output" in capsys.readouterr().out
    assert trace.clock == "monotonic" and trace.source == "a program on ssh://board"
    assert [n.code for n in trace.notes] == ["W-PROF-13"]
    found = {n.name: n for n in account(trace).functions}
    decode = next(n for name, n in found.items() if name.startswith("decode"))
    assert 0.1e9 < decode.total_ns < 2e9
    begin, end = trace.spans.columns["start_ns"].min(), trace.spans.columns["end_ns"].max()
    inside = (trace.samples.t_ns >= begin) & (trace.samples.t_ns <= end)
    assert inside.any(), "the board's sensors are on the same clock"
    assert not list((one.home / "cache").rglob("left.tar"))


def test_nsys_is_taken_where_the_board_has_it(behind):
    one = behind()
    bin_, report = one.home / "bin", RECORDED / "nsys_2025_resnet50_h200.sqlite"
    bin_.mkdir()
    (bin_ / "nsys").write_text(
        f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {report} "$2.sqlite"\nshift 2\nexec "$@"\n'
    )
    (bin_ / "nsys").chmod(0o755)
    argv = [f"PATH={bin_}:/usr/bin:/bin" if w.startswith("PATH=") else w for w in one.argv]
    with opened(HERE, argv) as board:
        trace = on(board, ["true"], 2.0)
    assert trace.source.startswith("Nsight Systems") and trace.source.endswith("on ssh://board")
    assert {n.code for n in trace.notes} == {"I-PROF-6"} and len(account(trace).inferences) == 3


def test_a_program_that_is_not_there_is_named(behind):
    with opened(HERE, behind().argv) as board, pytest.raises(UsageError, match=r"E-PROF-8.*ssh://board"):
        on(board, ["no_such_program"])


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh client")
@pytest.mark.slow
def test_the_verb_over_ssh(tmp_path, behind, monkeypatch, capsys):
    server_of = pytest.importorskip("ssh_server").Server
    from edgescope.cli.main import main
    from edgescope.remote import address

    one = behind()
    (tmp_path / "keys").mkdir()
    with server_of(tmp_path / "keys", one.environment) as server:
        monkeypatch.setenv(address.SSH, server.client())
        url = f"ssh://user@127.0.0.1:{server.port}?python={sys.executable}"
        assert main(["trace", "--on", url, "--", sys.executable, "-c", "import time; time.sleep(0.2)"]) == 0
    assert "<module>" in capsys.readouterr().out
