"""The whole way: the OpenSSH client, a real ssh server on 127.0.0.1, the agent, a stand-in for trtexec, a Result.

The board is a folder (constructed) and the program no TensorRT; what is real is ssh, the agent, every byte between.
"""

import json
import re
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from edgescope import registry
from edgescope.cli.main import main
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.records import Measured, Status, Trial
from edgescope.store.results import Store
from edgescope.wings.remote import address

if shutil.which("ssh") is None:
    pytest.skip("no ssh client on PATH", allow_module_level=True)
Server = pytest.importorskip(
    "ssh_server", reason="asyncssh is not installed (pip install -e '.[dev]')"
).Server


@pytest.fixture
def served(tmp_path, behind, monkeypatch):
    """Serve a board over ssh: served(fault="") -> (board, server, address)."""
    servers = []

    def serve(**keys):
        board = behind(**keys)
        (tmp_path / "keys").mkdir(exist_ok=True)
        server = Server(tmp_path / "keys", board.environment)
        servers.append(server.__enter__())
        monkeypatch.setenv(address.SSH, server.client())
        return board, server, f"ssh://user@127.0.0.1:{server.port}?python={sys.executable}"

    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(registry.ON, "")
    yield serve
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """A small ONNX network, opset 13."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=(8, 3, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.normal(size=(8, 10)).astype(np.float32), "head"),
    ]
    steps = [
        ("Conv", ["x", "w"], "a"),
        ("Relu", ["a"], "b"),
        ("GlobalAveragePool", ["b"], "c"),
        ("Flatten", ["c"], "d"),
    ]
    nodes = [
        helper.make_node(kind, given, [made])
        for kind, given, made in [*steps, ("MatMul", ["d", "head"], "y")]
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, ["N", 3, 16, 16])],
        [value("y", TensorProto.FLOAT, ["N", 10])],
        weights,
    )
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


def gone(board, seconds=5.0):
    """Whether nothing runs on the board any more, within some seconds."""
    until = time.monotonic() + seconds
    while board.alive() and time.monotonic() < until:
        time.sleep(0.02)
    return not board.alive()


def old_python():
    """A Python as old as JetPack 4's where there is one, else this one."""
    for path in Path("~/.pyenv/versions").expanduser().glob("3.6.*/bin/python3.6"):
        return str(path)
    return sys.executable


@pytest.mark.process
def test_bench_on_a_board(served, network, tmp_path, capsys):
    board, server, url = served()
    url = f"{url.partition('=')[0]}={old_python()}"
    words = [
        "bench",
        str(network),
        "--backend",
        "trtexec",
        "--on",
        url,
        "--duration",
        "800ms",
        "--warmup",
        "20ms",
    ]
    words += ["--idle", "300ms", "--option", "gate_batch=32", "--store", str(tmp_path / "store"), "--json"]
    assert main(words) in (0, 1), capsys.readouterr()  # 1: a busy machine made the latency drift
    said = capsys.readouterr()
    assert "on NVIDIA Jetson Orin Nano Developer Kit" in said.err
    told = json.loads(said.out)
    assert told["status"] in ("ok", "unstable"), told["reason"]
    assert told["driver"] == "agent"
    assert told["machine"]["stable"]["jetson"]["module"] == "p3767-0005"
    assert told["verification"]["passed"]
    assert told["artifact"]["program"]["program"] == str(board.program)
    about = told["artifact"]["agent"]
    assert f"python{about['python'].rpartition('.')[0]}" in Path(old_python()).resolve().name
    assert 0 < about["offset_uncertainty_s"] < 1
    assert abs(about["offset_to_host_s"]) < 1  # one machine, one clock
    assert told["metrics"]["throughput_sps"]["value"] > 0
    assert len(server.commands) == 3  # a check, one process that prepares, one that runs
    stored = Store(tmp_path / "store")
    result = stored.full(next(iter(stored.results())))
    t_ns, watts = result.readings.series("vdd_in_power_w")
    inside = (t_ns >= result.window.start_ns) & (t_ns <= result.window.stop_ns)
    assert inside.sum() >= 3
    assert watts[inside] == pytest.approx(4.92 * 1.01)
    power = result.metrics["power_w"]
    assert isinstance(power, Measured), power
    assert power.value == pytest.approx(4.92 * 1.01)
    assert result.meter.scope == "module"
    before, after = result.idle
    assert before.stop_ns <= result.window.start_ns < result.window.stop_ns <= after.start_ns
    assert result.metrics["latency_p50_s"].value > 0
    assert len(result.queries) >= 10
    assert gone(board)


