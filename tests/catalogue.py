"""Every message code of the source with what it says, as the page docs/messages.md.

python tests/catalogue.py docs/messages.md
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "edgescope"
CODE = re.compile(r"^[EWI]-[A-Z][A-Z0-9]*(-\d+)?$")
PART = re.compile(r"^[EWI]-[A-Z0-9-]*$")
"""A code, or the beginning of some."""
HEAD = """# Messages

A message is one line: `CODE: what happened (evidence). What it does to the number. Try: the command that helps.`
E- is an error (nothing, or not this, was measured), W- a warning beside a number, I- news. `...` stands for what the
moment fills in. This page is made from the source by `python tests/catalogue.py docs/messages.md`; a test keeps it so.

| code | what happened | what it does to the number | what helps | said by |
|---|---|---|---|---|
"""


class Said(NamedTuple):
    """What one place of the source says with a code; '' for a part that it leaves out or passes on."""

    code: str
    what: str
    effect: str = ""
    fix: str = ""


def page() -> str:
    """Return the whole page."""
    rows: dict[str, dict[Said, set[str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for found in said(ast.parse(path.read_text())):
            where = str(path.relative_to(SOURCE).with_suffix("")).replace("/", ".")
            rows.setdefault(found.code, {}).setdefault(found, set()).add(where)
    return HEAD + "".join(_row(code, rows[code]) for code in sorted(rows, key=_order))


def _row(code: str, found: dict[Said, set[str]]) -> str:
    parts = ([getattr(one, part) for one in found] for part in ("what", "effect", "fix"))
    what, effect, fix = (
        " / ".join(filter(None, dict.fromkeys(texts))).replace("|", "\\|") for texts in parts
    )
    places = ", ".join(f"`{w}`" for w in sorted(set().union(*found.values())))
    return f"| {code} | {what or '(see the module)'} | {effect} | {fix} | {places} |\n"


def _order(code: str) -> tuple[str, int]:
    word, _, number = code[2:].rpartition("-")
    return (word, int(number)) if number.isdigit() else (code[2:], 0)


def said(tree: ast.Module) -> Iterator[Said]:
    """Yield what the module says with every code that is written in it."""
    for scope, node in _scoped(tree):
        items = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
        if isinstance(node, ast.Tuple) and all(_is_code(item) for item in items):
            continue  # a list of codes says nothing of them
        for at, item in enumerate(items):
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and CODE.match(item.value):
                what = _words(items[at + 1], scope) if at + 1 < len(items) else ""
                named = (
                    {k.arg: _words(k.value, scope) for k in node.keywords}
                    if isinstance(node, ast.Call)
                    else {}
                )
                more = (named.get(part, "") for part in ("effect", "fix"))
                yield Said(item.value, what, *("" if text == "..." else text for text in more))


def _is_code(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and bool(PART.match(str(node.value)))


def _scoped(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield (the innermost function around it, node)."""
    stack: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while stack:
        scope, node = stack.pop()
        yield scope, node
        inner = node if isinstance(node, ast.FunctionDef) else scope
        stack += [(inner, child) for child in ast.iter_child_nodes(node)]


def _words(node: ast.AST, scope: ast.AST, depth: int = 0) -> str:
    """Return the text of an expression, with ... for what is only known when it is said."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else "..."
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _words(part, scope) if isinstance(part, ast.Constant) else "..." for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left, scope, depth) + _words(node.right, scope, depth)
    if isinstance(node, ast.IfExp):
        either = (_words(node.body, scope, depth), _words(node.orelse, scope, depth))
        return " / ".join(filter(None, either))
    if isinstance(node, ast.Name) and depth == 0:
        given = [n for n in ast.walk(scope) if isinstance(n, ast.Assign) and _names(n, node.id)]
        before = [n for n in given if n.lineno <= node.lineno]
        return _words(max(before, key=lambda n: n.lineno).value, scope, 1) if before else ""
    return ""


def _names(assignment: ast.Assign, name: str) -> bool:
    return any(isinstance(t, ast.Name) and t.id == name for t in assignment.targets)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
