"""The parser of every verb: how its help looks, and errors that are one message with what to type instead."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from edgescope.errors import Message, closest_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

WHOLE: list[Callable[[], argparse.ArgumentParser]] = []
"""What makes the parser of every verb with its flags: the command's own file, which imports this one, puts it here."""
LISTED = 10
"""Most names of parts or studies that a message lists."""


def add_parts(sub: argparse.ArgumentParser, parts: Mapping[str, Any]) -> None:
    """Add the parts of a verb (`edgescope VERB PART ...`): name -> class with its text, HELP, configure and run."""
    import inspect  # a third of what the first page of help takes to start, which has no parts

    found = sub.add_subparsers(dest="part", metavar="PART", required=True)
    for name, part in parts.items():
        one = found.add_parser(name, help=part.HELP, description=inspect.cleandoc(part.__doc__))
        part.configure(one)


def verbs(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield `bench`, `train`, `train advise` ... with their parsers."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, one in action.choices.items():
                yield f"{name}{word}", one
                yield from verbs(one, f"{name}{word} ")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are edgescope's messages; exit code 2.

    It is made when it is first asked for something: a command line needs one verb's parser of thirty.
    """

    fix = ""

    def __init__(self, **how: Any) -> None:
        # no shortened flags: a new flag could change what one means
        vars(self)["_how"] = {"formatter_class": Pages, "allow_abbrev": False} | how

    def __getattr__(self, name: str) -> Any:
        if not self._made():
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._made()
        super().__setattr__(name, value)

    def _made(self) -> bool:
        """Make the parser; return whether it was not made before."""
        how = vars(self).pop("_how", None)
        if how is not None:
            super().__init__(**how)
        return how is not None

    def error(self, text: str) -> NoReturn:
        """Print what is wrong and what to type instead; exit with code 2."""
        parts = [name for action in self._actions for name in _parts(action)]
        listed = 0 < len(parts) <= LISTED and text.startswith("the following arguments are required")
        evidence = f"known: {', '.join(parts)}" if listed else ""
        fix = self.fix or f"{self.prog} --help"
        from edgescope.process import said

        said.say(Message("E-ARGS-1", text, evidence=evidence, fix=fix))
        self.exit(2)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Return the arguments; the verb's own parser reports arguments that it does not take."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            _innermost(self, found)._refuse(left)
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError, with the closest choice, if the value is none of the choices."""
        if action.choices is None or value in action.choices:
            return
        known = [str(c) for c in action.choices]
        close = closest_name(str(value), known)
        listed = "" if close and len(known) > 6 else f" ({', '.join(known)})"
        if action.option_strings:
            self.fix = f"{action.option_strings[-1]} {close}" if close else ""
            what = f"{action.option_strings[-1]} does not take {value!r}{listed}"
        else:
            self.fix = f"{self.prog} {close}" if close else ""
            what = f"no {str(action.metavar or action.dest).lower()} is called {value!r}{listed}"
        raise argparse.ArgumentError(None, what)

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        flags = [word.partition("=")[0] for word in left if word.startswith("-")]
        if not flags:
            self.error(f"{self.prog} does not take the argument {left[0]!r}")
        close = dict.fromkeys(filter(None, (closest_name(f, self._option_string_actions) for f in flags)))
        self.fix = self._elsewhere(flags[0]) or " ".join(close)
        self.error(f"{self.prog} has no flag {', '.join(flags)}")

    def _elsewhere(self, flag: str) -> str:
        """Return the verb that takes a flag which this one lacks, '' if none does."""
        fix = fits(self.prog.partition(" ")[2], WHOLE[0])(flag) if WHOLE else flag
        return fix if fix != flag else ""


def _parts(action: argparse.Action) -> list[str]:
    """Return the names of the verbs, parts or studies that an action chooses among."""
    return list(action.choices) if isinstance(action, argparse._SubParsersAction) else []


def _innermost(parser: Parser, found: argparse.Namespace) -> Parser:
    """Return the parser of the innermost verb on the command line."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = action.choices.get(getattr(found, action.dest, ""))
            return _innermost(inner, found) if inner is not None else parser
    return parser


# -- a remedy fits the verb that prints it: a message is made where many verbs meet, and does not know which one runs

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


# -- how --help looks: one width for all of it, a short usage line, and commands that can be pasted --------------

PASTED = re.compile(r"\s*edgescope (?!\d)")
"""What begins a line to paste; `edgescope 0.1.0` is a version."""
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
GAP = re.compile(r" {3,}(?!-)")
"""What stands between a pasted and what is said of it."""


class Pages(argparse.HelpFormatter):
    """Help of one width: paragraphs are filled; a pasted that is too long goes on behind a backslash."""

    def __init__(self, prog: str, **how: Any) -> None:
        super().__init__(prog, **{"width": _columns() - 2} | how)

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


def _columns() -> int:
    """Return the terminal's width; what argparse asks for it loads three compressors first."""
    if (told := os.environ.get("COLUMNS", "")).isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


def _block(block: str, width: int, indent: str) -> str:
    lines = block.splitlines()
    if PASTED.match(lines[0]):
        return "\n".join(part for line in lines for part in pasted(line.strip(), width))
    return textwrap.fill(
        " ".join(block.split()),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def pasted(line: str, width: int) -> list[str]:
    """Return a pasted as lines to paste, `# what it does` above it where both do not fit on one line."""
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
