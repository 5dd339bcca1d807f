"""--on for sweep, optimize, recommend and study: a real ssh server, a stand-in for trtexec, the store of a board."""

import json
import shutil
import sys

import pytest

from edgescope import registry
from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.records import Result, Status, Trial
from edgescope.store.results import Store
from edgescope.verbs.sweep import sweep
from edgescope.wings.remote import address, run

if shutil.which("ssh") is None:
    pytest.skip("no ssh client on PATH", allow_module_level=True)
pytest.importorskip("torch", reason="torch is not installed")
Server = pytest.importorskip(
    "ssh_server", reason="asyncssh is not installed (pip install -e '.[dev]')"
).Server
BOARD = "NVIDIA Jetson Orin Nano Developer Kit"
SHORT = ["--duration", "200ms", "--warmup", "20ms", "--json"]


@pytest.fixture
def served(tmp_path, behind, monkeypatch):
    """A board behind ssh: (board, server, address)."""
    board = behind()
    (tmp_path / "keys").mkdir()
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv(registry.ON, "")
    with Server(tmp_path / "keys", board.environment) as server:
        monkeypatch.setenv(address.SSH, server.client())
        yield board, server, f"ssh://user@127.0.0.1:{server.port}?python={sys.executable}"


def results(tmp_path):
    return list(Store(tmp_path / "store").results())


def rows(text):
    """The JSON values of some text, one after the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


@pytest.mark.slow
@pytest.mark.process
def test_a_sweep_on_a_board_resumes_when_the_board_is_back(served, tmp_path, capsys, monkeypatch):
    _, _, url = served
    words = [
        "sweep",
        "--model",
        "lenet5",
        "--backend",
        "trtexec",
        "--device",
        "cuda",
        "--batch",
        "1,2",
        *SHORT,
    ]
    assert main([*words, "--on", url]) in (0, 1)
    first = rows(capsys.readouterr().out)
    assert {row["trial"]["batch"] for row in first} == {1, 2}
    assert {row["machine"]["stable"]["cpu"]["board"].startswith(BOARD) for row in first} == {True}
    assert {row["driver"] for row in first} == {"agent"}
    assert len({r.machine.id for r in results(tmp_path)}) == 1
    main([*words, "--on", url])
    assert rows(capsys.readouterr().out) == []  # everything is there
    main([*words, "--on", url, "--dry-run"])
    assert [cell["finished"] for cell in json.loads(capsys.readouterr().out)] == [True, True]
    machine, known = results(tmp_path)[0].machine, tmp_path / "keys/known"
    with monkeypatch.context() as then:
        then.setattr(run, "check", lambda url, trials: machine)  # it was there when the sweep began
        hidden = known.rename(tmp_path / "away")
        more = [w if w != "1,2" else "1,2,3" for w in words]
        assert main([*more, "--on", url]) != 0
    (lost,) = rows(capsys.readouterr().out)
    assert (lost["status"], lost["reason"]["code"]) == ("failed", "E-SSH-4")
    assert {r.machine.id for r in results(tmp_path)} == {machine.id}
    hidden.rename(known)
    assert main([*more, "--on", url]) in (0, 1)
    assert [row["trial"]["batch"] for row in rows(capsys.readouterr().out)] == [3]


def test_what_was_lost_with_a_board_is_measured_again(tmp_path):
    from edgescope.errors import Message
    from edgescope.records import Machine

    where, store = Machine({"cpu": {"board": "b"}}, {"packages": {}}), Store(tmp_path)
    codes = ("E-SSH-5", "E-AGENT-5", "E-TRTX-1", "E-SSH-3", "E-AGENT-2", "E-ON-3", "E-ON-4")
    for batch, code in enumerate(codes, start=1):
        trial = Trial(model="null", backend="null", batch=batch)
        store.save(Result.begun(trial, where, Status.FAILED, Message(code, "x")))
    assert {r.trial.batch for r in store.finished(where).values()} == {3}


@pytest.mark.slow
@pytest.mark.process
def test_optimize_compares_what_the_board_has(served, tmp_path, capsys):
    _, _, url = served
    words = [
        "optimize",
        "lenet5",
        "--backend",
        "torch_eager",
        "--budget",
        "30s",
        "--option",
        "threads=1",
        *SHORT,
    ]
    code = main([*words, "--on", url])
    told = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    done = results(tmp_path)
    assert {r.driver for r in done if r.status is Status.OK} <= {"agent"}
    assert all(r.machine.stable["cpu"]["board"].startswith(BOARD) for r in done)
    assert {r.trial.backend for r in done} == {"torch_eager"}
    assert all(r.alternation is None for r in done)
    assert told


@pytest.mark.process
def test_recommend_reads_what_the_board_did(served, tmp_path, capsys):
    _, _, url = served
    bench = ["bench", "lenet5", "--backend", "trtexec", "--device", "cuda", *SHORT, "--on", url]
    assert main(bench) in (0, 1)
    capsys.readouterr()
    assert main(["recommend", "lenet5", "--objective", "throughput", "--json", "--on", url]) == 0
    assert "trtexec" in capsys.readouterr().out


@pytest.mark.process
def test_the_engines_of_a_board(served, monkeypatch):
    board, _, url = served
    found = {row["name"]: row for row in run.engines(url)}
    assert found["trtexec"]["available"]
    assert found["torch_eager"]["available"]
    assert not found["torch_eager"]["without"].keys() & {"cpu"}
    assert set(found["torch_eager"]["options"]) == {"threads", "layout"}
    assert "cpu" in found["onnxruntime"]["without"]
    board.program.unlink()
    found = {row["name"]: row for row in run.engines(url)}
    assert not found["trtexec"]["available"]
    assert "trtexec" in found["trtexec"]["reason"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sweep", "--model", "lenet5", "--backend", "onnxruntime"], "E-ON-1"),
        (["sweep", "--model", "lenet5", "--backend", "trtexec", "--mode", "quota=0.5"], "E-ON-2"),
        (["sweep", "--model", "lenet5", "--backend", "trtexec", "--workload", "training"], "E-ON-10"),
        (["optimize", "lenet5", "--on", "nano"], "E-SSH-1"),
        (["recommend", "lenet5", "--on", "nano"], "E-SSH-1"),
        (["study", "nano_table", "--run", "--on", "nano"], "E-SSH-1"),
    ],
)
def test_what_no_board_does_is_refused_before_it_is_reached(capsys, words, code):
    words = words if "--on" in words else [*words, "--on", "ssh://nano"]
    assert main(words) == 2
    assert code in capsys.readouterr().err


@pytest.mark.parametrize("manner", [{"reuse_workers": True}, {"cooldown_c": 3.0}])
def test_manners_of_this_machine_are_refused(monkeypatch, tmp_path, manner):
    monkeypatch.setenv(registry.ON, "ssh://nano")
    with pytest.raises(UsageError) as told:
        sweep([Trial(model="lenet5", backend="torch_eager")], store=tmp_path, **manner)
    assert told.value.code == "E-ON-11"
