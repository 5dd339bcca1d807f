"""The studies that ship, and the one in docs/how-to/sweeps.md that shows every key."""

import re
from pathlib import Path

import pytest

from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.study import grid, schema
from edgescope.study.schema import toml_lines

ROOT = Path(__file__).parents[2]
SIZES = {"concurrent_gpu_126": (126, 24), "concurrent_gpu": (420, 0), "concurrent_cpu": (160, 0)}
PAGE = re.search(r"```toml\n(.*?)```", (ROOT / "docs/how-to/sweeps.md").read_text(), re.DOTALL)[1]


def test_every_study_that_ships_is_known_here():
    assert {p.stem for p in (ROOT / "studies").glob("*.toml")} == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.slow
@pytest.mark.wings
def test_a_study_that_ships_has_its_size(name):
    plan = grid.read(ROOT / "studies" / f"{name}.toml", zoo.pin)
    cells = [t for t in plan.trials if t.replicate == 0]
    assert (len(cells), len(plan.trials) - len(cells)) == SIZES[name]
    assert plan.notes == () and plan.objective and plan.constraints
    assert all(t.sharing == "time_slicing" for t in cells if t.processes == 1)


def test_the_126_cells_are_those_of_the_issue():
    trials = grid.read(ROOT / "studies/concurrent_gpu_126.toml").trials
    cells = {(t.model, t.precision, t.batch, t.processes, t.sharing) for t in trials}
    models = ("resnet50", "fcn_resnet50", "yolov8n_class")
    assert cells == {
        (m, precision, batch, p, sharing)
        for m in models
        for precision in ("fp32", "fp16")
        for batch in (1, 4, 16)
        for p in (1, 2, 4, 8)
        for sharing in ("time_slicing", "mps")
        if p > 1 or sharing == "time_slicing"
    }
    assert len({t.cell for t in trials if t.replicate}) == 12
    assert {(t.min_s, t.device, t.options["graph"]) for t in trials} == {(2.0, "cuda", True)}


@pytest.mark.wings
def test_the_study_of_the_page_is_read_and_shows_every_key(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(PAGE)
    plan = grid.read(path, zoo.pin)
    assert plan.notes == () and plan.objective == "throughput" and len(plan.constraints) == 2
    assert {t.replicate for t in plan.trials} == {0, 1, 2}
    shown = {str(p[-1]) for p in toml_lines(PAGE)}
    known = {*schema.SECTIONS, *schema.SWEEP, *schema.SECTIONS["trial"]}
    assert known - shown == set()


def refused(tmp_path, text: str) -> str:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        grid.read(path)
    return str(caught.value)


@pytest.mark.parametrize("key", ["turn_s = 0.1", "replicate = 1"])
def test_a_study_has_no_key_for_what_a_sweep_does_itself(key, tmp_path):
    assert "E-STUDY-10" in refused(tmp_path, f'[trial]\nmodel = "null"\n{key}\n')


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "[trial]\nmodel = " + "[" * 100_000 + "]" * 100_000,
        "[trial]\nmodel = " + "[" * 60 + "]" * 60,
        "[trial]\nmodel = " + "{a=" * 20_000 + "1" + "}" * 20_000,
        "[trial]\n" + "a." * 100_000 + "b = 1",
        "[" + "a." * 100_000 + "b]",
        "[trial]\nmodel = {" + "a . " * 50 + "b = 1}",
        "#" * 1_100_000,
    ],
    ids=["lists", "some lists", "tables", "a key", "a header", "a key within", "bytes"],
)
def test_a_file_that_is_too_deep_or_too_large_is_an_error_and_no_traceback(text, tmp_path):
    said = refused(tmp_path, text)
    assert said.startswith("E-STUDY-4: ")


def test_a_file_without_an_end_is_read_up_to_its_bound(tmp_path):
    (tmp_path / "s.toml").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="more than 1 MB"):
        grid.read(tmp_path / "s.toml")


@pytest.mark.timeout(20)
def test_a_grid_that_nobody_could_measure_is_refused_with_its_size(tmp_path):
    ten = list(range(1, 11))
    axes = "".join(
        f"{key} = {ten}\n" for key in ("batch", "in_flight", "processes", "seed", "max_queries", "min_s")
    )
    said = refused(tmp_path, f'[trial]\nmodel = "null"\nbackend = "null"\nmax_s = 60\n{axes}replicates = 3\n')
    assert "E-STUDY-14" in said and "3,000,000 trials" in said
    assert "10 batch x 10 in_flight" in said and "x 3 replicates" in said and "34.7 days" in said
    with pytest.raises(UsageError, match="E-STUDY-14"):
        grid.grid({"model": "null", "backend": "null", "replicates": 10**12})
    said = refused(
        tmp_path,
        '[trial]\nmodel = "null"\nbackend = "null"\n[[replicate]]\nmodel = "null"\nreplicates = 1000000000000\n',
    )
    assert "E-STUDY-14" in said


def test_a_large_grids_size_is_said_before_its_cells_are_made(monkeypatch):

    monkeypatch.setattr(grid, "LARGE", 4)
    order: list[str] = []
    real = grid._trial
    monkeypatch.setattr(grid, "_trial", lambda keys: order.append("made") or real(keys))
    grid.grid({"model": "null", "backend": "null", "batch": [1, 2, 3]}, order.append)
    assert order == ["made"] * 3
    order.clear()
    grid.grid({"model": "null", "backend": "null", "batch": [1, 2], "replicates": 2}, order.append)
    assert re.match(r"I-STUDY-1: .* 4 trials", order[0])
    assert order[1:] == ["made"] * 4
