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
    assert machines.one(made, OTHER.id[:6]) == [made[1]]
    with pytest.raises(UsageError, match="E-MIX-2: no machine's id in this store begins with 'zz'"):
        machines.one(made, "zz")


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


def test_this_machine_has_a_name():
    from edgescope.bench import here

    assert "(" in machines.name(here())


def test_a_sweep_into_another_machines_store_is_refused_with_what_differs():
    stored = [result(GRID[0], machine=OTHER), result(GRID[1])]
    with pytest.raises(
        UsageError, match=r"has measured 1 of these 3 cells.*differ in cpu\.model, nvidia\.gpus"
    ):
        machines.unmixed(GRID, stored, MACHINE)
    for chosen in ("here", MACHINE.id[:8]):
        machines.unmixed(GRID, stored, MACHINE, chosen)
    with pytest.raises(UsageError, match="E-MIX-3: this machine is"):
        machines.unmixed(GRID, stored, MACHINE, OTHER.id[:8])


def test_other_cells_of_another_machine_and_undescribed_ones_are_no_obstacle():
    elsewhere = grid.grid({"model": "null", "backend": "null", "batch": 64})
    machines.unmixed(GRID, [result(elsewhere[0], machine=OTHER), result(GRID[0], machine=UNKNOWN)], MACHINE)
