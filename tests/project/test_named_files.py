"""Files that prose and tables name are there: a module that moves takes its mentions along."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMING = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "findings").glob("*.sh"),
    *(ROOT / "benchmarks").glob("*.toml"),
    *(ROOT / "src").rglob("*.py"),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
NAMED = re.compile(r"(?<![\w/.<-])((?:\w+/)+\w+\.py)\b")
ELSEWHERE = ("deployed/", "folder/", "jtop/")
"""Folders of what a reader makes, of a script itself, and of another project."""


@pytest.mark.parametrize("path", NAMING, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_that_is_named_exists(path):
    named = {name for name in NAMED.findall(path.read_text()) if not name.startswith(ELSEWHERE)}
    roots = (
        ROOT,
        ROOT / "src",
        ROOT / "src/edgescope",
        ROOT / "examples",
        ROOT / "examples/plugin",
        path.parent,
    )
    assert not sorted(name for name in named if not any((root / name).is_file() for root in roots))
