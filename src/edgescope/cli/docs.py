"""Print a page of the documentation, or the meaning of a message code; both are installed with the package.

edgescope docs                 # the list of pages
edgescope docs sweeps          # one page, as Markdown
edgescope docs E-RUN-2         # what a message says, why it arises, what it does to the number, and what to do
edgescope docs schema          # the JSON schema of result.json
edgescope docs flags           # every verb with its flags
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from edgescope.commandline import trial_flags
from edgescope.commandline.parsing import verbs
from edgescope.errors import EdgescopeError, ExitCode, UsageError, flagged, known_names, near_names

CODE = re.compile(r"[EWI]-[A-Z][A-Z0-9]*(-\d+)?")
COLUMNS = 80
"""The widest a code's explanation gets, in a terminal and in a file."""

EXIT_CODES = "exit-codes"
BULLET = re.compile(r" *(?:[*-]|\d+\.) ")
SCHEMA = "schema"
"""The name of the page that is generated from the records."""
SECTIONS = ("tutorial", "how-to", REFERENCE := "reference", "explanation", "decisions")
"""The folders of the pages, in the order in which they are listed; a page in no folder belongs to the reference."""
LESSONS = ("first-number", "choose-a-variant", "my-model", "a-camera", "a-board", "language-model")
"""The pages of the tutorial, each built on those before it."""
MESSAGES = "messages"
"""The name of the page that has a heading for each code; tests/catalogue.py writes it."""
METRICS = "metrics"
"""The name of the page that defines each metric."""
DEFINED = "edgescope docs metrics"
BEGINNINGS = ("quickstart", "tutorial", "getting-started", "start", "intro")
"""What the first page of a tutorial is called elsewhere."""


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("page", nargs="?", default="", help="a page's name, a code such as E-RUN-2, or schema")
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Print the page, the code's line, or the list of pages; return 0."""
    pages = {path.stem: path for path in sorted(folder().rglob("*.md"), key=_order)}
    name = args.page.removesuffix(".md").rpartition("/")[2]
    wide = shutil.get_terminal_size().columns
    if CODE.fullmatch(name.upper()):
        found = {name.upper(): explained(name.upper(), pages, min(wide, COLUMNS))}
    elif name == SCHEMA:
        from edgescope.records.codec import result_schema

        found = {SCHEMA: json.dumps(result_schema(), indent=2)}
    elif name == FLAGS:
        from edgescope.cli.main import parser

        found = {name: flags_page(parser())}
    elif name:
        if name not in pages:
            raise _no_page(name, pages)
        found = {name: pages[name].read_text(encoding="utf-8")}
    else:
        found = {page: _title(path) for page, path in pages.items()}
        found |= {SCHEMA: "The JSON schema of result.json", FLAGS: FLAGS_TITLE}
    if args.json:
        print(json.dumps(found, indent=1))
    elif name:
        text = "".join(f"{text.rstrip()}\n" for text in found.values())
        sys.stdout.write(folded(text, wide) if sys.stdout.isatty() and name in pages else text)
    else:
        print("\n".join(_listed(found, pages)))
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


def _order(path: Path) -> tuple[int, int, Path]:
    """Return where a page stands in the list: by section, as on the site."""
    section = path.parent.name
    place = SECTIONS.index(section if section in SECTIONS else REFERENCE)
    return place, LESSONS.index(path.stem) if path.stem in LESSONS else 0, path


def _listed(found: dict[str, str], pages: dict[str, Path]) -> Iterator[str]:
    """Yield a heading for each section and a line for each page."""
    longest = max(map(len, found), default=0)
    sections: dict[str, list[str]] = {}
    for page in found:
        section = pages[page].parent.name if page in pages else REFERENCE
        sections.setdefault(section if section in SECTIONS else REFERENCE, []).append(page)
    for section, names in sections.items():
        yield f"{section}:"
        yield from (f"{page:<{longest}}  {found[page]}" for page in names)


def _no_page(name: str, pages: dict[str, Path]) -> EdgescopeError:
    """Return the error for a name that is none: with the pages that may be meant, by name, else by title."""
    if section := metric_section(name, pages):
        evidence = f"it is a metric, defined under {section!r}"
        return UsageError("E-DOCS-1", f"no page is called {name!r}", evidence=evidence, fix=DEFINED)
    near = near_names(name, [*pages, SCHEMA, FLAGS, *codes(pages)])
    near = [LESSONS[0]] if re.sub(r"[ _]", "-", name.lower()) in BEGINNINGS else near
    near = near or [page for page, path in pages.items() if name.lower() in _title(path).lower()][:3]
    fix = flagged("edgescope docs", near) or "edgescope docs"
    evidence = "" if near else known_names(pages)
    return UsageError("E-DOCS-1", f"no page is called {name!r}", evidence=evidence, fix=fix)


