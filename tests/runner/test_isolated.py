"""Who is asked to run a trial, in which mode and order, with processes that only note what they are asked."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from edgescope.errors import SettingError, UsageError
from edgescope.isolate.fresh import Limits
from edgescope.isolate.notes import Imports
from edgescope.modes.catalog import Together
from edgescope.process import Launch
from edgescope.records import Status, Trial
from edgescope.runner import isolated
from edgescope.runner.isolated import Isolated, in_mode
from making import result

LIMITS = Limits(timeout_s=7.0)
A, B, C = (Trial(model="null", backend="null", batch=n) for n in (1, 2, 3))


class Leader:
    """A persistent process that answers from a list, and notes what happened."""

    def __init__(self):
        self.launch, self.alive, self.did, self.answers = Launch(), False, [], []

    def close(self):
        self.did.append("closed")

    def expect(self, known, limits):
        self.did.append(("expect", [t.batch for t, _ in known], limits))

    def settle(self, limits):
        self.did.append(("settle", limits))

    def pair(self, trials, purpose, limits, known):
        self.did.append(("pair", [t.batch for t in trials], purpose, limits, [t.batch for t, _ in known]))
        return self.answers.pop(0)


class Mode(Together):
    """As it is, but for how programs start in it."""

    def __init__(self, launch=Launch()):
        super().__init__()
        self._launch = launch

    def launch(self):
        return self._launch


@pytest.fixture
def made(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path))
    monkeypatch.setattr(isolated, "PersistentChild", Leader)
    monkeypatch.setattr(isolated, "present", dict)
    return Isolated()


def test_what_a_trial_told_of_its_imports_is_used_for_pairs_that_come(made):
    first, second = Imports(("a",), 10.0), Imports(("b",), 20.0)
    made._noted(A, Imports(("no",), 0.0))
    made._noted(A, first)
    made._noted(replace(A, replicate=1), second)
    coming = [replace(A, turn_s=0.5), replace(B, turn_s=0.5), A, replace(A, turn_s=0.5, mode="cpus=0")]
    made.expect(iter(coming))
    assert made._coming == coming[:2]
    assert made._known([A, B, replace(A, seed=4)]) == [(A, first), (replace(A, seed=4), first)]
    for _ in range(2):
        made._get_ready(LIMITS)
    assert made._leader.did == [("expect", [1], LIMITS)], "once, and only what is known"


@pytest.mark.parametrize(
    ("alive", "statuses", "asked"),
    [
        (True, [Status.OOM], 2),
        (True, [Status.OK, Status.OOM], 2),
        (True, [Status.FAILED], 1),
        (False, [Status.OOM], 1),
        (True, [], 1),
    ],
)
def test_memory_that_ran_out_beside_a_leader_is_asked_for_once_more_without_it(made, alive, statuses, asked):
    made._leader.alive, times = alive, []
    answer = [result(A, status=status) for status in statuses]
    assert made._with_room(lambda: times.append(1) or answer) is answer
    assert len(times) == asked and made._leader.did == ["closed"] * (asked - 1)


def test_a_build_that_fails_is_its_result_and_any_other_none(made, monkeypatch):
    answers = [None, result(A, status=Status.FAILED)]
    monkeypatch.setattr(isolated.fresh, "prepare", lambda trial, limits: answers.pop(0))
    failed = answers[1]
    assert made.prepare(A, LIMITS) is None and made.prepare(A, LIMITS) is failed


def test_a_trial_and_a_look_run_alone_once_the_leader_rests(made, monkeypatch):
    asked, meant = [], result(A)
    launch = Launch(("taskset",), {"A": "1"})
    monkeypatch.setattr(isolated.catalog, "find", lambda name, devices: Mode(launch))

    def run(*args, **keys):
        asked.append((args, keys))
        return meant

    monkeypatch.setattr(isolated.fresh, "run", run)
    monkeypatch.setattr(isolated.fresh, "look", run)
    assert made.run(A, LIMITS) is meant and made.look(A, LIMITS, print) is meant
    assert asked[0] == ((A, LIMITS, launch), {"noted": made._noted})
    assert asked[1] == ((A, LIMITS, launch), {"noted": made._noted, "meanwhile": print})
    assert made._leader.did == [("settle", LIMITS)] * 2


def test_a_pair_is_led_and_a_mode_that_starts_programs_its_own_way_has_a_leader_of_its_own(made, monkeypatch):
    made._noted(B, Imports(("a",), 10.0))
    ends, launch = (result(A), result(B)), Launch(("taskset",))
    made._leader.answers = [ends] * 3
    assert made.pair((A, B), "compare", LIMITS) == ends
    asked = ("pair", [1, 2], "compare", LIMITS, [2])
    assert made._leader.did == [asked]
    monkeypatch.setattr(isolated.catalog, "find", lambda name, devices: Mode(launch))
    made._leader.did.clear()
    assert made.pair((A, B), "compare", LIMITS) == ends
    assert made._leader.did == ["closed", asked, "closed"] and made._leader.launch == launch
    made._leader.did.clear()
    made.pair((A, B), "compare", LIMITS)
    assert made._leader.did == [asked, "closed"]


@pytest.mark.process
def test_a_pair_in_a_mode_that_cannot_be_had_is_two_results_that_say_why(made):
    trials = replace(A, mode="nosuch"), replace(B, mode="nosuch")
    first, second = made.pair(trials, "compare", LIMITS)
    assert (
        (first.trial, second.trial) == trials and first.id != second.id and second.id.startswith(trials[1].id)
    )
    assert first.status is second.status is Status.FAILED
    assert first.reason.code == second.reason.code == "E-MODE-1" and not made._leader.did


def test_sharing_is_part_of_the_mode_unless_somebody_else_sees_to_it(made, monkeypatch):
    asked, daemon = [], object()
    monkeypatch.setattr(isolated, "with_sharing", lambda mode, trial: asked.append(trial) or (mode, daemon))
    monkeypatch.setattr(isolated, "rechecked", lambda found, of: (found, of))
    assert in_mode(A, lambda mode: "measured") == ("measured", daemon) and asked == [A]
    assert in_mode(A, lambda mode: "measured", shared=False) == ("measured", None) and asked == [A]


def test_devices_are_looked_for_only_where_a_mode_is_asked_for(made, monkeypatch):
    given = []
    monkeypatch.setattr(isolated, "present", lambda: {"cpu": 1})
    monkeypatch.setattr(isolated.catalog, "find", lambda name, devices: given.append(devices) or Mode())
    for mode in ("as_is", "15W"):
        in_mode(replace(A, mode=mode), lambda mode: result(A))
    assert given == [{}, {"cpu": 1}]


@pytest.mark.process
@pytest.mark.parametrize(
    "error", [SettingError("E-MODE-5", "not restored"), UsageError("E-MODE-1", "no mode")]
)
def test_a_setting_that_was_not_put_back_is_a_warning_of_what_was_measured(made, monkeypatch, error):
    @contextmanager
    def entered(mode):
        yield mode
        raise error

    monkeypatch.setattr(isolated, "entered", entered)
    found = in_mode(A, lambda mode: result(A))
    assert found.status is Status.OK and [w.code for w in found.warnings] == ["W-TEST-1", error.code]

    def refuses(mode):
        raise error

    monkeypatch.setattr(isolated, "entered", nullcontext)
    refused = in_mode(A, refuses)
    assert refused.status is not Status.OK and refused.reason.code == error.code and refused.trial == A
