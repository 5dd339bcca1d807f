"""torch_eager over ssh: a real ssh server, the agent, and a PyTorch on its far side: the test's own or an old one.

The board is a folder; its PyTorch is real. Old ones are found by EDGESCOPE_TEST_TORCHES, a list of Pythons such as
`/venvs/torch1.10/bin/python:/venvs/torch2.0/bin/python`; without it those tests are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from edgescope import registry
from edgescope.cli.main import main
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.records import Measured, Result, Status, Trial
from edgescope.store.results import Store
from edgescope.wings.remote import address, eager, network, run
from edgescope.wings.remote.address import Address
from edgescope.wings.remote.board import opened

if shutil.which("ssh") is None:
    pytest.skip("no ssh client on PATH", allow_module_level=True)
pytest.importorskip("torch", reason="torch is not installed")
Server = pytest.importorskip(
    "ssh_server", reason="asyncssh is not installed (pip install -e '.[dev]')"
).Server

OLD = [path for path in os.environ.get("EDGESCOPE_TEST_TORCHES", "").split(":") if path]
NETWORK = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu_(self.norm(self.conv(x)))[:, :, 1:, ::2]
        return self.head(x.mean((2, 3)))


def net():
    return Net(), torch.zeros(1, 3, 16, 16)
"""


@pytest.fixture
def served(tmp_path, behind, monkeypatch):
    """Serve a board over ssh: served(python) -> (board, server, address)."""
    servers = []

    def serve(python=sys.executable):
        board = behind()
        (tmp_path / "keys").mkdir(exist_ok=True)
        server = Server(tmp_path / "keys", board.environment)
        servers.append(server.__enter__())
        monkeypatch.setenv(address.SSH, server.client())
        return board, server, f"ssh://user@127.0.0.1:{server.port}?python={python}"

    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(registry.ON, "")
    yield serve
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    return "mine:net"


def words(model, url, store, *more):
    usual = [
        "--backend",
        "torch_eager",
        "--duration",
        "500ms",
        "--warmup",
        "50ms",
        "--idle",
        "100ms",
        "--json",
    ]
    return ["bench", model, "--on", url, "--store", str(store), *usual, "--option", "threads=1", *more]


def ran(capsys, given):
    code = main(given)
    said = capsys.readouterr()
    assert code in (0, 1), said  # 1: a busy machine made the latency drift
    return json.loads(said.out)


@pytest.mark.process
def test_a_network_of_ones_own_in_the_torch_of_a_board(served, mine, tmp_path, capsys):
    _, _, url = served()
    told = ran(capsys, words(mine, url, tmp_path / "store"))
    assert told["status"] in ("ok", "unstable"), told["reason"]
    assert (told["driver"], told["effective"]["device"]) == ("agent", "cpu")
    assert told["effective"]["precision"] == "fp32"
    assert "2 fp32" in told["effective"]["evidence"]
    assert told["machine"]["stable"]["jetson"]["module"] == "p3767-0005"
    assert told["verification"]["passed"]
    program = told["artifact"]["program"]
    assert program["executable"] == sys.executable
    assert program["torch"] == __import__("torch").__version__
    assert "W-ON-1" in json.dumps(told["warnings"])
    result = Store(tmp_path / "store").full(next(iter(Store(tmp_path / "store").results())))
    assert len(result.queries) >= 10
    issued, done = (result.queries.columns[name] for name in ("issued_ns", "done_ns"))
    assert (issued[1:] >= done[:-1]).all()
    assert result.window.stop_ns - result.window.start_ns >= 450e6
    assert issued[result.window.first] >= result.window.start_ns
    t_ns, watts = result.readings.series("vdd_in_power_w")
    inside = (t_ns >= result.window.start_ns) & (t_ns <= result.window.stop_ns)
    assert inside.sum() >= 2
    assert watts[inside] == pytest.approx(4.92 * 1.01)
    assert isinstance(result.metrics["load_s"], Measured)
    assert result.metrics["peak_rss_bytes"].value > 50e6