def metric_section(name: str, pages: dict[str, Path]) -> str:
    """Return the heading under which the page of metrics defines this metric; '' if it defines none."""
    text = pages[METRICS].read_text(encoding="utf-8") if METRICS in pages else ""
    for section in re.split(r"^##+ ", text, flags=re.M)[1:]:
        head, _, rest = section.partition("\n")
        rows = (line.split("|")[1] for line in rest.splitlines() if line.startswith("| `"))
        if any(f"`{name}`" in row for row in rows):
            return head
    return ""


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def explained(code: str, pages: dict[str, Path], width: int = COLUMNS) -> str:
    """Return what the page of messages holds of a code and the pages that speak of it, UsageError if it has none."""
    known = codes(pages)
    if code not in known:
        near = near_names(code, known)
        raise UsageError(
            "E-DOCS-2", f"no message has the code {code}", fix=flagged("edgescope docs", near or ["messages"])
        )
    more = [name for name, path in pages.items() if name != MESSAGES and mentions(path, code)]
    read = [f"- **Read more**: {', '.join(f'edgescope docs {name}' for name in more)}"] if more else []
    lines = [line for line in known[code].splitlines() if line]
    return "\n".join([code, *(_indented(line, width) for line in (*lines, *read))])


def codes(pages: dict[str, Path]) -> dict[str, str]:
    """Return code -> what stands under its heading on the page of messages, the first of a kind in its order."""
    text = pages[MESSAGES].read_text(encoding="utf-8") if MESSAGES in pages else ""
    sections = re.split(r"^##+ ", text, flags=re.M)[1:]
    heads = (section.partition("\n") for section in sections)
    return {head: rest for head, _, rest in heads if CODE.fullmatch(head)}


def _indented(line: str, width: int) -> str:
    """Return a bullet of the page as plain text that hangs under its label."""
    bare = re.sub(r"^- \*\*(.+?)\*\*", r"\1", line).replace("`", "")
    plain = re.sub(r"\\([*_])", r"\1", html.unescape(bare))
    hang = "      " if line.startswith("    ") else "  "
    return textwrap.fill(plain, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)


def mentions(page: Path, code: str) -> bool:
    """Return whether a page speaks of a code."""
    return re.search(rf"\b{code}\b", page.read_text(encoding="utf-8")) is not None


# -- the page of every verb with its flags, made from the parsers: `edgescope docs flags` and the site ------------

FLAGS, FLAGS_TITLE = "flags", "Every verb with its flags"
FLAGS_HEAD = f"""# {FLAGS_TITLE}

Made from the command line itself: `edgescope help VERB` prints the same for one verb. [Every command](commands.md) has
an example of each.
"""


def flags_page(top: argparse.ArgumentParser) -> str:
    """Return the whole page, in Markdown."""
    parts = [FLAGS_HEAD, *_options(top), *(_section(name, one) for name, one in verbs(top))]
    return "\n".join([*parts, "## Exit codes", "", _plain(top.epilog or ""), ""])


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    level = "###" if " " in name else "##"
    lines = [f"{level} edgescope {name}", ""]
    for block in re.split(r"\n\s*\n", (parser.description or "").strip()):
        is_code = all(line.startswith(("  ", "edgescope ")) for line in block.splitlines())
        lines += (
            ["```text", *(line.strip() for line in block.splitlines()), "```", ""]
            if is_code
            else [_plain(block), ""]
        )
    return "\n".join([*lines, *_options(parser)])


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a table for each group of the parser's arguments and flags; none for a verb that only has parts."""
    for group in parser._action_groups:
        rows = [
            f"| {_typed(action)} | {_plain(parser._get_formatter()._expand_help(action))} |"
            for action in group._group_actions
            if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
            and action.help not in (None, argparse.SUPPRESS)
        ]
        if rows:
            yield "\n".join([f"| {group.title or 'options'} | meaning |", "|---|---|", *rows, ""])


def _typed(action: argparse.Action) -> str:
    """Return an argument as it is typed: its flags, and the name or choices of its value."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    value = metavar or choices or action.dest.upper()
    if not action.option_strings:
        return _code(value)
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(_code(f"{flag}{takes}") for flag in action.option_strings)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _plain(text: str) -> str:
    """Return help text as one line of Markdown: what looks like a tag or a column is none."""
    words = " ".join(text.split()).replace("|", "\\|")
    parts = re.split(r"(`[^`]*`)", words)
    return "".join(
        part if part.startswith("`") else re.sub(r"<(?=[A-Za-z/])", "&lt;", part).replace("*", "\\*")
        for part in parts
    )


# -- edgescope help ------------------------------------------------------------------------------------------


class Help:
    """Print what a verb does and its flags, or the table of exit codes.

    edgescope help                 # the list of verbs
    edgescope help train advise    # the same as edgescope train advise --help
    edgescope help exit-codes      # every code that edgescope ends with, and what it means
    """

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's argument."""
        sub.add_argument("words", nargs="*", metavar="VERB", help=f"a verb and its part, or {EXIT_CODES}")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print the help; return 0, or the code of a verb that does not exist."""
        if args.words == [EXIT_CODES]:
            print(table())
            return ExitCode.OK
        from edgescope.cli.main import main  # it imports this module

        return main([*args.words, "--help"])


def table() -> str:
    """Return every exit code with its name and its meaning."""
    wide = max(len(code.label) for code in ExitCode)
    hang = " " * (wide + 7)
    rows = (f"{code:>3}  {code.label:<{wide}}  {code.meaning}" for code in ExitCode)
    return "\n".join(textwrap.fill(row, COLUMNS, subsequent_indent=hang) for row in rows)
