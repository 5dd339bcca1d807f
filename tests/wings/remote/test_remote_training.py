"""Training over ssh: a real ssh server, the agent, and steps in a PyTorch on its far side, this one or an old one.

Old ones are found by EDGESCOPE_TEST_TORCHES, as in test_remote_eager.py.
"""

import json
import os
import shutil
import sys

import pytest

from edgescope import registry
from edgescope.cli.main import main
from edgescope.records import Measured, Result, Status, Trial
from edgescope.store.results import Store
from edgescope.wings.remote import address, network, run
from edgescope.wings.remote.address import Address
from edgescope.wings.remote.board import opened
from edgescope.wings.training.epochs import PARTS

if shutil.which("ssh") is None:
    pytest.skip("no ssh client on PATH", allow_module_level=True)
torch = pytest.importorskip("torch", reason="torch is not installed")
Server = pytest.importorskip(
    "ssh_server", reason="asyncssh is not installed (pip install -e '.[dev]')"
).Server

OLD = [path for path in os.environ.get("EDGESCOPE_TEST_TORCHES", "").split(":") if path]
NETWORK = """
import torch
from torch import nn


def net():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 100, 10)), torch.zeros(1, 3, 12, 12)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    return "mine:net"


@pytest.mark.process
@pytest.mark.parametrize("python", [sys.executable, *OLD])
def test_epochs_of_training_in_the_torch_of_a_board(mine, behind, tmp_path, capsys, monkeypatch, python):
    board = behind()
    (tmp_path / "keys").mkdir()
    monkeypatch.setenv(registry.ON, "")
    words = ["bench", mine, "--backend", "torch_eager", "--workload", "training", "--batch", "16", "--json"]
    words += ["--warmup", "0", "--duration", "3s", "--idle", "100ms", "--store", str(tmp_path / "store")]
    words += [
        "--option",
        "threads=1",
        "--workload-option",
        "epoch_samples=100",
        "--workload-option",
        "epochs=30",
    ]
    with Server(tmp_path / "keys", board.environment) as server:
        monkeypatch.setenv(address.SSH, server.client())
        code = main([*words, "--on", f"ssh://user@127.0.0.1:{server.port}?python={python}"])
    said = capsys.readouterr()
    assert code in (0, 1), said
    told = json.loads(said.out)
    assert told["status"] in ("ok", "unstable"), told["reason"]
    assert (told["driver"], told["verification"]["method"]) == ("agent", "loss_curve")
    assert told["verification"]["passed"]
    asked = told["artifact"]["program"]
    assert (asked["executable"], asked["program"]) == (python, "torch_training.py")
    result = Store(tmp_path / "store").full(next(iter(Store(tmp_path / "store").results())))
    assert result.verification.fields["loss_error"].n == 5
    _epochs_are_whole(result, asked["log"])
    t_ns, _ = result.readings.series("vdd_in_power_w")
    assert ((t_ns >= result.window.start_ns) & (t_ns <= result.window.stop_ns)).sum() >= 1
    assert not board.alive()


def _epochs_are_whole(result, log):
    """Every epoch holds its samples in full minibatches and one that is left; parts follow one another in a step."""
    ended = [row for row in log if row["end_s"]]
    assert len(ended) >= 2
    assert {(row["samples"], row["batches"]) for row in ended} == {(100, 7)}
    columns, window = result.queries.columns, result.window
    assert set(columns["samples"][:7]) == {16, 4}
    spans = result.spans
    units = spans.durations_ns("unit").sum()
    phases = sum(spans.durations_ns(part).sum() for part in PARTS)
    assert 0.9 * units < phases <= units
    for part in ("forward", "backward", "optimizer", "fetch"):
        assert result.metrics[f"{part}_s"].value > 0
    first, later = result.metrics["epoch_first_s"], result.metrics["epoch_later_s"]
    assert isinstance(first, Measured) and isinstance(later, Measured)
    assert first.value == pytest.approx(log[0]["end_s"] - log[0]["start_s"])
    assert result.metrics["loss_last"].value < result.metrics["loss_first"].value
    done = columns["samples"][window.first : window.stop].sum()
    assert result.metrics["throughput_sps"].value == pytest.approx(
        done / (window.stop_ns - window.start_ns) * 1e9, rel=0.05
    )


SHORT = {"model": "mine:net", "backend": "torch_eager", "workload": "training", "batch": 16}
SHORT |= {"warmup": 0, "min_s": 0.2, "max_s": 0.3, "options": {"threads": 1}}


@pytest.fixture
def measured(mine, behind):
    """Measure on a board without ssh: the agent is a child of this process."""
    with opened(Address("board", agent="started directly"), behind().argv) as board:
        yield lambda **keys: run.answer(Result.begun(Trial(**{**SHORT, **keys}), board.machine()), board)


@pytest.mark.slow
def test_numbers_that_the_board_got_wrong_show_in_the_losses(measured, monkeypatch):
    save = network._save

    def spoilt(head, tensors, path):
        save(head, {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}, path)

    monkeypatch.setattr(network, "_save", spoilt)
    result = measured()
    assert result.status is Status.WRONG_OUTPUT, result.reason


@pytest.mark.slow
def test_processes_that_train_start_and_stop_together(measured):
    result = measured(processes=2, max_s=0.5, workload_options={"num_workers": 1, "epoch_samples": 64})
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    window, columns = result.window, result.queries.columns
    for n in (0, 1):
        done = columns["done_ns"][columns["worker"] == n]
        assert ((done > window.start_ns) & (done <= window.stop_ns)).any()
    assert result.verification.passed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"workload_options": {"epochs": 1, "epoch_samples": 32}, "warmup": 5.0}, "E-WORK-3"),
        (
            {"workload_options": {"learning_rate": 1e30, "optimizer": "adam"}, "max_s": 5.0, "min_s": 5.0},
            "E-STEP-3",
        ),
        ({"workload_options": {"page_cache": "cold"}}, "E-ON-13"),
        ({"workload_options": {"held": True}}, "E-ON-13"),
        ({"precision": "fp16"}, "E-PREC-1"),
        ({"backend": "trtexec", "device": "cuda", "options": {}}, "E-ON-10"),
    ],
)
def test_what_a_board_does_not_train_is_refused(measured, keys, code):
    result = measured(**keys)
    assert (result.reason.code, result.queries) == (code, None), result.reason


@pytest.mark.slow
def test_networks_are_followed_as_they_train(tmp_path):
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    module[2].bias.requires_grad_(False)
    path = tmp_path / "net.bin"
    network.write_training(module, {8: torch.zeros(8, 4), 3: torch.zeros(3, 4)}, path)
    head = json.loads(path.open("rb").readline())
    assert [graph["batch"] for graph in head["graphs"]] == [8, 3]
    trained = [t["shape"] for t in head["tensors"] if t["trained"]]
    assert trained == [[4], [4], [2, 4]]
