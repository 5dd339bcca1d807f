"""`edgescope study nano_table`: stored results to a table, and measuring what is missing."""

import json
import sys
from pathlib import Path

import pytest

from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.store.results import Store
from edgescope.wings.optimize import verb as optimize

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))
from made_results import KINDS, study


@pytest.fixture
def store(tmp_path):
    place = Store(tmp_path / "store")
    for result in study(KINDS[:4], 3, "alexnet", trained=False):
        place.save(result)
    return place


def run(store, *more):
    return main(["study", "nano_table", "--store", str(store.root), *more])


@pytest.mark.slow
def test_the_table_and_the_file(store, tmp_path, capsys):
    assert run(store, "--output", str(tmp_path / "t.csv")) == 0
    said = capsys.readouterr().out
    assert "1 of 11 networks  4.22x [4.2, 4.24] as fast as PyTorch eager" in said and "5.61x*" in said
    assert max(map(len, said.splitlines())) <= 80 + len(str(tmp_path))
    fix = "edgescope study nano_table --run --device cpu"  # what would fill the rest
    assert fix in " ".join(said.split())
    assert run(store, "-v") == 0
    assert "ratio printed as 2.09, should be 5.61" in capsys.readouterr().out
    assert run(store, "--models", "alexnet,vgg19") == 0
    assert f"{fix} --models alexnet,vgg19" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "t.csv").read_text().count("\n") == 12


@pytest.mark.slow
def test_json_holds_everything(store, capsys):
    assert run(store, "--models", "alexnet", "--json") == 0
    page = json.loads(capsys.readouterr().out)
    (row,) = page["rows"]
    assert row["speedup"]["lo"] < row["speedup"]["value"] < row["speedup"]["hi"]
    assert row["study"]["misprints"][0]["correct"] == "5.61"
    assert set(row["before"]) == {"cold_s", "first_s", "warm_s", "steady_s"}
    assert page["study"]["geometric_mean"] == pytest.approx(6.04, abs=0.01)


@pytest.mark.slow
def test_nothing_stored_is_exit_1_and_bad_names_are_usage(tmp_path, store, capsys):
    assert main(["study", "nano_table", "--store", str(tmp_path / "none")]) == 1
    assert run(store, "--models", "resnet18") == 2
    assert run(store, "--ceilings", str(tmp_path / "absent.json")) == 2
    assert run(store, "--output", str(tmp_path / "t.xyz")) == 2
    assert "E-CEIL-1" in capsys.readouterr().err


@pytest.mark.slow
def test_run_measures_each_model_through_optimize_and_survives_one_that_fails(store, monkeypatch, capsys):
    asked = []

    def measured(model, *, budget, store, device, **how):
        asked.append((model, budget, device, str(store.root)))
        if model == "vgg19":
            raise UsageError("E-X-1", "cannot")
        for result in study(KINDS[:2], 3, model, trained=False):
            store.save(result)

    monkeypatch.setattr(optimize, "optimize", measured)
    assert run(store, "--run", "--models", "vgg19,resnet50", "--budget", "3s", "--json") == 0
    said = capsys.readouterr()
    page = json.loads(said.out)
    assert asked == [(m, 3, "cpu", str(store.root)) for m in ("vgg19", "resnet50")]
    assert "vgg19: E-X-1" in said.err
    assert [("value" in r["speedup"]) for r in page["rows"]] == [False, True]


@pytest.mark.slow
def test_the_page_names_the_command_that_made_it_without_secrets(store, tmp_path, monkeypatch):
    out = tmp_path / "t.md"
    flags = ["--store", str(store.root), "--output", str(out)]
    monkeypatch.setattr(
        sys, "argv", ["/bin/edgescope", "study", "nano_table", *flags, "--api-token", "hidden"]
    )
    assert run(store, "--output", str(out)) == 0
    text = out.read_text()
    assert f"edgescope study nano_table --store {store.root} --output {out}" in text and "hidden" not in text
