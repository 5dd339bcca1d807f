"""docs/reference/api.md: every block of code runs, in the page's order; every public verb is on the page."""

import re
from pathlib import Path

import pytest

from edgescope.registry import functions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
TEXT = PAGE.read_text()


@pytest.mark.wings
@pytest.mark.slow
def test_the_code_of_the_page_runs(shorter, capsys):
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    exec(code, {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert re.search(
        r"2 results: (2 ok|2 unstable|1 ok, 1 unstable|1 unstable, 1 ok)", said
    )  # others may disturb a run
    assert "pick: " in said and "client at 5/s" in said


def test_every_verb_is_on_the_page():
    for verb in filter(str.islower, functions()):
        assert f"| `{verb}(" in TEXT and f"edgescope.{verb}(" in TEXT, verb
