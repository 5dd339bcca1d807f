"""Every message code of the source with what it says and what messages.toml adds, as the page docs/messages.md.

python tests/catalogue.py docs/messages.md
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE = Path(__file__).parents[1] / "src" / "edgescope"
CODE = re.compile(r"^[EWI]-[A-Z][A-Z0-9]*(-\d+)?$")
PART = re.compile(r"^[EWI]-[A-Z0-9-]*$")
"""A code, or the beginning of some."""
HEAD = """# Messages

A message is one line: `CODE: what happened (evidence). What it does to the number. Try: the command that helps.`
`edgescope docs CODE` prints what stands here of a code. E- is an error: nothing, or not this, was measured. W- is a
warning beside a number, and I- is news. `...` stands for what the moment fills in. The letters between the dashes are
the code's family:

"""
LABELS = {
    "what": "What happened",
    "meaning": "Why",
    "effect": "The number",
    "fix": "What to do",
    "places": "Said by",
}
"""Part of a message -> what stands before it on the page."""


class Said(NamedTuple):
    """What one place of the source says with a code; '' for a part that it leaves out or passes on."""

    code: str
    what: str
    effect: str = ""
    fix: str = ""


@cache
def table() -> dict[str, dict[str, Any]]:
    """Return messages.toml: code -> its row, and under `sections` the page's headings with their families."""
    return tomllib.loads((SOURCE / "messages.toml").read_text(encoding="utf-8"))


@cache
def spoken() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return code -> part -> what the source says with it, each text once, and the modules that say it."""
    rows: dict[str, dict[str, dict[str, None]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for found in said(ast.parse(path.read_text())):
            parts = rows.setdefault(found.code, {})
            for name, text in zip(("what", "effect", "fix"), found[1:], strict=True):
                parts.setdefault(name, {}).update(dict.fromkeys(filter(None, text.split(" / "))))
            where = str(path.relative_to(SOURCE).with_suffix("")).replace("/", ".")
            parts.setdefault("places", {})[f"`{where}`"] = None
    return {
        code: {name: tuple(texts) for name, texts in rows[code].items()} for code in sorted(rows, key=_order)
    }


def page() -> str:
    """Return the whole page."""
    sections: Mapping[str, list[str]] = table()["sections"]
    contents = "".join(
        f"- [{title}](#{_anchor(title)}): {', '.join(families)}\n" for title, families in sections.items()
    )
    return HEAD + contents + "".join(_section(title, families) for title, families in sections.items())


def _section(title: str, families: Iterable[str]) -> str:
    codes = [code for code in spoken() if family(code) in families]
    return f"\n## {title}\n" + "".join(f"\n### {code}\n\n{_row(code)}" for code in codes)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _row(code: str) -> str:
    """Return the bullets of a code; a part that the table gives stands for all that the source says of it."""
    parts = {**spoken()[code], "places": (", ".join(spoken()[code]["places"]),)}
    parts |= {name: tuple(text.split(" / ")) for name, text in table().get(code, {}).items()}
    return "".join(_bullet(label, parts.get(part, ())) for part, label in LABELS.items())


def _bullet(label: str, texts: tuple[str, ...]) -> str:
    plain = [_escaped(text) for text in texts]
    if len(plain) < 2:
        return f"- **{label}**: {plain[0]}\n" if plain else ""
    return f"- **{label}**:\n" + "".join(f"    - {text}\n" for text in plain)


def _escaped(text: str) -> str:
    """Return a text as Markdown that shows it as it is; what stands between backticks is left alone."""
    return "".join(
        part if part.startswith("`") else re.sub(r"(\*|__)", r"\\\1", part.replace("<", "&lt;"))
        for part in re.split(r"(`[^`]*`)", text)
    )


def family(code: str) -> str:
    """Return the letters of a code between its dashes."""
    return code.split("-")[1]


def _order(code: str) -> tuple[str, int, str]:
    return family(code), int("0" + code.split("-", 2)[2]) if code.count("-") > 1 else 0, code


def said(tree: ast.Module) -> Iterator[Said]:
    """Yield what the module says with every code that is written in it."""
    for scope, node in _scoped(tree):
        items = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
        if isinstance(node, ast.Tuple) and all(_is_code(item) for item in items):
            continue  # a list of codes says nothing of them
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".startswith"):
            continue  # the beginning of some codes is none
        for at, item in enumerate(items):
            if code := _code(item, scope):
                what = _words(items[at + 1], scope) if at + 1 < len(items) else ""
                named = {k.arg: _words(k.value, scope) for k in getattr(node, "keywords", ())}
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding" and items[at + 2 :]:
                    named["fix"] = _words(items[at + 2], scope)
                yield Said(code, *map(_telling, (what, named.get("effect", ""), named.get("fix", ""))))


def _telling(text: str) -> str:
    """Return a text, or '' if all of it is only known when it is said."""
    return text if re.search(r"\w", text) else ""


def _code(node: ast.AST, scope: ast.AST) -> str:
    """Return the code that an argument is, itself or as what a parameter is where nothing is given for it."""
    if isinstance(node, ast.Name) and isinstance(scope, ast.FunctionDef):
        known = scope.args
        usual = zip(reversed(known.posonlyargs + known.args), reversed(known.defaults), strict=False)
        node = next((default for name, default in usual if name.arg == node.id), node)
    text = node.value if isinstance(node, ast.Constant) else None
    return text if isinstance(text, str) and CODE.match(text) else ""


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
