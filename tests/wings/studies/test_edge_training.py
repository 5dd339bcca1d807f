"""The training study: its grid, and worlds in which its takeaways hold and fail."""

from dataclasses import replace

import pytest

from board_machines import described, ran
from edgescope.errors import Message
from edgescope.records import Measured, Status
from edgescope.report import data, terminal
from edgescope.wings.studies import beside
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.edge_training import study as grid
from edgescope.wings.studies.page import document
from edgescope.wings.studies.paper import papers
from making import result as made

PAPER = papers()["training"]


def epoch(trial, first):
    """Seconds of an epoch on a made-up machine: loading overlaps with workers, a disk is slow when it is cold."""
    model, workers, batch, medium, mode, _ = grid.place(trial)
    load = {"lenet5": 0.5, "resnet18_cifar": 0.2, "mobilenet_v3_large_203class": 4.0}[model]
    device = 2.0 + 8.0 / batch
    if first and model.startswith("mobilenet"):
        load += {"as_is": 2.0, "nvme": 1.0, "sd": 9.0, "hdd": 12.0}[medium]
    slow = 2.0 if mode == "cpus=0" else 1.0
    return slow * (load + device if workers == 0 else max(load / workers, device))


def result(trial, noise=0.01):
    sway = 1 + noise * (trial.replicate - 1)
    metrics = {
        "epoch_first_s": Measured(epoch(trial, True) * sway, "s"),
        "epoch_later_s": Measured(epoch(trial, False) * sway, "s"),
        "energy_per_sample_j": Measured((0.5 if trial.mode == "cpus=0" else 1.0) * sway, "J"),
        "stall_share": Measured(0.01, "1"),
        "fetch_s": Measured(0.001, "s"),
        "forward_s": Measured(0.01, "s"),
    }
    return made(trial, metrics=metrics)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path))
    return [result(trial) for trial in grid.trials("cpu")]


def answers(results):
    table = grid.table(results)
    return {
        name: getattr(grid, name)(table).answer
        for name in (c.key for c in PAPER.claims if not c.unmeasured and not c.boards)
    }


def test_the_grid_changes_one_setting_at_a_time_and_comes_round_three_times(world):
    trials = [r.trial for r in world]
    assert len({t.id for t in trials}) == len(trials) == 3 * len({t.cell for t in trials})
    usual = trials[0]
    for trial in trials:
        if trial.model == usual.model and not trial.replicate:
            places = zip(grid.place(trial), grid.place(usual), strict=True)
            assert sum(a != b for a, b in places) <= 1
    assert {grid.place(t)[3] for t in trials if t.model == "lenet5"} == {"as_is"}  # it has no files
    assert all(grid.wanted(trial) for trial in trials)


def test_every_takeaway_holds_in_a_world_as_the_study_tells_it(world):
    assert set(answers(world).values()) == {Answer.HOLDS}


def test_takeaways_fail_where_the_world_is_otherwise(world):
    for r in world:
        slow = 1.5 if grid.place(r.trial)[1] == 1 else 1.0  # a worker that costs more than it hides
        r.metrics["epoch_later_s"] = replace(r.metrics["epoch_later_s"], value=20.0 * slow)
        r.metrics["epoch_first_s"] = replace(r.metrics["epoch_first_s"], value=10.0)
    found = answers(world)
    assert found["pipelining"] is Answer.FAILS and found["first_epoch"] is Answer.FAILS
    assert found["medium_warm"] is Answer.HOLDS and found["variability"] is Answer.HOLDS


def test_two_runs_of_a_cell_decide_nothing_and_none_is_not_measurable(world):
    few = [r for r in world if r.trial.replicate < 2]
    assert answers(few)["pipelining"] is Answer.UNSURE
    assert answers(few)["variability"] is Answer.UNKNOWN
    lost = [replace(r, status=Status.FAILED) for r in world]
    assert set(answers(lost).values()) == {Answer.UNKNOWN}


def test_runs_that_differ_are_not_said_to_vary_little(world):
    wild = [result(r.trial, noise=0.3) for r in world]
    assert answers(wild)["variability"] is Answer.FAILS


def test_an_empty_store_names_the_command_and_a_full_one_fills_the_page(world, capsys):
    empty = document(PAPER, [])
    terminal.show(empty)
    assert "edgescope study training --run" in " ".join(capsys.readouterr().out.split())
    full = document(PAPER, world)
    terminal.show(full, limit=None)
    shown = capsys.readouterr().out
    assert "9 of 11 claims hold here" in shown and "mobilenet_v3_large_203class, 2" in shown
    assert '"enough_workers"' in data.json_text(full)
    figures = [part for part in full.parts if getattr(part, "name", "") in ("parts", "epochs")]
    assert len(figures) == 2 and all(figure.draw().data for figure in figures)


