"""The studies that ship, and the one in docs/sweeps.md that shows every key."""

import re
from pathlib import Path

import pytest

from edgescope import study, study_schema
from edgescope.models import zoo
from edgescope.toml_lines import lines

ROOT = Path(__file__).parents[1]
SIZES = {"concurrent_gpu_126": (126, 24), "concurrent_gpu": (420, 0), "concurrent_cpu": (160, 0)}
PAGE = re.search(r"```toml\n(.*?)```", (ROOT / "docs/sweeps.md").read_text(), re.DOTALL)[1]


def test_every_study_that_ships_is_known_here():
    assert {p.stem for p in (ROOT / "studies").glob("*.toml")} == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_a_study_that_ships_has_its_size(name):
    plan = study.read(ROOT / "studies" / f"{name}.toml", zoo.pin)
    cells = [t for t in plan.trials if t.replicate == 0]
    assert (len(cells), len(plan.trials) - len(cells)) == SIZES[name]
    assert plan.notes == () and plan.objective and plan.constraints
    assert all(t.sharing == "shared" for t in cells if t.processes == 1)


def test_the_126_cells_are_those_of_the_issue():
    trials = study.read(ROOT / "studies/concurrent_gpu_126.toml").trials
    cells = {(t.model, t.precision, t.batch, t.processes, t.sharing) for t in trials}
    models = ("resnet50", "fcn_resnet50", "yolov8n_class")
    assert cells == {
        (m, precision, batch, p, sharing)
        for m in models
        for precision in ("fp32", "fp16")
        for batch in (1, 4, 16)
        for p in (1, 2, 4, 8)
        for sharing in ("shared", "mps")
        if p > 1 or sharing == "shared"
    }
    assert len({t.cell for t in trials if t.replicate}) == 12
    assert {(t.min_s, t.device, t.options["graph"]) for t in trials} == {(2.0, "cuda", True)}


def test_the_study_of_the_page_is_read_and_shows_every_key(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(PAGE)
    plan = study.read(path, zoo.pin)
    assert plan.notes == () and plan.objective == "throughput" and len(plan.constraints) == 2
    assert {t.replicate for t in plan.trials} == {0, 1, 2}
    shown = {str(p[-1]) for p in lines(PAGE)}
    known = {*study_schema.SECTIONS, *study_schema.SWEEP, *study_schema.SECTIONS["trial"]}
    assert known - shown == set()
