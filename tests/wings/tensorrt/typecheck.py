"""Type-check the TensorRT backend against the stubs of TensorRT 10.13, which are not a dependency.

    pip install --no-deps --target /tmp/stubs tensorrt-stubs==10.13.0.35.1
    python tests/wings/tensorrt/typecheck.py /tmp/stubs

The stubs (tensorrt-stubs on PyPI, MIT) ask for TensorRT itself when they are installed with their dependencies, and
leave an empty package `tensorrt` behind where they are installed without: hence a folder of their own. They were
generated: a few signatures are no Python, and a constant called bool hides the type. That is repaired in a copy;
what else mypy finds in the stubs is left out.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WING = ROOT / "src" / "edgescope" / "wings" / "tensorrt"
FILES = [
    *sorted(WING.glob("*.py")),
    Path(__file__).with_name("fits_stubs.py"),
]


def repaired(text: str) -> str:
    """Return a stub file whose unreadable signatures take and return anything, and in which bool is bool."""
    lines = [line for line in text.splitlines() if not line.startswith("bool:")]
    while True:
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            at = error.lineno - 1
            while not lines[at].lstrip().startswith("def "):
                at -= 1
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            lines[at] = f"{indent}def unreadable_{at}(self, *args: typing.Any) -> typing.Any:"
        else:
            return "\n".join(lines) + "\n"


def check(stubs: Path, folder: Path) -> list[str]:
    """Return what strict mypy finds in the backend, with the stubs of `stubs` repaired under `folder`."""
    for name in ("tensorrt", "tensorrt_bindings"):
        shutil.copytree(stubs / name, folder / name)
    for path in folder.rglob("*.pyi"):
        path.write_text(repaired(path.read_text()))
    mypy = [sys.executable, "-m", "mypy", "--no-warn-unused-ignores", "--cache-dir", str(folder / "cache")]
    done = subprocess.run(
        [*mypy, *map(str, FILES)],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1) or done.stderr:
        return [done.stdout, done.stderr]
    return [line for line in done.stdout.splitlines() if line.startswith(("src/edgescope", "tests"))]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        found = check(Path(sys.argv[1]), Path(temporary))
    print("\n".join(found) or f"{len(FILES)} files fit the stubs")
    sys.exit(bool(found))
