"""Results of two machines are never put together by mistake."""

import pytest

from edgescope.analysis.cells import machines
from edgescope.errors import UsageError
from edgescope.records import Machine, Status
from edgescope.study import grid
from making import MACHINE, result

OTHER = Machine({"cpu": {"model": "another cpu", "cores": 2}, "nvidia": {"gpus": [{"name": "a GPU"}]}}, {})
UNKNOWN = Machine({"absent": "the trial's process ended before it had described the machine"}, {})
GRID = grid.grid({"model": "null", "backend": "null", "batch": [1, 2, 3]})


def test_one_machine_is_taken_as_it_is_and_a_result_without_one_stays():
    made = [result(GRID[0]), result(GRID[1], machine=UNKNOWN, status=Status.CRASHED)]
    assert machines.one(made) == made
    assert machines.one([]) == []


def test_two_are_refused_by_name_and_one_can_be_chosen():
    made = [result(GRID[0]), result(GRID[1], machine=OTHER), result(GRID[2])]
    with pytest.raises(UsageError, match=r"2 machines \(.*test cpu\): 2 results; .*a GPU\): 1 result\)"):
        machines.one(made)
    assert machines.share(made, MACHINE, OTHER.id[:6]).results == [made[1]]
    with pytest.raises(UsageError, match=r"E-MIX-2: .*'zz'"):
        machines.share(made, MACHINE, "zz")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cpu": {"cpu": "Xeon", "isa": ["avx"], "board": {"absent": "no device tree"}}}, "Xeon"),
        ({"cpu": {"cpu": "Xeon"}, "nvidia": {"gpus": [{"name": "NVIDIA H100", "uuid": "u"}]}}, "NVIDIA H100"),
        ({"cpu": {"cpu": {"absent": "no /proc"}, "board": "Orin"}, "nvidia": {"gpus": []}}, "Orin"),
        ({"cpu": "a word"}, "a word"),
        ({"cpu": {"logical_cores": 2}}, ""),
    ],
)
def test_a_machine_is_named_by_its_gpu_processor_or_board(facts, words):
    machine = Machine(facts, {})
    assert machines.name(machine) == machine.id[:8] + (f" ({words})" if words else "")
    assert machines.called(machine) == (words or f"machine {machine.id[:8]}")


@pytest.mark.process
def test_this_machine_has_a_name():
    from edgescope.bench import here

    assert "(" in machines.name(here())


def test_only_this_machine_measures():
    for chosen in ("", "here", MACHINE.id[:8]):
        machines.measured_by(MACHINE, chosen)
    with pytest.raises(UsageError, match="E-MIX-3: "):
        machines.measured_by(MACHINE, OTHER.id[:8])


MINE, THEIRS, DEAD = result(GRID[0]), result(GRID[1], machine=OTHER), result(GRID[2], machine=UNKNOWN)
THIRD = Machine({"cpu": {"model": "a third cpu"}}, {})


@pytest.mark.parametrize(
    ("held", "chosen", "taken", "code"),
    [
        ([], "", [], ""),
        ([MINE, DEAD], "", [MINE, DEAD], ""),
        ([MINE, THEIRS, DEAD], "", [MINE, DEAD], "W-MIX-1"),
        ([MINE, THEIRS], "here", [MINE], "W-MIX-1"),
        ([MINE, THEIRS], "all", [MINE, THEIRS], ""),
        ([MINE, THEIRS], OTHER.id[:7], [THEIRS], "W-MIX-1"),
        ([THEIRS], "", [THEIRS], "W-MIX-2"),
        ([THEIRS], "here", [], "W-MIX-1"),
        ([THEIRS], MACHINE.id[:7], [], "W-MIX-1"),
        ([DEAD], "", [DEAD], ""),
    ],
)
def test_the_share_of_a_machine_and_the_one_line_about_the_others(held, chosen, taken, code):
    found = machines.share(held, MACHINE, chosen)
    assert (found.results, found.note.code if found.note else "") == (taken, code)


def test_of_several_others_none_is_guessed_unless_they_are_kept_apart():
    held = [THEIRS, result(GRID[1], machine=THIRD, id_="c")]
    with pytest.raises(UsageError, match=r"E-MIX-1.*--far-machine"):
        machines.share(held, MACHINE, flag="--far-machine")
    assert machines.share(held, MACHINE, apart=True).results == held
    left = machines.share([MINE, *held], MACHINE).note
    assert left is not None and left.what.startswith("2 results of 2 other machines")
    assert left.fix == f"--machine {OTHER.id[:8]}" and "a third cpu): 1 result" in left.evidence


def test_a_board_is_chosen_by_its_name():
    nano = Machine(
        {"jetson": {"board": "Jetson Orin Nano"}, "cpu": {"board": "NVIDIA Jetson Orin Nano Kit"}}, {}
    )
    made = [result(GRID[0]), result(GRID[1], machine=nano)]
    assert machines.share(made, MACHINE, "orin_nano").results == [made[1]]
    with pytest.raises(UsageError, match="E-MIX-2: "):
        machines.share(made, MACHINE, "orin")
