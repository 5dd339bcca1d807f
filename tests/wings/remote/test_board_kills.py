"""Kills of either side of a sweep over ssh, and how what is lost, doubled or left behind would be seen.

benchmarks/board_kills.py does the same with 200 trials and twenty kills.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from edgescope import registry
from edgescope.store.results import Store

if shutil.which("ssh") is None:
    pytest.skip("no ssh client on PATH", allow_module_level=True)
pytest.importorskip("asyncssh", reason="asyncssh is not installed (pip install -e '.[dev]')")
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import board_kills


@pytest.fixture
def network(tmp_path):
    """A network of one operator, in ONNX."""
    onnx = pytest.importorskip("onnx")
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node("Relu", ["x"], ["y"])
    ends = [[value(name, onnx.TensorProto.FLOAT, ["N", 4])] for name in "xy"]
    graph = onnx.helper.make_graph([node], "net", *ends)
    opset = [onnx.helper.make_opsetid("", 13)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx"


@pytest.mark.process
def test_an_agent_that_is_killed_in_a_mode_leaves_neither_the_mode_nor_a_last_word(
    network, tmp_path, monkeypatch
):
    monkeypatch.setenv(registry.ON, "")
    (folder := tmp_path / "site").mkdir()
    cells = board_kills.CELLS.format(model=network, engine="trtexec", device="cuda", batch=1, replicates=1)
    with board_kills.site(folder, [cells.replace('["15W", "MAXN_SUPER"]', '"15W"')]) as where:
        sweep = where.start(*where.studies)
        while where.mode() in (board_kills.USUAL, -1):
            assert sweep.poll() is None
            time.sleep(0.005)
        for agent in board_kills._agents(where):
            os.kill(agent, signal.SIGKILL)
        sweep.wait(60)
        until = time.monotonic() + board_kills.PATIENCE_S
        while where.left() and time.monotonic() < until:
            time.sleep(0.01)
        assert not where.left()
        found = list(Store(folder / "store").results())
    assert [r.reason.code for r in found] == ["E-SSH-5"]
    assert not Store(folder / "store").finished(found[0].machine)


@pytest.mark.slow
@pytest.mark.process
def test_a_sweep_whose_sides_are_killed_loses_nothing(network, tmp_path, monkeypatch):
    monkeypatch.setenv(registry.ON, "")
    (folder := tmp_path / "site").mkdir()
    cells = board_kills.CELLS.format(model=network, engine="trtexec", device="cuda", batch=1, replicates=1)
    with board_kills.site(folder, [cells]) as where:
        killer = board_kills.run(where, 2, 2, 1.0, 3, tell=print)
        found = board_kills.figures(where, killer, 2)
    assert board_kills.kept(found, 2), found


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost": 1},
        {"doubled": 1},
        {"unreadable": 1},
        {"modes_left_behind": 1},
        {"left_behind": ["mode 0"]},
        {"mode_at_the_end": 0},
        {"modes_entered": 1},
        {"kills": []},
    ],
)
def test_what_a_kill_must_not_do_shows(wrong):
    fine = {"lost": 0, "doubled": 0, "unreadable": 0, "modes_left_behind": 0, "left_behind": []}
    fine |= {"mode_at_the_end": board_kills.USUAL, "modes_entered": 2, "trials": 2, "kills": [{}]}
    assert board_kills.kept(fine, 1)
    assert not board_kills.kept(fine | wrong, 1)
