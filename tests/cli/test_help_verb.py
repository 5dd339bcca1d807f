"""edgescope help: the same page as --help, and the table of exit codes, which the documentation repeats."""

import re
from pathlib import Path

import pytest

from edgescope import errors
from edgescope.cli import docs as verb
from edgescope.cli.main import main
from edgescope.errors import EdgescopeError, ExitCode

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md"
ROWS = [(str(int(code)), code.label, code.meaning) for code in ExitCode]


def test_the_table_fits_a_terminal_and_has_every_code(capsys):
    assert main(["help", "exit-codes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line[2].isdigit()] == [number for number, *_ in ROWS]


def test_the_page_repeats_the_table_of_the_source():
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == ROWS


def test_every_error_ends_with_a_code_of_the_table():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EdgescopeError)
    ]
    assert len(kinds) > 5 and all(isinstance(kind.exit_code, ExitCode) for kind in kinds)


@pytest.mark.wings
@pytest.mark.parametrize("asked", ["compare", "trace"])
def test_a_verb_that_may_be_undecided_says_so(asked, capsys):
    with pytest.raises(SystemExit):
        main(["help", asked])
    assert re.search(rf"Exit code: .*\b{ExitCode.UNDECIDED:d}\b", capsys.readouterr().out, re.DOTALL)


def test_an_unknown_verb_is_a_wrong_request(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["help", "benhc"])
    assert stop.value.code == ExitCode.USAGE and "edgescope bench" in " ".join(
        capsys.readouterr().err.split()
    )


def test_without_a_verb_it_lists_them(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["help"])
    assert stop.value.code == 0 and "exit-codes" in capsys.readouterr().out
    assert verb.table().count("\n") >= len(ExitCode) - 1
