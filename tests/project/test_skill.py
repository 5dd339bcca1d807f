"""The skill file says what the parsers and the verbs say today."""

import re
from pathlib import Path

import pytest

import skill_page

FILE = Path(__file__).parents[2] / "skills/edgescope/SKILL.md"


def test_flags_and_exit_codes_are_those_of_the_command_line():
    text = FILE.read_text(encoding="utf-8")
    told = {
        verb: re.findall(r"`(\w+)`", found)
        for verb, found in re.findall(
            r"^## edgescope (\w+)$.*?^JSON: ([^\n]+)$", text, re.MULTILINE | re.DOTALL
        )
    }
    assert set(told) == set(skill_page.RUNS)
    assert skill_page.written(told) == text


@pytest.mark.process
@pytest.mark.slow
def test_the_json_has_the_keys_that_it_says():
    assert skill_page.written(skill_page.printed()) == FILE.read_text(encoding="utf-8")
