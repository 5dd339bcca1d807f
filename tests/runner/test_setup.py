"""What measuring verbs share: stores, modes, whose results are read, and the ceilings of a machine."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from edgescope.devices import manifest
from edgescope.errors import UnavailableError, UsageError
from edgescope.modes import catalog
from edgescope.modes.catalog import Together
from edgescope.process import Launch
from edgescope.records import Machine, Status, Trial
from edgescope.runner import setup
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from edgescope.wings.doctor import ceilings
from making import MACHINE, result

OTHER = Machine({"cpu": {"model": "another"}}, {})


def test_a_path_is_opened_as_a_store_and_a_store_is_itself(tmp_path):
    store = Store(tmp_path)
    assert setup.store_of(store) is store and setup.store_of(tmp_path).root == tmp_path


def test_a_setup_makes_cells_that_try_again_what_it_says(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "here", lambda: MACHINE)
    told = []
    cells = Setup(retry=["failed", Status.OOM], tell=told.append).cells(Store(tmp_path))
    assert cells.retry == {Status.FAILED, Status.OOM} and cells.where is MACHINE
    cells._say("a line")
    assert told == ["a line"] and Setup().retry == () and Setup().tell("nothing") is None
    with Setup().waiting("a step"):
        pass


def test_a_mode_that_needs_a_reboot_is_told_and_as_it_is_needs_no_device(monkeypatch):
    told, looked = [], []
    monkeypatch.setattr(manifest, "present", lambda: looked.append(1) or {})
    setup.check_modes([Trial(model="null")], told.append)
    assert not looked

    class Nvp(Together):
        def __init__(self, change):
            super().__init__()
            self.change = lambda: (change, "why")

    made = {"15W": Nvp("live"), "25W": Nvp("needs a reboot"), "cpus=0": Together()}
    monkeypatch.setattr(catalog, "find", lambda name, devices: made[name])
    setup.check_modes(
        [Trial(model="null", mode=name) for name in ("cpus=0", "25W", "15W", "25W")], told.append
    )
    assert len(told) == 1 and told[0].startswith("W-MODE-1: 25W: needs a reboot") and looked == [1]


def test_every_machine_has_some_modes_and_a_mode_of_another_board_sets_nothing(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 1, 2})
    assert setup.usual_modes() == ["as_is", "cpus=1", "cpus=1-2"]
    monkeypatch.setattr(manifest, "present", dict)
    found = setup.mode_features(["cpus=1-2", "nosuch", "as_is"])
    assert found == {"cpus=1-2": {"cpu_cores": 2.0}, "nosuch": {}, "as_is": {}}


# -- whose results ---------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(setup.manifest, "here", lambda: MACHINE)
    store, trial = Store(tmp_path), Trial(model="null", backend="null")
    mine, theirs, unknown = (
        result(trial, id_=f"{trial.id}-2026010{n}T000000-00000{n}", machine=machine)
        for n, machine in enumerate((MACHINE, OTHER, Machine({"absent": "it died"}, {})), 1)
    )
    for each in (mine, theirs, unknown):
        store.save(each)
    return store, mine.id, theirs.id, unknown.id


def ids(results):
    return sorted(r.id for r in results)


def test_a_machines_own_results_are_read_with_those_that_nobody_describes(stored):
    store, mine, theirs, unknown = stored
    told = []
    assert ids(setup.own_results(store, tell=told.append)) == [mine, unknown] and len(told) == 1
    assert ids(setup.own_results(store, OTHER.id[:8], told.append)) == [theirs, unknown]
    assert ids(setup.own_results(store, "all", told.append)) == [mine, theirs, unknown]
    assert setup.silent("anything") is None


def test_a_typed_name_is_looked_for_among_ones_own_results_and_then_among_all(stored):
    store, mine, theirs, unknown = stored
    asked = []

    def find(results, typed):
        asked.append(ids(results))
        if typed not in ("latest", *asked[-1]):
            raise UsageError("E-STORE-5", "nothing has this name")
        return typed

    assert setup.named(store, "latest", find) == "latest" and asked.pop() == [mine, unknown]
    assert setup.named(store, mine, find) == mine and asked == [[mine, unknown]]
    assert setup.named(store, theirs, find) == theirs and asked[1:] == [
        [mine, unknown],
        [mine, theirs, unknown],
    ]
    asked.clear()
    with pytest.raises(UsageError, match="E-STORE-5"):
        setup.named(store, mine, find, OTHER.id)
    assert asked == [[theirs, unknown]]

    def several(results, typed):
        asked.append(ids(results))
        raise UsageError("E-STORE-6", "several have")

    asked.clear()
    with pytest.raises(UsageError, match="E-STORE-6"):
        setup.named(store, mine, several)
    assert asked == [[mine, unknown]]


# -- ceilings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3])
def test_ceilings_are_measured_in_a_process_in_the_mode_with_what_the_machine_did(
    monkeypatch, tmp_path, code
):
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path))
    asked, given, loads = [], [], iter([(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)])

    class Mode(Together):
        def launch(self):
            return Launch(("taskset", "1"), {"ONLY": "1"})

    def run(words, **how):
        asked.append((words, how))
        stderr = "first\n" + "x" * 300 if code else ""
        return SimpleNamespace(
            returncode=code, stdout='noise\n{"device": "cpu", "flops": 3}\n', stderr=stderr
        )

    monkeypatch.setattr(ceilings.bench, "present", lambda: {"cpu": 1})
    monkeypatch.setattr(
        ceilings.catalog, "find", lambda name, devices: given.append((name, devices)) or Mode()
    )
    monkeypatch.setattr(ceilings.subprocess, "run", run)
    monkeypatch.setattr(ceilings.os, "getloadavg", lambda: next(loads))
    spin = SimpleNamespace(
        calibrate=lambda: 5,
        spin=lambda loops: SimpleNamespace(loops=loops),
        slowdown=lambda a, b: (a.loops, b.loops),
    )
    monkeypatch.setattr(ceilings, "clocks", spin)
    if code:
        with pytest.raises(UnavailableError, match="E-CEIL-2") as caught:
            ceilings.measure("cpu", mode="15W")
        assert caught.value.evidence == "x" * 200
        return
    assert ceilings.measure("cpu", mode="15W", seconds=0.05) == {
        "device": "cpu",
        "flops": 3,
        "machine_meanwhile": {
            "load_average_before": (1.0, 2.0, 3.0),
            "load_average_after": (4.0, 5.0, 6.0),
            "spin_slowdown": (5, 5),
        },
    }
    words, how = asked[0]
    assert words == ["taskset", "1", sys.executable, "-m", ceilings.registry.CEILINGS_PROGRAM, "cpu", "0.05"]
    assert how.pop("env") == {**os.environ, "ONLY": "1"}
    assert how == {"capture_output": True, "text": True, "timeout": 600.0, "check": False}
    loads = iter([(0.0,) * 3] * 2)
    ceilings.measure("cuda")
    assert given == [("15W", {"cpu": 1}), ("as_is", {})] and asked[1][0][-1] == "0.2"


def test_a_process_that_says_nothing_is_told_as_that(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path))
    done = subprocess.CompletedProcess([], 1, "", " \n")
    monkeypatch.setattr(ceilings.subprocess, "run", lambda *words, **how: done)
    with pytest.raises(UnavailableError) as caught:
        ceilings.measure("cpu")
    assert caught.value.evidence == "no message"


def test_ceilings_are_kept_beside_the_results_of_their_machine(tmp_path):
    for flops in (1, 2):
        path = ceilings.keep({"device": "cpu", "flops": flops}, tmp_path / "new", MACHINE, "15W")
    assert json.loads(path.read_text()) == {
        "machine_id": MACHINE.id,
        "mode": "15W",
        "figures": {"device": "cpu", "flops": 2},
    }
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path == ceilings.roofline.kept(tmp_path / "new", MACHINE.id, "cpu", "15W")
