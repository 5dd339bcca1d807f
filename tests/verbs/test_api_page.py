"""docs/api.md: every block of code runs, in the page's order; every public verb is on the page."""

import re
import subprocess
import sys
from pathlib import Path

import edgescope

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
TEXT = PAGE.read_text()


def test_the_code_of_the_page_runs(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"2 results: (2 ok|2 unstable|1 ok, 1 unstable)", done.stdout
    )  # others may disturb a run
    assert "pick: " in done.stdout and "client at 5/s" in done.stdout


def test_every_verb_is_on_the_page():
    for verb in edgescope._VERBS:
        assert f"| `{verb}(" in TEXT and f"edgescope.{verb}(" in TEXT, verb
