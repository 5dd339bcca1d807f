"""Print what a verb does and its flags, or the table of exit codes.

edgescope help                 # the list of verbs
edgescope help train advise    # the same as edgescope train advise --help
edgescope help exit-codes      # every code that edgescope ends with, and what it means
"""

from __future__ import annotations

import argparse
import textwrap

from edgescope.errors import ExitCode

EXIT_CODES = "exit-codes"
WIDTH = 80


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's argument."""
    sub.add_argument("words", nargs="*", metavar="VERB", help=f"a verb and its part, or {EXIT_CODES}")


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
    return "\n".join(textwrap.fill(row, WIDTH, subsequent_indent=hang) for row in rows)
