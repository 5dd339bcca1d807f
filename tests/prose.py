"""The sentences of a Markdown page without code, tables and headings; a link is its text, code in a line one word."""

import re
from collections.abc import Iterator

APART = re.compile(r"```.*?```|<!--.*?-->", re.DOTALL)
ITEM = re.compile(r"^\s*(?:[*-]|\d+\.) ")
END = re.compile(r" · |(?<=[.!?])[*_\")]*\s+(?=[*_\"(\[]*[A-Z0-9`])")
SHORT = re.compile(r"\b(e\.g|i\.e|vs|etc|No|Fig)\.")


def sentences(page: str) -> Iterator[str]:
    """Yield each sentence; a list item is a block of its own, and a colon before a list ends one."""
    for block in _blocks(APART.sub("\n\n", page)):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)
        text = SHORT.sub(r"\1", re.sub(r"`[^`]*`", "`code`", text))
        yield from filter(None, (part.strip() for part in END.split(text)))


def _blocks(page: str) -> Iterator[str]:
    """Yield paragraphs and list items, each as one line."""
    lines: list[str] = []
    for line in [*page.splitlines(), ""]:
        is_prose = (
            bool(line.strip()) and not line.startswith(("#", "|")) and (bool(lines) or line[:4].strip())
        )
        if not is_prose or ITEM.match(line):
            yield " ".join(lines)
            lines = []
        if is_prose:
            lines.append(ITEM.sub("", line).strip())


def words(sentence: str) -> int:
    """Return how many words a sentence has; what holds no letter or digit is none."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())
