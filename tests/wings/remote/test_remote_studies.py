"""A study on two boards at once, each behind a real ssh server with a stand-in for trtexec: one command, one page."""

import json
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest

import small_board
from edgescope import registry
from edgescope.cli.main import main
from edgescope.devices import manifest
from edgescope.isolate import fresh
from edgescope.models.image import photos
from edgescope.records import Machine, Result, Status, Trial
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.remote import address, run
from edgescope.wings.studies.paper import papers

if shutil.which("ssh") is None:
    pytest.skip("no ssh client on PATH", allow_module_level=True)
pytest.importorskip("torch", reason="torch is not installed")
Server = pytest.importorskip(
    "ssh_server", reason="asyncssh is not installed (pip install -e '.[dev]')"
).Server
FILE = """
[trial]
model = "lenet5"
backend = "trtexec"
device = "cuda"
batch = [1, 2]
warmup = 0.02
min_s = 0.2
max_s = 0.2
"""


@pytest.fixture
def served(tmp_path, behind, monkeypatch):
    """An Orin Nano and a Nano, each behind its own server: their addresses."""
    boards = [behind(), behind()]
    boards[1].root = small_board.nano(tmp_path / "nano")
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv(registry.ON, "")
    with ExitStack() as stack:
        servers = []
        for i, board in enumerate(boards):
            (keys := tmp_path / f"keys{i}").mkdir()
            servers.append(stack.enter_context(Server(keys, board.environment)))
        with (tmp_path / "keys0/known").open("a") as known:
            known.write((tmp_path / "keys1/known").read_text())
        monkeypatch.setenv(address.SSH, f"{servers[0].client()} -i {tmp_path / 'keys1/user'}")
        yield [f"ssh://user@127.0.0.1:{server.port}?python={sys.executable}" for server in servers]


