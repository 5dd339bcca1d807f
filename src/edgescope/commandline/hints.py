"""A remedy fits the verb that prints it: a message is made where many verbs meet, and does not know which one runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from functools import cache

from edgescope.commandline.parsing import verbs

FLAG = re.compile(r"(?<![\w/=<}\"'-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"\b(edgescope|sudo|pip|docker|python3?|trtexec|nsys|nvidia-smi|ssh) ")
"""A whole command, which has flags of its own."""
VALUE = re.compile(r"--(workload|scenario)-option (\w+)=")
"""What names an option of a trial: where that is an argument of the verb, its value stands alone."""
MEASURE = ("bench", "optimize", "sweep")
"""Verbs that are named first where another one than the running verb has a flag."""


def fits(verb: str, top: Callable[[], argparse.ArgumentParser]) -> Callable[[str], str]:
    """Return what makes of a remedy one that can be typed to `verb`, such as `anomaly watch`.

    A flag that the verb does not take is replaced by its value, or left out where there is another way, or the remedy
    names a verb that takes it. `top` makes the parser with all flags, when the first remedy needs it.
    """

    @cache
    def known() -> tuple[Mapping[str, argparse.ArgumentParser], set[str]]:
        made = top()
        return dict(verbs(made)), set(made._option_string_actions)

    def fitted(fix: str) -> str:
        own = FLAG.search(fix) and not COMMAND.search(fix)
        return _fix(fix, verb, *known()) if own else fix

    return fitted


def _fix(fix: str, verb: str, known: Mapping[str, argparse.ArgumentParser], everywhere: set[str]) -> str:
    if verb not in known:
        return fix
    bare = VALUE.sub("", fix)
    arguments = {a.dest for a in known[verb]._actions if not a.option_strings}
    if any(option[2] in arguments for option in VALUE.finditer(fix)):
        return bare
    if _takes(known[verb], fix, everywhere):
        return fix
    if _takes(known[verb], bare, everywhere):
        return bare
    able = [each for each in fix.split(", or ") if _takes(known[verb], each, everywhere)]
    if able:
        return ", or ".join(able)
    others = sorted(known, key=lambda name: (name not in MEASURE, name == "demo"))
    other = next((name for name in others if _takes(known[name], fix, everywhere)), "")
    return f"edgescope {other} ... with {fix}" if other else fix


def _takes(parser: argparse.ArgumentParser, fix: str, everywhere: set[str]) -> bool:
    return set(FLAG.findall(fix)) <= everywhere | set(parser._option_string_actions)