def test_a_cell_without_a_figure_says_why_and_what_nobody_tried_is_counted(world, capsys):
    why = Message("E-ON-2", "no such mode there")
    lost = [
        replace(r, status=Status.UNSUPPORTED, reason=why) if r.trial.mode == "cpus=0" else r for r in world
    ]
    cells = {grid.place(r.trial) for r in world}
    tried = [r for r in lost if r.trial.batch != 64]
    terminal.show(document(PAPER, tried), limit=None)
    shown = " ".join(capsys.readouterr().out.split())
    assert "E-ON-2" in shown and "and 2 more" in shown
    left = len(cells - {grid.place(r.trial) for r in tried})
    assert left == 3 and f"{left} of {len(cells)} cells are not tried yet" in shown
    again = [*lost, *(r for r in world if r.trial.mode == "cpus=0")]  # it had failed once
    terminal.show(document(PAPER, again), limit=None)
    shown = capsys.readouterr().out
    assert "E-ON-2" not in shown and "not tried" not in shown


# -- power modes and boards ----------------------------------------------------------------------------------

MODES = {"MAXN": (2.0, 30.0), "15W": (1.5, 15.0), "10W": (1.0, 12.0)}
"""Mode of a made-up board -> its speed and its watts: 15W takes the least energy."""


def in_modes(machine, speed=1.0, watts=1.0, modes=MODES):
    """Results of the usual cells of a made-up board in each of its modes, and as it is."""
    for trial in grid.trials("cpu", modes=list(modes)):
        if trial.mode != "cpus=0":
            fast, drawn = modes.get(trial.mode, modes["15W"])
            rate = 100.0 * fast * speed
            yield ran(
                machine, trial, rate, drawn * watts, epoch_later_s=1000 / rate, epoch_first_s=1200 / rate
            )


def modes_of(results):
    return grid.modes(grid.table(results))


def test_power_modes_join_the_grid_and_belong_to_the_study(world):
    added = [t for t in grid.trials("cpu", modes=["MAXN", "15W"]) if t.mode in MODES]
    assert len(added) == 2 * 3 * 3 and all(grid.wanted(t) for t in added)


@pytest.mark.process
def test_the_fastest_mode_is_held_against_the_one_of_least_energy(world):
    nano = described("nano")
    found = modes_of(in_modes(nano))
    assert found.answer is Answer.HOLDS and "MAXN, takes 1.5" in found.evidence[0]
    race = modes_of(in_modes(nano, modes={"MAXN": (2.0, 20.0), "15W": (1.0, 15.0)}))
    assert race.answer is Answer.FAILS and "is that of least energy" in race.evidence[0]
    unmetered = [
        replace(r, metrics={k: v for k, v in r.metrics.items() if "energy" not in k}) for r in in_modes(nano)
    ]
    assert modes_of(unmetered).answer is Answer.UNKNOWN
    assert modes_of(r for r in in_modes(nano) if r.trial.mode == "15W").answer is Answer.UNKNOWN


@pytest.mark.process
def test_boards_are_held_against_each_other_by_the_energy_of_an_epoch(world):
    boards = [described(name) for name in ("xavier_nx", "agx_xavier", "nano")]
    speeds = [(1.0, 1.0), (2.0, 3.0), (0.3, 0.6)]
    worlds = [list(in_modes(b, *how)) for b, how in zip(boards, speeds, strict=True)]
    found = beside.beside(PAPER, worlds, {})
    (claim,) = found.together
    assert claim.claim.key == "boards" and claim.found.answer is Answer.HOLDS
    assert claim.found.agree == "6 of 6"  # three networks against two boards
    usual = found.boards[0].entries[0]
    assert usual.work == "lenet5, 2000 samples"
    assert usual["epoch_j"].value == pytest.approx(2000 * 15 / 150, rel=0.01)
    dearer = beside.beside(PAPER, [worlds[0], list(in_modes(boards[1], 2.0, 1.0))], {})
    assert dearer.together[0].found.answer is Answer.FAILS
    page = beside.document(found)
    assert {
        row["modes"] for row in ({c["key"]: c["answer"] for c in b["claims"]} for b in page.data["boards"])
    } == {"holds"}
