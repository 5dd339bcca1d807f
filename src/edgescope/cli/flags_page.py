"""The page of every verb with its flags, in Markdown, made from the parsers: `edgescope docs flags` and the site."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from edgescope.commandline.parsing import verbs

NAME, TITLE = "flags", "Every verb with its flags"
HEAD = f"""# {TITLE}

Made from the command line itself: `edgescope help VERB` prints the same for one verb. [Every command](commands.md) has
an example of each.
"""


def page(top: argparse.ArgumentParser) -> str:
    """Return the whole page."""
    parts = [HEAD, *_options(top), *(_section(name, one) for name, one in verbs(top))]
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
