"""Short rounds, final rounds: order, who goes on, what is run again, what the store already knows; and the verb."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from edgescope.analysis.cells import variants
from edgescope.analysis.cells.objective import wanted
from edgescope.cli import optimize as verb
from edgescope.cli.main import main
from edgescope.errors import EdgescopeError
from edgescope.isolate.fresh import Limits
from edgescope.records import Absent, Measured, Status, Trial, Trust, Verdict, Verification, Window
from edgescope.report.chapter import chapter
from edgescope.report.render import terminal
from edgescope.report.variants import document
from edgescope.runner.run import Cells
from edgescope.runner.setup import Setup
from edgescope.search import candidates, halving
from edgescope.search.halving import SHORT_S, Rounds
from edgescope.search.loop import Loop
from edgescope.store.results import Store
from making import MACHINE, queries, result

US = 1_000
#: Ten variants of one model, baseline first, 1000 us to 190 us.
TRIALS = [
    Trial(model="null", backend=backend, precision=precision)
    for backend in ("torch_eager", "torch_compile", "onnxruntime", "openvino", "null")
    for precision in ("fp32", "int8")
]
SPEEDS = dict(zip([(t.backend, t.precision) for t in TRIALS], range(1000, 100, -90), strict=True))


class Scripted:
    """A runner whose answers depend on backend and precision: statuses in order, microseconds, other fields."""

    def __init__(self, statuses=(), speeds=(), stop_after=None, **fields) -> None:
        self.statuses = {key: list(answers) for key, answers in dict(statuses).items()}
        self.speeds, self.fields = SPEEDS | dict(speeds), fields
        self.ran: list[Trial] = []
        self.stop_after = stop_after

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            raise KeyboardInterrupt
        key = (trial.backend, trial.precision)
        self.ran.append(trial)
        status = self.statuses.get(key, [])
        latency = self.speeds.get(key, 500) * US
        given = {
            "status": status.pop(0) if status else Status.OK,
            "queries": queries(50, latency),
            "window": Window(10, 50, 10 * latency, 50 * latency),
            "readings": None,
            "metrics": {"latency_p50_s": Measured(latency * 1e-9, "s", n=40)},
        }
        extra = {name: field(trial) for name, field in self.fields.items()}
        return result(trial, id_=f"{trial.id}-{len(self.ran)}-{id(self)}", **(given | extra))

    def keys(self, stage, number=None):
        """(backend, precision) of what ran in a stage, in order."""
        return [
            (t.backend, t.precision)
            for t in self.ran
            if (t.max_s <= SHORT_S) == (stage == "short") and number in (None, t.replicate)
        ]


def optimised(tmp_path, runner, trials=TRIALS, asked=None, **rounds):
    cells = Cells(Store(tmp_path), Limits(), runner, MACHINE)
    rounds = Rounds(**({"count": 3} | rounds))
    return raced(trials, cells, wanted=asked or wanted("latency"), rounds=rounds)


def raced(trials, cells, tell=lambda step: None, **how):
    return list(Loop(cells, tell).run(halving.halving(trials, **how)))


class Timed(Scripted):
    """Runs that take fake time: the first artifact also exports, a final run lasts its window."""

    def __init__(self, export=40.0, build=4.0, start=3.0) -> None:
        super().__init__()
        self.now, self.export, self.build, self.start = 0.0, export, build, start

    def monotonic(self):
        return self.now

    def prepare(self, trial, limits):
        self.now += self.build if self.ran else self.export
        return None

    def run(self, trial, limits):
        self.now += self.start + trial.max_s
        return super().run(trial, limits)


def test_the_time_that_is_left_is_right_within_a_factor_of_two(tmp_path):
    runner, told = Timed(), []
    trials = [replace(t, min_s=1.0, max_s=2.5) for t in TRIALS]
    cells = Cells(Store(tmp_path), Limits(), runner, MACHINE, clock=runner.monotonic)

    def tell(step):
        told.append((runner.now, step.eta_s))

    raced(trials, cells, rounds=Rounds(count=5), tell=tell)
    said = [(runner.now - at, eta) for at, eta in told if eta is not None]
    assert len(said) >= len(told) - 2
    assert all(left / 2 <= eta <= 2 * left for left, eta in said), said


def test_all_are_screened_once_and_only_the_best_and_the_baseline_run_on(tmp_path):
    runner = Scripted()
    results = optimised(tmp_path, runner)
    assert sorted(runner.keys("short", 0)) == sorted(SPEEDS)
    best = sorted(SPEEDS, key=SPEEDS.get)
    assert set(runner.keys("short", 1)) == set(best[:4])  # a third of ten, rounded up
    finalists = {("torch_eager", "fp32"), *best[:2]}  # a third of four, and the baseline
    left = {("torch_eager", "fp32"), best[0]}  # half as fast again as the other in two rounds: no third
    assert [set(runner.keys("final", n)) for n in range(3)] == [finalists, finalists, left]
    assert len(runner.ran) == 10 + 4 + 8 == len(results)
    found = variants.table(results)
    assert variants.pick(found).row.label == "null int8 b1"
    assert {r.label for r in found.rows} == {f"{b} {p} b1" for b, p in finalists}
    assert len(found.screened) == 7
    assert found.row(found.baseline).replicates.keys() == {0, 1, 2}


@pytest.mark.parametrize(
    ("behind", "trust", "rounds"),
    [(1.02, Trust.CLEAN, 5), (1.07, Trust.CLEAN, 3), (1.20, Trust.CLEAN, 2), (1.20, Trust.DISTURBED, 3)],
)
def test_a_finalist_that_is_clearly_behind_runs_no_more(tmp_path, behind, trust, rounds):
    best, other = ("null", "int8"), ("null", "fp32")
    runner = Scripted(
        speeds={best: 200, other: round(200 * behind)}, verdict=lambda trial: Verdict(trust, ("x",))
    )
    optimised(tmp_path, runner, count=5)
    assert runner.keys("final").count(other) == rounds
    assert runner.keys("final").count(best) == runner.keys("final").count(("torch_eager", "fp32")) == 5


def test_dear_candidates_run_once_in_the_short_rounds_and_last(tmp_path):
    runner = Scripted(speeds={("torch_compile", "int8"): 150})
    optimised(tmp_path, runner)
    assert {k[0] for k in runner.keys("short", 0)[-2:]} == {"torch_compile"}
    assert ("torch_compile", "int8") not in runner.keys("short", 1)
    assert runner.keys("final").count(("torch_compile", "int8")) == 3


def test_dear_candidates_are_in_random_order_in_the_final_rounds(tmp_path):
    runner = Scripted()
    optimised(tmp_path, runner, short=0, count=5)
    dear = [n for n in range(5) if {k[0] for k in runner.keys("final", n)[-2:]} == {"torch_compile"}]
    assert len(dear) < 3  # last in every round where they are put there; by chance in one of 45


def test_one_short_run_has_the_wider_margin_in_every_round(tmp_path):
    best, dear, twice = ("null", "int8"), ("torch_compile", "int8"), ("openvino", "int8")
    speeds = {k: 1000 for k in SPEEDS} | {best: 200, dear: 216, twice: 216, ("null", "fp32"): 205}
    runner = Scripted(speeds=speeds)
    optimised(tmp_path, runner, keep=0.2)
    assert twice in runner.keys("short", 1) and dear not in runner.keys("short", 1)
    assert dear in runner.keys("final") and twice not in runner.keys("final")


def mixed(trial):
    from dataclasses import replace

    if trial.precision != "int8" or trial.options:
        return None
    return replace(trial, options={"fallback": True})


@pytest.mark.parametrize("short", [2, 0])
def test_the_mixture_is_tried_once_where_int8_is_wrong(tmp_path, short):
    class Mixture(Scripted):
        def run(self, trial, limits):
            if trial.precision == "int8" and trial.backend in ("null", "openvino") and not trial.options:
                self.ran.append(trial)
                return result(trial, status=Status.WRONG_OUTPUT)
            return super().run(trial, limits)

    def go(runner):
        cells = Cells(Store(tmp_path), Limits(), runner, MACHINE)
        return raced(TRIALS, cells, rounds=Rounds(3, short=short), instead=mixed)

    runner = Mixture()
    found = variants.table(go(runner))
    tried = [(t.backend, t.replicate, t.max_s <= SHORT_S) for t in runner.ran if t.options]
    assert {name for name, *_ in tried} == {"null", "openvino"}
    assert len(set(tried)) == len(tried)
    assert variants.pick(found).row.label == "null int8 b1 fallback=true"
    assert variants.pick(found).row.replicates.keys() == {0, 1, 2}
    again = Mixture()
    go(again)
    assert again.ran == []


@pytest.mark.parametrize("stage", ["short", "final"])
def test_without_a_baseline_nothing_goes_on(tmp_path, stage):
    base = ("torch_eager", "fp32")
    runner = Scripted({base: [Status.OK] * (2 if stage == "final" else 0) + [Status.CRASHED]})
    said = r"E-OPTIM-1: the baseline failed: torch_eager fp32 b1, crashed.*--retry crashed"
    with pytest.raises(EdgescopeError, match=said) as raised:
        optimised(tmp_path, runner, keep=1.0)
    assert raised.value.exit_code == 1
    assert (runner.ran[-1].backend, runner.ran[-1].precision) == base
    assert bool(runner.keys("final")) == (stage == "final")


def test_rejected_rows_say_how_to_measure_them_again(tmp_path, capsys):
    ends = {("null", "int8"): [Status.TIMEOUT], ("null", "fp32"): [Status.OOM], ("openvino", "int8"): []}
    ends[("onnxruntime", "int8")] = [Status.WRONG_OUTPUT]
    ends[("openvino", "int8")] = [Status.OK, Status.OK, Status.CRASHED]
    found = chapter(optimised(tmp_path, Scripted(ends), keep=1.0))
    assert verb.again(found.table) == ["timeout", "crashed", "oom"]
    terminal.show(document([found], again=verb.again(found.table)), verbose=True)
    assert capsys.readouterr().out.count("measure again: --retry timeout,crashed,oom\n") == 1
    fine = variants.table(optimised(tmp_path / "fine", Scripted()))
    assert verb.again(fine) == []


def test_what_cannot_be_told_from_the_best_goes_on(tmp_path):
    tied = {k: 200 for k in list(SPEEDS)[3:]}
    runner = Scripted(speeds=tied)
    optimised(tmp_path, runner)
    assert set(runner.keys("final", 0)) == {("torch_eager", "fp32"), *tied}


def test_one_that_the_machine_disturbed_is_given_the_benefit_of_the_doubt(tmp_path):
    slow = ("openvino", "int8")
    speeds = {k: 1000 for k in SPEEDS} | {("null", "int8"): 100, slow: 120}

    def verdict(trial):
        hit = (trial.backend, trial.precision) == slow
        return Verdict(Trust.DISTURBED if hit else Trust.CLEAN, ("other processes used 40 %",))

    plain, patient = Scripted(speeds=speeds), Scripted(speeds=speeds, verdict=verdict)
    for runner in (plain, patient):
        optimised(tmp_path / str(id(runner)), runner, keep=0.1)
    assert slow not in plain.keys("short", 1) + plain.keys("final")
    assert slow in patient.keys("final")[:3] or slow in patient.keys("short", 1)


def test_what_fails_leaves_at_once(tmp_path):
    gone = {("null", "int8"): [Status.WRONG_OUTPUT], ("null", "fp32"): [Status.UNSUPPORTED]}
    runner = Scripted(gone)
    optimised(tmp_path, runner)
    assert all([(t.backend, t.precision) for t in runner.ran].count(key) == 1 for key in gone)


def test_a_finalist_that_fails_leaves_the_final_rounds(tmp_path):
    runner = Scripted({("null", "int8"): [Status.OK, Status.OK, Status.CRASHED]})
    found = variants.table(optimised(tmp_path, runner))
    assert runner.keys("final").count(("null", "int8")) == 1
    assert variants.pick(found).row.label == "null fp32 b1"


def test_an_unstable_run_is_neither_drawn_again_nor_left_out(tmp_path):
    best = ("null", "int8")
    runner = Scripted({best: [Status.UNSTABLE, Status.OK, Status.UNSTABLE, Status.UNSTABLE]})
    found = optimised(tmp_path, runner)
    assert runner.keys("short", 0).count(best) == 1
    assert runner.keys("final").count(best) == 3
    pick = variants.pick(variants.table(found)).row
    assert pick.label == "null int8 b1" and pick.pairs == "3 of 3 pairs"
    assert pick.notes == ("null int8 b1: 2 of 3 replicates unstable; they count",)
    again = Scripted()
    optimised(tmp_path, again)
    assert again.ran == []


def test_few_candidates_are_not_screened(tmp_path):
    runner = Scripted()
    optimised(tmp_path, runner, TRIALS[:2])
    assert runner.keys("short") == [] and len(runner.keys("final")) == 6


def test_exhaustive_means_every_candidate_in_every_round(tmp_path):
    runner = Scripted()
    optimised(tmp_path, runner, short=0)
    assert runner.keys("short") == []
    assert Counter(runner.keys("final")) == dict.fromkeys(SPEEDS, 3)
    orders = [runner.keys("final", n) for n in range(3)]
    assert orders[0] != orders[1] or orders[1] != orders[2]


def test_a_second_call_runs_nothing(tmp_path):
    first = optimised(tmp_path, Scripted())
    again = Scripted()
    second = optimised(tmp_path, again)
    assert again.ran == []
    assert [r.id for r in second] == [r.id for r in first]


@pytest.mark.parametrize("stop", [0, 7, 10, 12, 16])
def test_a_killed_run_goes_on_where_it_was(tmp_path, stop):
    whole, cut, rest = Scripted(), Scripted(stop_after=stop), Scripted()
    optimised(tmp_path / "whole", whole, count=1)
    with pytest.raises(KeyboardInterrupt):
        optimised(tmp_path / "cut", cut, count=1)
    optimised(tmp_path / "cut", rest, count=1)
    assert [t.id for t in cut.ran + rest.ran] == [t.id for t in whole.ran]


def test_one_that_breaks_a_constraint_does_not_take_a_finalists_place(tmp_path):
    def metrics(trial):
        key = (trial.backend, trial.precision)
        big = 5e9 if key == ("null", "int8") else 1e8
        p50 = Measured(SPEEDS[key] * 1e-6, "s", n=40)
        return {"latency_p50_s": p50, "peak_rss_bytes": Measured(big, "bytes")}

    asked = wanted("latency", ["memory<=2GB"])
    runner = Scripted(metrics=metrics)
    found = variants.table(optimised(tmp_path, runner, asked=asked), wanted=asked)
    assert ("null", "int8") not in runner.keys("final")
    assert variants.pick(found).row.label == "null fp32 b1"
    none = Scripted(metrics=metrics)
    asked = wanted("latency", ["memory<=50MB"])
    found = variants.table(optimised(tmp_path / "none", none, asked=asked), wanted=asked)
    best = variants.pick(found)
    assert none.keys("final") and best.row is None and best.nearest is not None
    assert str(best.reason).startswith("infeasible: no variant") and "memory<=50MB broken: 100 MB" in str(
        best.reason
    )


def test_without_the_objectives_figure_no_final_round_is_run(tmp_path):
    runner = Scripted(metrics=lambda trial: {"energy_per_sample_j": Absent("no sensor")})
    found = variants.table(optimised(tmp_path, runner, asked=wanted("energy")))
    assert len(runner.ran) == len(TRIALS)
    best = variants.pick(found, "energy")
    assert best.row is None and "no sensor" in str(best.reason)


def test_progress_counts_rounds_and_knows_when_it_ends(tmp_path):
    steps = []
    cells = Cells(Store(tmp_path), Limits(), Scripted(), MACHINE)
    raced(TRIALS, cells, rounds=Rounds(3), tell=steps.append)
    counts = {("short", 1): 10, ("short", 2): 4, ("final", 1): 3, ("final", 2): 3, ("final", 3): 2}
    assert [(s.stage, s.round) for s in steps] == [key for key, n in counts.items() for _ in range(n)]
    assert steps[0].eta_s is None and all(s.eta_s >= 0 for s in steps[2:])
    assert steps[0].total == 10 and steps[-1].total == steps[-1].position == 2


def quick(monkeypatch, runner):
    monkeypatch.setattr(candidates, "installed", dict)  # asking the engines takes seconds
    monkeypatch.setattr(Setup, "cells", lambda self, store: Cells(store, Limits(), runner, MACHINE))


def test_nothing_to_recommend_exits_1(tmp_path, monkeypatch, capsys):
    wrong = Verification(False, "centred_l2", {}, 0.1, "outputs differ by 3.0")

    class Wrong(Scripted):
        def run(self, trial, limits):
            return result(trial, status=Status.WRONG_OUTPUT, verification=wrong)

    quick(monkeypatch, Wrong())
    assert main(["optimize", "squeezenet1_1", "--rounds", "1", "--store", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "E-OPTIM-1" in said
    assert "outputs differ by 3.0" in said and "--retry wrong_output" in said


def test_a_constraint_that_nothing_keeps_exits_1_and_names_the_nearest(tmp_path, monkeypatch, capsys):
    quick(monkeypatch, Scripted())
    flags = ["--rounds", "1", "--store", str(tmp_path), "--backend", "openvino", "--device", "cpu", "--json"]
    assert main(["optimize", "squeezenet1_1", *flags, "--constraint", "p50<=1us"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["pick"]["nearest"] in {row["cell"] for row in found["rows"]}
    assert "the binding constraint is p50<=1us" in found["pick"]["reason"]
    assert found["constraints"] == ["p50<=1us"]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--constraint", "p99<=fast"], "E-CONS-1"),
        (["--backend", "openvno"], "Try: --backend openvino"),
        (["--exclude", "precision=fp33"], "E-TRY-1"),
        (["--output", "r.pdf"], "E-REPORT-1"),
        (["--save", "."], "E-DEPLOY-1"),
        (["--save", "mine.txt/deployed"], "E-DEPLOY-7: --save"),
    ],
)
def test_what_cannot_be_understood_is_said_before_anything_runs(tmp_path, monkeypatch, capsys, flags, code):
    (tmp_path / "mine.txt").write_text("not yours")
    monkeypatch.chdir(tmp_path)
    runner = Scripted()
    quick(monkeypatch, runner)
    assert main(["optimize", "squeezenet1_1", "--device", "cpu", *flags]) == 2
    assert code in capsys.readouterr().err and runner.ran == []


NETWORK = """
import torch

