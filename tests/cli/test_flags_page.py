"""The page of every flag: each verb, part and flag of the parsers, and nothing that Markdown would swallow."""

import argparse

from edgescope.cli import docs
from edgescope.cli.main import main, parser


def test_the_page_has_every_verb_part_and_flag(capsys):
    assert main(["docs", "flags"]) == 0
    page = capsys.readouterr().out
    for name, one in docs.verbs(parser()):
        section = page.partition(f"# edgescope {name}\n")[2].partition("\n## ")[0]
        assert section, name
        flags = [
            flag for action in one._actions for flag in action.option_strings if flag not in ("-h", "--help")
        ]
        assert all(f"`{flag}" in section for flag in flags), name


def test_help_that_looks_like_markup_stays_text():
    top = argparse.ArgumentParser(description="of <b> *things*\n\n  edgescope bench <file>")
    verb = top.add_subparsers().add_parser("x", description="a | b\n\n  edgescope x <file>\n")
    verb.add_argument(
        "--to", metavar="A|B", help="<file> or `<file>`, *all* of 5 %% (%(default)s)", default=3
    )
    page = docs.flags_page(top)
    assert "| `--to A\\|B` | &lt;file> or `<file>`, \\*all\\* of 5 % (3) |" in page
    assert "\na \\| b\n" in page and "```text\nedgescope x <file>\n```" in page
