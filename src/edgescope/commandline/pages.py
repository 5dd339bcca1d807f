"""How --help looks: one width for all of it, a short usage line, and commands that can be pasted."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable
from typing import Any

COMMAND = re.compile(r"\s*edgescope (?!\d)")
"""What begins a line to paste; `edgescope 0.1.0` is a version."""
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
GAP = re.compile(r" {3,}(?!-)")
"""What stands between a command and what is said of it."""


class Pages(argparse.HelpFormatter):
    """Help of one width: paragraphs are filled; a command that is too long goes on behind a backslash."""

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """Add `edgescope bench [flags] MODEL`: the flags are listed below, those that must be given here too."""
        every = list(actions)
        flags = [a for a in every if a.option_strings]
        must = [f"{a.option_strings[0]} {self._shown(a)}" for a in flags if a.required]
        words = [*must, *(self._shown(a) for a in every if not a.option_strings)]
        optional = ["[flags]"] if len(flags) > len(must) else []
        line = " ".join([self._prog, *optional, *words])
        hang = " " * len("usage: ")
        shown = textwrap.wrap(line, self._width - len(hang), break_long_words=False, break_on_hyphens=False)
        super().add_usage(usage or f"\n{hang}".join(shown).replace("%", "%%"), every, groups, prefix)

    def _shown(self, action: argparse.Action) -> str:
        usual = (
            self._get_default_metavar_for_optional(action)
            if action.option_strings
            else self._get_default_metavar_for_positional(action)
        )
        return self._format_args(action, usual)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Return the description: its paragraphs filled, its commands one below the other."""
        blocks = re.split(r"\n\s*\n", textwrap.dedent(text).strip())
        return "\n\n".join(_block(block, width, indent) for block in blocks)


def _block(block: str, width: int, indent: str) -> str:
    lines = block.splitlines()
    if COMMAND.match(lines[0]):
        return "\n".join(part for line in lines for part in command(line.strip(), width))
    return textwrap.fill(
        " ".join(block.split()),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def command(line: str, width: int) -> list[str]:
    """Return a command as lines to paste, `# what it does` above it where both do not fit on one line."""
    if len(line) + 2 <= width:
        return [f"  {line}"]
    typed, *about = GAP.split(line, maxsplit=1)
    whole = QUOTED.sub(lambda m: m[0].replace(" ", "\0"), " ".join(typed.split()))
    parts = textwrap.wrap(
        whole, width - 4, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    said = [f"# {text.removeprefix('# ')}" for text in about]
    out = [*said, *(f"{part} \\" for part in parts[:-1]), parts[-1]]
    return [f"  {part}".replace("\0", " ") for part in out]
