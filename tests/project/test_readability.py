"""No sentence of the README, the tutorial and the how-to pages is longer than a reader can hold."""

from pathlib import Path

import pytest

import prose

ROOT = Path(__file__).parents[2]
LONGEST = 30
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *sorted((ROOT / "docs/how-to").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_no_sentence_is_too_long(page: Path) -> None:
    found = [s for s in prose.sentences(page.read_text()) if prose.words(s) > LONGEST]
    assert not found, "\n".join(found)


def test_sentences_are_told_apart_and_counted() -> None:
    text = "One two, e.g. three. **Four** `a b c`\nfive?"
    items = "* An item\n  goes on\n* [Two words](x.md)"
    page = f"# A title\n\n{text}\n\n| a | table. |\n|---|---|\n\n{items}\n\n```\ncode. More\n```\n"
    assert [prose.words(s) for s in prose.sentences(page)] == [4, 3, 4, 2]
