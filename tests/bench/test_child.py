"""The process a trial runs in: what differs between its verbs."""

import gc
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from edgescope import bench
from edgescope.bench import child
from edgescope.isolate import fresh, notes
from edgescope.records import Status, Trial
from edgescope.store.results import read
from edgescope.tracing import FOLDER

NULL = Trial(model="null", backend="null")


@pytest.mark.process  # git, for the machine's description
@pytest.mark.parametrize(("verb", "seldom"), [("prepare", True), ("run", False), ("look", False)])
def test_only_a_process_that_builds_collects_garbage_seldom_once_it_has_imported(
    tmp_path, monkeypatch, verb, seldom
):
    """A measured process collects it as a user's own would."""
    before, seen = gc.get_threshold(), []

    def ends(started, **_):
        seen.append(gc.get_threshold())
        return started

    def present():
        seen.append(gc.get_threshold())
        return {}

    monkeypatch.setattr(child, "USUAL", (701, 11, 12))  # what no one else has set
    monkeypatch.setattr(child, "die_with_parent", lambda pid: None)
    monkeypatch.setattr(bench, "present", present)
    for name in ("prepare", "look", "answer"):
        monkeypatch.setattr(bench, name, ends)
    (tmp_path / "trial.json").write_text(json.dumps(NULL.to_json()))
    try:
        assert child.main([verb, str(tmp_path), "1"]) == 0
    finally:
        gc.set_threshold(*before)
    assert seen == [child.SELDOM, child.SELDOM if seldom else child.USUAL]


class Pipe:
    """A parent that gives these orders and keeps what it is told."""

    def __init__(self, *orders):
        self.orders, self.sent = orders, []

    def __iter__(self):
        return iter(self.orders)

    def send(self, **what):
        self.sent.append(what)


@pytest.fixture
def calls(monkeypatch):
    """What a process does that serves: each call by its name, with what it was given."""
    made = []

    class Kept:
        pids = frozenset()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            made.append((type(self).__name__, "exit"))

    class WorkerPools(Kept):
        pids = {1, 2}  # noqa: RUF012

        def begin(self, env, prestart):
            made.append(("begin", env, prestart.workers, prestart.floor_bytes))

    class Forks(Kept):
        pids = {2, 3}  # noqa: RUF012

        def expect(self, trials):
            made.append(("expect", trials, self.floor_bytes))

        def ready(self):
            made.append(("ready",))

        def learn(self, trial, imports):
            made.append(("learn", trial.model, imports.names))

    monkeypatch.setattr("edgescope.isolate.pool.WorkerPools", WorkerPools)
    monkeypatch.setattr("edgescope.isolate.forks.Forks", Forks)
    monkeypatch.setattr(child.warden, "adopt", lambda: made.append(("adopt",)))
    monkeypatch.setattr(child.warden, "end_strangers", lambda known: made.append(("strangers", known)))
    monkeypatch.setattr(child, "_answer", lambda verb, folder, pools: made.append(("answer", verb, folder)))
    monkeypatch.setattr(child, "_answer_pair", lambda folder, forks: made.append(("pair", folder)))
    monkeypatch.setenv("EDGESCOPE_TIMEOUT", "")
    return made


TOLD = {"trial": NULL.to_json(), "imports": {"names": ["numpy"], "took_bytes": 5.0}}
END = [("strangers", {1, 2, 3})]
EXITS = [("Forks", "exit"), ("WorkerPools", "exit")]


def served(monkeypatch, *orders):
    pipe = Pipe(*({"timeout_s": 7.5, "floor_bytes": 9, "folder": "/f"} | order for order in orders))
    monkeypatch.setattr(child.Pipe, "own", lambda: pipe)
    assert child.serve() == 0
    assert pipe.sent == [{"event": "done"}] * len(orders)


def test_trials_and_pairs_are_answered_one_after_another_and_strangers_ended(monkeypatch, calls):
    served(
        monkeypatch,
        {"verb": "run", "env": {"A": "1"}, "prestart": 2},
        {"verb": "expect", "workers": [TOLD, TOLD]},
        {"verb": "pair", "workers": [TOLD]},
    )
    learn = ("learn", "null", ("numpy",))
    run = [("adopt",), ("begin", {"A": "1"}, 2, 9), ("answer", "run", Path("/f")), *END]
    expect = [learn, learn, ("expect", [NULL, NULL], 9), ("ready",), *END]
    assert calls == [*run, *expect, learn, ("pair", Path("/f")), *END, *EXITS]
    assert os.environ[fresh.TIMEOUT] == "7.5"


