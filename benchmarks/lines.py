"""How many lines the package has, by the kind of work that alone needs them (`python benchmarks/lines.py`).

A file belongs to the first kind below that its path matches; what matches none serves the measuring of inference, alone
or concurrent, and most of that serves the other kinds too. Code is what is neither docstring, comment nor blank.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src/edgescope"
BASE = "inference, alone and concurrent"
KINDS = {
    "anomaly": r"anomaly|watching/|(verbs|report|cli)/\w*watch|stats/ranking|video/(alarm|online|snippets)",
    "training": r"train|models/clip/|run/epochs|interleave|photo_set",
    "video": r"video|ladder|workloads/pipeline|models/boxes/|image/(detector|faces|ssd)|predict/pipeline|frame_age",
    "tracing": r"(?<!trtexec/)traced?\.py|traces|tracing/|analysis/kernels/|plots/kernels|bench/program|records/spans",
    "explanation": r"diagnose|expla|(?<!tensorrt/)layers|ceilings|predict/roofline\.py",
    "prediction": r"predict(?!/(gp|priors|queueing))|profiling",
}


def kind_of(path: str) -> str:
    """Return the kind of work that needs a file, by its path below src/edgescope."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, path)), BASE)


def counted(text: str) -> Counter[str]:
    """Return how many lines of a module are code, docstring, comment and blank."""
    lines = text.splitlines()
    found = ["code" if line.strip() else "blank" for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not lines[token.start[0] - 1][: token.start[1]].strip():
            found[token.start[0] - 1] = "comment"
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            found[node.lineno - 1 : node.end_lineno] = ["docstring"] * (node.end_lineno - node.lineno + 1)
    return Counter(found)


def main() -> None:
    """Print a line for each kind of work, then one for each package."""
    kinds: dict[str, Counter[str]] = {}
    packages: dict[str, Counter[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        found = counted(path.read_text())
        for table, key in ((kinds, kind_of(str(name))), (packages, name.parts[0])):
            table.setdefault(key, Counter()).update(found)
    for table in (kinds, packages):
        print(f"{'':32}{'lines':>8}{'code':>8}{'docstr.':>8}{'blank':>8}")
        for key, c in sorted(table.items(), key=lambda item: -item[1].total()):
            print(f"{key:32}{c.total():8,}{c['code']:8,}{c['docstring']:8,}{c['blank']:8,}")
        print(f"{'':32}{sum(c.total() for c in table.values()):8,}\n")


if __name__ == "__main__":
    main()
