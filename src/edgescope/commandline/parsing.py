"""The parser of every verb: an error is one message with the closest valid word, not a page of usage."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from edgescope.commandline.pages import Pages
from edgescope.errors import Message, closest_name

WHOLE: list[Callable[[], argparse.ArgumentParser]] = []
"""What makes the parser of every verb with its flags: the command's own file, which imports this one, puts it here."""
LISTED = 10
"""Most names of parts or studies that a message lists."""


def add_parts(sub: argparse.ArgumentParser, parts: Mapping[str, Any]) -> None:
    """Add the parts of a verb (`edgescope VERB PART ...`): name -> module with HELP, configure and run."""
    found = sub.add_subparsers(dest="part", metavar="PART", required=True)
    for name, module in parts.items():
        one = found.add_parser(name, help=module.HELP, description=module.__doc__)
        module.configure(one)


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
        from edgescope.process import said  # a command that is understood has no need of it

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
        from edgescope.commandline.hints import fits  # it imports this module

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
