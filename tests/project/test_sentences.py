"""No test compares a sentence of a message: it asserts the code, and the figures and names that the sentence carries.

The sentences are those of docs/messages.md, which is made of the source, and the evidence that the source writes.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONG = 4
"""Words in a row that make a piece of a sentence; one within it may be what the moment fills in."""
EVIDENCE = re.compile(r'\bevidence ?=\s*\(?f?"([^"\n]*)"')
STRING = re.compile(r'"([^"\n]*)"')
CODED = re.compile(r"\b[EWI]-[A-Z0-9]+(?:-\d+)?\b(?: |:|\.\*)+(?:[a-z][a-z']* ){3}[a-z][a-z']*\b")
"""A code and the first words of what it says."""
#: Tests whose subject is the text itself: the catalogue, the commands in it, how a refusal and a remedy are printed.
OF_TEXTS = ("test_sentences", "test_messages", "test_errors", "test_hints", "test_parsing", "test_remedies")


def words(text: str) -> list[str]:
    """Return the words of a text without what surrounds them; `...` for each that is filled in or any."""
    plain = re.sub(r"\{[^{}]*\}|\.\*", "...", text.replace("\\", "").replace("&lt;", "<"))
    bare = (word if "..." in word else word.strip(".,:;!?()[]'\"`^$|*").lower() for word in plain.split())
    return ["..." if "..." in word else word for word in bare if re.search(r"\w|\.\.\.", word)]


def pieces(text: str) -> Iterator[tuple[str, ...]]:
    """Yield each LONG words in a row that are prose: two of some length, and none of a command line."""
    found = words(text)
    for piece in zip(*(found[start:] for start in range(LONG)), strict=False):
        told = [word for word in piece if word != "..." and len(word) > 3]
        if len(told) > 1 and not any(word.startswith("-") or word == "edgescope" for word in piece):
            yield piece


@cache
def prose() -> frozenset[tuple[str, ...]]:
    page = (ROOT / "docs/messages.md").read_text(encoding="utf-8")
    texts = [line for line in page.splitlines() if not line.startswith("- **Said by")]
    for path in (ROOT / "src").rglob("*.py"):
        texts += EVIDENCE.findall(path.read_text(encoding="utf-8"))
    every = (piece for text in texts for piece in pieces(text))
    return frozenset(p for p in every if "..." not in (p[0], p[-1]) and p.count("...") < 2)


def quotes(text: str) -> bool:
    """Whether a text has a piece of a sentence of a message, or a code and words behind it."""
    alike = ({p, (p[0], "...", *p[2:]), (*p[:2], "...", p[3])} for p in pieces(text))
    return bool(CODED.search(text)) or any(not prose().isdisjoint(each) for each in alike)


def asserted(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield each condition, each pattern that `match` gets and each row of parametrize."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.Call):
            yield from (k.value for k in node.keywords if k.arg == "match")
            yield from node.args if ast.unparse(node.func) == "pytest.mark.parametrize" else ()


def texts(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield every text within, without the keys of mappings: they are names of fields."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    inner = node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
    for child in inner:
        yield from texts(child)


def found(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    if not any(map(quotes, STRING.findall(text))):
        return set()  # the quick answer
    return {
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for condition in asserted(ast.parse(text))
        for node in texts(condition)
        if quotes(node.value)
    }


def test_no_test_compares_a_sentence_of_a_message() -> None:
    tests = sorted(p for p in (ROOT / "tests").rglob("test_*.py") if p.stem not in OF_TEXTS)
    assert [line for path in tests for line in sorted(found(path))] == []
