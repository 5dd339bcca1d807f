"""Stores that hold more than one machine: copied folders, replayed recordings, boards over ssh.

A figure of two machines is nobody's: 14.8 samples/s here and 24.1 in a replayed recording are no 18.9 with its watts.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edgescope.bench import here
from edgescope.cli.main import main
from edgescope.records import Machine, Measured, Trial, Trust, Verdict
from edgescope.store.results import Store, default_root
from making import result

pytestmark = pytest.mark.process

OTHER = Machine({"cpu": {"model": "another cpu"}}, {})
BOARD = Machine({"recording": "abc"}, {"replayed": {"board": "Jetson Nano", "made": "constructed"}})
THROTTLED = Verdict(Trust.THROTTLED, ("the clock fell",))


def measured(machine, sps, watts=None, **keys):
    """One run of the null model: its throughput, and its watts where the machine has a meter."""
    trial = Trial(model="null", backend="null", **keys)
    figures = {
        "throughput_sps": Measured(sps, "samples/s", sps * 0.99, sps * 1.01, 90),
        "latency_p50_s": Measured(trial.batch / sps, "s", None, None, 90),
        "latency_p99_s": Measured(1.2 * trial.batch / sps, "s", None, 1.3 * trial.batch / sps, 90),
        "latency_mean_s": Measured(trial.batch / sps, "s", None, None, 90),
        **({"power_w": Measured(watts, "W")} if watts else {}),
    }
    bare = {"queries": None, "window": None, "readings": None}
    name = f"{trial.id}-20260101T00000{trial.replicate}-{machine.id[:6]}"
    return result(trial, id_=name, machine=machine, metrics=figures, **bare)


def filled(root, *results):
    store = Store(root / "store")
    for each in results:
        store.save(each)
    return store


def told(capsys, *command):
    code = main([*map(str, command)])
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())


@pytest.fixture
def mixed(tmp_path):
    """This machine, a faster one, and a recording whose board has a meter."""
    mine = [measured(here(), 14.8, replicate=n) for n in (0, 1)]
    theirs = [measured(OTHER, 100.0, replicate=n) for n in (0, 1)]
    return filled(tmp_path, *mine, *theirs, measured(BOARD, 24.1, 6.29))


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "null"),
        ("recommend", "null"),
        ("list",),
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                ("report", "-o", "REPORT"),
                ("show", "latest"),
                ("study", "concurrent"),
                ("sweep", "--model", "null", "--backend", "null", "--dry-run"),
                ("explain", "latest"),
                ("compare", "latest", "latest"),
                ("rm", "--backend", "null", "--yes"),
            )
        ),
    ],
)
def test_every_reader_takes_this_machines_and_counts_the_others_in_one_line(mixed, tmp_path, capsys, command):
    command = [str(tmp_path / "r.html") if word == "REPORT" else word for word in command]
    _, _, err = told(capsys, *command, "--store", mixed.root)
    assert err.count("W-MIX-1") >= 1 and "E-MIX" not in err
    assert "3 results of 2 other machines" in err and "a recording of Jetson Nano): 1 result" in err
    assert len([r for r in mixed.results() if r.machine.id != here().id]) == 3


def test_a_prediction_is_of_one_machine(mixed, capsys):
    code, out, _ = told(capsys, "predict", "null", "--store", mixed.root, "--json")
    assert code == 0 and "14.8" in out and "18.9" not in out and "6.29" not in out


@pytest.mark.parametrize("chosen", ["another", "board"])
def test_the_machine_that_is_named_is_taken(mixed, capsys, chosen):
    where, sps = {"another": (OTHER, 100.0), "board": (BOARD, 24.1)}[chosen]
    code, out, err = told(
        capsys, "recommend", "null", "--store", mixed.root, "--machine", where.id[:8], "--json"
    )
    assert code == 0 and f"{sps:g}" in out and "W-MIX-1" in err and "6.29" not in out


def test_list_shows_all_machines_on_demand_and_a_typed_name_finds_any(mixed, capsys):
    _, out, err = told(capsys, "list", "--store", mixed.root, "--machine", "all", "--json")
    assert len(json.loads(out)) == 5 and not err
    theirs = next(r for r in mixed.results() if r.machine == OTHER)
    _, out, err = told(capsys, "show", theirs.id, "--store", mixed.root, "--json")
    assert json.loads(out)["machine_id"] == OTHER.id and not err


def test_a_store_of_one_other_machine_is_answered_for_it_and_said_so(tmp_path, capsys):
    store = filled(tmp_path, *(measured(OTHER, 100.0, replicate=n) for n in (0, 1)))
    code, out, err = told(capsys, "recommend", "--store", store.root)
    assert code == 0 and "null fp32 b1" in out
    assert err.startswith("W-MIX-2") and "another cpu" in err


def test_of_two_other_machines_none_is_guessed(tmp_path, capsys):
    store = filled(tmp_path, measured(OTHER, 100.0), measured(BOARD, 24.1, 6.29))
    for verb in (("predict", "null"), ("recommend",), ("study", "concurrent"), ("show", "latest")):
        code, _, err = told(capsys, *verb, "--store", store.root)
        assert code == 2 and "E-MIX-1" in err and "--machine" in err, verb
    code, out, _ = told(capsys, "list", "--store", store.root, "--json")
    assert code == 0 and len(json.loads(out)) == 2


def test_a_recordings_watts_and_verdict_are_never_beside_this_cpus_time(tmp_path, capsys):
    """A result as an older version stored it, watts, throttling and all."""
    older = replace(measured(BOARD, 24.1, 6.29), verdict=THROTTLED)
    store = filled(tmp_path, older)
    _, out, _ = told(capsys, "show", older.id, "--store", store.root, "--json")
    page = json.loads(out)
    assert "recording" in page["metrics"]["power_w"]["absent"] and page["verdict"]["trust"] == "UNKNOWN"
    assert (
        page["metrics"]["throughput_sps"]["value"] == 24.1 and "the clock fell" in page["verdict"]["evidence"]
    )
    code, out, _ = told(capsys, "predict", "null", "--objective", "energy", "--store", store.root)
    assert code == 1 and "6.29" not in out


def test_a_replayed_boards_results_have_a_store_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "usual"))
    filled(tmp_path / "usual").root.mkdir(parents=True, exist_ok=True)
    usual = default_root()
    code, _, err = told(capsys, "--board", "nano", "list")
    assert code == 0 and f"{usual}-replayed" in err
    assert usual == tmp_path / "usual" == default_root()
    code, _, err = told(capsys, "--board", "nano", "list", "--store", tmp_path / "usual")
    assert "-replayed" not in err
