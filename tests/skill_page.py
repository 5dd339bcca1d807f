"""Writes skills/edgescope/SKILL.md, by which a coding agent drives edgescope: five verbs, their JSON, the exit codes.

    python tests/skill_page.py skills/edgescope/SKILL.md

Flags are the parsers', exit codes the table's, and the keys of the JSON are those that each verb printed when this ran.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.cli.main import main, parser
from edgescope.errors import ExitCode

MODEL = ("null", "--backend", "null", "--option", "delay_us=500", "--duration", "0.3s")
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "doctor": ("before measuring: what this machine can measure, and what would disturb it", ()),
    "bench": ("to measure a model", MODEL),
    "gate": ("to judge a change: PASS, FAIL or INCONCLUSIVE", ("latest", "--constraint", "p50<=1s")),
    "explain": ("to learn what limits a result, and what would help", ("latest",)),
    "list": ("to find results by name", ()),
}
"""Verb -> when to use it, and what is typed to see its JSON; in this order on one store."""
HEAD = """---
name: edgescope
description: Measure, judge and explain deep learning on this machine or a board, with numbers that say if they hold.
---

# edgescope

Every verb takes `--json`: stdout then holds one JSON text, progress goes to stderr. A figure is
`{"value", "lo", "hi", "n", "unit"}`, or `{"absent": reason}`: absent is not 0. Read `status`, `verdict.trust` and
`verification.passed` before a figure: a run that is DISTURBED or THROTTLED, or whose outputs were wrong, proves
nothing. INCONCLUSIVE is no pass. `edgescope docs CODE` explains a message by its code.
"""


def written(keys: dict[str, list[str]]) -> str:
    """Return the page; `keys`: the keys of each verb's JSON."""
    parts = [HEAD, *(section(verb, keys[verb]) for verb in RUNS), codes()]
    return "\n".join(parts)


def section(verb: str, keys: list[str]) -> str:
    """Return what one verb does, how it is typed, its flags, and the keys of its JSON."""
    sub = parsers()[verb]
    examples = re.findall(r"^ +(edgescope .+)$", sub.description or "", re.MULTILINE)
    typed = "\n".join(examples[:3]) or f"edgescope {verb} --json"
    flags = "\n".join(f"| `{flag}` | {text} |" for flag, text in sorted(options(sub)))
    named = ", ".join(f"`{key}`" for key in keys)
    return (
        f"\n## edgescope {verb}\n\nUse it {RUNS[verb][0]}.\n\n```bash\n{typed}\n```\n\n"
        f"JSON: {named}.\n\n| flag | what |\n|---|---|\n{flags}\n"
    )


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each verb."""
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise LookupError("the command line has no verbs")


def options(sub: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield each long flag with its value, and its help."""
    for action in sub._actions:
        long = next((flag for flag in action.option_strings if flag.startswith("--")), "")
        if long and long != "--help":
            value = f" {action.metavar}" if action.metavar and action.nargs != 0 else ""
            yield (
                f"{long}{value}".replace("|", " or "),
                (action.help or "").replace("%%", "%").replace("|", " or "),
            )


def codes() -> str:
    """Return the table of exit codes."""
    rows = "\n".join(f"| {code.value} | {code.meaning} |" for code in ExitCode)
    return f"\n## Exit codes\n\n| code | meaning |\n|---|---|\n{rows}\n"


def printed() -> dict[str, list[str]]:
    """Run each verb on one store; return the keys of its JSON."""
    with tempfile.TemporaryDirectory() as store:
        return {verb: keys(verb, words, store) for verb, (_, words) in RUNS.items()}


def keys(verb: str, words: tuple[str, ...], store: str) -> list[str]:
    """Return the keys of one verb's JSON; of a list, those of its first item."""
    assert verb in registry.VERBS
    where = () if verb == "doctor" else ("--store", store)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main([verb, *words, *where, "--json"])
    found: Any = json.loads(out.getvalue())
    return list(found[0] if isinstance(found, list) else found)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(written(printed()), encoding="utf-8")
