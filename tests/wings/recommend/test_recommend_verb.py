"""edgescope recommend: stored cells, several models and machines, a study's question, a real search."""

import dataclasses
import json
import re

import pytest

from edgescope.cli.main import main
from edgescope.records import Absent, Machine, Measured, Status, Trial
from edgescope.search import candidates
from edgescope.store.results import Store
from edgescope.wings.recommend.verb import Question, Scope
from making import MACHINE, result


def saved(store, sps, p99_ms, *, machine=MACHINE, replicates=2, **keys):
    for i in range(replicates):
        metrics = {
            "throughput_sps": Measured(sps * (1 + 0.01 * i), "samples/s"),
            "latency_p50_s": Measured(p99_ms * 0.8e-3, "s"),
            "latency_p99_s": Measured(p99_ms * 1e-3, "s"),
            "latency_p99_bound_s": Measured(p99_ms * 1.02e-3, "s"),
            "peak_rss_bytes": Measured(1e8, "bytes"),
            "power_w": Absent("no power sensor"),
        }
        trial = Trial(**({"model": "null", "backend": "null", "replicate": i} | keys))
        store.save(
            dataclasses.replace(
                result(trial, metrics=metrics, queries=None, window=None, readings=None), machine=machine
            )
        )


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    saved(made, 100, 10)
    saved(made, 200, 40, batch=4)
    return made


def asked(store, *flags):
    return main(["recommend", "--store", str(store.root), *flags])


@pytest.mark.process
def test_the_page_shows_the_pareto_set_the_pick_and_its_price(store, capsys):
    assert asked(store, "-v", "--constraint", "p99<=33ms", "--constraint", "memory<=2GB") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "null: highest throughput with p99<=33ms, memory<=2GB" in out
    assert "2 cells, 4 processes on machine" in out and "1 break a constraint" in out
    assert "Use null fp32 b1" in out and "breaks p99<=33ms" in out
    assert "50 % less throughput than null fp32 b4, which breaks p99<=33ms: 40.8 ms" in out


@pytest.mark.process
def test_json_holds_every_cell_and_its_judged_ends(store, capsys):
    assert asked(store, "--json", "--objective", "latency") == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["objective"] == "latency" and len(answer["cells"]) == 2
    pick = next(c for c in answer["cells"] if c["cell"] == answer["pick"])
    assert pick["trial"]["batch"] == 1 and pick["p99_s"]["hi"] == pytest.approx(0.0102)
    assert len(pick["results"]) == 2 and answer["front"]


@pytest.mark.slow
def test_no_pick_is_exit_code_1(store, capsys):
    assert asked(store, "--constraint", "p99<=1ms") == 1
    assert "infeasible: no cell keeps every constraint" in " ".join(capsys.readouterr().out.split())
    assert asked(store, "--objective", "watts") == 1
    assert "no power sensor" in capsys.readouterr().out


@pytest.mark.slow
def test_two_other_machines_are_refused_until_one_is_chosen(store, capsys):
    other = Machine({"cpu": "another"}, {})
    saved(store, 300, 10, machine=other, batch=2)
    assert asked(store) == 2
    assert "E-MIX-1" in capsys.readouterr().err
    assert asked(store, "--machine", other.id[:8]) == 0
    assert "Use  null fp32 b2" in capsys.readouterr().out


@pytest.mark.slow
def test_another_machine_is_named_right_or_refused_and_never_searched_for(store, monkeypatch, capsys):
    monkeypatch.setattr(candidates, "installed", dict)
    assert asked(store, "null", "--machine", "zzz") == 2
    assert re.search("E-MIX-2: .* 'zzz'", " ".join(capsys.readouterr().err.split()))
    assert asked(store, "null", "--batch", "2", "--machine", MACHINE.id[:8]) == 2
    assert "E-MIX-3: this machine " in " ".join(capsys.readouterr().err.split())
    assert asked(Store(store.root / "empty"), "null", "--machine", "zzz") == 2
    assert "E-MIX-3" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "labels"),
    [
        ((), ["null fp32 b1", "null fp32 b4", "null fp32 b4 P2", "null cuda int8 b4"]),
        (("--precision", "fp32", "--device", "cpu"), ["null fp32 b1", "null fp32 b4", "null fp32 b4 P2"]),
        (("--batch", "1,8"), ["null fp32 b1"]),
        (("--processes", "2,4"), ["null fp32 b4 P2"]),
        (("--precision", "fp16,int8"), ["null cuda int8 b4"]),
    ],
)
def test_stored_cells_have_what_was_typed(store, capsys, flags, labels):
    saved(store, 300, 10, batch=4, processes=2)
    saved(store, 900, 5, batch=4, device="cuda", precision="int8")
    assert asked(store, "null", "--json", *flags) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert sorted(Trial(**c["trial"]).label for c in answer["cells"]) == sorted(labels)