@pytest.mark.slow
@pytest.mark.process
def test_one_command_measures_a_study_on_each_board_and_sets_them_beside_each_other(served, tmp_path, capsys):
    (tmp_path / "cells.toml").write_text(FILE)
    words = ["study", "concurrent", "--study", str(tmp_path / "cells.toml"), "--json"]
    on = ["--on", served[0], "--on", served[1]]
    prices = ["--price", "Orin Nano=249", "--price", f"{served[1].partition('?')[0]}=99"]
    assert main([*words, *on, *prices, "--run"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert [(each["board"], each["price"]) for each in page["boards"]] == [
        ("Orin Nano", 249.0),
        ("Nano", 99.0),
    ]
    for each in page["boards"]:
        assert {work["work"] for work in each["works"]} == {"lenet5, best", "lenet5, b1 P1"}
        assert all(work["throughput_sps"] > 0 and work["per_price"] > 0 for work in each["works"])
    done = list(Store(tmp_path / "store").results())
    assert len(done) == 4 and {r.status for r in done} <= {Status.OK, Status.UNSTABLE}
    (tmp_path / "keys0/known").unlink()  # neither can be reached any more: what was measured of them stays
    assert main([*words, *on, "--run"]) == 0
    said = capsys.readouterr()
    assert said.err.count("E-SSH-4") == 2
    assert [each["board"] for each in json.loads(said.out)["boards"]] == ["Orin Nano", "Nano"]
    assert len(list(Store(tmp_path / "store").results())) == 4
    boards = "".join(f'[[board]]\non = "{url}"\nprice = {i + 1}\n' for i, url in enumerate(served))
    (tmp_path / "cells.toml").write_text(FILE + boards)  # the file names the boards
    assert main(words) == 0
    assert [each["price"] for each in json.loads(capsys.readouterr().out)["boards"]] == [1.0, 2.0]
    assert main([*words, "--on", served[0], "--run"]) != 0  # the only one
    assert "E-SSH-4" in capsys.readouterr().err


QUICK = ("anomaly", "ladder")
"""Studies whose work no board does over ssh: nothing is built or started for them."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("study", "code"),
    [
        *((name, "E-ON-10") for name in QUICK),
        pytest.param("nano_table --models mobilenet_v2", "E-TRY-2", marks=pytest.mark.slow),
    ],
)
def test_what_a_board_does_not_do_of_a_study_has_its_reason_on_the_page(
    served, tmp_path, capsys, monkeypatch, study, code
):
    """Neither has a PyTorch that loads, nor trtexec: whatever a study plans there ends as a reason."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/torch.py").write_text("raise ImportError('no torch here')")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/broken exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for program in tmp_path.glob("board*/bin/trtexec"):
        program.unlink()
    monkeypatch.setattr(photos, "write_set", lambda folder, recipe: None)
    on = [word for url in served for word in ("--on", f"{url.partition('?')[0]}?python={python}")]
    assert main(["study", *study.split(), *on, "--run", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["board"] for each in found["boards"]] == ["Orin Nano", "Nano"]
    for each in found["boards"]:
        assert any(code in why for why in each["failures"]) and not each["works"]
    done = list(Store(tmp_path / "store").results())
    assert {r.status for r in done} <= {Status.UNSUPPORTED, Status.FAILED}
    assert len({r.machine.id for r in done}) == 2


@pytest.fixture
def driven(monkeypatch):
    """No board: what is refused is refused before one is reached."""
    monkeypatch.setenv(registry.ON, "ssh://nano")
    monkeypatch.setattr(fresh, "prepare", lambda trial, limits: None)
    monkeypatch.setattr(fresh, "run", lambda trial, limits: Result.begun(trial, NANO, Status.OK))
    monkeypatch.setattr(manifest, "here", lambda: NANO)
    monkeypatch.setattr(run, "here", lambda: NANO)


NANO = Machine({"cpu": {"board": "nano"}}, {"packages": {}})
TRAINED = Trial(model="lenet5", workload="training", batch=16)


@pytest.mark.parametrize(
    ("trial", "code"),
    [
        (replace(TRAINED, mode="cpus=0"), "E-ON-2"),
        (replace(TRAINED, mode="jetson_clocks"), "E-ON-2"),
        (replace(TRAINED, backend="onnxruntime"), "E-ON-1"),
        (replace(TRAINED, backend="trtexec", device="cuda"), "E-ON-10"),
        (replace(TRAINED, workload="video"), "E-ON-10"),
    ],
)
def test_a_planned_cell_that_no_board_does_is_stored_with_its_reason(driven, tmp_path, trial, code):
    cells = Setup().cells(Store(tmp_path))
    assert (cells.run(trial).status, cells.run(TRAINED).status) == (Status.UNSUPPORTED, Status.OK)
    stored = {r.trial.id: r for r in Store(tmp_path).results()}
    assert (stored[trial.id].reason.code, stored[trial.id].machine.id) == (code, NANO.id)


def test_on_a_board_the_cells_of_a_cpu_are_those_of_its_pytorch(monkeypatch):
    paper = papers()["concurrent"]
    monkeypatch.setenv(registry.ON, "ssh://nano")
    there = paper.own.planned(paper, device="cpu")
    run.refuse(there)
    assert {(t.batch, t.processes) for t in there} == {(1, 1), (1, 2), (4, 1), (4, 2)}
    assert {t.backend for t in paper.own.planned(paper, device="cuda")} == {"trtexec"}
    monkeypatch.setenv(registry.ON, "")
    assert {t.backend for t in paper.own.planned(paper, device="cpu")} == {"onnxruntime"}


@pytest.mark.parametrize("verb", ["bench", "sweep", "optimize", "recommend"])
def test_another_verb_takes_one_board(verb, capsys):
    words = [verb, *(["--model"] if verb == "sweep" else []), "lenet5", "--on", "ssh://a", "--on", "ssh://b"]
    assert main(words) == 2
    assert "E-ON-12" in capsys.readouterr().err


def test_a_study_file_names_boards_and_a_sweep_takes_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(registry.ON, "")
    path = tmp_path / "study.toml"
    trial = '[trial]\nmodel = "null"\nbackend = "null"\n'
    path.write_text(trial + '[[board]]\non = "ssh://a"\nprice = 249\n[[board]]\non = "ssh://b"\n')
    assert grid.read(path).boards == {"ssh://a": 249, "ssh://b": None}
    assert main(["sweep", str(path)]) == 2 and "E-ON-12" in capsys.readouterr().err
    path.write_text(trial + "[[board]]\nprice = 249\n")
    assert main(["sweep", str(path)]) == 2 and "E-STUDY-11" in capsys.readouterr().err


def test_an_address_that_is_none_is_refused_among_several(capsys, monkeypatch):
    monkeypatch.setenv(registry.ON, "")
    assert main(["study", "concurrent", "--on", "nano", "--on", "ssh://b"]) == 2
    assert "E-SSH-1" in capsys.readouterr().err