@pytest.mark.process
@pytest.mark.parametrize("python", OLD or [""])
def test_old_torches_give_the_answers_of_the_new_one(served, mine, tmp_path, capsys, python):
    if not python:
        pytest.skip("EDGESCOPE_TEST_TORCHES names no Python with an old PyTorch")
    _, _, url = served(python)
    told = ran(capsys, words(mine, url, tmp_path / "store", "--batch", "3"))
    assert told["status"] in ("ok", "unstable"), told["reason"]
    assert told["verification"]["passed"]
    asked = [python, "-c", "import torch; print(torch.__version__)"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    assert told["artifact"]["program"]["torch"] == version != __import__("torch").__version__
    assert told["metrics"]["throughput_sps"]["value"] > 0


@pytest.mark.process
@pytest.mark.parametrize("python", [sys.executable, *OLD])
def test_processes_start_and_stop_together(served, mine, tmp_path, capsys, python):
    board, _, url = served(python)
    told = ran(capsys, words(mine, url, tmp_path / "store", "--processes", "3", "--duration", "2s"))
    assert told["status"] in ("ok", "unstable"), told["reason"]
    assert told["verification"]["passed"]
    result = Store(tmp_path / "store").full(next(iter(Store(tmp_path / "store").results())))
    window, columns = result.window, result.queries.columns
    assert len({w.pid for w in result.workers}) == 3
    assert {len(set(p[k] for p in told["artifact"]["programs"])) for k in ("torch", "stopped_by")} == {1}
    assert told["artifact"]["program"]["stopped_by"] == "the agreed stop"
    each = [
        (columns["issued_ns"][columns["worker"] == n], columns["done_ns"][columns["worker"] == n])
        for n in range(3)
    ]
    for issued, done in each:  # every process is at work from before the window to beyond it
        assert (issued < window.start_ns).any() and (done > window.stop_ns).any()
        assert ((done > window.start_ns) & (done <= window.stop_ns)).sum() >= 5
    assert 1.5e9 < window.stop_ns - window.start_ns <= 2.0e9
    rows = result.queries.rows(window)
    seconds = (window.stop_ns - window.start_ns) / 1e9
    assert result.metrics["throughput_sps"].value == pytest.approx(len(rows) / seconds, rel=0.02)
    t_ns, _ = result.readings.series("vdd_in_power_w")
    assert ((t_ns >= window.start_ns) & (t_ns <= window.stop_ns)).sum() >= 5
    assert not board.alive()


def test_an_old_torch_is_where_the_variable_says():
    for path in OLD:
        assert os.access(path, os.X_OK), f"EDGESCOPE_TEST_TORCHES names {path}, which does not run"


@pytest.mark.process
def test_a_board_without_torch(served, mine, capsys, tmp_path):
    """The PyTorch there does not load, as one for another CUDA does."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/torch.py").write_text("raise ImportError('libcudart.so.10.2: cannot open')")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/broken exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    _, _, url = served(python)
    assert main(["bench", mine, "--backend", "torch_eager", "--on", url]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "E-ON-3" in said
    assert "libcudart.so.10.2" in said


@pytest.mark.process
def test_a_board_whose_torch_sees_no_gpu(served, mine, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    _, _, url = served()
    assert main(["bench", mine, "--backend", "torch_eager", "--device", "cuda", "--on", url]) == 3
    assert "E-CUDA-1" in capsys.readouterr().err


@pytest.mark.process
def test_a_connection_that_breaks_while_it_measures(served, mine, monkeypatch):
    board, server, url = served()
    monkeypatch.setenv(registry.ON, url)

    def cut():
        until = time.monotonic() + 60
        while not any("torch_program.py" in line for line in board.alive()) and time.monotonic() < until:
            time.sleep(0.05)
        server.cut()

    threading.Thread(target=cut, daemon=True).start()
    trial = Trial(model="lenet5", backend="torch_eager", warmup=0.02, min_s=60.0, max_s=60.0)
    result = fresh.run(trial, Limits(timeout_s=60))
    assert (result.status, result.reason.code) == (Status.FAILED, "E-SSH-5"), result.reason
    until = time.monotonic() + 5
    while board.alive() and time.monotonic() < until:
        time.sleep(0.02)
    assert not board.alive()
    assert not list((board.home / "cache/edgescope-agent/files").glob("run-*"))


@pytest.fixture
def board(behind, tmp_path, monkeypatch):
    """A board without ssh: the agent is a child of this process."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    with opened(Address("board", agent="started directly"), behind().argv) as made:
        yield made


SHORT = {"model": "lenet5", "backend": "torch_eager", "warmup": 0.02, "min_s": 0.1, "max_s": 0.2}
SHORT["options"] = {"threads": 1}


def measured(board, **keys):
    return run.answer(Result.begun(Trial(**{**SHORT, **keys}), board.machine()), board)


@pytest.mark.slow
def test_wrong_answers_of_a_board_are_found(board, monkeypatch):
    write = network.write

    def spoilt(*given):
        notes = write(*given)
        data = bytearray(given[-1].read_bytes())
        data[-400:] = bytes(400)  # a part of the last layer
        given[-1].write_bytes(data)
        return notes

    monkeypatch.setattr(network, "write", spoilt)
    result = measured(board)
    assert result.status is Status.WRONG_OUTPUT, result.reason


@pytest.mark.slow
def test_the_gate_asks_once_and_times_stay_on_the_boards_clock(board, monkeypatch):
    starts = []
    on = eager.Start.on
    monkeypatch.setattr(eager.Start, "on", lambda self, *given: starts.append(self.doing) or on(self, *given))
    before = time.monotonic_ns()
    result = measured(board, batch=5, max_queries=9, max_s=60.0)
    assert [doing.split()[0] for doing in starts] == ["measure", "answer"]
    assert result.verification.passed
    window = result.window
    assert before < window.start_ns < window.stop_ns < time.monotonic_ns()
    assert window.stop - window.first == 9
    assert result.artifact["program"]["stopped_by"] == "all queries done"
    assert set(result.queries.columns["samples"]) == {5}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"in_flight": 2}, "E-ON-8"),
        ({"sharing": "pinned"}, "E-ON-8"),
        ({"colocated": "lenet5"}, "E-ON-8"),
        ({"workload": "video"}, "E-ON-10"),
        ({"precision": "int8"}, "E-PREC-1"),
        ({"options": {"graph": True}}, "E-OPT-1"),
    ],
)
def test_what_the_program_does_not_do_is_refused(board, keys, code):
    result = measured(board, **keys)
    assert (result.reason.code, result.queries) == (code, None)


@pytest.mark.slow
def test_a_program_that_fails_shows_what_it_printed(board, monkeypatch):
    monkeypatch.setattr(eager, "written", lambda arrays, path: path.write_bytes(b"") * [])
    reason = measured(board).reason
    assert reason.code == "E-ON-7"
    assert "IndexError" in reason.evidence