@pytest.mark.parametrize(("verb", "kept"), [("serve", True), ("run", False)])
def test_a_process_ends_with_its_parent_and_serves_if_asked(monkeypatch, tmp_path, verb, kept):
    seen = []
    monkeypatch.setattr(child, "die_with_parent", lambda pid: seen.append(pid))
    monkeypatch.setattr(child, "serve", lambda: seen.append("serve") or 5)
    monkeypatch.setattr(child, "_answer", lambda verb, folder: seen.append((verb, folder)))
    assert child.main([verb, str(tmp_path), "42"]) == (5 if kept else 0)
    assert seen == [42, "serve" if kept else (verb, tmp_path)]


def test_a_program_on_a_board_is_driven_from_here(monkeypatch, tmp_path):
    seen = []
    (tmp_path / "trial.json").write_text(json.dumps(NULL.to_json()))
    monkeypatch.setenv("EDGESCOPE_ON", "user@board")
    monkeypatch.setattr(child, "die_with_parent", lambda pid: None)
    monkeypatch.setattr(child.registry, "need", lambda what, name, fix: lambda *given: seen.append(given))
    assert child.main(["run", str(tmp_path), "1"]) == 0
    assert seen == [("run", NULL, "user@board", tmp_path)]


@pytest.mark.process
@pytest.mark.parametrize(
    ("verb", "pools", "told"),
    [("run", None, True), ("look", None, True), ("prepare", None, False), ("run", object(), False)],
)
def test_what_a_trial_began_as_is_there_before_its_result(monkeypatch, tmp_path, verb, pools, told):
    seen = []
    (tmp_path / "trial.json").write_text(json.dumps(NULL.to_json()))

    def answered(name):
        def answer(started, **given):
            assert read(tmp_path / "begun").id == started.id and not list((tmp_path / "result").iterdir())
            seen.append((name, {key: value for key, value in given.items() if key == "pools"}))
            return replace(started, status=Status.OK)

        return answer

    for name in ("answer", "prepare", "look"):
        monkeypatch.setattr(bench, name, answered(name))
    monkeypatch.setattr(bench, "present", dict)
    monkeypatch.setattr(notes, "tell", lambda folder, result: seen.append((folder, result.status)))
    child._answer(verb, tmp_path, pools)
    name = "answer" if verb == "run" else verb
    assert seen[0] == (name, {"pools": pools} if name == "answer" else {})
    assert seen[1:] == ([(tmp_path, Status.OK)] if told else [])
    assert read(tmp_path / "begun").status is Status.FAILED and read(tmp_path / "result").status is Status.OK


@pytest.mark.process
def test_the_sides_of_a_pair_have_a_folder_each(monkeypatch, tmp_path):
    from edgescope.bench import alternation

    seen = []
    for name, seed in (("baseline", 1), ("candidate", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trial.json").write_text(json.dumps(replace(NULL, seed=seed).to_json()))
    (tmp_path / "purpose").write_text("selecting")

    def measure(begun, devices, hz, *, purpose, forks):
        seen.append((tuple(one.trial.seed for one in begun), devices, hz, purpose, forks))
        assert [read(tmp_path / side / "begun").id for side in fresh.PAIR] == [one.id for one in begun]
        return tuple(replace(one, status=Status.OK) for one in begun)

    monkeypatch.setattr(alternation, "measure", measure)
    monkeypatch.setattr(bench, "present", dict)
    child._answer_pair(tmp_path, "forks")
    assert seen == [((1, 2), {}, 10.0, "selecting", "forks")]
    ends = [read(tmp_path / side / "result") for side in fresh.PAIR]
    assert [(end.status, end.trial.seed) for end in ends] == [(Status.OK, 1), (Status.OK, 2)]


@pytest.mark.parametrize("code", [0, 4])
def test_a_process_leaves_at_once_but_under_a_tracer(monkeypatch, code):
    left = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.delenv(FOLDER, raising=False)
    child.leave(code)
    assert left == [code]
    child.leave()
    assert left == [code, 0]
    monkeypatch.setenv(FOLDER, "/t")
    with pytest.raises(SystemExit) as ended:
        child.leave(code)
    assert ended.value.code == code and len(left) == 2
