"""Print a page of the documentation, or the meaning of a message code; both are installed with the package.

edgescope docs                 # the list of pages
edgescope docs sweeps          # one page, as Markdown
edgescope docs E-RUN-2         # what a code means, what it does to the number, and what helps
edgescope docs schema          # the JSON schema of result.json
edgescope docs flags           # every verb with its flags
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import textwrap
from pathlib import Path

from edgescope.cli import flags_page, trial_flags

HELP = "print a page of the documentation, or what a message code means and what helps"
CODE = re.compile(r"[EWI]-[A-Z][A-Z0-9]*-\d+")

BULLET = re.compile(r" *(?:[*-]|\d+\.) ")
SCHEMA = "schema"
"""The name of the page that is generated from the records."""


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("page", nargs="?", default="", help="a page's name, a code such as E-RUN-2, or schema")
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Print the page, the code's line, or the list of pages; return 0."""
    from edgescope.errors import UsageError, closest_name

    pages = {path.stem: path for path in sorted(folder().rglob("*.md"))}
    name = args.page.removesuffix(".md").rpartition("/")[2]
    if CODE.fullmatch(name.upper()):
        found = {name.upper(): _code(name.upper(), pages)}
    elif name == SCHEMA:
        from edgescope.records.schema import result_schema

        found = {SCHEMA: json.dumps(result_schema(), indent=2)}
    elif name == flags_page.NAME:
        from edgescope.cli.main import parser

        found = {name: flags_page.page(parser())}
    elif name:
        if name not in pages:
            close = closest_name(name, pages)
            raise UsageError(
                "E-DOCS-1",
                f"no page is called {name!r}",
                evidence=f"pages: {', '.join(pages)}",
                fix=f"edgescope docs {close}" if close else "edgescope docs",
            )
        found = {name: pages[name].read_text(encoding="utf-8")}
    else:
        found = {page: _title(path) for page, path in pages.items()}
        found |= {SCHEMA: "The JSON schema of result.json", flags_page.NAME: flags_page.TITLE}
    if args.json:
        print(json.dumps(found, indent=1))
    elif name:
        text = "".join(f"{text.rstrip()}\n" for text in found.values())
        sys.stdout.write(folded(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)
    else:
        wide = max(map(len, found), default=0)
        print("\n".join(f"{page:<{wide}}  {title}" for page, title in found.items()))
    return 0


def folded(page: str, width: int) -> str:
    """Return a page whose paragraphs and bullets fit into `width` columns; code and tables stay as they are."""
    blocks: list[tuple[bool, str]] = []
    code = False
    for line in page.splitlines():
        fence = line.lstrip().startswith("```")
        code ^= fence
        whole = code or fence or not line.strip() or line.lstrip().startswith(("|", "#", "<"))
        if whole or BULLET.match(line) or not blocks or blocks[-1][0]:
            blocks.append((whole, line))
        else:
            blocks[-1] = (False, f"{blocks[-1][1]} {line.strip()}")
    return "\n".join(line if whole else _wrapped(line, width) for whole, line in blocks) + "\n"


def _wrapped(line: str, width: int) -> str:
    bullet = BULLET.match(line)
    hang = " " * len(bullet[0] if bullet else "")
    return textwrap.fill(line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)


def folder() -> Path:
    """Return the folder of the pages: in the installed package, or in the checkout that is running."""
    package = Path(__file__).parents[1]
    installed = package / "docs"
    return installed if installed.is_dir() else package.parents[1] / "docs"


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def _code(code: str, pages: dict[str, Path]) -> str:
    """Return what a code means, what helps, and the pages that speak of it; UsageError if messages.md lacks it."""
    from edgescope.errors import UsageError

    text = pages["messages"].read_text(encoding="utf-8") if "messages" in pages else ""
    line = next((row for row in text.splitlines() if row.startswith(f"| {code} |")), None)
    if line is None:
        raise UsageError("E-DOCS-2", f"no message has the code {code}", fix="edgescope docs messages")
    _, what, effect, fix, where = (c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1])
    modules = ", ".join(f"edgescope.{name}" for name in where.replace("`", "").split(", "))
    more = [name for name, path in pages.items() if name != "messages" and mentions(path, code)]
    parts = {
        "what happened": what,
        "what it does": effect or KINDS[code[0]],
        "what helps": fix or "the message itself says what fits the moment, behind Try:",
        "more": ", ".join(f"edgescope docs {name}" for name in more),
        "said by": modules,
    }
    return "\n".join([code, *(f"{name + ':':<15}{said}" for name, said in parts.items() if said)])


#: First letter of a code -> what it does to a number where its message does not say it.
KINDS = {
    "E": "an error: nothing, or not this, was measured",
    "W": "a warning: the number beside it stands, with what it says",
    "I": "news: no number is touched",
}


def mentions(page: Path, code: str) -> bool:
    """Return whether a page speaks of a code."""
    return re.search(rf"\b{code}\b", page.read_text(encoding="utf-8")) is not None