def net():
    torch.manual_seed(0)
    widths = [3, 16, 16, 16, 16, 16, 16, 16, 16]
    convolutions = [torch.nn.Conv2d(i, o, 3, padding=1) for i, o in zip(widths, widths[1:])]
    last = torch.nn.Linear(64, 10)
    with torch.no_grad():  # a weight that meets zeros only: int8 rounds the others to nothing
        convolutions[-1].weight[0], convolutions[-1].bias[0], last.weight[:, 0] = 0, -1, 300
    hidden = [part for convolution in convolutions for part in (convolution, torch.nn.ReLU())]
    layers = [*hidden, torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), last]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 3, 32, 32),)
"""


@pytest.mark.slow
def test_optimize_whole_on_real_engines(tmp_path, monkeypatch, capsys):
    (tmp_path / "small_for_optimize.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    fewer = (
        "backend=torch_compile precision=bf16 backend=litert qdq=s8s8 layout=channels_last"  # tested apart
    )
    flags = ["--device", "cpu", "--rounds", "1", "--duration", "300ms"]
    flags += [word for values in fewer.split() for word in ("--exclude", values)]
    code = main(
        ["optimize", "small_for_optimize:net", *flags, "--json", "--output", "r.html", "--save", "kept"]
    )
    found = json.loads(capsys.readouterr().out)
    rows = {row["label"]: row for row in found["rows"]}
    assert code == 0
    assert found["pick"]["cell"] in {row["cell"] for row in found["rows"] if not row["rejected"]}
    assert rows["torch_eager fp32 b1"]["speedup"]["value"] == 1
    wrong = [row["label"] for row in found["rows"] if row["rejected"].startswith("wrong outputs")]
    assert {"onnxruntime int8 b1", "openvino int8 b1"} <= set(wrong)  # shown, never picked: see above
    assert (tmp_path / "r.html").stat().st_size > 1_000_000
    card = json.loads((tmp_path / "kept/card.json").read_text())
    assert card["trial"]["backend"] == rows[card["label"]]["trial"]["backend"]


def test_the_answer_shows_itself_in_a_notebook(tmp_path, monkeypatch):
    from edgescope.errors import UnavailableError
    from edgescope.verbs.optimize import answered

    found = answered(optimised(tmp_path, Scripted()), wanted("latency"))
    page = found._repr_html_()
    assert found.pick.row.label in page and "<table" in page and "<script" not in page and len(page) < 50_000
    assert found.report(tmp_path / "report.html").stat().st_size > len(page)
    monkeypatch.setattr("edgescope.records.answers.FRAMES", ())
    with pytest.raises(UnavailableError, match="pip install pandas"):
        _ = found.table


@pytest.mark.parametrize(("model", "inputs"), [("null", 1), (lambda x: x, None)])
def test_a_name_comes_without_inputs_and_a_network_with_them(model, inputs):
    from edgescope.verbs.optimize import named

    with pytest.raises(EdgescopeError, match="E-LIVE-4"):
        named(model, inputs)
