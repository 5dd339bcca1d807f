"""`edgescope modes` as it is typed, on recorded boards: two tables that fit 80 columns, and why there is no mode."""

from __future__ import annotations

import pytest

from edgescope.cli.main import main
from edgescope.devices import recording


def shown(board, capsys):
    assert main(["--board", board, "modes"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.wings
@pytest.mark.parametrize("board", recording.shipped())
def test_every_row_is_one_line_of_80_columns(board, capsys):
    lines = shown(board, capsys)
    assert all(len(line) <= 80 for line in lines)
    power, _, settings = "\n".join(lines).partition("\nsetting")
    for row in power.splitlines()[1:]:
        words = row.split()
        assert "needs a reboot:" in row or row.startswith("no power modes") or words[1].isdecimal(), row
    names = [row.split()[0] for row in settings.splitlines()[1:]]
    assert names[-1] == "governor=..." and all("=" in n or n == "jetson_clocks" for n in names)
    assert all(len(row.split()) > 2 for row in settings.splitlines()[1:]), "each with what it sets"


@pytest.mark.wings
def test_a_board_without_modes_says_why(capsys):
    first = shown("thor", capsys)[0]
    assert first.startswith("no power modes: no /etc/nvpmodel.conf ")


@pytest.mark.wings
def test_a_mode_that_needs_a_reboot_is_marked_and_explained(capsys):
    lines = shown("agx_orin", capsys)
    row = next(line for line in lines if line.startswith("MODE_30W "))
    assert row.split()[-2:] == ["reboot", "default"]
    assert "MODE_30W needs a reboot: TPC_PG_MASK 0 -> 240" in lines
