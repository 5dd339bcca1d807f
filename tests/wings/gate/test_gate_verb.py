"""The verdict on two trials in turns and on what is stored, its files, and its exit code."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

import edgescope
from edgescope.cli.main import main
from edgescope.devices import manifest
from edgescope.errors import UsageError
from edgescope.records import Alternation, Measured, Status, Trial, Turn
from edgescope.store.results import Store
from edgescope.wings.gate.judging import Verdict
from edgescope.wings.gate.limits import parse
from edgescope.wings.gate.page import document, junit
from edgescope.wings.gate.verb import LOOKS, InTurns, Question, gate
from making import result

OLD, NEW = Trial(model="old"), Trial(model="new")
LATENCY = Question((parse("latency=5%"),), ())


class Rounds:
    """Pairs in turns of which the second side takes `factor` times as long, each in `pair_s` seconds of fake time."""

    def __init__(
        self, factor, spread=0.01, pair_s=10.0, ends=lambda number: (Status.OK, Status.OK), whole=1.0
    ):
        """`whole`: how many times as long the whole window of the second side says, its turns aside."""
        self.factor, self.spread, self.pair_s, self.ends, self.now = factor, spread, pair_s, ends, 0.0
        self.whole = {"old": 1.0, "new": whole}

    def run_pair(self, baseline, candidate, purpose, limit_s):
        number = baseline.replicate
        self.now += self.pair_s
        off = 1 + self.spread * (-1) ** number
        found = []
        for name, trial, status, seconds in zip(
            ("old", "new"),
            (baseline, candidate),
            self.ends(number),
            (0.01, 0.01 * self.factor * off),
            strict=True,
        ):
            places = (0, 3) if name == "old" else (1, 2)
            turns = tuple(Turn(b, 4 * b + p, 4 * b + p + 1, 1, seconds) for b in range(4) for p in places)
            partner = f"{'new' if name == 'old' else 'old'}{number}"
            of = replace(trial, turn_s=0.1)
            made = result(
                of, id_=f"{name}{number}", status=status, started_at=f"2026-11-29T10:{number:02}:00+00:00"
            )
            metrics = {"latency_p50_s": Measured(seconds * self.whole[name], "s", n=9)}
            found.append(
                replace(made, metrics=metrics, alternation=Alternation(partner, name, purpose, turns, 0.0))
            )
        return found[0], found[1]


def judged(rounds, budget_s=1e4, question=LATENCY):
    return InTurns((OLD, NEW), rounds, budget_s, clock=lambda: rounds.now).judged(question)


@pytest.mark.parametrize(("factor", "kind"), [(1.0, Verdict.PASS), (1.3, Verdict.FAIL)])
def test_what_is_clear_is_decided_at_the_first_look(factor, kind):
    found = judged(Rounds(factor))
    assert (found.verdict, found.pairs) == (kind, LOOKS[0])
    assert found.seconds == 10.0 * LOOKS[0] and len(found.results) == 2 * LOOKS[0]


def test_the_turns_decide_and_not_the_whole_windows():
    """A machine that slowed down while one side had more of the window says nothing about the side."""
    assert judged(Rounds(1.0, whole=2.0)).verdict is Verdict.PASS


def test_what_is_not_clear_goes_on_to_the_next_look():
    found = judged(Rounds(1.0, spread=0.045))
    assert found.verdict is Verdict.PASS and found.pairs in LOOKS[1:]


def test_the_budget_ends_it_undecided_and_says_what_would_decide():
    found = judged(Rounds(1.03, spread=0.2), budget_s=95)
    assert found.verdict is Verdict.INCONCLUSIVE and found.pairs == 9
    assert "more pairs" in found.checks[1].why


@pytest.mark.parametrize("status", [Status.CRASHED, Status.WRONG_OUTPUT, Status.OOM])
def test_a_candidate_that_fails_is_no_pass_and_ends_it(status):
    found = judged(Rounds(1.0, ends=lambda number: (Status.OK, status)))
    assert found.verdict is Verdict.FAIL and len(found.results) == 2


def code_of(call, *args, **keys):
    with pytest.raises(UsageError) as refused:
        call(*args, **keys)
    assert refused.value.message.fix
    return refused.value.message.code


def test_a_baseline_that_failed_is_refused():
    assert code_of(judged, Rounds(1.0, ends=lambda number: (Status.WRONG_OUTPUT, Status.OK))) == "E-JUDGE-2"


@pytest.mark.process  # git, for the machine's description
def test_a_baseline_whose_answers_are_wrong_is_refused_though_it_was_timed(stored):
    store, add = stored
    add("null", [0.01] * 3)
    add("nulls", [0.01] * 3)
    old, new = ([r for r in store.results() if r.trial.model == model] for model in ("null", "nulls"))
    wrong = [replace(r, verification=replace(r.verification, passed=False)) for r in old]
    assert gate(new, old).verdict is not None
    assert code_of(gate, new, wrong) == "E-JUDGE-2"


def test_no_pair_in_time_is_no_verdict():
    assert code_of(judged, Rounds(1.0, ends=lambda number: (Status.CANCELLED,) * 2)) == "E-JUDGE-8"


def test_what_cannot_be_judged_is_refused_before_anything_is_measured(tmp_path):
    keys = {"store": tmp_path}
    assert code_of(gate, NEW, **keys) == "E-JUDGE-3"
    assert code_of(gate, NEW, "3f2a", **keys) == "E-JUDGE-4"
    assert code_of(gate, NEW, limits=["latency=5%"], **keys) == "E-JUDGE-5"
    assert code_of(gate, NEW, NEW, **keys) == "E-JUDGE-6"
    assert code_of(gate, NEW, replace(OLD, batch=2), **keys) == "E-JUDGE-7"
    assert not list(tmp_path.iterdir())


def test_memory_and_energy_are_measured_without_turns_and_the_rest_with():
    assert LATENCY.measured(NEW).turn_s and LATENCY.measured(NEW).idle_s == 0
    own = replace(NEW, min_s=3.0, max_s=4.0)
    assert (LATENCY.measured(own).min_s, LATENCY.measured(own).max_s) == (3.0, 4.0)
    for text in ("memory=10%", "energy=10%", "power=10%"):
        assert Question((parse("latency=5%"), parse(text)), ()).measured(NEW) == NEW


@pytest.fixture
def stored(tmp_path):
    """A store with three replicates of two models on this machine; returns (store, add)."""
    store, here = Store(tmp_path / "store"), manifest.here()

    def add(model, seconds, **keys):
        made = []
        for i, s in enumerate(seconds):
            trial = Trial(model=model, replicate=i, **keys)
            at = f"2026-11-29T10:{i:02}:{len(model):02}+00:00"
            metrics = {"latency_p50_s": Measured(s, "s", 0.9 * s, 1.1 * s, n=50)}
            one = result(trial, started_at=at, metrics=metrics, id_=None)
            made.append(store.save(replace(one, machine=here)))
        return trial.cell[:8]

    return store, add


def run(store, *words):
    return main(["gate", "--store", str(store.root), *words])


@pytest.mark.process  # git, for the machine's description
def test_stored_cells_are_judged_and_the_exit_code_says_how(stored, tmp_path, capsys):
    store, add = stored
    old, same, slow = (
        add("null", [0.010, 0.0101, 0.0099]),
        add("nulls", [0.0101, 0.0101, 0.0099]),
        add("slower", [0.02, 0.0201, 0.0199]),
    )
    files = ["--junit", str(tmp_path / "g.xml"), "-o", str(tmp_path / "g.md")]
    assert run(store, same, "--baseline", old) == 0
    assert run(store, slow, "--baseline", old, *files) == 1
    assert run(store, slow, "--baseline", old, "--limit", "memory=5%") == 7
    capsys.readouterr()
    assert run(store, slow, "--baseline", old, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "FAIL" and [c["verdict"] for c in told["checks"]] == ["PASS", "FAIL"]
    suite = ET.parse(tmp_path / "g.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    page = (tmp_path / "g.md").read_text()
    assert page.startswith("# FAIL") and "| latency=5% | FAIL |" in page


@pytest.mark.process  # git, for the machine's description
def test_one_cell_is_judged_by_its_own_figures(stored):
    store, add = stored
    name = add("null", [0.010, 0.0101, 0.0099])
    assert run(store, name, "--constraint", "p50<=20ms") == 0
    assert run(store, name, "--constraint", "p50<=2ms") == 1
    assert run(store, name, "--constraint", "memory<=2GB") == 7


@pytest.mark.process  # git, for the machine's description
def test_another_setting_is_no_baseline(stored):
    store, add = stored
    old, new = add("null", [0.01] * 3), add("nulls", [0.01] * 3, batch=2)
    assert code_of(edgescope.gate, new, old, store=store) == "E-JUDGE-7"
    assert run(store, new, "--baseline", old) == 2


def test_an_undecided_check_is_an_error_in_junit_and_never_absent():
    found = judged(Rounds(1.03, spread=0.2), budget_s=50)
    suite = ET.fromstring(junit(found))
    assert [case.get("name") for case in suite] == ["outputs", "latency=5%"]
    assert suite[1].find("error").get("type") == "INCONCLUSIVE" and suite.get("errors") == "1"
    assert document(found).data["verdict"] == "INCONCLUSIVE"


@pytest.mark.process
@pytest.mark.slow
def test_two_real_models_take_turns_and_the_slower_fails(tmp_path):
    found = gate(
        Trial(model="null", backend="null", options={"delay_us": 3000}),
        Trial(model="null", backend="null", options={"delay_us": 1000}),
        store=tmp_path,
        budget=60,
    )
    assert found.verdict is Verdict.FAIL and found.pairs >= LOOKS[0]
    assert 2 < found.checks[1].ratio.value < 4