@pytest.mark.process
def test_cells_of_two_rates_are_two_questions(store, capsys):
    saved(store, 10, 20, scenario="server", rate=10.0)
    saved(store, 100, 30, scenario="server", rate=100.0)
    assert asked(store, "--scenario", "server", "--rate", "10") == 0
    assert "Use  null fp32 b1 server 10/s" in capsys.readouterr().out
    assert asked(store, "--scenario", "server") == 0
    out = capsys.readouterr().out
    assert "Use  null fp32 b1 server 10/s" in out and "Use  null fp32 b1 server 100/s" in out


@pytest.mark.process
def test_each_model_is_a_question_unless_several_are_named(store, tmp_path, capsys):
    """The null model, which measures edgescope itself, is no question beside others."""
    for name in ("alexnet", "vgg19"):
        saved(store, 20, 50, model=name, backend="onnxruntime")
    assert asked(store, "--json") == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert sorted(a["models"] for a in answers) == [["alexnet"], ["vgg19"]]
    assert asked(store, "alexnet", "vgg19") == 0
    assert "alexnet, vgg19: highest throughput" in capsys.readouterr().out


@pytest.mark.slow
def test_a_study_asks_its_own_question_of_its_own_cells(store, tmp_path, capsys):
    text = '[trial]\nmodel = "null"\nbackend = "null"\nbatch = [1, 2]\n[objective]\nname = "latency"\n'
    path = tmp_path / "study.toml"
    path.write_text(text + '[[constraint]]\nbound = "p99<=33ms"\n')
    assert asked(store, "-v", "--study", str(path)) == 0
    out = capsys.readouterr().out
    assert "lowest median latency with p99<=33ms" in out and "1 cells" not in out and "1 cell, " in out
    path.write_text(text)
    assert asked(store, "--study", str(path), "--batch", "4", "--search") == 2
    assert "E-PICK-5" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_measures_confirms_and_is_not_repeated(tmp_path, capsys, trials_here):
    flags = ("null", "--backend", "null", "--batch", "1,8", "--processes", "1", "--duration", "0.2s")
    flags += ("--warmup", "0s", "--cells", "2", "--confirm-runs", "1", "--option", "delay_us=2000")
    assert asked(Store(tmp_path), *flags) in (0, 1)  # 1: a busy machine made a trial unstable
    said = capsys.readouterr()
    assert "searching 2 cells: measuring 2 of them, besides those" in said.err and "[search 2/2]" in said.err
    assert len(list(Store(tmp_path).results())) >= 2
    if "Use  null fp32 b8" in said.out:
        assert "[confirm 1/1] null null fp32 b8" in said.err
        asked(Store(tmp_path), *flags, "--search")
        assert "[search" not in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), "E-PICK-2"),
        (("null", "--backend", "null", "--cells", "many"), "E-PICK-4"),
        (("--constraint", "p99=3"), "E-CONS-1"),
    ],
)
def test_what_cannot_be_asked(tmp_path, capsys, flags, code):
    assert asked(Store(tmp_path), *flags) == 2
    assert code in capsys.readouterr().err


def test_candidates_are_proposed_for_each_model(monkeypatch):
    monkeypatch.setattr(candidates, "installed", dict)
    keys = {"device": "cpu", "batch": 1, "processes": 1}
    question = Question(("alexnet", "a.tflite#0123"), None, ())
    found = Scope(keys, None, True, "", Store("none")).grid(question)
    engines = {m: {t.backend for t in found if t.model == m} for m in question.models}
    assert engines["a.tflite#0123"] == {"litert"} and {"torch_eager", "openvino"} <= engines["alexnet"]
    assert {(t.batch, t.processes, t.device) for t in found} == {(1, 1, "cpu")}


@pytest.mark.process
def test_a_page_of_failed_cells_names_no_machine_it_does_not_know_and_no_empty_pareto_set(tmp_path, capsys):
    made = Store(tmp_path)
    trial = Trial(model="null", backend="null")
    bare = {"queries": None, "window": None, "readings": None, "metrics": {}}
    made.save(result(trial, status=Status.CRASHED, reason="E-RUN-2: it died.", **bare))
    assert asked(made) == 1
    out = capsys.readouterr().out
    assert "1 cell, 0 processes; 1 did not run" in out and "Pareto" not in out
    assert "No pick nothing can be recommended" in " ".join(out.split()) and "E-RUN-2: it died" in " ".join(
        out.split()
    )


@pytest.mark.process
@pytest.mark.parametrize("flags", [["--threads", "100000"], ["--timeout", "0"], ["--duration", "0"]])
def test_what_no_range_allows_is_refused(flags, capsys):
    assert main(["recommend", "null", "--search", "--backend", "null", *flags]) == 2
    assert "Nothing was measured" in " ".join(capsys.readouterr().err.split())
