"""`edgescope study concurrent`: a store to the terminal and to files."""

import json
import re

import pytest

from crowds import cpu_trials, crowd, dead, gpu_trials
from edgescope.cli.main import main
from edgescope.store.results import Store

SMALL = dict(models=("resnet50",), precisions=("fp16",), batches=(1,))


@pytest.fixture
def store(tmp_path):
    place = Store(tmp_path / "store")
    for trial in gpu_trials(**SMALL)[:-1]:
        place.save(crowd(trial))
    place.save(dead(gpu_trials(**SMALL)[-1]))
    return place


def run(store, *more):
    return main(["study", "concurrent", "--store", str(store.root), *more])


@pytest.mark.process
def test_the_terminal_answers_first(store, capsys):
    assert run(store) == 0
    brief = capsys.readouterr().out
    assert brief.startswith("Claims  4 of 17 claims hold here, 2 do not, 11 cannot be decided\n")
    assert "MPS gives 3.00x [2.96, 3.04]" in " ".join(brief.split())
    assert re.search(r"Throughput per process falls with P +✓ holds +2 of 2", brief)
    assert "E-OOM-1" not in brief and max(map(len, brief.splitlines())) <= 80
    assert run(store, "-v") == 0
    full = " ".join(capsys.readouterr().out.split())
    assert "oom: E-OOM-1: CUDA out of memory (resnet50 fp16 batch 1, P = 8, MPS)" in full
    assert "T/P is 0.60x [0.59, 0.61] at P = 2" in full


@pytest.mark.process
def test_a_quantity_of_every_cell_can_be_shown(store, capsys):
    assert run(store, "--show", "throughput") == 0
    said = capsys.readouterr().out
    grid = next(line for line in said.splitlines() if line.startswith("resnet50 fp16 batch 1, MPS  "))
    assert grid.split()[-4:] == ["·", "5832", "5832", "oom"]
    assert run(store, "--show", "memory") == 0
    assert re.search(r"time slicing +321 MB +542 MB", capsys.readouterr().out)
    with pytest.raises(SystemExit, match="2"):
        run(store, "--show", "nonsense")


@pytest.mark.process
def test_json_alone_on_stdout_and_a_file_beside(store, tmp_path, capsys):
    assert run(store, "--json", "--output", str(tmp_path / "c.md")) == 0
    page = json.loads(capsys.readouterr().out)
    assert len(page["cells"]) == 7 and page["setup"] == "torch_eager cuda graph=true"
    assert "# Concurrent inference" in (tmp_path / "c.md").read_text("utf-8")


@pytest.mark.process
def test_nothing_stored_is_exit_1(tmp_path, capsys):
    assert main(["study", "concurrent", "--store", str(tmp_path / "none")]) == 1
    assert "Measure: edgescope study concurrent --run" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_two_machines_are_refused_until_one_is_named(store, capsys):
    for trial in cpu_trials():
        store.save(crowd(trial))
    assert run(store) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "2 machines" in said
    wanted = re.search(r"--machine (\w+)", said)[1]
    assert run(store, "--machine", wanted) == 0


@pytest.mark.slow
def test_models_and_setups_choose(store, capsys):
    assert run(store, "--models", "vgg19") == 1
    assert run(store, "--setup", "tensorrt") == 2
    assert re.search("E-PAPER-2: .* 'tensorrt'", " ".join(capsys.readouterr().err.split()))
    assert run(store, "--models", "resnet", "--setup", "cuda") == 0


def test_a_file_that_cannot_be_written_is_said_before_anything_is_read(store, tmp_path, capsys):
    assert run(store, "--output", str(tmp_path / "c.xyz")) == 2
    assert "E-REPORT-1" in capsys.readouterr().err


@pytest.mark.process
def test_a_study_file_says_which_cells_are_missing(store, tmp_path, capsys):
    study = tmp_path / "study.toml"
    study.write_text(
        '[trial]\nmodel = "resnet50"\nbackend = "torch_eager"\ndevice = "cuda"\nprecision = "fp16"\n'
        'processes = [1, 2, 8]\nsharing = ["time_slicing", "mps"]\n[trial.options]\ngraph = true\n'
        '[[exclude]]\nprocesses = 1\nsharing = "mps"\n'
    )
    assert run(store, "--study", str(study)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Coverage: 4 of the study's 5 cells; missing: resnet50 fp16 batch 1, P = 8, MPS." in said
    assert "The study asks for" not in said
