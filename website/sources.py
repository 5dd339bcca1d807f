"""Write the pages of the site into a folder, ready for its builder; run by `make docs`.

python website/sources.py build/docs

The pages are read in three places: on the site, in a checkout and in a terminal. So their links are those of the
checkout, and the site gets a copy of each file outside of docs/ that a page names: it works without a repository.
README.md is the front page. Two pages of the reference are made here: the flags from the parsers, and the functions
and records from their docstrings.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()((?!https?:|mailto:|#)[^)\s#]+)([^)\s]*\))")
CODE = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
COPIES = "repository"
"""The folder of the site that holds the files from outside of docs/."""
FRONT = "README.md"
FLAGS, FUNCTIONS = MADE = ("reference/flags.md", "reference/functions.md")
"""The pages that are made from the code."""
HEAD = """# Every function and record

What `import edgescope` offers, from its docstrings. [The Python library](api.md) shows how they are used.
"""


def write(folder: Path, root: Path = ROOT) -> None:
    """Write every page, and every file that a page links to."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "website/assets", folder / "assets")
    waiting = [FRONT, *(str(path.relative_to(root)) for path in sorted((root / "docs").rglob("*.md")))]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        text = _text(root / path)
        target = folder / place(path, (root / path).is_dir())
        target.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            shutil.copyfile(root / path, target)
            continue
        target.write_text(moved(text, path, root), encoding="utf-8")
        new = [one for one in links(text, path) if one not in seen and (root / one).exists()]
        waiting += new
        seen.update(new)


def write_reference(folder: Path) -> None:
    """Write the pages of the command line's flags and of the package's public names."""
    import edgescope
    from edgescope.cli import docs
    from edgescope.cli.main import parser
    from edgescope.registry import functions

    (folder / FLAGS).write_text(docs.flags_page(parser()), encoding="utf-8")
    names = [name for name in edgescope.__all__ if not name.startswith("_")]
    verbs = sorted(name for name in functions() if name.islower())
    records = [name for name in names if name not in verbs]
    parts = [HEAD, *_documented("Functions", verbs), *_documented("Records and settings", records)]
    (folder / FUNCTIONS).write_text("\n".join(parts), encoding="utf-8")


def _documented(title: str, names: Sequence[str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield from (f"::: edgescope.{name}\n" for name in names)


def place(path: str, is_folder: bool = False) -> str:
    """Return where a file of the repository lies on the site; a folder is a page that lists it."""
    if path == FRONT:
        return "index.md"
    path = f"{path}/index.md" if is_folder else path
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIES}/{path}"


def links(text: str, path: str) -> Iterator[str]:
    """Yield the files and folders of the repository to which the page at `path` links."""
    for part in CODE.split(text)[::2]:
        for found in LINK.finditer(part):
            yield _target(found[2], path)


def moved(text: str, path: str, root: Path = ROOT) -> str:
    """Return the page at `path` with its links as they must be on the site."""
    here = PurePosixPath(place(path)).parent

    def link(found: re.Match[str]) -> str:
        target = _target(found[2], path)
        return f"{found[1]}{os.path.relpath(place(target, (root / target).is_dir()), here)}{found[3]}"

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def _text(path: Path) -> str | None:
    """Return the text of a page; of a folder its list; None of another file."""
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if not one.name.startswith((".", "_")))
        return f"# {path.name}\n\n" + "".join(f"* `{name}`\n" for name in names)
    return path.read_text(encoding="utf-8") if path.suffix == ".md" else None


def _target(link: str, path: str) -> str:
    return os.path.normpath(PurePosixPath(path).parent / link)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    write_reference(Path(sys.argv[1]))
