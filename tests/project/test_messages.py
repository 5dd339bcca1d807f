"""The table of messages: a row for every code, a section for every family, and the page that is made of it."""

import re
from collections import Counter

import pytest

import catalogue
from edgescope.cli import docs

ROWS = {code: row for code, row in catalogue.table().items() if code != "sections"}
KEYS = {"what", "meaning", "effect", "fix"}


def test_every_code_of_the_source_has_a_row_and_every_row_is_a_code():
    assert set(ROWS) == set(catalogue.spoken()), (
        "add the code to src/edgescope/messages.toml, or remove it there"
    )


def test_every_family_stands_in_one_section():
    listed = Counter(family for families in catalogue.table()["sections"].values() for family in families)
    assert set(listed) == {catalogue.family(code) for code in catalogue.spoken()}
    assert max(listed.values()) == 1


def test_every_code_says_what_why_what_it_does_to_the_number_and_what_to_do():
    """From the table or the source: a part that neither has is missing on the page."""
    lacking = [
        (code, part)
        for code, said in catalogue.spoken().items()
        for part in ("what", "meaning", "effect", "fix")
        if not ROWS[code].get(part) and not said.get(part)
    ]
    assert not lacking


@pytest.mark.parametrize("part", sorted(KEYS))
def test_rows_are_short_plain_sentences_on_one_line(part):
    for code, row in ROWS.items():
        assert set(row) <= KEYS, code
        text = row.get(part, "")
        assert text == " ".join(text.split()), code
        sentences = re.split(r"(?<=[.;:]) ", text)
        assert len(sentences) <= 4 and max(len(one.split()) for one in sentences) <= 30, code
        assert part != "meaning" or text.endswith("."), code
        assert part == "meaning" or not re.search(r"[^.]\.$", text), code


def test_rows_are_in_the_order_of_the_page():
    assert list(ROWS) == list(catalogue.spoken())


def test_the_page_is_that_of_the_table_and_the_source():
    stored = (docs.folder() / "messages.md").read_text()
    assert stored == catalogue.page(), "run: python tests/catalogue.py docs/messages.md"


def test_the_page_has_a_heading_for_each_code_and_the_verb_finds_it():
    found = docs.codes({"messages": docs.folder() / "messages.md"})
    assert sorted(found) == sorted(catalogue.spoken())
    assert all(code.split("-")[1] == catalogue.family(code) for code in found)


def test_a_part_of_the_table_stands_for_what_the_source_says(monkeypatch):
    said = {"what": ("no ... here", "a * b"), "effect": ("none",), "fix": (), "places": ("`one`", "`two`")}
    row = {"meaning": "It __is__ <so>.", "effect": "Lost", "fix": "`a*b` / c"}
    monkeypatch.setattr(catalogue, "spoken", lambda: {"E-X-1": said})
    monkeypatch.setattr(catalogue, "table", lambda: {"sections": {"Odd things": ["X"]}, "E-X-1": row})
    page = catalogue.page()
    assert "- [Odd things](#odd-things): X\n\n## Odd things\n\n### E-X-1\n" in page
    assert page.endswith(
        "- **What happened**:\n    - no ... here\n    - a \\* b\n"
        "- **Why**: It \\__is\\__ &lt;so>.\n- **The number**: Lost\n"
        "- **What to do**:\n    - `a*b`\n    - c\n- **Said by**: `one`, `two`\n"
    )


def test_the_verb_shows_the_page_as_plain_text_of_eighty_columns(tmp_path, monkeypatch):
    page = tmp_path / "messages.md"
    long = "word " * 40
    page.write_text(
        "# Messages\n\n## Things\n\n### E-X-1\n\n- **Why**: \\__is\\__ &lt;so> a\\*b `c`\n"
        f"- **What to do**:\n    - {long}\n"
    )
    text = docs.explained("E-X-1", {"messages": page}).splitlines()
    assert text[:3] == ["E-X-1", "Why: __is__ <so> a*b c", "What to do:"]
    assert text[3].startswith("    - word") and text[4].startswith("      word")
    assert max(map(len, text)) <= 80


def test_every_code_is_explained_within_eighty_columns():
    pages = {"messages": docs.folder() / "messages.md"}
    for code in catalogue.spoken():
        wide = [
            line
            for line in docs.explained(code, pages).splitlines()
            if len(line) > 80 and " " in line.strip()
        ]
        assert not wide, code
