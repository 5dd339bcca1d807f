"""What `make docs` builds from: a page's links work on the site, whose navigation has every page."""

import re
import sys
from pathlib import Path

import pytest

import edgescope

sys.path.insert(0, str(Path(__file__).parents[2] / "website"))
import sources

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository of a front page, two pages, a file and a folder."""
    for name, text in {
        "README.md": "[a](docs/how-to/a.md#one) [d](data/)",
        "docs/how-to/a.md": "[front](../../README.md) [b](../b.md) [x](../../data/x.json) [web](https://a.b)\n"
        "```\n[code](../b.md)\n```\n",
        "docs/b.md": "[part](#here)",
        "data/x.json": "{}",
        "website/assets/style.css": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    sources.write(tmp_path / "out", tmp_path)
    return tmp_path / "out"


def test_links_are_those_of_the_site(root):
    assert (root / "index.md").read_text() == "[a](how-to/a.md#one) [d](repository/data/index.md)"
    prose, code = (root / "how-to/a.md").read_text().split("\n", 1)
    assert prose == "[front](../index.md) [b](../b.md) [x](../repository/data/x.json) [web](https://a.b)"
    assert code == "```\n[code](../b.md)\n```\n"
    assert (root / "b.md").read_text() == "[part](#here)"


def test_files_outside_of_the_pages_come_along(root):
    assert (root / "repository/data/x.json").read_text() == "{}"
    assert "`x.json`" in (root / "repository/data/index.md").read_text()


def test_every_public_name_and_verb_is_on_a_page_that_is_made(tmp_path):
    (tmp_path / "reference").mkdir()
    sources.write_reference(tmp_path)
    functions = (tmp_path / sources.FUNCTIONS).read_text()
    names = {name for name in edgescope.__all__ if not name.startswith("_")}
    assert set(re.findall(r"^::: edgescope\.(\w+)$", functions, re.M)) == names
    assert "## edgescope optimize" in (tmp_path / sources.FLAGS).read_text()


def test_the_navigation_has_every_page_once():
    named = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted(["index.md", *sources.MADE, *pages])
