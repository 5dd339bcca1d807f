"""No test compares a sentence of a message: it asserts the code, and the figures and names that the sentence carries.

The sentences are those of docs/messages.md, which is made of the source, and the evidence that the source writes.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVIDENCE = re.compile(r'\bevidence ?=\s*\(?f?"([^"\n]*)"')
STRING = re.compile(r'"([^"\n ]*(?: [^"\n ]*){3}[^"\n]*)"')
CODED = re.compile(r"\b[EWI]-[A-Z0-9]+(?:-\d+)?\b(?: |:|\.\*)+(?:[a-z][a-z']* ){3}[a-z][a-z']*\b")
#: Tests whose subject is the text itself: the catalogue, the commands in it, how a refusal and a remedy are printed.
OF_TEXTS = ("test_sentences", "test_messages", "test_errors", "test_hints", "test_parsing", "test_remedies")


def pieces(text: str) -> Iterator[tuple[str, ...]]:
    """Yield each four words in a row that are prose and no command line; `...` for one that is filled in, or any."""
    plain = re.sub(r"\{[^{}]*\}|\.\*", "...", text.replace("\\", "").replace("&lt;", "<")).split()
    bare = ("..." if "..." in word else word.strip(".,:;!?()[]'\"`^$|*").lower() for word in plain)
    found = [word for word in bare if re.search(r"\w|\.\.\.", word)]
    for piece in zip(found, found[1:], found[2:], found[3:], strict=False):
        is_command = any(word.startswith("-") or word == "edgescope" for word in piece)
        if not is_command and sum(word != "..." and len(word) > 3 for word in piece) > 1:
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
    """Whether a text has a piece of a sentence of a message, or a code and four words behind it."""
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


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every text within, without the keys of mappings: they are names of fields."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    for child in node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node):
        yield from texts(child)


def found(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each assertion that quotes a sentence."""
    if any(map(quotes, STRING.findall(source))):  # or there is nothing to parse for
        for condition in asserted(ast.parse(source)):
            yield from (each for each in texts(condition) if quotes(each[1]))


def test_no_test_compares_a_sentence_of_a_message() -> None:
    tests = sorted(p for p in (ROOT / "tests").rglob("test_*.py") if p.stem not in OF_TEXTS)
    assert [(p.name, *each) for p in tests for each in found(p.read_text(encoding="utf-8"))] == []


def test_what_is_a_sentence_and_what_a_fact() -> None:
    whole, filled = "the store holds no result yet", "worker 1 gives other outputs"
    assert [*found(f'assert "{whole}" in x\nassert x == f"{filled}"')] == [(1, whole), (2, filled)]
    assert [*found(f'with raises(E, match="a .*{whole}"): f()')] == [(1, f"a .*{whole}")]
    assert [*found(f'@pytest.mark.parametrize("x", ["{whole}"])\ndef f(x): pass')] == [(1, whole)]
    facts = f'say("{whole}")\nassert x == {{"{whole}": 1}}\nassert "E-STORE-5: .* 3 of 9" in "worker 1 gives"'
    assert [*found(facts)] == []
    assert quotes("E-X-1: words that nobody wrote") and not quotes("E-X-1: three words only")