@pytest.mark.slow
@pytest.mark.process
def test_several_trtexec_at_once_on_a_board(served, network, tmp_path, capsys):
    """The third study's own method, on a Python as old as a Nano's."""
    board, _, url = served(fault="late")
    url = f"{url.partition('=')[0]}={old_python()}"
    words = ["bench", str(network), "--backend", "trtexec", "--on", url, "--processes", "2"]
    words += ["--duration", "800ms", "--warmup", "20ms", "--idle", "100ms"]
    words += ["--option", "gate_batch=32", "--store", str(tmp_path / "store"), "--json"]
    assert main(words) in (0, 1), capsys.readouterr()
    told = json.loads(capsys.readouterr().out)
    assert told["status"] in ("ok", "unstable"), told["reason"]
    assert told["driver"] == "agent"
    assert told["verification"]["passed"]
    result = Store(tmp_path / "store").full(next(iter(Store(tmp_path / "store").results())))
    window = result.window
    assert window.stop_ns - window.start_ns >= 0.8e9
    assert len({w.pid for w in result.workers} - {0}) == 2
    assert all(w.start_ns <= window.start_ns and w.stop_ns >= window.stop_ns for w in result.workers)
    t_ns, _ = result.readings.series("vdd_in_power_w")
    assert ((t_ns >= window.start_ns) & (t_ns <= window.stop_ns)).sum() >= 3
    assert result.metrics["power_w"].value == pytest.approx(4.92 * 1.01)
    assert gone(board)


@pytest.mark.slow
def test_the_model_is_not_sent_twice(served, network):
    from edgescope.wings.remote import wire as files
    from edgescope.wings.remote.board import opened

    _, _, url = served()
    for expected in (["put_begin", "put"], ["put_begin"]):
        sent = []
        with opened(address.parse(url)) as board:
            call = board.wire.call
            board.wire.call = lambda verb, call=call, sent=sent, **keys: (
                sent.append(verb) or call(verb, **keys)
            )
            files.put(board.wire, network)
        assert [verb for verb in sent if verb.startswith("put")] == expected


CUT, LATE = (Status.FAILED, "E-SSH-5"), (Status.TIMEOUT, "E-TIME-1")


@pytest.mark.process
@pytest.mark.parametrize(
    ("verb", "fault", "sign", "limit_s", "expected"),
    [
        ("prepare", "hang", "--onnx", 30, CUT),
        ("run", "", "--exportTimes", 30, CUT),
        ("prepare", "hang", "", 3, LATE),
    ],
)
def test_what_is_cut_short_leaves_nothing_on_the_board(
    served, network, monkeypatch, verb, fault, sign, limit_s, expected
):
    """A connection that breaks while it builds or measures, and a host that kills its own process for being late."""
    board, server, url = served(fault=fault)
    monkeypatch.setenv(registry.ON, url)
    keys = {"warmup": 0.02, "min_s": 60.0, "max_s": 60.0}
    trial = Trial(model=str(network), backend="trtexec", device="cuda", **keys)

    def cut():
        until = time.monotonic() + 30
        while not any(sign in line for line in board.alive()) and time.monotonic() < until:
            time.sleep(0.05)
        server.cut()

    if sign:
        threading.Thread(target=cut, daemon=True).start()
    result = getattr(fresh, verb)(trial, Limits(timeout_s=limit_s))
    assert (result.status, result.reason.code) == expected, result.reason
    assert result.machine.stable["cpu"]["board"].startswith(
        "NVIDIA Jetson Orin Nano"
    )  # it had said what it is
    assert gone(board)
    assert not list((board.home / "cache/edgescope-agent/files").glob("run-*"))


@pytest.mark.process
def test_a_key_that_is_not_known_is_refused(served, network, capsys, monkeypatch):
    _, server, url = served()
    monkeypatch.setenv(address.SSH, server.client(key="host"))
    code = main(["bench", str(network), "--backend", "trtexec", "--on", url])
    assert code == 3
    assert "E-SSH-4: ssh://user@127.0.0.1" in " ".join(capsys.readouterr().err.split())


@pytest.mark.process
def test_a_board_that_is_not_there(network, capsys, monkeypatch):
    monkeypatch.setenv(address.SSH, "ssh -F /dev/null")
    assert main(["bench", str(network), "--backend", "trtexec", "--on", "ssh://user@127.0.0.1:1"]) == 3
    assert "E-SSH-3: ssh://user@127.0.0.1:1 cannot be reached" in " ".join(capsys.readouterr().err.split())


@pytest.mark.process
def test_a_board_without_python3(served, network, capsys):
    _, _, url = served()
    url = url.partition("?")[0] + "?python=/no/python3"
    assert main(["bench", str(network), "--backend", "trtexec", "--on", url]) == 3
    assert "E-AGENT-1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_board_without_trtexec(served, network, capsys):
    board, _, url = served()
    board.program.unlink()
    assert main(["bench", str(network), "--backend", "trtexec", "--on", url]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"E-TRTX-1: .* ssh://user@127\.0\.0\.1", said)


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--on", "nano"], "E-SSH-1"),
        (["--on", "ssh://nano", "--backend", "onnxruntime"], "E-ON-1"),
        (["--on", "ssh://nano", "--mode", "cpus=0"], "E-ON-2"),
    ],
)
def test_what_cannot_be_asked_of_a_board(network, capsys, flags, code):
    backend = [] if "--backend" in flags else ["--backend", "trtexec"]
    assert main(["bench", str(network), *backend, *flags]) == 2
    assert code in capsys.readouterr().err
