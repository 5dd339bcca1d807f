"""A folder with a paper.toml is a study: nothing else names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgescope.wings.studies
from crowds import crowd, gpu_trials
from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.store.results import Store
from edgescope.wings.studies import paper as module
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.paper import papers, sweep
from edgescope.wings.studies.sweep_table import sweep_table
from edgescope.wings.studies.verb import study

THIRD = """
[paper]
name = "third"
summary = "a paper of a test"
title = "On Batches"
source = "arXiv 0000.00000"
boards = "Jetson Nano"
heading = "Batches"
measure = "edgescope sweep --model resnet50 --batch 1,4"
stands_for = { resnet50 = ["resnet50"] }

[[number]]
model = "resnet50"
board = "Nano"
precision = "fp16"
batch = 4
processes = 1
figure = "throughput_sps"
value = 60.0
text = "60 images/s"
known = "confirmed"

[[claim]]
key = "energy"
title = "A larger batch costs less energy an image"
says = "Energy an image falls with the batch."
known = "confirmed"

[[claim]]
key = "kernels"
title = "Kernels are launched less often"
says = "Kernels are launched less often."
known = "confirmed"
unmeasured = "needs a profiler"
"""
CLAIMS = """
from edgescope.analysis.cells.concurrency import over_batches
from edgescope.wings.studies.claim import Claim
from edgescope.wings.studies.sweep_table import ends

energy = Claim(
    ends(over_batches, "energy_per_sample_j", ("takes", "the energy a sample of"), rises=False),
    "only one batch size was measured",
)
"""


@pytest.fixture
def third(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A third paper in a folder of its own."""
    folder = tmp_path / "papers" / "third_paper"
    folder.mkdir(parents=True)
    (folder / "paper.toml").write_text(THIRD)
    (folder / "study.py").write_text(CLAIMS)
    monkeypatch.setattr(
        edgescope.wings.studies, "__path__", [*edgescope.wings.studies.__path__, str(folder.parent)]
    )
    caches = (papers, module.paper)
    for each in caches:
        each.cache_clear()
    yield folder
    for each in caches:
        each.cache_clear()
    for name in [n for n in sys.modules if n.startswith("edgescope.wings.studies.third_paper")]:
        del sys.modules[name]


def filled(folder: Path) -> Store:
    store = Store(folder / "store")
    for trial in gpu_trials(models=("resnet50",), processes=(1, 2)):
        store.save(crowd(trial))
    return store


@pytest.mark.slow
def test_a_folder_is_all_that_a_third_paper_costs(
    third: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = filled(tmp_path)
    assert sorted(papers()) == ["anomaly", "concurrent", "ladder", "nano_table", "third", "training"]
    assert main(["study", "third", "--store", str(store.root), "--output", str(tmp_path / "t.html")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Claims  0 of 2 claims hold here, 1 does not, 1 cannot be decided\n")
    page = (tmp_path / "t.html").read_text()
    assert "needs a profiler" in page and "60 images/s" in page
    assert main(["study", "third", "--store", str(tmp_path / "none")]) == 1
    assert "No finished cell of batches is in this store." in capsys.readouterr().out


def test_a_claim_is_a_record_of_figure_axis_and_direction(third: Path) -> None:
    shared = [t for t in gpu_trials(models=("resnet50",)) if t.sharing == "time_slicing"]
    (energy, kernels) = sweep_table(papers()["third"], map(crowd, shared)).claims
    assert energy.found.answer is Answer.HOLDS and kernels.found.answer is Answer.UNKNOWN
    first = energy.found.evidence[0]
    assert first.startswith("resnet50 fp32, P = 1: 16 takes 0.") and first.endswith(
        "the energy a sample of 1"
    )


@pytest.mark.parametrize("name", list(papers()))
def test_every_claim_has_a_judge_and_every_number_says_where_it_is_from(name: str) -> None:
    paper = papers()[name]
    for claim in paper.claims:
        assert claim.unmeasured or claim.boards or callable(getattr(paper.judges, claim.key)), claim.key
    assert {n.known for n in paper.numbers} <= {"confirmed", "secondary"}
    assert paper.measure.startswith("edgescope ") and paper.boards and paper.source


def test_what_can_be_shown_is_what_there_is() -> None:
    assert sweep()["options"]["show"]["choices"] == list(sweep()["quantity"])


def test_an_unknown_study_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="anomaly, concurrent, training, nano_table, ladder"):
        study("fourth", Store(tmp_path), [])
