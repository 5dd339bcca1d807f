"""Where a source file can be changed, and how: Cosmic Ray's operators, one mutant a place, its likeliest slip.

Cosmic Ray offers every replacement of an operator by every other. Most of them (`a / b` as `a << b`) end in a TypeError
that any test notices, so they tell nothing; here `+` becomes `-`, `<` becomes `<=` or `>=`, a number moves by one.
Annotations are left out, since nothing evaluates them, and numbers of which one more is less than a thousandth more.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

KIN = {
    "ReplaceBinaryOperator": {
        *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul", "Pow_Mul"),
        *("BitOr_BitAnd", "BitAnd_BitOr", "LShift_RShift", "RShift_LShift"),
    },
    "ReplaceComparisonOperator": {
        *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
        *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    },
    "ReplaceUnaryOperator": {"UAdd_USub", "USub_UAdd", "Delete_USub", "Delete_Not", "Delete_Invert"},
}
NEEDS_ARGUMENTS = {"VariableReplacer", "VariableInserter"}


@dataclass(frozen=True)
class Place:
    """Where operators of one family apply: file, line and column (from 1 and 0), name and occurrence of each."""

    module: str
    line: int
    column: int
    choices: tuple[tuple[str, int], ...]
    text: str

    def rank(self, seed: int) -> str:
        """Its place in the order of drawing, which stays the same when lines elsewhere change."""
        return _hash(seed, self.module, self.text, self.column, _family(self.choices[0][0]))

    def mutant(self, source: str, seed: int) -> Mutant | None:
        """The mutant that the seed chooses here, or None where every change leaves the same program or none."""
        for name, occurrence in sorted(self.choices, key=lambda c: _hash(seed, self.text, c[0])):
            code = _mutated(source, name, occurrence)
            if code and _is_another_program(source, code):
                return Mutant(self.module, self.line, self.column, name, *_changed(source, code), code)
        return None


@dataclass(frozen=True)
class Mutant:
    """One change: file, line, column, operator, the lines before and after, and the whole file with the change."""

    module: str
    line: int
    column: int
    operator: str
    was: str
    now: str
    code: str


def places(module: str, source: str) -> list[Place]:
    """Every place of the file that an operator can change."""
    found: dict[tuple[int, int, str], list[tuple[str, int]]] = defaultdict(list)
    unevaluated, lines = _annotations(ast.parse(source)), source.splitlines()
    for name, occurrence, (line, column) in _positions(source):
        if not any(start <= (line, column) < end for start, end in unevaluated):
            found[line, column, _family(name)].append((name, occurrence))
    return [
        Place(module, line, column, tuple(choices), " ".join(lines[line - 1].split()))
        for (line, column, _), choices in sorted(found.items())
    ]


def _positions(source: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Each operator, its running number in the file, and where it applies."""
    nodes = [
        n for n in ast_nodes(get_ast(source)) if n.type not in ("name", "newline", "string", "endmarker")
    ]
    for name in _names():
        hits = [(node, place[0]) for node in nodes for place in _operator(name).mutation_positions(node)]
        for occurrence, (node, place) in enumerate(hits):
            if not _marker(node) and not (_large(node) and name == "NumberReplacer"):
                yield name, occurrence, place


def _marker(node: Any) -> bool:
    """Whether this is the `*` or `/` between parameters, which is no arithmetic."""
    return node.parent is not None and node.parent.type == "parameters"


def _large(node: Any) -> bool:
    """Whether this is a number that one more or less hardly changes."""
    return node.type == "number" and abs(ast.literal_eval(node.value)) > 1000


def _mutated(source: str, name: str, occurrence: int) -> str:
    """Return the file with the change; '' for `a.b` in `except (a.b, c)`, which Cosmic Ray finds and cannot replace."""
    try:
        return str(mutate_code(source, _operator(name), occurrence))
    except AttributeError:
        return ""


def _is_another_program(source: str, code: str) -> bool:
    try:
        return ast.dump(ast.parse(code)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _changed(source: str, code: str) -> tuple[str, str]:
    """The lines that differ, before and after, each as one line."""
    lines = list(difflib.ndiff(source.splitlines(), code.splitlines()))
    was, now = (
        " ".join(" ".join(line[2:].split()) for line in lines if line.startswith(sign))
        for sign in ("- ", "+ ")
    )
    return was, now


def _annotations(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Start and end of everything that is an annotation."""
    found: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
    return [
        ((e.lineno, e.col_offset), (e.end_lineno or e.lineno, e.end_col_offset or e.col_offset))
        for e in found
        if e is not None
    ]


@lru_cache
def _operator(name: str) -> Any:
    return OperatorProvider()[name]()


@lru_cache
def _names() -> tuple[str, ...]:
    found = []
    for name in sorted(OperatorProvider()):
        kin = KIN.get(_family(name))
        if name not in NEEDS_ARGUMENTS and (kin is None or name.split("_", 1)[1] in kin):
            found.append(name)
    return tuple(found)


def _family(name: str) -> str:
    return name.split("_", 1)[0]


def _hash(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()
